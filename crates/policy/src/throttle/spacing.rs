//! Spacing: minimum time between the requests of a scope.

use super::Jitter;
use crate::Timestamp;
use std::time::Duration;

/// Spacing settings of a scope.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spacing {
    /// Minimum time between two requests.
    pub delay: Duration,
    /// Variation of that time, so that requests do not form a regular beat.
    pub jitter: Jitter,
    /// Minimum time between the starts of two requests in the same slot.
    pub per_slot: Duration,
}

impl Spacing {
    /// Returns the earliest time of the next request after one at `now`, for the current delay `delay`.
    pub fn next_start(&self, delay: Duration, random: f64, now: Timestamp) -> Timestamp {
        now + self.jitter.apply(delay, random)
    }

    /// Returns the time from which on the slot of a request sent at `sent` may be used again.
    pub fn slot_free_at(&self, sent: Timestamp) -> Timestamp {
        sent + self.per_slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_start_is_delay_plus_jitter() {
        let spacing = Spacing { jitter: Jitter { low: -0.1, high: 0.5 }, ..Spacing::default() };
        let now = Timestamp::from_seconds(7);
        for (delay_ms, random, expected_ms) in [(0, 0.5, 0), (100, 0.0, 90), (100, 0.5, 120), (400, 1.0, 600)] {
            let next = spacing.next_start(Duration::from_millis(delay_ms), random, now);
            assert_eq!(next.saturating_duration_since(now), Duration::from_millis(expected_ms), "{delay_ms} {random}");
        }
    }

    #[test]
    fn slot_is_free_after_its_time_per_request() {
        let spacing = Spacing { per_slot: Duration::from_secs(3), ..Spacing::default() };
        assert_eq!(spacing.slot_free_at(Timestamp::from_seconds(7)), Timestamp::from_seconds(10));
    }
}
