//! One step of an explanation.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Which.
    pub step: Stage,
    /// Which quota, where there is one for each.
    pub quota: Option<String>,
    /// What came of it.
    pub finding: StepResult,
    /// The same in a sentence.
    #[serde(rename = "says")]
    pub message: String,
    /// What speaks for it, a sentence each.
    pub evidence: Vec<String>,
    /// The numbers it saw.
    pub numbers: Map<String, Value>,
    /// The setting that decided.
    pub rule: Option<Rule>,
}

/// The steps of a request's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Whose request it is.
    Identity,
    /// What kind of client that is.
    Class,
    /// What it asks for, and what that costs.
    Route,
    /// Whether it can be refused at all.
    Exempt,
    /// Whether its class is served.
    Block,
    /// Whether its bucket holds a token.
    Bucket,
    /// Whether its class is within its share of a quota.
    Tier,
    /// Whether its class is within the plan of a quota.
    Pacing,
    /// Whether enough of a quota is left.
    Quota,
    /// Whether the origin has room for it.
    #[serde(rename = "turn")]
    Throttle,
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepResult {
    /// It found something out; it refuses nobody.
    #[serde(rename = "found")]
    Info,
    /// It let the request pass.
    Passed,
    /// It said no.
    Refused,
    /// It said no, and is not enforced.
    Shadow,
    /// It lets some requests pass and refuses others, by those that came before.
    Depends,
    /// It was not asked: the request had been decided on.
    #[serde(rename = "not_asked")]
    Skipped,
    /// Only a running gate knows.
    Unknown,
}

/// A setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Its keys from the top.
    pub path: String,
    /// `FILE:LINE:COL`, or the variable or option that sets it; none where its default holds.
    pub at: Option<String>,
}

impl Step {
    /// A step that refuses nobody.
    pub(super) fn info(step: Stage, message: impl Into<String>) -> Self {
        Self::new(step, StepResult::Info, message)
    }

    pub(super) fn new(step: Stage, finding: StepResult, message: impl Into<String>) -> Self {
        let (message, evidence, numbers) = (message.into(), Vec::new(), Map::new());
        Self { step, quota: None, finding, message, evidence, numbers, rule: None }
    }

    pub(super) fn by(self, rule: Rule) -> Self {
        Self { rule: Some(rule), ..self }
    }

    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.numbers.insert(name.to_owned(), value.into());
        self
    }

    pub(super) fn because(self, evidence: Vec<String>) -> Self {
        Self { evidence, ..self }
    }

    pub(super) fn of_quota(self, quota: &str) -> Self {
        Self { quota: Some(quota.to_owned()), ..self }
    }
}

impl Stage {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Class => "class",
            Self::Route => "route",
            Self::Exempt => "exempt",
            Self::Block => "block",
            Self::Bucket => "bucket",
            Self::Tier => "tier",
            Self::Pacing => "pacing",
            Self::Quota => "quota",
            Self::Throttle => "turn",
        }
    }
}

impl fmt::Display for Rule {
    /// `tidegate.yaml:41:5: quotas.places_api.tiers.search[1]`
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Some(at) => write!(out, "{at}: {}", self.path),
            None => write!(out, "by default: {}", self.path),
        }
    }
}
