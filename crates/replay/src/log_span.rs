//! Time range of a log, and the windows that it covers.

use tidegate_policy::Timestamp;

/// Time from the first to the last request of a log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogSpan {
    /// Time of the first request.
    pub(crate) first: Timestamp,
    /// Time of the last request.
    pub(crate) last: Timestamp,
}

impl LogSpan {
    /// Adds a request.
    pub(crate) fn extend(&mut self, at: Timestamp) {
        self.first = self.first.min(at);
        self.last = self.last.max(at);
    }

    /// Returns true if the log covers nearly all of a window; the usage of other windows is not representative.
    pub(crate) fn covers(&self, start: Timestamp, end: Timestamp) -> bool {
        let [first, last, start, end] = [self.first, self.last, start, end].map(Timestamp::seconds);
        let covered = end.min(last).saturating_sub(start.max(first));
        covered * 100 >= end.saturating_sub(start) * MIN_COVERAGE_PERCENT
    }
}

/// Minimum share of a covered window: a rotated log rarely begins at midnight, and nights have few requests.
const MIN_COVERAGE_PERCENT: u64 = 90;
