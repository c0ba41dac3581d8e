//! A wait queue: requests that need the same set of scope instances, ordered by priority, then round-robin over
//! clients.

use super::ids::{InstanceId, WaiterId};
use crate::InlineVec;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tidegate_policy::identity::ClientKey;

/// Waiters that need the same scope instances.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    /// Instances that these waiters need, sorted.
    pub(super) instances: InlineVec<InstanceId>,
    by_priority: BTreeMap<Reverse<u8>, RoundRobin>,
    by_age: BTreeSet<WaiterId>,
}

/// Clients of one priority, served round-robin.
#[derive(Debug, Default)]
struct RoundRobin {
    clients: VecDeque<ClientKey>,
    waiters_by_client: BTreeMap<ClientKey, VecDeque<WaiterId>>,
}

impl WaitQueue {
    pub(super) fn new(instances: InlineVec<InstanceId>) -> Self {
        Self { instances, ..Self::default() }
    }

    pub(super) fn enqueue(&mut self, waiter: WaiterId, client: ClientKey, priority: u8) {
        self.by_age.insert(waiter);
        let round_robin = self.by_priority.entry(Reverse(priority)).or_default();
        let waiters = round_robin.waiters_by_client.entry(client).or_default();
        if waiters.is_empty() {
            round_robin.clients.push_back(client);
        }
        waiters.push_back(waiter);
    }

    pub(super) fn remove(&mut self, waiter: WaiterId, client: ClientKey, priority: u8) {
        self.by_age.remove(&waiter);
        let Some(round_robin) = self.by_priority.get_mut(&Reverse(priority)) else { return };
        round_robin.remove(waiter, client);
        if round_robin.clients.is_empty() {
            self.by_priority.remove(&Reverse(priority));
        }
    }

    /// Returns the next waiter by priority, with its priority.
    pub(super) fn front(&self) -> Option<(u8, WaiterId)> {
        let (Reverse(priority), round_robin) = self.by_priority.first_key_value()?;
        Some((*priority, *round_robin.waiters_by_client.get(round_robin.clients.front()?)?.front()?))
    }

    /// Returns the waiter that has waited longest.
    pub(super) fn oldest(&self) -> Option<WaiterId> {
        self.by_age.first().copied()
    }

    /// Returns the last waiter in order: of the lowest priority, the youngest of the client with the most waiters.
    pub(super) fn back(&self) -> Option<(u8, WaiterId)> {
        let (Reverse(priority), round_robin) = self.by_priority.last_key_value()?;
        let longest =
            round_robin.waiters_by_client.values().max_by_key(|waiters| (waiters.len(), waiters.back().copied()))?;
        Some((*priority, *longest.back()?))
    }

    /// Returns the minimum number of waiters that start before another one of `client`. These are all of a higher
    /// priority, and of each client of the same priority as many as this client has.
    pub(super) fn waiters_ahead(&self, client: ClientKey, priority: u8) -> usize {
        let higher = self
            .by_priority
            .range(..Reverse(priority))
            .flat_map(|(_, round_robin)| round_robin.waiters_by_client.values());
        let same_priority = self.by_priority.get(&Reverse(priority)).map(|round_robin| &round_robin.waiters_by_client);
        let own_count = same_priority.and_then(|by_client| by_client.get(&client)).map_or(0, VecDeque::len);
        let same_priority =
            same_priority.into_iter().flat_map(BTreeMap::values).map(|waiters| waiters.len().min(own_count.max(1)));
        higher.map(VecDeque::len).chain(same_priority).sum()
    }
}

impl RoundRobin {
    fn remove(&mut self, waiter: WaiterId, client: ClientKey) {
        let Some(waiters) = self.waiters_by_client.get_mut(&client) else { return };
        waiters.retain(|other| *other != waiter);
        let is_empty = waiters.is_empty();
        if is_empty {
            self.waiters_by_client.remove(&client);
        }
        if let Some(position) = self.clients.iter().position(|other| *other == client) {
            self.clients.remove(position);
            if !is_empty {
                // The client has used its turn and moves to the end.
                self.clients.push_back(client);
            }
        }
    }
}
