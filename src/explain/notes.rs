//! What a log says otherwise than the rules of today, or does not say.

use super::assessment::Assessment;
use super::input::ExplainInput;
use crate::replay::log::LogField;

pub(super) fn notes(case: &ExplainInput<'_>, outcome: &Assessment<'_>) -> Vec<String> {
    let Some(happened) = &case.happened else { return Vec::new() };
    let mut notes = Vec::new();
    match &happened.decided {
        None => notes
            .push(format!("by the log it was answered with {}; this is what a gate would have done", happened.status)),
        Some(decided) => {
            let now = case.known.class_name(case.classified().class);
            if decided.class != now {
                notes.push(format!(
                    "the gate took it for {}; by the rules in force it is of the class {now}",
                    decided.class
                ));
            }
            if outcome.differs_from_log {
                let was =
                    decided.reason.map_or("admitted".to_owned(), |reason| format!("refused by {}", reason.name()));
                notes.push(format!(
                    "the gate decided otherwise: it was {was}; the rules, or what they see, have changed since"
                ));
            }
        }
    }
    if !happened.missing.is_empty() {
        let lacks: Vec<&str> = happened.missing.iter().map(|fact| LogField::name(*fact)).collect();
        notes.push(format!("the line does not say: {}", lacks.join(", ")));
    }
    notes
}
