//! Expected costs of requests, learned from settled costs where the configuration sets `cost: learned`, or where requests state
//! their costs.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tidegate_policy::Units;
use tidegate_policy::cost::{Cost, CostEstimate};

/// Reported costs after which an estimate holds for requests that state more. It takes as many to double from one unit to more
/// than any request costs.
const WELL_FOUNDED: u32 = 32;

/// Expected cost of a route in a quota.
#[derive(Clone)]
pub(super) enum ExpectedCost {
    Fixed(Units),
    Learned(LearnedCost),
    /// What the request states, or the estimate once it is well founded, if that is less.
    Requested(Units, LearnedCost),
}

/// Cost estimate shared by all requests of a route, updated by each settlement.
#[derive(Clone)]
pub(super) struct LearnedCost(Arc<Estimate>);

#[derive(Default)]
struct Estimate {
    milli: AtomicU64,
    /// Number of reports that it is founded on, if requests state their costs; `None` otherwise.
    reports: Option<AtomicU32>,
}

/// Learned costs by names of route and quota; they survive reloads.
#[derive(Default)]
pub(super) struct CostEstimates(Mutex<Vec<((String, String), LearnedCost)>>);

impl CostEstimates {
    pub(super) fn expected_cost(&self, route: &str, quota: &str, cost: Cost) -> ExpectedCost {
        match cost {
            Cost::Fixed(units) => ExpectedCost::Fixed(units),
            Cost::Learned => ExpectedCost::Learned(self.learned_cost(route, quota, false)),
            Cost::Requested { default } => ExpectedCost::Requested(default, self.learned_cost(route, quota, true)),
        }
    }

    fn learned_cost(&self, route: &str, quota: &str, is_of_requests: bool) -> LearnedCost {
        let mut estimates = self.0.lock();
        if let Some((_, learned)) = estimates.iter().find(|((route_name, quota_name), learned)| {
            route_name == route && quota_name == quota && learned.0.reports.is_some() == is_of_requests
        }) {
            return learned.clone();
        }
        let milli = AtomicU64::new(CostEstimate::INITIAL.0.milli());
        let learned = LearnedCost(Arc::new(Estimate { milli, reports: is_of_requests.then(AtomicU32::default) }));
        estimates.push(((route.to_owned(), quota.to_owned()), learned.clone()));
        learned
    }
}

impl ExpectedCost {
    /// Returns the expected cost of the next request in a quota with this limit. A cost that is not fixed is capped at the limit:
    /// otherwise no request would be admitted that could correct the estimate.
    pub(super) fn units(&self, limit: Units) -> Units {
        match self {
            Self::Fixed(units) => *units,
            Self::Learned(learned) => learned.estimate().min(limit),
            Self::Requested(stated, learned) => {
                let estimate = if learned.is_well_founded() { learned.estimate() } else { Units::MAX };
                (*stated).min(estimate).min(limit)
            }
        }
    }

    pub(super) fn learned(&self) -> Option<LearnedCost> {
        match self {
            Self::Fixed(_) => None,
            Self::Learned(learned) | Self::Requested(_, learned) => Some(learned.clone()),
        }
    }

    /// Returns the cost of a request that states `stated`; `None` if requests state none.
    pub(super) fn with_stated(&self, stated: Units) -> Option<Self> {
        match self {
            Self::Fixed(_) | Self::Learned(_) => None,
            Self::Requested(_, learned) => Some(Self::Requested(stated, learned.clone())),
        }
    }
}

impl LearnedCost {
    fn estimate(&self) -> Units {
        Units::from_milli(self.0.milli.load(Ordering::Relaxed))
    }

    fn is_well_founded(&self) -> bool {
        self.0.reports.as_ref().is_some_and(|reports| reports.load(Ordering::Relaxed) >= WELL_FOUNDED)
    }

    /// Updates the estimate with the cost of a request that was expected to cost `expected`.
    ///
    /// Of requests that state their costs, one that reserved less than the estimate does not lower it: it says nothing of those
    /// that state more. One that cost what it reserved has reported no cost, or confirms it.
    pub(super) fn record(&self, expected: Units, actual: Units) {
        if let Some(reports) = &self.0.reports {
            let estimate = self.estimate();
            if actual == expected || (actual < estimate && expected < estimate) {
                return;
            }
            reports.fetch_add(u32::from(reports.load(Ordering::Relaxed) < WELL_FOUNDED), Ordering::Relaxed);
        }
        let next = |milli| Some(CostEstimate(Units::from_milli(milli)).updated(actual).0.milli());
        let _ = self.0.milli.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: Units = Units::from_whole(1_000_000);

    fn requested() -> ExpectedCost {
        let default = Units::from_whole(1000);
        CostEstimates::default().expected_cost("/v1/**", "tokens", Cost::Requested { default })
    }

    /// Settles a request that states `stated` and costs `actual`. Returns what it reserved.
    fn settle(cost: &ExpectedCost, stated: u64, actual: u64) -> u64 {
        let stated = cost.with_stated(Units::from_whole(stated)).expect("a stated cost");
        let reserved = stated.units(LIMIT);
        stated.learned().expect("an estimate").record(reserved, Units::from_whole(actual));
        reserved.floor()
    }

    fn reserved(cost: &ExpectedCost, stated: u64) -> u64 {
        cost.with_stated(Units::from_whole(stated)).expect("a stated cost").units(LIMIT).floor()
    }

    #[test]
    fn smaller_of_the_stated_and_the_learned_cost_is_reserved_once_that_is_well_founded() {
        let cost = requested();
        assert_eq!(
            (cost.units(LIMIT).floor(), reserved(&cost, 128_000), reserved(&cost, u64::MAX)),
            (1000, 128_000, 1_000_000)
        );
        for _ in 0..WELL_FOUNDED {
            assert_eq!(settle(&cost, 128_000, 500), 128_000);
        }
        assert_eq!([128_000, 500, 200].map(|stated| reserved(&cost, stated)), [500, 500, 200]);
        assert_eq!(cost.units(LIMIT).floor(), 500, "without a stated cost");
        assert_eq!(settle(&cost, 128_000, 4000), 500);
        assert_eq!(reserved(&cost, 128_000), 1000, "a higher cost raises the estimate at once");
    }

    #[test]
    fn small_requests_teach_nothing_of_large_ones() {
        let cost = requested();
        (0..WELL_FOUNDED).for_each(|_| _ = settle(&cost, 128_000, 500));
        (0..10_000).for_each(|_| _ = settle(&cost, 10, 3));
        assert_eq!(reserved(&cost, 128_000), 500);
    }

    #[test]
    fn requests_that_report_no_cost_found_nothing() {
        let cost = requested();
        (0..1000).for_each(|_| _ = settle(&cost, 2, 2));
        assert_eq!(reserved(&cost, 128_000), 128_000);
    }

    proptest! {
        /// A request never reserves more than it states, and never less than the smaller of that and the lowest cost so far.
        #[test]
        fn reservation_is_between_what_is_stated_and_what_was_reported(
            requests in prop::collection::vec((1u64..200_000, 1u64..200_000), 1..200),
            stated in 1u64..200_000,
        ) {
            let cost = requested();
            for &(stated, actual) in &requests {
                prop_assert!(settle(&cost, stated, actual) <= stated);
            }
            let lowest = requests.iter().map(|(_, actual)| *actual).min().unwrap_or(1);
            prop_assert!(reserved(&cost, stated) <= stated && reserved(&cost, stated) >= stated.min(lowest).min(1));
        }
    }
}
