//! Expected costs of requests, learned from settled costs where the configuration sets `cost: learned`.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_policy::Units;
use tidegate_policy::cost::{Cost, CostEstimate};

/// Expected cost of a route in a quota.
#[derive(Clone)]
pub(super) enum ExpectedCost {
    Fixed(Units),
    Learned(LearnedCost),
}

/// Cost estimate shared by all requests of a route, updated by each settlement.
#[derive(Clone)]
pub(super) struct LearnedCost(Arc<AtomicU64>);

/// Learned costs by names of route and quota; they survive reloads.
#[derive(Default)]
pub(super) struct CostEstimates(Mutex<Vec<((String, String), LearnedCost)>>);

impl CostEstimates {
    pub(super) fn expected_cost(&self, route: &str, quota: &str, cost: Cost) -> ExpectedCost {
        match cost {
            Cost::Fixed(units) => ExpectedCost::Fixed(units),
            Cost::Learned => ExpectedCost::Learned(self.learned_cost(route, quota)),
        }
    }

    fn learned_cost(&self, route: &str, quota: &str) -> LearnedCost {
        let mut estimates = self.0.lock();
        if let Some((_, learned)) =
            estimates.iter().find(|((route_name, quota_name), _)| route_name == route && quota_name == quota)
        {
            return learned.clone();
        }
        let learned = LearnedCost(Arc::new(AtomicU64::new(CostEstimate::INITIAL.0.milli())));
        estimates.push(((route.to_owned(), quota.to_owned()), learned.clone()));
        learned
    }
}

impl ExpectedCost {
    /// Returns the expected cost of the next request in a quota with this limit. A learned cost is capped at the limit:
    /// otherwise no request would be admitted that could correct the estimate.
    pub(super) fn units(&self, limit: Units) -> Units {
        match self {
            Self::Fixed(units) => *units,
            Self::Learned(LearnedCost(milli)) => Units::from_milli(milli.load(Ordering::Relaxed)).min(limit),
        }
    }

    pub(super) fn learned(&self) -> Option<LearnedCost> {
        match self {
            Self::Fixed(_) => None,
            Self::Learned(learned) => Some(learned.clone()),
        }
    }
}

impl LearnedCost {
    /// Updates the estimate with the cost of a request.
    pub(super) fn record(&self, actual: Units) {
        let next = |milli| Some(CostEstimate(Units::from_milli(milli)).updated(actual).0.milli());
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}
