//! Dispatch of free slots: the next waiter to start, what blocks the others, and which of them owns the timer.
//!
//! An operation examines only the wait queues of the instances it changed, and none of a blocked instance. One
//! exception: an instance reserves its last free slot for its oldest waiter, unless that waiter is blocked by something
//! other than a missing slot. Therefore, when an instance enters backoff, or a slot of it is free before its delay has
//! passed, slots that other instances reserved for its waiters become available.

use super::instance::InstanceId;
use super::limiter::BlockedBy;
use super::scheduler::{Scheduler, SlotGrant};
use super::wait_queue::QueueId;
use super::waiter::{Waiter, WaiterId, WaiterState};
use super::{Few, SlotRequest};
use crate::policy::time::Timestamp;
use std::cmp::Reverse;

impl Scheduler {
    /// Grants slots, in order, to all waiters that can start after a change of `instances`, with the slots that this
    /// change unreserves elsewhere.
    pub(super) fn dispatch(&mut self, doors: &[InstanceId]) {
        if !doors.iter().any(|door| self.doors[door.0].has_waiters()) {
            return;
        }
        let mut changed: Few<InstanceId> = doors.into();
        changed.extend(self.unreserved_by(doors));
        while let Some(id) = self.next_waiter(&changed) {
            let Some(&Waiter { lane, request: SlotRequest { random: chance, .. }, .. }) = self.waiters.get(&id) else {
                break;
            };
            let doors = self.queues[lane.0].doors.clone();
            let ticket = self.grant(Some(id), &doors, chance);
            self.dequeue(id);
            if let Some(place) = self.waiters.get_mut(&id) {
                place.standing = WaiterState::Granted(ticket);
                self.wakers.extend(place.waker.take());
            }
            for door in self.unreserved_by(&doors).into_iter().chain(doors) {
                if !changed.contains(&door) {
                    changed.push(door);
                }
            }
        }
        self.rearm_timers(&changed);
    }

    /// Returns the instances that no longer reserve a slot for waiters of `instances`, because these are now blocked by
    /// something other than a slot.
    fn unreserved_by(&self, doors: &[InstanceId]) -> Few<InstanceId> {
        let rests = |door: &&InstanceId| !self.waits_only_for_slots(**door);
        let queues = doors.iter().filter(rests).flat_map(|door| self.doors[door.0].queues());
        let others = queues.flat_map(|lane| &self.queues[lane.0].doors).copied();
        let mut released: Few<InstanceId> =
            others.filter(|door| self.doors[door.0].limiter.oldest_first_due()).collect();
        released.sort_unstable();
        released.dedup();
        released
    }

    /// For each instance whose next slot opens at a known time: wakes its oldest waiter if no waiter owns the timer, or
    /// the timer owner if its timer expires too late.
    fn rearm_timers(&mut self, doors: &[InstanceId]) {
        for door in doors.iter().map(|door| &self.doors[door.0]) {
            let Some(oldest) = door.oldest() else { continue };
            let Some(opens) = door.limiter.opens_at(self.now) else { continue };
            let sleeper = match door.timer_owner {
                None => oldest,
                Some((watchman, told)) if told > opens => watchman,
                Some(_) => continue,
            };
            if let Some(place) = self.waiters.get_mut(&sleeper) {
                self.wakers.extend(place.waker.take());
            }
        }
    }

    /// Makes waiter `id` the timer owner of its instances whose next slot opens at a known time and that have no owner.
    /// Returns the earliest expiry.
    pub(super) fn claim_timer(&mut self, id: WaiterId, doors: &[InstanceId]) -> Option<Timestamp> {
        let mut first: Option<Timestamp> = None;
        for door in doors {
            let door = &mut self.doors[door.0];
            if door.timer_owner.is_some_and(|(known, _)| known != id) {
                continue;
            }
            let opens = door.limiter.opens_at(self.now);
            door.timer_owner = opens.map(|opens| (id, opens));
            first = opens.into_iter().chain(first).min();
        }
        first
    }

