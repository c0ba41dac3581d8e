//! The habits of clients that say they are browsers, in bounded memory; those that have been idle longest go first.
//!
//! A client is an address together with a user agent: neighbours behind one address do not pool, unless they use the very
//! same browser. 72 bytes an entry and one of the map's, in tables that are at worst a little less than half full: at most
//! 167 bytes a client, and 76 a network, of which there is room for a quarter as many.

use super::Admission;
use crate::policy::Timestamp;
use crate::policy::bot_detection::{
    BaselineSample, BotScore, ClientProfile, ExpectedBehavior, NetworkProfile, RequestFeatures, ResponseOutcome,
    SiteBaseline, score,
};
use crate::policy::identity::ClientKey;
use foldhash::fast::SeedableRandomState as Hashing;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// More shards than any machine has cores, so that two workers rarely meet.
const SHARDS: usize = 256;

/// Everything that has been seen of browsers.
pub(super) struct ProfileStore {
    clients: BoundedMap<ClientProfile>,
    networks: BoundedMap<NetworkProfile>,
    baseline: Mutex<SiteBaseline>,
    /// What the customs come to, for everybody to read.
    expected: AtomicU64,
    hasher: Hashing,
}

/// Whose habits these are: a client, and its network.
#[derive(Clone, Copy, Debug)]
pub struct ProfileKey {
    client: u64,
    network: u64,
}

/// What is remembered by number, as much as there is room for.
struct BoundedMap<T> {
    shards: Box<[Mutex<HashMap<u64, T, Hashing>>]>,
}

/// Knows when it was last of use.
trait LastSeen {
    fn since(&self) -> u32;
}

impl Admission {
    /// Whose habits a request of `key` with this user agent belongs to.
    pub fn profile_key(&self, key: ClientKey, user_agent: &[u8]) -> ProfileKey {
        let hasher = &self.engine.observations.hasher;
        ProfileKey { client: hasher.hash_one((key.to_u64(), user_agent)), network: hasher.hash_one(key.network()) }
    }

    /// Returns why the client on this track is suspected, if it is. `graphical`: its browser shows pictures.
    pub fn bot_score_if_suspected(&self, track: ProfileKey, graphical: bool, now: Timestamp) -> Option<BotScore> {
        self.bot_score(track, graphical, now).filter(|found| self.rules.is_suspected(found))
    }

    /// Returns how far what is known of the client on this track is from a person's habits, if anything is known.
    pub fn bot_score(&self, track: ProfileKey, graphical: bool, now: Timestamp) -> Option<BotScore> {
        let behaviour = self.rules.behaviour.as_ref()?;
        let observations = &self.engine.observations;
        let habits = observations.clients.get(track.client)?.decayed(now, behaviour.half_life);
        let neighbourhood = || Some(observations.networks.get(track.network)?.decayed(now, behaviour.half_life));
        Some(score(&habits, graphical, observations.expected(), neighbourhood))
    }

    /// Learns from a request that is over.
    pub fn record_request(&self, track: ProfileKey, sight: &RequestFeatures, outcome: ResponseOutcome) {
        let Some(behaviour) = self.rules.behaviour.as_ref().filter(|_| sight.is_informative(outcome)) else { return };
        let (observations, half_life) = (&self.engine.observations, behaviour.half_life);
        let witness = observations
            .clients
            .update(track.client, behaviour.max_clients, |habits| habits.record(sight, outcome, half_life));
        observations.networks.update(track.network, behaviour.max_clients / 4, |network| {
            network.record(track.client, sight, outcome, half_life);
        });
        if let Some(witness) = witness {
            observations.record_baseline(witness, sight.at, half_life);
        }
    }

    /// How many clients' habits are remembered.
    pub fn tracked_profiles(&self) -> usize {
        self.engine.observations.clients.len()
    }
}

