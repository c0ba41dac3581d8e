//! When the next order of a certificate is due.
//!
//! A certificate is renewed when two thirds of its lifetime are over, plus a jitter, so that many gateways do not ask at once.
//! After a failure, attempts back off exponentially: slowly after a refusal, because servers limit refused orders to a few an
//! hour.

use super::error::{FailedStage, OrderError};
use std::time::Duration;
use tidegate_policy::Timestamp;

/// Backoff after a server that could not be asked: the first and the longest.
const UNREACHABLE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(3600));
/// Backoff after a refusal: the first and the longest.
const REFUSED: (Duration, Duration) = (Duration::from_secs(5 * 60), Duration::from_secs(12 * 3600));
/// Longest time that a server may ask to wait.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(7 * 24 * 3600);
/// Part of a lifetime, and of a backoff, over which the jitter spreads, as a divisor.
const JITTER_PART: u32 = 10;

/// Time of the next attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenewalSchedule {
    due: Timestamp,
    /// Failures since the last success.
    failures: u32,
}

impl RenewalSchedule {
    /// Returns the schedule of a certificate valid from `starts_at` until `expires_at`, in seconds since 1970. `jitter` is 0 to
    /// 1.
    pub fn of_certificate(starts_at: u64, expires_at: u64, jitter: f64) -> Self {
        let lifetime = Duration::from_secs(expires_at.saturating_sub(starts_at));
        let third = lifetime / 3;
        let due =
            Timestamp::from_seconds(starts_at) + third * 2 + (third / JITTER_PART).mul_f64(jitter.clamp(0.0, 1.0));
        Self { due, failures: 0 }
    }

    /// Returns true if an attempt is due.
    pub fn is_due(&self, now: Timestamp) -> bool {
        now >= self.due
    }

    /// Returns the schedule after `failures` of other gateways, of which the last one has set the time `due`.
    pub fn after_failures_of_others(self, due: Timestamp, failures: u32) -> Self {
        Self { due: self.due.max(due), failures: self.failures.max(failures) }
    }

    /// Returns the number of failures since the last success.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns the time of the next attempt.
    pub fn due(&self) -> Timestamp {
        self.due
    }

    /// Returns the schedule after a failure at `now`. `jitter` is 0 to 1.
    pub fn after_failure(self, error: &OrderError, now: Timestamp, jitter: f64) -> Self {
        let (first, longest) = if error.stage == FailedStage::Request { UNREACHABLE } else { REFUSED };
        let backoff = first.saturating_mul(1 << self.failures.min(16)).min(longest);
        let backoff = backoff + (backoff / JITTER_PART).mul_f64(jitter.clamp(0.0, 1.0));
        let asked = error.retry_after.unwrap_or_default().min(MAX_RETRY_AFTER);
        Self { due: now + backoff.max(asked), failures: self.failures.saturating_add(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600;

    fn error(stage: FailedStage, retry_after: Option<u64>) -> OrderError {
        OrderError { reason: String::new(), retry_after: retry_after.map(Duration::from_secs), stage }
    }

    #[test]
    fn certificate_is_renewed_after_two_thirds_of_its_lifetime() {
        let due = |jitter| RenewalSchedule::of_certificate(1000, 1000 + 90 * DAY, jitter).due();
        assert_eq!(due(0.0), Timestamp::from_seconds(1000 + 60 * DAY));
        assert_eq!(due(1.0), Timestamp::from_seconds(1000 + 63 * DAY));
        assert!(!RenewalSchedule::of_certificate(1000, 1000 + 90 * DAY, 0.0).is_due(Timestamp::from_seconds(60 * DAY)));
        // Invalid certificates are replaced at once.
        assert!(RenewalSchedule::of_certificate(2000, 1000, 0.0).is_due(Timestamp::from_seconds(2000)));
    }

    #[test]
    fn failures_back_off_and_heed_the_server() {
        let now = Timestamp::from_seconds(1_000_000);
        let after = |errors: &[OrderError]| {
            let schedule = errors
                .iter()
                .fold(RenewalSchedule::default(), |schedule, error| schedule.after_failure(error, now, 0.0));
            schedule.due().seconds() - now.seconds()
        };
        let (unreachable, refused) = (error(FailedStage::Request, None), error(FailedStage::Order, None));
        let times = |error: &OrderError, times| vec![error.clone(); times];
        for (count, seconds) in [(1, 30), (2, 60), (100, 3600)] {
            assert_eq!(after(&times(&unreachable, count)), seconds);
        }
        for (count, seconds) in [(1, 300), (2, 600), (100, 12 * 3600)] {
            assert_eq!(after(&times(&refused, count)), seconds);
        }
        assert_eq!(after(&[error(FailedStage::Order, Some(4000))]), 4000);
        assert_eq!(after(&[error(FailedStage::Order, Some(10))]), 300);
        assert_eq!(after(&[error(FailedStage::Order, Some(u64::MAX))]), 7 * DAY);
        let jittered = RenewalSchedule::default().after_failure(&unreachable, now, 1.0);
        assert_eq!(jittered.due().seconds() - now.seconds(), 33);
    }
}
