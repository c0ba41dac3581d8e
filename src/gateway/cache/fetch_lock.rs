//! One fetch for all requests for the same response. The others wait for its end; if the request that fetches leaves or
//! fails, one of them goes on, of another client if there is one: no client holds a response back with many requests.

use super::key::CacheKey;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use tidegate_policy::identity::ClientKey;
use tokio::sync::Notify;
use tokio::task::yield_now;

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
    /// Number of waiting requests by client.
    waiting: HashMap<ClientKey, usize>,
    /// Client whose request fetches, or did so last.
    fetching: ClientKey,
    progress: FetchProgress,
}

impl FetchState {
    /// Takes an orphaned fetch over. Returns false if it is in progress, or a request of another client goes first.
    fn take_over(&mut self, client: ClientKey) -> bool {
        let is_next = client != self.fetching || self.waiting.keys().all(|waiting| *waiting == client);
        let takes_over = self.progress == FetchProgress::Orphaned && is_next;
        if takes_over {
            (self.progress, self.fetching) = (FetchProgress::Running, client);
        }
        takes_over
    }
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
    client: ClientKey,
    fetch: Arc<Fetch>,
}

impl FetchLocks {
    /// Returns the role of a request of `client` for the response with `key`.
    pub(in crate::gateway) fn acquire(&self, key: CacheKey, client: ClientKey) -> FetchRole {
        let mut fetches = self.0.lock();
        let fetch = match fetches.entry(key) {
            Entry::Vacant(vacant) => {
                let state = FetchState { waiting: HashMap::new(), fetching: client, progress: FetchProgress::Running };
                let fetch = Arc::new(Fetch { state: Mutex::new(state), ended: Notify::new() });
                return FetchRole::Fetch(self.guard(key, Arc::clone(vacant.insert(fetch))));
            }
            Entry::Occupied(occupied) => Arc::clone(occupied.get()),
        };
        let mut state = fetch.state.lock();
        if state.take_over(client) {
            drop(state);
            return FetchRole::Fetch(self.guard(key, fetch));
        }
        *state.waiting.entry(client).or_default() += 1;
        drop(state);
        FetchRole::Wait(FetchWaiter { locks: self.clone(), key, client, fetch })
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
        if state.waiting.is_empty() {
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
            let is_other_next = {
                let mut state = self.fetch.state.lock();
                if let FetchProgress::Ended(end) = state.progress {
                    return Ok(end);
                }
                if state.take_over(self.client) {
                    drop(state);
                    return Err(self.locks.guard(self.key, Arc::clone(&self.fetch)));
                }
                state.progress == FetchProgress::Orphaned
            };
            if is_other_next {
                self.fetch.ended.notify_one();
                // It may be notified already, and then this one is now.
                yield_now().await;
            }
            notified.await;
        }
    }
}

impl Drop for FetchWaiter {
    fn drop(&mut self) {
        let mut fetches = self.locks.0.lock();
        let mut state = self.fetch.state.lock();
        if let Entry::Occupied(mut own) = state.waiting.entry(self.client) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
        if state.progress == FetchProgress::Orphaned {
            match state.waiting.is_empty() {
                true => drop(fetches.remove(&self.key)),
                // The notification may have been this one's.
                false => self.fetch.ended.notify_one(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter_of(locks: &FetchLocks, client: u64) -> FetchWaiter {
        match locks.acquire(CacheKey::of_url("a"), ClientKey::from_u64(client)) {
            FetchRole::Wait(waiter) => waiter,
            FetchRole::Fetch(_) => panic!("a fetch is in progress"),
        }
    }

    fn waiter(locks: &FetchLocks) -> FetchWaiter {
        waiter_of(locks, 1)
    }

    fn guard(locks: &FetchLocks) -> FetchGuard {
        match locks.acquire(CacheKey::of_url("a"), ClientKey::from_u64(1)) {
            FetchRole::Fetch(guard) => guard,
            FetchRole::Wait(_) => panic!("no fetch is in progress"),
        }
    }

    #[tokio::test]
    async fn all_who_wait_learn_the_end() {
        let locks = FetchLocks::default();
        let guard = guard(&locks);
        let (first, second) = (waiter(&locks), waiter(&locks));
        assert!(matches!(locks.acquire(CacheKey::of_url("b"), ClientKey::from_u64(1)), FetchRole::Fetch(_)));
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
    async fn fetch_goes_on_with_another_client_before_those_of_the_same() {
        let locks = FetchLocks::default();
        let first = guard(&locks);
        let own: Vec<_> = (0..3).map(|_| waiter(&locks)).collect();
        let other = waiter_of(&locks, 2);
        let late = waiter(&locks);
        // All wait when the fetch is handed over.
        let waiting = async { tokio::join!(own[0].wait(), own[1].wait(), own[2].wait(), late.wait()) };
        let mut waiting = std::pin::pin!(waiting);
        let mut other_wait = std::pin::pin!(other.wait());
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("the fetch is in progress"),
            _ = &mut other_wait => panic!("the fetch is in progress"),
            () = std::future::ready(()) => {}
        }
        drop(first);
        let taken_over = tokio::select! {
            biased;
            _ = &mut waiting => panic!("the request of another client goes first"),
            taken_over = &mut other_wait => taken_over,
        };
        let Err(guard) = taken_over else { panic!("the fetch has no end yet") };
        guard.end(FetchEnd::Stored);
        let (_, _, _, late_end) = waiting.await;
        assert_eq!(late_end.ok(), Some(FetchEnd::Stored));
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
