//! Why a request is treated as it is: each step of its life, what it saw, which setting decided, and what would have let
//! the request through.
//!
//! Nothing is decided here. A [`ExplainInput`] holds what the rules see, be it of a request that somebody made up or of one that a
//! log tells of. The steps ask each rule by itself, the verdict is that of all of them together, and what would have let a
//! refused request through is found by asking again with one thing changed. All of it happens when somebody asks: a gate
//! does nothing for it on a request.

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

/// Explains what becomes of a request, step by step.
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
