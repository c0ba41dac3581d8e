//! Export of traces.

use super::ReceiverUrl;
use std::time::Duration;
use tidegate_policy::tier::Share;

/// Export of traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traces {
    /// Collector.
    pub endpoint: ReceiverUrl,
    /// Share of all requests that are exported.
    pub sample: Share,
    /// Time in the queue and at the origin from which a request is exported.
    pub slow: Duration,
}
