//! Classification of a client: its kind by the evidence, then the first class that matches.

use super::evidence::{
    HOLDS_KEY, ON_LIST, claim_evidence, evidence_list, mismatch_evidence, proof_evidence, signature_evidence,
};
use super::{Class, ClassId, Classification, ClientKind, Evidence, EvidenceList, UserAgentRule, agent_rule};
use crate::policy::bot_detection::{BotScore, Signal};
use crate::policy::facts::{Claim, Facts, OperatorId, Proof, Signature, claimed_operator};

/// Classifies a client by user-agent rules, proof, user agent and behavior, in this order.
pub fn classify(rules: &[UserAgentRule], classes: &[Class], facts: &Facts<'_>) -> Classification {
    let (kind, operator, mut evidence) = kind(rules, facts);
    let id = |place: usize| ClassId(place as u16);
    let fits = |(place, class): (usize, &Class)| class.when.first_unmet(id(place), kind, operator, facts).is_none();
    let place = classes.iter().enumerate().position(fits).unwrap_or(classes.len().saturating_sub(1));
    if let Some(Class { when, .. }) = classes.get(place) {
        evidence[ON_LIST] = when.lists.first_common(facts.address_lists).map(Evidence::AddressList);
        evidence[HOLDS_KEY] = when.keys.is_some().then_some(Evidence::ApiKey);
    }
    Classification { kind, operator, class: id(place), evidence }
}

fn kind(rules: &[UserAgentRule], facts: &Facts<'_>) -> (ClientKind, Option<OperatorId>, EvidenceList) {
    if let Some(place) = agent_rule(rules, facts.user_agent) {
        return (rules[place].kind, None, evidence_list([Some(Evidence::AgentRule(place as u16))]));
    }
    let said = claim_evidence(facts.claim);
    let claimed = claimed_operator(facts.claim, facts.signature);
    match (facts.signature, facts.proof, claimed) {
        // A client that claims a disproven operator is an impostor, even with a valid signature of another.
        (Signature::Verified(signer), proof, _) if !matches!(proof, Proof::Disproven(_)) || claimed == Some(signer) => {
            (ClientKind::VerifiedBot, Some(signer), evidence_list([said, Some(Evidence::SignatureValid(signer))]))
        }
        (_, Proof::Proven(means), Some(operator)) => {
            (ClientKind::VerifiedBot, Some(operator), evidence_list([said, Some(proof_evidence(operator, means))]))
        }
        // The keys are not loaded yet; the signature may prove what the address does not.
        (Signature::Pending(signer), _, _) if claimed.is_none_or(|operator| operator == signer) => {
            (ClientKind::DeclaredBot, None, evidence_list([said, Some(Evidence::SignatureUnknown(Some(signer)))]))
        }
        (_, Proof::Disproven(means), Some(operator)) => {
            (ClientKind::Impostor, None, evidence_list([said, Some(mismatch_evidence(operator, means))]))
        }
        (signature, Proof::PrivateAddress, Some(operator)) => {
            let evidence =
                evidence_list([said, signature_evidence(signature), Some(Evidence::AddressPrivate(operator))]);
            (ClientKind::DeclaredBot, None, evidence)
        }
        // A signature that identifies an agent declares a bot.
        (signature, ..) => match facts.claim {
            Claim::NoUserAgent | Claim::Browser if !signature.names_an_agent() => {
                classify_undeclared([said, signature_evidence(signature)], facts.bot_score)
            }
            _ => (ClientKind::DeclaredBot, None, evidence_list([said, signature_evidence(signature)])),
        },
    }
}

/// Classifies a client that declares no bot: human, unless it is suspected.
fn classify_undeclared(
    [said, signed]: [Option<Evidence>; 2],
    suspicion: Option<BotScore>,
) -> (ClientKind, Option<OperatorId>, EvidenceList) {
    match suspicion {
        None => (ClientKind::Human, None, evidence_list([said, signed])),
        Some(BotScore { signals: [strongest, second, third], .. }) => {
            let behaves = |signal: Option<Signal>| signal.map(Evidence::Behavior);
            (
                ClientKind::SuspectedBot,
                None,
                evidence_list([said, signed, behaves(third), behaves(second), behaves(strongest)]),
            )
        }
    }
}
