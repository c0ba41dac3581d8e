//! Step of the route: the matching route and the expected cost.

use super::copy_use::CopyEffect;
use super::input::ExplainInput;
use super::step::{Stage, Step};
use crate::terminal::decimal;
use serde_json::{Map, Value};
use tidegate_config::SettingPath;
use tidegate_policy::QuotaId;
use tidegate_policy::cost::Cost;
use tidegate_policy::decide::QuotaSnapshot;
use tidegate_policy::path_costs::Generalization;
use tidegate_policy::request_body::JsonMatch;

pub(super) fn step(input: &ExplainInput<'_>) -> Step {
    let (route, id) = (input.route(), input.route_id());
    let has_copy = input.copy.effect() == CopyEffect::Answer;
    let costs = match input.quota_snapshots.as_slice() {
        // A stored response answered, so that no quota was asked.
        [] if has_copy => route.costs.iter().map(|&(id, cost)| configured_cost(input, id, cost)).collect(),
        positions => positions.iter().map(cost).collect::<Vec<_>>(),
    };
    let redirect = input.redirect();
    // A decision of a gateway or a replay has the learned costs.
    let unknown = if input.logged.is_none() { input.quotas_that_may_be_reported() } else { Vec::new() };
    let message = match (costs.as_slice(), has_copy) {
        _ if let Some(redirect) = redirect => format!("{} redirects to {redirect}, which costs nothing", route.name),
        ([], _) if !unknown.is_empty() => format!("{} has no cost of its own", route.name),
        ([], _) => format!("{} costs nothing, so no quota refuses it", route.name),
        (costs, false) => format!("{} costs {}", route.name, costs.join(" and ")),
        (costs, true) => {
            format!("{} costs {}, or nothing if a stored response answers", route.name, costs.join(" and "))
        }
    };
    let learned = route.costs.iter().any(|(_, cost)| *cost == Cost::Learned);
    let is_stated = input.logged.is_none() && !route.requested_costs.is_empty();
    let by_path = input.quota_snapshots.iter().any(|snapshot| input.is_learned(snapshot.id));
    let evidence = match (learned, by_path) {
        (_, true) => Some(learned_from(input)),
        (false, false) if redirect.is_none() && !unknown.is_empty() => Some(format!(
            "learned costs of {} are not known here: if the origin reports costs of paths like this, a running gateway \
             charges and refuses it. `tidegate explain ID`, with the `id` of a request in the access log, shows its cost",
            unknown.join(" and ")
        )),
        (true, false) => Some("the cost is learned; the first estimate is one unit".to_owned()),
        (false, false) if is_stated => Some(
            "the body of a request states its cost (`json`, `per_byte`): this is the cost of one that states none, before costs \
             are learned"
                .to_owned(),
        ),
        (false, false) => None,
    };
    let evidence = evidence.into_iter().chain(body(input)).chain(fields(input));
    let costs: Map<String, Value> = input
        .quota_snapshots
        .iter()
        .map(|snapshot| (snapshot.quota.name.clone(), snapshot.cost.as_f64().into()))
        .collect();
    let evidence = evidence.chain(input.sent_as()).collect();
    Step::info(Stage::Route, message)
        .with_evidence(evidence)
        .with_rule(input.environment.rule(&SettingPath::of_route(id.index())))
        .with_number("route", route.name.as_str())
        .with_number("cost", costs)
}

/// Returns what the route has to do with the body of the request; `None` if nothing.
fn body(input: &ExplainInput<'_>) -> Option<String> {
    let (rules, request) = (input.environment.rules(), input.request.facts());
    match request.json {
        Some(JsonMatch::Unreadable) => Some(
            "its body cannot be read as one JSON object in one way only: of the routes that it may be meant for, this one costs most"
                .to_owned(),
        ),
        Some(JsonMatch::Met(met)) if !met.is_empty() => Some(format!("its JSON body has {}", met.join(" and "))),
        Some(JsonMatch::Met(_)) => None,
        None => {
            let routes = rules.possible_routes(&request).map(|id| &rules[id]).filter(|route| !route.json.is_empty());
            let conditions = routes.map(|route| {
                let texts: Vec<&str> = route.json.iter().map(|condition| &*condition.text).collect();
                format!("{} if it has {}", route.name, texts.join(" and "))
            });
            let conditions: Vec<String> = conditions.collect();
            (input.logged.is_none() && !conditions.is_empty())
                .then(|| format!("a JSON body leads to another route: {}", conditions.join(", or ")))
        }
    }
}

