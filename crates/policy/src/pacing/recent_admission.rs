//! Share of the demand of one class that was admitted recently, as measured: an empty pacing bucket refuses more than
//! the planned share says.

use crate::Timestamp;
use crate::tier::Share;
use crate::units::Units;
use std::time::Duration;

/// Length of an interval. The share covers the current interval and the one before.
const INTERVAL: Duration = Duration::from_secs(300);

/// Demand of a class, and the part of it that was admitted, in the current and the previous interval.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecentAdmission {
    /// Number of the current interval.
    interval: u64,
    current: Demand,
    previous: Demand,
}

#[derive(Clone, Copy, Debug, Default)]
struct Demand {
    requested: Units,
    admitted: Units,
}

impl RecentAdmission {
    /// Records a request of expected cost `cost`.
    pub fn record(&mut self, cost: Units, is_admitted: bool, now: Timestamp) {
        *self = self.advanced_to(now);
        self.current.requested = self.current.requested.saturating_add(cost);
        if is_admitted {
            self.current.admitted = self.current.admitted.saturating_add(cost);
        }
    }

    /// Returns the share of the demand that was admitted; `None` if there was none.
    pub fn share(&self, now: Timestamp) -> Option<Share> {
        let Self { current, previous, .. } = self.advanced_to(now);
        let requested = current.requested.saturating_add(previous.requested);
        let admitted = current.admitted.saturating_add(previous.admitted);
        (!requested.is_zero()).then(|| Share::from_ratio(admitted.as_f64() / requested.as_f64()))
    }

    fn advanced_to(self, now: Timestamp) -> Self {
        let interval = now.seconds() / INTERVAL.as_secs();
        match interval.checked_sub(self.interval) {
            Some(0) => self,
            Some(1) => Self { interval, current: Demand::default(), previous: self.current },
            _ => Self { interval, ..Self::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp::from_seconds(1_800_000_000);

    #[test]
    fn share_is_that_of_the_units_of_two_intervals() {
        let mut recent = RecentAdmission::default();
        assert_eq!(recent.share(NOON), None);
        recent.record(Units::from_whole(3), true, NOON);
        assert_eq!(recent.share(NOON), Some(Share::ALL));
        recent.record(Units::from_whole(1), false, NOON);
        assert_eq!(recent.share(NOON), Some(Share::from_ratio(0.75)));
        recent.record(Units::from_whole(8), false, NOON + INTERVAL);
        assert_eq!(recent.share(NOON + INTERVAL), Some(Share::from_ratio(0.25)));
        assert_eq!(recent.share(NOON + 2 * INTERVAL), Some(Share::from_ratio(0.0)), "the first interval is over");
        assert_eq!(recent.share(NOON + 3 * INTERVAL), None);
        assert_eq!(recent.share(NOON), None, "the clock was set back");
    }
}
