//! Summary lines of routes: conditions, costs, scopes and changes of header fields.

use super::cache;
use crate::Settings;
use crate::settings::{FieldChanges, HeaderField, Redirect};
use tidegate_policy::cost::{Cost, RequestedCost};
use tidegate_policy::quota::Quota;
use tidegate_policy::route::{MatchOptions, Route};
use tidegate_policy::{QuotaId, RouteId, Rules, ScopeId};

/// Returns the path comparisons of `route` that differ from the defaults.
fn spelling(route: &Route) -> impl Iterator<Item = String> {
    let MatchOptions { ignore_case: ignores_case, ignore_trailing_slash: ignores_trailing_slash } =
        route.path.match_options();
    let is_limited = !route.is_free() || route.scopes.iter().any(|scope| *scope != ScopeId(0));
    let describe = move |(key, ignores): (&str, bool)| {
        (ignores != is_limited).then(|| format!("{key}: {}", if ignores { "ignore" } else { "exact" }))
    };
    let is_any = route.path.is_any();
    [("case", ignores_case), ("trailing_slash", ignores_trailing_slash)]
        .into_iter()
        .filter(move |_| !is_any)
        .filter_map(describe)
}

/// Returns the summary line of the route `id`.
pub(super) fn route(id: RouteId, settings: &Settings) -> String {
    let rules = &settings.rules;
    let route = &rules[id];
    let mut conditions: Vec<String> = route.methods.iter().map(ToString::to_string).collect();
    conditions.extend(route.hosts.iter().cloned());
    conditions.extend(route.query.iter().map(|(name, value)| match value {
        Some(value) => format!("?{name}={value}"),
        None => format!("?{name}"),
    }));
    conditions.extend(route.json.iter().map(|condition| format!("body {}", condition.text)));
    conditions.extend(route.fields.iter().map(|condition| format!("with {}", condition.text)));
    conditions.extend(spelling(route));
    let conditions = if conditions.is_empty() { String::new() } else { format!(" [{}]", conditions.join(" ")) };
    let cost = |(quota, cost): &(tidegate_policy::QuotaId, Cost)| {
        let name = rules.quotas.get(quota.index()).map_or("?", |quota| quota.name.as_str());
        match cost {
            Cost::Fixed(units) => format!("{units} of {name}"),
            Cost::Learned => format!("learned cost of {name}"),
            Cost::Requested { .. } => requested_cost(route, *quota, name),
        }
    };
    let use_of_origin = || {
        let costs: Vec<String> = route.costs.iter().map(cost).collect();
        let costs = if costs.is_empty() { "free".into() } else { costs.join(", ") };
        let costs = match quotas_by_report(rules, route).as_slice() {
            [] => costs,
            quotas => format!("{costs}, and what the origin reports of {}", quotas.join(", ")),
        };
        let scope = |id: &ScopeId| rules.scopes.get(id.index()).map_or("?", |scope| scope.name.as_str());
        let scopes: Vec<&str> = route.scopes.iter().map(scope).collect();
        let caching = match (&rules.cache, &route.cache) {
            (None, _) => String::new(),
            (Some(_), None) => "; not cached".to_owned(),
            (Some(_), Some(caching)) => cache::route(caching).iter().map(|part| format!("; {part}")).collect(),
        };
        let timeout = settings.own_response_timeout(id).map(|timeout| format!("; waits {timeout:?} for the origin"));
        let origin = settings.origin_name(route.origin).map(|name| format!("; to {name}")).unwrap_or_default();
        let rewrite = settings.rewrite(id).map(|rewrite| format!(" as {rewrite}"));
        let rewrite = rewrite.map_or(String::new(), |path| if origin.is_empty() { format!(";{path}") } else { path });
        format!("{costs}{origin}{rewrite}; in {}{}{caching}", scopes.join(", "), timeout.unwrap_or_default())
    };
    let answer = match settings.redirect(id) {
        Some(redirect) => self::redirect(redirect),
        None => use_of_origin(),
    };
    let header_rules = settings.header_rules(id);
    let request = header_rules.and_then(|rules| field_changes("request headers", &rules.request)).unwrap_or_default();
    let response =
        header_rules.and_then(|rules| field_changes("response headers", &rules.response)).unwrap_or_default();
    format!("{}{conditions}: {answer}{request}{response}", route.name)
}

/// Returns what bodies of requests state of their cost in a quota.
fn requested_cost(route: &Route, quota: QuotaId, name: &str) -> String {
    let Some((_, cost)) = route.requested_costs.iter().find(|(id, _)| *id == quota) else { return String::new() };
    let RequestedCost { paths, per_byte, default } = cost;
    let numbers = if paths.len() > 1 { format!("the largest of {}", paths.join(" and ")) } else { paths.concat() };
    let bytes = (!per_byte.is_zero()).then(|| format!("{per_byte} for each byte"));
    let parts: Vec<String> = [numbers].into_iter().filter(|text| !text.is_empty()).chain(bytes).collect();
    format!("of {name} what the body states ({}; else {default}), or learned costs if less", parts.join(", and "))
}

/// Returns the quotas in which the route has no cost, and the origin reports costs.
fn quotas_by_report<'a>(rules: &'a Rules, route: &Route) -> Vec<&'a str> {
    let is_by_report = |(index, quota): &(usize, &Quota)| {
        quota.has_reported_costs() && !route.has_cost_in(QuotaId::from_index(*index))
    };
    rules.quotas.iter().enumerate().filter(is_by_report).map(|(_, quota)| quota.name.as_str()).collect()
}

fn redirect(redirect: &Redirect) -> String {
    match redirect.status {
        Some(status) => format!("redirects to {redirect} with {}", status.as_u16()),
        None => format!("redirects to {redirect}"),
    }
}

/// Returns the changes of `kind` without values, which may be credentials; `None` if there are none.
fn field_changes(kind: &str, changes: &FieldChanges) -> Option<String> {
    let names = |fields: &[HeaderField]| fields.iter().map(|field| field.name.clone()).collect::<Vec<_>>();
    let FieldChanges { set, add, remove } = changes;
    let changes = [("set", names(set)), ("add", names(add)), ("remove", remove.clone())];
    let part =
        |(change, names): &(&str, Vec<String>)| (!names.is_empty()).then(|| format!("{change} {}", names.join(", ")));
    let parts: Vec<String> = changes.iter().filter_map(part).collect();
    (!parts.is_empty()).then(|| format!("; {kind}: {}", parts.join(", ")))
}
