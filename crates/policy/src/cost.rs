//! Expected cost of a request, before the actual cost is known.

use super::units::Units;

/// Expected cost of one request of a route in one quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Fixed cost from the settings.
    Fixed(Units),
    /// Estimate learned from the recent actual costs that the origin reported.
    Learned,
    /// What the body of the request states (see [`RequestedCost`]), or the estimate if that is less.
    Requested {
        /// Cost of a request whose body states none.
        default: Units,
    },
}

impl Cost {
    /// Returns the expected cost of a request of which the body is not known, before anything was learned.
    pub fn first_estimate(self) -> Units {
        match self {
            Self::Fixed(units) => units,
            Self::Learned => CostEstimate::INITIAL.0,
            Self::Requested { default } => default,
        }
    }
}

/// What the bodies of requests state of their cost in one quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedCost {
    /// Paths in JSON, such as `max_tokens`. The largest of their numbers counts.
    pub paths: Vec<String>,
    /// Units that each byte of the body adds.
    pub per_byte: Units,
    /// Least cost of a request whose body states none.
    pub default: Units,
}

impl RequestedCost {
    /// Returns the cost of a request with a body of `length` bytes that states `number`. If the body was not read to its end, or
    /// is not JSON, it may state more than was found.
    pub fn units(&self, number: Option<Units>, length: u64, is_whole: bool) -> Units {
        let bytes = Units::from_milli(self.per_byte.milli().saturating_mul(length));
        let stated = number.unwrap_or_default().saturating_add(bytes);
        if is_whole && number.is_some() { stated } else { stated.max(self.default) }
    }
}

/// Estimate of the recent costs of a route's requests. Errs high: reservations should rarely be too small, and not much
/// too large.
///
/// A higher cost raises it at once, but at most to twice its value, so that one wrong report of the origin does not
/// block the quota. A lower cost reduces it by a 128th of the difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostEstimate(pub Units);

const DECAY_DIVISOR: u64 = 128;

impl CostEstimate {
    /// Estimate before the first response: one unit.
    pub const INITIAL: Self = Self(Units::from_whole(1));

    /// Returns the estimate after a request that cost `actual`.
    #[must_use]
    pub fn updated(self, actual: Units) -> Self {
        let (estimate, actual) = (self.0.milli(), actual.milli());
        let next = match actual.checked_sub(estimate) {
            // Zero cannot double, so growth starts at one unit.
            Some(_) => actual.min(estimate.saturating_mul(2).max(Units::from_whole(1).milli())),
            None => estimate - (estimate - actual).div_ceil(DECAY_DIVISOR),
        };
        Self(Units::from_milli(next))
    }
}

/// Factor by which a plausible cost exceeds the expected one at most.
const PLAUSIBLE_FACTOR: u64 = 100;
/// Part of the limit, as a divisor, that a request may always cost.
const PLAUSIBLE_DIVISOR: u64 = 100;

/// Returns the highest cost that an origin plausibly reports for a request that was expected to cost `expected`: 100 times as
/// much, of at least one unit; or a hundredth of the limit, if that is more. Otherwise, one wrong number would close the quota.
pub fn highest_plausible(expected: Units, limit: Units) -> Units {
    let by_factor = expected.max(CostEstimate::INITIAL.0).milli().saturating_mul(PLAUSIBLE_FACTOR);
    Units::from_milli(by_factor.max(limit.milli() / PLAUSIBLE_DIVISOR))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn updated(estimate: CostEstimate, costs: &[u64]) -> CostEstimate {
        costs.iter().fold(estimate, |estimate, &cost| estimate.updated(Units::from_milli(cost)))
    }

    #[test]
    fn estimate_doubles_up_and_decays_slowly() {
        let estimates: Vec<u64> =
            (1..=5).map(|times| updated(CostEstimate::INITIAL, &vec![12_000; times]).0.milli()).collect();
        assert_eq!(estimates, [2000, 4000, 8000, 12_000, 12_000]);
        assert_eq!(updated(CostEstimate(Units::from_whole(12)), &[0]).0.milli(), 11_906);
        assert_eq!(updated(CostEstimate(Units::from_whole(12)), &[6000]).0.milli(), 11_953);
        assert_eq!(updated(CostEstimate(Units::from_milli(3)), &[0, 0, 0]), CostEstimate(Units::ZERO));
        assert_eq!(updated(CostEstimate(Units::ZERO), &[5000]).0, Units::from_whole(1));
    }

    #[test]
    fn implausible_cost_is_far_above_the_expected_one_and_part_of_the_limit() {
        let highest =
            |expected, limit| highest_plausible(Units::from_milli(expected), Units::from_whole(limit)).milli() / 1000;
        let units = |expected: u64| expected * 1000;
        assert_eq!([highest(units(1), 10_000), highest(units(4), 10_000), highest(0, 10)], [100, 400, 100]);
        assert_eq!([highest(units(1), 1_000_000), highest(1, 10)], [10_000, 100]);
        assert!(highest_plausible(Units::MAX, Units::MAX) >= Units::MAX);
    }

    #[test]
    fn request_costs_what_its_body_states() {
        let cost = RequestedCost {
            paths: vec!["max_tokens".into()],
            per_byte: Units::from_milli(250),
            default: Units::from_whole(1000),
        };
        let units = |number: Option<u64>, length, is_whole| {
            cost.units(number.map(Units::from_whole), length, is_whole).milli() as f64 / 1000.0
        };
        assert_eq!(units(Some(200), 81, true), 220.25);
        assert_eq!(units(Some(0), 0, true), 0.0);
        // No number, or a body that may have another one.
        assert_eq!([units(None, 81, true), units(None, 0, false), units(Some(200), 81, false)], [1000.0; 3]);
        assert_eq!([units(None, 8000, true), units(Some(200), 8000, false)], [2000.0, 2200.0]);
        assert_eq!(cost.units(Some(Units::MAX), u64::MAX, true), Units::MAX);
    }

    #[test]
    fn single_outlier_decays() {
        let raised = updated(CostEstimate(Units::from_whole(2)), &[1_000_000_000]);
        assert_eq!(raised.0, Units::from_whole(4));
        assert!(updated(raised, &[2000; 1000]).0 < Units::from_milli(2100));
    }

    proptest! {
        /// The estimate soon reaches a constant cost, and stays within the range of varying costs.
        #[test]
        fn estimate_stays_within_observed_costs(costs in prop::collection::vec(0u64..100_000, 1..200)) {
            let estimate = updated(CostEstimate::INITIAL, &costs).0.milli();
            let (lowest, highest) = (costs.iter().min().copied().unwrap_or(0), costs.iter().max().copied().unwrap_or(0));
            prop_assert!(estimate >= lowest.min(1000) && estimate <= highest.max(1000));
            prop_assert_eq!(updated(CostEstimate(Units::from_milli(highest)), &[highest; 3]).0.milli(), highest);
        }

        /// If every tenth request is expensive, the estimate stays at nine tenths of that cost or above.
        #[test]
        fn rare_expensive_requests_are_mostly_covered(expensive in 2_000u64..100_000) {
            let costs: Vec<u64> = (0..400).map(|index| if index % 10 == 0 { expensive } else { 1000 }).collect();
            let mut estimate = CostEstimate::INITIAL;
            let mut covered = 0;
            for (index, &cost) in costs.iter().enumerate() {
                covered += usize::from(index >= 100 && cost == expensive && estimate.0.milli() * 10 >= expensive * 9);
                estimate = estimate.updated(Units::from_milli(cost));
            }
            prop_assert_eq!(covered, 30);
        }
    }
}
