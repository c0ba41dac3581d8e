//! Step of the cache: what a stored response did for the request, or would do.

use super::assessment::Assessment;
use super::copy_use::{CopyEffect, CopyUse};
use super::input::ExplainInput;
use super::step::{Stage, Step, StepResult};
use crate::terminal::format_duration;
use http::{Method, header};
use tidegate_config::SettingPath;
use tidegate_http_cache::CacheResult;
use tidegate_policy::Reason;
use tidegate_policy::cache::{CacheRules, RouteCacheRules};

/// Returns the step of the cache; `None` without the section, unless the log names what a cache did.
pub(super) fn step(input: &ExplainInput<'_>, assessment: &Assessment<'_>) -> Option<Step> {
    let (section, route) = (input.environment.rules().cache.as_ref(), input.route().cache.as_ref());
    let path = SettingPath::of_route(input.route_id().index()).cache();
    let effect = input.copy.effect();
    let Some((section, route)) = section.zip(route) else {
        let is_known = effect != CopyEffect::None;
        let message = match (is_known, section) {
            (true, _) => {
                let now = if section.is_some() { "does not cache the route" } else { "has no cache" };
                format!("{}; the configuration now {now}", text(input, assessment)?)
            }
            (false, Some(_)) => "the route is not cached".to_owned(),
            (false, None) => return None,
        };
        let step = Step::new(Stage::Cache, result(effect), message);
        return Some(if section.is_some() { step.with_rule(input.environment.rule(&path)) } else { step });
    };
    if assessment.certain_refusal().is_some_and(|refusal| !refusal.reason.allows_copy()) {
        return Some(Step::skipped(Stage::Cache));
    }
    if input.copy == CopyUse::Unknown {
        return Some(hypothetical(input, section, route));
    }
    Some(Step::new(Stage::Cache, result(effect), text(input, assessment)?))
}

/// Returns true if a copy, if there is one, is sent in place of a refusal for `reason`.
pub(super) fn may_replace(input: &ExplainInput<'_>, reason: Reason) -> bool {
    let rules = input.environment.rules().cache.as_ref().filter(|_| input.route().cache.is_some());
    let allows_copy = |rules: &CacheRules| !rules.stale_when_refused.is_zero() && reason.allows_copy();
    rules.is_some_and(allows_copy) && is_answered_from_copies(&input.request.method)
}

