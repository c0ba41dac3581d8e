//! The right to be at the origin, in all scopes of a request.

use super::scheduler::Ticket;
use super::{Heard, Throttle};
use crate::policy::throttle::Outcome;
use crate::policy::time::Timestamp;
use std::sync::Arc;

/// Holds a slot in each scope of a request. Dropped, it gives them to the next.
#[must_use]
pub struct Pass {
    throttle: Arc<Throttle>,
    ticket: Ticket,
}

impl Pass {
    pub(super) fn new(throttle: Arc<Throttle>, ticket: Ticket) -> Self {
        Self { throttle, ticket }
    }

    /// Tells the scopes what the origin did. Returns what followed.
    pub fn heard(&self, outcome: &Outcome, chance: f64, now: Timestamp) -> Heard {
        self.throttle.change(|floor| floor.hear(&self.ticket, outcome, chance, now))
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.throttle.change(|floor| floor.leave(&self.ticket));
    }
}
