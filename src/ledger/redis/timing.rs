//! How long things take between gates and a shared ledger. All gates on one quota must agree, so none of it can be set.

use std::time::Duration;

/// Spans that the script is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// After the ledger was new, or was lost: how long gates have to speak up. A gate that is up asks once a second and
    /// tries again after a second at most.
    pub recovery_grace: Duration,
    /// A gate that was silent for so long before a loss is not waited for; what is known of it counts.
    pub liveness_window: Duration,
    /// How far ahead a window may be leased: ten seconds, and some for clocks that differ.
    pub max_lead: Duration,
    /// How long a window is remembered once it weighs no more.
    pub grace: Duration,
    /// How long an earlier life of a gate must be silent before the next one takes over its lease.
    pub takeover_after: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            recovery_grace: Duration::from_secs(3),
            liveness_window: Duration::from_secs(60),
            max_lead: Duration::from_secs(15),
            grace: Duration::from_secs(60),
            takeover_after: Duration::from_secs(3),
        }
    }
}
