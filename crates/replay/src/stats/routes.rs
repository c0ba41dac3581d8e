//! Requests and units of each route.

use crate::decision::ReplayedDecision;
use crate::report::RouteReport;
use tidegate_policy::{Rules, Units};

/// Counts by route.
pub(super) struct RouteStats(Box<[RouteCounts]>);

#[derive(Clone, Copy, Default)]
struct RouteCounts {
    requests: u64,
    refused: u64,
    units: Units,
    requested_units: Units,
}

impl RouteStats {
    pub(super) fn new(routes: usize) -> Self {
        Self(vec![RouteCounts::default(); routes].into())
    }

    pub(super) fn add(&mut self, decision: &ReplayedDecision) {
        let cost = decision.costs.iter().map(|(_, cost)| *cost).sum::<Units>();
        let counts = &mut self.0[decision.route.index()];
        counts.requests += 1;
        counts.requested_units = counts.requested_units.saturating_add(cost);
        match decision.refusal_reason {
            Some(_) => counts.refused += 1,
            None => counts.units = counts.units.saturating_add(cost),
        }
    }

    /// Returns the routes that were asked for units, most expensive first.
    pub(super) fn report(&self, rules: &Rules) -> Vec<RouteReport> {
        let mut routes: Vec<_> = rules.routes.iter().zip(&self.0).collect();
        routes.retain(|(_, counts)| !counts.requested_units.is_zero());
        routes.sort_by_key(|(_, counts)| std::cmp::Reverse((counts.requested_units, counts.requests)));
        routes.truncate(MAX_REPORTED);
        let report = |(route, counts): (&tidegate_policy::route::Route, &RouteCounts)| RouteReport {
            name: route.name.clone(),
            requests: counts.requests,
            refused: counts.refused,
            units: counts.units,
            units_asked: counts.requested_units,
        };
        routes.into_iter().map(report).collect()
    }
}

/// More rows would hide the most expensive routes.
const MAX_REPORTED: usize = 50;
