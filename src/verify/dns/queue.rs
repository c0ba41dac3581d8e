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
    somebody_waits: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: VecDeque<(IpAddr, OperatorId)>,
    /// Those who wait, and those who are being asked about.
    inside: HashSet<IpAddr>,
}

impl LookupQueue {
    /// Puts an address at the end, unless it is in the line already, or the line is full.
    pub(super) fn enter(&self, address: IpAddr, claimed: OperatorId) {
        self.put(address, MOST, |waiting| waiting.push_back((address, claimed)));
    }

    /// Puts one that was proven before in front of all others, and finds it a place in a line that is full of them.
    pub(super) fn enter_first(&self, address: IpAddr, claimed: OperatorId) {
        self.put(address, 2 * MOST, |waiting| waiting.push_front((address, claimed)));
    }

    fn put(&self, address: IpAddr, most: usize, put: impl FnOnce(&mut VecDeque<(IpAddr, OperatorId)>)) {
        let mut state = self.state.lock();
        if state.inside.len() < most && state.inside.insert(address) {
            put(&mut state.waiting);
            drop(state);
            self.somebody_waits.notify_one();
        }
    }

    /// Takes the first one out, once there is one; it stays inside until it [leaves](Line::leave).
    pub(super) async fn next(&self) -> (IpAddr, OperatorId) {
        loop {
            let come = self.somebody_waits.notified();
            if let Some((next, more)) = self.take() {
                // One notice may stand for several that came at once.
                if more {
                    self.somebody_waits.notify_one();
                }
                return next;
            }
            come.await;
        }
    }

    pub(super) fn leave(&self, address: IpAddr) {
        self.state.lock().inside.remove(&address);
    }

    pub(super) fn len(&self) -> usize {
        self.state.lock().inside.len()
    }

    fn take(&self) -> Option<((IpAddr, OperatorId), bool)> {
        let mut state = self.state.lock();
        let next = state.waiting.pop_front()?;
        Some((next, !state.waiting.is_empty()))
    }
}

/// The most addresses inside: a minute's work where a look-up takes a second, and 100 KiB. Whoever comes beyond is not
/// known, and may ask again.
pub(super) const MOST: usize = 1024;
