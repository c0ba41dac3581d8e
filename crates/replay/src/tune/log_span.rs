//! Time range of a log, and the windows that it covers.

use crate::report::WindowReport;
use tidegate_policy::Timestamp;

/// Time from the first to the last request of a log.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogSpan {
    /// Time of the first request.
    pub(super) first: Timestamp,
    /// Time of the last request.
    pub(super) last: Timestamp,
}

impl LogSpan {
    /// Returns true if the log covers nearly all of a window; the usage of other windows is not representative.
    pub(super) fn covers(&self, window: &WindowReport) -> bool {
        let [first, last, start, end] = [self.first, self.last, window.start, window.end].map(Timestamp::seconds);
        let covered = end.min(last).saturating_sub(start.max(first));
        covered * 100 >= end.saturating_sub(start) * MIN_COVERAGE_PERCENT
    }
}

/// Minimum share of a covered window; the first and last minutes of a day are often without requests.
const MIN_COVERAGE_PERCENT: u64 = 95;
