//! The way of an entry from disk to memory.

use super::disk;
use super::fetch_lock::{FetchEnd, FetchLocks, FetchRole};
use super::key::CacheKey;
use super::store::CacheStore;
use crate::gateway::shared::Shared;
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// Moves the entry of a key from disk to memory. Requests for the same one wait for one read.
pub(in crate::gateway) async fn load(shared: &Arc<Shared>, key: CacheKey) {
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
            shared.cache.store.load_from_disk(key);
            guard.end(FetchEnd::Stored);
        });
        if work.await.is_ok() {
            return;
        }
    }
}

impl CacheStore {
    /// Moves an entry from disk to memory, unless memory has one. Blocks the thread.
    fn load_from_disk(&self, key: CacheKey) {
        let Some(disk) = self.disk() else { return };
        let Some(record) = disk.read(key.number()) else { return };
        match disk::entry(record) {
            Ok(entry) => {
                self.insert_loaded(key, entry);
                // Removed meanwhile: first from disk, then from memory.
                if !disk.contains(key.number()) {
                    self.remove(key);
                }
            }
            // Of another version; a damaged one is removed already.
            Err(_) => disk.remove(key.number()),
        }
    }
}
