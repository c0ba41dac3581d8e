//! The access log fields that the invariants of the load test use.

use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Deserialize)]
pub struct AccessLogLine {
    pub host: String,
    pub path: String,
    pub status: u16,
    pub kind: String,
    pub class: String,
    pub cost: BTreeMap<String, f64>,
    pub charged: BTreeMap<String, f64>,
    pub verdict: String,
    pub reason: Option<String>,
    pub tier: Option<usize>,
    pub used: BTreeMap<String, f64>,
    pub seq: BTreeMap<String, u64>,
}

impl AccessLogLine {
    pub fn from_json(line: serde_json::Value) -> Self {
        serde_json::from_value(line).expect("line has the fields of the contract")
    }

    pub fn is_refused(&self) -> bool {
        self.verdict == "refused"
    }

    /// Returns true if this rule refused the request.
    pub fn is_refused_by(&self, reason: &str) -> bool {
        self.reason.as_deref() == Some(reason)
    }

    /// Returns the units of the quota that were taken just before the decision.
    pub fn taken_before(&self, quota: &str) -> f64 {
        self.used[quota] - if self.is_refused() { 0.0 } else { self.cost[quota] }
    }
}
