//! Slots of one worker's connections to the origin: as many as it may open, and the requests that wait for one.

use super::error::ForwardError;
use crate::gateway::shared_count::{CountGuard, SharedCount};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use tokio::sync::oneshot;
use tokio::time::Sleep;

/// Maximum waiters for a connection, per worker.
const MAX_WAITERS: usize = 1024;

/// Number of open connections, and the requests that wait.
pub(super) struct Slots {
    taken: Cell<usize>,
    /// Open connections of all workers.
    open_connections: SharedCount,
    waiters: RefCell<VecDeque<oneshot::Sender<()>>>,
}

/// Slot of an open connection. Dropping it frees the slot.
pub(super) struct Slot {
    slots: Rc<Slots>,
    _open: CountGuard,
}

impl Slots {
    pub(super) fn new(open_connections: SharedCount) -> Self {
        Self { taken: Cell::default(), open_connections, waiters: RefCell::default() }
    }

    pub(super) fn is_full(&self, max: usize) -> bool {
        self.taken.get() >= max
    }

    /// Takes a slot, also beyond the maximum.
    pub(super) fn take(self: &Rc<Self>) -> Slot {
        self.taken.set(self.taken.get() + 1);
        Slot { slots: Rc::clone(self), _open: self.open_connections.add() }
    }

    /// Waits until a slot or a connection is free, or until the end of `patience`.
    pub(super) async fn wait(&self, patience: &mut Pin<Box<Sleep>>) -> Result<(), ForwardError> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut waiters = self.waiters.borrow_mut();
            waiters.retain(|waiter| !waiter.is_closed());
            if waiters.len() >= MAX_WAITERS {
                return Err(ForwardError::PoolExhausted);
            }
            waiters.push_back(sender);
        }
        tokio::select! {
            biased;
            _ = receiver => Ok(()),
            () = patience.as_mut() => Err(ForwardError::PoolExhausted),
        }
    }

    /// Wakes the request that has waited longest.
    pub(super) fn wake_one(&self) {
        let mut waiters = self.waiters.borrow_mut();
        while let Some(waiter) = waiters.pop_front() {
            if waiter.send(()).is_ok() {
                break;
            }
        }
    }
}

impl Slot {
    /// Wakes the request that has waited longest, for a stream of this connection.
    pub(super) fn wake_waiter(&self) {
        self.slots.wake_one();
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.taken.set(self.slots.taken.get() - 1);
        self.slots.wake_one();
    }
}
