//! The explanation as a document: what `--json` prints and the admin API answers.

use super::remedy::Remedy;
use super::step::Step;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Why a request is treated as it is. Times are RFC 3339 in UTC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The request.
    pub request: RequestSummary,
    /// Every step, in the order of a request's life.
    pub steps: Vec<Step>,
    /// What the client is told. Two, where it depends on the requests before it: if it is let through, and if not.
    #[serde(rename = "answers")]
    pub responses: Vec<ResponseSummary>,
    /// Each by itself would have been enough; nothing, where it is let through.
    #[serde(rename = "would_let_it_through")]
    pub remedies: Vec<Remedy>,
    /// What a log says otherwise, or does not say.
    pub notes: Vec<String>,
}

/// What was asked, by whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestSummary {
    /// When.
    pub time: String,
    /// The decision's id, where it was made by a gate.
    pub decision: Option<String>,
    /// The method.
    pub method: String,
    /// The host; empty where none was named.
    pub host: String,
    /// The path as rules match it.
    pub path: String,
    /// The query, without its question mark.
    pub query: Option<String>,
    /// The client's address.
    pub client: String,
    /// The user agent; empty where none was sent.
    pub user_agent: String,
}

/// What the client is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResponseSummary {
    /// Whether it goes on.
    pub verdict: Verdict,
    /// What said no.
    pub reason: Option<String>,
    /// What would have said no, were it enforced.
    pub shadow: Option<String>,
    /// The status; none where the origin gives it.
    pub status: Option<u16>,
    /// How long it is told to stay away; `retry_after_spread` of the settings may be added.
    pub retry_after_s: Option<u64>,
    /// The fields that say why.
    pub fields: BTreeMap<String, String>,
    /// What the verdict depends on, where it depends on other requests.
    pub depends_on: Vec<String>,
}

/// Whether a request goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// To the origin.
    Admitted,
    /// It is turned away.
    Refused,
}
