//! Scheduler of the origin's concurrency slots: all scope instances and wait queues, behind the lock of
//! [`Throttle`](super::Throttle).

use super::group::ScopeGroup;
use super::ids::{InstanceId, QueueId, ScopeGroupId, SlotGrant, WaiterId};
use super::instance::ScopeInstance;
use super::limiter::{BlockedBy, ScopeState};
use super::wait_queue::WaitQueue;
use super::waiter::{Waiter, WaiterState};
use super::{ResponseFeedback, ScopeRef, ScopeTarget, SlotRequest, ThrottleRejection};
use crate::InlineVec;
use foldhash::fast::RandomState;
use slab::Slab;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use tidegate_policy::throttle::overload::RequestSource;
use tidegate_policy::throttle::{OriginOutcome, Scope, ThrottleConfig};
use tidegate_policy::{Reason, Timestamp};

/// Schedules requests onto the slots of all throttled scopes.
#[derive(Default)]
pub(super) struct Scheduler {
    /// Latest time seen. Used by guards that are dropped without a time.
    pub(super) now: Timestamp,
    groups: Vec<ScopeGroup>,
    pub(super) instances: Slab<ScopeInstance>,
    /// Non-empty wait queues.
    pub(super) queues: Slab<WaitQueue>,
    pub(super) queue_by_instances: HashMap<InlineVec<InstanceId>, QueueId, RandomState>,
    pub(super) waiters: BTreeMap<WaiterId, Waiter>,
    pub(super) next_waiter_id: u64,
    /// Number of instances that are parts of a scope.
    pub(super) subject_count: usize,
    /// Wakers of waiters whose state may have changed, called once the lock is released.
    pub(super) wakers: Vec<Waker>,
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
    /// Still queued. At this time, poll without being woken.
    Queued(Timestamp),
    Rejected(ThrottleRejection),
}

impl Scheduler {
    /// Applies the configuration of `scopes`, and grants the slots that it frees.
    pub(super) fn update_config(&mut self, scopes: &[Scope]) {
        self.groups.iter_mut().for_each(ScopeGroup::remove_config);
        // Waiters of a removed instance keep its old limits; otherwise all of them would start at once.
        let empty = self.instances.iter_mut().filter(|(_, instance)| !instance.has_waiters());
        empty.for_each(|(_, instance)| instance.limiter.config = None);
        for scope in scopes.iter().filter(|scope| scope.throttle.is_some()) {
            let ScopeGroupId(group) = self.group_id(&scope.name);
            self.groups[group].update_config(scope, &mut self.instances, self.now);
        }
        self.update_subjects();
        let all: Vec<InstanceId> = self.instances.iter().map(|(instance, _)| InstanceId(instance)).collect();
        self.dispatch(&all);
        // Wake all waiters: the condition that blocks them may have changed.
        for waiter in self.waiters.values_mut() {
            self.wakers.extend(waiter.waker.take());
        }
    }

    /// Returns the reference by which routes address `scope`.
    pub(super) fn scope_ref(&mut self, scope: &Scope) -> ScopeRef {
        let ScopeGroupId(group) = self.group_id(&scope.name);
        match &scope.partitioning {
            None => ScopeRef::Single(self.groups[group].single(&mut self.instances, self.now)),
            Some(partitioning) => ScopeRef::Partitioned(ScopeGroupId(group), partitioning.key.clone()),
        }
    }

    fn group_id(&mut self, name: &str) -> ScopeGroupId {
        ScopeGroupId(self.groups.iter().position(|group| *group.name == *name).unwrap_or_else(|| {
            self.groups.push(ScopeGroup::new(name));
            self.groups.len() - 1
        }))
    }

    /// Returns the instances of `targets` and those of their parts that back off, sorted. Creates missing partitions.
    pub(super) fn resolve_instances(
        &mut self,
        targets: &[ScopeTarget<'_>],
        source: &RequestSource,
        now: Timestamp,
    ) -> InlineVec<InstanceId> {
        self.now = self.now.max(now);
        let instance = |target: &ScopeTarget<'_>| match target {
            ScopeTarget::Single(instance) => *instance,
            ScopeTarget::Partitioned(ScopeGroupId(group), value) => {
                self.groups[*group].instance_for(value, &mut self.instances, self.now)
            }
        };
        let mut instances: InlineVec<InstanceId> = targets.iter().map(instance).collect();
        self.add_subjects(&mut instances, source);
        instances.sort_unstable();
        instances
    }

