//! Limits of the gateway's own requests for robots.txt, over all workers.
//!
//! The origin gets at most [`MAX_FETCHES`] at once. A client can invent hosts, each of which needs a fetch. Fetches of
//! unknown hosts are therefore made one at a time, so that they leave a slot to others, and at a bounded rate, of which
//! one network of clients gets a part.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::Timestamp;
use tidegate_policy::bucket::{Bucket, BucketState, EmptyUntil};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of concurrent fetches.
const MAX_FETCHES: usize = 2;

/// Maximum number of concurrent fetches of unknown hosts.
const MAX_UNKNOWN_FETCHES: usize = 1;

/// Rate of the fetches of unknown hosts: ten at once, because a site may have some hosts, then one each 6 s.
const UNKNOWN_RATE: Bucket =
    Bucket { capacity: 10, fill: 1, interval: Duration::from_secs(6), smooth: true, costed_only: false };

/// Rate of the fetches of unknown hosts for the clients of one network.
const NETWORK_RATE: Bucket =
    Bucket { capacity: 4, fill: 1, interval: Duration::from_secs(30), smooth: true, costed_only: false };

/// Number of counted networks from which those with all tokens are removed. [`UNKNOWN_RATE`] permits about 30 fetches in
/// the time in which a network gets all of its tokens back.
const MAX_NETWORKS: usize = 256;

/// Scope of the gateway's own requests for robots.txt. Times are monotonic.
pub struct FetchScope {
    slots: Arc<Semaphore>,
    unknown_slots: Arc<Semaphore>,
    unknown_tokens: Mutex<UnknownTokens>,
}

/// Tokens for fetches of unknown hosts.
#[derive(Default)]
struct UnknownTokens {
    all: BucketState,
    /// By network, as far as not all tokens are there.
    by_network: HashMap<u64, BucketState>,
}

/// Host of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchedHost {
    /// A host that exists, as far as known.
    Known,
    /// Any other host. A client in the network may have invented it.
    Unknown {
        /// Network of the client (`ClientKey::network`).
        network: u64,
    },
}

/// Slot of one fetch, free again when it is dropped.
pub struct FetchSlot {
    _slot: OwnedSemaphorePermit,
    /// Slot among the fetches of unknown hosts, if it is one.
    _unknown_slot: Option<OwnedSemaphorePermit>,
}

impl Default for FetchScope {
    fn default() -> Self {
        Self {
            slots: Arc::new(Semaphore::new(MAX_FETCHES)),
            unknown_slots: Arc::new(Semaphore::new(MAX_UNKNOWN_FETCHES)),
            unknown_tokens: Mutex::default(),
        }
    }
}

impl FetchScope {
    /// Takes a token for a fetch of `host`. Returns the time until the next token if there is none.
    pub fn take_token(&self, host: FetchedHost, now: Timestamp) -> Result<(), Duration> {
        match host {
            FetchedHost::Known => Ok(()),
            FetchedHost::Unknown { network } => self.unknown_tokens.lock().take(network, now),
        }
    }

    /// Waits for a slot. Waiters get slots in the order of their arrival.
    pub async fn acquire(&self, host: FetchedHost) -> FetchSlot {
        let unknown_slot = match host {
            FetchedHost::Known => None,
            FetchedHost::Unknown { .. } => Some(acquire_owned(&self.unknown_slots).await),
        };
        FetchSlot { _slot: acquire_owned(&self.slots).await, _unknown_slot: unknown_slot }
    }

    /// Takes a slot and a token without waiting. Returns `None` if one of them is missing.
    pub fn try_acquire(&self, host: FetchedHost, now: Timestamp) -> Option<FetchSlot> {
        let unknown_slot = match host {
            FetchedHost::Known => None,
            FetchedHost::Unknown { .. } => Some(Arc::clone(&self.unknown_slots).try_acquire_owned().ok()?),
        };
        let slot = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        self.take_token(host, now).ok()?;
        Some(FetchSlot { _slot: slot, _unknown_slot: unknown_slot })
    }
}

