//! The way of an entry from disk to memory.

use super::ResponseCache;
use super::disk;
use super::entry::CacheEntry;
use super::fetch_lock::{FetchEnd, FetchLocks, FetchRole};
use super::key::CacheKey;
use super::store::CacheStore;
use std::io;
use std::sync::Arc;
use tidegate_cache_disk::ReadMode;
use tidegate_policy::Timestamp;
use tidegate_policy::identity::ClientKey;
use tokio::task::spawn_blocking;

/// All clients wait alike for a read.
const ANY_CLIENT: ClientKey = ClientKey::from_u64(0);

/// A read is not taken over while it is in progress.
const NO_TIME: Timestamp = Timestamp(0);

/// Returns the entry of a key from disk, and adds it to those in memory. Requests for the same one wait for one read.
pub(in crate::gateway) async fn load(cache: &Arc<ResponseCache>, key: CacheKey) -> Option<CacheEntry> {
    // To read what the page cache has takes less time than to hand the read to another thread.
    if let Ok(entry) = cache.store.load_from_disk(key, ReadMode::PageCache, cache.clock.now()) {
        return entry;
    }
    let loads: &FetchLocks = &cache.loads;
    loop {
        let guard = match loads.acquire(key, ANY_CLIENT, NO_TIME) {
            FetchRole::Fetch(guard) => guard,
            FetchRole::Wait(waiter) => match waiter.wait(|| NO_TIME).await {
                Ok(_) => match cache.store.get(key) {
                    Some(entry) => return Some(entry),
                    // Others displaced it already.
                    None => continue,
                },
                Err(guard) => guard,
            },
        };
        let cache = Arc::clone(cache);
        // The read goes on if the client leaves: others may wait.
        let work = spawn_blocking(move || {
            let entry = cache.store.load_from_disk(key, ReadMode::Blocking, cache.clock.now());
            guard.end(FetchEnd::Stored);
            entry.unwrap_or(None)
        });
        if let Ok(entry) = work.await {
            return entry;
        }
    }
}

impl CacheStore {
    /// Returns the entry of a key from disk, and adds it to those in memory; that in memory, if there is one. Fails only if
    /// the read would block.
    fn load_from_disk(&self, key: CacheKey, mode: ReadMode, now: Timestamp) -> io::Result<Option<CacheEntry>> {
        let Some(disk) = self.disk() else { return Ok(None) };
        let Some(record) = disk.read(key.number(), mode)? else { return Ok(None) };
        match disk::entry(record, self.next_salt(), mode) {
            Ok(entry) => {
                let entry = self.insert_loaded(key, entry);
                // Removed meanwhile: first from disk, then from memory.
                if !disk.contains(key.number()) {
                    self.remove(key);
                    return Ok(None);
                }
                if disk.is_invalidated(key.number()) {
                    entry.invalidate(now);
                }
                Ok(Some(entry))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            // Of another version; a damaged one is removed already.
            Err(_) => {
                disk.remove(key.number());
                Ok(None)
            }
        }
    }
}
