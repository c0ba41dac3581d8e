//! Client state in bounded memory: the bucket of each client in each class, and its number of refusals.
//!
//! An entry takes 26 bytes, plus one byte of the map. The table is slightly less than half full at worst: at most 62
//! bytes per client.
//!
//! A new client never evicts another, so a flood of forged clients cannot displace real ones. When the table is full,
//! new clients share one bucket per class.

use super::BucketUsage;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use parking_lot::Mutex;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tidegate_policy::bucket::BucketState;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::{StableClassId, Timestamp};

/// Number of shards. More than the cores of any machine, so that two workers rarely contend and a shard grows in
/// microseconds.
const SHARDS: usize = 256;

/// Number of shards that count decisions on buckets, so that workers rarely share a counter.
const SEQUENCE_SHARDS: usize = BucketUsage::SEQUENCE_SHARDS as usize;

type Map = DashMap<ClientClassKey, ClientState, foldhash::fast::RandomState>;

/// State of the tracked clients.
pub(super) struct Clients {
    map: Map,
    max_clients: usize,
    tracked_count: AtomicUsize,
    evicted_count: AtomicU64,
    /// Decision counters by shard. A counter is changed only under the lock of a client of that shard.
    sequence_counters: Box<[AtomicU64; SEQUENCE_SHARDS]>,
    /// Shared bucket per class for clients that exceed the capacity. A flood of new clients is limited, not
    /// admitted.
    overflow: Mutex<Vec<ClientState>>,
}

/// Key of a client in a class: one address has a bucket per class. Byte arrays avoid padding.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ClientClassKey {
    client: [u8; 8],
    class: [u8; 2],
}

/// Stored state of one client. Byte arrays avoid padding.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClientState {
    used_tokens: [u8; 4],
    refilled_at: [u8; 8],
    refusal_count: [u8; 4],
}

impl Clients {
    pub(super) fn new(max_clients: usize) -> Self {
        Self {
            map: Map::with_hasher_and_shard_amount(foldhash::fast::RandomState::default(), SHARDS),
            max_clients,
            tracked_count: AtomicUsize::new(0),
            evicted_count: AtomicU64::new(0),
            sequence_counters: Box::new([const { AtomicU64::new(0) }; SEQUENCE_SHARDS]),
            overflow: Mutex::default(),
        }
    }

    /// Runs `decide` with exclusive access to a client's state.
    pub(super) fn with<T>(
        &self,
        client: ClientKey,
        class: StableClassId,
        decide: impl FnOnce(&mut ClientState) -> T,
    ) -> T {
        match self.map.entry(ClientClassKey::new(client, class)) {
            Entry::Occupied(mut entry) => decide(entry.get_mut()),
            Entry::Vacant(vacant) if self.tracked_count.load(Ordering::Relaxed) < self.max_clients => {
                self.tracked_count.fetch_add(1, Ordering::Relaxed);
                decide(&mut vacant.insert(ClientState::default()))
            }
            Entry::Vacant(_) => {
                let mut overflow = self.overflow.lock();
                let index = usize::from(class);
                if index >= overflow.len() {
                    overflow.resize(index + 1, ClientState::default());
                }
                decide(&mut overflow[index])
            }
        }
    }

    /// Returns the sequence number of a decision on a client's bucket. The caller must have exclusive access to the
    /// client. The numbers order the decisions of one client, and of all clients in the same shard.
    pub(super) fn next_sequence(&self, client: ClientKey) -> u64 {
        let shard = client.to_u64() as usize % SEQUENCE_SHARDS;
        self.sequence_counters[shard].fetch_add(1, Ordering::Relaxed) * SEQUENCE_SHARDS as u64 + shard as u64
    }

    /// Evicts the clients for which `idle` returns true.
    pub(super) fn evict_idle(&self, idle: impl Fn(StableClassId, BucketState) -> bool) {
        let before = self.tracked_count.load(Ordering::Relaxed);
        let mut evicted_count = 0;
        self.map.retain(|key, state| {
            let keep = !idle(key.class(), state.bucket_state());
            evicted_count += usize::from(!keep);
            keep
        });
        self.tracked_count.fetch_sub(evicted_count.min(before), Ordering::Relaxed);
        self.evicted_count.fetch_add(evicted_count as u64, Ordering::Relaxed);
    }

    pub(super) fn max_clients(&self) -> usize {
        self.max_clients
    }

    pub(super) fn tracked_count(&self) -> usize {
        self.tracked_count.load(Ordering::Relaxed)
    }

    pub(super) fn evicted_count(&self) -> u64 {
        self.evicted_count.load(Ordering::Relaxed)
    }

    /// Returns the `count` clients with the most refusals, in descending order. Ties are ordered by key, so that the
    /// result is stable.
    pub(super) fn most_refused(&self, count: usize) -> Vec<(ClientKey, StableClassId, ClientState)> {
        let mut clients: Vec<_> = self
            .map
            .iter()
            .filter(|entry| entry.value().refusal_count() > 0)
            .map(|entry| (entry.key().client(), entry.key().class(), *entry.value()))
            .collect();
        clients
            .sort_unstable_by_key(|&(client, class, state)| (std::cmp::Reverse(state.refusal_count()), client, class));
        clients.truncate(count);
        clients
    }
}

impl ClientClassKey {
    fn new(client: ClientKey, class: StableClassId) -> Self {
        Self { client: client.to_u64().to_ne_bytes(), class: class.to_ne_bytes() }
    }

    fn client(self) -> ClientKey {
        ClientKey::from_u64(u64::from_ne_bytes(self.client))
    }

    fn class(self) -> StableClassId {
        StableClassId::from_ne_bytes(self.class)
    }
}

/// Hashes two numbers: hashing arrays includes their lengths and takes twice as long.
impl Hash for ClientClassKey {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.client().to_u64());
        hasher.write_u16(self.class());
    }
}

impl ClientState {
    pub(super) fn bucket_state(&self) -> BucketState {
        BucketState {
            used_tokens: u32::from_ne_bytes(self.used_tokens),
            refilled_at: Timestamp(u64::from_ne_bytes(self.refilled_at)),
        }
    }

    pub(super) fn set_bucket_state(&mut self, level: BucketState) {
        (self.used_tokens, self.refilled_at) = (level.used_tokens.to_ne_bytes(), level.refilled_at.0.to_ne_bytes());
    }

    /// Returns the number of refusals.
    pub(super) fn refusal_count(&self) -> u32 {
        u32::from_ne_bytes(self.refusal_count)
    }

    /// Increments the number of refusals.
    pub(super) fn record_refusal(&mut self) {
        self.refusal_count = self.refusal_count().saturating_add(1).to_ne_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_entry_has_the_expected_size() {
        assert_eq!(size_of::<(ClientClassKey, ClientState)>(), 26);
    }

    #[test]
    fn full_table_puts_new_clients_on_shared_bucket() {
        let clients = Clients::new(2);
        let refuse = |number: u64| {
            clients.with(ClientKey::from_u64(number), 0, |state| {
                state.record_refusal();
                state.refusal_count()
            })
        };
        assert_eq!([1, 2, 3, 4, 1].map(refuse), [1, 1, 1, 2, 2]);
        assert_eq!(clients.tracked_count(), 2);
        clients.evict_idle(|_, _| true);
        assert_eq!((clients.tracked_count(), clients.evicted_count()), (0, 2));
        assert_eq!(refuse(3), 1, "the table has room again");
    }
}