impl UnknownTokens {
    fn take(&mut self, network: u64, now: Timestamp) -> Result<(), Duration> {
        let until = |EmptyUntil(next): EmptyUntil| next.saturating_duration_since(now);
        let state = self.by_network.get(&network).copied().unwrap_or_default();
        let of_network = NETWORK_RATE.take(state, now).map_err(until)?;
        self.all = UNKNOWN_RATE.take(self.all, now).map_err(until)?;
        if self.by_network.len() >= MAX_NETWORKS {
            self.by_network.retain(|_, state| NETWORK_RATE.full_at(*state) > now);
        }
        self.by_network.insert(network, of_network);
        Ok(())
    }
}

async fn acquire_owned(slots: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    Arc::clone(slots).acquire_owned().await.expect("the semaphore is never closed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    /// A host that a client in a network of its own has requested.
    fn unknown(network: u64) -> FetchedHost {
        FetchedHost::Unknown { network }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_seconds(1000 + seconds)
    }

    /// Returns the slot if the scope grants it at once.
    fn poll_slot(acquire: impl Future<Output = FetchSlot>) -> Option<FetchSlot> {
        match pin!(acquire).poll(&mut Context::from_waker(Waker::noop())) {
            std::task::Poll::Ready(slot) => Some(slot),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn unknown_hosts_get_ten_fetches_then_one_each_six_seconds() {
        let scope = FetchScope::default();
        let takes = |host, seconds| scope.take_token(host, at(seconds));
        assert_eq!((0..300).filter(|network| takes(unknown(*network), 0).is_ok()).count(), 10);
        assert_eq!(takes(unknown(300), 4), Err(Duration::from_secs(2)));
        assert!((0..300).all(|_| takes(FetchedHost::Known, 4).is_ok()), "known hosts need no token");
        assert_eq!(takes(unknown(300), 6), Ok(()));
        assert_eq!(takes(unknown(301), 6), Err(Duration::from_secs(6)));
        assert_eq!((0..300).filter(|network| takes(unknown(*network), 3600).is_ok()).count(), 10);
    }

    #[test]
    fn one_network_leaves_most_fetches_to_others() {
        let scope = FetchScope::default();
        let taken =
            |network, seconds| (0..300).filter(|_| scope.take_token(unknown(network), at(seconds)).is_ok()).count();
        assert_eq!([taken(1, 0), taken(2, 0), taken(3, 0), taken(4, 0)], [4, 4, 2, 0]);
        assert_eq!((taken(1, 30), taken(2, 30), taken(5, 30)), (1, 1, 3));
    }

    #[test]
    fn number_of_counted_networks_is_bounded() {
        let scope = FetchScope::default();
        for network in 0..10_000 {
            let _ = scope.take_token(unknown(network), at(6 * network));
        }
        assert!(scope.unknown_tokens.lock().by_network.len() <= MAX_NETWORKS);
    }

    #[test]
    fn two_fetches_at_once_and_one_of_them_for_an_unknown_host() {
        let scope = FetchScope::default();
        let slot = poll_slot(scope.acquire(unknown(1))).expect("a slot");
        assert!(poll_slot(scope.acquire(unknown(1))).is_none(), "one at a time");
        assert!(scope.try_acquire(unknown(1), at(0)).is_none());
        let known = poll_slot(scope.acquire(FetchedHost::Known)).expect("the other slot");
        assert!(poll_slot(scope.acquire(FetchedHost::Known)).is_none(), "two at a time");
        assert!(scope.try_acquire(FetchedHost::Known, at(0)).is_none());
        drop(slot);
        let second = scope.try_acquire(FetchedHost::Known, at(0)).expect("a free slot");
        assert!(poll_slot(scope.acquire(unknown(1))).is_none(), "known hosts may use both slots");
        drop((known, second));
        assert!(scope.try_acquire(unknown(1), at(0)).is_some());
    }

    #[test]
    fn attempt_without_a_free_slot_takes_no_token() {
        let scope = FetchScope::default();
        let held = scope.try_acquire(unknown(1), at(0)).expect("a free slot");
        assert!((0..300).all(|_| scope.try_acquire(unknown(1), at(0)).is_none()));
        drop(held);
        assert_eq!((0..300).filter(|_| scope.take_token(unknown(1), at(0)).is_ok()).count(), 3);
    }
}
