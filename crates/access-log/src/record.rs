//! Record of a finished request: the input of the access log and the metrics.

use std::net::IpAddr;
use std::time::Duration;
use tidegate_http_cache::CacheResult;
use tidegate_policy::bot_detection::HeadersSeen;
use tidegate_policy::cache::CacheFill;
use tidegate_policy::class::Evidence;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::network_origin::NetworkOrigin;
use tidegate_policy::purpose::Purpose;
use tidegate_policy::request_body::JsonMatch;
use tidegate_policy::request_fields::FieldMatch;
use tidegate_policy::session::Session;
use tidegate_policy::switches::SwitchEffect;
use tidegate_policy::{BotId, ClassId, ClientKind, ListId, OperatorId, Reason, RouteId, ScopeId, Timestamp, Units};

/// Status in the log if the client disconnected before the response. Never sent.
pub const CLIENT_CLOSED_REQUEST: u16 = 499;

/// A finished request. The gateway builds it on the stack and does not keep it. [`LOG_FIELDS`](super::fields::LOG_FIELDS)
/// describes the fields of the access log; here are their sources, and what only the metrics use.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    /// Time of the verdict (`time`).
    pub admitted_at: Timestamp,
    /// Time of settlement (`settled`).
    pub settled_at: Timestamp,
    /// Id of the decision.
    pub id: u64,
    /// Client and its classification.
    pub client: RecordedClient<'a>,
    /// Request as sent.
    pub request: RecordedRequest<'a>,
    /// Decision on the request.
    pub decision: RecordedDecision<'a>,
    /// Units of the request.
    pub units: RecordedUnits<'a>,
    /// Response to the request.
    pub response: RecordedResponse<'a>,
    /// Resolver for names of bots, operators, rules and scopes.
    pub names: &'a dyn NameResolver,
}

/// A request that is rejected as invalid: no rule has decided on it.
#[derive(Clone, Copy)]
pub struct RejectedRecord<'a> {
    /// Time of the response (`time`).
    pub at: Timestamp,
    /// Id of the response.
    pub id: u64,
    /// Address of the client (`client`).
    pub address: IpAddr,
    /// Request as sent.
    pub request: RecordedRequest<'a>,
    /// Status of the response.
    pub status: u16,
    /// Number of body bytes sent.
    pub bytes: u64,
    /// What is wrong with the request, as the response says (`problem`).
    pub problem: &'a str,
}

/// Client of a finished request and its classification.
#[derive(Clone, Copy, Debug)]
pub struct RecordedClient<'a> {
    /// Address (`client`).
    pub address: IpAddr,
    /// Key of the client's bucket.
    pub key: ClientKey,
    /// Headers that the policy read. The log adds the header or cookie of a known key, and has `tls` and `http_10` apart.
    pub headers_seen: HeadersSeen,
    /// Kind of the client.
    pub kind: ClientKind,
    /// Id of the class.
    pub class: ClassId,
    /// Name of the class (`class`). Names of classes, quotas and operators have nothing that JSON escapes.
    pub class_name: &'a str,
    /// Operator of the crawler, if verified.
    pub operator: Option<OperatorId>,
    /// Reasons of the classification, up to seven entries in order.
    pub evidence: &'a [Option<Evidence>],
    /// What is known beyond that; `None` if nothing is.
    pub more: Option<&'a RecordedMore<'a>>,
    /// True if the request was signed in an agent's name, whether or not the signature is valid. It adds the signature
    /// fields to `headers_seen`.
    pub signed: bool,
    /// Bot score, also below the threshold; `None` if the client has no profile.
    pub bot_score: Option<u16>,
}

/// What is known of a client where the settings ask for it, or its operator says so.
#[derive(Clone, Copy, Debug)]
pub struct RecordedMore<'a> {
    /// Session (`session`); `None` if there are no sessions.
    pub session: Option<Session>,
    /// Part of the id of the session (`session_id`); 0 without one.
    pub session_id: u32,
    /// True if the refusal asks the client to come back with a session. Not part of the log.
    pub is_asked_back: bool,
    /// Purpose of the operator that the client belongs to, or claims to (`purpose`).
    pub purpose: Option<Purpose>,
    /// Autonomous system and country of the address (`asn`, `country`).
    pub network_origin: NetworkOrigin,
    /// Names of the classes whose header fields and cookies the request has (`field_classes`).
    pub field_classes: &'a [&'a str],
    /// Key of the customer that pays (`customer`); `None` without a credential of one.
    pub customer: Option<ClientKey>,
    /// Id of the trace (`trace_id`); `None` without `traces`.
    pub trace_id: Option<u128>,
}

