//! Classification of a client: its kind by the evidence, then the first class that matches.

use super::evidence::{
    ADDRESS_LIST_INDEX, API_KEY_INDEX, CERTIFICATE_INDEX, claim_evidence, evidence_list, mismatch_evidence,
    proof_evidence, signature_evidence,
};
use super::{Class, Classification, ClientKind, Evidence, EvidenceList, UserAgentRules};
use crate::bot_detection::{BotScore, Signal};
use crate::facts::{Claim, Facts, Proof, Signature};
use crate::ids::{ClassId, OperatorId};

/// Classifies a client by user-agent rules, proof, user agent and behavior, in this order.
pub fn classify(rules: &UserAgentRules, classes: &[Class], facts: &Facts<'_>) -> Classification {
    let (kind, operator, mut evidence) = kind(rules, facts);
    let matches = |(index, class): (usize, &Class)| {
        class.matcher.first_unmet(ClassId::from_index(index), kind, operator, facts).is_none()
    };
    let index = classes.iter().enumerate().position(matches).unwrap_or(classes.len().saturating_sub(1));
    if let Some(Class { matcher, .. }) = classes.get(index) {
        evidence[ADDRESS_LIST_INDEX] =
            matcher.lists.first_common(facts.client.address_lists).map(Evidence::AddressList);
        evidence[API_KEY_INDEX] = matcher.keys.is_some().then_some(Evidence::ApiKey);
        evidence[CERTIFICATE_INDEX] = (!matcher.certificates.is_empty()).then_some(Evidence::Certificate);
    }
    Classification { kind, operator, class: ClassId::from_index(index), evidence }
}

fn kind(rules: &UserAgentRules, facts: &Facts<'_>) -> (ClientKind, Option<OperatorId>, EvidenceList) {
    if let Some((index, kind)) = rules.find(facts.request.user_agent) {
        return (kind, None, evidence_list([Some(Evidence::UserAgentRule(index as u16))]));
    }
    let client = facts.client;
    let claim = claim_evidence(client.claim);
    let claimed = client.claimed_operator();
    match (client.signature, client.proof, claimed) {
        // A client that claims a disproven operator is an impostor, even with a valid signature of another.
        (Signature::Verified(signer), proof, _) if !matches!(proof, Proof::Disproven(_)) || claimed == Some(signer) => {
            (ClientKind::VerifiedBot, Some(signer), evidence_list([claim, Some(Evidence::SignatureValid(signer))]))
        }
        (_, Proof::Proven(method), Some(operator)) => {
            (ClientKind::VerifiedBot, Some(operator), evidence_list([claim, Some(proof_evidence(operator, method))]))
        }
        // The keys are not loaded yet; the signature may prove what the address does not.
        (Signature::Pending(signer), _, _) if claimed.is_none_or(|operator| operator == signer) => {
            (ClientKind::DeclaredBot, None, evidence_list([claim, Some(Evidence::SignatureUnknown(Some(signer)))]))
        }
        (_, Proof::Disproven(method), Some(operator)) => {
            (ClientKind::Impostor, None, evidence_list([claim, Some(mismatch_evidence(operator, method))]))
        }
        (signature, Proof::PrivateAddress, Some(operator)) => {
            let evidence =
                evidence_list([claim, signature_evidence(signature), Some(Evidence::AddressPrivate(operator))]);
            (ClientKind::DeclaredBot, None, evidence)
        }
        // A signature that identifies an agent declares a bot.
        (signature, ..) => match client.claim {
            Claim::NoUserAgent | Claim::Browser if !signature.identifies_agent() => {
                classify_undeclared([claim, signature_evidence(signature)], client.bot_score)
            }
            _ => (ClientKind::DeclaredBot, None, evidence_list([claim, signature_evidence(signature)])),
        },
    }
}

/// Classifies a client that declares no bot: human, unless it is suspected.
fn classify_undeclared(
    [claim, signature]: [Option<Evidence>; 2],
    bot_score: Option<BotScore>,
) -> (ClientKind, Option<OperatorId>, EvidenceList) {
    match bot_score {
        None => (ClientKind::Human, None, evidence_list([claim, signature])),
        Some(BotScore { signals: [strongest, second, third], beyond, .. }) => {
            let behavior = |signal: Option<Signal>| {
                Some(match (signal?, beyond) {
                    (Signal::BeyondPeople, Some(pages)) => Evidence::BeyondPeople(pages),
                    (signal, _) => Evidence::Behavior(signal),
                })
            };
            (
                ClientKind::SuspectedBot,
                None,
                evidence_list([claim, signature, behavior(third), behavior(second), behavior(strongest)]),
            )
        }
    }
}
