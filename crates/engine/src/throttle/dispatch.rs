//! Dispatch of free slots: the next waiter to start, what blocks the others, and which of them owns the timer.
//!
//! An operation examines only the wait queues of the instances it changed, and none of a blocked instance. One
//! exception: an instance reserves its last free slot for its oldest waiter, unless that waiter is blocked by something
//! other than a missing slot of a scope. Therefore, when an instance enters backoff, a client takes its last slot, or a
//! slot is free before its delay has passed, slots that other instances reserved for its waiters become available.

use super::SlotRequest;
use super::ids::{InstanceId, QueueId, SlotGrant, WaiterId};
use super::limiter::BlockedBy;
use super::scheduler::Scheduler;
use super::waiter::{Waiter, WaiterState};
use crate::InlineVec;
use std::cmp::Reverse;
use tidegate_policy::Timestamp;

impl Scheduler {
    /// Grants slots, in order, to all waiters that can start after a change of `instances`, with the slots that this
    /// change unreserves elsewhere.
    pub(super) fn dispatch(&mut self, instances: &[InstanceId]) {
        if !instances.iter().any(|instance| self.instances[instance.0].has_waiters()) {
            return;
        }
        let mut changed: InlineVec<InstanceId> = instances.into();
        changed.extend(self.unreserved_by(instances));
        while let Some(id) = self.next_waiter(&changed) {
            let Some(&Waiter { queue, request, .. }) = self.waiters.get(&id) else {
                break;
            };
            let instances = self.queues[queue.0].instances.clone();
            let grant = self.grant(Some(id), &instances, request);
            self.dequeue(id);
            if let Some(waiter) = self.waiters.get_mut(&id) {
                waiter.state = WaiterState::Granted(grant);
                self.wakers.extend(waiter.waker.take());
            }
            for instance in self.unreserved_by(&instances).into_iter().chain(instances) {
                if !changed.contains(&instance) {
                    changed.push(instance);
                }
            }
        }
        self.rearm_timers(&changed);
    }

    /// Returns the instances that no longer reserve a slot for waiters of `instances`, because these are now blocked by
    /// something other than a slot.
    fn unreserved_by(&self, instances: &[InstanceId]) -> InlineVec<InstanceId> {
        let is_blocked = |instance: &&InstanceId| !self.waits_only_for_slots(**instance);
        let queues = instances.iter().filter(is_blocked).flat_map(|instance| self.instances[instance.0].queues());
        let others = queues.flat_map(|queue| &self.queues[queue.0].instances).copied();
        let mut unreserved: InlineVec<InstanceId> =
            others.filter(|instance| self.instances[instance.0].limiter.is_oldest_first_due()).collect();
        unreserved.sort_unstable();
        unreserved.dedup();
        unreserved
    }

    /// For each instance whose next slot opens at a known time: wakes its oldest waiter if no waiter owns the timer, or
    /// the timer owner if its timer expires too late.
    fn rearm_timers(&mut self, instances: &[InstanceId]) {
        for instance in instances.iter().map(|instance| &self.instances[instance.0]) {
            let Some(oldest) = instance.oldest() else { continue };
            let Some(opens_at) = instance.limiter.opens_at(self.now) else { continue };
            let to_wake = match instance.timer_owner {
                None => oldest,
                Some((owner, expires_at)) if expires_at > opens_at => owner,
                Some(_) => continue,
            };
            if let Some(waiter) = self.waiters.get_mut(&to_wake) {
                self.wakers.extend(waiter.waker.take());
            }
        }
    }

    /// Makes waiter `id` the timer owner of its instances whose next slot opens at a known time and that have no owner.
    /// Returns the earliest expiry.
    pub(super) fn claim_timer(&mut self, id: WaiterId, instances: &[InstanceId]) -> Option<Timestamp> {
        let mut earliest: Option<Timestamp> = None;
        for instance in instances {
            let instance = &mut self.instances[instance.0];
            if instance.timer_owner.is_some_and(|(owner, _)| owner != id) {
                continue;
            }
            let opens_at = instance.limiter.opens_at(self.now);
            instance.timer_owner = opens_at.map(|opens_at| (id, opens_at));
            earliest = opens_at.into_iter().chain(earliest).min();
        }
        earliest
    }