    /// Returns the next waiter to start, over all wait queues of `instances`.
    fn next_waiter(&self, doors: &[InstanceId]) -> Option<WaiterId> {
        let is_open = |door: &&InstanceId| self.doors[door.0].limiter.blocked_by(self.now).is_none();
        let queues = doors.iter().filter(is_open).flat_map(|&door| {
            // If the only free slot is reserved, only the queue of its waiter can start.
            let kept = self.slot_reserved_for(door).filter(|_| self.doors[door.0].limiter.has_one_slot_left(self.now));
            let kept = kept.and_then(|place| self.waiters.get(&place)).map(|place| place.lane);
            self.doors[door.0].queues().filter(move |lane| kept.is_none_or(|kept| kept == *lane))
        });
        let can_go = queues.filter(|&lane| self.queue_blocked_by(lane).is_none());
        let first = |lane: QueueId| {
            let it = &self.queues[lane.0];
            let oldest = it.oldest()?;
            let is_its_turn = it.doors.iter().any(|door| self.slot_reserved_for(*door) == Some(oldest));
            let (priority, place) = if is_its_turn { (u8::MAX, oldest) } else { it.front()? };
            Some((is_its_turn, priority, Reverse(place)))
        };
        can_go.filter_map(first).max().map(|(.., Reverse(place))| place)
    }

    /// Returns the oldest waiter of `instance` if oldest-first is due. Considers only waiters that are blocked by
    /// nothing but slots.
    fn slot_reserved_for(&self, InstanceId(door): InstanceId) -> Option<WaiterId> {
        let door = &self.doors[door];
        if !door.has_waiters() || !door.limiter.oldest_first_due() {
            return None;
        }
        door.queues().find(|lane| self.queue_waits_only_for_slots(*lane)).and_then(|lane| self.queues[lane.0].oldest())
    }

    /// Returns what blocks a request at `instances`; if several things do, the one that persists longest.
    pub(super) fn blocked_by(&self, doors: &[InstanceId]) -> Option<BlockedBy> {
        let lane = || self.queue_by_instances.get(doors).copied();
        self.scopes_blocked_by(doors).or_else(|| self.is_reserved_for_other(doors, lane).then_some(BlockedBy::NoSlot))
    }

    fn queue_blocked_by(&self, lane: QueueId) -> Option<BlockedBy> {
        let doors = &self.queues[lane.0].doors;
        self.scopes_blocked_by(doors)
            .or_else(|| self.is_reserved_for_other(doors, || Some(lane)).then_some(BlockedBy::NoSlot))
    }

    fn scopes_blocked_by(&self, doors: &[InstanceId]) -> Option<BlockedBy> {
        doors.iter().filter_map(|door| self.doors[door.0].limiter.blocked_by(self.now)).max()
    }

    /// Returns true if the last slot of one of `instances` is reserved for a waiter in another queue.
    fn is_reserved_for_other(&self, doors: &[InstanceId], lane: impl Fn() -> Option<QueueId>) -> bool {
        let mut last = doors.iter().filter(|door| self.doors[door.0].limiter.has_one_slot_left(self.now));
        let is_of_another = |place: WaiterId| self.waiters.get(&place).is_some_and(|place| Some(place.lane) != lane());
        last.any(|door| self.slot_reserved_for(*door).is_some_and(is_of_another))
    }

    /// Returns true if the queue is blocked by nothing but missing slots.
    fn queue_waits_only_for_slots(&self, QueueId(lane): QueueId) -> bool {
        self.queues[lane].doors.iter().all(|door| self.waits_only_for_slots(*door))
    }

    fn waits_only_for_slots(&self, InstanceId(door): InstanceId) -> bool {
        self.doors[door].limiter.blocked_by(self.now).is_none_or(BlockedBy::is_slot)
    }

    /// Grants slots of `instances` to waiter `id`, or to a new request.
    pub(super) fn grant(&mut self, id: Option<WaiterId>, doors: &[InstanceId], chance: f64) -> SlotGrant {
        let now = self.now;
        let started = |&door: &InstanceId| {
            let takes_turn = self.slot_reserved_for(door).is_none_or(|kept| Some(kept) == id);
            (door, takes_turn)
        };
        let turns: Few<(InstanceId, bool)> = doors.iter().map(started).collect();
        let start =
            |(door, takes_turn): (InstanceId, bool)| (door, self.doors[door.0].limiter.grant(takes_turn, chance, now));
        SlotGrant { doors: turns.into_iter().map(start).collect(), started: now }
    }
}

#[cfg(test)]
impl Scheduler {
    /// Test only: returns true if any waiter could start at `now`.
    pub(super) fn has_runnable_waiter(&mut self, now: Timestamp) -> bool {
        self.now = self.now.max(now);
        self.queues.iter().any(|(lane, _)| self.queue_blocked_by(QueueId(lane)).is_none())
    }
}
