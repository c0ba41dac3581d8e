//! Guard of the slots that a request holds in all of its scopes.

use super::ids::SlotGrant;
use super::{ResponseFeedback, Throttle};
use std::sync::Arc;
use tidegate_policy::Timestamp;
use tidegate_policy::throttle::OriginOutcome;

/// Holds a slot in each scope of a request. Releases the slots on drop.
#[must_use]
pub struct SlotGuard {
    throttle: Arc<Throttle>,
    grant: SlotGrant,
}

impl SlotGuard {
    pub(super) fn new(throttle: Arc<Throttle>, grant: SlotGrant) -> Self {
        Self { throttle, grant }
    }

    /// Reports the outcome of the request to its scopes. Returns the effects.
    pub fn record_response(&self, outcome: &OriginOutcome, random: f64, now: Timestamp) -> ResponseFeedback {
        self.throttle.with_scheduler(|scheduler| scheduler.record_response(&self.grant, outcome, random, now))
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.throttle.with_scheduler(|scheduler| scheduler.release(&self.grant));
    }
}
