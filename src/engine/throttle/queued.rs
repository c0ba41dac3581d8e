//! A place in line.

use super::scheduler::{Look, PlaceId};
use super::{Closed, Pass, Throttle};
use crate::policy::time::Timestamp;
use std::sync::Arc;
use std::task::Waker;

/// A place in line. Dropped, it is free.
#[must_use]
pub struct Waiting {
    throttle: Arc<Throttle>,
    place: PlaceId,
}

/// How it stands with a place in line.
#[must_use]
pub enum Turn {
    /// It has come.
    Come(Pass),
    /// Not yet. The waker is woken when that may have changed; at `look_again` it has to be asked without.
    NotYet {
        /// When.
        look_again: Timestamp,
    },
    /// It will not come in time.
    Gone(Closed),
}

impl Waiting {
    pub(super) fn new(throttle: Arc<Throttle>, place: PlaceId) -> Self {
        Self { throttle, place }
    }

    /// Asks whether its turn has come. After [`Turn::Come`] or [`Turn::Gone`] there is nothing left to ask.
    pub fn poll(&mut self, waker: &Waker, now: Timestamp) -> Turn {
        match self.throttle.change(|floor| floor.look(self.place, waker, now)) {
            Look::Starts(ticket) => Turn::Come(Pass::new(Arc::clone(&self.throttle), ticket)),
            Look::Waits(look_again) => Turn::NotYet { look_again },
            Look::Gone(closed) => Turn::Gone(closed),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.throttle.change(|floor| floor.give_up(self.place));
    }
}
