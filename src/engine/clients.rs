//! Client state in bounded memory: the bucket of each client in each class, and its number of refusals.
//!
//! An entry takes 26 bytes, plus one byte of the map. The table is slightly less than half full at worst: at most 62
//! bytes per client.
//!
//! A new client never evicts another, so a flood of forged clients cannot displace real ones. When the table is full,
//! new clients share one bucket per class.

use super::{BucketUsage, StableClassId};
use crate::policy::Timestamp;
use crate::policy::bucket::BucketState;
use crate::policy::identity::ClientKey;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use parking_lot::Mutex;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Number of shards. More than the cores of any machine, so that two workers rarely contend and a shard grows in
/// microseconds.
const SHARDS: usize = 256;

/// Number of shards that count decisions on buckets, so that workers rarely share a counter.
const TURNS: usize = BucketUsage::SEQUENCE_SHARDS as usize;

type Map = DashMap<ClientClassKey, ClientState, foldhash::fast::RandomState>;

/// State of the tracked clients.
pub(super) struct Clients {
    map: Map,
    max_clients: usize,
    tracked: AtomicUsize,
    evicted: AtomicU64,
    /// Decision counters by shard. A counter is changed only under the lock of a client of that shard.
    turns: Box<[AtomicU64; TURNS]>,
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
    missing: [u8; 4],
    since: [u8; 8],
    refused: [u8; 4],
}

impl Clients {
    pub(super) fn new(max_clients: usize) -> Self {
        Self {
            map: Map::with_hasher_and_shard_amount(foldhash::fast::RandomState::default(), SHARDS),
            max_clients,
            tracked: AtomicUsize::new(0),
            evicted: AtomicU64::new(0),
            turns: Box::new([const { AtomicU64::new(0) }; TURNS]),
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
            Entry::Vacant(vacant) if self.tracked.load(Ordering::Relaxed) < self.max_clients => {
                self.tracked.fetch_add(1, Ordering::Relaxed);
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
        let shard = client.to_u64() as usize % TURNS;
        self.turns[shard].fetch_add(1, Ordering::Relaxed) * TURNS as u64 + shard as u64
    }

    /// Evicts the clients for which `idle` returns true.
    pub(super) fn evict_idle(&self, idle: impl Fn(StableClassId, BucketState) -> bool) {
        let before = self.tracked.load(Ordering::Relaxed);
        let mut evicted = 0;
        self.map.retain(|key, state| {
            let keep = !idle(key.class(), state.bucket_state());
            evicted += usize::from(!keep);
            keep
        });
        self.tracked.fetch_sub(evicted.min(before), Ordering::Relaxed);
        self.evicted.fetch_add(evicted as u64, Ordering::Relaxed);
    }

    pub(super) fn tracked(&self) -> usize {
        self.tracked.load(Ordering::Relaxed)
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Returns the `count` clients with the most refusals, in descending order. Ties are ordered by key, so that the
    /// result is stable.
    pub(super) fn most_refused(&self, count: usize) -> Vec<(ClientKey, StableClassId, ClientState)> {
        let mut clients: Vec<_> = self
            .map
            .iter()
            .filter(|entry| entry.value().refused() > 0)
            .map(|entry| (entry.key().client(), entry.key().class(), *entry.value()))
            .collect();
        clients.sort_unstable_by_key(|&(client, class, state)| (std::cmp::Reverse(state.refused()), client, class));
        clients.truncate(count);
        clients
    }
}

impl ClientClassKey {
    fn new(client: ClientKey, class: StableClassId) -> Self {
        Self { client: client.to_u64().to_ne_bytes(), class: class.to_ne_bytes() }
    }

    fn client(self) -> ClientKey {
        ClientKey::from_number(u64::from_ne_bytes(self.client))
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
        BucketState { used_tokens: u32::from_ne_bytes(self.missing), since: Timestamp(u64::from_ne_bytes(self.since)) }
    }

    pub(super) fn set_bucket_state(&mut self, level: BucketState) {
        (self.missing, self.since) = (level.used_tokens.to_ne_bytes(), level.since.0.to_ne_bytes());
    }

    /// Returns the number of refusals.
    pub(super) fn refused(&self) -> u32 {
        u32::from_ne_bytes(self.refused)
    }

    /// Increments the number of refusals.
    pub(super) fn record_refusal(&mut self) {
        self.refused = self.refused().saturating_add(1).to_ne_bytes();
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
            clients.with(ClientKey::from_number(number), 0, |state| {
                state.record_refusal();
                state.refused()
            })
        };
        assert_eq!([1, 2, 3, 4, 1].map(refuse), [1, 1, 1, 2, 2]);
        assert_eq!(clients.tracked(), 2);
        clients.evict_idle(|_, _| true);
        assert_eq!((clients.tracked(), clients.evicted()), (0, 2));
        assert_eq!(refuse(3), 1, "the table has room again");
    }
}
