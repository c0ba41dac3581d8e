//! Spend rate of a window, for the size of leases.

use crate::time::Timestamp;
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