    pub(super) fn take_wakers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers)
    }

    /// Grants a request a slot of each of `instances`, queues it, or rejects it.
    pub(super) fn acquire(
        &mut self,
        instances: &InlineVec<InstanceId>,
        request: SlotRequest,
        now: Timestamp,
    ) -> ScheduleResult {
        self.now = self.now.max(now);
        self.dispatch(instances);
        let Some(block) = self.blocked_by(instances) else {
            let grant = self.grant(None, instances, request);
            self.dispatch(instances);
            return ScheduleResult::Granted(grant);
        };
        if !request.may_wait {
            let rejection = self.rejection(instances);
            self.remove_idle_subjects(instances);
            return ScheduleResult::Rejected(rejection);
        }
        let max_wait = self.configs(instances).map(|config| config.queue.max_wait).min().unwrap_or_default();
        let deadline = self.now + max_wait;
        let mut evicted: InlineVec<InstanceId> = InlineVec::new();
        let is_rejected = block.persists_after(deadline)
            || max_wait.is_zero()
            || self.estimate_start(instances, request) > deadline
            // Checked in all instances before one evicts, so that a request that is rejected evicts no waiter.
            || instances.iter().any(|&instance| {
                self.is_full(instance) && self.eviction_candidate(instance, request.priority).is_none()
            });
        for &instance in instances {
            while !is_rejected
                && self.is_full(instance)
                && let Some(candidate) = self.eviction_candidate(instance, request.priority)
            {
                evicted.extend(self.evict(candidate));
            }
        }
        let result = match is_rejected {
            true => ScheduleResult::Rejected(self.rejection(instances)),
            false => ScheduleResult::Queued(self.enqueue(instances.clone(), request, deadline)),
        };
        // Only now, because an evicted waiter and the request can need the same instances.
        self.remove_idle_subjects(&evicted);
        self.remove_idle_subjects(instances);
        result
    }

    /// Returns the earliest time at which a request could start if it were queued now.
    fn estimate_start(&self, instances: &[InstanceId], request: SlotRequest) -> Timestamp {
        let queue = self.queue_by_instances.get(instances).map(|queue| &self.queues[queue.0]);
        let ahead = queue.map_or(0, |queue| queue.waiters_ahead(request.source.client, request.priority));
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
        let starts =
            instances.iter().map(|instance| self.instances[instance.0].limiter.earliest_start_after(ahead, self.now));
        starts.max().unwrap_or(self.now)
    }

    /// Returns the state of a waiter, and removes one that is granted or rejected.
    pub(super) fn poll_waiter(&mut self, id: WaiterId, waker: &Waker, now: Timestamp) -> WaiterPoll {
        self.now = self.now.max(now);
        if let Some(Waiter { queue, state: WaiterState::Queued, .. }) = self.waiters.get(&id) {
            let instances = self.queues[queue.0].instances.clone();
            self.dispatch(&instances);
        }
        let Some(waiter) = self.waiters.get(&id) else {
            return WaiterPoll::Rejected(ThrottleRejection {
                scope: "".into(),
                reason: Reason::Throttle,
                retry_after: Duration::ZERO,
            });
        };
        let (queue, deadline) = (waiter.queue, waiter.deadline);
        match &waiter.state {
            WaiterState::Granted(grant) => {
                let grant = grant.clone();
                self.waiters.remove(&id);
                return WaiterPoll::Granted(grant);
            }
            WaiterState::Evicted(rejection) => {
                let rejection = rejection.clone();
                self.waiters.remove(&id);
                return WaiterPoll::Rejected(rejection);
            }
            WaiterState::Queued => {}
        }
        let instances = self.queues[queue.0].instances.clone();
        if deadline <= self.now || self.blocked_by(&instances).is_some_and(|block| block.persists_after(deadline)) {
            self.dequeue(id);
            self.waiters.remove(&id);
            self.dispatch(&instances);
            let rejection = self.rejection(&instances);
            self.remove_idle_subjects(&instances);
            return WaiterPoll::Rejected(rejection);
        }
        let opens_at = self.claim_timer(id, &instances);
        if let Some(waiter) = self.waiters.get_mut(&id) {
            waiter.waker = Some(waker.clone());
        }
        WaiterPoll::Queued(opens_at.map_or(deadline, |opens_at| opens_at.min(deadline)))
    }

    /// Removes a waiter whose request has ended. Releases its slots if they are granted.
    pub(super) fn cancel(&mut self, id: WaiterId) {
        match self.waiters.get(&id).map(|waiter| &waiter.state) {
            None => {}
            Some(WaiterState::Queued) => {
                let instances = self.dequeue(id);
                self.waiters.remove(&id);
                self.dispatch(&instances);
                self.remove_idle_subjects(&instances);
            }
            Some(WaiterState::Evicted(_)) => {
                self.waiters.remove(&id);
            }
            Some(WaiterState::Granted(grant)) => {
                let grant = grant.clone();
                self.waiters.remove(&id);
                self.release(&grant);
            }
        }
    }

    /// Records a response in the scopes of `grant`. Returns what changed in them.
    pub(super) fn record_response(
        &mut self,
        grant: &SlotGrant,
        outcome: &OriginOutcome,
        random: f64,
        now: Timestamp,
    ) -> ResponseFeedback {
        self.now = self.now.max(now);
        let mut feedback = ResponseFeedback::default();
        for &(InstanceId(instance), epoch) in &grant.instances {
            if self.instances[instance].part_of.is_some() {
                continue;
            }
            let old_backoff = self.instances[instance].limiter.backoff_state.remaining(self.now);
            let effect = self.record_in_scope((InstanceId(instance), epoch), grant, outcome, random);
            let ScopeInstance { scope, limiter, .. } = &self.instances[instance];
            if let Some(backoff) = effect.backoff {
                if old_backoff.is_zero() && !backoff.is_zero() {
                    feedback.entered_backoff.push((Arc::clone(scope), backoff));
                }
                if feedback.backoff.as_ref().is_none_or(|longest| longest.retry_after < backoff) {
                    feedback.backoff = Some(ThrottleRejection {
                        scope: Arc::clone(scope),
                        reason: Reason::Backoff,
                        retry_after: backoff,
                    });
                }
            }
            feedback
                .delay_adjustments
                .extend(effect.adjustment.map(|adjustment| (Arc::clone(&limiter.name), adjustment)));
        }
        self.dispatch(&grant.instance_ids());
        feedback
    }

    /// Releases the slots of `grant`, and grants them to waiters.
    pub(super) fn release(&mut self, grant: &SlotGrant) {
        for &(InstanceId(instance), epoch) in &grant.instances {
            self.instances[instance].limiter.release(epoch, grant.granted_at, self.now);
        }
        let instances = grant.instance_ids();
        self.dispatch(&instances);
        self.remove_idle_subjects(&instances);
    }

    /// Returns snapshots of all configured scopes. Evicts idle partitions on the way.
    pub(super) fn snapshots(&mut self, now: Timestamp) -> Vec<ScopeState> {
        self.now = self.now.max(now);
        self.evict_idle_subjects();
        let (now, instances) = (self.now, &mut self.instances);
        let states = self.groups.iter_mut().filter_map(|group| {
            group.evict_idle(instances, now);
            group.state(instances, now)
        });
        states.collect()
    }

    /// Returns the `count` busiest partitions of the scope `name`.
    pub(super) fn busiest(&self, name: &str, count: usize, now: Timestamp) -> Vec<ScopeState> {
        let group = self.groups.iter().find(|group| *group.name == *name);
        group.map_or_else(Vec::new, |group| group.busiest(count, &self.instances, self.now.max(now)))
    }

    /// Returns the rejection of a request that cannot be served in time. It names the time by which all current waiters have
    /// started, whatever their priority.
    pub(super) fn rejection(&self, instances: &[InstanceId]) -> ThrottleRejection {
        let all = || instances.iter().map(|instance| &self.instances[instance.0]);
        let retry_after = all().map(|instance| instance.limiter.estimated_wait(self.now)).max().unwrap_or_default();
        let worst = all()
            .max_by_key(|instance| (instance.limiter.blocked_by(self.now), instance.limiter.estimated_wait(self.now)));
        let scope = worst.map_or_else(|| "".into(), |instance| Arc::clone(&instance.scope));
        let backs_off = matches!(self.blocked_by(instances), Some(BlockedBy::Backoff(_) | BlockedBy::Probing));
        let reason = if backs_off { Reason::Backoff } else { Reason::Throttle };
        ThrottleRejection { scope, reason, retry_after }
    }

    fn configs(&self, instances: &[InstanceId]) -> impl Iterator<Item = &ThrottleConfig> {
        instances.iter().filter_map(|instance| self.instances[instance.0].limiter.config.as_deref())
    }
}

#[cfg(test)]
impl Scheduler {
    /// Test only: returns true if there are no waiters, slots or queues.
    pub(super) fn is_empty(&self) -> bool {
        let is_unused = |instance: &ScopeInstance| {
            !instance.has_waiters() && instance.lowest_priority().is_none() && instance.timer_owner.is_none()
        };
        self.waiters.is_empty()
            && self.queues.is_empty()
            && self.queue_by_instances.is_empty()
            && self.instances.iter().all(|(_, instance)| is_unused(instance))
    }
}
