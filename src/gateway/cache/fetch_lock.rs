//! One fetch for all requests for the same response. The others wait for its end; if the request that fetches leaves,
//! fails or takes too long, one of them goes on, of another client if there is one: no client holds a response back with
//! many requests.

use super::key::CacheKey;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::Timestamp;
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
    /// Number of requests that have fetched before that one.
    turn: u64,
    /// Time at which it began.
    since: Timestamp,
    progress: FetchProgress,
}

impl FetchState {
    /// Takes an orphaned fetch over. Returns false if it is in progress, or a request of another client goes first.
    fn take_over(&mut self, client: ClientKey, now: Timestamp) -> bool {
        let takes_over = self.progress == FetchProgress::Orphaned && self.is_next(client);
        if takes_over {
            self.begin_turn(client, now);
        }
        takes_over
    }

    fn is_next(&self, client: ClientKey) -> bool {
        client != self.fetching || self.waiting.keys().all(|waiting| *waiting == client)
    }

    fn begin_turn(&mut self, client: ClientKey, now: Timestamp) {
        (self.progress, self.fetching, self.since) = (FetchProgress::Running, client, now);
        self.turn += 1;
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
    turn: u64,
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
    pub(in crate::gateway) fn acquire(&self, key: CacheKey, client: ClientKey, now: Timestamp) -> FetchRole {
        let mut fetches = self.0.lock();
        let fetch = match fetches.entry(key) {
            Entry::Vacant(vacant) => {
                let (waiting, progress) = (HashMap::new(), FetchProgress::Running);
                let state = FetchState { waiting, fetching: client, turn: 0, since: now, progress };
                let fetch = Arc::new(Fetch { state: Mutex::new(state), ended: Notify::new() });
                return FetchRole::Fetch(self.guard(key, Arc::clone(vacant.insert(fetch)), 0));
            }
            Entry::Occupied(occupied) => Arc::clone(occupied.get()),
        };
        let mut state = fetch.state.lock();
        if state.take_over(client, now) {
            let turn = state.turn;
            drop(state);
            return FetchRole::Fetch(self.guard(key, fetch, turn));
        }
        *state.waiting.entry(client).or_default() += 1;
        drop(state);
        FetchRole::Wait(FetchWaiter { locks: self.clone(), key, client, fetch })
    }

    fn guard(&self, key: CacheKey, fetch: Arc<Fetch>, turn: u64) -> FetchGuard {
        FetchGuard { locks: self.clone(), key, fetch, turn, is_ended: false }
    }
}

impl FetchGuard {
    /// Ends the fetch for all who wait, also if another request has taken it over meanwhile.
    pub(in crate::gateway) fn end(mut self, end: FetchEnd) {
        self.is_ended = true;
        let mut fetches = self.locks.0.lock();
        let mut state = self.fetch.state.lock();
        if matches!(state.progress, FetchProgress::Ended(_)) {
            return;
        }
        fetches.remove(&self.key);
        state.progress = FetchProgress::Ended(end);
        self.fetch.ended.notify_waiters();
    }

    /// Returns the key that others wait for.
    pub(super) fn key(&self) -> CacheKey {
        self.key
    }

    /// Returns true if other requests wait.
    pub(in crate::gateway) fn has_waiters(&self) -> bool {
        !self.fetch.state.lock().waiting.is_empty()
    }
}

impl Drop for FetchGuard {
    fn drop(&mut self) {
        if self.is_ended {
            return;
        }
        let mut fetches = self.locks.0.lock();
        let mut state = self.fetch.state.lock();
        if state.turn != self.turn || matches!(state.progress, FetchProgress::Ended(_)) {
            return;
        }
        if state.waiting.is_empty() {
            fetches.remove(&self.key);
        } else {
            state.progress = FetchProgress::Orphaned;
            self.fetch.ended.notify_one();
        }
    }
}

impl FetchWaiter {
    /// Returns the time after which this request may take the fetch over, if a fetch may take `patience`.
    pub(in crate::gateway) fn time_left(&self, patience: Duration, now: Timestamp) -> Duration {
        let elapsed = now.saturating_duration_since(self.fetch.state.lock().since);
        patience.saturating_sub(elapsed)
    }

    /// Takes over a fetch that has taken `patience`. Returns `None` if it has not, has ended, or a request of another
    /// client goes first.
    pub(in crate::gateway) fn take_over_late(&self, patience: Duration, now: Timestamp) -> Option<FetchGuard> {
        let mut state = self.fetch.state.lock();
        let is_late =
            state.progress == FetchProgress::Running && now.saturating_duration_since(state.since) >= patience;
        (is_late && state.is_next(self.client)).then(|| {
            state.begin_turn(self.client, now);
            self.locks.guard(self.key, Arc::clone(&self.fetch), state.turn)
        })
    }