/// Returns what the route has to do with header fields and cookies of the request; `None` if nothing.
fn fields(input: &ExplainInput<'_>) -> Option<String> {
    let matched = input.request.fields.as_ref()?;
    let (met, possible): (Vec<&str>, Vec<&str>) = (matched.met().collect(), matched.possible().collect());
    match (met.as_slice(), possible.as_slice()) {
        ([], []) => None,
        (met, []) => Some(format!("it has {}", met.join(" and "))),
        (_, possible) => Some(format!(
            "origins may read its fields differently, with or without {}: of the routes that it may be meant for, this one costs most",
            possible.join(" and ")
        )),
    }
}

/// Returns what a cost that the route does not have was learned from.
fn learned_from(input: &ExplainInput<'_>) -> String {
    let Some((directory, Generalization { shapes, examples })) = &input.generalized_cost else {
        return "the route has no such cost: it was learned from what the origin reported for paths like this"
            .to_owned();
    };
    format!(
        "the route has no such cost: it was learned from {shapes} other pages of {directory}, such as {}. Add routes with \
         a cost for the pages that cost (docs/QUOTAS.md), and restart the gateway. Until then, a page that was served four \
         times without a cost is free",
        examples.join(", ")
    )
}

fn configured_cost(input: &ExplainInput<'_>, quota: QuotaId, cost: Cost) -> String {
    let name = &input.environment.rules()[quota].name;
    match cost {
        Cost::Fixed(units) => format!("{} of {name}", decimal(units)),
        Cost::Learned => format!("a learned cost of {name}"),
        Cost::Requested { .. } => format!("a cost of {name} that its body states"),
    }
}

fn cost(snapshot: &QuotaSnapshot<'_>) -> String {
    format!("{} of {}", decimal(snapshot.cost), snapshot.quota.name)
}

#[cfg(test)]
mod tests {
    use super::super::HypotheticalRequest;
    use super::super::explain;
    use super::super::fixture::{CLIENT, CURL, PolicyFixture, RULES, step};
    use super::*;
    use serde_json::json;

    #[test]
    fn route_has_its_cost_in_each_quota() {
        let route = step(&PolicyFixture::new(RULES).request(CURL, CLIENT, "/item/1", 0), Stage::Route);
        assert_eq!((route.message.as_str(), &route.numbers["cost"]), ("/item/* costs 1 of api", &json!({"api": 1.0})));
    }

    #[test]
    fn route_shows_its_redirect() {
        let rules = RULES.replace("routes: [", "routes: [ { match: /old, redirect: { to: /new, status: 302 } },");
        let fixture = PolicyFixture::new(&rules);
        let input = fixture.request(CURL, CLIENT, "/old", 100);
        assert_eq!(step(&input, Stage::Route).message, "/old redirects to /new, which costs nothing");
        assert_eq!(step(&input, Stage::Throttle).message, "a redirect takes no slot");
        assert_eq!(explain(&input).responses[0].status, Some(302));
    }

    #[test]
    fn route_says_what_it_has_to_do_with_the_body() {
        let search = "routes: [ { match: /tool, json: { method: call, name: search }, cost: { api: 5 } }, \
                      { match: /tool, cost: { api: { json: max_tokens, default: 3 } } },";
        let policy = PolicyFixture::new(&RULES.replace("routes: [", search));
        let route = step(&policy.request(CURL, CLIENT, "/tool", 0), Stage::Route);
        assert_eq!((route.message.as_str(), route.evidence.len()), ("/tool costs 3 of api", 2), "{route:?}");
        assert!(route.evidence[0].starts_with("the body of a request states its cost"), "{route:?}");
        assert_eq!(
            route.evidence[1],
            "a JSON body leads to another route: /tool (body method, body name) if it has method=call and name=search"
        );
        let line = |json| {
            json!({"path": "/tool", "route": "/tool", "json": json, "cost": {"api": 5}, "used": {"api": 10},
                   "charged": {"api": 5}, "verdict": "admitted", "reason": null, "status": 200})
        };
        let route = step(&policy.logged(&line(json!(["method=call", "name=search"]))), Stage::Route);
        assert_eq!(route.message, "/tool (body method, body name) costs 5 of api");
        assert_eq!(route.evidence, ["its JSON body has method=call and name=search"]);
        let route = step(&policy.logged(&line(json!(["unreadable"]))), Stage::Route);
        assert!(route.evidence[0].starts_with("its body cannot be read as one JSON object"), "{route:?}");
    }

