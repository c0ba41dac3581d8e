//! Profiles of clients that claim to be browsers, in bounded memory; the entries that are idle longest are evicted
//! first.
//!
//! A client is an address together with a user agent. So neighbors behind one address share a profile only if they use
//! exactly the same browser. An entry takes 96 bytes, plus one byte of the map. The tables are slightly less than half
//! full at worst: at most 223 bytes per client, and 76 per network. The number of networks is limited to a quarter of
//! that of clients, and so is that of sessions, at 58 bytes each.

use super::{Admission, Engine};
use foldhash::fast::SeedableRandomState as Hashing;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tidegate_policy::bot_detection::{
    BotDetection, BotScore, ClientProfile, ExpectedBehavior, LearnedBaseline, NetworkProfile, ObservedSession,
    PagesBeyond, Recorded, RequestFeatures, ResourceKind, ResponseOutcome, SampleLimit, SessionPages, SiteBaseline,
    UsualPages, score,
};
use tidegate_policy::identity::ClientKey;
use tidegate_policy::{Rules, Timestamp};

/// Number of shards. More than the cores of any machine, so that two workers rarely contend.
const SHARDS: usize = 256;

/// Store of client and network profiles, and of the site's baseline.
pub(super) struct ProfileStore {
    clients: BoundedMap<ClientProfile>,
    networks: BoundedMap<NetworkProfile>,
    sessions: BoundedMap<SessionPages>,
    usual_pages: Mutex<(UsualPages, SampleLimit)>,
    /// Most costly pages a day that are usual for a session; 0 if unknown.
    usual_limit: AtomicU32,
    baseline: Mutex<SiteBaseline>,
    /// Limits of the samples of the baseline, and of those of landings.
    sample_limits: Mutex<[SampleLimit; 2]>,
    /// Expected behavior derived from the baseline, readable without the lock.
    expected: AtomicU64,
    hasher: Hashing,
}

/// Upper bits of a client's key that are a hash of its address alone, whatever its user agent.
const ADDRESS_BITS: u32 = 5;

/// Lower bits of a network's key in which the networks of one allocation differ; as many bits above them are those of the
/// allocation. So a holder of an allocation of IPv6, with 524,288 networks, reaches a sixty-fourth of a table.
const NETWORK_BITS: u32 = 6;

/// Key of a client's and its network's profile.
#[derive(Clone, Copy, Debug)]
pub struct ProfileKey {
    /// Hash of address and user agent, and [`ADDRESS_BITS`] of the address.
    client: u64,
    /// Hash of the network, with the bits of its allocation above [`NETWORK_BITS`].
    network: u64,
    /// Part of the id of the client's session; 0 without one.
    session: u32,
}

/// Sharded map with a bounded number of entries.
struct BoundedMap<T> {
    shards: Box<[Mutex<HashMap<u64, T, Hashing>>]>,
}

/// An entry with the time of its last use.
trait LastSeen {
    fn last_seen_s(&self) -> u32;
}

impl Admission {
    /// Returns the profile key of a request with this client key, user agent and part of the id of its session, 0 without one.
    pub fn profile_key(&self, key: ClientKey, user_agent: &[u8], session: u32) -> ProfileKey {
        let hasher = &self.engine.profiles.hasher;
        let (client, address) = (hasher.hash_one((key.to_u64(), user_agent)), hasher.hash_one(key.to_u64()));
        let client = client >> ADDRESS_BITS | address >> (64 - ADDRESS_BITS) << (64 - ADDRESS_BITS);
        ProfileKey { client, network: network_key(key, hasher), session }
    }

    /// Returns the bot score of the client of a request, or `None` if it is not suspected.
    pub fn bot_score_if_suspected(&self, key: ProfileKey, request: &RequestFeatures) -> Option<BotScore> {
        self.bot_score(key, request).filter(|score| self.rules.is_suspected(score))
    }

    /// Returns the bot score of the client of a request, or `None` if the client has no profile and the request contradicts
    /// nothing.
    pub fn bot_score(&self, key: ProfileKey, request: &RequestFeatures) -> Option<BotScore> {
        let half_life = self.rules.bot_detection.as_ref()?.half_life;
        let observations = &self.engine.profiles;
        let known = observations.clients.get(key.client).map(|profile| profile.decayed(request.at, half_life));
        let beyond = observations.pages_beyond(key.session, request.at);
        let profile = ClientProfile::with_request(known, request);
        let mut profile = if beyond.is_some() { profile.unwrap_or_default() } else { profile? };
        profile.note_session(request);
        let network = || Some(observations.networks.get(key.network)?.decayed(request.at, half_life));
        let session = ObservedSession { is_lacking: request.lacks_session(), beyond };
        Some(score(&profile, request.browser.is_graphical, observations.expected(), network, session))
    }

