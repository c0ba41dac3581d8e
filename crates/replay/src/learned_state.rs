//! What a gateway has learned before a log.

use serde::Serializer;
use tidegate_engine::LearnedDemand;
use tidegate_policy::bot_detection::LearnedBaseline;

/// What a gateway has learned of its site.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LearnedState {
    /// Demand by quota and class.
    pub demand: Vec<LearnedDemand>,
    /// Baseline of bot detection.
    pub baseline: LearnedBaseline,
}

impl LearnedState {
    /// Returns true if nothing was learned.
    pub fn is_empty(&self) -> bool {
        self.demand.is_empty() && self.baseline.is_empty()
    }

    /// Writes whether anything was learned.
    pub(crate) fn serialize_presence<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(!self.is_empty())
    }
}
