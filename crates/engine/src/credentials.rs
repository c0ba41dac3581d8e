//! Credentials that addresses have sent, in bounded memory: a client that invents credentials gets a bounded number of
//! buckets.

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tidegate_policy::Timestamp;
use tidegate_policy::identity::ClientKey;

/// Time after its last request until a credential makes room for another of the same address.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);

/// The credentials that each address sent within [`IDLE_TIMEOUT`].
#[derive(Debug)]
pub struct Credentials {
    by_address: DashMap<ClientKey, Vec<SentCredential>, foldhash::fast::RandomState>,
    count: AtomicUsize,
    max_count: usize,
}

/// A credential of one address.
#[derive(Clone, Copy, Debug)]
struct SentCredential {
    hash: u64,
    last_sent: Timestamp,
}

impl Credentials {
    /// Creates an empty set that holds at most `max_count` credentials of all addresses together.
    pub fn new(max_count: usize) -> Self {
        Self { by_address: DashMap::default(), count: AtomicUsize::new(0), max_count }
    }

    /// Returns true if the credential with this hash is one of the at most `max_per_address` that count as clients of
    /// their own. All further ones count as the client `address`.
    pub fn admit(&self, address: ClientKey, hash: u64, max_per_address: NonZeroUsize, now: Timestamp) -> bool {
        match self.by_address.entry(address) {
            Entry::Occupied(mut entry) => {
                let sent = entry.get_mut();
                if let Some(known) = sent.iter_mut().find(|known| known.hash == hash) {
                    known.last_sent = known.last_sent.max(now);
                    return true;
                }
                let has_room = sent.len() < max_per_address.get() && self.count_new();
                if has_room {
                    sent.push(SentCredential { hash, last_sent: now });
                }
                has_room
            }
            Entry::Vacant(entry) => {
                let has_room = self.count_new();
                if has_room {
                    entry.insert(vec![SentCredential { hash, last_sent: now }]);
                }
                has_room
            }
        }
    }

    /// Forgets the credentials that were not sent within [`IDLE_TIMEOUT`].
    pub fn evict_idle(&self, now: Timestamp) {
        self.by_address.retain(|_, sent| {
            let before = sent.len();
            sent.retain(|credential| now.saturating_duration_since(credential.last_sent) < IDLE_TIMEOUT);
            self.count.fetch_sub(before - sent.len(), Ordering::Relaxed);
            !sent.is_empty()
        });
    }

    /// Counts one more credential. Returns false if there is no room.
    fn count_new(&self) -> bool {
        let increment = |count| (count < self.max_count).then_some(count + 1);
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, increment).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp(1_800_000_000_000_000);
    const TWO: NonZeroUsize = NonZeroUsize::new(2).expect("nonzero");

    fn address(number: u64) -> ClientKey {
        ClientKey::from_u64(number)
    }

    #[test]
    fn further_credentials_of_an_address_wait_until_others_are_idle() {
        let credentials = Credentials::new(100);
        let admit = |hash, now| credentials.admit(address(1), hash, TWO, now);
        assert_eq!([1, 2, 3, 1, 2, 3].map(|hash| admit(hash, NOON)), [true, true, false, true, true, false]);
        assert!(credentials.admit(address(2), 3, TWO, NOON), "another address");
        assert!(admit(1, NOON + IDLE_TIMEOUT / 2));
        credentials.evict_idle(NOON + IDLE_TIMEOUT - Duration::from_secs(1));
        assert!(!admit(3, NOON), "two are left");
        credentials.evict_idle(NOON + IDLE_TIMEOUT);
        assert!(admit(3, NOON + IDLE_TIMEOUT) && !admit(2, NOON + IDLE_TIMEOUT), "the second was idle for longer");
    }

    #[test]
    fn all_addresses_together_are_bounded() {
        let credentials = Credentials::new(3);
        let admitted = (1..=5).filter(|number| credentials.admit(address(*number), 1, TWO, NOON)).count();
        assert_eq!((admitted, credentials.by_address.len()), (3, 3));
        assert!(!credentials.admit(address(1), 2, TWO, NOON));
        credentials.evict_idle(NOON + IDLE_TIMEOUT);
        assert_eq!((credentials.by_address.len(), credentials.count.load(Ordering::Relaxed)), (0, 0));
    }
}
