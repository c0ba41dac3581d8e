//! What the gate once found out and its log alone can tell: proof by DNS, signatures, keys, and how clients behaved before
//! the log begins.

use super::log::NativeFields;
use crate::policy::bot_detection::{BotScore, Signal};
use crate::policy::{ClassId, ClientKind, OperatorId, Proof, ProofMethod, Rules, Signature};

/// What a line of the gate's own log says of its client.
#[derive(Clone, Debug, Default)]
pub struct LoggedEvidence {
    /// What was known of its claim; none where the claim was not put to the test.
    pub proof: Option<Proof>,
    /// What its signature proved.
    pub signature: Signature,
    /// Why it was suspected, if it was.
    pub suspicion: Option<BotScore>,
    /// The class of whose keys it held one.
    pub holds_key_of: Option<ClassId>,
    /// A hash of what it sent to be known by.
    pub secret: Option<u64>,
}

impl LoggedEvidence {
    /// Reads it from what the gate wrote of its reasons. `operator` finds one by its name.
    pub fn of(own: &NativeFields<'_>, rules: &Rules, operator: impl Fn(&str) -> Option<OperatorId>) -> Self {
        let secret = own.key.strip_prefix("hash:").and_then(|hash| u64::from_str_radix(hash, 16).ok());
        // Where its user agent or its signature decided, nobody asked for more.
        let mut said = Self { proof: Some(Proof::Unknown), secret, ..Self::default() };
        for found in &own.evidence {
            let (what, name) = found.split_once(':').unwrap_or((found, ""));
            let whose = operator(name);
            match what {
                "address_published" => said.proof = Some(Proof::Proven(ProofMethod::Address)),
                "address_foreign" => said.proof = Some(Proof::Disproven(ProofMethod::Address)),
                "address_private" => said.proof = Some(Proof::PrivateAddress),
                "name_proven" => said.proof = Some(Proof::Proven(ProofMethod::Dns)),
                "name_foreign" => said.proof = Some(Proof::Disproven(ProofMethod::Dns)),
                "agent_rule" => said.proof = None,
                "signed" => said.signature = whose.map_or(Signature::Unlisted, Signature::Verified),
                "signature_unreadable" => said.signature = Signature::Unreadable,
                "signed_unlisted" => said.signature = Signature::Unlisted,
                "signature_invalid" => said.signature = Signature::Invalid(whose),
                "signature_unknown" => {
                    said.signature = match whose.filter(|_| own.kind == ClientKind::DeclaredBot.name()) {
                        Some(operator) => Signature::Pending(operator),
                        None => Signature::Unknown(whose),
                    }
                }
                // The strongest is told last.
                "behaves" => {
                    let signals = &mut said.suspicion.get_or_insert_default().signals;
                    signals.rotate_right(1);
                    signals[0] = Signal::ALL.into_iter().find(|signal| signal.name() == name);
                }
                "holds_key" => {
                    let class = rules.classes.iter().position(|class| class.name == own.class);
                    said.holds_key_of = class.map(|place| ClassId(place as u16));
                }
                _ => {}
            }
        }
        said
    }
}
