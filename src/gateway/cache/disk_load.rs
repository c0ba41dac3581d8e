//! The way of an entry from disk to memory.

use super::disk;
use super::fetch_lock::{FetchEnd, FetchLocks, FetchRole};
use super::key::CacheKey;
use super::store::CacheStore;
use crate::gateway::shared::Shared;
use std::io;
use std::sync::Arc;
use tidegate_cache_disk::ReadMode;
use tokio::task::spawn_blocking;

/// Moves the entry of a key from disk to memory. Requests for the same one wait for one read.
pub(in crate::gateway) async fn load(shared: &Arc<Shared>, key: CacheKey) {
    // To read what the page cache has takes less time than to hand the read to another thread.
    if shared.cache.store.load_from_disk(key, ReadMode::PageCache).is_ok() {
        return;
    }
    let loads: &FetchLocks = &shared.cache.loads;
    loop {
        let guard = match loads.acquire(key) {
            FetchRole::Fetch(guard) => guard,
            FetchRole::Wait(waiter) => match waiter.wait().await {
                Ok(_) => return,
                Err(guard) => guard,
            },
        };
        let shared = Arc::clone(shared);
        // The read goes on if the client leaves: others may wait.
        let work = spawn_blocking(move || {
            // A blocking read never fails.
            let _ = shared.cache.store.load_from_disk(key, ReadMode::Blocking);
            guard.end(FetchEnd::Stored);
        });
        if work.await.is_ok() {
            return;
        }
    }
}

impl CacheStore {
    /// Moves an entry from disk to memory, unless memory has one. Fails only if that would block.
    fn load_from_disk(&self, key: CacheKey, mode: ReadMode) -> io::Result<()> {
        let Some(disk) = self.disk() else { return Ok(()) };
        let Some(record) = disk.read(key.number(), mode)? else { return Ok(()) };
        match disk::entry(record, mode) {
            Ok(entry) => {
                self.insert_loaded(key, entry);
                // Removed meanwhile: first from disk, then from memory.
                if !disk.contains(key.number()) {
                    self.remove(key);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
            // Of another version; a damaged one is removed already.
            Err(_) => disk.remove(key.number()),
        }
        Ok(())
    }
}