fn is_answered_from_copies(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

const fn result(effect: CopyEffect) -> StepResult {
    match effect {
        CopyEffect::Answer => StepResult::Passed,
        CopyEffect::None | CopyEffect::Replacement | CopyEffect::Forwarded(_) => StepResult::Info,
    }
}

/// Returns what the cache did for a request of a log; `None` if it was not asked.
fn text(input: &ExplainInput<'_>, assessment: &Assessment<'_>) -> Option<String> {
    let is_refused = assessment.certain_refusal().is_some();
    let source = match input.copy {
        CopyUse::Unknown => return None,
        CopyUse::Logged(_) => "in the log",
        CopyUse::Simulated(_) => "in the simulated cache",
    };
    let method = &input.request.method;
    Some(match input.copy.effect() {
        CopyEffect::Answer if matches!(input.copy, CopyUse::Logged(_)) => {
            format!("{source}, a stored response answered the request: it cost nothing, and no quota was asked")
        }
        CopyEffect::Answer => {
            format!("{source}, a fresh response answers the request: it costs nothing, and no quota is asked")
        }
        CopyEffect::Replacement if is_refused => {
            format!("{source}, a stale response is sent in place of the refusal")
        }
        CopyEffect::Replacement => format!("{source}, the response is stale: it is fetched again"),
        CopyEffect::None | CopyEffect::Forwarded(_) if is_refused => {
            format!("{source}, no stored response could be sent in place of the refusal")
        }
        CopyEffect::None => format!("{source}, the cache was not asked"),
        CopyEffect::Forwarded(CacheResult::Miss) if *method == Method::HEAD => {
            format!("{source}, no stored response could answer the request: it is forwarded, and HEAD stores none")
        }
        CopyEffect::Forwarded(CacheResult::Miss) => {
            format!(
                "{source}, no stored response could answer the request: it is fetched, and stored if its fields allow it"
            )
        }
        CopyEffect::Forwarded(CacheResult::Bypass) if !is_answered_from_copies(method) => {
            format!("{source}, the request does not use the cache: stored responses answer GET and HEAD, not {method}")
        }
        CopyEffect::Forwarded(CacheResult::Bypass) => {
            format!("{source}, the request does not use the cache: its response is fetched and not stored")
        }
        CopyEffect::Forwarded(CacheResult::Revalidated) => {
            format!("{source}, the origin confirmed a stale response (304), which was sent")
        }
        CopyEffect::Forwarded(CacheResult::Hit | CacheResult::Stale) => {
            format!("{source}, a stored response was sent, and the request paid for a fetch")
        }
    })
}

/// Returns what a stored response would do for a hypothetical request: which ones there are, only a gateway knows.
fn hypothetical(input: &ExplainInput<'_>, section: &CacheRules, route: &RouteCacheRules) -> Step {
    let method = &input.request.method;
    if !is_answered_from_copies(method) {
        let message = format!("stored responses answer GET and HEAD, not {method}");
        return Step::new(Stage::Cache, StepResult::Info, message);
    }
    let mut evidence = Vec::new();
    let headers = &input.request.headers;
    let has_cookie = headers.contains_key(header::COOKIE) && route.key_cookies.is_none();
    if has_cookie || headers.contains_key(header::AUTHORIZATION) {
        let what = if has_cookie { "a cookie" } else { "Authorization" };
        evidence.push(format!("the request has {what}: only responses that are public answer it"));
    }
    if !section.stale_when_refused.is_zero() {
        let stale = format_duration(section.stale_when_refused.as_secs());
        evidence.push(format!(
            "a stale one, up to {stale} past its freshness, is sent in place of a refusal by the steps that follow"
        ));
    }
    if !section.crowd_max_age.is_zero() {
        let stale = format_duration(section.crowd_max_age.as_secs());
        evidence.push(format!(
            "while a fifth of people's costed requests in five minutes are for this page, from eight networks or more, one up to \
             {stale} past its freshness answers"
        ));
    }
    let message = "a fresh stored response, if there is one, answers at no cost, and the quotas are not asked";
    Step::new(Stage::Cache, StepResult::Unknown, message).with_evidence(evidence)
}

#[cfg(test)]
mod tests {
    use super::super::explain;
    use super::super::fixture::{CLIENT, CURL, GOOGLEBOT, PolicyFixture, RULES, step};
    use super::*;
    use serde_json::{Value, json};

    fn with_cache(rules: &str) -> PolicyFixture {
        PolicyFixture::new(&format!("{rules}cache: {{}}\n"))
    }

    fn logged_step(fields: &Value) -> (StepResult, String) {
        let Step { finding, message, .. } = step(&with_cache(RULES).logged(fields), Stage::Cache);
        (finding, message)
    }

    #[test]
    fn step_names_what_the_log_says_of_the_cache() {
        let refused =
            json!({"verdict": "refused", "reason": "tier", "retry_after_s": 4, "used": {"api": 30}, "tier": 1});
        let with = |cache: &str, fields: &Value| {
            let mut fields = fields.clone();
            fields["cache"] = cache.into();
            logged_step(&fields)
        };
        let free = json!({"cost": {}, "charged": {}, "used": {}});
        for (found, result, beginning) in [
            (with("hit", &free), StepResult::Passed, "in the log, a stored response answered the request"),
            (with("miss", &json!({})), StepResult::Info, "in the log, no stored response could answer the request"),
            (
                with("bypass", &json!({})),
                StepResult::Info,
                "in the log, the request does not use the cache: its response",
            ),
            (
                with("bypass", &json!({"method": "POST"})),
                StepResult::Info,
                "in the log, the request does not use the cache: stored responses answer GET and HEAD, not POST",
            ),
            (with("revalidated", &json!({})), StepResult::Info, "in the log, the origin confirmed a stale response"),
            (with("stale", &refused), StepResult::Info, "in the log, a stale response is sent in place of the refusal"),
            (
                logged_step(&refused),
                StepResult::Info,
                "in the log, no stored response could be sent in place of the refusal",
            ),
        ] {
            assert!(found.0 == result && found.1.starts_with(beginning), "{found:?}, expected {beginning}");
        }
    }

    #[test]
    fn step_of_a_forwarded_head_request_says_that_it_stores_nothing() {
        let message = logged_step(&json!({"method": "HEAD", "cache": "miss"})).1;
        assert!(message.ends_with("it is forwarded, and HEAD stores none"), "{message}");
    }

    #[test]
    fn step_of_a_refused_head_request_says_that_no_copy_replaced_it() {
        let head = json!({"method": "HEAD", "verdict": "refused", "reason": "tier", "retry_after_s": 4, "used": {"api": 30},
                          "tier": 1});
        assert_eq!(logged_step(&head).1, "in the log, no stored response could be sent in place of the refusal");
    }

    #[test]
    fn logged_hit_under_a_configuration_without_a_cache_shows_both() {
        let fields = json!({"cache": "hit", "cost": {}, "charged": {}, "used": {}});
        let policy = PolicyFixture::new(RULES);
        let input = policy.logged(&fields);
        let message = step(&input, Stage::Cache).message;
        assert!(message.ends_with("; the configuration now has no cache"), "{message}");
        assert_eq!(
            step(&input, Stage::Route).message,
            "/item/* costs 1 of api, or nothing if a stored response answers"
        );
    }

    #[test]
    fn hypothetical_request_names_the_copy_that_would_answer() {
        let policy = with_cache(RULES);
        let refused = policy.request(CURL, CLIENT, "/item/1", 40);
        let cache = step(&refused, Stage::Cache);
        assert_eq!(cache.finding, StepResult::Unknown);
        assert!(cache.evidence[0].contains("up to 30 d 0 h past its freshness"), "{cache:?}");
        let note = "if a response is stored, it is sent in place of the refusal";
        assert!(explain(&refused).notes.iter().any(|found| found.starts_with(note)), "{:?}", explain(&refused).notes);
        assert!(explain(&policy.request(CURL, CLIENT, "/item/1", 0)).notes.is_empty());
        // A block is not replaced.
        let blocked = policy.request(GOOGLEBOT, CLIENT, "/item/1", 0);
        assert_eq!((step(&blocked, Stage::Cache).finding, explain(&blocked).notes.len()), (StepResult::Skipped, 0));
    }

    #[test]
    fn route_without_a_cache_is_named_with_its_setting() {
        let rules = RULES.replace("scopes: narrow } ]", "scopes: narrow, cache: off } ]");
        let policy = with_cache(&rules);
        let cache = step(&policy.request(CURL, CLIENT, "/item/1", 0), Stage::Cache);
        assert_eq!(cache.message, "the route is not cached");
        assert_eq!(cache.rule.map(|rule| rule.path), Some("routes[0].cache".to_owned()));
    }
}
