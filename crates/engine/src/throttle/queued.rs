//! Handle of a queued request.

use super::ids::WaiterId;
use super::scheduler::WaiterPoll;
use super::{SlotGuard, Throttle, ThrottleRejection};
use std::sync::Arc;
use std::task::Waker;
use tidegate_policy::Timestamp;

/// Handle of a queued request. Leaves the queue on drop.
#[must_use]
pub struct QueuedRequest {
    throttle: Arc<Throttle>,
    waiter: WaiterId,
}

/// Result of [`QueuedRequest::poll`].
#[must_use]
pub enum QueuePoll {
    /// All slots are granted.
    Granted(SlotGuard),
    /// The request still waits. The waker fires when that may have changed; at `poll_at`, poll without being woken.
    Pending {
        /// Time of the next poll.
        poll_at: Timestamp,
    },
    /// The request cannot be served in time, or was evicted from the queue.
    Rejected(ThrottleRejection),
}

impl QueuedRequest {
    pub(super) fn new(throttle: Arc<Throttle>, waiter: WaiterId) -> Self {
        Self { throttle, waiter }
    }

    /// Polls for the slots. Must not be polled again after [`QueuePoll::Granted`] or [`QueuePoll::Rejected`].
    pub fn poll(&mut self, waker: &Waker, now: Timestamp) -> QueuePoll {
        match self.throttle.with_scheduler(|scheduler| scheduler.poll_waiter(self.waiter, waker, now)) {
            WaiterPoll::Granted(grant) => QueuePoll::Granted(SlotGuard::new(Arc::clone(&self.throttle), grant)),
            WaiterPoll::Queued(poll_at) => QueuePoll::Pending { poll_at },
            WaiterPoll::Rejected(rejection) => QueuePoll::Rejected(rejection),
        }
    }
}

impl Drop for QueuedRequest {
    fn drop(&mut self) {
        self.throttle.with_scheduler(|scheduler| scheduler.cancel(self.waiter));
    }
}
