//! Client state in bounded memory: the bucket of each client in each class, and how often it was refused.
//!
//! 26 bytes an entry and one of the map's, in a table that is at worst a little less than half full: at most 62 bytes a
//! client.
//!
//! Nobody is evicted to make room: who is made up would push out who is there. When there is none, newcomers share a bucket.

use super::{BucketUsage, StableClassId};
use crate::policy::Timestamp;
use crate::policy::bucket::BucketState;
use crate::policy::identity::ClientKey;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use parking_lot::Mutex;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// More shards than any machine has cores, so that two workers rarely meet and a shard grows in microseconds.
const SHARDS: usize = 256;

/// In so many parts decisions on buckets are counted: workers seldom count in the same.
const TURNS: usize = BucketUsage::SEQUENCE_SHARDS as usize;

type Map = DashMap<ClientClassKey, ClientState, foldhash::fast::RandomState>;

/// The clients that the gate remembers.
pub(super) struct Clients {
    map: Map,
    max_clients: usize,
    tracked: AtomicUsize,
    evicted: AtomicU64,
    /// Decisions on buckets, by part of the clients: changed only while one of these is seen by nobody else.
    turns: Box<[AtomicU64; TURNS]>,
    /// One bucket a class for all who no longer fit in: a flood of new clients is limited, not let through.
    overflow: Mutex<Vec<ClientState>>,
}

/// A client in a class: two classes of one address have two buckets. Bytes, so that nothing is padded.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ClientClassKey {
    client: [u8; 8],
    class: [u8; 2],
}

/// What is kept of one client. Bytes, so that nothing is padded.
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

    /// Lets `decide` see and change a client's state; nobody else sees it meanwhile.
    pub(super) fn with<T>(
        &self,
        client: ClientKey,
        class: StableClassId,
        decide: impl FnOnce(&mut ClientState) -> T,
    ) -> T {
        match self.map.entry(ClientClassKey::new(client, class)) {
            Entry::Occupied(mut known) => decide(known.get_mut()),
            Entry::Vacant(vacant) if self.tracked.load(Ordering::Relaxed) < self.max_clients => {
                self.tracked.fetch_add(1, Ordering::Relaxed);
                decide(&mut vacant.insert(ClientState::default()))
            }
            Entry::Vacant(_) => {
                let mut overflow = self.overflow.lock();
                let place = usize::from(class);
                if place >= overflow.len() {
                    overflow.resize(place + 1, ClientState::default());
                }
                decide(&mut overflow[place])
            }
        }
    }

    /// The number of a decision on the bucket of a client whom nobody else sees meanwhile: it sorts those of the client,
    /// and of all whose numbers leave the same rest, into the order in which they were made.
    pub(super) fn next_sequence(&self, client: ClientKey) -> u64 {
        let part = client.to_u64() as usize % TURNS;
        self.turns[part].fetch_add(1, Ordering::Relaxed) * TURNS as u64 + part as u64
    }

    /// Forgets the clients that `idle` says may go.
    pub(super) fn evict_idle(&self, idle: impl Fn(StableClassId, BucketState) -> bool) {
        let before = self.tracked.load(Ordering::Relaxed);
        let mut gone = 0;
        self.map.retain(|key, state| {
            let keep = !idle(key.class(), state.bucket_state());
            gone += usize::from(!keep);
            keep
        });
        self.tracked.fetch_sub(gone.min(before), Ordering::Relaxed);
        self.evicted.fetch_add(gone as u64, Ordering::Relaxed);
    }

    pub(super) fn tracked(&self) -> usize {
        self.tracked.load(Ordering::Relaxed)
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// The `count` most refused, most refused first; equals by key, so that the answer is the same each time.
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

/// As two numbers: arrays are hashed with their lengths, which takes twice as long.
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

    /// How often it was refused.
    pub(super) fn refused(&self) -> u32 {
        u32::from_ne_bytes(self.refused)
    }

    /// Counts one more refusal.
    pub(super) fn record_refusal(&mut self) {
        self.refused = self.refused().saturating_add(1).to_ne_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_as_small_as_promised() {
        assert_eq!(size_of::<(ClientClassKey, ClientState)>(), 26);
    }

    #[test]
    fn a_full_table_puts_newcomers_on_one_shared_bucket() {
        let clients = Clients::new(2);
        let seen = |number: u64| {
            clients.with(ClientKey::from_number(number), 0, |state| {
                state.record_refusal();
                state.refused()
            })
        };
        assert_eq!([1, 2, 3, 4, 1].map(seen), [1, 1, 1, 2, 2]);
        assert_eq!(clients.tracked(), 2);
        clients.evict_idle(|_, _| true);
        assert_eq!((clients.tracked(), clients.evicted()), (0, 2));
        assert_eq!(seen(3), 1, "there is room again");
    }
}
