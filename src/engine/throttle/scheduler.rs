//! Scheduler of the origin's concurrency slots: all scope instances and wait queues, behind the lock of
//! [`Throttle`](super::Throttle).
//!
//! An operation examines only the wait queues of the instances it changed, and none of a blocked instance. One
//! exception: an instance reserves its last free slot for its oldest waiter, unless that waiter is blocked by something
//! other than a missing slot. Therefore, when an instance enters backoff, or a slot of it is free before its delay has
//! passed, slots that other instances reserved for its waiters become available.

use super::group::ScopeGroup;
use super::instance::{InstanceId, ScopeInstance};
use super::limiter::{BlockedBy, ScopeState};
use super::wait_queue::{QueueId, WaitQueue};
use super::{Few, ResponseFeedback, ScopeRef, ScopeTarget, SlotRequest, ThrottleRejection};
use crate::policy::Reason;
use crate::policy::throttle::backoff::BackoffEpoch;
use crate::policy::throttle::{self, OriginOutcome, Scope};
use crate::policy::time::Timestamp;
use foldhash::fast::RandomState;
use slab::Slab;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// Schedules requests onto the slots of all throttled scopes.
#[derive(Default)]
pub(super) struct Scheduler {
    /// Latest time seen. Used by guards that are dropped without a time.
    now: Timestamp,
    groups: Vec<ScopeGroup>,
    doors: Slab<ScopeInstance>,
    /// Non-empty wait queues.
    queues: Slab<WaitQueue>,
    queue_by_instances: HashMap<Few<InstanceId>, QueueId, RandomState>,
    waiters: BTreeMap<WaiterId, Waiter>,
    next_place: u64,
    wakers: Vec<Waker>,
}

/// Identifies a waiter. A smaller id has waited longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaiterId(u64);

/// Index of a scope group. Groups are never removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScopeGroupId(usize);

/// Value of the partition key of an instance.
pub(super) struct PartitionValue<'a> {
    /// Keyed hash of the value, with a per-process key, so that clients cannot construct collisions.
    pub(super) hash: u64,
    pub(super) text: Cow<'a, [u8]>,
}

struct Waiter {
    lane: QueueId,
    request: SlotRequest,
    until: Timestamp,
    waker: Option<Waker>,
    standing: WaiterState,
}

enum WaiterState {
    Queued,
    /// Slots are granted and held from now on.
    Granted(SlotGrant),
    /// Evicted by a waiter of higher priority.
    Evicted(ThrottleRejection),
}

/// Slots held by a request, one per scope instance.
#[derive(Clone, Debug)]
pub(super) struct SlotGrant {
    doors: Few<(InstanceId, BackoffEpoch)>,
    started: Timestamp,
}

/// Result of [`Scheduler::acquire`].
pub(super) enum ScheduleResult {
    Granted(SlotGrant),
    Queued(WaiterId),
    Rejected(ThrottleRejection),
}

/// Result of [`Scheduler::poll_waiter`].
pub(super) enum WaiterPoll {
    Granted(SlotGrant),
    Queued(Timestamp),
    Rejected(ThrottleRejection),
}

impl Scheduler {
    pub(super) fn update_config(&mut self, scopes: &[Scope]) {
        self.groups.iter_mut().for_each(ScopeGroup::remove_config);
        // Waiters of a removed instance keep its old limits; otherwise all of them would start at once.
        let empty = self.doors.iter_mut().filter(|(_, door)| !door.has_waiters());
        empty.for_each(|(_, door)| door.limiter.rules = None);
        for scope in scopes.iter().filter(|scope| scope.throttle.is_some()) {
            let ScopeGroupId(family) = self.group_id(&scope.name);
            self.groups[family].update_config(scope, &mut self.doors, self.now);
        }
        let all: Vec<InstanceId> = self.doors.iter().map(|(door, _)| InstanceId(door)).collect();
        self.dispatch(&all);
        // Wake all waiters: the condition that blocks them may have changed.
        for place in self.waiters.values_mut() {
            self.wakers.extend(place.waker.take());
        }
    }