    /// Waits for the end of the fetch. Returns a guard if this request takes the fetch over, at the time `clock`.
    pub(in crate::gateway) async fn wait(&self, clock: impl Fn() -> Timestamp) -> Result<FetchEnd, FetchGuard> {
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
                if state.take_over(self.client, clock()) {
                    let turn = state.turn;
                    drop(state);
                    return Err(self.locks.guard(self.key, Arc::clone(&self.fetch), turn));
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
    use proptest::prelude::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn start() -> Timestamp {
        Timestamp::from_seconds(1000)
    }

    fn waiter_of(locks: &FetchLocks, client: u64) -> FetchWaiter {
        match locks.acquire(CacheKey::of_url("a"), ClientKey::from_u64(client), start()) {
            FetchRole::Wait(waiter) => waiter,
            FetchRole::Fetch(_) => panic!("a fetch is in progress"),
        }
    }

    fn waiter(locks: &FetchLocks) -> FetchWaiter {
        waiter_of(locks, 1)
    }

    fn guard(locks: &FetchLocks) -> FetchGuard {
        match locks.acquire(CacheKey::of_url("a"), ClientKey::from_u64(1), start()) {
            FetchRole::Fetch(guard) => guard,
            FetchRole::Wait(_) => panic!("no fetch is in progress"),
        }
    }

    #[tokio::test]
    async fn all_who_wait_learn_the_end() {
        let locks = FetchLocks::default();
        let guard = guard(&locks);
        let (first, second) = (waiter(&locks), waiter(&locks));
        assert!(matches!(locks.acquire(CacheKey::of_url("b"), ClientKey::from_u64(1), start()), FetchRole::Fetch(_)));
        let ended = async { guard.end(FetchEnd::Stored) };
        let (first_end, second_end, ()) = tokio::join!(first.wait(start), second.wait(start), ended);
        assert_eq!((first_end.ok(), second_end.ok()), (Some(FetchEnd::Stored), Some(FetchEnd::Stored)));
        assert!(first.wait(start).await.is_ok(), "the end is known afterwards");
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
        let Err(taken_over) = third.wait(start).await else { panic!("the fetch has no end yet") };
        let fourth = waiter(&locks);
        drop(taken_over);
        let fifth = guard(&locks);
        fifth.end(FetchEnd::Unshared);
        assert_eq!(fourth.wait(start).await.ok(), Some(FetchEnd::Unshared));
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
        let waiting =
            async { tokio::join!(own[0].wait(start), own[1].wait(start), own[2].wait(start), late.wait(start)) };
        let mut waiting = std::pin::pin!(waiting);
        let mut other_wait = std::pin::pin!(other.wait(start));
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

    #[tokio::test]
    async fn one_takes_over_a_fetch_that_is_late_and_the_others_wait_for_it() {
        let locks = FetchLocks::default();
        let slow = guard(&locks);
        let waiters: Vec<_> = (2..20).map(|client| waiter_of(&locks, client)).collect();
        let take_over =
            |now| waiters.iter().filter_map(|waiter| waiter.take_over_late(PATIENCE, now)).collect::<Vec<_>>();
        assert!(take_over(start() + PATIENCE - Duration::from_nanos(1)).is_empty(), "it is not late yet");
        let late = start() + PATIENCE;
        let mut second = take_over(late);
        assert_eq!(second.len(), 1, "one takes over");
        assert!(waiters.iter().all(|waiter| waiter.time_left(PATIENCE, late) == PATIENCE));
        drop(slow);
        assert!(take_over(late).is_empty(), "the end of the first fetch without a response says nothing of the second");
        second.remove(0).end(FetchEnd::Stored);
        for waiter in &waiters {
            assert_eq!(waiter.wait(start).await.ok(), Some(FetchEnd::Stored));
        }
        drop(waiters);
        assert!(locks.0.lock().is_empty());
    }

    #[tokio::test]
    async fn first_of_two_fetches_that_completes_ends_the_wait() {
        let locks = FetchLocks::default();
        let slow = guard(&locks);
        let (taking, waiting) = (waiter_of(&locks, 2), waiter_of(&locks, 3));
        let second = taking.take_over_late(PATIENCE, start() + PATIENCE).expect("the first is late");
        slow.end(FetchEnd::Stored);
        assert_eq!(waiting.wait(start).await.ok(), Some(FetchEnd::Stored));
        let next = guard(&locks);
        second.end(FetchEnd::Unshared);
        assert!(matches!(locks.acquire(CacheKey::of_url("a"), ClientKey::from_u64(2), start()), FetchRole::Wait(_)));
        next.end(FetchEnd::Stored);
        assert!(locks.0.lock().is_empty());
    }

    #[test]
    fn client_does_not_take_over_its_own_late_fetch_before_others() {
        let locks = FetchLocks::default();
        let _slow = guard(&locks);
        let (own, other) = (waiter(&locks), waiter_of(&locks, 2));
        let late = start() + PATIENCE;
        assert!(own.take_over_late(PATIENCE, late).is_none() && other.take_over_late(PATIENCE, late).is_some());
    }

    proptest! {
        /// However many wait, and whenever they look: a fetch begins at most once in each span of the patience.
        #[test]
        fn fetches_of_one_page_are_apart_by_the_patience(looks in proptest::collection::vec((0u64..200, 2u64..12), 0..80)) {
            let locks = FetchLocks::default();
            let mut guards = vec![guard(&locks)];
            let waiters: Vec<_> = (2..12).map(|client| waiter_of(&locks, client)).collect();
            let mut looks = looks;
            looks.sort_unstable();
            let mut last = start();
            for (second, client) in looks {
                let now = start() + Duration::from_secs(second);
                if let Some(guard) = waiters[client as usize - 2].take_over_late(PATIENCE, now) {
                    prop_assert!(now.saturating_duration_since(last) >= PATIENCE);
                    last = now;
                    guards.push(guard);
                }
            }
        }
    }
}
