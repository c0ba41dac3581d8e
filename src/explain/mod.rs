//! Explains a decision: each processing step with its inputs, its result and the setting that decided, and the changes
//! that would admit a refused request.
//!
//! An [`ExplainInput`] holds everything that the rules read of a hypothetical or logged request. Each step evaluates
//! one rule alone; the verdict is that of all rules together. Remedies are found by repeating the decision with one
//! change. No code of this module runs on the path of a request.

mod admission;
mod assessment;
mod class;
mod environment;
mod evidence;
mod explanation;
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

pub use environment::Environment;
pub use explanation::{Explanation, RequestSummary, ResponseSummary, Verdict};
pub use from_log::{NotADecision, input_from_log};
pub use from_replay::input_from_replay;
pub use hypothetical::{HypotheticalRequest, InvalidPath};
pub use input::ExplainInput;
pub use remedy::{ChangeKind, Remedy};
pub use step::{Rule, Stage, Step, StepResult};

use assessment::Assessment;

/// Explains the decision on a request, step by step.
pub fn explain(case: &ExplainInput<'_>) -> Explanation {
    let outcome = Assessment::of(case);
    let mut steps = vec![identity::step(case), class::step(case), route::step(case)];
    steps.extend(admission::steps(case, &outcome));
    steps.push(throttle::step(case, &outcome));
    Explanation {
        request: case.request_summary(),
        steps,
        responses: response::responses(case, &outcome),
        remedies: remedies::remedies(case, &outcome),
        notes: notes::notes(case, &outcome),
    }
}
