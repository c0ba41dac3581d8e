//! One thing that would have let a request through.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One thing that would have let the request through.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remedy {
    /// What would be other.
    pub change: ChangeKind,
    /// What would have to be so, in words.
    #[serde(rename = "says")]
    pub message: String,
    /// The same in numbers and names.
    pub numbers: Map<String, Value>,
}

/// What would have to be other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// What is proven of the client.
    Proof,
    /// How much of quotas is used.
    Used,
    /// Whose turn it is, where a share of a class is refused.
    #[serde(rename = "turn")]
    Position,
    /// The time.
    Time,
    /// What it costs.
    Cost,
    /// The client's class.
    Class,
    /// The limit of a quota.
    Limit,
    /// The weight of the client's class in a plan.
    Weight,
}

impl Remedy {
    pub(crate) fn new(change: ChangeKind, message: impl Into<String>) -> Self {
        Self { change, message: message.into(), numbers: Map::new() }
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.numbers.insert(name.to_owned(), value.into());
        self
    }
}
