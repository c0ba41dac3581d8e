//! Cache of responses: what is stored, under which keys, and which request fetches what is missing.
//!
//! The rules are those of `tidegate_policy::cache`. [`key`] names a response; [`store`] holds it in memory, [`disk`] in files; [`fetch_lock`] lets one
//! request fetch for all that wait; [`fetch`] says what it is sent; [`recorder`] collects the body while the client reads it. `handler::cache` uses them
//! in the life of a request.

mod disk;
mod disk_reader;
mod fetch;
mod fetch_lock;
mod fetch_rules;
mod field_lines;
mod invalidations;
mod key;
mod nominated_fields;
mod purge;
mod recorder;
mod store;
mod stored_response;
mod variants;

pub(super) use disk::load;
pub(super) use fetch::CacheFetch;
pub(super) use fetch_lock::{FetchEnd, FetchRole};
pub(super) use fetch_rules::FetchRules;
pub(super) use field_lines::MessageFields;
pub(super) use key::{CacheKey, UrlKey};
pub use purge::CachePurge;
pub(super) use recorder::{Recorder, RecordingBudget};
pub(super) use store::CacheEntry;
pub use store::{CacheStats, CachedUrl};
pub(super) use stored_response::{CopyBody, ResponseHead, StoredResponse};
pub(super) use variants::Variants;

use fetch_lock::FetchLocks;
use invalidations::Invalidations;
use nominated_fields::NominatedFields;
use store::CacheStore;
use tidegate_config::Settings;

/// Stored responses of all sites, and the fetches in progress.
pub(super) struct ResponseCache {
    pub(super) store: CacheStore,
    pub(super) fetches: FetchLocks,
    /// Reads from disk in progress.
    pub(super) loads: FetchLocks,
    pub(super) nominated: NominatedFields,
    pub(super) recording: RecordingBudget,
    pub(super) invalidations: Invalidations,
}

impl ResponseCache {
    /// Returns a cache of the size that the settings give it, with what is on disk. `seed` differs at each start.
    pub(super) fn of(settings: &Settings, seed: u64) -> Self {
        let max_object = settings.rules.cache.as_ref().map_or(0, |rules| rules.max_object);
        let disk = settings.cache.and_then(|cache| disk::open(&settings.state_dir, cache.disk?));
        Self {
            store: CacheStore::new(memory_of(settings), max_object, disk, seed),
            fetches: FetchLocks::default(),
            loads: FetchLocks::default(),
            nominated: NominatedFields::default(),
            recording: RecordingBudget::new(memory_of(settings)),
            invalidations: Invalidations::default(),
        }
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
