//! Rate of the writes by which one client invalidates stored responses. Others pay to fetch these again, so that no client
//! may invalidate without a bound what it does not pay for.

use foldhash::fast::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidegate_policy::Timestamp;
use tidegate_policy::identity::ClientKey;

/// Writes of a client that count at once, and the time after which one more does: 60 a minute.
const BURST: u32 = 60;
const INTERVAL: Duration = Duration::from_secs(1);
/// Number of slots: 128 KiB. Clients that share one, which none can choose, share the rate.
const SLOTS: usize = 16 * 1024;

/// Writes by the hash of the client, as the generic cell rate algorithm counts them.
pub(super) struct WriteRate {
    hash: RandomState,
    /// Time at which the burst of the client is whole again, in nanoseconds.
    whole_at: Box<[AtomicU64]>,
}

impl WriteRate {
    pub(super) fn new() -> Self {
        Self { hash: RandomState::default(), whole_at: (0..SLOTS).map(|_| AtomicU64::default()).collect() }
    }

    /// Counts a write of `client` at `now`. Returns false if it exceeds the rate, and is not counted.
    pub(super) fn take(&self, client: ClientKey, now: Timestamp) -> bool {
        let slot = &self.whole_at[self.hash.hash_one(client) as usize % SLOTS];
        let latest = now + INTERVAL * BURST;
        let counted = slot.fetch_update(Ordering::AcqRel, Ordering::Acquire, |whole_at| {
            // A clock that went back leaves the client at most an empty burst.
            let next = Timestamp(whole_at.clamp(now.0, latest.0)) + INTERVAL;
            (next <= latest).then_some(next.0)
        });
        counted.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_invalidates_a_burst_and_then_one_a_second() {
        let (rate, at) = (WriteRate::new(), |seconds: u64| Timestamp::from_seconds(1000 + seconds));
        let count = |client, seconds| (0..1000).filter(|_| rate.take(ClientKey::from_u64(client), at(seconds))).count();
        assert_eq!([count(1, 0), count(1, 0), count(1, 3), count(1, 600)], [60, 0, 3, 60]);
        assert_eq!(count(1, 0), 0, "the clock went back");
        assert_eq!(count(2, 0), 60, "another client");
    }
}
