//! Step of the classification: kind and class of the client, and why the classes before it do not match.

use super::evidence;
use super::input::ExplainInput;
use super::step::{Stage, Step};
use tidegate_config::SettingPath;
use tidegate_policy::address_lists::ListSet;
use tidegate_policy::class::{Class, ConditionKind};
use tidegate_policy::network_origin::Country;
use tidegate_policy::session::Session;
use tidegate_policy::{ClassId, ClientKind, ListId};

pub(super) fn step(input: &ExplainInput<'_>) -> Step {
    let classified = input.classification();
    let name = input.environment.class_name(classified.class);
    let operator = classified.operator.map(|operator| input.environment.operators.name(operator));
    let suffix = operator.map_or_else(String::new, |operator| format!(" of {operator}"));
    let message = format!("class {name}: {}{suffix}", describe_kind(classified.kind));
    let mut evidence = evidence::sentences(input);
    evidence.extend(behavior_remark(input, classified.kind));
    evidence.extend(session_remark(input, classified.kind));
    evidence.extend((0..classified.class.index()).map(|index| mismatch_reason(input, ClassId::from_index(index))));
    Step::info(Stage::Class, message)
        .with_evidence(evidence)
        .with_rule(input.environment.rule(&SettingPath::of_class(classified.class.index())))
        .with_number("class", name)
        .with_number("kind", classified.kind.name())
        .with_number("operator", operator)
}

const fn describe_kind(kind: ClientKind) -> &'static str {
    match kind {
        ClientKind::Human => "a person",
        ClientKind::VerifiedBot => "a verified bot",
        ClientKind::DeclaredBot => "a declared bot",
        ClientKind::SuspectedBot => "a suspected bot",
        ClientKind::Impostor => "an impostor",
    }
}

/// Returns a remark for clients of kind `human`: only a running gateway has their profiles.
fn behavior_remark(input: &ExplainInput<'_>, kind: ClientKind) -> Option<String> {
    let is_applicable =
        input.environment.rules().bot_detection.is_some() && kind == ClientKind::Human && input.replayed.is_none();
    is_applicable.then(|| "behavior: known only to a running gateway".into())
}

/// Returns what is known of the session of a client that may have one, if there are sessions.
fn session_remark(input: &ExplainInput<'_>, kind: ClientKind) -> Option<String> {
    let is_applicable = input.environment.settings.sessions.is_some() && kind.may_have_session();
    let is_logged = input.logged.is_some() || input.replayed.is_some();
    let class = &input.environment.rules()[input.classification().class];
    is_applicable.then(|| match (is_logged, class.matcher.sessions == [Session::None]) {
        (false, _) => "session: known only to a running gateway; taken for none".into(),
        (true, true) => {
            "session: none; a refusal of this class asks a browser to repeat the request at once, with a session".into()
        }
        (true, false) => format!("session: {}", input.facts().client.session.name()),
    })
}

