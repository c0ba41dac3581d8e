//! Evidence for a classification: what user agent, address, signature and behavior show.

use crate::bot_detection::{PagesBeyond, Signal};
use crate::facts::{Claim, ProofMethod, Signature};
use crate::ids::{BotId, ListId, OperatorId};

/// Evidence for a classification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// Index of the administrator's user-agent rule that matched.
    UserAgentRule(u16),
    /// No user agent was sent.
    NoUserAgent,
    /// The user agent matches no bot.
    UserAgentNoMatch,
    /// The user agent matches a listed bot.
    UserAgentMatch(BotId),
    /// The user agent matches the bot heuristic, but no listed bot.
    UserAgentHeuristic,
    /// The address is in a range that the operator publishes.
    AddressVerified(OperatorId),
    /// The operator's published ranges are exhaustive and do not contain the address.
    AddressMismatch(OperatorId),
    /// The operator is claimed from a loopback, private, link-local or shared address, which disproves nothing.
    AddressPrivate(OperatorId),
    /// The request carries an API key of its class.
    ApiKey,
    /// The client's certificate has a name of its class.
    Certificate,
    /// Forward-confirmed reverse DNS yields a name of the operator.
    DnsVerified(OperatorId),
    /// The operator's DNS names are exhaustive, and the address resolves to none of them.
    DnsMismatch(OperatorId),
    /// The request has signature fields that identify no agent.
    SignatureMalformed,
    /// Valid signature by an agent of the operator.
    SignatureValid(OperatorId),
    /// Valid signature by an agent without a configured operator.
    SignatureUnlisted,
    /// Invalid signature in the name of an agent, with its operator if configured.
    SignatureInvalid(Option<OperatorId>),
    /// Unverifiable signature in the name of an agent, with its operator if configured.
    SignatureUnknown(Option<OperatorId>),
    /// Behavioral signal that is rare for humans.
    Behavior(Signal),
    /// The session asks for more costly pages a day than people do.
    BeyondPeople(PagesBeyond),
    /// The address is on an address list that the class matches.
    AddressList(ListId),
}

/// Evidence for a classification, strongest last.
pub type EvidenceList = [Option<Evidence>; 8];

/// Indexes of the evidence for the class, after the evidence for the kind.
pub(super) const ADDRESS_LIST_INDEX: usize = 5;
pub(super) const API_KEY_INDEX: usize = 6;
pub(super) const CERTIFICATE_INDEX: usize = 7;

impl Evidence {
    /// Returns the operator whose claim was verified, if this evidence is the result.
    pub const fn claimed_operator(self) -> Option<OperatorId> {
        match self {
            Self::AddressVerified(operator) | Self::AddressMismatch(operator) | Self::SignatureValid(operator) => {
                Some(operator)
            }
            Self::SignatureInvalid(operator) | Self::SignatureUnknown(operator) => operator,
            _ => None,
        }
    }
}

pub(super) fn claim_evidence(claim: Claim) -> Option<Evidence> {
    Some(match claim {
        Claim::NoUserAgent => Evidence::NoUserAgent,
        Claim::Browser => Evidence::UserAgentNoMatch,
        Claim::Bot { bot, .. } => bot.map_or(Evidence::UserAgentHeuristic, Evidence::UserAgentMatch),
    })
}

pub(super) fn proof_evidence(operator: OperatorId, method: ProofMethod) -> Evidence {
    match method {
        ProofMethod::Address => Evidence::AddressVerified(operator),
        ProofMethod::Dns => Evidence::DnsVerified(operator),
    }
}

pub(super) fn mismatch_evidence(operator: OperatorId, method: ProofMethod) -> Evidence {
    match method {
        ProofMethod::Address => Evidence::AddressMismatch(operator),
        ProofMethod::Dns => Evidence::DnsMismatch(operator),
    }
}

pub(super) fn signature_evidence(signature: Signature) -> Option<Evidence> {
    match signature {
        Signature::Absent => None,
        Signature::Malformed => Some(Evidence::SignatureMalformed),
        Signature::Verified(operator) => Some(Evidence::SignatureValid(operator)),
        Signature::Unlisted => Some(Evidence::SignatureUnlisted),
        Signature::Invalid(operator) => Some(Evidence::SignatureInvalid(operator)),
        Signature::Pending(operator) => Some(Evidence::SignatureUnknown(Some(operator))),
        Signature::Unknown(operator) => Some(Evidence::SignatureUnknown(operator)),
    }
}

pub(super) fn evidence_list<const N: usize>(evidence: [Option<Evidence>; N]) -> EvidenceList {
    let mut list = EvidenceList::default();
    list[..N].copy_from_slice(&evidence);
    list
}
