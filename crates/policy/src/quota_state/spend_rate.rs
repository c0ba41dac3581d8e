//! Spend rate of a window, for the size of leases.

use crate::Timestamp;
use crate::units::Units;
use std::time::Duration;

/// Rate at which the current window is spent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SpendRate {
    updated_at: Timestamp,
    pub(super) taken: Units,
    pub(super) per_second: Units,
}

impl SpendRate {
    /// Updates the rate. It increases at once and decreases over a second or two.
    pub(super) fn update(&mut self, taken: Units, now: Timestamp) {
        const MIN_SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
        let elapsed = now.saturating_duration_since(self.updated_at);
        if now >= self.updated_at && elapsed < MIN_SAMPLE_INTERVAL {
            return;
        }
        let spent = u128::from(taken.saturating_sub(self.taken).milli());
        let rate = spent * 1_000_000_000 / elapsed.max(MIN_SAMPLE_INTERVAL).as_nanos();
        let rate = Units::from_milli(u64::try_from(rate).unwrap_or(u64::MAX));
        let decay_factor = 1.0 - (elapsed.as_secs_f64() / 2.0).min(1.0);
        let decayed = Units::from_milli((self.per_second.milli() as f64 * decay_factor) as u64);
        *self = Self { updated_at: now, taken, per_second: rate.max(decayed) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: Timestamp = Timestamp::from_seconds(1000);

    fn milli_per_second(rate: &mut SpendRate, taken: u64, after_ms: u64) -> u64 {
        rate.update(Units::from_whole(taken), START + Duration::from_millis(after_ms));
        rate.per_second.milli()
    }

    #[test]
    fn rate_rises_at_once_and_falls_within_two_seconds() {
        let mut rate = SpendRate::default();
        let steps = [(0, 0), (100, 1000), (100, 1500), (100, 2500), (150, 3000), (150, 5000)];
        let rates = steps.map(|(taken, after_ms)| milli_per_second(&mut rate, taken, after_ms));
        assert_eq!(rates, [0, 100_000, 75_000, 37_500, 100_000, 0]);
    }

    #[test]
    fn sample_is_at_least_20_ms_long() {
        let mut rate = SpendRate::default();
        let steps = [(0, 0), (1, 19), (1, 20), (2, 25), (5, 40)];
        let rates = steps.map(|(taken, after_ms)| milli_per_second(&mut rate, taken, after_ms));
        assert_eq!(rates, [0, 0, 50_000, 50_000, 200_000], "a short sample counts in the next");
    }

    #[test]
    fn rate_is_measured_again_after_a_clock_was_set_back() {
        let mut rate = SpendRate::default();
        milli_per_second(&mut rate, 100, 3_600_000);
        milli_per_second(&mut rate, 100, 0);
        assert_eq!(milli_per_second(&mut rate, 800, 1000), 700_000);
    }

    proptest! {
        #[test]
        fn constant_rate_is_measured_at_any_interval(
            per_ms in 1u64..1000, intervals in proptest::collection::vec(20u64..3000, 1..20),
        ) {
            let (mut rate, mut after_ms) = (SpendRate::default(), 0);
            rate.update(Units::ZERO, START);
            for interval in intervals {
                after_ms += interval;
                rate.update(Units::from_milli(per_ms * after_ms), START + Duration::from_millis(after_ms));
                prop_assert_eq!(rate.per_second, Units::from_milli(per_ms * 1000));
            }
        }
    }
}
