//! Counts of reports of the origin that were ignored, and when each cause was last logged.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidegate_policy::Timestamp;

/// Why the origin's own count of a quota was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoredReport {
    /// A header cannot be parsed.
    Unreadable,
    /// The reset time is not that of the window.
    OtherWindow,
}

impl IgnoredReport {
    /// All causes.
    pub const ALL: [Self; 2] = [Self::Unreadable, Self::OtherWindow];

    /// Returns the name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::OtherWindow => "other_window",
        }
    }
}

/// Minimum time between two log messages of one cause.
const LOG_INTERVAL: Duration = Duration::from_secs(3600);

/// Ignored reports of one quota, by [`IgnoredReport`].
#[derive(Debug, Default)]
pub(super) struct IgnoredReports {
    counts: [AtomicU64; 2],
    /// Time of the last log message, in nanoseconds since 1970; 0 if there was none.
    logged_at: [AtomicU64; 2],
}

impl IgnoredReports {
    /// Counts a report that was ignored at `now`. Returns true if it is to be logged: the first one, and one an hour.
    pub(super) fn record(&self, cause: IgnoredReport, now: Timestamp) -> bool {
        self.counts[cause as usize].fetch_add(1, Ordering::Relaxed);
        let logged_at = &self.logged_at[cause as usize];
        let is_due = |at| at == 0 || now.saturating_duration_since(Timestamp(at)) >= LOG_INTERVAL;
        logged_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |at| is_due(at).then_some(now.0)).is_ok()
    }

    /// Returns the number of ignored reports of each cause, in the order of [`IgnoredReport::ALL`].
    pub(super) fn counts(&self) -> [u64; 2] {
        self.counts.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_report_of_a_cause_is_logged_and_one_an_hour() {
        let reports = IgnoredReports::default();
        let record = |cause, minute: u64| reports.record(cause, Timestamp::from_seconds(1_800_000_000 + 60 * minute));
        assert_eq!(
            [0, 1, 59, 60, 61].map(|minute| record(IgnoredReport::Unreadable, minute)),
            [true, false, false, true, false]
        );
        assert!(record(IgnoredReport::OtherWindow, 61), "another cause");
        assert_eq!(reports.counts(), [5, 1]);
    }
}
