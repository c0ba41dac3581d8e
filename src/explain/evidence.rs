//! What speaks for a classification, in sentences.

use super::input::ExplainInput;
use crate::policy::class::Evidence;
use crate::policy::{Claim, OperatorId, Proof, Signature};
use crate::verify::OperatorProofMethod;

/// Why the client is taken for what it is, the most telling last.
pub(super) fn sentences(case: &ExplainInput<'_>) -> Vec<String> {
    let mut told: Vec<String> =
        case.classified().evidence.into_iter().flatten().map(|found| sentence(case, found)).collect();
    told.extend(unverified_sentence(case));
    told
}

fn sentence(case: &ExplainInput<'_>, found: Evidence) -> String {
    let known = case.known;
    let client = case.who.origin.client;
    let operator = |id: OperatorId| known.operators.name(id);
    match found {
        Evidence::AgentRule(place) => {
            format!("agents[{place}] of the settings says so: its user agent holds {:?}", agent_rule(case, place))
        }
        Evidence::NoUserAgent => "it sends no user agent".into(),
        Evidence::UserAgentNoMatch => "its user agent names no bot".into(),
        Evidence::UserAgentMatch(bot) => format!("its user agent names the bot {}", known.agents.name(bot)),
        Evidence::UserAgentHeuristic => "its user agent has the shape of a program's".into(),
        Evidence::AddressVerified(id) => format!("{client} is among the addresses that {} publishes", operator(id)),
        Evidence::AddressMismatch(id) => {
            format!("it says that it is {0}, and {client} is in none of the ranges that {0} publishes", operator(id))
        }
        Evidence::AddressPrivate(id) => format!(
            "it says that it is {}, and {client} is a loopback, private, link-local or shared address, which proves and disproves \
             nothing; behind a proxy, set clients.address_from and clients.trusted_proxies",
            operator(id)
        ),
        Evidence::DnsVerified(id) => format!("{client} has a name of {} in DNS, and the name has it", operator(id)),
        Evidence::DnsMismatch(id) => {
            format!("it says that it is {0}, and {client} has none of the names of {0} in DNS", operator(id))
        }
        Evidence::ApiKey => "it sends a key of its class".into(),
        Evidence::AddressList(list) => {
            let name = known.rules().lists.get(usize::from(list.0)).map_or("", String::as_str);
            format!("{client} stands on the list {name}")
        }
        Evidence::Behavior(signal) => format!("it behaves unlike a person: {}", signal.name()),
        Evidence::SignatureValid(id) => format!("{} has signed the request", operator(id)),
        Evidence::SignatureUnlisted => "an agent has signed the request of whom no operator is known".into(),
        Evidence::SignatureMalformed => "it is signed, in a way that cannot be read".into(),
        Evidence::SignatureInvalid(id) => format!("it is signed in the name of {}, and not by it", agent(case, id)),
        Evidence::SignatureUnknown(id) => {
            format!("it is signed in the name of {}; whether by it, nobody can tell", agent(case, id))
        }
    }
}

/// What is still open about whose crawler it is.
fn unverified_sentence(case: &ExplainInput<'_>) -> Option<String> {
    let Claim::Bot { operator: Some(operator), .. } = case.who.claim else { return None };
    let is_open = case.who.proof == Proof::Unknown && matches!(case.who.signature, Signature::Absent);
    let name = case.known.operators.name(operator);
    is_open.then(|| match case.known.operators.supports(operator, OperatorProofMethod::Dns) {
        true => format!("nothing proves here that it is {name}; a running gate asks DNS in the background"),
        false => format!("nothing proves that it is {name}"),
    })
}

fn agent_rule<'a>(case: &ExplainInput<'a>, place: u16) -> &'a str {
    case.known.rules().user_agent_rules.get(usize::from(place)).map_or("", |rule| &rule.contains)
}

fn agent<'a>(case: &ExplainInput<'a>, operator: Option<OperatorId>) -> &'a str {
    operator.map_or("an agent", |operator| case.known.operators.name(operator))
}
