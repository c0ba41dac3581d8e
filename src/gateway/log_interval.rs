//! Bounds how often an event is logged.

use parking_lot::Mutex;
use std::time::Duration;
use tidegate_policy::Timestamp;

/// Minimum time between two lines about the same event.
const INTERVAL: Duration = Duration::from_secs(60);

/// Time of the last line about an event, and the number of events since.
#[derive(Default)]
pub(super) struct LogInterval(Mutex<(Option<Timestamp>, u64)>);

impl LogInterval {
    /// Records an event. Returns the number of events since the last line if another line is due, else `None`.
    pub(super) fn record(&self, now: Timestamp) -> Option<u64> {
        let (logged_at, since) = &mut *self.0.lock();
        if logged_at.is_some_and(|at| now < at + INTERVAL) {
            *since += 1;
            return None;
        }
        *logged_at = Some(now);
        Some(std::mem::take(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_minute_with_the_number_of_events_between() {
        let interval = LogInterval::default();
        let due = [0, 1, 59, 60, 61, 200].map(|second| interval.record(Timestamp::from_seconds(second)));
        assert_eq!(due, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
