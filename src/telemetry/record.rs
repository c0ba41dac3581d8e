//! All that is known of a request once it is over: what the access log writes and the metrics count.

use crate::policy::address_lists::ListId;
use crate::policy::bot_detection::HeadersSeen;
use crate::policy::class::Evidence;
use crate::policy::identity::ClientKey;
use crate::policy::{BotId, ClassId, ClientKind, OperatorId, QuotaId, Reason, ScopeId, Timestamp, Units};
use std::net::IpAddr;
use std::time::Duration;

/// One finished request. Built on the stack by the gateway; nothing in it is kept.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    /// When the verdict was given.
    pub admitted: Timestamp,
    /// When its cost was settled and the answer was out.
    pub settled: Timestamp,
    /// The decision's id, as told to the client.
    pub id: u64,
    /// The client's address.
    pub client: IpAddr,
    /// The key whose bucket pays.
    pub key: ClientKey,
    /// The method, as sent.
    pub method: &'a http::Method,
    /// The host asked for.
    pub host: &'a [u8],
    /// The path as sent, not normalised.
    pub path: &'a str,
    /// The query, without its question mark.
    pub query: Option<&'a str>,
    /// The version that the client spoke.
    pub version: http::Version,
    /// The status that the client got.
    pub status: u16,
    /// The bytes of the body that the client got.
    pub bytes: u64,
    /// The user agent as sent; empty when there was none.
    pub user_agent: &'a [u8],
    /// Where the client says it came from.
    pub referer: Option<&'a [u8]>,
    /// Which headers policy found; never their values.
    pub headers_seen: HeadersSeen,
    /// What kind of client it is.
    pub kind: ClientKind,
    /// Its class, by place ...
    pub class: ClassId,
    /// ... and by name.
    pub class_name: &'a str,
    /// Whose crawler it is, where that is proven.
    pub operator: Option<OperatorId>,
    /// Why it was classified so.
    pub evidence: &'a [Option<Evidence>],
    /// It was signed in an agent's name, rightly or not.
    pub signed: bool,
    /// The points of its client's behaviour, where it is watched and anything is known of it.
    pub bot_score: Option<u16>,
    /// Its route, by place ...
    pub route: usize,
    /// ... and by name.
    pub route_name: &'a str,
    /// What it was charged, quota by quota; a refused request has what it would have cost.
    pub charges: &'a [QuotaCharge<'a>],
    /// The decision's number among those on its client's bucket, where it has one.
    pub bucket_sequence: Option<u64>,
    /// What became of it.
    pub outcome: RecordedOutcome,
    /// The `Retry-After` that it was told.
    pub retry_after_s: Option<u64>,
    /// The scope that could not take it in time.
    pub scope: Option<&'a str>,
    /// The tier that its class stood in.
    pub tier: Option<u8>,
    /// A tier refused it, and the guard of its class let it through.
    pub guarded: bool,
    /// How long it waited for its turn.
    pub scope_wait: Duration,
    /// What the origin did, if it was asked.
    pub origin: Option<UpstreamCall<'a>>,
    /// From the first byte of the request to the last of the answer.
    pub total: Duration,
    /// What the cache said.
    pub cache: Option<&'a str>,
    /// Knows the names of bots, operators, rules and scopes.
    pub names: &'a dyn NameResolver,
}

/// What one quota was charged for one request.
#[derive(Clone, Copy, Debug)]
pub struct QuotaCharge<'a> {
    /// The quota, by place ...
    pub quota: QuotaId,
    /// ... and by name.
    pub quota_name: &'a str,
    /// What was set aside at admission.
    pub expected: Units,
    /// What it cost in the end.
    pub settled: Units,
    /// The decision's number on this quota: sorts lines into the order of admission.
    pub sequence: u64,
    /// The number of its settlement on this quota, among decisions and settlements: tells what was reserved when.
    pub settle_sequence: u64,
    /// The number of the second charge, where a second try was charged.
    pub retry_sequence: Option<u64>,
    /// Settled and reserved once the request had been decided on, with its own share if it was admitted.
    pub used: Units,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordedOutcome {
    /// It went on; `shadow` would have refused it, were that rule enforced.
    Admitted {
        /// The first rule in shadow mode that said no.
        shadow: Option<Reason>,
    },
    /// It was turned away.
    Refused(Reason),
}

/// A request that the origin was asked to answer.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamCall<'a> {
    /// The scopes it belonged to; none is the default one.
    pub scopes: &'a [ScopeId],
    /// The origin's status; none where it failed to answer.
    pub status: Option<u16>,
    /// How long it took until its answer began, or it failed.
    pub duration: Duration,
}

/// Gives names to what policy knows by number. Only names from the settings and the built-in lists.
pub trait NameResolver {
    /// The number of the settings that the names are from. As long as it is the same, so is the name of every class,
    /// route, quota, scope and rule: what was made of them may be used again.
    fn settings(&self) -> u64;
    /// The name of a bot of the list.
    fn bot(&self, bot: BotId) -> &str;
    /// The name of an operator.
    fn operator(&self, operator: OperatorId) -> &str;
    /// What the operator's own user-agent rule at this place looks for.
    fn agent_rule(&self, place: u16) -> &str;
    /// The names of the headers and cookies by which clients of a class, and `signed` requests, are known; never their values.
    fn key_headers(&self, class: ClassId, signed: bool) -> Vec<&str>;
    /// The name of an address list.
    fn list(&self, list: ListId) -> &str;
    /// The name of a scope.
    fn scope(&self, scope: ScopeId) -> &str;
}

impl RecordedOutcome {
    /// Its name in logs and metrics.
    pub const fn verdict(self) -> &'static str {
        match self {
            Self::Admitted { .. } => "admitted",
            Self::Refused(_) => "refused",
        }
    }

    /// What said no.
    pub const fn reason(self) -> Option<Reason> {
        match self {
            Self::Admitted { .. } => None,
            Self::Refused(reason) => Some(reason),
        }
    }

    /// What would have said no.
    pub const fn shadow(self) -> Option<Reason> {
        match self {
            Self::Admitted { shadow } => shadow,
            Self::Refused(_) => None,
        }
    }
}
