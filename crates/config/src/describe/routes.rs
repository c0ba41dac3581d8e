//! Summary lines of routes: conditions, costs and scopes.

use super::cache;
use tidegate_policy::cost::Cost;
use tidegate_policy::route::{MatchOptions, Route};
use tidegate_policy::{Rules, ScopeId};

/// Returns the path comparisons of `route` that differ from the defaults.
fn spelling(route: &Route) -> impl Iterator<Item = String> {
    let MatchOptions { ignore_case: ignores_case, ignore_trailing_slash: ignores_trailing_slash } =
        route.path.match_options();
    let is_limited = !route.is_free() || route.scopes != [ScopeId(0)];
    let describe = move |(key, ignores): (&str, bool)| {
        (ignores != is_limited).then(|| format!("{key}: {}", if ignores { "ignore" } else { "exact" }))
    };
    let is_any = route.path.is_any();
    [("case", ignores_case), ("trailing_slash", ignores_trailing_slash)]
        .into_iter()
        .filter(move |_| !is_any)
        .filter_map(describe)
}

pub(super) fn route(route: &Route, rules: &Rules) -> String {
    let mut conditions: Vec<String> = route.methods.iter().map(ToString::to_string).collect();
    conditions.extend(route.hosts.iter().cloned());
    conditions.extend(route.query.iter().map(|(name, value)| match value {
        Some(value) => format!("?{name}={value}"),
        None => format!("?{name}"),
    }));
    conditions.extend(spelling(route));
    let conditions = if conditions.is_empty() { String::new() } else { format!(" [{}]", conditions.join(" ")) };
    let cost = |(quota, cost): &(tidegate_policy::QuotaId, Cost)| {
        let name = rules.quotas.get(quota.index()).map_or("?", |quota| quota.name.as_str());
        match cost {
            Cost::Fixed(units) => format!("{units} of {name}"),
            Cost::Learned => format!("learned cost of {name}"),
        }
    };
    let costs: Vec<String> = route.costs.iter().map(cost).collect();
    let costs = if costs.is_empty() { "free".into() } else { costs.join(", ") };
    let scope = |id: &ScopeId| rules.scopes.get(id.index()).map_or("?", |scope| scope.name.as_str());
    let scopes: Vec<&str> = route.scopes.iter().map(scope).collect();
    let caching = match (&rules.cache, &route.cache) {
        (None, _) => String::new(),
        (Some(_), None) => "; not cached".to_owned(),
        (Some(_), Some(caching)) => cache::route(caching).iter().map(|part| format!("; {part}")).collect(),
    };
    format!("{}{conditions}: {costs}; in {}{caching}", route.name, scopes.join(", "))
}