    /// Returns true if the client has made a visit of a person.
    pub(crate) fn has_visit_of_person(&self, key: ProfileKey, now: Timestamp) -> bool {
        let Some(settings) = &self.rules.bot_detection else { return false };
        let profile = self.engine.profiles.clients.get(key.client);
        profile.is_some_and(|profile| profile.decayed(now, settings.half_life).has_visit_of_person())
    }

    /// Updates the profiles with a finished request.
    pub fn record_request(&self, key: ProfileKey, features: &RequestFeatures, outcome: ResponseOutcome) {
        let Some(settings) = self.rules.bot_detection.as_ref().filter(|_| features.is_informative(outcome)) else {
            return;
        };
        let (observations, half_life) = (&self.engine.profiles, settings.half_life);
        let recorded = observations
            .clients
            .update(key.client, settings.max_clients, |profile| profile.record(features, outcome, half_life));
        if recorded.visit.any() {
            observations.networks.update(key.network, settings.max_clients / 4, |network| {
                network.record(key.client, recorded.visit, features.at, half_life);
            });
        }
        observations.record_baseline(&recorded, key.network, features.at, half_life);
        if key.session != 0 && features.is_costly && matches!(features.resource_kind, ResourceKind::Page(_)) {
            observations.record_session_page(key, features, settings.max_clients / 4);
        }
    }

    /// Returns the number of client profiles.
    pub fn tracked_profiles(&self) -> usize {
        self.engine.profiles.clients.len()
    }
}

fn network_key(key: ClientKey, hasher: &Hashing) -> u64 {
    let allocation_bits = ((1 << NETWORK_BITS) - 1) << NETWORK_BITS;
    hasher.hash_one(key.network()) & !allocation_bits | hasher.hash_one(key.allocation()) & allocation_bits
}

impl Engine {
    /// Returns the learned baseline of the site.
    pub fn learned_baseline(&self) -> LearnedBaseline {
        self.profiles.baseline.lock().learned()
    }

    /// Restores the baseline learned by an earlier process. Without bot detection, `rules` need none.
    pub fn restore_baseline(&self, learned: &LearnedBaseline, rules: &Rules, now: Timestamp) {
        let Some(BotDetection { half_life, .. }) = rules.bot_detection else { return };
        let mut baseline = self.profiles.baseline.lock();
        *baseline = SiteBaseline::restore(learned, now, half_life);
        self.profiles.store_expected(baseline.expected());
    }
}

impl ProfileStore {
    pub(super) fn new(hasher: Hashing) -> Self {
        Self {
            clients: BoundedMap::new(&hasher),
            networks: BoundedMap::new(&hasher),
            sessions: BoundedMap::new(&hasher),
            usual_pages: Mutex::default(),
            usual_limit: AtomicU32::default(),
            baseline: Mutex::default(),
            sample_limits: Mutex::default(),
            expected: AtomicU64::default(),
            hasher,
        }
    }

    fn expected(&self) -> ExpectedBehavior {
        let bits = self.expected.load(Ordering::Relaxed);
        let ratio = |shift: u32| f32::from((bits >> shift) as u16) / f32::from(u16::MAX);
        ExpectedBehavior { assets: ratio(48), links: ratio(32), landings: f32::from_bits(bits as u32) }
    }

    fn record_baseline(&self, recorded: &Recorded, network: u64, now: Timestamp, half_life: Duration) {
        if recorded.sample.is_none() && recorded.landings.is_none() {
            return;
        }
        let [of_samples, of_landings] = &mut *self.sample_limits.lock();
        let sample = recorded.sample.filter(|_| of_samples.accepts(network, now));
        let landings = recorded.landings.filter(|_| of_landings.accepts(network, now));
        let mut baseline = self.baseline.lock();
        if let Some(sample) = sample {
            baseline.record(sample, now, half_life);
        }
        if let Some(landings) = landings {
            baseline.record_landings(landings, now, half_life);
        }
        self.store_expected(baseline.expected());
    }

    fn store_expected(&self, ExpectedBehavior { assets, links, landings }: ExpectedBehavior) {
        let ratio = |ratio: f32| u64::from((ratio * f32::from(u16::MAX)) as u16);
        let bits = ratio(assets) << 48 | ratio(links) << 32 | u64::from(landings.to_bits());
        self.expected.store(bits, Ordering::Relaxed);
    }

    /// Returns the costly pages of a session, if they are more than people ask for.
    fn pages_beyond(&self, session: u32, now: Timestamp) -> Option<PagesBeyond> {
        let limit = self.usual_limit.load(Ordering::Relaxed) as u16;
        match (session, limit) {
            (0, _) | (_, 0) => None,
            _ => self.sessions.get(session.into())?.beyond(limit, now),
        }
    }

