//! The store: responses in memory, bounded by bytes. Which stay is decided by S3-FIFO, so that a crawl of a million pages
//! does not displace what people read.
//!
//! Responses that save units come first: each class of savings has a cache of its own, with the memory that more valuable
//! ones leave, and a part at least. So no number of responses displaces one that saves sixteen times more.

use super::disk;
use super::entry::CacheEntry;
use super::key::CacheKey;
use super::saving::{CLASSES, capacities};
use super::stored_response::StoredResponse;
use crate::gateway::message::page_url::canonical_url;
use foldhash::fast::RandomState;
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tidegate_cache_disk::{DiskStats, DiskStore, Label, NewBody};
use tidegate_policy::hash::mix;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::{Timestamp, Units};

/// Most parts of the store, each with its own lock.
const MAX_SHARDS: u64 = 64;
/// Objects of the largest size for which each part has space, so that a class with the least memory has space for one.
const OBJECTS_PER_SHARD: u64 = CLASSES as u64;
/// Size of a typical object, for the initial capacity of the index.
const TYPICAL_OBJECT: u64 = 16 * 1024;
/// Steps in which the memory of a class changes, as a divisor of the whole.
const MEMORY_STEPS: u64 = 64;

/// Contents of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Number of entries.
    pub entries: u64,
    /// Bytes that they occupy.
    pub memory_bytes: u64,
    /// Bytes that they may occupy.
    pub memory_limit: u64,
    /// Number of entries that were removed to make space since the start.
    pub evictions: u64,
    /// What is on disk; `None` if that is off.
    pub disk: Option<DiskStats>,
}

/// A stored URL, with its use since it was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedUrl {
    /// URL, as far as it is part of the key.
    pub url: String,
    /// Number of requests that its responses answered.
    pub hits: u64,
    /// Units that they saved, of all quotas.
    pub saved: Units,
    /// Bytes that they occupy.
    pub bytes: u64,
}

/// Entries of one class.
type Entries = Cache<CacheKey, CacheEntry, ByBytes, RandomState, CountEvictions>;

/// Stored responses.
pub(in crate::gateway) struct CacheStore {
    /// Entries by class, the most valuable last, from the first entry of the class on.
    classes: [OnceLock<Entries>; CLASSES],
    /// Bytes that each class may occupy.
    capacities: [AtomicU64; CLASSES],
    memory: AtomicU64,
    max_object: u64,
    evictions: Arc<AtomicU64>,
    /// What is in memory, and more; `None` if it is off, or failed at the start.
    disk: Option<DiskStore>,
    seed: u64,
    salts: AtomicU64,
}

impl CacheStore {
    /// Returns a store with the contents of `disk`. `seed` differs at each start.
    pub(super) fn new(memory: u64, max_object: u64, disk: Option<DiskStore>, seed: u64) -> Self {
        Self {
            classes: Default::default(),
            capacities: Default::default(),
            memory: AtomicU64::new(memory),
            max_object,
            evictions: Default::default(),
            disk,
            seed,
            salts: AtomicU64::default(),
        }
    }

    /// Changes the memory for entries, and the size of the files, if there are any.
    pub(in crate::gateway) fn resize(&self, memory: u64, disk: Option<u64>) {
        self.memory.store(memory, Ordering::Relaxed);
        self.balance();
        if let (Some(store), Some(size)) = (&self.disk, disk) {
            store.set_size(size);
        }
    }

    /// Syncs the files soon, so that entries written before survive a power cut.
    pub(in crate::gateway) fn sync(&self) {
        self.disk.iter().for_each(DiskStore::sync);
    }

    /// Waits until all entries are written to disk, for at most `timeout`. Returns false if the time is over.
    pub(in crate::gateway) fn flush(&self, timeout: Duration) -> bool {
        self.disk.as_ref().is_none_or(|disk| disk.flush(timeout))
    }

    /// Writes what waits for the disk, and leaves the files to another process.
    pub(in crate::gateway) fn close_disk(&self, timeout: Duration) -> bool {
        self.disk.as_ref().is_none_or(|disk| disk.close(timeout))
    }

    /// Returns what is on disk.
    pub(super) fn disk(&self) -> Option<&DiskStore> {
        self.disk.as_ref()
    }

