//! `RateLimit-Partition`: which policies count each client apart (the proposal for
//! draft-ietf-httpapi-ratelimit-headers-12).
//!
//! The partition key (`pk`) is left out, which the draft permits: by its rule it would be the address or the API key of the
//! client, for everyone who reads the response.

use super::{client_share_name, is_announced, is_own_budget};
use std::fmt::Write;
use tidegate_policy::Rules;
use tidegate_policy::class::Class;
use tidegate_policy::identity::KeySource;
use tidegate_policy::route::Route;

/// Returns the policies of `class` on `route` that are those of one client; `None` if there are none.
pub(super) fn partitions(class: &Class, route: &Route, rules: &Rules) -> Option<Box<str>> {
    let quotas = || route.costs.iter().map(|(quota, _)| &rules[*quota]).filter(|quota| is_announced(class, quota));
    let is_of_clients = class.key != KeySource::Class && class.enforce;
    let bucket = class.bucket.filter(|bucket| is_of_clients && !(bucket.costed_only && route.is_free()));
    let shares = quotas().filter(|quota| is_of_clients && quota.client_limit_of(class).is_some());
    let budgets = quotas().filter(|quota| is_own_budget(quota));
    let names = bucket.map(|_| class.name.clone()).into_iter();
    let names = names.chain(shares.map(|quota| client_share_name(&quota.name)));
    let mut text = String::new();
    for name in names.chain(budgets.map(|quota| quota.name.clone())) {
        let separator = if text.is_empty() { "" } else { ", " };
        let _ = write!(text, "{separator}\"{name}\";client_id");
    }
    (!text.is_empty()).then(|| text.into())
}