    fn record_session_page(&self, key: ProfileKey, features: &RequestFeatures, max_sessions: usize) {
        let state = features.session.unwrap_or_default();
        let teaches = || self.usual_pages.lock().1.accepts(key.network, features.at);
        let change =
            self.sessions.update(key.session.into(), max_sessions, |pages| pages.record(state, features.at, teaches));
        if let Some(change) = change {
            let (usual, _) = &mut *self.usual_pages.lock();
            usual.record(change, features.at);
            self.usual_limit.store(usual.limit().unwrap_or(0).into(), Ordering::Relaxed);
        }
    }
}

impl<T> BoundedMap<T> {
    fn new(hasher: &Hashing) -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::new(HashMap::with_hasher(hasher.clone()))).collect() }
    }
}

impl<T: LastSeen + Copy + Default> BoundedMap<T> {
    fn get(&self, key: u64) -> Option<T> {
        self.shard(key).lock().get(&key).copied()
    }

    /// Changes the entry of `key`, which is created if missing. Evicts idle entries if the map exceeds its maximum.
    fn update<R>(&self, key: u64, max_entries: usize, change: impl FnOnce(&mut T) -> R) -> R {
        let mut shard = self.shard(key).lock();
        if shard.len() >= (max_entries / SHARDS).max(1) && !shard.contains_key(&key) {
            evict_idle_quarter(&mut shard);
        }
        change(shard.entry(key).or_default())
    }

    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    fn shard(&self, key: u64) -> &Mutex<HashMap<u64, T, Hashing>> {
        &self.shards[key as usize % SHARDS]
    }
}

/// Evicts the quarter that is idle longest: at most a few thousand entries, once per thousand new ones.
fn evict_idle_quarter<T: LastSeen>(shard: &mut HashMap<u64, T, Hashing>) {
    let mut ages: Vec<u32> = shard.values().map(LastSeen::last_seen_s).collect();
    let mut to_evict = ages.len().div_ceil(4);
    let (_, &mut oldest, _) = ages.select_nth_unstable(to_evict - 1);
    shard.retain(|_, entry| {
        let evict = to_evict > 0 && entry.last_seen_s() <= oldest;
        to_evict -= usize::from(evict);
        !evict
    });
}

impl LastSeen for ClientProfile {
    fn last_seen_s(&self) -> u32 {
        self.last_seen_s()
    }
}

impl LastSeen for SessionPages {
    fn last_seen_s(&self) -> u32 {
        self.last_seen_s()
    }
}

impl LastSeen for NetworkProfile {
    fn last_seen_s(&self) -> u32 {
        self.last_seen_s()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Default)]
    struct TestEntry(u32);

    impl LastSeen for TestEntry {
        fn last_seen_s(&self) -> u32 {
            self.0
        }
    }

    #[test]
    fn profile_entries_have_the_expected_size() {
        assert_eq!((size_of::<(u64, ClientProfile)>(), size_of::<(u64, NetworkProfile)>()), (96, 32));
        assert_eq!(size_of::<(u64, SessionPages)>(), 24);
    }

    #[test]
    fn holder_of_an_ipv6_allocation_gives_few_samples_and_leaves_those_of_others() {
        let (hasher, mut limit, now) =
            (Hashing::random(), SampleLimit::default(), Timestamp::from_seconds(1_800_000_000));
        let mut accepted = |key: u64| limit.accepts(network_key(ClientKey::from_u64(key), &hasher), now);
        let one_network_each = |network: u64| 0x2001_0db8_0000_0000 + (network << 16);
        let of_holder = (0..1 << 19).filter(|network| accepted(one_network_each(*network))).count();
        assert!(of_holder <= 5 << NETWORK_BITS, "{of_holder}");
        let of_others = (1..=256_u64).filter(|other| accepted(0x2a00_0000_0000_0000 + (other << 35))).count();
        assert!(of_others > 200, "{of_others} of 256");
    }

    #[test]
    fn map_is_bounded_and_keeps_active_entries() {
        let map = BoundedMap::<TestEntry>::new(&Hashing::random());
        let max_entries = 100 * SHARDS;
        for number in 0..200_000 {
            // One entry is used in each round.
            map.update(7, max_entries, |entry| entry.0 = number);
            map.update(u64::from(number) + 1000, max_entries, |entry| entry.0 = number);
        }
        assert!(map.len() <= max_entries, "{}", map.len());
        assert_eq!(map.get(7).map(|entry| entry.0), Some(199_999));
        assert!(map.get(1000).is_none());
    }

    #[test]
    fn equal_ages_evict_a_quarter() {
        let mut shard: HashMap<u64, TestEntry, Hashing> = (0..100).map(|number| (number, TestEntry(5))).collect();
        evict_idle_quarter(&mut shard);
        assert_eq!(shard.len(), 75);
    }
}
