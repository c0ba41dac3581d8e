//! Time spans shared by instances and ledger. All instances of a quota must agree, so none of them is configurable.

use std::time::Duration;

/// Time spans passed to the script.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// Time that instances have to report after state was lost or created. A running instance sends a request every
    /// second, and retries after a second at most.
    pub recovery_grace: Duration,
    /// Liveness window: an instance without calls for this long before a loss is not waited for; its last known state
    /// counts.
    pub liveness_window: Duration,
    /// Maximum time before the start of a window at which it may be leased: ten seconds, plus clock skew.
    pub max_lead: Duration,
    /// Time for which a window is stored after its usage has expired.
    pub window_retention: Duration,
    /// Time without calls of an earlier incarnation after which the next one takes over its lease.
    pub takeover_delay: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            recovery_grace: Duration::from_secs(3),
            liveness_window: Duration::from_secs(60),
            max_lead: Duration::from_secs(15),
            window_retention: Duration::from_secs(60),
            takeover_delay: Duration::from_secs(3),
        }
    }
}
