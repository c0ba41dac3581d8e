//! The store: responses in memory, bounded by bytes. Which stay is decided by S3-FIFO, so that a crawl of a million pages
//! does not displace what people read.

use super::key::CacheKey;
use super::stored_response::StoredResponse;
use super::variants::Variants;
use foldhash::fast::RandomState;
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_policy::{Timestamp, Units};

/// Most parts of the store, each with its own lock.
const MAX_SHARDS: u64 = 64;
/// Objects of the largest size for which each part has space.
const OBJECTS_PER_SHARD: u64 = 4;
/// Size of a typical object, for the initial capacity of the index.
const TYPICAL_OBJECT: u64 = 16 * 1024;
/// Bytes of an entry without a response.
const SMALL_ENTRY: u64 = 200;

/// What the store has for a key.
#[derive(Clone, Debug)]
pub(in crate::gateway) enum CacheEntry {
    Response(Arc<StoredResponse>),
    /// The URL has several responses.
    Variants(Arc<Variants>),
    /// Responses of the URL were not stored: requests do not wait for each other before this time.
    Pass {
        url: Arc<str>,
        until: Timestamp,
    },
}

/// Contents of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Number of entries.
    pub entries: u64,
    /// Bytes that they occupy.
    pub memory_bytes: u64,
    /// Bytes that they may occupy.
    pub memory_limit: u64,
    /// Number of entries that were displaced since the start.
    pub evictions: u64,
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

/// Stored responses.
pub(in crate::gateway) struct CacheStore {
    entries: Cache<CacheKey, CacheEntry, ByBytes, RandomState, CountEvictions>,
    evictions: Arc<AtomicU64>,
    salts: AtomicU64,
}

impl CacheStore {
    pub(super) fn new(memory: u64, max_object: u64) -> Self {
        let evictions = Arc::<AtomicU64>::default();
        let shards = (memory / (OBJECTS_PER_SHARD * max_object.max(1))).clamp(1, MAX_SHARDS);
        let options = OptionsBuilder::new()
            .shards(shards as usize)
            .estimated_items_capacity((memory / TYPICAL_OBJECT) as usize)
            .weight_capacity(memory)
            .build()
            .expect("all capacities are set");
        let count = CountEvictions(Arc::clone(&evictions));
        let entries = Cache::with_options(options, ByBytes, RandomState::default(), count);
        Self { entries, evictions, salts: AtomicU64::default() }
    }

    /// Changes the memory for entries.
    pub(in crate::gateway) fn set_memory(&self, memory: u64) {
        self.entries.set_capacity(memory);
    }

    /// Returns the entry of a key.
    pub(in crate::gateway) fn get(&self, key: CacheKey) -> Option<CacheEntry> {
        self.entries.get(&key)
    }

    /// Stores an entry in place of that of the key.
    pub(in crate::gateway) fn insert(&self, key: CacheKey, entry: CacheEntry) {
        self.entries.insert(key, entry);
    }

    /// Removes the entry of a key. Returns true if there was one.
    pub(in crate::gateway) fn remove(&self, key: CacheKey) -> bool {
        self.entries.remove(&key).is_some()
    }

    /// Removes the entries whose URL begins with `prefix`. Returns their number.
    pub(in crate::gateway) fn remove_prefix(&self, prefix: &str) -> u64 {
        self.remove_where(|entry| entry.url().starts_with(prefix))
    }

    /// Removes the entries of a URL, whatever else is part of their keys. Returns their number.
    pub(in crate::gateway) fn remove_url(&self, url: &str) -> u64 {
        self.remove_where(|entry| entry.url() == url)
    }

    /// Removes the responses with a tag. Returns their number.
    pub(in crate::gateway) fn remove_tag(&self, tag: &str) -> u64 {
        self.remove_where(|entry| matches!(entry, CacheEntry::Response(response) if response.has_tag(tag)))
    }

    fn remove_where(&self, is_removed: impl Fn(&CacheEntry) -> bool) -> u64 {
        let removed = Cell::new(0);
        self.entries.retain(|_, entry| {
            let remove = is_removed(entry);
            removed.set(removed.get() + u64::from(remove));
            !remove
        });
        removed.get()
    }

    /// Returns a number that no other entry of this process has.
    pub(in crate::gateway) fn next_salt(&self) -> u64 {
        self.salts.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the `count` URLs that were requested most, in descending order.
    pub(in crate::gateway) fn most_requested(&self, count: usize) -> Vec<CachedUrl> {
        let mut by_url = HashMap::<String, CachedUrl>::new();
        for (_, entry) in self.entries.iter() {
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

    /// Returns what the store contains.
    pub(in crate::gateway) fn stats(&self) -> CacheStats {
        CacheStats {
            entries: self.entries.len() as u64,
            memory_bytes: self.entries.weight(),
            memory_limit: self.entries.capacity(),
            evictions: self.evictions.load(Ordering::Relaxed),
        }
    }
}

impl CacheEntry {
    fn url(&self) -> &str {
        match self {
            Self::Response(response) => &response.url,
            Self::Variants(variants) => &variants.url,
            Self::Pass { url, .. } => url,
        }
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<CacheKey, CacheEntry> for ByBytes {
    fn weight(&self, _: &CacheKey, entry: &CacheEntry) -> u64 {
        match entry {
            CacheEntry::Response(response) => response.weight(),
            CacheEntry::Variants(_) | CacheEntry::Pass { .. } => SMALL_ENTRY + entry.url().len() as u64,
        }
    }
}

/// Counts the entries that others displace.
#[derive(Clone)]
struct CountEvictions(Arc<AtomicU64>);

impl Lifecycle<CacheKey, CacheEntry> for CountEvictions {
    type RequestState = u64;

    fn begin_request(&self) -> u64 {
        0
    }

    fn on_evict(&self, evicted: &mut u64, _: CacheKey, _: CacheEntry) {
        *evicted += 1;
    }

    fn end_request(&self, evicted: u64) {
        if evicted > 0 {
            self.0.fetch_add(evicted, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(url: &str) -> CacheEntry {
        CacheEntry::Pass { url: url.into(), until: Timestamp::default() }
    }

    #[test]
    fn scan_of_many_pages_leaves_those_that_are_asked_for() {
        const POPULAR: usize = 500;
        let store = CacheStore::new(1 << 20, 64 * 1024);
        let key = |name: &str, number: usize| CacheKey::of_url(&format!("http://example.com/{name}/{number}"));
        (0..POPULAR).for_each(|number| store.insert(key("popular", number), entry("popular")));
        for number in 0..200_000 {
            // Each popular page is asked for once while 500 other pages are.
            store.get(key("popular", number % POPULAR));
            store.insert(key("scan", number), entry("scan"));
        }
        let kept = (0..POPULAR).filter(|number| store.get(key("popular", *number)).is_some()).count();
        let stats = store.stats();
        assert!(kept > POPULAR * 9 / 10, "{kept} of {POPULAR} popular pages are left, {stats:?}");
        assert!(stats.memory_bytes <= stats.memory_limit && stats.evictions > 100_000, "{stats:?}");
    }

    #[test]
    fn entries_are_removed_by_url_and_prefix() {
        let store = CacheStore::new(1 << 20, 64 * 1024);
        for url in ["http://a/1", "http://a/11", "http://b/1"] {
            store.insert(CacheKey::of_url(url), entry(url));
        }
        assert_eq!((store.remove_url("http://a/1"), store.remove_url("http://a/1")), (1, 0));
        assert_eq!((store.remove_prefix("http://a/"), store.stats().entries), (1, 1));
    }
}
