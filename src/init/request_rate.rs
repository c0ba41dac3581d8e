//! How much somebody asked for, and how much of it at once.

use crate::policy::Timestamp;

/// The requests of one bot, or of all of a kind.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestRate {
    /// All of them.
    pub(super) requests: u64,
    /// Most of them in one hour.
    pub(super) busiest_hour: PeakCounter,
    /// Most of them in one day.
    pub(super) busiest_day: PeakCounter,
}

/// The most that came in any hour, or any day.
#[derive(Clone, Debug, Default)]
pub(super) struct PeakCounter {
    current: u64,
    count: u64,
    /// That many.
    pub(super) most: u64,
}

impl RequestRate {
    /// Counts a request; none may come before the last.
    pub(super) fn count(&mut self, at: Timestamp) {
        self.requests += 1;
        self.busiest_hour.count(at.seconds() / 3600);
        self.busiest_day.count(at.seconds() / 86_400);
    }
}

impl PeakCounter {
    fn count(&mut self, stretch: u64) {
        if stretch != self.current {
            (self.current, self.count) = (stretch, 0);
        }
        self.count += 1;
        self.most = self.most.max(self.count);
    }
}