/// Returns why a class that precedes the client's class does not match.
fn mismatch_reason(input: &ExplainInput<'_>, class: ClassId) -> String {
    let rules = input.environment.rules();
    let Class { name, matcher: when, .. } = &rules[class];
    let classified = input.classification();
    let unmet = when.first_unmet(class, classified.kind, classified.operator, &input.facts());
    let requirement = match unmet {
        Some(ConditionKind::Kind) => kinds(&when.kinds),
        Some(ConditionKind::Operator) => {
            // The settings also name operators that a reload added, which are not in the table before the next start.
            let names = &input.environment.settings.operator_names;
            let names: Vec<&str> = when.operators.iter().map(|id| names[id.index()].as_str()).collect();
            format!("verification as {}", any_of(&names))
        }
        Some(ConditionKind::UserAgent) => {
            let words: Vec<&str> = when.user_agents.iter().map(String::as_str).collect();
            format!("a user agent that contains {}", any_of(&words))
        }
        Some(ConditionKind::Address) => "another address".into(),
        Some(ConditionKind::List) => {
            let is_listed =
                |index: usize| when.lists.first_common(ListSet::from_ids([ListId::from_index(index)])).is_some();
            let names = rules.address_list_names.iter().enumerate().filter(|(index, _)| is_listed(*index));
            format!("an address of the list {}", any_of(&names.map(|(_, name)| name.as_str()).collect::<Vec<_>>()))
        }
        Some(ConditionKind::Key) => {
            let header = when.own_keys().map_or("authorization", |keys| keys.source.header());
            format!("one of its API keys in {header}")
        }
        Some(ConditionKind::Certificate) => {
            let patterns: Vec<String> = when.certificates.iter().map(ToString::to_string).collect();
            let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
            format!("a client certificate with the name {}", any_of(&patterns))
        }
        Some(ConditionKind::Field) => when.fields.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and "),
        Some(ConditionKind::Session) => {
            let sessions: Vec<&str> = when.sessions.iter().map(|session| session.description()).collect();
            any_of(&sessions)
        }
        Some(ConditionKind::Purpose) => {
            format!("a crawler for {}", any_of(&when.purposes.iter().map(|purpose| purpose.name()).collect::<Vec<_>>()))
        }
        Some(ConditionKind::Asn) => {
            let numbers: Vec<String> = when.asns.iter().map(|asn| format!("AS{asn}")).collect();
            any_of(&numbers.iter().map(String::as_str).collect::<Vec<_>>())
        }
        Some(ConditionKind::Country) => {
            let codes: Vec<&str> = when.countries.iter().map(Country::as_str).collect();
            format!("the country {}", any_of(&codes))
        }
        Some(ConditionKind::Path) => {
            format!("a path like {}", any_of(&when.paths.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>()))
        }
        Some(ConditionKind::Host) => {
            format!("the host {}", any_of(&when.hosts.iter().map(String::as_str).collect::<Vec<_>>()))
        }
        Some(ConditionKind::Method) => {
            format!("the method {}", any_of(&when.methods.iter().map(http::Method::as_str).collect::<Vec<_>>()))
        }
        None => "nothing more".into(),
    };
    format!("not {name}, which requires {requirement}")
}

fn kinds(kinds: &[ClientKind]) -> String {
    any_of(&kinds.iter().map(|kind| describe_kind(*kind)).collect::<Vec<_>>())
}

/// Joins names as in `a, b or c`.
pub(super) fn any_of(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [others @ .., last] => format!("{} or {last}", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{CLIENT, GOOGLEBOT, GOOGLEBOT_ADDRESS, PolicyFixture, RULES, step};
    use super::*;

    #[test]
    fn verified_crawler_belongs_to_the_class_of_its_operator() {
        let policy = PolicyFixture::new(RULES);
        let class = step(&policy.request(GOOGLEBOT, GOOGLEBOT_ADDRESS, "/item/1", 0), Stage::Class);
        assert_eq!(class.message, "class search: a verified bot of googlebot");
        let published = "66.249.66.1 is in the ranges that googlebot publishes";
        assert!(class.evidence.iter().any(|entry| entry == published), "{class:?}");
    }

    #[test]
    fn impostor_lacks_the_verification_of_the_class_before() {
        let policy = PolicyFixture::new(RULES);
        let class = step(&policy.request(GOOGLEBOT, CLIENT, "/item/1", 0), Stage::Class);
        assert_eq!(class.message, "class impostor: an impostor");
        let requirement = "not search, which requires verification as googlebot";
        assert_eq!(class.evidence.last().map(String::as_str), Some(requirement));
    }

    #[test]
    fn conditions_that_a_person_does_not_meet_are_said_in_words() {
        let classes = "sessions: on\nquotas: { api: { limit: 9 } }\nclasses:\n  - { name: partner, when: { header: { X-A: 'b*' } } }\n  \
                       - { name: index, when: { purpose: [search, agent] } }\n  - { name: known, when: { session: [new, known] } }\n  - { name: rest }\n";
        let policy = PolicyFixture::new(classes);
        let class = step(&policy.request("Mozilla/5.0 Firefox/128.0", CLIENT, "/", 0), Stage::Class);
        let last: Vec<&str> = class.evidence.iter().rev().take(4).rev().map(String::as_str).collect();
        assert_eq!(
            last,
            [
                "session: known only to a running gateway; taken for none",
                "not partner, which requires the header x-a like b*",
                "not index, which requires a crawler for search or agent",
                "not known, which requires a new session or a known session",
            ]
        );
    }
}
