//! State of one scope instance: its limiter and the wait queues that need it.

use super::ids::{InstanceId, QueueId, WaiterId};
use super::limiter::{ScopeLimiter, ScopeState};
use super::subjects::Subjects;
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::Timestamp;
use tidegate_policy::throttle::ThrottleConfig;
use tidegate_policy::throttle::overload::BackoffSubject;

/// Throttled instance of a scope: the only one, or one per partition.
pub(super) struct ScopeInstance {
    /// Name of the scope in the configuration.
    pub(super) scope: Arc<str>,
    pub(super) limiter: ScopeLimiter,
    /// Parts of the scope that back off on their own.
    pub(super) subjects: Subjects,
    /// The scope instance that this is a part of, and which one; `None` for a scope instance.
    pub(super) part_of: Option<(InstanceId, BackoffSubject)>,
    /// Waiter that polls when the instance is unblocked by time, and that time. Only this waiter sets a timer.
    pub(super) timer_owner: Option<(WaiterId, Timestamp)>,
    /// Queues with waiters for the instance, ordered by their oldest waiter.
    queues_by_oldest: BTreeSet<(WaiterId, QueueId)>,
    /// Number of waiters, by priority.
    waiters_by_priority: BTreeMap<u8, u32>,
    last_used: Timestamp,
}

/// Idle time after which a partition is evicted, including its learned delay and backoff level.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

impl ScopeInstance {
    pub(super) fn new(scope: &Arc<str>, name: Arc<str>, config: Option<Arc<ThrottleConfig>>, now: Timestamp) -> Self {
        let mut limiter = ScopeLimiter::new(name);
        limiter.update_config(config, now);
        Self {
            scope: Arc::clone(scope),
            limiter,
            subjects: Subjects::default(),
            part_of: None,
            timer_owner: None,
            queues_by_oldest: BTreeSet::new(),
            waiters_by_priority: BTreeMap::new(),
            last_used: Timestamp::default(),
        }
    }

    /// Returns a snapshot of a scope instance; `None` if it has no configuration. `instances` has its parts.
    pub(super) fn state(&self, instances: &Slab<Self>, now: Timestamp) -> Option<ScopeState> {
        let backoff_parts = self.subjects.count_backoffs(|part| instances[part.0].limiter.backs_off(now));
        Some(ScopeState { backoff_parts, ..self.limiter.state(now)? })
    }

    pub(super) fn touch(&mut self, now: Timestamp) {
        self.last_used = now;
    }

    /// Returns whether the instance may be evicted.
    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        let is_old = now.saturating_duration_since(self.last_used) >= IDLE_TIMEOUT;
        self.subjects.is_empty() && (self.limiter.is_pristine(now) || (is_old && self.limiter.is_empty(now)))
    }

    pub(super) fn has_waiters(&self) -> bool {
        !self.queues_by_oldest.is_empty()
    }

    /// Returns the queues of the instance, ordered by their oldest waiter.
    pub(super) fn queues(&self) -> impl Iterator<Item = QueueId> {
        self.queues_by_oldest.iter().map(|(_, queue)| *queue)
    }

    /// Returns the waiter that has waited longest.
    pub(super) fn oldest(&self) -> Option<WaiterId> {
        self.queues_by_oldest.first().map(|(waiter, _)| *waiter)
    }

    /// Returns the lowest priority among the waiters.
    pub(super) fn lowest_priority(&self) -> Option<u8> {
        self.waiters_by_priority.first_key_value().map(|(priority, _)| *priority)
    }

    pub(super) fn on_enqueue(&mut self, priority: u8) {
        self.limiter.queue_length += 1;
        *self.waiters_by_priority.entry(priority).or_default() += 1;
    }

    pub(super) fn on_dequeue(&mut self, waiter: WaiterId, priority: u8) {
        self.limiter.queue_length = self.limiter.queue_length.saturating_sub(1);
        if let Some(count) = self.waiters_by_priority.get_mut(&priority) {
            *count -= 1;
            if *count == 0 {
                self.waiters_by_priority.remove(&priority);
            }
        }
        if self.timer_owner.is_some_and(|(owner, _)| owner == waiter) {
            self.timer_owner = None;
        }
    }

    /// Records that the oldest waiter of a queue was `before` and is `after`.
    pub(super) fn set_queue_head(&mut self, queue: QueueId, before: Option<WaiterId>, after: Option<WaiterId>) {
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.queues_by_oldest.remove(&(before, queue));
        }
        if let Some(after) = after {
            self.queues_by_oldest.insert((after, queue));
        }
    }
}
