//! Whose turn it is: requests on their way to the origin enter all of their scopes at once, or wait in line.
//!
//! Requests of the same scopes stand in one [lane](lane::Lane), in which all are alike to the origin: as long as its
//! scopes hinder it, nobody in it can go, so each start looks at lanes, not at those who wait. Within a lane, the
//! highest priority goes first, and clients of one priority take turns. One of [`OLDEST_EVERY`] starts of a scope goes to
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

mod limiter;
mod slot_cooldown;
mod instance;
mod group;
mod scheduler;
mod wait_queue;
mod slot_guard;
#[cfg(test)]
mod tests;
mod queued;

pub use limiter::ScopeState;
pub use slot_guard::SlotGuard;
pub use queued::{QueuePoll, QueuedRequest};

use crate::policy::Reason;
use crate::policy::identity::ClientKey;
use crate::policy::throttle::Scope;
use crate::policy::throttle::autothrottle::Adjustment;
use crate::policy::throttle::partition::{PartitionInput, PartitionKey};
use crate::policy::time::Timestamp;
use instance::InstanceId;
use scheduler::{ScheduleResult, ScopeGroupId, Scheduler, PartitionValue};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// Most requests touch one scope, few more.
type Few<T> = SmallVec<[T; 2]>;

/// Of so many starts of a scope, one is of whoever has waited longest.
pub const OLDEST_EVERY: u32 = 8;

/// What becomes of a request that has come to its scopes.
#[must_use]
pub enum AcquireOutcome {
    /// It may go on, and holds its slots as long as it holds the pass; none, where nothing is throttled.
    Open(Option<SlotGuard>),
    /// It stands in line.
    Line(QueuedRequest),
    /// It could not be served in time.
    Closed(ThrottleRejection),
}

/// Why nobody is let in, and when to come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThrottleRejection {
    /// The scope that says no: of several, the one that does so for longest.
    pub scope: Arc<str>,
    /// [`Reason::Throttle`], or [`Reason::Backoff`] where the scope rests.
    pub reason: Reason,
    /// How long until a request may well be served.
    pub wait: Duration,
}

/// What followed from an outcome.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResponseFeedback {
    /// How long the scopes rest, if it was a complaint to one of them.
    pub rest: Option<ThrottleRejection>,
    /// The scopes that begin to rest, and for how long.
    pub begin_to_rest: Vec<(Arc<str>, Duration)>,
    /// What it did to the delay of each scope that is watched, by name.
    pub adjusted: Vec<(Arc<str>, Adjustment)>,
}

/// Who asks for a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotRequest {
    /// The client: clients of one priority take turns.
    pub(super) client: ClientKey,
    /// Higher goes first.
    pub(super) priority: u8,
    /// A number from 0 to 1, by which delays are varied.
    pub(super) chance: f64,
}

/// The throttle of all scopes, for as long as the process lives.
#[derive(Default)]
pub(super) struct Throttle {
    floor: Mutex<Scheduler>,
    /// By which values are known.
    secrets: RandomState,
}

/// The way of a route's requests through its throttled scopes.
#[derive(Debug)]
pub(super) struct RouteScopes(Few<ScopeRef>);

/// One scope on the way.
#[derive(Debug)]
enum ScopeRef {
    /// It is there once.
    One(InstanceId),
    /// It is there once for each value.
    OfValue(ScopeGroupId, PartitionKey),
}

/// One scope that a request goes to.
enum ScopeTarget<'a> {
    One(InstanceId),
    OfValue(ScopeGroupId, PartitionValue<'a>),
}

impl Throttle {
    /// Puts the settings of `scopes` in force, on scopes that keep their state by name.
    pub(super) fn follow(&self, scopes: &[Scope]) {
        self.change(|floor| floor.follow(scopes));
    }

    /// Returns the way through the scopes named, of which only throttled ones count; none where there are none.
    pub(super) fn way<'a>(&self, scopes: impl Iterator<Item = &'a Scope>) -> Option<RouteScopes> {
        let mut floor = self.floor.lock();
        let steps: Few<ScopeRef> = scopes.filter(|scope| scope.throttle.is_some()).map(|scope| floor.step(scope)).collect();
        (!steps.is_empty()).then_some(RouteScopes(steps))
    }

    /// Lets `comer` in, or gives it a place in line. What it has `said` of itself leads it to its scopes by value.
    pub(super) fn enter<'a>(self: &Arc<Self>, way: &RouteScopes, said: &PartitionInput<'a>, comer: SlotRequest, now: Timestamp) -> AcquireOutcome {
        let goal = |step: &ScopeRef| match step {
            ScopeRef::One(door) => ScopeTarget::One(*door),
            ScopeRef::OfValue(family, from) => {
                let text = from.of(said);
                ScopeTarget::OfValue(*family, PartitionValue { hash: self.secrets.hash_one(&text), text })
            }
        };
        // Hashed before the lock is taken.
        let goals: Few<ScopeTarget<'a>> = way.0.iter().map(goal).collect();
        let arrival = self.change(|floor| {
            let doors = floor.doors(&goals, now);
            floor.arrive(doors, comer, now)
        });
        match arrival {
            ScheduleResult::Starts(ticket) => AcquireOutcome::Open(Some(SlotGuard::new(Arc::clone(self), ticket))),
            ScheduleResult::Waits(place) => AcquireOutcome::Line(QueuedRequest::new(Arc::clone(self), place)),
            ScheduleResult::TurnedAway(closed) => AcquireOutcome::Closed(closed),
        }
    }

    pub(super) fn states(&self, now: Timestamp) -> Vec<ScopeState> {
        self.floor.lock().states(now)
    }

    pub(super) fn busiest(&self, name: &str, count: usize, now: Timestamp) -> Vec<ScopeState> {
        self.floor.lock().busiest(name, count, now)
    }

    /// Changes the floor, then wakes whom that concerns, without the lock.
    fn change<T>(&self, change: impl FnOnce(&mut Scheduler) -> T) -> T {
        let (result, woken) = {
            let mut floor = self.floor.lock();
            let result = change(&mut floor);
            (result, floor.take_woken())
        };
        woken.into_iter().for_each(Waker::wake);
        result
    }
}
