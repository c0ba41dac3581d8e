//! What requests are expected to cost where the settings leave it to experience.

use crate::policy::Units;
use crate::policy::cost::{Cost, Estimate};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What one route's requests are expected to take from one quota.
#[derive(Clone)]
pub(super) enum Expectation {
    Known(Units),
    Learned(Learned),
}

/// An estimate that all who are admitted on a route read, and all who are settled move on.
#[derive(Clone)]
pub(super) struct Learned(Arc<AtomicU64>);

/// What has been learned, by the names of route and quota: it outlives reloads.
#[derive(Default)]
pub(super) struct Experience(Mutex<Vec<((String, String), Learned)>>);

impl Experience {
    pub(super) fn expectation(&self, route: &str, quota: &str, cost: Cost) -> Expectation {
        match cost {
            Cost::Known(units) => Expectation::Known(units),
            Cost::Learned => Expectation::Learned(self.of(route, quota)),
        }
    }

    fn of(&self, route: &str, quota: &str) -> Learned {
        let mut known = self.0.lock();
        if let Some((_, learned)) =
            known.iter().find(|((of_route, of_quota), _)| of_route == route && of_quota == quota)
        {
            return learned.clone();
        }
        let learned = Learned(Arc::new(AtomicU64::new(Estimate::FIRST.0.milli())));
        known.push(((route.to_owned(), quota.to_owned()), learned.clone()));
        learned
    }
}

impl Expectation {
    /// What the next request is expected to cost of a quota with this limit. What has come to be learned above it is the
    /// whole of it: else nothing would be admitted from which something better could be learned.
    pub(super) fn units(&self, limit: Units) -> Units {
        match self {
            Self::Known(units) => *units,
            Self::Learned(Learned(milli)) => Units::from_milli(milli.load(Ordering::Relaxed)).min(limit),
        }
    }

    pub(super) fn learned(&self) -> Option<Learned> {
        match self {
            Self::Known(_) => None,
            Self::Learned(learned) => Some(learned.clone()),
        }
    }
}

impl Learned {
    /// A request has cost `actual`.
    pub(super) fn learn(&self, actual: Units) {
        let next = |milli| Some(Estimate(Units::from_milli(milli)).after(actual).0.milli());
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}
