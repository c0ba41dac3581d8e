//! Whose turn it is: requests on their way to the origin enter all of their scopes at once, or wait in line.
//!
//! Requests of the same scopes stand in one [lane](lane::Lane), in which all are alike to the origin: as long as its
//! scopes hinder it, nobody in it can go, so each start looks at lanes, not at those who wait. Within a lane, the
//! highest priority goes first, and clients of one priority take turns. One of [`OLDEST_FIRST_INTERVAL`] starts of a scope goes to
//! whoever has waited longest for it, whatever the priority. Until that one also gets its other scopes, the last free slot
//! is kept for it, and the turn stays its own: others go on beside it, on the slots that are left.
//!
//! Some scopes are there once, some once for each value of something that requests say ([group]); those are made when they
//! are first asked for. What happens in a scope concerns the lanes before its [door](instance), and no others are looked at,
//! however many there are: at most as many as may wait for it, and none while it is shut.
//!
//! There is one lock for all scopes, held for the length of one of these steps. So a request never holds one scope
//! while it waits for another, and there is no order of locks that could be wrong. A scope that is made for a request is
//! found, made and entered, or waited for, in one step, and whoever is in it or waits for it keeps it from being
//! forgotten. Requests without a throttled scope never take the lock.

mod group;
mod instance;
mod limiter;
mod queued;
mod scheduler;
mod slot_cooldown;
mod slot_guard;
#[cfg(test)]
mod tests;
mod wait_queue;

pub use limiter::ScopeState;
pub use queued::{QueuePoll, QueuedRequest};
pub use slot_guard::SlotGuard;

use crate::policy::Reason;
use crate::policy::identity::ClientKey;
use crate::policy::throttle::Scope;
use crate::policy::throttle::autothrottle::Adjustment;
use crate::policy::throttle::partition::{PartitionInput, PartitionKey};
use crate::policy::time::Timestamp;
use instance::InstanceId;
use parking_lot::Mutex;
use scheduler::{PartitionValue, ScheduleResult, Scheduler, ScopeGroupId};
use smallvec::SmallVec;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// Most requests touch one scope, few more.
type Few<T> = SmallVec<[T; 2]>;

/// Of so many starts of a scope, one is of whoever has waited longest.
pub const OLDEST_FIRST_INTERVAL: u32 = 8;

/// What becomes of a request that has come to its scopes.
#[must_use]
pub enum AcquireOutcome {
    /// It may go on, and holds its slots as long as it holds the pass; none, where nothing is throttled.
    Acquired(Option<SlotGuard>),
    /// It stands in line.
    Queued(QueuedRequest),
    /// It could not be served in time.
    Rejected(ThrottleRejection),
}

/// Why nobody is let in, and when to come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThrottleRejection {
    /// The scope that says no: of several, the one that does so for longest.
    pub scope: Arc<str>,
    /// [`Reason::Throttle`], or [`Reason::Backoff`] where the scope rests.
    pub reason: Reason,
    /// How long until a request may well be served.
    pub retry_after: Duration,
}

/// What followed from an outcome.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResponseFeedback {
    /// How long the scopes rest, if it was a complaint to one of them.
    pub backoff: Option<ThrottleRejection>,
    /// The scopes that begin to rest, and for how long.
    pub entered_backoff: Vec<(Arc<str>, Duration)>,
    /// What it did to the delay of each scope that is watched, by name.
    pub delay_adjustments: Vec<(Arc<str>, Adjustment)>,
}

/// Who asks for a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotRequest {
    /// The client: clients of one priority take turns.
    pub(super) client: ClientKey,
    /// Higher goes first.
    pub(super) priority: u8,
    /// A number from 0 to 1, by which delays are varied.
    pub(super) random: f64,
}

/// The throttle of all scopes, for as long as the process lives.
#[derive(Default)]
pub(super) struct Throttle {
    scheduler: Mutex<Scheduler>,
    /// By which values are known.
    partition_hasher: RandomState,
}

/// The way of a route's requests through its throttled scopes.
#[derive(Debug)]
pub(super) struct RouteScopes(Few<ScopeRef>);

/// One scope on the way.
#[derive(Debug)]
enum ScopeRef {
    /// It is there once.
    Single(InstanceId),
    /// It is there once for each value.
    Partitioned(ScopeGroupId, PartitionKey),
}

/// One scope that a request goes to.
enum ScopeTarget<'a> {
    Single(InstanceId),
    Partitioned(ScopeGroupId, PartitionValue<'a>),
}

impl Throttle {
    /// Puts the settings of `scopes` in force, on scopes that keep their state by name.
    pub(super) fn update_config(&self, scopes: &[Scope]) {
        self.with_scheduler(|scheduler| scheduler.update_config(scopes));
    }

    /// Returns the way through the scopes named, of which only throttled ones count; none where there are none.
    pub(super) fn route_scopes<'a>(&self, scopes: impl Iterator<Item = &'a Scope>) -> Option<RouteScopes> {
        let mut scheduler = self.scheduler.lock();
        let steps: Few<ScopeRef> =
            scopes.filter(|scope| scope.throttle.is_some()).map(|scope| scheduler.scope_ref(scope)).collect();
        (!steps.is_empty()).then_some(RouteScopes(steps))
    }

    /// Lets `comer` in, or gives it a place in line. What it has `said` of itself leads it to its scopes by value.
    pub(super) fn acquire<'a>(
        self: &Arc<Self>,
        way: &RouteScopes,
        said: &PartitionInput<'a>,
        comer: SlotRequest,
        now: Timestamp,
    ) -> AcquireOutcome {
        let goal = |step: &ScopeRef| match step {
            ScopeRef::Single(door) => ScopeTarget::Single(*door),
            ScopeRef::Partitioned(family, from) => {
                let text = from.extract(said);
                ScopeTarget::Partitioned(*family, PartitionValue { hash: self.partition_hasher.hash_one(&text), text })
            }
        };
        // Hashed before the lock is taken.
        let goals: Few<ScopeTarget<'a>> = way.0.iter().map(goal).collect();
        let arrival = self.with_scheduler(|scheduler| {
            let doors = scheduler.resolve_instances(&goals, now);
            scheduler.acquire(doors, comer, now)
        });
        match arrival {
            ScheduleResult::Granted(ticket) => AcquireOutcome::Acquired(Some(SlotGuard::new(Arc::clone(self), ticket))),
            ScheduleResult::Queued(place) => AcquireOutcome::Queued(QueuedRequest::new(Arc::clone(self), place)),
            ScheduleResult::Rejected(closed) => AcquireOutcome::Rejected(closed),
        }
    }

    pub(super) fn snapshots(&self, now: Timestamp) -> Vec<ScopeState> {
        self.scheduler.lock().snapshots(now)
    }

    pub(super) fn busiest_partitions(&self, name: &str, count: usize, now: Timestamp) -> Vec<ScopeState> {
        self.scheduler.lock().busiest(name, count, now)
    }

    /// Changes the floor, then wakes whom that concerns, without the lock.
    fn with_scheduler<T>(&self, change: impl FnOnce(&mut Scheduler) -> T) -> T {
        let (result, woken) = {
            let mut scheduler = self.scheduler.lock();
            let result = change(&mut scheduler);
            (result, scheduler.take_wakers())
        };
        woken.into_iter().for_each(Waker::wake);
        result
    }
}
