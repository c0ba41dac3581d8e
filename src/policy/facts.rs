//! Everything a rule may know about a request, in one plain struct, so that a live request, a log line
//! and a test look the same.

use super::address_lists::ListSet;
use super::bot_detection::BotScore;
use super::class::ClassId;
use std::net::IpAddr;

/// One request as policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The request method, as sent.
    pub method: &'a http::Method,
    /// The host asked for, lower case, without a port.
    pub host: &'a str,
    /// The path as rules match it: normalised (see [`super::route::normalize`]), without the query.
    pub path: &'a str,
    /// The query, without its question mark.
    pub query: Option<&'a str>,
    /// The client's address, after the trusted proxies have been peeled off.
    pub client: IpAddr,
    /// The operator's address lists that it stands on.
    pub address_lists: ListSet,
    /// The user agent as sent; empty when there was none.
    pub user_agent: &'a [u8],
    /// What that user agent says of itself.
    pub claim: Claim,
    /// What is known about the claim beyond the user agent's word.
    pub proof: Proof,
    /// What its signature proves.
    pub signature: Signature,
    /// The classes of whose keys it holds one.
    pub api_key_classes: &'a [ClassId],
    /// Why it is suspected, if it says it is a browser and does not behave like one.
    pub bot_score: Option<BotScore>,
}

/// What a user agent says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Claim {
    /// There was no user agent: neither a claim nor a proof of anything.
    #[default]
    NoUserAgent,
    /// Nothing in it names a bot.
    Browser,
    /// A bot names itself.
    Bot {
        /// Which entry of the bot list, where it is on the list.
        bot: Option<BotId>,
        /// The operator whose crawler it claims to be, where that operator is known.
        operator: Option<OperatorId>,
    },
}

/// What is known, beyond the user agent's word, about the operator that it claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proof {
    /// No operator was claimed, or nothing proves or disproves the claim, or not yet.
    #[default]
    Unknown,
    /// The client is that operator's crawler.
    Proven(ProofMethod),
    /// It is not: the operator says by what all of its crawlers are known, and this client is not.
    Disproven(ProofMethod),
    /// Its address is loopback, private, link-local or shared: that of a proxy, or of a machine next door, which proves and
    /// disproves nothing.
    PrivateAddress,
}

/// By what a claim was proven or disproven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProofMethod {
    /// The addresses that the operator publishes.
    Address,
    /// The names of the address in DNS, there and back.
    Dns,
}

/// What the signature on a request proves of who sent it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signature {
    /// There is none, which says nothing.
    #[default]
    Absent,
    /// Something is there in its place that names no agent, which says as little.
    Unreadable,
    /// It is by an agent of this operator.
    Verified(OperatorId),
    /// It is by the agent that it names, of whom no operator is known.
    Unlisted,
    /// It names an agent, of this operator where one is known, and is wrong.
    Invalid(Option<OperatorId>),
    /// It names an agent of this operator, whose keys are not known yet.
    Pending(OperatorId),
    /// It names an agent, of this operator where one is known, and nobody can tell.
    Unknown(Option<OperatorId>),
}

impl Signature {
    /// True where it says that an agent sent the request, rightly or not.
    pub const fn names_an_agent(self) -> bool {
        !matches!(self, Self::Absent | Self::Unreadable)
    }
}

/// Whose crawler a client says it is: by its user agent, or else by a signature that is wrong.
pub fn claimed_operator(claim: Claim, signature: Signature) -> Option<OperatorId> {
    match (claim, signature) {
        (Claim::Bot { operator: Some(operator), .. }, _) => Some(operator),
        (_, Signature::Invalid(operator)) => operator,
        _ => None,
    }
}

/// A bot, by its place in the built-in list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BotId(pub u16);

/// An operator of crawlers (`googlebot`, `bingbot`, ...), by its place in the operators' table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperatorId(pub u16);
