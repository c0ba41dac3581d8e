//! Routes, and what they cost.

use crate::policy::Rules;
use crate::policy::cost::Cost;
use crate::policy::route::{Route, ScopeId};

pub(super) fn route(route: &Route, rules: &Rules) -> String {
    let mut narrowed: Vec<String> = route.methods.iter().map(ToString::to_string).collect();
    narrowed.extend(route.hosts.iter().cloned());
    narrowed.extend(route.query.iter().map(|(name, value)| match value {
        Some(value) => format!("?{name}={value}"),
        None => format!("?{name}"),
    }));
    let narrowed = if narrowed.is_empty() { String::new() } else { format!(" [{}]", narrowed.join(" ")) };
    let cost = |(quota, cost): &(crate::policy::QuotaId, Cost)| {
        let name = rules.quotas.get(usize::from(quota.0)).map_or("?", |quota| quota.name.as_str());
        match cost {
            Cost::Known(units) => format!("{units} of {name}"),
            Cost::Learned => format!("what it is learned to cost of {name}"),
        }
    };
    let costs: Vec<String> = route.costs.iter().map(cost).collect();
    let costs = if costs.is_empty() { "free".into() } else { costs.join(", ") };
    let scope =
        |ScopeId(place): &ScopeId| rules.scopes.get(usize::from(*place)).map_or("?", |scope| scope.name.as_str());
    let scopes: Vec<&str> = route.scopes.iter().map(scope).collect();
    format!("{}{narrowed}: {costs}; in {}", route.name, scopes.join(", "))
}
