//! A place in line.

use super::scheduler::{WaiterId, WaiterPoll};
use super::{SlotGuard, Throttle, ThrottleRejection};
use crate::policy::time::Timestamp;
use std::sync::Arc;
use std::task::Waker;

/// A place in line. Dropped, it is free.
#[must_use]
pub struct QueuedRequest {
    throttle: Arc<Throttle>,
    waiter: WaiterId,
}

/// How it stands with a place in line.
#[must_use]
pub enum QueuePoll {
    /// It has come.
    Granted(SlotGuard),
    /// Not yet. The waker is woken when that may have changed; at `poll_at` it has to be asked without.
    Pending {
        /// When.
        poll_at: Timestamp,
    },
    /// It will not come in time.
    Rejected(ThrottleRejection),
}

impl QueuedRequest {
    pub(super) fn new(throttle: Arc<Throttle>, waiter: WaiterId) -> Self {
        Self { throttle, waiter }
    }

    /// Asks whether its turn has come. After [`QueuePoll::Granted`] or [`QueuePoll::Rejected`] there is nothing left to ask.
    pub fn poll(&mut self, waker: &Waker, now: Timestamp) -> QueuePoll {
        match self.throttle.with_scheduler(|floor| floor.poll_waiter(self.waiter, waker, now)) {
            WaiterPoll::Granted(ticket) => QueuePoll::Granted(SlotGuard::new(Arc::clone(&self.throttle), ticket)),
            WaiterPoll::Queued(poll_at) => QueuePoll::Pending { poll_at },
            WaiterPoll::Rejected(closed) => QueuePoll::Rejected(closed),
        }
    }
}

impl Drop for QueuedRequest {
    fn drop(&mut self) {
        self.throttle.with_scheduler(|floor| floor.cancel(self.waiter));
    }
}