    /// Returns the reference by which routes address `scope`.
    pub(super) fn scope_ref(&mut self, scope: &Scope) -> ScopeRef {
        let ScopeGroupId(family) = self.group_id(&scope.name);
        match &scope.partitioning {
            None => ScopeRef::Single(self.groups[family].single(&mut self.doors, self.now)),
            Some(by_value) => ScopeRef::Partitioned(ScopeGroupId(family), by_value.from.clone()),
        }
    }

    fn group_id(&mut self, name: &str) -> ScopeGroupId {
        ScopeGroupId(self.groups.iter().position(|family| *family.name == *name).unwrap_or_else(|| {
            self.groups.push(ScopeGroup::new(name));
            self.groups.len() - 1
        }))
    }

    /// Returns the instances of `targets`, sorted. Creates missing partitions.
    pub(super) fn resolve_instances(&mut self, goals: &[ScopeTarget<'_>], now: Timestamp) -> Few<InstanceId> {
        self.now = self.now.max(now);
        let door = |goal: &ScopeTarget<'_>| match goal {
            ScopeTarget::Single(door) => *door,
            ScopeTarget::Partitioned(ScopeGroupId(family), value) => {
                self.groups[*family].instance_for(value, &mut self.doors, self.now)
            }
        };
        let mut doors: Few<InstanceId> = goals.iter().map(door).collect();
        doors.sort_unstable();
        doors
    }

