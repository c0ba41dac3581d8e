//! Facts: everything a rule may use of a request. Live requests, log lines and hypothetical requests gather the facts
//! about their client in the same way.

use super::address_lists::ListSet;
use super::api_keys::ListedKey;
use super::bot_detection::BotScore;
use super::ids::{BotId, ClassId, OperatorId};
use super::network_origin::NetworkOrigin;
use super::purpose::Purpose;
use super::request_body::JsonMatch;
use super::request_fields::FieldMatch;
use super::session::Session;
use std::net::IpAddr;

/// A request as policy evaluates it.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// What the request shows.
    pub request: RequestFacts<'a>,
    /// What is known of the client.
    pub client: &'a ClientFacts,
}

/// What a request shows, in the form that rules match.
#[derive(Clone, Copy, Debug)]
pub struct RequestFacts<'a> {
    /// Request method, as sent.
    pub method: &'a http::Method,
    /// Requested host, lower case, without a port.
    pub host: &'a str,
    /// Normalized path (see [`super::path::normalize`]), without the query.
    pub path: &'a str,
    /// Other readings of the path (see [`super::path::PathReadings`]); most requests have none.
    pub other_paths: &'a [String],
    /// Query, without the question mark.
    pub query: Option<&'a str>,
    /// User agent as sent; empty if absent.
    pub user_agent: &'a [u8],
    /// True for a CORS preflight: OPTIONS with `Origin` and `Access-Control-Request-Method`.
    pub is_preflight: bool,
    /// What the JSON body says; `None` if there is none, or if no route asks for it.
    pub json: Option<&'a JsonMatch>,
    /// Conditions of routes on header fields and cookies that the request meets; `None` if no route has any.
    pub fields: Option<&'a FieldMatch>,
}

impl RequestFacts<'_> {
    /// Returns true if origins may read body or header fields in different ways, which lead to different routes.
    pub fn is_ambiguous(&self) -> bool {
        matches!(self.json, Some(JsonMatch::Unreadable)) || self.fields.is_some_and(FieldMatch::is_ambiguous)
    }
}

/// What is known of the client of a request.
#[derive(Clone, Debug)]
pub struct ClientFacts {
    /// Client address, behind the trusted proxies.
    pub address: IpAddr,
    /// Configured address lists that contain the address.
    pub address_lists: ListSet,
    /// Claim made by the user agent.
    pub claim: Claim,
    /// Result of verifying the claim.
    pub proof: Proof,
    /// Result of verifying the request's signature.
    pub signature: Signature,
    /// Purpose of the operator that the client belongs to, or claims to.
    pub purpose: Option<Purpose>,
    /// Valid key of the list of API keys that the request carries.
    pub api_key: Option<ListedKey>,
    /// Classes for which the request carries a valid API key, listed or of their own condition.
    pub api_key_classes: Vec<ClassId>,
    /// Classes that the client's certificate has a name of.
    pub certificate_classes: Vec<ClassId>,
    /// Classes whose header fields and cookies the request has.
    pub field_classes: Vec<ClassId>,
    /// Session of the client.
    pub session: Session,
    /// Autonomous system and country of the address.
    pub network_origin: NetworkOrigin,
    /// Bot score, if the client declares no bot and the score reaches the threshold.
    pub bot_score: Option<BotScore>,
}

/// Source of the evidence about the client of one request: a live request, a log line or a hypothetical request.
/// [`ClientFacts::gather`] calls each method at most once.
pub trait ClientEvidence {
    /// Returns the claim of the user agent.
    fn claim(&mut self) -> Claim;
    /// Verifies the signature of the request.
    fn signature(&mut self) -> Signature;
    /// Verifies that the client is a crawler of `claimed`.
    fn proof(&mut self, claimed: Option<OperatorId>) -> Proof;
    /// Returns the purpose for which an operator fetches pages.
    fn purpose(&mut self, operator: OperatorId) -> Option<Purpose>;
    /// Returns the address lists that contain the client.
    fn address_lists(&mut self) -> ListSet;
    /// Returns the valid key of the list of API keys that the request carries.
    fn api_key(&mut self) -> Option<ListedKey>;
    /// Returns the classes for which the request carries a valid API key of their own condition.
    fn api_key_classes(&mut self) -> Vec<ClassId>;
    /// Returns the classes that the client's certificate has a name of.
    fn certificate_classes(&mut self) -> Vec<ClassId>;
    /// Returns the classes whose header fields and cookies the request has.
    fn field_classes(&mut self) -> Vec<ClassId>;
    /// Returns the session of the client.
    fn session(&mut self) -> Session;
    /// Returns the autonomous system and the country of the address.
    fn network_origin(&mut self) -> NetworkOrigin;
    /// Returns the bot score of a client that declares no bot; `None` below the threshold. Called after [`Self::session`].
    fn bot_score(&mut self) -> Option<BotScore>;
}

impl ClientFacts {
    /// Gathers what is known of the client at `address`: the claim, then the signature, which can be a claim too, then
    /// the proof of the claimed operator.
    pub fn gather(address: IpAddr, evidence: &mut impl ClientEvidence) -> Self {
        let claim = evidence.claim();
        let signature = evidence.signature();
        let claimed = claimed_operator(claim, signature);
        let proof = evidence.proof(claimed);
        let signer = match signature {
            Signature::Verified(signer) | Signature::Pending(signer) => Some(signer),
            _ => None,
        };
        let session = evidence.session();
        // A signed agent or a named bot does not claim to be a browser.
        let bot_score = match claim {
            Claim::Browser | Claim::NoUserAgent if !signature.identifies_agent() => evidence.bot_score(),
            _ => None,
        };
        let api_key = evidence.api_key();
        let mut api_key_classes = evidence.api_key_classes();
        api_key_classes.extend(api_key.map(|key| key.class));
        Self {
            address,
            address_lists: evidence.address_lists(),
            claim,
            proof,
            signature,
            purpose: signer.or(claimed).and_then(|operator| evidence.purpose(operator)),
            api_key,
            api_key_classes,
            certificate_classes: evidence.certificate_classes(),
            field_classes: evidence.field_classes(),
            session,
            network_origin: evidence.network_origin(),
            bot_score,
        }
    }

    /// Returns the operator that the client claims to belong to.
    pub fn claimed_operator(&self) -> Option<OperatorId> {
        claimed_operator(self.claim, self.signature)
    }
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
fn claimed_operator(claim: Claim, signature: Signature) -> Option<OperatorId> {
    match (claim, signature) {
        (Claim::Bot { operator: Some(operator), .. }, _) => Some(operator),
        (_, Signature::Invalid(operator)) => operator,
        _ => None,
    }
}
