//! Remedies: changes that would admit a refused request.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A change that alone would admit the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remedy {
    /// Kind of the change.
    pub change: ChangeKind,
    /// Human-readable form of the change.
    pub message: String,
    /// Machine-readable form of the change, by name.
    pub numbers: Map<String, Value>,
}

/// Kind of a remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// Verification of the client.
    Proof,
    /// Lower usage of quotas.
    Used,
    /// Another position among the requests of a class, of which a share is admitted.
    Position,
    /// A later time.
    Time,
    /// A lower cost.
    Cost,
    /// Another class of the client.
    Class,
    /// A higher limit of a quota.
    Limit,
    /// A higher weight of the client's class in the pacing plan.
    Weight,
}

impl Remedy {
    /// Returns a remedy without numbers.
    pub fn new(change: ChangeKind, message: impl Into<String>) -> Self {
        Self { change, message: message.into(), numbers: Map::new() }
    }

    /// Adds a number that the message states.
    pub fn with_number(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.numbers.insert(name.to_owned(), value.into());
        self
    }
}
