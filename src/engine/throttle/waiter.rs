//! A waiter, its states, and how it enters and leaves its wait queue.

use super::instance::InstanceId;
use super::scheduler::{Scheduler, SlotGrant};
use super::wait_queue::{QueueId, WaitQueue};
use super::{Few, SlotRequest, ThrottleRejection};
use crate::policy::time::Timestamp;
use std::cmp::Reverse;
use std::task::Waker;

/// Identifies a waiter. A smaller id has waited longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaiterId(u64);

/// A request in a wait queue, or one granted or evicted that has not been polled since.
pub(super) struct Waiter {
    pub(super) lane: QueueId,
    pub(super) request: SlotRequest,
    pub(super) until: Timestamp,
    pub(super) waker: Option<Waker>,
    pub(super) standing: WaiterState,
}

/// State of a waiter.
pub(super) enum WaiterState {
    Queued,
    /// Slots are granted and held from now on.
    Granted(SlotGrant),
    /// Evicted by a waiter of higher priority.
    Evicted(ThrottleRejection),
}

impl Scheduler {
    pub(super) fn enqueue(&mut self, doors: Few<InstanceId>, request: SlotRequest, until: Timestamp) -> WaiterId {
        let id = WaiterId(self.next_place);
        self.next_place += 1;
        let lane = self.queue_by_instances.get(&doors).copied().unwrap_or_else(|| {
            let lane = QueueId(self.queues.insert(WaitQueue::new(doors.clone())));
            self.queue_by_instances.insert(doors.clone(), lane);
            lane
        });
        self.waiters.insert(id, Waiter { lane, request, until, waker: None, standing: WaiterState::Queued });
        let it = &mut self.queues[lane.0];
        let before = it.oldest();
        it.enqueue(id, request.client, request.priority);
        let oldest = it.oldest();
        for InstanceId(door) in doors {
            self.doors[door].on_enqueue(request.priority);
            self.doors[door].set_queue_head(lane, before, oldest);
        }
        id
    }

    /// Removes a waiter from its queue. Returns the instances of that queue.
    pub(super) fn dequeue(&mut self, id: WaiterId) -> Few<InstanceId> {
        let Some(&Waiter { lane, request, .. }) = self.waiters.get(&id) else { return Few::new() };
        let it = &mut self.queues[lane.0];
        let (doors, before) = (it.doors.clone(), it.oldest());
        it.remove(id, request.client, request.priority);
        let oldest = it.oldest();
        for door in &doors {
            self.doors[door.0].on_dequeue(id, request.priority);
            self.doors[door.0].set_queue_head(lane, before, oldest);
        }
        if oldest.is_none() {
            self.queues.remove(lane.0);
            self.queue_by_instances.remove(&doors);
        }
        doors
    }

    pub(super) fn evict(&mut self, id: WaiterId) {
        let doors = self.dequeue(id);
        let closed = self.rejection(&doors);
        if let Some(place) = self.waiters.get_mut(&id) {
            place.standing = WaiterState::Evicted(closed);
            self.wakers.extend(place.waker.take());
        }
        self.dispatch(&doors);
    }

    pub(super) fn full_instance(&self, doors: &[InstanceId]) -> Option<InstanceId> {
        let is_full = |door: &InstanceId| {
            let book = &self.doors[door.0].limiter;
            book.rules.as_ref().is_some_and(|rules| book.queue_length >= rules.queue.max_length)
        };
        doors.iter().copied().find(is_full)
    }

    /// Returns the waiter that a request of `priority` may evict from a full queue.
    pub(super) fn eviction_candidate(&self, InstanceId(door): InstanceId, priority: u8) -> Option<WaiterId> {
        let door = &self.doors[door];
        door.lowest_priority().filter(|lowest| *lowest < priority)?;
        let last = door.queues().filter_map(|lane| self.queues[lane.0].back());
        last.min_by_key(|&(priority, place)| (priority, Reverse(place))).map(|(_, place)| place)
    }
}