    pub(super) fn take_wakers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers)
    }

    pub(super) fn acquire(&mut self, doors: Few<InstanceId>, request: SlotRequest, now: Timestamp) -> ScheduleResult {
        self.now = self.now.max(now);
        self.dispatch(&doors);
        let Some(hindrance) = self.blocked_by(&doors) else {
            let ticket = self.grant(None, &doors, request.random);
            self.dispatch(&doors);
            return ScheduleResult::Granted(ticket);
        };
        let max_wait = self.rules(&doors).map(|rules| rules.queue.max_wait).min().unwrap_or_default();
        let until = self.now + max_wait;
        if hindrance.persists_after(until) || max_wait.is_zero() || self.estimate_start(&doors, request) > until {
            return ScheduleResult::Rejected(self.rejection(&doors));
        }
        while let Some(full) = self.full_instance(&doors) {
            match self.eviction_candidate(full, request.priority) {
                Some(place) => self.evict(place),
                None => return ScheduleResult::Rejected(self.rejection(&doors)),
            }
        }
        ScheduleResult::Queued(self.enqueue(doors, request, until))
    }

    /// Returns the earliest time at which a request could start if it were queued now.
    fn estimate_start(&self, doors: &[InstanceId], request: SlotRequest) -> Timestamp {
        let lane = self.queue_by_instances.get(doors).map(|lane| &self.queues[lane.0]);
        let ahead = lane.map_or(0, |lane| lane.waiters_ahead(request.client, request.priority));
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
        let starts = doors.iter().map(|door| self.doors[door.0].limiter.earliest_start_after(ahead, self.now));
        starts.max().unwrap_or(self.now)
    }

    pub(super) fn poll_waiter(&mut self, id: WaiterId, waker: &Waker, now: Timestamp) -> WaiterPoll {
        self.now = self.now.max(now);
        if let Some(Waiter { lane, standing: WaiterState::Queued, .. }) = self.waiters.get(&id) {
            let doors = self.queues[lane.0].doors.clone();
            self.dispatch(&doors);
        }
        let Some(place) = self.waiters.get(&id) else {
            return WaiterPoll::Rejected(ThrottleRejection {
                scope: "".into(),
                reason: Reason::Throttle,
                retry_after: Duration::ZERO,
            });
        };
        let (lane, until) = (place.lane, place.until);
        match &place.standing {
            WaiterState::Granted(ticket) => {
                let ticket = ticket.clone();
                self.waiters.remove(&id);
                return WaiterPoll::Granted(ticket);
            }
            WaiterState::Evicted(closed) => {
                let closed = closed.clone();
                self.waiters.remove(&id);
                return WaiterPoll::Rejected(closed);
            }
            WaiterState::Queued => {}
        }
        let doors = self.queues[lane.0].doors.clone();
        if until <= self.now || self.blocked_by(&doors).is_some_and(|hindrance| hindrance.persists_after(until)) {
            self.dequeue(id);
            self.waiters.remove(&id);
            self.dispatch(&doors);
            return WaiterPoll::Rejected(self.rejection(&doors));
        }
        let opens = self.claim_timer(id, &doors);
        if let Some(place) = self.waiters.get_mut(&id) {
            place.waker = Some(waker.clone());
        }
        WaiterPoll::Queued(opens.map_or(until, |opens| opens.min(until)))
    }

    pub(super) fn cancel(&mut self, id: WaiterId) {
        match self.waiters.get(&id).map(|place| &place.standing) {
            None => {}
            Some(WaiterState::Queued) => {
                let doors = self.dequeue(id);
                self.waiters.remove(&id);
                self.dispatch(&doors);
            }
            Some(WaiterState::Evicted(_)) => {
                self.waiters.remove(&id);
            }
            Some(WaiterState::Granted(ticket)) => {
                let ticket = ticket.clone();
                self.waiters.remove(&id);
                self.release(&ticket);
            }
        }
    }

    pub(super) fn record_response(
        &mut self,
        ticket: &SlotGrant,
        outcome: &OriginOutcome,
        chance: f64,
        now: Timestamp,
    ) -> ResponseFeedback {
        self.now = self.now.max(now);
        let mut heard = ResponseFeedback::default();
        for &(InstanceId(door), spell) in &ticket.doors {
            let ScopeInstance { scope, limiter: book, .. } = &mut self.doors[door];
            let rested = book.backoff_state.remaining(self.now);
            let lesson = book.record_response(spell, outcome, chance, ticket.started, self.now);
            if let Some(wait) = lesson.backoff {
                if rested.is_zero() && !wait.is_zero() {
                    heard.entered_backoff.push((Arc::clone(scope), wait));
                }
                if heard.backoff.as_ref().is_none_or(|longest| longest.retry_after < wait) {
                    heard.backoff = Some(ThrottleRejection {
                        scope: Arc::clone(scope),
                        reason: Reason::Backoff,
                        retry_after: wait,
                    });
                }
            }
            heard.delay_adjustments.extend(lesson.adjustment.map(|adjustment| (Arc::clone(&book.name), adjustment)));
        }
        self.dispatch(&ticket.doors());
        heard
    }

    pub(super) fn release(&mut self, ticket: &SlotGrant) {
        for &(InstanceId(door), spell) in &ticket.doors {
            self.doors[door].limiter.release(spell, ticket.started, self.now);
        }
        self.dispatch(&ticket.doors());
    }

    /// Returns snapshots of all configured scopes. Evicts idle partitions on the way.
    pub(super) fn snapshots(&mut self, now: Timestamp) -> Vec<ScopeState> {
        self.now = self.now.max(now);
        let (now, doors) = (self.now, &mut self.doors);
        let states = self.groups.iter_mut().filter_map(|family| {
            family.evict_idle(doors, now);
            family.state(doors, now)
        });
        states.collect()
    }

    /// Returns the `count` busiest partitions of the scope `name`.
    pub(super) fn busiest(&self, name: &str, count: usize, now: Timestamp) -> Vec<ScopeState> {
        let family = self.groups.iter().find(|family| *family.name == *name);
        family.map_or_else(Vec::new, |family| family.busiest(count, &self.doors, self.now.max(now)))
    }

    /// Grants slots, in order, to all waiters that can start after a change of `instances`, with the slots that this
    /// change unreserves elsewhere.
    fn dispatch(&mut self, doors: &[InstanceId]) {
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
    fn claim_timer(&mut self, id: WaiterId, doors: &[InstanceId]) -> Option<Timestamp> {
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
    fn blocked_by(&self, doors: &[InstanceId]) -> Option<BlockedBy> {
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
    fn grant(&mut self, id: Option<WaiterId>, doors: &[InstanceId], chance: f64) -> SlotGrant {
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

    fn enqueue(&mut self, doors: Few<InstanceId>, request: SlotRequest, until: Timestamp) -> WaiterId {
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
    fn dequeue(&mut self, id: WaiterId) -> Few<InstanceId> {
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

    fn evict(&mut self, id: WaiterId) {
        let doors = self.dequeue(id);
        let closed = self.rejection(&doors);
        if let Some(place) = self.waiters.get_mut(&id) {
            place.standing = WaiterState::Evicted(closed);
            self.wakers.extend(place.waker.take());
        }
        self.dispatch(&doors);
    }

    fn full_instance(&self, doors: &[InstanceId]) -> Option<InstanceId> {
        let is_full = |door: &InstanceId| {
            let book = &self.doors[door.0].limiter;
            book.rules.as_ref().is_some_and(|rules| book.queue_length >= rules.queue.max_length)
        };
        doors.iter().copied().find(is_full)
    }

    /// Returns the waiter that a request of `priority` may evict from a full queue.
    fn eviction_candidate(&self, InstanceId(door): InstanceId, priority: u8) -> Option<WaiterId> {
        let door = &self.doors[door];
        door.lowest_priority().filter(|lowest| *lowest < priority)?;
        let last = door.queues().filter_map(|lane| self.queues[lane.0].back());
        last.min_by_key(|&(priority, place)| (priority, Reverse(place))).map(|(_, place)| place)
    }

    /// Builds the rejection for a request that cannot be served in time. Its `Retry-After` lies behind all current
    /// waiters, regardless of priority.
    fn rejection(&self, doors: &[InstanceId]) -> ThrottleRejection {
        let all = || doors.iter().map(|door| &self.doors[door.0]);
        let wait = all().map(|door| door.limiter.estimated_wait(self.now)).max();
        let worst = all().max_by_key(|door| (door.limiter.blocked_by(self.now), door.limiter.estimated_wait(self.now)));
        let scope = worst.map_or_else(|| "".into(), |door| Arc::clone(&door.scope));
        let rests = matches!(self.blocked_by(doors), Some(BlockedBy::Backoff(_) | BlockedBy::Probing));
        let reason = if rests { Reason::Backoff } else { Reason::Throttle };
        ThrottleRejection { scope, reason, retry_after: wait.unwrap_or_default() }
    }

    fn rules(&self, doors: &[InstanceId]) -> impl Iterator<Item = &throttle::ThrottleConfig> {
        doors.iter().filter_map(|door| self.doors[door.0].limiter.rules.as_deref())
    }
}

#[cfg(test)]
impl Scheduler {
    /// Test only: returns true if any waiter could start at `now`.
    pub(super) fn has_runnable_waiter(&mut self, now: Timestamp) -> bool {
        self.now = self.now.max(now);
        self.queues.iter().any(|(lane, _)| self.queue_blocked_by(QueueId(lane)).is_none())
    }

    /// Test only: returns true if there are no waiters, slots or queues.
    pub(super) fn is_empty(&self) -> bool {
        let is_bare = |door: &ScopeInstance| {
            !door.has_waiters() && door.lowest_priority().is_none() && door.timer_owner.is_none()
        };
        self.waiters.is_empty()
            && self.queues.is_empty()
            && self.queue_by_instances.is_empty()
            && self.doors.iter().all(|(_, door)| is_bare(door))
    }
}

impl SlotGrant {
    fn doors(&self) -> Few<InstanceId> {
        self.doors.iter().map(|(door, _)| *door).collect()
    }
}
