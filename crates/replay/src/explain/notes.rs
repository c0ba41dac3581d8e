//! Notes on a logged request: differences from the current configuration, and fields missing in the log.

use super::assessment::Assessment;
use super::cache;
use super::input::ExplainInput;
use crate::log::LogField;

pub(super) fn notes(input: &ExplainInput<'_>, assessment: &Assessment<'_>) -> Vec<String> {
    let Some(logged) = &input.logged else { return stored_response(input, assessment).into_iter().collect() };
    let mut notes = Vec::new();
    match &logged.decision {
        None => notes.push(format!("the logged status is {}; this is what a gateway would have done", logged.status)),
        Some(decision) => {
            let current_class = input.environment.class_name(input.classification().class);
            if decision.class != current_class {
                notes.push(format!(
                    "the gateway assigned the class {}; the current configuration assigns {current_class}",
                    decision.class
                ));
            }
            if assessment.differs_from_log {
                let logged_result =
                    decision.reason.map_or("admitted".to_owned(), |reason| format!("refused by {}", reason.name()));
                notes.push(format!(
                    "the logged decision differs: {logged_result}; the configuration or its inputs have changed since"
                ));
            }
        }
    }
    if !logged.missing.is_empty() {
        let missing: Vec<&str> = logged.missing.iter().map(|fact| LogField::name(*fact)).collect();
        notes.push(format!("missing in the line: {}", missing.join(", ")));
    }
    notes
}

/// Returns the note on a stored response that replaces the refusal of a hypothetical request.
fn stored_response(input: &ExplainInput<'_>, assessment: &Assessment<'_>) -> Option<String> {
    let refusal = assessment.refusal().filter(|refusal| cache::may_replace(input, refusal.reason));
    refusal.map(|_| {
        "if a response is stored, it is sent in place of the refusal; `tidegate explain ID`, with the `id` of a request \
         in the access log, shows what was"
            .to_owned()
    })
}
