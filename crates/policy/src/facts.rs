//! Facts: everything a rule may use of a request, in one plain struct. Live requests, log lines and tests build the
//! same struct.

use super::address_lists::ListSet;
use super::bot_detection::BotScore;
use super::ids::{BotId, ClassId, OperatorId};
use std::net::IpAddr;

/// A request as policy evaluates it.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Request method, as sent.
    pub method: &'a http::Method,
    /// Requested host, lower case, without a port.
    pub host: &'a str,
    /// Normalized path (see [`super::route::normalize`]), without the query.
    pub path: &'a str,
    /// Query, without the question mark.
    pub query: Option<&'a str>,
    /// Client address, behind the trusted proxies.
    pub client: IpAddr,
    /// Configured address lists that contain the client address.
    pub address_lists: ListSet,
    /// User agent as sent; empty if absent.
    pub user_agent: &'a [u8],
    /// Claim made by the user agent.
    pub claim: Claim,
    /// Result of verifying the claim.
    pub proof: Proof,
    /// Result of verifying the request's signature.
    pub signature: Signature,
    /// Classes for which the request carries a valid API key.
    pub api_key_classes: &'a [ClassId],
    /// Bot score, if the user agent claims a browser and the score reaches the threshold.
    pub bot_score: Option<BotScore>,
}

/// Claim of a user agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Claim {
    /// No user agent: neither a claim nor a proof.
    #[default]
    NoUserAgent,
    /// A user agent that matches no bot.
    Browser,
    /// A user agent that matches a bot.
    Bot {
        /// Entry in the bot list, if listed.
        bot: Option<BotId>,
        /// Claimed operator, if the operator is configured.
        operator: Option<OperatorId>,
    },
}

/// Result of verifying the claimed operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proof {
    /// No operator is claimed, or the claim is neither proven nor disproven yet.
    #[default]
    Unknown,
    /// The client is a crawler of the operator.
    Proven(ProofMethod),
    /// The client is not a crawler of the operator: the operator's data are exhaustive and do not cover it.
    Disproven(ProofMethod),
    /// The client address is loopback, private, link-local or shared. It belongs to a proxy or a local machine, so it
    /// proves and disproves nothing.
    PrivateAddress,
}

/// Method by which a claim is proven or disproven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProofMethod {
    /// Address ranges that the operator publishes.
    Address,
    /// Forward-confirmed reverse DNS.
    Dns,
}

/// Result of verifying the signature of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signature {
    /// No signature; proves nothing.
    #[default]
    Absent,
    /// Malformed signature that identifies no agent; proves nothing.
    Malformed,
    /// Valid signature by an agent of this operator.
    Verified(OperatorId),
    /// Valid signature by an agent without a configured operator.
    Unlisted,
    /// Invalid signature in the name of an agent, with its operator if configured.
    Invalid(Option<OperatorId>),
    /// Signature in the name of an agent of this operator; its keys are not loaded yet.
    Pending(OperatorId),
    /// Signature in the name of an agent, with its operator if configured; not verifiable.
    Unknown(Option<OperatorId>),
}

impl Signature {
    /// Returns true if the signature identifies an agent, valid or not.
    pub const fn identifies_agent(self) -> bool {
        !matches!(self, Self::Absent | Self::Malformed)
    }
}

/// Returns the claimed operator: by user agent, or else by an invalid signature.
pub fn claimed_operator(claim: Claim, signature: Signature) -> Option<OperatorId> {
    match (claim, signature) {
        (Claim::Bot { operator: Some(operator), .. }, _) => Some(operator),
        (_, Signature::Invalid(operator)) => operator,
        _ => None,
    }
}
