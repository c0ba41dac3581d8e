//! Step of the throttle: the scopes of the origin.

use super::assessment::Assessment;
use super::copy_use::CopyEffect;
use super::input::ExplainInput;
use super::logged_outcome::LoggedDecision;
use super::step::{Stage, Step, StepResult};
use tidegate_config::SettingPath;
use tidegate_policy::Reason;
use tidegate_policy::throttle::Scope;

pub(super) fn step(input: &ExplainInput<'_>, assessment: &Assessment<'_>) -> Step {
    if input.redirect().is_some() && assessment.certain_refusal().is_none() {
        return Step::new(Stage::Throttle, StepResult::Passed, "a redirect takes no slot");
    }
    if input.copy.effect() == CopyEffect::Answer && assessment.certain_refusal().is_none() {
        return Step::new(Stage::Throttle, StepResult::Passed, "a stored response takes no slot");
    }
    if let Some(step) = input
        .logged_decision()
        .filter(|_| !assessment.differs_from_log)
        .and_then(|decision| logged_step(input, decision))
    {
        return step;
    }
    if assessment.certain_refusal().is_some() {
        return Step::skipped(Stage::Throttle);
    }
    let rules = input.environment.rules();
    let scopes = input.route().scopes.iter().filter_map(|scope| rules.scopes.get(scope.index()));
    let throttled: Vec<&Scope> = scopes.filter(|scope| scope.throttle.is_some()).collect();
    let request = input.decision_request_for(input.classification().class);
    let is_never_refused = request.exemption.is_some_and(|exemption| !exemption.is_bounded());
    let Some(first) = throttled.first().filter(|_| !is_never_refused) else {
        return Step::new(Stage::Throttle, StepResult::Passed, "no scope throttles the route");
    };
    let names: Vec<&str> = throttled.iter().map(|scope| scope.name.as_str()).collect();
    let message = format!("free slots of {}: known only to a running gateway", names.join(" and "));
    Step::new(Stage::Throttle, StepResult::Unknown, message)
        .with_rule(input.environment.rule(&SettingPath::of_scope(&first.name)))
}

/// Returns the step according to the log; `None` if another rule refused the request.
fn logged_step(input: &ExplainInput<'_>, decision: &LoggedDecision) -> Option<Step> {
    let waited = decision.queue_wait.as_millis();
    let scope = decision.scope.as_deref().unwrap_or("its scopes");
    let path = SettingPath::of_scope(scope);
    let (result, message, path) = match decision.reason {
        Some(Reason::Throttle) if decision.scope.is_none() => {
            let message = "the gateway had no capacity for it: its connections to the origin, files for bodies or \
                           upgrades were in use; see the log of that time and origin.max_connections, \
                           limits.buffer_disk, limits.max_upgrades and max_upgrades_per_address";
            (StepResult::Refused, message.to_owned(), path)
        }
        Some(Reason::Throttle) => {
            (StepResult::Refused, format!("{scope} had no free slot in time; the request waited {waited} ms"), path)
        }
        Some(Reason::Backoff) => {
            (StepResult::Refused, format!("{scope} was backing off after an overload"), path.backoff())
        }
        Some(_) => return None,
        None if waited > 0 => (StepResult::Passed, format!("the request waited {waited} ms for a slot"), path),
        None => (StepResult::Passed, "forwarded to the origin without waiting".to_owned(), path),
    };
    let step = Step::new(Stage::Throttle, result, message)
        .with_number("waited_ms", decision.queue_wait.as_secs_f64() * 1000.0);
    Some(match &decision.scope {
        Some(scope) => step.with_rule(input.environment.rule(&path)).with_number("scope", scope.as_str()),
        None => step,
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{CLIENT, CURL, PolicyFixture, RULES, step};
    use super::*;
    use serde_json::json;

    #[test]
    fn free_slots_are_unknown_without_a_gateway() {
        let throttle = step(&PolicyFixture::new(RULES).request(CURL, CLIENT, "/item/1", 0), Stage::Throttle);
        assert_eq!(throttle.finding, StepResult::Unknown);
        assert_eq!(throttle.message, "free slots of narrow: known only to a running gateway");
    }

    #[test]
    fn throttle_is_skipped_after_a_refusal() {
        let throttle = step(&PolicyFixture::new(RULES).request(CURL, CLIENT, "/item/1", 100), Stage::Throttle);
        assert_eq!(throttle.finding, StepResult::Skipped);
    }

    #[test]
    fn logged_throttle_refusal_names_its_scope() {
        let fields = json!({"verdict": "refused", "reason": "throttle", "scope": "narrow", "scope_wait_ms": 20});
        let throttle = step(&PolicyFixture::new(RULES).logged(&fields), Stage::Throttle);
        assert_eq!(throttle.finding, StepResult::Refused);
        assert_eq!(throttle.message, "narrow had no free slot in time; the request waited 20 ms");
        assert_eq!(throttle.rule.map(|rule| rule.path).as_deref(), Some("scopes.narrow"));
    }
}
