//! Queue of addresses to look up, each once, in order of arrival.

use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;
use tidegate_policy::OperatorId;
use tokio::sync::Notify;

/// A bounded queue. Its lock is held for a few memory operations, and only by requests of unverified clients.
#[derive(Debug, Default)]
pub(super) struct LookupQueue {
    state: Mutex<QueueState>,
    not_empty: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    addresses: VecDeque<(IpAddr, OperatorId)>,
    /// Addresses queued or being looked up.
    pending: HashSet<IpAddr>,
}

impl LookupQueue {
    /// Appends an address, unless it is pending already or the queue is full.
    pub(super) fn push(&self, address: IpAddr, claimed: OperatorId) {
        self.insert(address, MAX_PENDING, |addresses| addresses.push_back((address, claimed)));
    }

    /// Puts an address that was verified before in front of all others. Such addresses may fill the queue to twice its
    /// limit.
    pub(super) fn push_front(&self, address: IpAddr, claimed: OperatorId) {
        self.insert(address, 2 * MAX_PENDING, |addresses| addresses.push_front((address, claimed)));
    }

    fn insert(&self, address: IpAddr, limit: usize, put: impl FnOnce(&mut VecDeque<(IpAddr, OperatorId)>)) {
        let mut state = self.state.lock();
        if state.pending.len() < limit && state.pending.insert(address) {
            put(&mut state.addresses);
            drop(state);
            self.not_empty.notify_one();
        }
    }

    /// Removes the first address; waits while the queue is empty. The address stays pending until
    /// [`LookupQueue::finish`].
    pub(super) async fn next(&self) -> (IpAddr, OperatorId) {
        loop {
            let notified = self.not_empty.notified();
            if let Some((next, has_more)) = self.pop() {
                // One notification may stand for several addresses.
                if has_more {
                    self.not_empty.notify_one();
                }
                return next;
            }
            notified.await;
        }
    }

    pub(super) fn finish(&self, address: IpAddr) {
        self.state.lock().pending.remove(&address);
    }

    pub(super) fn len(&self) -> usize {
        self.state.lock().pending.len()
    }

    fn pop(&self) -> Option<((IpAddr, OperatorId), bool)> {
        let mut state = self.state.lock();
        let next = state.addresses.pop_front()?;
        Some((next, !state.addresses.is_empty()))
    }
}

/// Maximum number of pending addresses: a minute's work at a second per lookup, and 100 KiB. Further addresses stay
/// unverified until there is room.
pub(super) const MAX_PENDING: usize = 1024;