    /// Returns the next waiter to start, over all wait queues of `instances`.
    fn next_waiter(&self, instances: &[InstanceId]) -> Option<WaiterId> {
        let is_open = |instance: &&InstanceId| self.instances[instance.0].limiter.blocked_by(self.now).is_none();
        let queues = instances.iter().filter(is_open).flat_map(|&instance| {
            // If the only free slot is reserved, only the queue of its waiter can start.
            let reserved = self
                .slot_reserved_for(instance)
                .filter(|_| self.instances[instance.0].limiter.has_one_slot_left(self.now));
            let reserved = reserved.and_then(|waiter| self.waiters.get(&waiter)).map(|waiter| waiter.queue);
            self.instances[instance.0].queues().filter(move |queue| reserved.is_none_or(|reserved| reserved == *queue))
        });
        let startable = queues.filter(|&queue| self.queue_blocked_by(queue).is_none());
        let first = |queue: QueueId| {
            let queue = &self.queues[queue.0];
            let oldest = queue.oldest()?;
            let is_reserved = queue.instances.iter().any(|instance| self.slot_reserved_for(*instance) == Some(oldest));
            let (priority, waiter) = if is_reserved { (u8::MAX, oldest) } else { queue.front()? };
            Some((is_reserved, priority, Reverse(waiter)))
        };
        startable.filter_map(first).max().map(|(.., Reverse(waiter))| waiter)
    }

    /// Returns the oldest waiter of `instance` if oldest-first is due. Considers only waiters that are blocked by
    /// nothing but slots.
    fn slot_reserved_for(&self, InstanceId(instance): InstanceId) -> Option<WaiterId> {
        let instance = &self.instances[instance];
        if !instance.has_waiters() || !instance.limiter.is_oldest_first_due() {
            return None;
        }
        instance
            .queues()
            .find(|queue| self.queue_waits_only_for_slots(*queue))
            .and_then(|queue| self.queues[queue.0].oldest())
    }

    /// Returns what blocks a request at `instances`; if several things do, the one that persists longest.
    pub(super) fn blocked_by(&self, instances: &[InstanceId]) -> Option<BlockedBy> {
        let queue = || self.queue_by_instances.get(instances).copied();
        self.scopes_blocked_by(instances)
            .or_else(|| self.is_reserved_for_other(instances, queue).then_some(BlockedBy::NoSlot))
    }

    fn queue_blocked_by(&self, queue: QueueId) -> Option<BlockedBy> {
        let instances = &self.queues[queue.0].instances;
        self.scopes_blocked_by(instances)
            .or_else(|| self.is_reserved_for_other(instances, || Some(queue)).then_some(BlockedBy::NoSlot))
    }

    fn scopes_blocked_by(&self, instances: &[InstanceId]) -> Option<BlockedBy> {
        instances.iter().filter_map(|instance| self.instances[instance.0].limiter.blocked_by(self.now)).max()
    }

    /// Returns true if the last slot of one of `instances` is reserved for a waiter in another queue.
    fn is_reserved_for_other(&self, instances: &[InstanceId], queue: impl Fn() -> Option<QueueId>) -> bool {
        let mut last =
            instances.iter().filter(|instance| self.instances[instance.0].limiter.has_one_slot_left(self.now));
        let is_in_other_queue =
            |waiter: WaiterId| self.waiters.get(&waiter).is_some_and(|waiter| Some(waiter.queue) != queue());
        last.any(|instance| self.slot_reserved_for(*instance).is_some_and(is_in_other_queue))
    }

    /// Returns true if the queue is blocked by nothing but missing slots.
    fn queue_waits_only_for_slots(&self, QueueId(queue): QueueId) -> bool {
        self.queues[queue].instances.iter().all(|instance| self.waits_only_for_slots(*instance))
    }

    /// Returns true if the waiters of an instance may reserve slots elsewhere: nothing blocks it but missing slots of the
    /// scope. A client without a slot of its own reserves none of the others'.
    fn waits_only_for_slots(&self, InstanceId(instance): InstanceId) -> bool {
        let instance = &self.instances[instance];
        let block = instance.limiter.blocked_by(self.now);
        block.is_none_or(|block| block.is_slot() && instance.part_of.is_none())
    }

    /// Grants slots of `instances` to waiter `id`, or to a new request.
    pub(super) fn grant(&mut self, id: Option<WaiterId>, instances: &[InstanceId], request: SlotRequest) -> SlotGrant {
        let now = self.now;
        let with_oldest_first = |&instance: &InstanceId| {
            let advances_oldest_first = self.slot_reserved_for(instance).is_none_or(|reserved| Some(reserved) == id);
            (instance, advances_oldest_first)
        };
        let starts: InlineVec<(InstanceId, bool)> = instances.iter().map(with_oldest_first).collect();
        let start = |(instance, advances_oldest_first): (InstanceId, bool)| {
            (instance, self.instances[instance.0].limiter.grant(advances_oldest_first, request.random, now))
        };
        SlotGrant { instances: starts.into_iter().map(start).collect(), granted_at: now, source: request.source }
    }
}

#[cfg(test)]
impl Scheduler {
    /// Test only: returns true if any waiter could start at `now`.
    pub(super) fn has_runnable_waiter(&mut self, now: Timestamp) -> bool {
        self.now = self.now.max(now);
        self.queues.iter().any(|(queue, _)| self.queue_blocked_by(QueueId(queue)).is_none())
    }
}
