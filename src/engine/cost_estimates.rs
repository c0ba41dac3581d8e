//! What requests are expected to cost where the settings leave it to experience.

use crate::policy::Units;
use crate::policy::cost::{Cost, CostEstimate};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What one route's requests are expected to take from one quota.
#[derive(Clone)]
pub(super) enum ExpectedCost {
    Known(Units),
    Learned(LearnedCost),
}

/// An estimate that all who are admitted on a route read, and all who are settled move on.
#[derive(Clone)]
pub(super) struct LearnedCost(Arc<AtomicU64>);

/// What has been learned, by the names of route and quota: it outlives reloads.
#[derive(Default)]
pub(super) struct CostEstimates(Mutex<Vec<((String, String), LearnedCost)>>);

impl CostEstimates {
    pub(super) fn expectation(&self, route: &str, quota: &str, cost: Cost) -> ExpectedCost {
        match cost {
            Cost::Known(units) => ExpectedCost::Known(units),
            Cost::Learned => ExpectedCost::Learned(self.of(route, quota)),
        }
    }

    fn of(&self, route: &str, quota: &str) -> LearnedCost {
        let mut known = self.0.lock();
        if let Some((_, learned)) =
            known.iter().find(|((of_route, of_quota), _)| of_route == route && of_quota == quota)
        {
            return learned.clone();
        }
        let learned = LearnedCost(Arc::new(AtomicU64::new(CostEstimate::INITIAL.0.milli())));
        known.push(((route.to_owned(), quota.to_owned()), learned.clone()));
        learned
    }
}

impl ExpectedCost {
    /// What the next request is expected to cost of a quota with this limit. What has come to be learned above it is the
    /// whole of it: else nothing would be admitted from which something better could be learned.
    pub(super) fn units(&self, limit: Units) -> Units {
        match self {
            Self::Known(units) => *units,
            Self::Learned(LearnedCost(milli)) => Units::from_milli(milli.load(Ordering::Relaxed)).min(limit),
        }
    }

    pub(super) fn learned(&self) -> Option<LearnedCost> {
        match self {
            Self::Known(_) => None,
            Self::Learned(learned) => Some(learned.clone()),
        }
    }
}

impl LearnedCost {
    /// A request has cost `actual`.
    pub(super) fn record(&self, actual: Units) {
        let next = |milli| Some(CostEstimate(Units::from_milli(milli)).updated(actual).0.milli());
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}
