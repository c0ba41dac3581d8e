//! Retry queue of clients that obey `Retry-After`.
//!
//! A refused client sends no request until its `Retry-After` has passed. Its requests of that time are deferred. The
//! client first retries the refused request, then sends the deferred ones at the intervals of the log.

use super::log::{LinePosition, OrderedLine};
use super::request::ReplayRequest;
use foldhash::fast::FixedState;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::BuildHasher;
use std::time::Duration;
use tidegate_policy::Timestamp;

/// Clients with deferred requests.
#[derive(Default)]
pub(super) struct RetryQueue {
    clients: HashMap<ClientHash, DeferredClient, FixedState>,
    /// Clients by the time of their next request.
    due: BinaryHeap<Reverse<(Timestamp, ClientHash)>>,
    deferred: usize,
    dropped: u64,
}

/// Client, as a hash of its address and user agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ClientHash(u64);

/// A client with deferred requests.
#[derive(Default)]
struct DeferredClient {
    /// Time before which the client sends no request.
    retry_at: Timestamp,
    /// Delay of the client against the log.
    delay: Duration,
    /// Deferred requests, in order.
    requests: VecDeque<DeferredRequest>,
}

/// A deferred request.
pub(super) struct DeferredRequest {
    /// Time of the request in the log.
    pub(super) logged_at: Timestamp,
    pub(super) position: LinePosition,
    pub(super) text: Box<[u8]>,
    /// Number of refusals so far.
    pub(super) refusals: u32,
}

impl ClientHash {
    pub(super) fn from_request(request: &ReplayRequest<'_>) -> Self {
        Self(FixedState::default().hash_one((request.client, request.user_agent)))
    }
}

impl DeferredRequest {
    pub(super) fn new(next: OrderedLine<'_>) -> Self {
        Self { logged_at: next.at, position: next.position, text: next.text.into(), refusals: 0 }
    }
}

impl RetryQueue {
    /// Returns true if the client has deferred requests; its new requests must be deferred, too.
    pub(super) fn is_deferred(&self, client: impl FnOnce() -> ClientHash) -> bool {
        !self.clients.is_empty() && self.clients.contains_key(&client())
    }

    /// Defers a request of a client that already has deferred requests.
    pub(super) fn defer(&mut self, client: ClientHash, deferred: DeferredRequest) {
        match self.clients.get_mut(&client).filter(|_| self.deferred < MAX_DEFERRED) {
            Some(entry) => {
                entry.requests.push_back(deferred);
                self.deferred += 1;
            }
            None => self.dropped += 1,
        }
    }

    /// Records a refusal at `now`: the client pauses for `wait`, then retries unless the request was refused more than
    /// [`MAX_RETRIES`] times.
    pub(super) fn on_refused(
        &mut self,
        client: ClientHash,
        mut deferred: DeferredRequest,
        now: Timestamp,
        wait: Duration,
    ) {
        if self.clients.len() >= MAX_CLIENTS && !self.clients.contains_key(&client) {
            self.dropped += 1;
            return;
        }
        let entry = self.clients.entry(client).or_default();
        entry.retry_at = now + wait;
        entry.delay = entry.retry_at.saturating_duration_since(deferred.logged_at);
        deferred.refusals += 1;
        match deferred.refusals > MAX_RETRIES || self.deferred >= MAX_DEFERRED {
            true => self.dropped += 1,
            false => {
                entry.requests.push_front(deferred);
                self.deferred += 1;
            }
        }
        self.on_submitted(client);
    }

    /// Schedules the client's next deferred request, or removes a client without any.
    pub(super) fn on_submitted(&mut self, client: ClientHash) {
        let Some(entry) = self.clients.get(&client) else { return };
        match entry.requests.front() {
            Some(next) => self.due.push(Reverse((entry.retry_at.max(next.logged_at + entry.delay), client))),
            None => drop(self.clients.remove(&client)),
        }
    }

    /// Removes and returns the next request due by `now`, with its client and time.
    pub(super) fn pop_due(&mut self, now: Timestamp) -> Option<(ClientHash, Timestamp, DeferredRequest)> {
        let Reverse((at, client)) = *self.due.peek()?;
        if at > now {
            return None;
        }
        self.due.pop();
        let deferred = self.clients.get_mut(&client)?.requests.pop_front()?;
        self.deferred -= 1;
        Some((client, at, deferred))
    }

    /// Returns the number of requests never retried: refused too often, or deferred beyond the end of the log.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped + self.deferred as u64
    }
}

/// A crawler drops a page after this many refusals.
const MAX_RETRIES: u32 = 8;

/// Bounds memory, at a hundred bytes each; more clients than there are bots.
const MAX_CLIENTS: usize = 65_536;

/// Bounds memory, at a few hundred bytes each.
const MAX_DEFERRED: usize = 65_536;
