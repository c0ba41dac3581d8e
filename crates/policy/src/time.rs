//! Spans of time that clients are told to wait.

use std::time::Duration;

/// Returns `wait` in whole seconds, rounded up, so that a client that waits this long is not early.
pub fn ceil_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// Extends `wait` by the fraction `spread`, so that clients refused together do not retry together.
pub fn with_spread(wait: Duration, spread: f64) -> Duration {
    wait + wait.min(MAX_SPREAD_WAIT).mul_f64(spread)
}

/// Maximum wait that is spread: minutes suffice to separate a burst; hours would only delay clients.
const MAX_SPREAD_WAIT: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_extends_a_wait_by_an_hour_at_most() {
        let seconds = |wait, spread| with_spread(Duration::from_secs(wait), spread).as_secs();
        assert_eq!([seconds(100, 0.0), seconds(100, 0.5), seconds(36_000, 1.0)], [100, 150, 39_600]);
        let ceil = |nanos| ceil_seconds(Duration::from_nanos(nanos));
        assert_eq!([0, 1, 1_000_000_000, 1_000_000_001].map(ceil), [0, 1, 1, 2]);
    }
}
