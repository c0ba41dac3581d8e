//! Evidence of a classification, as sentences.

use super::input::ExplainInput;
use tidegate_config::SettingPath;
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
    let environment = input.environment;
    let client = input.client.address;
    let operator = |id: OperatorId| environment.operators.name(id);
    match evidence {
        Evidence::UserAgentRule(index) => {
            let path = SettingPath::ROOT.user_agent_rules().index(index.into());
            format!("{path}: the user agent contains {:?}", user_agent_rule(input, index))
        }
        Evidence::NoUserAgent => "no user agent sent".into(),
        Evidence::UserAgentNoMatch => "the user agent matches no bot".into(),
        Evidence::UserAgentMatch(bot) => {
            format!("the user agent matches the bot {}", environment.user_agents.name(bot))
        }
        Evidence::UserAgentHeuristic => "the user agent has the form of a program's".into(),
        Evidence::AddressVerified(id) => format!("{client} is in the ranges that {} publishes", operator(id)),
        Evidence::AddressMismatch(id) => {
            format!("claims to be {0}, but {client} is in none of the ranges that {0} publishes", operator(id))
        }
        Evidence::AddressPrivate(id) => format!(
            "claims to be {}; {client} is a loopback, private, link-local or shared address, which neither verifies \
             nor disproves the claim; behind a proxy, set clients.address_from and clients.trusted_proxies",
            operator(id)
        ),
        Evidence::DnsVerified(id) => {
            format!("{client} resolves to a DNS name of {}, which resolves back to it", operator(id))
        }
        Evidence::DnsMismatch(id) => {
            format!("claims to be {0}, but {client} resolves to no DNS name of {0}", operator(id))
        }
        Evidence::ApiKey => "the request contains an API key of the class".into(),
        Evidence::Certificate => "the client's certificate has a name of the class".into(),
        Evidence::AddressList(list) => {
            let name = environment.rules().address_list_names.get(list.index()).map_or("", String::as_str);
            format!("{client} is on the address list {name}")
        }
        Evidence::Behavior(signal) => format!("bot detection signal: {}", signal.name()),
        Evidence::SignatureValid(id) => format!("signed by {}", operator(id)),
        Evidence::SignatureUnlisted => "signed by an agent without a known operator".into(),
        Evidence::SignatureMalformed => "the signature is malformed".into(),
        Evidence::SignatureInvalid(id) => {
            format!("signed in the name of {}, but the signature does not verify", agent_name(input, id))
        }
        Evidence::SignatureUnknown(id) => {
            format!("signed in the name of {}; the signature cannot be verified", agent_name(input, id))
        }
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

fn agent_name<'a>(input: &ExplainInput<'a>, operator: Option<OperatorId>) -> &'a str {
    operator.map_or("an agent", |operator| input.environment.operators.name(operator))
}
