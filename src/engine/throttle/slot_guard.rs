//! The right to be at the origin, in all scopes of a request.

use super::scheduler::SlotGrant;
use super::{ResponseFeedback, Throttle};
use crate::policy::throttle::OriginOutcome;
use crate::policy::time::Timestamp;
use std::sync::Arc;

/// Holds a slot in each scope of a request. Dropped, it gives them to the next.
#[must_use]
pub struct SlotGuard {
    throttle: Arc<Throttle>,
    ticket: SlotGrant,
}

impl SlotGuard {
    pub(super) fn new(throttle: Arc<Throttle>, ticket: SlotGrant) -> Self {
        Self { throttle, ticket }
    }

    /// Tells the scopes what the origin did. Returns what followed.
    pub fn record_response(&self, outcome: &OriginOutcome, chance: f64, now: Timestamp) -> ResponseFeedback {
        self.throttle.with_scheduler(|floor| floor.record_response(&self.ticket, outcome, chance, now))
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.throttle.with_scheduler(|floor| floor.release(&self.ticket));
    }
}
