//! Evidence of a classification, as sentences.

use super::input::ExplainInput;
use tidegate_access_log::EvidenceWord;
use tidegate_config::SettingPath;
use tidegate_policy::bot_detection::PagesBeyond;
use tidegate_policy::class::Evidence;
use tidegate_policy::{Claim, OperatorId, Proof, ProofMethod, Signature};

/// Returns the evidence for the client's kind, the strongest last.
pub(super) fn sentences(input: &ExplainInput<'_>) -> Vec<String> {
    let mut sentences: Vec<String> =
        input.classification().evidence.into_iter().flatten().map(|evidence| sentence(input, evidence)).collect();
    sentences.extend(unverified_sentence(input));
    sentences
}

fn sentence(input: &ExplainInput<'_>, evidence: Evidence) -> String {
    let client = input.client.address.to_string();
    let (word, name) = word_and_name(input, evidence);
    let sentence = word.sentence(name, &client);
    match evidence {
        Evidence::UserAgentRule(index) => {
            format!("{}: {sentence}", SettingPath::ROOT.user_agent_rules().index(index.into()))
        }
        Evidence::BeyondPeople(PagesBeyond { pages, limit }) => word.sentence(&format!("{pages}/{limit}"), &client),
        _ => sentence,
    }
}

/// Returns the word of the log for `evidence`, and the name that it has there, if any.
fn word_and_name<'a>(input: &ExplainInput<'a>, evidence: Evidence) -> (EvidenceWord, &'a str) {
    let environment = input.environment;
    let operator = |id: OperatorId| environment.operators.name(id);
    match evidence {
        Evidence::UserAgentRule(index) => (EvidenceWord::UserAgentRule, user_agent_rule(input, index)),
        Evidence::NoUserAgent => (EvidenceWord::NoUserAgent, ""),
        Evidence::UserAgentNoMatch => (EvidenceWord::UserAgentNoMatch, ""),
        Evidence::UserAgentMatch(bot) => (EvidenceWord::UserAgentMatch, environment.user_agents.name(bot)),
        Evidence::UserAgentHeuristic => (EvidenceWord::UserAgentHeuristic, ""),
        Evidence::AddressVerified(id) => (EvidenceWord::AddressVerified, operator(id)),
        Evidence::AddressMismatch(id) => (EvidenceWord::AddressMismatch, operator(id)),
        Evidence::AddressPrivate(id) => (EvidenceWord::AddressPrivate, operator(id)),
        Evidence::DnsVerified(id) => (EvidenceWord::DnsVerified, operator(id)),
        Evidence::DnsMismatch(id) => (EvidenceWord::DnsMismatch, operator(id)),
        Evidence::ApiKey => (EvidenceWord::ApiKey, ""),
        Evidence::Certificate => (EvidenceWord::Certificate, ""),
        Evidence::AddressList(list) => {
            let name = environment.rules().address_list_names.get(list.index()).map_or("", String::as_str);
            (EvidenceWord::AddressList, name)
        }
        Evidence::Behavior(signal) => (EvidenceWord::Behavior, signal.name()),
        Evidence::BeyondPeople(_) => (EvidenceWord::BeyondPeople, ""),
        Evidence::SignatureValid(id) => (EvidenceWord::SignatureValid, operator(id)),
        Evidence::SignatureUnlisted => (EvidenceWord::SignatureUnlisted, ""),
        Evidence::SignatureMalformed => (EvidenceWord::SignatureMalformed, ""),
        Evidence::SignatureInvalid(id) => (EvidenceWord::SignatureInvalid, id.map_or("", operator)),
        Evidence::SignatureUnknown(id) => (EvidenceWord::SignatureUnknown, id.map_or("", operator)),
    }
}

/// Returns a sentence on a claimed operator that is neither verified nor disproved.
fn unverified_sentence(input: &ExplainInput<'_>) -> Option<String> {
    let Claim::Bot { operator: Some(operator), .. } = input.client.claim else { return None };
    let is_unverified = input.client.proof == Proof::Unknown && matches!(input.client.signature, Signature::Absent);
    let name = input.environment.operators.name(operator);
    is_unverified.then(|| match input.environment.operators.supports(operator, ProofMethod::Dns) {
        true => format!("not verified as {name} here; a running gateway queries DNS in the background"),
        false => format!("not verified as {name}"),
    })
}

fn user_agent_rule<'a>(input: &ExplainInput<'a>, index: u16) -> &'a str {
    input.environment.rules().user_agent_rules.word(usize::from(index)).unwrap_or_default()
}
