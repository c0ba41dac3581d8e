//! The time between any two requests of a scope.

use super::Jitter;
use crate::policy::Timestamp;
use std::time::Duration;

/// How far apart requests are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spacing {
    /// The least time between two.
    pub delay: Duration,
    /// By how much more it may be, so that the gate does not knock like a clock.
    pub jitter: Jitter,
}

impl Spacing {
    /// Returns when the next request may be sent after one at `now`, where the delay has been stretched to `delay`.
    pub fn next_after(&self, delay: Duration, chance: f64, now: Timestamp) -> Timestamp {
        now + self.jitter.stretch(delay.max(self.delay), chance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_is_at_least_the_delay_away() {
        let spacing = Spacing { delay: Duration::from_millis(100), jitter: Jitter(0.5) };
        let now = Timestamp::from_seconds(7);
        for (delay_ms, chance, away_ms) in [(0, 0.0, 100), (0, 0.5, 125), (400, 0.0, 400), (400, 1.0, 600)] {
            let next = spacing.next_after(Duration::from_millis(delay_ms), chance, now);
            assert_eq!(next.since(now), Duration::from_millis(away_ms), "{delay_ms} {chance}");
        }
    }
}
