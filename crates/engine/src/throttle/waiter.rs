//! A waiter and its states.

use super::ids::{QueueId, SlotGrant};
use super::{SlotRequest, ThrottleRejection};
use std::task::Waker;
use tidegate_policy::Timestamp;

/// A request in a wait queue, or one granted or evicted that has not been polled since.
pub(super) struct Waiter {
    pub(super) queue: QueueId,
    pub(super) request: SlotRequest,
    pub(super) deadline: Timestamp,
    pub(super) waker: Option<Waker>,
    pub(super) state: WaiterState,
}

/// State of a waiter.
pub(super) enum WaiterState {
    Queued,
    /// Slots are granted and held from now on.
    Granted(SlotGrant),
    /// Evicted by a waiter of higher priority.
    Evicted(ThrottleRejection),
}