/// A finished request as sent.
#[derive(Clone, Copy, Debug)]
pub struct RecordedRequest<'a> {
    /// Request method.
    pub method: &'a http::Method,
    /// Requested host.
    pub host: &'a [u8],
    /// Path, not normalized.
    pub path: &'a str,
    /// Query without the question mark.
    pub query: Option<&'a str>,
    /// HTTP version of the client.
    pub version: http::Version,
    /// User agent; empty if there was none.
    pub user_agent: &'a [u8],
    /// `Referer`.
    pub referer: Option<&'a [u8]>,
    /// Reason of a request that the gateway made itself; `None` for requests of clients.
    pub fill: Option<CacheFill>,
    /// What the JSON body says (`json`); `None` if no route asks for it.
    pub json: Option<&'a JsonMatch>,
    /// Conditions of routes on header fields and cookies that it meets (`fields`); `None` if no route has any.
    pub fields: Option<&'a FieldMatch>,
}

/// Decision on a finished request.
#[derive(Clone, Copy, Debug)]
pub struct RecordedDecision<'a> {
    /// Id of the route, in the config of [`Record::names`].
    pub route: RouteId,
    /// Name of the route (`route`).
    pub route_name: &'a str,
    /// Name of the origin, where there are several.
    pub origin: Option<&'a str>,
    /// Outcome: `verdict`, `reason` and `shadow_reason`.
    pub outcome: RecordedOutcome,
    /// Effect of the switch that applied to the client.
    pub switch: Option<SwitchEffect>,
    /// `Retry-After` sent to the client, in seconds.
    pub retry_after_s: Option<u64>,
    /// Number of tiers that the class had entered.
    pub tier: Option<u8>,
    /// True if a tier or the pacing plan refused the request and the crawler guard admitted it.
    pub guard_admitted: bool,
    /// Sequence number of the decision on the client's bucket (`bucket_seq`), if it has one.
    pub bucket_sequence: Option<u64>,
    /// Scope that refused the request.
    pub scope: Option<&'a str>,
    /// Time of the request in the queue of its scopes (`scope_wait_ms`).
    pub scope_wait: Duration,
}

/// Units of a finished request.
#[derive(Clone, Copy, Debug)]
pub struct RecordedUnits<'a> {
    /// Charges by quota.
    pub charges: &'a [QuotaCharge<'a>],
    /// Charges for costs that the origin reported and the route does not expect, by quota.
    pub unexpected_costs: &'a [UnexpectedCost<'a>],
    /// Units charged for costs in quotas in which the route has none and that were learned by the path. Not part of the
    /// log: they are in `charged`.
    pub learned_charges: Units,
    /// Units that a stored response saved, by quota. Not part of the log: replay knows them from the costs.
    pub saved: &'a [(&'a str, Units)],
}

/// Response to a finished request.
#[derive(Clone, Copy, Debug)]
pub struct RecordedResponse<'a> {
    /// Status.
    pub status: u16,
    /// Number of body bytes sent.
    pub bytes: u64,
    /// Request to the origin, if one was sent; its duration is `origin_ms`.
    pub origin: Option<UpstreamCall<'a>>,
    /// Time from the first byte of the request to the last byte of the response (`total_ms`).
    pub total: Duration,
    /// Why the response ended before its end; `None` for a whole one.
    pub cut: Option<ResponseCut>,
    /// Result of the cache; `None` if the route is not cached.
    pub cache: Option<CacheResult>,
}

/// Cause of a response that ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseCut {
    /// The gateway ended it: the origin sent no part of it for `response_timeout`.
    ResponseTimeout,
    /// The origin ended it.
    Origin,
    /// The gateway ended it: the client leaves too many others unread.
    TooManyUnread,
}

