//! Steps of an explanation.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use tidegate_policy::decide::Check;

/// One step of an explanation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Processing stage.
    pub step: Stage,
    /// Quota of the step, for stages that are evaluated per quota.
    pub quota: Option<String>,
    /// Result of the step.
    pub finding: StepResult,
    /// Human-readable form of the result.
    pub message: String,
    /// Evidence, one sentence each.
    pub evidence: Vec<String>,
    /// Inputs of the step, by name.
    pub numbers: Map<String, Value>,
    /// Setting that decided.
    pub rule: Option<Rule>,
}

/// Processing stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Client address and bucket key.
    Identity,
    /// Kind and class of the client.
    Class,
    /// Route and cost of the request.
    Route,
    /// Exemption from all refusals.
    Exempt,
    /// Switch of an administrator.
    Switch,
    /// Block of the class.
    Block,
    /// Token bucket of the client.
    Bucket,
    /// Stored response that answered the request.
    Cache,
    /// Share of a quota that one client may use.
    Share,
    /// Tiers of a quota.
    Tier,
    /// Pacing plan of a quota.
    Pacing,
    /// Remaining units of a quota.
    Quota,
    /// Scopes of the origin.
    Throttle,
}

impl From<Check> for Stage {
    fn from(check: Check) -> Self {
        match check {
            Check::Switch => Self::Switch,
            Check::Block => Self::Block,
            Check::Bucket => Self::Bucket,
            Check::ClientShare(_) => Self::Share,
            Check::Tier(_) => Self::Tier,
            Check::Pacing(_) => Self::Pacing,
            Check::Remaining(_) => Self::Quota,
        }
    }
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepResult {
    /// Information only; the step cannot refuse.
    Info,
    /// The rule passes the request.
    Passed,
    /// The rule refuses the request.
    Refused,
    /// The rule would refuse the request, but is not enforced.
    Shadow,
    /// The result depends on earlier requests.
    Depends,
    /// Not evaluated, because the request was already refused.
    Skipped,
    /// Known only to a running gateway.
    Unknown,
}

/// A setting and its location.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Path of keys from the top of the file.
    pub path: String,
    /// `FILE:LINE:COL`, or the variable or option that sets it; `None` for a default.
    pub at: Option<String>,
}

impl Step {
    /// Creates a step that cannot refuse.
    pub(super) fn info(step: Stage, message: impl Into<String>) -> Self {
        Self::new(step, StepResult::Info, message)
    }

    pub(super) fn new(step: Stage, result: StepResult, message: impl Into<String>) -> Self {
        let (message, evidence, numbers) = (message.into(), Vec::new(), Map::new());
        Self { step, quota: None, finding: result, message, evidence, numbers, rule: None }
    }

    /// Creates the step of a rule that the decision does not reach.
    pub(super) fn skipped(step: Stage) -> Self {
        Self::new(step, StepResult::Skipped, "not evaluated after the refusal")
    }

    pub(super) fn with_rule(self, rule: Rule) -> Self {
        Self { rule: Some(rule), ..self }
    }

    pub(super) fn with_number(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.numbers.insert(name.to_owned(), value.into());
        self
    }

    pub(super) fn with_evidence(self, evidence: Vec<String>) -> Self {
        Self { evidence, ..self }
    }

    pub(super) fn with_quota(self, quota: &str) -> Self {
        Self { quota: Some(quota.to_owned()), ..self }
    }
}

impl StepResult {
    /// Returns the result of a rule that refuses: enforced or in shadow mode.
    pub(super) const fn refused(enforced: bool) -> Self {
        if enforced { Self::Refused } else { Self::Shadow }
    }
}

impl Stage {
    /// Returns the name of the stage, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Class => "class",
            Self::Route => "route",
            Self::Exempt => "exempt",
            Self::Switch => "switch",
            Self::Block => "block",
            Self::Bucket => "bucket",
            Self::Cache => "cache",
            Self::Share => "share",
            Self::Tier => "tier",
            Self::Pacing => "pacing",
            Self::Quota => "quota",
            Self::Throttle => "throttle",
        }
    }
}

impl fmt::Display for Rule {
    /// Writes the rule as in `tidegate.yaml:41:5: quotas.places_api.tiers.search[1]`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Some(at) => write!(out, "{at}: {}", self.path),
            None => write!(out, "by default: {}", self.path),
        }
    }
}
