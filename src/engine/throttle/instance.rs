//! The door to one scope: its book, and the lanes before it.

use super::limiter::ScopeLimiter;
use super::scheduler::WaiterId;
use super::wait_queue::QueueId;
use crate::policy::throttle::ThrottleConfig;
use crate::policy::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A door, by its place on the floor. One that is forgotten gives its place to another: whoever is in a scope or waits
/// for it keeps it from being forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct InstanceId(pub(super) usize);

/// One door.
pub(super) struct ScopeInstance {
    /// The name of its scope in the settings.
    pub(super) scope: Arc<str>,
    pub(super) limiter: ScopeLimiter,
    /// Who looks again when time alone opens it, and when that will be; woken like an alarm clock, so that not all are.
    pub(super) timer_owner: Option<(WaiterId, Timestamp)>,
    /// The lanes in which somebody waits for it, that of whoever has waited longest first.
    lanes: BTreeSet<(WaiterId, QueueId)>,
    /// How many wait for it, by priority.
    waiters_by_priority: BTreeMap<u8, u32>,
    last_used: Timestamp,
}

/// What was learned of a scope by value (its delay, its level of backoff) is forgotten when nobody has asked for so long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

impl ScopeInstance {
    pub(super) fn new(scope: &Arc<str>, name: &str, rules: Option<Arc<ThrottleConfig>>, now: Timestamp) -> Self {
        let mut limiter = ScopeLimiter::new(name);
        limiter.update_config(rules, now);
        Self {
            scope: Arc::clone(scope),
            limiter: limiter,
            timer_owner: None,
            lanes: BTreeSet::new(),
            waiters_by_priority: BTreeMap::new(),
            last_used: Timestamp::default(),
        }
    }

    pub(super) fn touch(&mut self, now: Timestamp) {
        self.last_used = now;
    }

    /// Returns whether it may be forgotten.
    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        let is_old = now.saturating_duration_since(self.last_used) >= IDLE_TIMEOUT;
        self.limiter.is_pristine(now) || (is_old && self.limiter.is_empty(now))
    }

    pub(super) fn has_waiters(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// The lanes before it, that of whoever has waited longest first.
    pub(super) fn queues(&self) -> impl Iterator<Item = QueueId> {
        self.lanes.iter().map(|(_, lane)| *lane)
    }

    /// Who has waited longest.
    pub(super) fn oldest(&self) -> Option<WaiterId> {
        self.lanes.first().map(|(place, _)| *place)
    }

    /// The lowest priority of those who wait.
    pub(super) fn lowest_priority(&self) -> Option<u8> {
        self.waiters_by_priority.first_key_value().map(|(priority, _)| *priority)
    }

    pub(super) fn on_enqueue(&mut self, priority: u8) {
        self.limiter.queue_length += 1;
        *self.waiters_by_priority.entry(priority).or_default() += 1;
    }

    pub(super) fn on_dequeue(&mut self, place: WaiterId, priority: u8) {
        self.limiter.queue_length = self.limiter.queue_length.saturating_sub(1);
        if let Some(count) = self.waiters_by_priority.get_mut(&priority) {
            *count -= 1;
            if *count == 0 {
                self.waiters_by_priority.remove(&priority);
            }
        }
        if self.timer_owner.is_some_and(|(known, _)| known == place) {
            self.timer_owner = None;
        }
    }

    /// The one who has waited longest in `lane` was `before`, and is `now`.
    pub(super) fn set_queue_head(&mut self, lane: QueueId, before: Option<WaiterId>, now: Option<WaiterId>) {
        if before == now {
            return;
        }
        if let Some(before) = before {
            self.lanes.remove(&(before, lane));
        }
        if let Some(now) = now {
            self.lanes.insert((now, lane));
        }
    }
}
