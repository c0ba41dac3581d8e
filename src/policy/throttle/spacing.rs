//! The time between requests of a scope.

use super::Jitter;
use crate::policy::Timestamp;
use std::time::Duration;

/// How far apart requests are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spacing {
    /// The time between any two.
    pub delay: Duration,
    /// By what that is varied, so that the gate does not knock like a clock.
    pub jitter: Jitter,
    /// The least time between two in one slot, from the start of the one to that of the other.
    pub per_slot: Duration,
}

impl Spacing {
    /// Returns when the next request may be sent after one at `now`, where the delay has come to `delay`.
    pub fn next_start(&self, delay: Duration, chance: f64, now: Timestamp) -> Timestamp {
        now + self.jitter.apply(delay, chance)
    }

    /// Returns when the slot of a request that was sent at `sent` may be used again.
    pub fn slot_free_at(&self, sent: Timestamp) -> Timestamp {
        sent + self.per_slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_is_the_delay_away_more_or_less() {
        let spacing = Spacing { jitter: Jitter { low: -0.1, high: 0.5 }, ..Spacing::default() };
        let now = Timestamp::from_seconds(7);
        for (delay_ms, chance, away_ms) in [(0, 0.5, 0), (100, 0.0, 90), (100, 0.5, 120), (400, 1.0, 600)] {
            let next = spacing.next_start(Duration::from_millis(delay_ms), chance, now);
            assert_eq!(next.saturating_duration_since(now), Duration::from_millis(away_ms), "{delay_ms} {chance}");
        }
    }
}
