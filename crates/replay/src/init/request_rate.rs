//! Number of requests of a client group, and their peaks.

use tidegate_policy::Timestamp;

/// Requests of one bot, or of all clients of a kind.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestRate {
    /// Total number of requests.
    pub(super) requests: u64,
    /// Maximum per hour.
    pub(super) busiest_hour: PeakCounter,
    /// Maximum per day.
    pub(super) busiest_day: PeakCounter,
}

/// Maximum number of requests in any hour, or any day.
#[derive(Clone, Debug, Default)]
pub(super) struct PeakCounter {
    current: u64,
    count: u64,
    /// The maximum.
    pub(super) max: u64,
}

impl RequestRate {
    /// Counts a request. Times must not decrease.
    pub(super) fn count(&mut self, at: Timestamp) {
        self.requests += 1;
        self.busiest_hour.count(at.seconds() / 3600);
        self.busiest_day.count(at.seconds() / 86_400);
    }
}

impl PeakCounter {
    fn count(&mut self, period: u64) {
        if period != self.current {
            (self.current, self.count) = (period, 0);
        }
        self.count += 1;
        self.max = self.max.max(self.count);
    }
}
