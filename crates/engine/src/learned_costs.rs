//! Costs of paths whose route has none, learned from the reports of the origin: what the gateway and the replay share.

use super::cost_estimates::ExpectedCost;
use super::{Admission, InlineVec};
use std::borrow::Cow;
use tidegate_policy::path_costs::{Generalization, PathCost, ReportedCost};
use tidegate_policy::{QuotaId, RequestFacts, RouteId, Timestamp, Units};

/// Expected costs of a request in quotas in which its route has none, and those that its body states.
pub type LearnedCosts = InlineVec<(QuotaId, Units)>;

/// Units that the origin reported for paths without a route cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathCostView {
    /// Shape of the paths, such as `/search` or `/item/*`; or a single path.
    pub path: String,
    /// Name of the quota.
    pub quota: String,
    /// Units reported since the process start.
    pub units: Units,
    /// Paths from which the cost of a directory was generalized; `None` if it was reported for `path` itself.
    pub generalization: Option<Generalization>,
}

/// Part of the limit, as a divisor, that is left when a quota is nearly spent.
const NEARLY_SPENT_DIVISOR: u64 = 64;
/// Requests of the highest cost for which a quota that is nearly spent has units left.
const NEARLY_SPENT_REQUESTS: u64 = 16;
/// Expected cost of a request about which nothing is known, where it must have one.
const UNKNOWN_COST: Units = Units::from_whole(1);

impl Admission {
    /// Returns the learned costs of an ordinary request on `route`; `None` if nothing is known yet. They are empty for a request
    /// that is known to have none, and on a route that has a cost in each quota whose costs the origin reports.
    pub fn learned_costs(&self, route: RouteId, request: &RequestFacts<'_>) -> Option<LearnedCosts> {
        let quotas = &self.reported_only[route.index()];
        if quotas.is_empty() {
            return Some(LearnedCosts::new());
        }
        let learned = self.engine.path_costs.lock();
        let costs = match learned.find(request) {
            PathCost::Free => return Some(LearnedCosts::new()),
            PathCost::Unknown => return None,
            PathCost::Costs(costs) => costs,
        };
        let cost_in = |&quota: &QuotaId| {
            let number = self.counter(quota).lock_order();
            let cost = costs.iter().find(|(other, _)| *other == number)?.1;
            // Otherwise no request would be admitted that could correct the cost.
            Some((quota, cost.min(self.rules[quota].limit)))
        };
        let costs: LearnedCosts = quotas.iter().filter_map(cost_in).collect();
        (!costs.is_empty()).then_some(costs)
    }

    /// Returns true if a request on `route` is expected to cost units, by its route or by what was learned.
    pub fn is_costly(&self, route: RouteId, request: &RequestFacts<'_>) -> bool {
        !self.rules[route].is_free() || self.learned_costs(route, request).is_some_and(|costs| !costs.is_empty())
    }

    /// Returns the costs of a request about which nothing is known, in each quota that has too few units left to wait for the
    /// report of the origin; empty if none has.
    pub fn costs_if_nearly_spent(&self, route: RouteId, now: Timestamp) -> LearnedCosts {
        let is_nearly_spent = |&quota: &QuotaId| {
            let state = self.counter(quota).lock_at(now);
            let reserve = (state.limit().milli() / NEARLY_SPENT_DIVISOR)
                .max(state.max_cost().milli().saturating_mul(NEARLY_SPENT_REQUESTS));
            let left = state.limit().saturating_sub(state.taken());
            self.rules[quota].enforce && left.milli() <= reserve
        };
        let quotas = self.reported_only[route.index()].iter().copied();
        quotas.filter(is_nearly_spent).map(|quota| (quota, UNKNOWN_COST.min(self.rules[quota].limit))).collect()
    }

    /// Returns true if the origin may report costs of requests on `route` in quotas in which the route has none.
    pub fn learns_path_costs(&self, route: RouteId) -> bool {
        !self.reported_only[route.index()].is_empty()
    }

    /// Records the costs that the origin reported for a request of a client in `network`, in quotas in which its route has
    /// none; those of 0 are left out. `is_conclusive` is false for a response that says nothing about others if it cost
    /// nothing: an error, or one from a cache.
    pub fn record_path_costs(
        &self,
        request: &RequestFacts<'_>,
        network: u64,
        reported: &[(QuotaId, Units)],
        is_conclusive: bool,
    ) {
        let mut learned = self.engine.path_costs.lock();
        for &(quota, cost) in reported {
            learned.record_cost(request, self.counter(quota).lock_order(), cost);
        }
        if reported.is_empty() && is_conclusive {
            learned.record_free(request, network);
        }
    }

    /// Returns the units reported for paths without a route cost, most first.
    pub fn path_costs(&self) -> Vec<PathCostView> {
        let learned = self.engine.path_costs.lock();
        let view = |cost: ReportedCost<'_>| {
            let counter = self.counters().iter().find(|counter| counter.lock_order() == cost.quota)?;
            Some(PathCostView {
                path: cost.path.to_owned(),
                quota: counter.name().to_owned(),
                units: cost.units,
                generalization: cost.generalization.cloned(),
            })
        };
        learned.reported().into_iter().filter_map(view).collect()
    }

    /// Returns the directory, such as `/shop/**`, whose cost was generalized from other paths and applies to a request;
    /// `None` without one.
    pub fn generalized_cost(&self, request: &RequestFacts<'_>) -> Option<(String, Generalization)> {
        let learned = self.engine.path_costs.lock();
        learned.generalization(request).map(|(directory, it)| (directory.to_owned(), it.clone()))
    }

    /// Returns the expected costs of a request: those of its route, which its body may have stated, and those learned, in the lock
    /// order of the quota counters.
    pub(super) fn with_learned<'a>(
        &self,
        charges: &'a [(QuotaId, ExpectedCost)],
        learned: &[(QuotaId, Units)],
    ) -> Cow<'a, [(QuotaId, ExpectedCost)]> {
        if learned.is_empty() {
            return Cow::Borrowed(charges);
        }
        let mut all = charges.to_vec();
        for &(quota, cost) in learned {
            match all.iter_mut().find(|(other, _)| *other == quota) {
                Some((_, expected)) => *expected = expected.with_stated(cost).unwrap_or_else(|| expected.clone()),
                None => all.push((quota, ExpectedCost::Fixed(cost))),
            }
        }
        all.sort_by_key(|(quota, _)| self.counter(*quota).lock_order());
        Cow::Owned(all)
    }
}
