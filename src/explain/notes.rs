//! Notes on a logged request: differences from the current configuration, and fields missing in the log.

use super::assessment::Assessment;
use super::input::ExplainInput;
use crate::replay::log::LogField;

pub(super) fn notes(case: &ExplainInput<'_>, outcome: &Assessment<'_>) -> Vec<String> {
    let Some(happened) = &case.happened else { return Vec::new() };
    let mut notes = Vec::new();
    match &happened.decided {
        None => notes.push(format!("the logged status is {}; this is what a gateway would have done", happened.status)),
        Some(decided) => {
            let now = case.known.class_name(case.classified().class);
            if decided.class != now {
                notes.push(format!(
                    "the gateway assigned the class {}; the current configuration assigns {now}",
                    decided.class
                ));
            }
            if outcome.differs_from_log {
                let was =
                    decided.reason.map_or("admitted".to_owned(), |reason| format!("refused by {}", reason.name()));
                notes.push(format!(
                    "the logged decision differs: {was}; the configuration or its inputs have changed since"
                ));
            }
        }
    }
    if !happened.missing.is_empty() {
        let lacks: Vec<&str> = happened.missing.iter().map(|fact| LogField::name(*fact)).collect();
        notes.push(format!("missing in the line: {}", lacks.join(", ")));
    }
    notes
}
