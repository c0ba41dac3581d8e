//! Scheduler of the origin's concurrency slots: all scope instances and wait queues, behind the lock of
//! [`Throttle`](super::Throttle).

use super::group::ScopeGroup;
use super::instance::{InstanceId, ScopeInstance};
use super::limiter::{BlockedBy, ScopeState};
use super::wait_queue::{QueueId, WaitQueue};
use super::waiter::{Waiter, WaiterId, WaiterState};
use super::{Few, ResponseFeedback, ScopeRef, ScopeTarget, SlotRequest, ThrottleRejection};
use crate::policy::Reason;
use crate::policy::throttle::backoff::BackoffEpoch;
use crate::policy::throttle::{self, OriginOutcome, Scope};
use crate::policy::time::Timestamp;
use foldhash::fast::RandomState;
use slab::Slab;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// Schedules requests onto the slots of all throttled scopes.
#[derive(Default)]
pub(super) struct Scheduler {
    /// Latest time seen. Used by guards that are dropped without a time.
    pub(super) now: Timestamp,
    groups: Vec<ScopeGroup>,
    pub(super) doors: Slab<ScopeInstance>,
    /// Non-empty wait queues.
    pub(super) queues: Slab<WaitQueue>,
    pub(super) queue_by_instances: HashMap<Few<InstanceId>, QueueId, RandomState>,
    pub(super) waiters: BTreeMap<WaiterId, Waiter>,
    pub(super) next_place: u64,
    pub(super) wakers: Vec<Waker>,
}

/// Index of a scope group. Groups are never removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScopeGroupId(usize);

/// Value of the partition key of an instance.
pub(super) struct PartitionValue<'a> {
    /// Keyed hash of the value, with a per-process key, so that clients cannot construct collisions.
    pub(super) hash: u64,
    pub(super) text: Cow<'a, [u8]>,
}

/// Slots held by a request, one per scope instance.
#[derive(Clone, Debug)]
pub(super) struct SlotGrant {
    pub(super) doors: Few<(InstanceId, BackoffEpoch)>,
    pub(super) started: Timestamp,
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

    /// Builds the rejection for a request that cannot be served in time. Its `Retry-After` lies behind all current
    /// waiters, regardless of priority.
    pub(super) fn rejection(&self, doors: &[InstanceId]) -> ThrottleRejection {
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
