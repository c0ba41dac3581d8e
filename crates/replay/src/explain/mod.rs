//! Explains a decision: each processing step with its inputs, its result and the setting that decided, and the changes
//! that would admit a refused request.
//!
//! An [`ExplainInput`] holds everything that the rules read of a hypothetical or logged request. The steps of the
//! admission rules render the checks that [`decide_observed`](tidegate_policy::decide::decide_observed) reports. Remedies
//! are found by repeating the decision with one change. No code of this module runs on the path of a request.

mod admission;
mod assessment;
mod assumed_usage;
mod cache;
mod class;
mod copy_use;
mod environment;
mod evidence;
mod explanation;
#[cfg(test)]
mod fixture;
mod from_log;
mod from_replay;
mod hypothetical;
mod identity;
mod input;
mod logged_outcome;
mod notes;
mod pacing;
mod remedies;
mod remedy;
mod response;
mod route;
mod step;
mod throttle;

pub use assumed_usage::AssumedUsage;
pub use environment::Environment;
pub use explanation::{Explanation, RequestSummary, ResponseSummary, Verdict};
pub use from_log::{NoDecisionError, input_from_log};
pub use from_replay::input_from_replay;
pub use hypothetical::{HypotheticalRequest, InvalidRequest};
pub use input::ExplainInput;
pub use remedy::{ChangeKind, Remedy};
pub use step::{Rule, Stage, Step, StepResult};

use assessment::Assessment;

/// Explains the decision on a request, step by step.
pub fn explain(input: &ExplainInput<'_>) -> Explanation {
    let assessment = Assessment::new(input);
    let mut steps = vec![identity::step(input), class::step(input), route::step(input)];
    steps.extend(admission::steps(input, &assessment));
    steps.push(throttle::step(input, &assessment));
    Explanation {
        request: input.request_summary(),
        steps,
        responses: response::responses(input, &assessment),
        remedies: remedies::remedies(input, &assessment),
        notes: notes::notes(input, &assessment),
    }
}
