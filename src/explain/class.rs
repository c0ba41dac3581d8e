//! Step of the classification: kind and class of the client, and why the classes before it do not match.

use super::evidence;
use super::input::ExplainInput;
use super::step::{Stage, Step};
use crate::policy::address_lists::{ListId, ListSet};
use crate::policy::class::{Class, ConditionKind};
use crate::policy::{ClassId, ClientKind};

pub(super) fn step(case: &ExplainInput<'_>) -> Step {
    let classified = case.classified();
    let name = case.known.class_name(classified.class);
    let operator = classified.operator.map(|operator| case.known.operators.name(operator));
    let whose = operator.map_or_else(String::new, |operator| format!(" of {operator}"));
    let says = format!("class {name}: {}{whose}", article(classified.kind));
    let mut told = evidence::sentences(case);
    told.extend(behaviour(case, classified.kind));
    told.extend((0..classified.class.0).map(|place| mismatch_reason(case, ClassId(place))));
    Step::info(Stage::Class, says)
        .because(told)
        .by(case.known.class_rule(classified.class, ""))
        .with("class", name)
        .with("kind", classified.kind.name())
        .with("operator", operator)
}

const fn article(kind: ClientKind) -> &'static str {
    match kind {
        ClientKind::Human => "a person",
        ClientKind::VerifiedBot => "a verified bot",
        ClientKind::DeclaredBot => "a declared bot",
        ClientKind::SuspectedBot => "a suspected bot",
        ClientKind::Impostor => "an impostor",
    }
}

/// Returns a remark for clients of kind `human`: only a running gateway has their profiles.
fn behaviour(case: &ExplainInput<'_>, kind: ClientKind) -> Option<String> {
    let looks = case.known.rules().behaviour.is_some() && kind == ClientKind::Human && case.found.is_none();
    looks.then(|| "behavior: known only to a running gateway".into())
}

/// Returns why a class that precedes the client's class does not match.
fn mismatch_reason(case: &ExplainInput<'_>, class: ClassId) -> String {
    let rules = case.known.rules();
    let Class { name, when, .. } = &rules.classes[usize::from(class.0)];
    let classified = case.classified();
    let unmet = when.first_unmet(class, classified.kind, classified.operator, &case.facts());
    let wants = match unmet {
        Some(ConditionKind::Kind) => kinds(&when.kinds),
        Some(ConditionKind::Operator) => {
            let names: Vec<&str> = when.operators.iter().map(|id| case.known.operators.name(*id)).collect();
            format!("verification as {}", any_of(&names))
        }
        Some(ConditionKind::UserAgent) => {
            let words: Vec<&str> = when.user_agents.iter().map(String::as_str).collect();
            format!("a user agent that contains {}", any_of(&words))
        }
        Some(ConditionKind::Address) => "another address".into(),
        Some(ConditionKind::List) => {
            let on = |place: usize| when.lists.first_common(ListSet::from_ids([ListId(place as u8)])).is_some();
            let names = rules.lists.iter().enumerate().filter(|(place, _)| on(*place));
            format!("an address of the list {}", any_of(&names.map(|(_, name)| name.as_str()).collect::<Vec<_>>()))
        }
        Some(ConditionKind::Key) => {
            let header = when.keys.as_ref().map_or("", |keys| keys.carrier.header());
            format!("one of its API keys in {header}")
        }
        None => "nothing more".into(),
    };
    format!("not {name}, which requires {wants}")
}

fn kinds(kinds: &[ClientKind]) -> String {
    any_of(&kinds.iter().map(|kind| article(*kind)).collect::<Vec<_>>())
}

/// Joins names as in `a, b or c`.
pub(super) fn any_of(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [others @ .., last] => format!("{} or {last}", others.join(", ")),
    }
}
