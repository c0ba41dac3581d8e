//! What a request is expected to cost, before anybody knows.

use super::units::Units;

/// What one request of a route is expected to take from one quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// So much, as the settings say.
    Known(Units),
    /// What requests of the route have cost lately, as the origin says afterwards.
    Learned,
}

/// What requests of a route have cost lately, erring high: what is set aside should rarely be too little, and not much
/// too much.
///
/// It rises to a higher cost at once, but at most to twice of what it was, so that a single slip of the origin's pen does
/// not close the gate; it sinks by a 128th of the way to each lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostEstimate(pub Units);

const DECAY_DIVISOR: u64 = 128;

impl CostEstimate {
    /// Before the first answer: one unit.
    pub const INITIAL: Self = Self(Units::from_whole(1));

    /// The estimate after a request that cost `actual`.
    #[must_use]
    pub fn updated(self, actual: Units) -> Self {
        let (estimate, actual) = (self.0.milli(), actual.milli());
        let next = match actual.checked_sub(estimate) {
            // From nothing it has to start somewhere.
            Some(_) => actual.min(estimate.saturating_mul(2).max(Units::from_whole(1).milli())),
            None => estimate - (estimate - actual).div_ceil(DECAY_DIVISOR),
        };
        Self(Units::from_milli(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn updated(estimate: CostEstimate, costs: &[u64]) -> CostEstimate {
        costs.iter().fold(estimate, |estimate, &cost| estimate.updated(Units::from_milli(cost)))
    }

    #[test]
    fn it_rises_by_doubling_and_sinks_slowly() {
        let risen: Vec<u64> =
            (1..=5).map(|times| updated(CostEstimate::INITIAL, &vec![12_000; times]).0.milli()).collect();
        assert_eq!(risen, [2000, 4000, 8000, 12_000, 12_000]);
        assert_eq!(updated(CostEstimate(Units::from_whole(12)), &[0]).0.milli(), 11_906);
        assert_eq!(updated(CostEstimate(Units::from_milli(3)), &[0, 0, 0]), CostEstimate(Units::ZERO));
        assert_eq!(updated(CostEstimate(Units::ZERO), &[5000]).0, Units::from_whole(1));
    }

    #[test]
    fn one_slip_is_forgotten() {
        let slipped = updated(CostEstimate(Units::from_whole(2)), &[1_000_000_000]);
        assert_eq!(slipped.0, Units::from_whole(4));
        assert!(updated(slipped, &[2000; 1000]).0 < Units::from_milli(2100));
    }

    proptest! {
        /// Of a route that costs the same again and again it is soon that; of one that varies it stays within what was.
        #[test]
        fn it_stays_within_what_requests_cost(costs in prop::collection::vec(0u64..100_000, 1..200)) {
            let estimate = updated(CostEstimate::INITIAL, &costs).0.milli();
            let (least, most) = (costs.iter().min().copied().unwrap_or(0), costs.iter().max().copied().unwrap_or(0));
            prop_assert!(estimate >= least.min(1000) && estimate <= most.max(1000));
            prop_assert_eq!(updated(CostEstimate(Units::from_milli(most)), &[most; 3]).0.milli(), most);
        }

        /// Where every tenth request costs a lot, it finds nine tenths of that set aside.
        #[test]
        fn what_is_dear_now_and_then_is_mostly_covered(dear in 2_000u64..100_000) {
            let day: Vec<u64> = (0..400).map(|place| if place % 10 == 0 { dear } else { 1000 }).collect();
            let mut estimate = CostEstimate::INITIAL;
            let mut covered = 0;
            for (place, &cost) in day.iter().enumerate() {
                covered += usize::from(place >= 100 && cost == dear && estimate.0.milli() * 10 >= dear * 9);
                estimate = estimate.updated(Units::from_milli(cost));
            }
            prop_assert_eq!(covered, 30);
        }
    }
}
