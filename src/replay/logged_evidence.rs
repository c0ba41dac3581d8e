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
    pub suspicion: Option<BotScore>,
    /// Class whose API key the client sent.
    pub holds_key_of: Option<ClassId>,
    /// Hash of the credential sent.
    pub secret: Option<u64>,
}

impl LoggedEvidence {
    /// Parses the evidence of a log line. `operator` resolves an operator by name.
    pub fn of(own: &NativeFields<'_>, rules: &Rules, operator: impl Fn(&str) -> Option<OperatorId>) -> Self {
        let secret = own.key.strip_prefix("hash:").and_then(|hash| u64::from_str_radix(hash, 16).ok());
        // A user agent rule or a signature that decides ends the classification before other evidence is collected.
        let mut said = Self { proof: Some(Proof::Unknown), secret, ..Self::default() };
        for found in &own.evidence {
            let (what, name) = found.split_once(':').unwrap_or((found, ""));
            let whose = operator(name);
            match what {
                "address_verified" => said.proof = Some(Proof::Proven(ProofMethod::Address)),
                "address_mismatch" => said.proof = Some(Proof::Disproven(ProofMethod::Address)),
                "address_private" => said.proof = Some(Proof::PrivateAddress),
                "dns_verified" => said.proof = Some(Proof::Proven(ProofMethod::Dns)),
                "dns_mismatch" => said.proof = Some(Proof::Disproven(ProofMethod::Dns)),
                "user_agent_rule" => said.proof = None,
                "signature_valid" => said.signature = whose.map_or(Signature::Unlisted, Signature::Verified),
                "signature_malformed" => said.signature = Signature::Unreadable,
                "signature_unlisted" => said.signature = Signature::Unlisted,
                "signature_invalid" => said.signature = Signature::Invalid(whose),
                "signature_unknown" => {
                    said.signature = match whose.filter(|_| own.kind == ClientKind::DeclaredBot.name()) {
                        Some(operator) => Signature::Pending(operator),
                        None => Signature::Unknown(whose),
                    }
                }
                // The strongest signal is logged last.
                "behavior" => {
                    let signals = &mut said.suspicion.get_or_insert_default().signals;
                    signals.rotate_right(1);
                    signals[0] = Signal::ALL.into_iter().find(|signal| signal.name() == name);
                }
                "api_key" => {
                    let class = rules.classes.iter().position(|class| class.name == own.class);
                    said.holds_key_of = class.map(|place| ClassId(place as u16));
                }
                _ => {}
            }
        }
        said
    }
}
