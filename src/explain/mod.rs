//! Why a request is treated as it is: each step of its life, what it saw, which setting decided, and what would have let
//! the request through.
//!
//! Nothing is decided here. A [`Case`] holds what the rules see, be it of a request that somebody made up or of one that a
//! log tells of. The steps ask each rule by itself, the verdict is that of all of them together, and what would have let a
//! refused request through is found by asking again with one thing changed. All of it happens when somebody asks: a gate
//! does nothing for it on a request.

mod admission;
mod answer;
mod case;
mod class;
mod evidence;
mod explanation;
mod happened;
mod identity;
mod known;
mod logged;
mod made_up;
mod notes;
mod outcome;
mod plan;
mod remedies;
mod remedy;
mod replayed;
mod route;
mod step;
mod turn;

pub use case::Case;
pub use explanation::{Answer, Explanation, Request, Verdict};
pub use known::Known;
pub use logged::{NoRequest, logged};
pub use made_up::{MadeUp, NoPath};
pub use remedy::{Change, Remedy};
pub use replayed::replayed;
pub use step::{Finding, Rule, Stage, Step};

use outcome::Outcome;

/// Explains what becomes of a request, step by step.
pub fn explain(case: &Case<'_>) -> Explanation {
    let outcome = Outcome::of(case);
    let mut steps = vec![identity::step(case), class::step(case), route::step(case)];
    steps.extend(admission::steps(case, &outcome));
    steps.push(turn::step(case, &outcome));
    Explanation {
        request: case.told(),
        steps,
        answers: answer::answers(case, &outcome),
        would_let_it_through: remedies::remedies(case, &outcome),
        notes: notes::notes(case, &outcome),
    }
}
