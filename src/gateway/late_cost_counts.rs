//! Counts of the costs that responses report after their head, by quota and route.

use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Number of responses without a cost after which a route that never reported one is a problem.
const MANY_MISSING: u64 = 10;

/// Counts by the names of quotas and routes, which a reload keeps. Both are those of the configuration.
#[derive(Default)]
pub(super) struct LateCostCounts(Mutex<BTreeMap<Box<str>, CountsByRoute>>);

type CountsByRoute = BTreeMap<Box<str>, ReportCounts>;

/// Responses of one route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ReportCounts {
    found: u64,
    missing: u64,
}

impl LateCostCounts {
    /// Counts a whole response of `route`, which reported its cost in `quota` if `is_found`.
    pub(super) fn record(&self, quota: &str, route: &str, is_found: bool) {
        let mut counts = self.0.lock();
        if !counts.get(quota).is_some_and(|routes| routes.contains_key(route)) {
            counts.entry(quota.into()).or_default().insert(route.into(), ReportCounts::default());
        }
        let Some(counts) = counts.get_mut(quota).and_then(|routes| routes.get_mut(route)) else { return };
        match is_found {
            true => counts.found += 1,
            false => counts.missing += 1,
        }
    }

    /// Returns the number of responses without a cost, by quota and route.
    pub(super) fn missing(&self) -> Vec<(String, String, u64)> {
        self.list(|counts| counts.missing > 0)
    }

    /// Returns the routes of which no response reported a cost, with their number, by quota.
    pub(super) fn never_found(&self) -> Vec<(String, String, u64)> {
        self.list(|counts| counts.found == 0 && counts.missing >= MANY_MISSING)
    }

    fn list(&self, is_listed: impl Fn(&ReportCounts) -> bool) -> Vec<(String, String, u64)> {
        let mut listed = Vec::new();
        for (quota, routes) in self.0.lock().iter() {
            let routes = routes.iter().filter(|(_, counts)| is_listed(counts));
            listed.extend(routes.map(|(route, counts)| (quota.to_string(), route.to_string(), counts.missing)));
        }
        listed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_that_never_reports_its_cost_is_named() {
        let costs = LateCostCounts::default();
        for _ in 0..MANY_MISSING {
            costs.record("tokens", "/v1/**", false);
            costs.record("tokens", "/v2/**", false);
        }
        costs.record("tokens", "/v2/**", true);
        costs.record("tokens", "/v3/**", false);
        let named = |list: Vec<(String, String, u64)>| {
            list.into_iter().map(|(_, route, count)| (route, count)).collect::<Vec<_>>()
        };
        assert_eq!(named(costs.never_found()), [("/v1/**".to_owned(), 10)]);
        assert_eq!(named(costs.missing()).len(), 3);
    }
}
