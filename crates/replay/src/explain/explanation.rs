//! The explanation document: printed by `--json` and returned by the admin API.

use super::remedy::Remedy;
use super::step::Step;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Explanation of a decision. Times are RFC 3339 in UTC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The explained request.
    pub request: RequestSummary,
    /// All steps, in processing order.
    pub steps: Vec<Step>,
    /// The response. If it depends on earlier requests, two: one if the request is admitted, one if it is refused.
    pub responses: Vec<ResponseSummary>,
    /// Changes, each of which alone would admit the request; empty if it is admitted.
    pub remedies: Vec<Remedy>,
    /// Differences from the log, and fields missing in it.
    pub notes: Vec<String>,
}

/// Summary of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestSummary {
    /// Time of arrival.
    pub time: String,
    /// Id of the decision; `None` if no gateway made it.
    pub decision: Option<String>,
    /// Request method.
    pub method: String,
    /// Requested host; empty if unknown.
    pub host: String,
    /// Normalized path, as rules match it.
    pub path: String,
    /// Query string, without the question mark.
    pub query: Option<String>,
    /// Address of the client.
    pub client: String,
    /// User agent; empty if none was sent.
    pub user_agent: String,
}

/// Summary of a response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResponseSummary {
    /// Verdict on the request.
    pub verdict: Verdict,
    /// Reason of the refusal.
    pub reason: Option<String>,
    /// Reason for which a rule in shadow mode would have refused the request.
    pub shadow: Option<String>,
    /// Response status; `None` if the origin determines it.
    pub status: Option<u16>,
    /// `Retry-After` in seconds, without the jitter of `headers.retry_after_spread`.
    pub retry_after_s: Option<u64>,
    /// Response headers that announce limits.
    pub headers: BTreeMap<String, String>,
    /// Conditions on earlier requests that determine the verdict; empty if it does not depend on them.
    pub depends_on: Vec<String>,
}

/// Verdict on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The request is forwarded to the origin.
    Admitted,
    /// The request is refused.
    Refused,
}
