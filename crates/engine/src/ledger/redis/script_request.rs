//! Request of the lease script.

use serde::Serialize;

/// Request of the script, as JSON. Amounts are milli-units and times are microseconds. The script computes with doubles,
/// which represent them exactly up to 2^53. Larger ids of windows are text.
#[derive(Serialize)]
pub(super) struct ScriptRequest<'a> {
    pub(super) operation: &'static str,
    /// Incarnation that sends the request.
    pub(super) holder: &'a str,
    /// Sequence number of the call within the incarnation.
    pub(super) seq: u64,
    pub(super) window_id: String,
    /// Start of the window, once it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) starts: Option<u64>,
    /// End of the window, once it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ends: Option<u64>,
    /// Number of earlier windows that count in a sliding window.
    pub(super) lookback: u32,
    /// True if `window_id` is the ordinal of a first-use window.
    pub(super) is_ordinal: bool,
    pub(super) limit: u64,
    pub(super) taken: u64,
    pub(super) held: u64,
    pub(super) wanted: u64,
    /// Units that are needed soon.
    pub(super) urgent: u64,
    pub(super) expected_demand: u64,
    /// Fallback units of the last reply that this instance has not used.
    pub(super) fallback: u64,
    pub(super) fallback_enabled: bool,
    /// True if the instance has received a reply for this window.
    pub(super) reply_received: bool,
    /// State of the quota as last reported to this instance, if the script has asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reported_state: Option<&'a str>,
    /// Usage set by a manual correction.
    pub(super) used: u64,
}
