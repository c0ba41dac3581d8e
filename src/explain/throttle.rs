//! Step of the throttle: the scopes of the origin.

use super::admission::skipped_step;
use super::assessment::Assessment;
use super::input::ExplainInput;
use super::logged_outcome::LoggedDecision;
use super::step::{Stage, Step, StepResult};
use crate::policy::Reason;
use crate::policy::throttle::Scope;

pub(super) fn step(case: &ExplainInput<'_>, outcome: &Assessment<'_>) -> Step {
    if let Some(step) = case.decided().filter(|_| !outcome.differs_from_log).and_then(|decided| by_log(case, decided)) {
        return step;
    }
    if outcome.certain_refusal().is_some() {
        return skipped_step(Stage::Throttle);
    }
    let rules = case.known.rules();
    let scopes = case.route().scopes.iter().filter_map(|scope| rules.scopes.get(usize::from(scope.0)));
    let throttled: Vec<&Scope> = scopes.filter(|scope| scope.throttle.is_some()).collect();
    let is_never_refused = case.decision_request_for(case.classified().class).never_refused;
    let Some(first) = throttled.first().filter(|_| !is_never_refused) else {
        return Step::new(Stage::Throttle, StepResult::Passed, "no scope throttles the route");
    };
    let names: Vec<&str> = throttled.iter().map(|scope| scope.name.as_str()).collect();
    let says = format!("free slots of {}: known only to a running gateway", names.join(" and "));
    Step::new(Stage::Throttle, StepResult::Unknown, says).by(case.known.rule(format!("scopes.{}", first.name)))
}

/// Returns the step according to the log; `None` if another rule refused the request.
fn by_log(case: &ExplainInput<'_>, decided: &LoggedDecision) -> Option<Step> {
    let waited = decided.queue_wait.as_millis();
    let scope = decided.scope.as_deref().unwrap_or("its scopes");
    let (finding, says, key) = match decided.reason {
        Some(Reason::Throttle) => {
            (StepResult::Refused, format!("{scope} had no free slot in time; the request waited {waited} ms"), "")
        }
        Some(Reason::Backoff) => {
            (StepResult::Refused, format!("{scope} was backing off after an overload"), ".backoff")
        }
        Some(_) => return None,
        None if waited > 0 => (StepResult::Passed, format!("the request waited {waited} ms for a slot"), ""),
        None => (StepResult::Passed, "forwarded to the origin without waiting".to_owned(), ""),
    };
    let step = Step::new(Stage::Throttle, finding, says).with("waited_ms", decided.queue_wait.as_secs_f64() * 1000.0);
    Some(match &decided.scope {
        Some(scope) => step.by(case.known.rule(format!("scopes.{scope}{key}"))).with("scope", scope.as_str()),
        None => step,
    })
}
