//! Evidence that only the gateway's own log contains: DNS and signature results, API keys, and behavior before the log
//! begins.

use super::log::NativeFields;
use crate::policy::bot_detection::{BotScore, Signal};
use crate::policy::{ClassId, ClientKind, OperatorId, Proof, ProofMethod, Rules, Signature};

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
    /// Hash of the credential sent.
    pub credential_hash: Option<u64>,
}

impl LoggedEvidence {
    /// Parses the evidence of a log line. `operator` resolves an operator by name.
    pub fn parse(native: &NativeFields<'_>, rules: &Rules, operator: impl Fn(&str) -> Option<OperatorId>) -> Self {
        let credential_hash = native.key.strip_prefix("hash:").and_then(|hash| u64::from_str_radix(hash, 16).ok());
        // A user agent rule or a signature that decides ends the classification before other evidence is collected.
        let mut evidence = Self { proof: Some(Proof::Unknown), credential_hash, ..Self::default() };
        for entry in &native.evidence {
            let (kind, name) = entry.split_once(':').unwrap_or((entry, ""));
            let operator_id = operator(name);
            match kind {
                "address_verified" => evidence.proof = Some(Proof::Proven(ProofMethod::Address)),
                "address_mismatch" => evidence.proof = Some(Proof::Disproven(ProofMethod::Address)),
                "address_private" => evidence.proof = Some(Proof::PrivateAddress),
                "dns_verified" => evidence.proof = Some(Proof::Proven(ProofMethod::Dns)),
                "dns_mismatch" => evidence.proof = Some(Proof::Disproven(ProofMethod::Dns)),
                "user_agent_rule" => evidence.proof = None,
                "signature_valid" => evidence.signature = operator_id.map_or(Signature::Unlisted, Signature::Verified),
                "signature_malformed" => evidence.signature = Signature::Malformed,
                "signature_unlisted" => evidence.signature = Signature::Unlisted,
                "signature_invalid" => evidence.signature = Signature::Invalid(operator_id),
                "signature_unknown" => {
                    evidence.signature = match operator_id.filter(|_| native.kind == ClientKind::DeclaredBot.name()) {
                        Some(operator) => Signature::Pending(operator),
                        None => Signature::Unknown(operator_id),
                    }
                }
                // The strongest signal is logged last.
                "behavior" => {
                    let signals = &mut evidence.bot_score.get_or_insert_default().signals;
                    signals.rotate_right(1);
                    signals[0] = Signal::ALL.into_iter().find(|signal| signal.name() == name);
                }
                "api_key" => {
                    let class = rules.classes.iter().position(|class| class.name == native.class);
                    evidence.api_key_class = class.map(|position| ClassId(position as u16));
                }
                _ => {}
            }
        }
        evidence
    }
}
