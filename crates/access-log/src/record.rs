//! Record of a finished request: the input of the access log and the metrics.

use std::net::IpAddr;
use std::time::Duration;
use tidegate_http_cache::CacheResult;
use tidegate_policy::bot_detection::HeadersSeen;
use tidegate_policy::cache::CacheFill;
use tidegate_policy::class::Evidence;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::switches::SwitchEffect;
use tidegate_policy::{BotId, ClassId, ClientKind, ListId, OperatorId, Reason, ScopeId, Timestamp, Units};

/// Status in the log if the client disconnected before the response. Never sent.
pub const CLIENT_CLOSED_REQUEST: u16 = 499;

/// A finished request; its fields are those of the access log. The gateway builds it on the stack and does not keep it.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    /// Time of the verdict (`time`).
    pub admitted_at: Timestamp,
    /// Time of settlement, when the response was sent.
    pub settled_at: Timestamp,
    /// Id of the decision, as sent to the client in `X-Tidegate-Decision`.
    pub id: u64,
    /// Address of the client.
    pub client: IpAddr,
    /// Key of the client's bucket. For a bucket by header or cookie `hash:...`, the same for the same value until the
    /// restart.
    pub key: ClientKey,
    /// Request method.
    pub method: &'a http::Method,
    /// Requested host.
    pub host: &'a [u8],
    /// Path as sent, not normalized.
    pub path: &'a str,
    /// Query without the question mark.
    pub query: Option<&'a str>,
    /// HTTP version of the client.
    pub version: http::Version,
    /// Response status.
    pub status: u16,
    /// Number of response body bytes sent.
    pub bytes: u64,
    /// User agent as sent; empty if there was none.
    pub user_agent: &'a [u8],
    /// `Referer` as sent.
    pub referer: Option<&'a [u8]>,
    /// Headers that the policy read; never their values. The log adds the header or cookie of a known key. It has `tls`
    /// and `http_10` apart: true for a TLS connection, and for HTTP/1.0.
    pub headers_seen: HeadersSeen,
    /// Kind of the client.
    pub kind: ClientKind,
    /// Id of the class.
    pub class: ClassId,
    /// Name of the class. Names of classes, quotas and operators have nothing that JSON escapes.
    pub class_name: &'a str,
    /// Operator of the crawler, if verified.
    pub operator: Option<OperatorId>,
    /// Reasons of the classification, up to seven entries in order. Entries of the log:
    /// - `user_agent_rule:PATTERN`: the rule of the config matches.
    /// - `no_user_agent`: the client sent no user agent.
    /// - `user_agent_no_match`: the user agent names no bot.
    /// - `user_agent_match:NAME`: the user agent names this bot.
    /// - `user_agent_heuristic`: the user agent has the form of a bot's.
    /// - `address_verified:OPERATOR`: the operator publishes the address; kind `verified_bot`.
    /// - `dns_verified:OPERATOR`: the address has a DNS name of the operator, and the name resolves to the address;
    ///   kind `verified_bot`.
    /// - `address_mismatch:OPERATOR`: all of the operator's crawlers are in its ranges, and this address is not; kind
    ///   `impostor`.
    /// - `dns_mismatch:OPERATOR`: all of the operator's crawlers have its DNS names, and this address has not; kind
    ///   `impostor`.
    /// - `address_private:OPERATOR`: the address is loopback, private, link-local or shared (100.64.0.0/10), that of a
    ///   proxy or of a machine of the administrator; kind `declared_bot`.
    /// - `signature_valid:OPERATOR`: the operator's key verifies the signature; kind `verified_bot`, unless the user
    ///   agent claims another operator that excludes the address.
    /// - `signature_unknown:OPERATOR`: the operator's keys are not loaded yet, or the key is not among them; kind
    ///   `declared_bot`, or as the address proves.
    /// - `signature_invalid:OPERATOR`: the signature is expired, replayed, for another site, or made with another key;
    ///   kind as for `signature_unknown`, but `impostor` if the operator's ranges are exhaustive and the address is in
    ///   none.
    /// - `signature_unlisted`: the signature is of an agent of no known operator (only with
    ///   `verify.signatures.fetch_unlisted_keys`); kind `declared_bot`.
    /// - `signature_unknown`, `signature_invalid` without an operator: the agent belongs to no known operator. A
    ///   signature in an agent's name declares a bot, valid or not: a browser that sends one is a `declared_bot`.
    /// - `signature_malformed`: the signature fields cannot be parsed or name no agent; no effect on the kind.
    /// - `api_key`: the client sent a known key of the class.
    /// - `certificate`: the client's certificate has a name of the class.
    /// - `address_list:NAME`: the client is in its class because of this address list.
    /// - `behavior:SIGNAL`: a behavior signal, up to three, strongest last.
    pub evidence: &'a [Option<Evidence>],
    /// True if the request was signed in an agent's name, whether or not the signature is valid.
    pub signed: bool,
    /// Bot score of the client, also below the threshold; `None` (null) if the client has no profile.
    pub bot_score: Option<u16>,
    /// Name of the route.
    pub route_name: &'a str,
    /// Charges by quota. For a refused request, `cost` is what it would have cost.
    pub charges: &'a [QuotaCharge<'a>],
    /// Charges for costs that the origin reported and the route does not expect, by quota.
    pub unexpected_costs: &'a [UnexpectedCost<'a>],
    /// Sequence number of the decision on the client's bucket (`bucket_seq`), if it has one. Replay uses sequence
    /// numbers to repeat the order of decisions.
    pub bucket_sequence: Option<u64>,
    /// Outcome of the request: `verdict`, `reason` and `shadow_reason`.
    pub outcome: RecordedOutcome,
    /// Effect of the switch that applied to the client; the field is absent without one.
    pub switch: Option<SwitchEffect>,
    /// Reason of a request that the gateway made itself; the field is absent for requests of clients.
    pub fill: Option<CacheFill>,
    /// `Retry-After` sent to the client, in seconds.
    pub retry_after_s: Option<u64>,
    /// Scope that refused the request (`reason` is `throttle` or `backoff`).
    pub scope: Option<&'a str>,
    /// Number of tiers that the class had entered.
    pub tier: Option<u8>,
    /// True if a tier or the pacing plan refused the request and the crawler guard admitted it (`guard_admitted`).
    pub guard_admitted: bool,
    /// Time of the request in the queue of its scopes (`scope_wait_ms`).
    pub scope_wait: Duration,
    /// Request to the origin, if one was sent; its duration is `origin_ms`.
    pub origin: Option<UpstreamCall<'a>>,
    /// Time from the first byte of the request to the last byte of the response (`total_ms`).
    pub total: Duration,
    /// Why the response ended before its end; the field is absent for a whole one.
    pub cut: Option<ResponseCut>,
    /// Result of the cache; `None` if the route is not cached.
    pub cache: Option<CacheResult>,
    /// Units charged for costs in quotas in which the route has none and that were learned by the path. Not part of the log:
    /// they are in `charged`.
    pub learned_charges: Units,
    /// Units that a stored response saved, by quota. Not part of the log: replay knows them from the costs.
    pub saved: &'a [(&'a str, Units)],
    /// Resolver for names of bots, operators, rules and scopes.
    pub names: &'a dyn NameResolver,
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
    /// Sequence number of the decision on the quota (`seq`). It sorts lines into the order of admission.
    pub sequence: u64,
    /// Sequence number of the settlement on the quota (`settle_seq`), counted with the decisions. It shows which units
    /// were reserved at which time.
    pub settle_sequence: u64,
    /// Sequence number of the charge for a second attempt (`retry_seq`), if there was one.
    pub retry_sequence: Option<u64>,
    /// Settled plus reserved units after the decision, including the request's own if admitted. Replay follows
    /// corrections, the origin's counter and other instances by it. The metric `tidegate_quota_used` excludes reserved
    /// units.
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
