//! The addresses that are to be asked about: each once, in the order in which they came.

use crate::policy::OperatorId;
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;
use tokio::sync::Notify;

/// A bounded line with a lock that is held for a few steps of memory, and only by requests of clients that nobody knows.
#[derive(Debug, Default)]
pub(super) struct LookupQueue {
    state: Mutex<QueueState>,
    not_empty: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: VecDeque<(IpAddr, OperatorId)>,
    /// Those who wait, and those who are being asked about.
    pending: HashSet<IpAddr>,
}

impl LookupQueue {
    /// Puts an address at the end, unless it is in the line already, or the line is full.
    pub(super) fn push(&self, address: IpAddr, claimed: OperatorId) {
        self.insert(address, MAX_PENDING, |waiting| waiting.push_back((address, claimed)));
    }

    /// Puts one that was proven before in front of all others, and finds it a place in a line that is full of them.
    pub(super) fn push_front(&self, address: IpAddr, claimed: OperatorId) {
        self.insert(address, 2 * MAX_PENDING, |waiting| waiting.push_front((address, claimed)));
    }

    fn insert(&self, address: IpAddr, most: usize, put: impl FnOnce(&mut VecDeque<(IpAddr, OperatorId)>)) {
        let mut state = self.state.lock();
        if state.pending.len() < most && state.pending.insert(address) {
            put(&mut state.waiting);
            drop(state);
            self.not_empty.notify_one();
        }
    }

    /// Takes the first one out, once there is one; it stays inside until it [leaves](Line::leave).
    pub(super) async fn next(&self) -> (IpAddr, OperatorId) {
        loop {
            let come = self.not_empty.notified();
            if let Some((next, more)) = self.pop() {
                // One notice may stand for several that came at once.
                if more {
                    self.not_empty.notify_one();
                }
                return next;
            }
            come.await;
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
        let next = state.waiting.pop_front()?;
        Some((next, !state.waiting.is_empty()))
    }
}

/// The most addresses inside: a minute's work where a look-up takes a second, and 100 KiB. Whoever comes beyond is not
/// known, and may ask again.
pub(super) const MAX_PENDING: usize = 1024;