    /// Gives each class its memory.
    fn balance(&self) {
        let memory = self.memory.load(Ordering::Relaxed);
        let step = (memory / MEMORY_STEPS).max(1);
        let used = self.classes.each_ref().map(|class| class.get().map_or(0, |entries| entries.weight()));
        let capacities = capacities(memory, used.map(|used| used.next_multiple_of(step)));
        for ((class, known), capacity) in self.classes.iter().zip(&self.capacities).zip(capacities) {
            if let Some(entries) = class.get()
                && known.swap(capacity, Ordering::Relaxed) != capacity
            {
                entries.set_capacity(capacity);
            }
        }
    }

    /// Returns the entries of a class.
    fn class(&self, class: usize) -> &Entries {
        self.classes[class].get_or_init(|| {
            let memory = self.memory.load(Ordering::Relaxed);
            let shards = (memory / (OBJECTS_PER_SHARD * self.max_object.max(1))).clamp(1, MAX_SHARDS);
            let options = OptionsBuilder::new()
                .shards(shards as usize)
                .estimated_items_capacity((memory / TYPICAL_OBJECT / 2) as usize)
                .weight_capacity(memory)
                .build()
                .expect("all capacities are set");
            let lifecycle = CountEvictions(Arc::clone(&self.evictions));
            Cache::with_options(options, ByBytes, RandomState::default(), lifecycle)
        })
    }

    /// Iterates over the classes that have had entries, the most valuable first.
    fn classes(&self) -> impl Iterator<Item = &Entries> {
        self.classes.iter().rev().filter_map(OnceLock::get)
    }

    /// Returns the entry of a key, if it is in memory.
    pub(in crate::gateway) fn get(&self, key: CacheKey) -> Option<CacheEntry> {
        self.classes().find_map(|entries| entries.peek(&key))
    }

    /// Returns the entry of a compressed form, and counts its use.
    pub(super) fn get_form(&self, key: CacheKey) -> Option<CacheEntry> {
        self.classes[0].get()?.get(&key)
    }

    /// Records a request of `client` for a response, and for the entry of its variants, so that they stay rather than others.
    /// Requests of one network in a row count once.
    pub(in crate::gateway) fn record_use(
        &self,
        keys: (CacheKey, Option<CacheKey>),
        response: &StoredResponse,
        client: ClientKey,
    ) {
        if !response.usage.is_by_another(client) {
            return;
        }
        let (key, variants) = keys;
        self.count_use(key);
        variants.into_iter().for_each(|variants| self.count_use(variants));
        if let Some(disk) = &self.disk {
            response.usage.mark_once(|| {
                variants.into_iter().for_each(|variants| _ = disk.mark_used(variants.number()));
                disk.mark_used(key.number())
            });
        }
    }

    fn count_use(&self, key: CacheKey) {
        _ = self.classes().any(|entries| entries.get(&key).is_some());
    }

    fn entries(&self) -> impl Iterator<Item = (CacheKey, CacheEntry)> {
        self.classes().flat_map(|entries| entries.iter())
    }

