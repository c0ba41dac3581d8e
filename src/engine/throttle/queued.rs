//! A place in line.

use super::scheduler::{WaiterPoll, WaiterId};
use super::{ThrottleRejection, SlotGuard, Throttle};
use crate::policy::time::Timestamp;
use std::sync::Arc;
use std::task::Waker;

/// A place in line. Dropped, it is free.
#[must_use]
pub struct QueuedRequest {
    throttle: Arc<Throttle>,
    place: WaiterId,
}

/// How it stands with a place in line.
#[must_use]
pub enum QueuePoll {
    /// It has come.
    Come(SlotGuard),
    /// Not yet. The waker is woken when that may have changed; at `look_again` it has to be asked without.
    NotYet {
        /// When.
        look_again: Timestamp,
    },
    /// It will not come in time.
    Gone(ThrottleRejection),
}

impl QueuedRequest {
    pub(super) fn new(throttle: Arc<Throttle>, place: WaiterId) -> Self {
        Self { throttle, place }
    }

    /// Asks whether its turn has come. After [`QueuePoll::Come`] or [`QueuePoll::Gone`] there is nothing left to ask.
    pub fn poll(&mut self, waker: &Waker, now: Timestamp) -> QueuePoll {
        match self.throttle.change(|floor| floor.look(self.place, waker, now)) {
            WaiterPoll::Starts(ticket) => QueuePoll::Come(SlotGuard::new(Arc::clone(&self.throttle), ticket)),
            WaiterPoll::Waits(look_again) => QueuePoll::NotYet { look_again },
            WaiterPoll::Gone(closed) => QueuePoll::Gone(closed),
        }
    }
}

impl Drop for QueuedRequest {
    fn drop(&mut self) {
        self.throttle.change(|floor| floor.give_up(self.place));
    }
}