    #[test]
    fn route_says_which_fields_led_to_it() {
        let by_field = "routes: [ { match: /tool, header: { x-depth: full }, cost: { api: 5 } }, { match: /tool, cost: { api: 1 } },";
        let policy = PolicyFixture::new(&RULES.replace("routes: [", by_field));
        let line = |fields| {
            json!({"path": "/tool", "route": "/tool", "fields": fields, "cost": {"api": 5}, "used": {"api": 10},
                   "charged": {"api": 5}, "verdict": "admitted", "reason": null, "status": 200})
        };
        let route = step(&policy.logged(&line(json!(["x-depth=full"]))), Stage::Route);
        assert_eq!(
            (route.message.as_str(), &*route.evidence),
            ("/tool (x-depth) costs 5 of api", &["it has x-depth=full".to_owned()][..])
        );
        let route = step(&policy.logged(&line(json!(["?x-depth=full"]))), Stage::Route);
        assert!(
            route.evidence[0].starts_with("origins may read its fields differently, with or without x-depth=full"),
            "{route:?}"
        );
        let route = step(&policy.request(CURL, CLIENT, "/tool", 0), Stage::Route);
        assert_eq!((route.message.as_str(), route.evidence.len()), ("/tool costs 1 of api", 0), "{route:?}");
    }

    #[test]
    fn hypothetical_fields_that_are_for_different_paths_are_invalid() {
        let by_field = "routes: [ { match: /tool, header: { x-depth: full }, rewrite: /full },";
        let policy = PolicyFixture::new(&RULES.replace("routes: [", by_field));
        let error = |name| {
            let request = HypotheticalRequest {
                peer: CLIENT.parse().expect("an address"),
                method: http::Method::GET,
                url: "/tool".parse().expect("a path"),
                headers: [(http::HeaderName::from_static(name), "full".parse().expect("a value"))]
                    .into_iter()
                    .collect(),
                at: Default::default(),
                used: Vec::new(),
            };
            request.into_input(policy.environment()).err().map(|error| error.to_string())
        };
        assert_eq!(error("x-depth"), None);
        assert_eq!(
            error("x_depth").as_deref(),
            Some(
                "a header field or cookie that chooses the route can be read in several ways, with different paths at the origin"
            )
        );
    }

    /// Rules whose origin reports costs.
    fn reported_rules() -> String {
        let rules = RULES.replacen("limit: 100\n", "limit: 100\n    cost_header: X-API-Cost\n", 1);
        assert_ne!(rules, RULES);
        rules
    }

    #[test]
    fn learned_costs_of_a_hypothetical_request_are_not_known() {
        let policy = PolicyFixture::new(&reported_rules());
        let route = step(&policy.request(CURL, CLIENT, "/page", 100), Stage::Route);
        assert_eq!(route.message, "/** has no cost of its own");
        assert!(route.evidence[0].starts_with("learned costs of api are not known here"), "{route:?}");
        let route = step(&policy.request(CURL, CLIENT, "/item/1", 100), Stage::Route);
        assert!(route.evidence.is_empty(), "{route:?}");
    }

    #[test]
    fn cost_that_was_generalized_names_the_pages_and_the_way_out() {
        let policy = PolicyFixture::new(&reported_rules());
        let line = json!({"path": "/tools/about", "route": "/**", "cost": {"api": 1}, "used": {"api": 100},
                          "charged": {}, "verdict": "refused", "reason": "tier", "status": 429, "tier": 1});
        let generalization = Generalization { shapes: 9, examples: vec!["/tools/a".into(), "/tools/b".into()] };
        let input = policy.logged(&line);
        let route = step(&input, Stage::Route);
        assert_eq!(route.evidence.len(), 1, "{route:?}");
        let input = input.with_generalized_cost(|request| {
            assert_eq!(request.path, "/tools/about");
            Some(("/tools/**".to_owned(), generalization))
        });
        let route = step(&input, Stage::Route);
        assert!(
            route.evidence[0].contains("from 9 other pages of /tools/**, such as /tools/a, /tools/b. Add routes"),
            "{route:?}"
        );
    }

    #[test]
    fn retry_does_not_help_if_a_learned_cost_is_refused_at_any_usage() {
        let rules = reported_rules().replace("above: 25%", "above: 0%");
        let policy = PolicyFixture::new(&rules);
        let line = json!({"path": "/tools/about", "route": "/**", "cost": {"api": 1}, "used": {"api": 100},
                          "charged": {}, "verdict": "refused", "reason": "tier", "status": 429, "tier": 1});
        let remedies = explain(&policy.logged(&line)).remedies;
        assert!(remedies.iter().all(|remedy| !remedy.message.contains("retry")), "{remedies:?}");
    }

    #[test]
    fn route_without_cost_is_refused_by_no_quota() {
        let route = step(&PolicyFixture::new(RULES).request(CURL, CLIENT, "/page", 100), Stage::Route);
        assert!(route.message.ends_with("costs nothing, so no quota refuses it"), "{route:?}");
    }
}
