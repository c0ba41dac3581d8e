//! Grants each request a slot in all of its scopes at once, or queues it. The main type is [`Throttle`].
//!
//! Requests that need the same scope instances share a [queue](wait_queue::WaitQueue), so one check decides for all of
//! them. A queue is ordered by priority, then round-robin over clients. One of [`OLDEST_FIRST_INTERVAL`] grants of an
//! instance goes to its oldest waiter, whatever the priority. Until that waiter also gets its other scopes, the last
//! free slot is reserved for it; other requests use the remaining slots.
//!
//! A single lock covers all scopes for the length of one operation, including the creation of a partition ([group]). So
//! no request holds one scope while it waits for another, and no lock order can be wrong. Instances with requests or
//! waiters are never evicted. Requests without a throttled scope never take the lock.

mod dispatch;
mod group;
mod ids;
mod instance;
mod limiter;
mod queued;
mod queueing;
mod scheduler;
mod slot_cooldown;
mod slot_guard;
mod subject_instances;
mod subjects;
#[cfg(test)]
mod tests;
mod wait_queue;
mod waiter;

pub use limiter::ScopeState;
pub use queued::{QueuePoll, QueuedRequest};
pub use slot_guard::SlotGuard;

use crate::InlineVec;
use ids::{InstanceId, PartitionValue, ScopeGroupId};
use parking_lot::Mutex;
use scheduler::{ScheduleResult, Scheduler};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use tidegate_policy::throttle::Scope;
use tidegate_policy::throttle::autothrottle::Adjustment;
use tidegate_policy::throttle::overload::RequestSource;
use tidegate_policy::throttle::partition::{PartitionInput, PartitionKey};
use tidegate_policy::{Reason, Timestamp};

/// Number of grants of an instance of which one goes to its oldest waiter.
pub const OLDEST_FIRST_INTERVAL: u32 = 8;

/// Result of a request for slots.
#[must_use]
pub enum AcquireOutcome {
    /// All slots are granted until the guard is dropped; `None` if no scope of the request is throttled.
    Acquired(Option<SlotGuard>),
    /// The request waits in a queue.
    Queued(QueuedRequest),
    /// The request is rejected: the wait would be too long, or a queue is full.
    Rejected(ThrottleRejection),
}

/// Reason and retry time of a rejected request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThrottleRejection {
    /// Name of the scope that rejects; if several do, the one that blocks longest.
    pub scope: Arc<str>,
    /// [`Reason::Throttle`], or [`Reason::Backoff`] if the scope backs off.
    pub reason: Reason,
    /// Estimated time until a request can be served.
    pub retry_after: Duration,
}

/// Effects of a response on the scopes of its request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResponseFeedback {
    /// Longest backoff of these scopes, if the response was an overload for one of them.
    pub backoff: Option<ThrottleRejection>,
    /// Scopes that entered backoff, each with its duration.
    pub entered_backoff: Vec<(Arc<str>, Duration)>,
    /// Changes of the delay, by scope name, for scopes that log their adjustments.
    pub delay_adjustments: Vec<(Arc<str>, Adjustment)>,
}

/// A request for slots: source, priority and jitter.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotRequest {
    /// Client, network and route. Clients of one priority are served round-robin.
    pub(super) source: RequestSource,
    /// Priority; a higher value is served first.
    pub(super) priority: u8,
    /// Random number from 0 to 1 for the jitter of delays.
    pub(super) random: f64,
    /// False if the request takes only what is free.
    pub(super) may_wait: bool,
}

/// Throttle of all scopes; one per process.
#[derive(Default)]
pub(super) struct Throttle {
    scheduler: Mutex<Scheduler>,
    /// Per-process key of the hashes that identify partition values.
    partition_hasher: RandomState,
}

/// Throttled scopes of a route.
#[derive(Debug)]
pub(super) struct RouteScopes(InlineVec<ScopeRef>);

/// Reference to one throttled scope of a route.
#[derive(Debug)]
enum ScopeRef {
    /// Scope with a single instance.
    Single(InstanceId),
    /// Scope with one instance per value of the partition key.
    Partitioned(ScopeGroupId, PartitionKey),
}

/// Scope reference with the partition value of a request.
enum ScopeTarget<'a> {
    Single(InstanceId),
    Partitioned(ScopeGroupId, PartitionValue<'a>),
}

impl Throttle {
    /// Applies the configuration of `scopes`. Scopes keep their state by name.
    pub(super) fn update_config(&self, scopes: &[Scope]) {
        self.with_scheduler(|scheduler| scheduler.update_config(scopes));
    }

    /// Returns references to the throttled scopes among `scopes`, or `None` if there are none.
    pub(super) fn route_scopes<'a>(&self, scopes: impl Iterator<Item = &'a Scope>) -> Option<RouteScopes> {
        let mut scheduler = self.scheduler.lock();
        let scope_refs: InlineVec<ScopeRef> =
            scopes.filter(|scope| scope.throttle.is_some()).map(|scope| scheduler.scope_ref(scope)).collect();
        (!scope_refs.is_empty()).then_some(RouteScopes(scope_refs))
    }

    /// Acquires slots in all scopes of a route, or queues the request. The partition input selects the partitions.
    pub(super) fn acquire<'a>(
        self: &Arc<Self>,
        scopes: &RouteScopes,
        input: &PartitionInput<'a>,
        request: SlotRequest,
        now: Timestamp,
    ) -> AcquireOutcome {
        let target = |scope_ref: &ScopeRef| match scope_ref {
            ScopeRef::Single(instance) => ScopeTarget::Single(*instance),
            ScopeRef::Partitioned(group, from) => {
                let text = from.extract(input);
                ScopeTarget::Partitioned(*group, PartitionValue { hash: self.partition_hasher.hash_one(&text), text })
            }
        };
        // Hash the values before the lock is taken.
        let targets: InlineVec<ScopeTarget<'a>> = scopes.0.iter().map(target).collect();
        let result = self.with_scheduler(|scheduler| {
            let instances = scheduler.resolve_instances(&targets, &request.source, now);
            scheduler.acquire(&instances, request, now)
        });
        match result {
            ScheduleResult::Granted(grant) => AcquireOutcome::Acquired(Some(SlotGuard::new(Arc::clone(self), grant))),
            ScheduleResult::Queued(waiter) => AcquireOutcome::Queued(QueuedRequest::new(Arc::clone(self), waiter)),
            ScheduleResult::Rejected(rejection) => AcquireOutcome::Rejected(rejection),
        }
    }

    pub(super) fn snapshots(&self, now: Timestamp) -> Vec<ScopeState> {
        self.scheduler.lock().snapshots(now)
    }

    pub(super) fn busiest_partitions(&self, name: &str, count: usize, now: Timestamp) -> Vec<ScopeState> {
        self.scheduler.lock().busiest(name, count, now)
    }

    /// Runs a change under the lock, then wakes the affected waiters without the lock.
    fn with_scheduler<T>(&self, change: impl FnOnce(&mut Scheduler) -> T) -> T {
        let (result, wakers) = {
            let mut scheduler = self.scheduler.lock();
            let result = change(&mut scheduler);
            (result, scheduler.take_wakers())
        };
        wakers.into_iter().for_each(Waker::wake);
        result
    }
}