impl ProfileStore {
    pub(super) fn new(hasher: Hashing) -> Self {
        Self {
            clients: BoundedMap::new(&hasher),
            networks: BoundedMap::new(&hasher),
            baseline: Mutex::default(),
            expected: AtomicU64::default(),
            hasher,
        }
    }

    fn expected(&self) -> ExpectedBehavior {
        let both = self.expected.load(Ordering::Relaxed);
        ExpectedBehavior { assets: f32::from_bits((both >> 32) as u32), links: f32::from_bits(both as u32) }
    }

    fn record_baseline(&self, witness: BaselineSample, now: Timestamp, half_life: Duration) {
        let mut baseline = self.baseline.lock();
        baseline.record(witness, now, half_life);
        let ExpectedBehavior { assets, links } = baseline.expected();
        self.expected.store(u64::from(assets.to_bits()) << 32 | u64::from(links.to_bits()), Ordering::Relaxed);
    }
}

impl<T> BoundedMap<T> {
    fn new(hasher: &Hashing) -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::new(HashMap::with_hasher(hasher.clone()))).collect() }
    }
}

impl<T: LastSeen + Copy + Default> BoundedMap<T> {
    fn get(&self, number: u64) -> Option<T> {
        self.shard(number).lock().get(&number).copied()
    }

    /// Lets `change` change what is kept under `number`, where `most` have room.
    fn update<R>(&self, number: u64, most: usize, change: impl FnOnce(&mut T) -> R) -> R {
        let mut shard = self.shard(number).lock();
        if shard.len() >= (most / SHARDS).max(1) && !shard.contains_key(&number) {
            evict_idle_quarter(&mut shard);
        }
        change(shard.entry(number).or_default())
    }

    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    fn shard(&self, number: u64) -> &Mutex<HashMap<u64, T, Hashing>> {
        &self.shards[number as usize % SHARDS]
    }
}

/// Forgets the quarter that has been idle longest: a few thousand entries at most, once for every thousand newcomers.
fn evict_idle_quarter<T: LastSeen>(shard: &mut HashMap<u64, T, Hashing>) {
    let mut ages: Vec<u32> = shard.values().map(LastSeen::since).collect();
    let mut to_go = ages.len().div_ceil(4);
    let (_, &mut oldest, _) = ages.select_nth_unstable(to_go - 1);
    shard.retain(|_, kept| {
        let goes = to_go > 0 && kept.since() <= oldest;
        to_go -= usize::from(goes);
        !goes
    });
}

impl LastSeen for ClientProfile {
    fn since(&self) -> u32 {
        self.since()
    }
}

impl LastSeen for NetworkProfile {
    fn since(&self) -> u32 {
        self.since()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Default)]
    struct SeenAt(u32);

    impl LastSeen for SeenAt {
        fn since(&self) -> u32 {
            self.0
        }
    }

    #[test]
    fn an_entry_is_as_small_as_promised() {
        assert_eq!((size_of::<(u64, ClientProfile)>(), size_of::<(u64, NetworkProfile)>()), (72, 32));
    }

    #[test]
    fn there_is_never_more_than_there_is_room_for_and_the_active_stay() {
        let memory = BoundedMap::<SeenAt>::new(&Hashing::random());
        let most = 100 * SHARDS;
        for number in 0..200_000 {
            // Somebody comes again and again.
            memory.update(7, most, |entry| entry.0 = number);
            memory.update(u64::from(number) + 1000, most, |entry| entry.0 = number);
        }
        assert!(memory.len() <= most, "{}", memory.len());
        assert_eq!(memory.get(7).map(|entry| entry.0), Some(199_999));
        assert!(memory.get(1000).is_none());
    }

    #[test]
    fn where_all_are_of_the_same_age_a_quarter_goes() {
        let mut shard: HashMap<u64, SeenAt, Hashing> = (0..100).map(|number| (number, SeenAt(5))).collect();
        evict_idle_quarter(&mut shard);
        assert_eq!(shard.len(), 75);
    }
}
