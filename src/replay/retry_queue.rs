//! Clients that do as they are told: one that is refused stays away until it may come back, then goes on where it stopped,
//! as fast as before.
//!
//! Such a client has everything put off that it would have asked for meanwhile. What was refused comes first again.

use super::log::{LinePosition, OrderedLine};
use super::request::ReplayRequest;
use crate::policy::Timestamp;
use foldhash::fast::FixedState;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::BuildHasher;
use std::time::Duration;

/// Who is behind, and with what.
#[derive(Default)]
pub(super) struct RetryQueue {
    behind: HashMap<ClientHash, DeferredClient, FixedState>,
    /// When each of them asks next.
    due: BinaryHeap<Reverse<(Timestamp, ClientHash)>>,
    put_off: usize,
    given_up: u64,
}

/// A client, by a hash of its address and user agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ClientHash(u64);

/// A client that is behind.
#[derive(Default)]
struct DeferredClient {
    /// It asks nothing before.
    until: Timestamp,
    /// By how much it is late.
    delay: Duration,
    /// What it has put off, in order.
    later: VecDeque<DeferredRequest>,
}

/// A request that was put off.
pub(super) struct DeferredRequest {
    /// When it would have come.
    pub(super) planned: Timestamp,
    pub(super) place: LinePosition,
    pub(super) text: Box<[u8]>,
    /// How often it has been refused.
    pub(super) refusals: u32,
}

impl ClientHash {
    pub(super) fn of(request: &ReplayRequest<'_>) -> Self {
        Self(FixedState::default().hash_one((request.client, request.user_agent)))
    }
}

impl DeferredRequest {
    pub(super) fn new(next: OrderedLine<'_>) -> Self {
        Self { planned: next.at, place: next.place, text: next.text.into(), refusals: 0 }
    }
}

impl RetryQueue {
    /// True where a client is behind: what it asks for now has to wait.
    pub(super) fn is_deferred(&self, client: impl FnOnce() -> ClientHash) -> bool {
        !self.behind.is_empty() && self.behind.contains_key(&client())
    }

    /// A client that is behind puts a request off.
    pub(super) fn defer(&mut self, client: ClientHash, later: DeferredRequest) {
        match self.behind.get_mut(&client).filter(|_| self.put_off < MAX_DEFERRED) {
            Some(behind) => {
                behind.later.push_back(later);
                self.put_off += 1;
            }
            None => self.given_up += 1,
        }
    }

    /// A client was refused at `now` and stays away for `wait`; then it asks for the same again, unless it has done so too
    /// often.
    pub(super) fn on_refused(
        &mut self,
        client: ClientHash,
        mut later: DeferredRequest,
        now: Timestamp,
        wait: Duration,
    ) {
        if self.behind.len() >= MAX_CLIENTS && !self.behind.contains_key(&client) {
            self.given_up += 1;
            return;
        }
        let behind = self.behind.entry(client).or_default();
        behind.until = now + wait;
        behind.delay = behind.until.saturating_duration_since(later.planned);
        later.refusals += 1;
        match later.refusals > MAX_RETRIES || self.put_off >= MAX_DEFERRED {
            true => self.given_up += 1,
            false => {
                behind.later.push_front(later);
                self.put_off += 1;
            }
        }
        self.on_submitted(client);
    }

    /// A client asks for the next thing that it has put off, or is no longer behind.
    pub(super) fn on_submitted(&mut self, client: ClientHash) {
        let Some(behind) = self.behind.get(&client) else { return };
        match behind.later.front() {
            Some(next) => self.due.push(Reverse((behind.until.max(next.planned + behind.delay), client))),
            None => drop(self.behind.remove(&client)),
        }
    }

    /// The next that is asked for by `now`, by whom, and when.
    pub(super) fn pop_due(&mut self, now: Timestamp) -> Option<(ClientHash, Timestamp, DeferredRequest)> {
        let Reverse((at, client)) = *self.due.peek()?;
        if at > now {
            return None;
        }
        self.due.pop();
        let later = self.behind.get_mut(&client)?.later.pop_front()?;
        self.put_off -= 1;
        Some((client, at, later))
    }

    /// How many requests were never asked again: too often refused, or put off beyond the end.
    pub(super) fn dropped(&self) -> u64 {
        self.given_up + self.put_off as u64
    }
}

/// A crawler that is refused so often drops the page.
const MAX_RETRIES: u32 = 8;

/// A hundred bytes each; more bots than there are.
const MAX_CLIENTS: usize = 65_536;

/// A few hundred bytes each.
const MAX_DEFERRED: usize = 65_536;