impl ResponseCut {
    /// Returns the word of the access log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ResponseTimeout => "response_timeout",
            Self::Origin => "origin",
            Self::TooManyUnread => "too_many_unread",
        }
    }
}

/// Cost and usage of one request on one quota. The log has each field as an object by quota.
#[derive(Clone, Copy, Debug)]
pub struct QuotaCharge<'a> {
    /// Name of the quota.
    pub quota_name: &'a str,
    /// Units reserved at admission (`cost`).
    pub cost: Units,
    /// Units charged at settlement (`charged`).
    pub charged: Units,
    /// Sequence number of the decision on the quota (`seq`).
    pub sequence: u64,
    /// Sequence number of the settlement on the quota (`settle_seq`), counted with the decisions.
    pub settle_sequence: u64,
    /// Sequence number of the charge for a second attempt (`retry_seq`), if there was one.
    pub retry_sequence: Option<u64>,
    /// Settled plus reserved units after the decision, including the request's own if admitted.
    pub used: Units,
}

/// Charge of one request in a quota in which its route has no cost.
#[derive(Clone, Copy, Debug)]
pub struct UnexpectedCost<'a> {
    /// Name of the quota.
    pub quota_name: &'a str,
    /// Units charged at settlement (`unexpected_cost`).
    pub charged: Units,
    /// Sequence number of the settlement on the quota (`seq` and `settle_seq`).
    pub settle_sequence: u64,
}

/// Outcome of a request. `verdict` is `admitted` or `refused`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordedOutcome {
    /// The request was admitted. A rule in shadow mode (`enforce: false`) may have refused it.
    Admitted {
        /// First rule in shadow mode that would have refused the request (`shadow_reason`).
        shadow_reason: Option<Reason>,
    },
    /// The request was refused. Reasons are, among others, `blocked` (the class has `block: true`), `pacing` (the
    /// pacing plan of the quota), `throttle` (the queue was full, or the wait would have been too long) and `backoff`
    /// (the scope was backing off after an overload).
    Refused(Reason),
}

/// A request sent to the origin.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamCall<'a> {
    /// Scopes of the request; empty for the default scope.
    pub scopes: &'a [ScopeId],
    /// Status of the response; `None` if the origin did not respond.
    pub status: Option<u16>,
    /// Time until the response head was received or the request failed.
    pub duration: Duration,
}

/// Resolves ids of the policy to names. All names come from the config and the built-in lists.
pub trait NameResolver {
    /// Returns the number of the config that the names belong to. While it is the same, all names of classes, routes,
    /// quotas, scopes and rules are the same, and text rendered from them may be reused.
    fn config_number(&self) -> u64;
    /// Returns the name of a bot of the list.
    fn bot(&self, bot: BotId) -> &str;
    /// Returns the name of an operator.
    fn operator(&self, operator: OperatorId) -> &str;
    /// Returns the pattern of the user agent rule `index` of the config.
    fn user_agent_rule(&self, index: u16) -> &str;
    /// Returns the names of the headers and cookies that identify clients of a class, and of the signature fields of
    /// `signed` requests; never their values.
    fn key_headers(&self, class: ClassId, signed: bool) -> Vec<&str>;
    /// Returns the name of an address list.
    fn list(&self, list: ListId) -> &str;
    /// Returns the name of a scope.
    fn scope(&self, scope: ScopeId) -> &str;
}

impl RecordedOutcome {
    /// Returns the name of the verdict in logs and metrics.
    pub const fn verdict(self) -> &'static str {
        match self {
            Self::Admitted { .. } => "admitted",
            Self::Refused(_) => "refused",
        }
    }

    /// Returns the reason of a refusal.
    pub const fn reason(self) -> Option<Reason> {
        match self {
            Self::Admitted { .. } => None,
            Self::Refused(reason) => Some(reason),
        }
    }

    /// Returns the reason for which a rule in shadow mode would have refused the request.
    pub const fn shadow_reason(self) -> Option<Reason> {
        match self {
            Self::Admitted { shadow_reason } => shadow_reason,
            Self::Refused(_) => None,
        }
    }
}
