//! Whose turn it is: requests on their way to the origin enter all of their scopes at once, or wait in line.
//!
//! Requests of the same scopes stand in one [lane](lane::Lane), in which all are alike to the origin: as long as its
//! scopes hinder it, nobody in it can go, so each start looks at lanes, not at those who wait. Within a lane, the
//! highest priority goes first, and clients of one priority take turns. One of [`OLDEST_EVERY`] starts of a scope goes to
//! whoever has waited longest for it, whatever the priority, and until that one also gets its other scopes the slot
//! is kept for it: with k others before it, a request starts at the latest with the 8 (k + 1)th.
//!
//! There is one lock for all scopes, held for the length of one of these steps. So a request never holds one scope
//! while it waits for another, and there is no order of locks that could be wrong. Requests without a throttled scope
//! never take it.

mod book;
mod cooling;
mod floor;
mod lane;
mod pass;
#[cfg(test)]
mod tests;
mod waiting;

pub use book::ScopeState;
pub use pass::Pass;
pub use waiting::{Turn, Waiting};

use crate::policy::Reason;
use crate::policy::identity::ClientKey;
use crate::policy::throttle::Scope;
use crate::policy::throttle::autothrottle::Adjustment;
use crate::policy::time::Timestamp;
use floor::{Arrival, Floor};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// Most requests touch one scope, few more.
type Few<T> = SmallVec<[T; 2]>;

/// Of so many starts of a scope, one is of whoever has waited longest.
pub const OLDEST_EVERY: u32 = 8;

/// What becomes of a request that has come to its scopes.
#[must_use]
pub enum Entrance {
    /// It may go on, and holds its slots as long as it holds the pass; none, where nothing is throttled.
    Open(Option<Pass>),
    /// It stands in line.
    Line(Waiting),
    /// It could not be served in time.
    Closed(Closed),
}

/// Why nobody is let in, and when to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// [`Reason::Throttle`], or [`Reason::Backoff`] where the scope rests.
    pub reason: Reason,
    /// How long until a request may well be served.
    pub wait: Duration,
}

/// What followed from an outcome.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heard {
    /// How long the scopes rest, if it was a complaint to one of them.
    pub rest: Option<Closed>,
    /// What it did to the delay of each scope that is watched, by name.
    pub adjusted: Vec<(String, Adjustment)>,
}

/// Who asks for a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comer {
    /// The client: clients of one priority take turns.
    pub(super) client: ClientKey,
    /// Higher goes first.
    pub(super) priority: u8,
    /// A number from 0 to 1, by which delays are varied.
    pub(super) chance: f64,
}

/// The throttle of all scopes, for as long as the process lives.
#[derive(Default)]
pub(super) struct Throttle(Mutex<Floor>);

/// The lane of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LaneId(usize);

impl Throttle {
    /// Puts the settings of `scopes` in force, on scopes that keep their state by name.
    pub(super) fn follow(&self, scopes: &[Scope]) {
        self.change(|floor| floor.follow(scopes));
    }

    /// Returns the lane of requests of the scopes named, of which only throttled ones count; none where there are none.
    pub(super) fn lane<'a>(&self, scopes: impl Iterator<Item = &'a Scope>) -> Option<LaneId> {
        let names: Vec<&str> =
            scopes.filter(|scope| scope.throttle.is_some()).map(|scope| scope.name.as_str()).collect();
        (!names.is_empty()).then(|| self.0.lock().lane(&names))
    }

    /// Lets `comer` in, or gives it a place in line.
    pub(super) fn enter(self: &Arc<Self>, lane: LaneId, comer: Comer, now: Timestamp) -> Entrance {
        match self.change(|floor| floor.arrive(lane, comer, now)) {
            Arrival::Starts(ticket) => Entrance::Open(Some(Pass::new(Arc::clone(self), ticket))),
            Arrival::Waits(place) => Entrance::Line(Waiting::new(Arc::clone(self), place)),
            Arrival::TurnedAway(closed) => Entrance::Closed(closed),
        }
    }

    pub(super) fn states(&self, now: Timestamp) -> Vec<ScopeState> {
        self.0.lock().states(now)
    }

    /// Changes the floor, then wakes whom that concerns, without the lock.
    fn change<T>(&self, change: impl FnOnce(&mut Floor) -> T) -> T {
        let (result, woken) = {
            let mut floor = self.0.lock();
            let result = change(&mut floor);
            (result, floor.take_woken())
        };
        woken.into_iter().for_each(Waker::wake);
        result
    }
}
