//! A wait queue: requests that need the same set of scope instances, ordered by priority, then round-robin over
//! clients.

use super::Few;
use super::instance::InstanceId;
use super::waiter::WaiterId;
use crate::policy::identity::ClientKey;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Index of a wait queue. A queue exists as long as it has waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueId(pub(super) usize);

/// Waiters that need the same scope instances.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    /// Instances that these waiters need, sorted.
    pub(super) doors: Few<InstanceId>,
    by_priority: BTreeMap<Reverse<u8>, RoundRobin>,
    by_age: BTreeSet<WaiterId>,
}

/// Clients of one priority, served round-robin.
#[derive(Debug, Default)]
struct RoundRobin {
    next: VecDeque<ClientKey>,
    of: BTreeMap<ClientKey, VecDeque<WaiterId>>,
}

impl WaitQueue {
    pub(super) fn new(doors: Few<InstanceId>) -> Self {
        Self { doors, ..Self::default() }
    }

    pub(super) fn enqueue(&mut self, place: WaiterId, client: ClientKey, priority: u8) {
        self.by_age.insert(place);
        let turns = self.by_priority.entry(Reverse(priority)).or_default();
        let of_client = turns.of.entry(client).or_default();
        if of_client.is_empty() {
            turns.next.push_back(client);
        }
        of_client.push_back(place);
    }

    pub(super) fn remove(&mut self, place: WaiterId, client: ClientKey, priority: u8) {
        self.by_age.remove(&place);
        let Some(turns) = self.by_priority.get_mut(&Reverse(priority)) else { return };
        turns.remove(place, client);
        if turns.next.is_empty() {
            self.by_priority.remove(&Reverse(priority));
        }
    }

    /// Returns the next waiter by priority, with its priority.
    pub(super) fn front(&self) -> Option<(u8, WaiterId)> {
        let (Reverse(priority), turns) = self.by_priority.first_key_value()?;
        Some((*priority, *turns.of.get(turns.next.front()?)?.front()?))
    }

    /// Returns the waiter that has waited longest.
    pub(super) fn oldest(&self) -> Option<WaiterId> {
        self.by_age.first().copied()
    }

    /// Returns the last waiter in order: of the lowest priority, the youngest of the client with the most waiters.
    pub(super) fn back(&self) -> Option<(u8, WaiterId)> {
        let (Reverse(priority), turns) = self.by_priority.last_key_value()?;
        let greediest = turns.of.values().max_by_key(|places| (places.len(), places.back().copied()))?;
        Some((*priority, *greediest.back()?))
    }

    /// Returns the minimum number of waiters that start before another one of `client`. These are all of a higher
    /// priority, and of each client of the same priority as many as this client has.
    pub(super) fn waiters_ahead(&self, client: ClientKey, priority: u8) -> usize {
        let higher = self.by_priority.range(..Reverse(priority)).flat_map(|(_, turns)| turns.of.values());
        let alike = self.by_priority.get(&Reverse(priority)).map(|turns| &turns.of);
        let own = alike.and_then(|of| of.get(&client)).map_or(0, VecDeque::len);
        let alike = alike.into_iter().flat_map(BTreeMap::values).map(|places| places.len().min(own.max(1)));
        higher.map(VecDeque::len).chain(alike).sum()
    }
}

impl RoundRobin {
    fn remove(&mut self, place: WaiterId, client: ClientKey) {
        let Some(places) = self.of.get_mut(&client) else { return };
        places.retain(|known| *known != place);
        let is_empty = places.is_empty();
        if is_empty {
            self.of.remove(&client);
        }
        if let Some(turn) = self.next.iter().position(|known| *known == client) {
            self.next.remove(turn);
            if !is_empty {
                // The client has used its turn and moves to the end.
                self.next.push_back(client);
            }
        }
    }
}
