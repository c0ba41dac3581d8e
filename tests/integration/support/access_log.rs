//! A line of the gate's access log, as far as promises are checked by it.

use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Deserialize)]
pub struct Line {
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
    pub turn: BTreeMap<String, u64>,
}

impl Line {
    pub fn read(line: serde_json::Value) -> Self {
        serde_json::from_value(line).expect("a line has the fields of the contract")
    }

    pub fn is_refused(&self) -> bool {
        self.verdict == "refused"
    }

    /// Whether this rule turned it away.
    pub fn is_refused_by(&self, reason: &str) -> bool {
        self.reason.as_deref() == Some(reason)
    }

    /// What was taken of the quota just before it was decided.
    pub fn taken_before(&self, quota: &str) -> f64 {
        self.used[quota] - if self.is_refused() { 0.0 } else { self.cost[quota] }
    }
}
