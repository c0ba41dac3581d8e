//! Health of an origin, as the last requests found it.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tidegate_policy::Timestamp;

/// Health of an origin; common to all workers.
#[derive(Debug, Default)]
pub(in crate::gateway) struct OutageRecord {
    /// True if there is an outage; read for each response, in place of the lock.
    is_failing: AtomicBool,
    outage: Mutex<Option<OriginOutage>>,
}

/// Requests to which the origin has not responded, since its last response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginOutage {
    /// Time of the first failure.
    pub since: Timestamp,
    /// Number of failed requests.
    pub failed_requests: u64,
    /// Error of the last one.
    pub last_error: String,
}

impl OutageRecord {
    /// Records a response of the origin, whatever its status.
    pub(in crate::gateway) fn record_response(&self) {
        if self.is_failing.load(Ordering::Relaxed) {
            let mut outage = self.outage.lock();
            *outage = None;
            self.is_failing.store(false, Ordering::Relaxed);
        }
    }

    /// Records a request without a response.
    pub(in crate::gateway) fn record_failure(&self, error: String, now: Timestamp) {
        let mut outage = self.outage.lock();
        let (since, failed_requests) =
            outage.as_ref().map_or((now, 0), |outage| (outage.since, outage.failed_requests));
        *outage = Some(OriginOutage { since, failed_requests: failed_requests + 1, last_error: error });
        self.is_failing.store(true, Ordering::Relaxed);
    }

    /// Returns the outage; `None` if the origin responded to the last request, or was sent none.
    pub(in crate::gateway) fn outage(&self) -> Option<OriginOutage> {
        self.outage.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outage_lasts_from_the_first_failure_to_the_next_response() {
        let health = OutageRecord::default();
        health.record_response();
        assert_eq!(health.outage(), None);
        health.record_failure("refused".into(), Timestamp::from_seconds(10));
        health.record_failure("timed out".into(), Timestamp::from_seconds(20));
        let outage =
            OriginOutage { since: Timestamp::from_seconds(10), failed_requests: 2, last_error: "timed out".into() };
        assert_eq!(health.outage(), Some(outage));
        health.record_response();
        assert_eq!(health.outage(), None);
        health.record_failure("refused".into(), Timestamp::from_seconds(30));
        assert_eq!(health.outage().map(|outage| outage.since), Some(Timestamp::from_seconds(30)));
    }
}