    /// Returns true if there is an entry of the key on disk.
    pub(in crate::gateway) fn is_on_disk(&self, key: CacheKey) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.contains(key.number()))
    }

    /// Stores an entry in place of that of the key.
    pub(in crate::gateway) fn insert(&self, key: CacheKey, entry: CacheEntry) {
        let body = match &entry {
            CacheEntry::Response(response) => response.body.parts(),
            CacheEntry::Variants(_) | CacheEntry::Pass { .. } | CacheEntry::Form(_) => Some(&[][..]),
        };
        let body = body.map_or(NewBody::Unchanged, |parts| NewBody::Parts(parts.to_vec()));
        self.insert_with_body(key, entry, body);
    }

    /// Stores a response that differs from that of the key in its head alone.
    pub(in crate::gateway) fn insert_validated(&self, key: CacheKey, response: Arc<StoredResponse>) {
        match self.is_on_disk(key) {
            true => self.insert_with_body(key, CacheEntry::Response(response), NewBody::Unchanged),
            false => self.insert(key, CacheEntry::Response(response)),
        }
    }

    fn insert_with_body(&self, key: CacheKey, entry: CacheEntry, body: NewBody) {
        if let Some(disk) = &self.disk {
            match disk::record(key, &entry, body) {
                Some(record) => disk.insert(record),
                None if disk.contains(key.number()) => disk.remove(key.number()),
                None => {}
            }
        }
        let class = entry.class();
        let entries = self.class(class);
        self.others(class).for_each(|others| _ = others.remove(&key));
        entries.insert_with_lifecycle(key, entry, &mut Some(key));
        self.balance();
    }

    /// Iterates over the classes but one.
    fn others(&self, class: usize) -> impl Iterator<Item = &Entries> {
        let others = self.classes.iter().enumerate().filter(move |(other, _)| *other != class);
        others.filter_map(|(_, entries)| entries.get())
    }

    /// Adds an entry that was read from disk, unless there is a newer one. Returns the newest; others may displace it at
    /// once.
    pub(super) fn insert_loaded(&self, key: CacheKey, entry: CacheEntry) -> CacheEntry {
        let class = entry.class();
        if let Some(newest) = self.others(class).find_map(|others| others.peek(&key)) {
            return newest;
        }
        let entries = self.class(class);
        let Ok(newest) = entries.get_or_insert_with(&key, || Ok::<_, Infallible>(entry));
        self.balance();
        newest
    }

    /// Removes the entry of a key.
    pub(in crate::gateway) fn remove(&self, key: CacheKey) {
        // First from disk: an entry that is being read does not stay in memory.
        if let Some(disk) = &self.disk {
            disk.remove(key.number());
        }
        self.classes().for_each(|entries| _ = entries.remove(&key));
    }

    /// Invalidates the responses of the URL with this key, and on disk those of `group`, as the next start finds them.
    pub(super) fn invalidate(&self, url: CacheKey, group: u64, now: Timestamp) {
        // First on disk: an entry that is being read is marked afterwards.
        if let Some(disk) = &self.disk {
            disk.invalidate(url.number(), group);
        }
        if let Some(entry) = self.get(url) {
            entry.invalidate(now);
        }
    }

    /// Removes the entries whose URL in canonical spelling begins with `prefix`. Returns their number. Blocks the thread.
    pub(in crate::gateway) fn remove_prefix(&self, prefix: &str) -> u64 {
        self.remove_where(prefix, |label, prefix| canonical_url(label.url).starts_with(prefix))
    }

    /// Removes the entries of a URL in canonical spelling, whatever else is part of their keys, and however their URLs are
    /// spelled. Returns their number. Blocks the thread.
    pub(in crate::gateway) fn remove_url(&self, url: &str) -> u64 {
        self.remove_where(url, |label, url| canonical_url(label.url) == url)
    }

    /// Removes the responses with a tag. Returns their number. Blocks the thread.
    pub(in crate::gateway) fn remove_tag(&self, tag: &str) -> u64 {
        self.remove_where(tag, |label, tag| label.tags.split('\n').any(|found| found == tag))
    }

    fn remove_where(&self, text: &str, is_removed: impl Fn(Label<'_>, &str) -> bool + Send + Copy + 'static) -> u64 {
        let owned = text.to_owned();
        let on_disk = self.disk.as_ref().map(|disk| disk.remove_where(move |label| is_removed(label, &owned)));
        let in_memory = Cell::new(0);
        let is_kept = |_: &CacheKey, entry: &CacheEntry| {
            let tags = match entry {
                CacheEntry::Response(response) => response.tags().join("\n"),
                CacheEntry::Variants(_) | CacheEntry::Pass { .. } | CacheEntry::Form(_) => String::new(),
            };
            let remove = is_removed(Label { url: entry.url(), tags: &tags }, text);
            // A form is no response of its own; without its response, it is not found.
            let is_counted = remove && !matches!(entry, CacheEntry::Form(_));
            in_memory.set(in_memory.get() + u64::from(is_counted));
            !remove
        };
        self.classes().for_each(|entries| entries.retain(is_kept));
        // What is in memory is on disk, too, unless that failed.
        in_memory.get().max(on_disk.unwrap_or(0))
    }

    /// Returns a number that no other entry has.
    pub(in crate::gateway) fn next_salt(&self) -> u64 {
        mix(self.seed.wrapping_add(self.salts.fetch_add(1, Ordering::Relaxed)))
    }

    /// Returns the `count` URLs that were requested most, in descending order.
    pub(in crate::gateway) fn most_requested(&self, count: usize) -> Vec<CachedUrl> {
        let mut by_url = HashMap::<String, CachedUrl>::new();
        for (_, entry) in self.entries() {
            let CacheEntry::Response(response) = entry else { continue };
            let (hits, saved) = response.usage.get();
            if hits == 0 {
                continue;
            }
            let url = response.url.to_string();
            let total = by_url.entry(url.clone()).or_insert(CachedUrl { url, hits: 0, saved: Units::ZERO, bytes: 0 });
            total.hits += hits;
            total.saved = total.saved.saturating_add(saved);
            total.bytes += response.weight();
        }
        let mut urls: Vec<_> = by_url.into_values().collect();
        urls.sort_by(|left, right| right.hits.cmp(&left.hits).then_with(|| left.url.cmp(&right.url)));
        urls.truncate(count);
        urls
    }

    /// Returns up to `count` responses in memory that are stale at `now`, that the gateway can ask for again, and that were
    /// requested most, in descending order.
    pub(in crate::gateway) fn most_requested_stale(&self, count: usize, now: Timestamp) -> Vec<Arc<StoredResponse>> {
        let is_candidate = |response: &Arc<StoredResponse>| {
            response.selecting.is_some() && response.usage.get().0 > 0 && !response.terms().is_fresh(now)
        };
        let responses = self.entries().filter_map(|(_, entry)| match entry {
            CacheEntry::Response(response) => Some(response).filter(is_candidate),
            CacheEntry::Variants(_) | CacheEntry::Pass { .. } | CacheEntry::Form(_) => None,
        });
        let mut stale: Vec<_> = responses.map(|response| (Reverse(response.usage.get().0), response)).collect();
        stale.sort_by(|(left_hits, left), (right_hits, right)| {
            left_hits.cmp(right_hits).then_with(|| left.url.cmp(&right.url))
        });
        stale.into_iter().take(count).map(|(_, response)| response).collect()
    }

    /// Returns what the store contains.
    pub(in crate::gateway) fn stats(&self) -> CacheStats {
        CacheStats {
            entries: self.classes().map(|entries| entries.len() as u64).sum(),
            memory_bytes: self.classes().map(|entries| entries.weight()).sum(),
            memory_limit: self.memory.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            disk: self.disk.as_ref().map(DiskStore::stats),
        }
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<CacheKey, CacheEntry> for ByBytes {
    fn weight(&self, _: &CacheKey, entry: &CacheEntry) -> u64 {
        entry.weight()
    }
}

/// Counts the entries that others displace.
#[derive(Clone)]
struct CountEvictions(Arc<AtomicU64>);

impl Lifecycle<CacheKey, CacheEntry> for CountEvictions {
    /// Key that is inserted: its previous entry is replaced, not displaced.
    type RequestState = Option<CacheKey>;

    fn on_evict(&self, inserted: &mut Option<CacheKey>, key: CacheKey, _: CacheEntry) {
        if *inserted != Some(key) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::saving::Saving;
    use super::super::variants::Variants;
    use super::*;

    fn entry(url: &str) -> CacheEntry {
        CacheEntry::Pass { url: url.into(), until: Timestamp::default() }
    }

    fn saving(url: &str, saving: Saving) -> CacheEntry {
        CacheEntry::Variants(Arc::new(Variants { saving, ..Variants::new(url, 0) }))
    }

    fn unit() -> Saving {
        Saving::of(Units::from_whole(1), Units::from_whole(1000))
    }

    #[test]
    fn scan_of_many_pages_leaves_those_that_are_asked_for() {
        const POPULAR: usize = 500;
        let store = CacheStore::new(1 << 20, 64 * 1024, None, 0);
        let key = |name: &str, number: usize| CacheKey::of_url(&format!("http://example.com/{name}/{number}"));
        (0..POPULAR).for_each(|number| store.insert(key("popular", number), entry("popular")));
        for number in 0..200_000 {
            // Each popular page is asked for once while 500 other pages are.
            store.count_use(key("popular", number % POPULAR));
            store.insert(key("scan", number), entry("scan"));
        }
        let kept = (0..POPULAR).filter(|number| store.get(key("popular", *number)).is_some()).count();
        let stats = store.stats();
        assert!(kept > POPULAR * 9 / 10, "{kept} of {POPULAR} popular pages are left, {stats:?}");
        assert!(stats.memory_bytes <= stats.memory_limit && stats.evictions > 100_000, "{stats:?}");
    }

    #[test]
    fn entries_that_cost_nothing_displace_none_that_saves_units() {
        const COSTLY: usize = 2_000;
        let store = CacheStore::new(1 << 20, 64 * 1024, None, 0);
        let key = |name: &str, number: usize| CacheKey::of_url(&format!("http://example.com/{name}/{number}"));
        let of = |name: &str| (0..100_000).filter(|number| store.get(key(name, *number)).is_some()).count();
        for number in 0..100_000 {
            store.insert(key("free", number), entry("free"));
            store.count_use(key("free", number));
        }
        let alone = of("free");
        assert!(
            store.stats().memory_bytes > store.stats().memory_limit * 9 / 10,
            "they use all memory while they are alone"
        );
        (0..COSTLY).for_each(|number| store.insert(key("costly", number), saving("costly", unit())));
        assert_eq!(of("costly"), COSTLY);
        for number in 0..100_000 {
            store.insert(key("free", number), entry("free"));
            (0..3).for_each(|_| store.count_use(key("free", number)));
        }
        let stats = store.stats();
        assert_eq!(of("costly"), COSTLY, "{stats:?}");
        assert!(of("free") < alone && of("free") > 500, "{} of {alone}", of("free"));
        assert!(stats.memory_bytes <= stats.memory_limit, "{stats:?}");
        // Beyond their part of the memory, those that save units displace each other.
        (0..100_000).for_each(|number| store.insert(key("costly", number), saving("costly", unit())));
        let stats = store.stats();
        assert!(of("free") > 300 && of("costly") > COSTLY, "{} {}", of("free"), of("costly"));
        assert!(stats.memory_bytes <= stats.memory_limit, "{stats:?}");
    }

    #[test]
    fn entries_of_little_cost_displace_none_that_saves_sixteen_times_more() {
        const VALUABLE: usize = 2_000;
        let store = CacheStore::new(1 << 20, 64 * 1024, None, 0);
        let key = |name: &str, number: usize| CacheKey::of_url(&format!("http://example.com/{name}/{number}"));
        let of = |name: &str| (0..50_000).filter(|number| store.get(key(name, *number)).is_some()).count();
        let cost = |milli| Saving::of(Units::from_milli(milli), Units::from_whole(1000));
        (0..VALUABLE).for_each(|number| store.insert(key("valuable", number), saving("valuable", unit())));
        for milli in [1, 2, 4, 8, 16, 32, 1000 / 16] {
            for number in 0..50_000 {
                store.insert(key("cheap", number), saving("cheap", cost(milli)));
                (0..3).for_each(|_| store.count_use(key("cheap", number)));
            }
            assert_eq!(of("valuable"), VALUABLE, "beside pages of {milli} thousandths");
            assert!(of("cheap") > 300, "{} of {milli} thousandths", of("cheap"));
        }
        let stats = store.stats();
        assert!(stats.memory_bytes <= stats.memory_limit, "{stats:?}");
    }

    #[test]
    fn object_of_the_largest_size_has_space_beside_full_classes() {
        const MAX_OBJECT: u64 = 64 * 1024;
        let store = CacheStore::new(1 << 20, MAX_OBJECT, None, 0);
        let key = |name: &str, number: usize| CacheKey::of_url(&format!("http://example.com/{name}/{number}"));
        (0..20_000).for_each(|number| store.insert(key("costly", number), saving("costly", unit())));
        let large = entry(&"x".repeat(MAX_OBJECT as usize - 1024));
        store.insert(key("large", 0), large);
        assert!(store.get(key("large", 0)).is_some(), "{:?}", store.stats());
    }

    #[test]
    fn entry_has_one_place_whatever_its_page_costs() {
        let store = CacheStore::new(1 << 20, 64 * 1024, None, 0);
        let key = CacheKey::of_url("http://example.com/");
        for of_page in [Saving::NOTHING, unit(), Saving::NOTHING] {
            store.insert(key, saving("http://example.com/", of_page));
            assert_eq!((store.stats().entries, store.get(key).is_some()), (1, true));
        }
        store.insert(key, saving("http://example.com/", unit()));
        store.remove(key);
        assert_eq!((store.stats().entries, store.get(key).is_none()), (0, true));
    }

    #[test]
    fn newer_version_of_an_entry_is_no_eviction() {
        let store = CacheStore::new(1 << 20, 64 * 1024, None, 0);
        let key = CacheKey::of_url("http://example.com/");
        (0..100).for_each(|_| store.insert(key, entry("http://example.com/")));
        store.remove(key);
        assert_eq!((store.stats().entries, store.stats().evictions), (0, 0));
    }

    #[test]
    fn entries_are_removed_by_url_and_prefix() {
        let store = CacheStore::new(1 << 20, 64 * 1024, None, 0);
        for url in ["http://a/1", "http://a/11", "http://b/1"] {
            store.insert(CacheKey::of_url(url), entry(url));
        }
        assert_eq!((store.remove_url("http://a/1"), store.remove_url("http://a/1")), (1, 0));
        assert_eq!((store.remove_prefix("http://a/"), store.stats().entries), (1, 1));
    }
}
