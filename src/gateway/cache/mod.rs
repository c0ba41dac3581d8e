//! Cache of responses: what is stored, under which keys, and which request fetches what is missing.
//!
//! The rules are those of `tidegate_http_cache`. [`key`] names a response; [`store`] holds it in memory, [`disk`] in
//! files, and [`compressed_form`] makes forms of it for clients that accept them; [`fetch_lock`] lets one request fetch for
//! all that wait; [`fetch`] says what it is sent; [`recorder`] collects the body while the client reads it.
//! `handler::cache` uses them in the life of a request.

mod compressed_form;
mod disk;
mod disk_load;
mod disk_reader;
mod entry;
mod fetch;
mod fetch_lock;
mod fetch_rules;
mod field_lines;
mod fill;
mod invalidations;
mod key;
mod placement;
pub(in crate::gateway) mod refresh;

mod purge;
mod recorder;
mod saving;
mod store;
mod stored_response;
mod variants;
mod write_rate;

pub(super) use compressed_form::compressed_form;
pub(super) use disk_load::load;
pub(super) use entry::CacheEntry;
pub(super) use fetch::{CacheFetch, RequestCredentials};
pub(super) use fetch_lock::{FetchEnd, FetchGuard, FetchRole, FetchWaiter};
pub(super) use fetch_rules::FetchRules;
pub(super) use field_lines::MessageFields;
pub use fill::FillOutcome;
pub(super) use fill::{FillQueue, FillRequest};
pub(super) use key::{CacheKey, UrlKey, keyed_url};
pub use purge::CachePurge;
pub(super) use recorder::{Recorder, RecordingBudget};
pub(super) use saving::Saving;
pub use store::{CacheStats, CachedUrl};
pub(super) use stored_response::{CopyBody, ResponseHead, StoredResponse};
pub(super) use variants::Variants;

use fetch_lock::FetchLocks;
use invalidations::Invalidations;
pub use invalidations::WrittenUrl;
use parking_lot::Mutex;
use std::sync::atomic::AtomicBool;
use store::CacheStore;
use tidegate_cache_disk::Groups;
use tidegate_config::Settings;
use tidegate_engine::clock::Clock;
use tidegate_policy::Timestamp;
use tidegate_policy::cache::crowd::CrowdDetector;
use tidegate_policy::identity::ClientKey;
use write_rate::WriteRate;

/// Stored responses of all sites, and the fetches in progress.
pub(super) struct ResponseCache {
    clock: Clock,
    pub(super) store: CacheStore,
    pub(super) fetches: FetchLocks,
    /// Reads from disk in progress.
    pub(super) loads: FetchLocks,
    /// Held while a response is given its place among those of its URL.
    placing: Mutex<()>,
    pub(super) recording: RecordingBudget,
    pub(super) invalidations: Invalidations,
    /// Groups of the URLs that were fetched since the start: writes to others invalidate nothing.
    fetched: Groups,
    write_rate: WriteRate,
    crowds: Mutex<CrowdDetector>,
    /// Requests of the gateway itself.
    pub(super) fills: FillQueue,
    /// True while a thread compresses a stored response.
    pub(super) is_making_form: AtomicBool,
}

impl ResponseCache {
    /// Returns a cache of the size that the settings give it, with what is on disk. `seed` differs at each start.
    pub(super) fn of(settings: &Settings, clock: Clock, seed: u64) -> Self {
        let max_object = settings.rules.cache.as_ref().map_or(0, |rules| rules.max_object);
        let disk = settings.cache.and_then(|cache| disk::open(&settings.state_dir, cache.disk?));
        Self {
            clock,
            store: CacheStore::new(memory_of(settings), max_object, disk, seed),
            fetches: FetchLocks::default(),
            loads: FetchLocks::default(),
            placing: Mutex::default(),
            recording: RecordingBudget::new(memory_of(settings)),
            invalidations: Invalidations::default(),
            fetched: Groups::default(),
            write_rate: WriteRate::new(),
            crowds: Mutex::default(),
            fills: FillQueue::new(),
            is_making_form: AtomicBool::default(),
        }
    }

    /// Returns true if a crowd requests the URL at `now`. Records before that `person` requests it, if it costs units.
    pub(super) fn is_crowded(&self, url: &UrlKey, person: Option<ClientKey>, now: Timestamp) -> bool {
        let page = url.key.number() as u64;
        let mut crowds = self.crowds.lock();
        if let Some(person) = person {
            crowds.record(page, person, now);
        }
        crowds.is_crowded(page, now)
    }

    /// Calls `insert`, which stores a response of `url` and returns its key, unless a write or an administrator has removed
    /// it since it was requested. Returns false then: the next request fetches the page as it is now.
    fn insert_unless_removed(
        &self,
        url: CacheKey,
        requested_at: Timestamp,
        insert: impl FnOnce(&CacheStore) -> Option<CacheKey>,
    ) -> bool {
        let is_removed = || self.invalidations.forbids_storage(url, requested_at);
        if is_removed() {
            return false;
        }
        let Some(key) = insert(&self.store) else { return false };
        // A removal that came after the first test may have found nothing yet.
        if is_removed() {
            self.store.remove(key);
            return false;
        }
        true
    }

    /// Records that the page may be stored.
    pub(super) fn record_fetch(&self, url: &UrlKey) {
        self.fetched.insert(url.plain().group());
    }

    /// Invalidates the responses of a URL that `client` has written to; `spelled` is the key of the URL as it was spelled.
    /// A client that does so more often than others can pay for is ignored.
    pub(super) fn invalidate(&self, url: CacheKey, spelled: CacheKey, client: ClientKey, now: Timestamp) {
        let is_on_disk = self.store.disk().is_some_and(|disk| disk.may_contain_group(url.group()));
        if !is_on_disk && !self.fetched.may_contain(url.group()) {
            return;
        }
        let is_within_rate = self.write_rate.take(client, now);
        self.invalidations.count(is_within_rate);
        if is_within_rate {
            self.record_write(url, now);
            if spelled != url {
                self.store.invalidate(spelled, url.group(), now);
            }
        }
    }

    /// Invalidates the responses of a URL.
    pub(super) fn record_write(&self, url: CacheKey, now: Timestamp) {
        // First for those that are being received.
        self.invalidations.record(url, now);
        self.store.invalidate(url, url.group(), now);
    }

    /// Changes the size of the cache to that of other settings.
    pub(super) fn resize(&self, settings: &Settings) {
        self.store.resize(memory_of(settings), settings.cache.and_then(|cache| cache.disk));
        self.recording.resize(memory_of(settings));
    }
}

fn memory_of(settings: &Settings) -> u64 {
    settings.cache.map_or(0, |cache| cache.memory)
}
