//! How a waiter enters and leaves its wait queue: it is enqueued, dequeued, or evicted by a waiter of higher priority.

use super::SlotRequest;
use super::ids::{InstanceId, QueueId, WaiterId};
use super::scheduler::Scheduler;
use super::wait_queue::WaitQueue;
use super::waiter::{Waiter, WaiterState};
use crate::InlineVec;
use std::cmp::Reverse;
use tidegate_policy::Timestamp;

impl Scheduler {
    /// Queues a request until `deadline` for slots of `instances`, which are sorted.
    pub(super) fn enqueue(
        &mut self,
        instances: InlineVec<InstanceId>,
        request: SlotRequest,
        deadline: Timestamp,
    ) -> WaiterId {
        let id = WaiterId(self.next_waiter_id);
        self.next_waiter_id += 1;
        let queue_id = self.queue_by_instances.get(&instances).copied().unwrap_or_else(|| {
            let queue_id = QueueId(self.queues.insert(WaitQueue::new(instances.clone())));
            self.queue_by_instances.insert(instances.clone(), queue_id);
            queue_id
        });
        self.waiters.insert(id, Waiter { queue: queue_id, request, deadline, waker: None, state: WaiterState::Queued });
        let queue = &mut self.queues[queue_id.0];
        let before = queue.oldest();
        queue.enqueue(id, request.source.client, request.priority);
        let oldest = queue.oldest();
        for InstanceId(instance) in instances {
            self.instances[instance].on_enqueue(request.priority);
            self.instances[instance].set_queue_head(queue_id, before, oldest);
        }
        id
    }

    /// Removes a waiter from its queue. Returns the instances of that queue.
    pub(super) fn dequeue(&mut self, id: WaiterId) -> InlineVec<InstanceId> {
        let Some(&Waiter { queue: queue_id, request, .. }) = self.waiters.get(&id) else { return InlineVec::new() };
        let queue = &mut self.queues[queue_id.0];
        let (instances, before) = (queue.instances.clone(), queue.oldest());
        queue.remove(id, request.source.client, request.priority);
        let oldest = queue.oldest();
        for instance in &instances {
            self.instances[instance.0].on_dequeue(id, request.priority);
            self.instances[instance.0].set_queue_head(queue_id, before, oldest);
        }
        if oldest.is_none() {
            self.queues.remove(queue_id.0);
            self.queue_by_instances.remove(&instances);
        }
        instances
    }

    /// Removes a waiter in favor of another one. Returns the instances of its queue.
    pub(super) fn evict(&mut self, id: WaiterId) -> InlineVec<InstanceId> {
        let instances = self.dequeue(id);
        let rejection = self.rejection(&instances);
        if let Some(waiter) = self.waiters.get_mut(&id) {
            waiter.state = WaiterState::Evicted(rejection);
            self.wakers.extend(waiter.waker.take());
        }
        self.dispatch(&instances);
        instances
    }

    /// Returns true if the queue of an instance is full.
    pub(super) fn is_full(&self, InstanceId(instance): InstanceId) -> bool {
        let limiter = &self.instances[instance].limiter;
        limiter.config.as_ref().is_some_and(|config| limiter.queue_length >= config.queue.max_length)
    }

    /// Returns the waiter that a request of `priority` may evict from a full queue.
    pub(super) fn eviction_candidate(&self, InstanceId(instance): InstanceId, priority: u8) -> Option<WaiterId> {
        let instance = &self.instances[instance];
        instance.lowest_priority().filter(|lowest| *lowest < priority)?;
        let last = instance.queues().filter_map(|queue| self.queues[queue.0].back());
        last.min_by_key(|&(priority, waiter)| (priority, Reverse(waiter))).map(|(_, waiter)| waiter)
    }
}
