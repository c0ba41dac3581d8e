//! One fetch for all requests for the same response. The others wait for its end; if the request that fetches leaves or
//! fails, one of them goes on.

use super::key::CacheKey;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use tokio::sync::Notify;

/// Fetches in progress. Clones share them.
#[derive(Clone, Default)]
pub(in crate::gateway) struct FetchLocks(Arc<Mutex<HashMap<CacheKey, Arc<Fetch>>>>);

/// Role of a request for a response that is not stored.
pub(in crate::gateway) enum FetchRole {
    /// Fetch it.
    Fetch(FetchGuard),
    /// Wait for the fetch of another request.
    Wait(FetchWaiter),
}

/// End of a fetch, for those who wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum FetchEnd {
    /// The response is stored.
    Stored,
    /// The response is not for others: each request fetches its own.
    Unshared,
}

struct Fetch {
    state: Mutex<FetchState>,
    ended: Notify,
}

struct FetchState {
    waiters: usize,
    progress: FetchProgress,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FetchProgress {
    Running,
    /// The request that fetched left or failed; the next one takes over.
    Orphaned,
    Ended(FetchEnd),
}

/// Guard of a fetch. Dropped without [`Self::end`], it hands the fetch over.
pub(in crate::gateway) struct FetchGuard {
    locks: FetchLocks,
    key: CacheKey,
    fetch: Arc<Fetch>,
    is_ended: bool,
}

/// A request that waits for the fetch of another.
pub(in crate::gateway) struct FetchWaiter {
    locks: FetchLocks,
    key: CacheKey,
    fetch: Arc<Fetch>,
}

impl FetchLocks {
    /// Returns the role of a request for the response with `key`.
    pub(in crate::gateway) fn acquire(&self, key: CacheKey) -> FetchRole {
        let mut fetches = self.0.lock();
        let fetch = match fetches.entry(key) {
            Entry::Vacant(vacant) => {
                let state = FetchState { waiters: 0, progress: FetchProgress::Running };
                let fetch = Arc::new(Fetch { state: Mutex::new(state), ended: Notify::new() });
                return FetchRole::Fetch(self.guard(key, Arc::clone(vacant.insert(fetch))));
            }
            Entry::Occupied(occupied) => Arc::clone(occupied.get()),
        };
        let mut state = fetch.state.lock();
        if state.progress == FetchProgress::Orphaned {
            state.progress = FetchProgress::Running;
            drop(state);
            return FetchRole::Fetch(self.guard(key, fetch));
        }
        state.waiters += 1;
        drop(state);
        FetchRole::Wait(FetchWaiter { locks: self.clone(), key, fetch })
    }

    fn guard(&self, key: CacheKey, fetch: Arc<Fetch>) -> FetchGuard {
        FetchGuard { locks: self.clone(), key, fetch, is_ended: false }
    }
}

impl FetchGuard {
    /// Ends the fetch for all who wait.
    pub(in crate::gateway) fn end(mut self, end: FetchEnd) {
        self.is_ended = true;
        self.locks.0.lock().remove(&self.key);
        self.fetch.state.lock().progress = FetchProgress::Ended(end);
        self.fetch.ended.notify_waiters();
    }
}

impl Drop for FetchGuard {
    fn drop(&mut self) {
        if self.is_ended {
            return;
        }
        let mut fetches = self.locks.0.lock();
        let mut state = self.fetch.state.lock();
        if state.waiters == 0 {
            fetches.remove(&self.key);
        } else {
            state.progress = FetchProgress::Orphaned;
            self.fetch.ended.notify_one();
        }
    }
}

impl FetchWaiter {
    /// Waits for the end of the fetch. Returns a guard if this request takes the fetch over.
    pub(in crate::gateway) async fn wait(&self) -> Result<FetchEnd, FetchGuard> {
        loop {
            let notified = self.fetch.ended.notified();
            tokio::pin!(notified);
            // Enabled before the state is read, so that no end is missed.
            notified.as_mut().enable();
            {
                let mut state = self.fetch.state.lock();
                match state.progress {
                    FetchProgress::Ended(end) => return Ok(end),
                    FetchProgress::Orphaned => {
                        state.progress = FetchProgress::Running;
                        drop(state);
                        return Err(self.locks.guard(self.key, Arc::clone(&self.fetch)));
                    }
                    FetchProgress::Running => {}
                }
            }
            notified.await;
        }
    }
}

impl Drop for FetchWaiter {
    fn drop(&mut self) {
        let mut fetches = self.locks.0.lock();
        let mut state = self.fetch.state.lock();
        state.waiters -= 1;
        if state.progress == FetchProgress::Orphaned {
            match state.waiters {
                0 => drop(fetches.remove(&self.key)),
                // The notification may have been this one's.
                _ => self.fetch.ended.notify_one(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(locks: &FetchLocks) -> FetchWaiter {
        match locks.acquire(CacheKey::of_url("a")) {
            FetchRole::Wait(waiter) => waiter,
            FetchRole::Fetch(_) => panic!("a fetch is in progress"),
        }
    }

    fn guard(locks: &FetchLocks) -> FetchGuard {
        match locks.acquire(CacheKey::of_url("a")) {
            FetchRole::Fetch(guard) => guard,
            FetchRole::Wait(_) => panic!("no fetch is in progress"),
        }
    }

    #[tokio::test]
    async fn all_who_wait_learn_the_end() {
        let locks = FetchLocks::default();
        let guard = guard(&locks);
        let (first, second) = (waiter(&locks), waiter(&locks));
        assert!(matches!(locks.acquire(CacheKey::of_url("b")), FetchRole::Fetch(_)));
        let ended = async { guard.end(FetchEnd::Stored) };
        let (first_end, second_end, ()) = tokio::join!(first.wait(), second.wait(), ended);
        assert_eq!((first_end.ok(), second_end.ok()), (Some(FetchEnd::Stored), Some(FetchEnd::Stored)));
        assert!(first.wait().await.is_ok(), "the end is known afterwards");
        drop((first, second));
        assert!(locks.0.lock().is_empty());
    }

    #[tokio::test]
    async fn fetch_goes_on_with_the_next_request_if_one_leaves() {
        let locks = FetchLocks::default();
        let first = guard(&locks);
        let (second, third) = (waiter(&locks), waiter(&locks));
        drop(first);
        drop(second);
        let Err(taken_over) = third.wait().await else { panic!("the fetch has no end yet") };
        let fourth = waiter(&locks);
        drop(taken_over);
        let fifth = guard(&locks);
        fifth.end(FetchEnd::Unshared);
        assert_eq!(fourth.wait().await.ok(), Some(FetchEnd::Unshared));
        drop((third, fourth));
        assert!(locks.0.lock().is_empty());
    }

    #[tokio::test]
    async fn fetch_without_anybody_is_forgotten() {
        let locks = FetchLocks::default();
        let first = guard(&locks);
        let second = waiter(&locks);
        drop(first);
        drop(second);
        assert!(locks.0.lock().is_empty());
        drop(guard(&locks));
        assert!(locks.0.lock().is_empty());
    }
}
