//! Evidence that only the gateway's own log contains: DNS and signature results, API keys, and behavior before the log
//! begins.

use super::NativeFields;
use crate::EvidenceWord;
use crate::evidence::parse_beyond;
use tidegate_policy::bot_detection::{BotScore, Signal};
use tidegate_policy::identity::ClientKey;
use tidegate_policy::network_origin::NetworkOrigin;
use tidegate_policy::session::Session;
use tidegate_policy::{ClassId, ClientKind, OperatorId, Proof, ProofMethod, Rules, Signature};

/// Evidence about the client in a line of the gateway's own log.
#[derive(Clone, Debug, Default)]
pub struct LoggedEvidence {
    /// Proof of the client's claim; `None` if the claim was not verified.
    pub proof: Option<Proof>,
    /// Result of the signature verification.
    pub signature: Signature,
    /// Bot score, if the client was suspected.
    pub bot_score: Option<BotScore>,
    /// Class whose API key the client sent.
    pub api_key_class: Option<ClassId>,
    /// Class that the client's certificate had a name of.
    pub certificate_class: Option<ClassId>,
    /// Classes whose header fields and cookies the request had.
    pub field_classes: Vec<ClassId>,
    /// Session of the client; `None` if there were no sessions.
    pub session: Option<Session>,
    /// Part of the id of the session; 0 without one.
    pub session_id: u32,
    /// Autonomous system and country of the address.
    pub network_origin: NetworkOrigin,
    /// Class of the client.
    pub class: Option<ClassId>,
    /// Key of the customer that paid; `None` without a credential of one.
    pub customer: Option<ClientKey>,
    /// Hash of the credential sent.
    pub credential_hash: Option<u64>,
}

impl LoggedEvidence {
    /// Parses the evidence of a log line. `operator` resolves an operator by name.
    pub fn parse(native: &NativeFields<'_>, rules: &Rules, operator: impl Fn(&str) -> Option<OperatorId>) -> Self {
        let hash = |key: &str| u64::from_str_radix(key.strip_prefix("hash:")?, 16).ok();
        let credential_hash = hash(&native.key);
        // A user agent rule or a signature that decides ends the classification before other evidence is collected.
        let mut evidence = Self {
            proof: Some(Proof::Unknown),
            class: class_named(native.class.as_ref(), rules),
            customer: native.customer.and_then(hash).map(ClientKey::from_credential),
            credential_hash,
            field_classes: native.field_classes.iter().filter_map(|name| rules.class_id(name)).collect(),
            session: native.session.and_then(Session::from_name),
            session_id: native.session_id.and_then(|id| u32::from_str_radix(id, 16).ok()).unwrap_or(0),
            network_origin: native.network_origin,
            ..Self::default()
        };
        for (word, name) in native.evidence.iter().filter_map(|entry| EvidenceWord::parse(entry)) {
            let operator_id = operator(name);
            match word {
                EvidenceWord::AddressVerified => evidence.proof = Some(Proof::Proven(ProofMethod::Address)),
                EvidenceWord::AddressMismatch => evidence.proof = Some(Proof::Disproven(ProofMethod::Address)),
                EvidenceWord::AddressPrivate => evidence.proof = Some(Proof::PrivateAddress),
                EvidenceWord::DnsVerified => evidence.proof = Some(Proof::Proven(ProofMethod::Dns)),
                EvidenceWord::DnsMismatch => evidence.proof = Some(Proof::Disproven(ProofMethod::Dns)),
                EvidenceWord::UserAgentRule => evidence.proof = None,
                EvidenceWord::SignatureValid => {
                    evidence.signature = operator_id.map_or(Signature::Unlisted, Signature::Verified);
                }
                EvidenceWord::SignatureMalformed => evidence.signature = Signature::Malformed,
                EvidenceWord::SignatureUnlisted => evidence.signature = Signature::Unlisted,
                EvidenceWord::SignatureInvalid => evidence.signature = Signature::Invalid(operator_id),
                EvidenceWord::SignatureUnknown => {
                    evidence.signature = match operator_id.filter(|_| native.kind == ClientKind::DeclaredBot.name()) {
                        Some(operator) => Signature::Pending(operator),
                        None => Signature::Unknown(operator_id),
                    }
                }
                // The strongest signal is logged last.
                EvidenceWord::Behavior => {
                    let signals = &mut evidence.bot_score.get_or_insert_default().signals;
                    signals.rotate_right(1);
                    signals[0] = Signal::from_name(name);
                }
                EvidenceWord::BeyondPeople => {
                    let score = evidence.bot_score.get_or_insert_default();
                    score.signals.rotate_right(1);
                    score.signals[0] = Some(Signal::BeyondPeople);
                    score.beyond = parse_beyond(name);
                }
                EvidenceWord::ApiKey => evidence.api_key_class = class_named(native.class.as_ref(), rules),
                EvidenceWord::Certificate => evidence.certificate_class = class_named(native.class.as_ref(), rules),
                // The replay derives these again from the line and the rules.
                EvidenceWord::NoUserAgent
                | EvidenceWord::UserAgentNoMatch
                | EvidenceWord::UserAgentMatch
                | EvidenceWord::UserAgentHeuristic
                | EvidenceWord::AddressList => {}
            }
        }
        evidence
    }
}

fn class_named(name: &str, rules: &Rules) -> Option<ClassId> {
    rules.classes.iter().position(|class| class.name == name).map(ClassId::from_index)
}
