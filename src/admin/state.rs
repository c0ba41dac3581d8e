//! State of the gateway as JSON, for `GET /api/v1/state` and the quota endpoints: written here, read by `tidegate status`
//! and `tidegate quota`. The doc comments of the fields are docs/reference/ADMIN_API.md. A field that a gateway of another
//! version does not send has its default.

pub(crate) mod views;

use super::DynGateway;
use super::amount::Amount;
use super::cache::SavedUnits;
use super::corrections::{CorrectionDocument, Corrections};
use super::time::Time;
use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The whole state; the data of `tidegate status`.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StateDocument {
    /// Current time of the gateway.
    #[schemars(with = "Time")]
    pub time: String,
    /// Start time of the process.
    #[schemars(with = "Time")]
    pub started: String,
    /// Time since the start, in seconds.
    pub uptime_s: u64,
    /// Version of the program.
    pub version: String,
    /// Source revision of the program.
    pub revision: String,
    /// Addresses on which clients are served.
    pub listen: Vec<String>,
    /// Address of the admin listener.
    pub admin: Option<String>,
    /// Origin; the first of several.
    pub origin: OriginDocument,
    /// All origins, in the order of the configuration. The list is absent if there is one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<OriginDocument>,
    /// State of the configuration.
    pub settings: SettingsDocument,
    /// Reasons why the gateway is not ready, as sentences; empty if it is ready.
    pub not_ready_reasons: Vec<String>,
    /// Error of the ledger. It is null if there is none.
    pub ledger_error: Option<String>,
    /// Warning about a proxy that `trusted_proxies` does not name, with the YAML to write. It is null if none was seen.
    pub untrusted_proxy: Option<String>,
    /// Warnings: keys that wait for a restart, stale address lists and range lists, robots.txt served without
    /// directives.
    pub notes: Vec<String>,
    /// [Quotas](#quotas) of the current rules.
    pub quotas: Vec<QuotaDocument>,
    /// Quotas with a budget for each key.
    pub budgets: Vec<BudgetDocument>,
    /// What the windows of the first quota keep of the promise; null if nothing is promised.
    pub promise: Option<PromiseDocument>,
    /// The five paths with the most units that the origin reported in `cost_header` although no route has a cost for
    /// them, since the start.
    pub path_costs: Vec<PathCostDocument>,
    /// Names of the classes, in order.
    pub classes: Vec<String>,
    /// Requests of each class since the start.
    pub traffic: Vec<TrafficDocument>,
    /// Up to fifty routes with the most requests since the start.
    pub routes: Vec<RouteDocument>,
    /// All responses since the start. Those to requests that were rejected before classification have only a status.
    pub responses: ResponsesDocument,
    /// Durations of all admitted requests since the start, from the first byte of the request to the last byte of the
    /// response, counted by size.
    pub latency: Vec<LatencyDocument>,
    /// Who asked for the most units. Requests that cost nothing do not count. Each worker keeps 512 entries of a kind
    /// and drops the smaller half when they are full, so that amounts may be too low, never too high.
    pub spenders: SpendersDocument,
    /// Scopes of the origin. A scope that is not throttled has only `name` and `inflight`.
    pub scopes: Vec<ScopeDocument>,
    /// Crawl compliance of each operator's crawlers that sent requests.
    pub crawlers: Vec<CrawlerDocument>,
    /// Number of open client connections.
    pub connections: u64,
    /// Up to twenty clients, those refused most often. The gateway's own requests are not among them.
    pub top_clients: Vec<ClientDocument>,
    /// Number of access log lines dropped because the writer could not keep up.
    pub log_lines_dropped: u64,
    /// The last twenty manual corrections since the start, latest first.
    pub corrections: Vec<CorrectionDocument>,
    /// The [switches](#get-apiv1switches) in effect, by target.
    pub switches: Vec<SwitchDocument>,
    /// What the [cache](#cache) did since the start; null without the section `cache`.
    pub cache: Option<CacheUsageDocument>,
}

impl StateDocument {
    /// Returns all origins.
    pub fn all_origins(&self) -> &[OriginDocument] {
        if self.origins.is_empty() { std::slice::from_ref(&self.origin) } else { &self.origins }
    }
}

impl OriginDocument {
    /// Returns the servers, behind the name of the origin if it has one.
    pub fn label(&self) -> String {
        match &self.name {
            Some(name) => format!("{name} ({})", self.authority),
            None => self.authority.clone(),
        }
    }
}

/// A quota with a budget for each key.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct BudgetDocument {
    /// Name of the quota.
    pub name: String,
    /// False in shadow mode.
    #[serde(default = "default_true")]
    pub enforce: bool,
    /// Number of keys whose usage counts now.
    pub keys: usize,
    /// Maximum number of keys of a window, or of a twelfth of a sliding one.
    pub max_keys: usize,
    /// Number of keys that took the place of others in the window, because `max_keys` were counted.
    pub replaced: u32,
    /// Settled plus reserved units of these keys.
    pub used: Amount,
    /// End of the window: the time at which the open windows of all keys have ended; of a sliding one, at which the first units come
    /// back. It is null if no window of a key is open, or nothing is used of a sliding one.
    #[schemars(with = "Option<Time>")]
    pub window_end: Option<String>,
    /// The five keys that have used most.
    pub top: Vec<BudgetKeyDocument>,
}

/// Usage of a budget by one key.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct BudgetKeyDocument {
    /// Name of the customer, class or client; of another credential, its hash.
    pub key: String,
    /// Settled plus reserved units.
    pub used: Amount,
    /// Limit of the key. It is null for a client or another credential, whose limit depends on its class.
    pub limit: Option<Amount>,
}

/// Units that the origin reported for paths without a route cost.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PathCostDocument {
    /// What these paths have in common, such as `/search` or `/item/*`; or a single path.
    pub path: String,
    /// Name of the quota.
    pub quota: String,
    /// Reported units.
    pub units: Amount,
    /// Number of paths whose costs became the cost of the whole directory, whose `path` ends with `/**`; 0 if the cost
    /// was reported for `path` itself.
    pub generalized_from: u64,
    /// Up to three of these paths.
    pub examples: Vec<String>,
}

/// Counts of the cache since the process start.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CacheUsageDocument {
    /// Number of requests on cached routes.
    pub requests: u64,
    /// Number of those that copies answered without the origin.
    pub answered: u64,
    /// Share of the requests on cached routes that copies answered without the origin.
    pub hit_ratio: Option<f64>,
    /// Units that copies saved.
    pub saved: Vec<SavedUnits>,
}

/// A switch of an administrator.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SwitchDocument {
    /// Network, `operator:NAME`, `class:NAME` or `maintenance`.
    pub target: String,
    /// `block`, `allow` or `maintenance`.
    pub effect: String,
    /// Time of the change.
    #[schemars(with = "Time")]
    pub since: String,
    /// End of the switch. It is null for maintenance without an announced end.
    #[schemars(with = "Option<Time>")]
    pub until: Option<String>,
    /// Networks that are served during maintenance.
    pub except: Vec<String>,
    /// Reason that the request gave.
    pub why: Option<String>,
    /// Name that the request gave; it is not verified.
    pub by: Option<String>,
    /// Address of the request's peer; for a Unix socket, its user.
    pub peer: Option<String>,
}

/// An origin.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OriginDocument {
    /// Name of the origin. The field is absent if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Host and port of the origin.
    pub authority: String,
    /// True if the name of the origin is resolved.
    pub resolved: bool,
    /// Addresses of the origin. The list is empty until the name is resolved.
    pub addresses: Vec<String>,
    /// Servers of the origin.
    pub servers: Vec<OriginServerDocument>,
    /// Requests without a response of the origin. It is null if the origin responded to the last request.
    pub outage: Option<OutageDocument>,
}

/// Server of the origin.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OriginServerDocument {
    /// URL of the server.
    pub url: String,
    /// False if the server is ejected: it is sent one request now and then, until it responds.
    pub healthy: bool,
    /// Number of requests in flight to the server. It is 0 if there is only one server.
    pub in_flight: usize,
    /// Number of requests without a response since the last response.
    pub failures: u32,
    /// Error of the last of them.
    pub last_error: Option<String>,
}

/// Outage of the origin.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OutageDocument {
    /// Time of the first of them.
    #[schemars(with = "Time")]
    pub since: String,
    /// Number of them.
    pub failed_requests: u64,
    /// Error of the last one.
    pub last_error: String,
}

/// State of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SettingsDocument {
    /// Load time of the current configuration.
    #[schemars(with = "Time")]
    pub loaded_at: String,
    /// The last reload, if it failed.
    pub last_reload_failed: Option<ReloadFailureDocument>,
}

/// Failed reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReloadFailureDocument {
    /// Time of the failed reload.
    #[schemars(with = "Time")]
    pub time: String,
    /// Errors of the failed reload, one per line.
    pub errors: String,
}

/// One quota with the usage of each class.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct QuotaDocument {
    /// Name of the quota.
    pub name: String,
    /// Limit per window, in units.
    pub limit: Amount,
    /// False in shadow mode.
    #[serde(default = "default_true")]
    pub enforce: bool,
    /// Units settled in the current window.
    pub used: Amount,
    /// Units reserved for requests in flight.
    pub reserved: Amount,
    /// Limit minus used and reserved units, at least 0.
    pub remaining: Amount,
    /// Units that the origin reported as spent beyond the limit.
    pub overrun: Amount,
    /// Units reported by the origin minus units counted here.
    pub drift: Amount,
    /// Time until which the quota is closed, because the origin reported that nothing remains (`sync_from.exhausted`).
    /// It is null if the quota is open.
    #[schemars(with = "Option<Time>")]
    pub closed_until: Option<String>,
    /// Units counted as used after a crash, though they may not have been.
    pub lost: Amount,
    /// Start of the current window.
    #[schemars(with = "Time")]
    pub window_start: String,
    /// End of the current window.
    #[schemars(with = "Time")]
    pub window_end: String,
    /// Time until the end of the window, in seconds.
    pub window_ends_in_s: u64,
    /// Length of a sliding window, in seconds; `window_start` and `window_end` are of its latest part. It is null for
    /// other windows.
    pub sliding_s: Option<u64>,
    /// Pacing plan. It is null without pacing.
    pub pacing: Option<PacingDocument>,
    /// Usage by class.
    pub classes: Vec<ClassDocument>,
}

/// The promise, and what two windows of the first quota keep of it. Shares are 0 to 1.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PromiseDocument {
    /// Largest promised share of people's pages that is refused. It is null if it is not promised.
    pub people_refused: Option<f64>,
    /// Smallest promised share of their pages that verified search engines are served in each hour. It is null if it is not
    /// promised.
    pub search_served: Option<f64>,
    /// Largest promised share of the limit that is left over. It is null if it is not promised.
    pub left_over: Option<f64>,
    /// The current window, so far.
    pub current: KeptPromiseDocument,
    /// The last window. It is null before the end of the first one.
    pub last: Option<KeptPromiseDocument>,
    /// What the last window missed, and the settings that would have kept it. It is null if nothing was missed.
    pub missed: Option<String>,
}

/// What a window keeps of the promise. Shares are 0 to 1.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct KeptPromiseDocument {
    /// Start of the window.
    #[schemars(with = "Time")]
    pub window_start: String,
    /// Share of people's pages that was refused, without clients that have used their share. It is null without a page.
    pub people_refused: Option<f64>,
    /// Share of their pages that verified search engines were served in the worst hour. It is null without an hour with ten
    /// pages.
    pub search_served: Option<f64>,
    /// Share of the limit that was left over. It is null in the current window, and if no page was refused to save units.
    pub left_over: Option<f64>,
    /// Units that the origin reported beyond the limit.
    pub overrun: Amount,
    /// Names of the figures that were missed: those of the promise, and `overrun`.
    pub missed: Vec<String>,
}

/// Pacing plan of a quota.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PacingDocument {
    /// Mode: `even` or `learned`.
    pub mode: String,
    /// Units that the plan would have used by now.
    pub planned: Amount,
    /// Units for unpaced classes until the end of the window, at most those that remain.
    pub earmarked: Amount,
    /// Forecast demand of unpaced classes until the end of the window, as a multiple of the units that remain. It is
    /// null if none remain.
    pub unpaced_demand_ratio: Option<f64>,
}

/// Usage of a quota by one class.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClassDocument {
    /// Name of the class.
    pub class: String,
    /// Units charged to the class since the start.
    pub charged: Amount,
    /// Share of the class's requests that its tier refuses now, 0 to 1.
    pub shed: f64,
    /// Number of tiers that the class has entered.
    pub tier: u8,
    /// Tiers of the class, lowest first.
    pub tiers: Vec<TierDocument>,
    /// Units admitted by the crawler guard since the start.
    pub guard_units: Amount,
    /// Plan of the class. It is null without pacing, and for a class that is refused from the first unit.
    pub plan: Option<ClassPlanDocument>,
}

/// Tier of a class.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TierDocument {
    /// Usage at which the tier begins, in units.
    pub above: Amount,
    /// Share of the class's requests that the tier refuses, 0 to 1.
    pub shed: f64,
}

/// Pacing plan of a class.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClassPlanDocument {
    /// Share of the class's demand that the plan admitted in the last 5 to 10 minutes, 0 to 1; planned if there was
    /// none. It is null for an unpaced class.
    pub admit_share: Option<f64>,
    /// Units that the class may use at once. It is null for an unpaced class.
    pub tokens: Option<Amount>,
    /// Units that the class gains per hour. It is null for an unpaced class.
    pub refill_per_hour: Option<Amount>,
    /// Forecast demand in each of the next 24 hours, in units.
    pub forecast_24h: Vec<f64>,
}

/// Requests of one class.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TrafficDocument {
    /// Name of the class.
    pub class: String,
    /// Number of admitted requests.
    pub admitted: u64,
    /// Number of refused requests.
    pub refused: u64,
    /// Refused requests by [reason](ACCESS_LOG.md#reason).
    pub refused_by: BTreeMap<String, u64>,
    /// Number of admitted requests that a rule in shadow mode (`enforce: false`) would have refused.
    pub shadow_refused: u64,
    /// These requests by [reason](ACCESS_LOG.md#reason).
    pub shadow_refused_by: BTreeMap<String, u64>,
    /// Responses to these requests.
    pub responses: ResponsesDocument,
}

/// Requests of one route.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RouteDocument {
    /// Name of the route: its `match` as written; where several routes have it, with the names of their conditions.
    pub route: String,
    /// Number of admitted requests.
    pub admitted: u64,
    /// Number of refused requests.
    pub refused: u64,
    /// Responses to these requests.
    pub responses: ResponsesDocument,
}

/// Responses since the start.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ResponsesDocument {
    /// Number of responses by status class: `2xx`, `3xx`, `4xx` without 429, `429`, `5xx` without 503, `503`, `error`.
    pub statuses: BTreeMap<String, u64>,
    /// Number of body bytes sent.
    pub bytes: u64,
    /// Median time of an admitted request, in milliseconds. It is null before the first one.
    pub median_ms: Option<f64>,
    /// Time that 95 % of the admitted requests did not exceed, in milliseconds. It is null before the first one.
    pub p95_ms: Option<f64>,
}

/// Admitted requests of one range of durations.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LatencyDocument {
    /// Longest duration of the range, in milliseconds; the range begins above the one before. It is null for the last one.
    pub up_to_ms: Option<f64>,
    /// Number of requests.
    pub requests: u64,
}

/// The largest spenders.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SpendersDocument {
    /// Start of the counts: the start of the last whole hour.
    #[schemars(with = "Time")]
    pub since: String,
    /// The ten clients that asked for the most units, by kind.
    pub clients: Vec<SpenderDocument>,
    /// The ten networks (IPv4 /24, IPv6 /48) that asked for the most units.
    pub networks: Vec<SpenderDocument>,
    /// The ten paths that asked for the most units, as sent, without queries, cut at 200 bytes.
    pub paths: Vec<SpenderDocument>,
    /// The ten user agents that asked for the most units, as sent, cut at 200 bytes.
    pub user_agents: Vec<SpenderDocument>,
}

/// Demand of one client, network, path or user agent.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SpenderDocument {
    /// Address of the client, or, for a bucket by header or cookie, its [`key`](ACCESS_LOG.md#fields).
    pub name: String,
    /// [Kind](ACCESS_LOG.md#kind) of the client. Networks, paths and user agents have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub kind: Option<String>,
    /// Number of requests.
    pub requests: u64,
    /// Number of refused requests.
    pub refused: u64,
    /// Charged units, for each request those of the first quota of its route.
    pub units: Amount,
    /// Expected cost of all requests in these quotas, in units.
    pub units_asked: Amount,
    /// Id of the last decision, for `tidegate explain`.
    pub latest_decision: String,
    /// [Evidence](ACCESS_LOG.md#evidence) of that decision. Missing if the decision is no longer stored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// The same as sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence_text: Vec<String>,
}

/// One scope of the origin.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ScopeDocument {
    /// Name of the scope.
    pub name: String,
    /// Number of requests in flight to the origin.
    pub inflight: u64,
    /// State of the throttle, if the scope is throttled.
    #[serde(flatten)]
    pub throttle: Option<ThrottleDocument>,
    /// Number of partitions. Only a partitioned scope has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub partitions: Option<u64>,
    /// The busiest partitions, at most 20. Only a partitioned scope has it. Do not partition by a header with a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<PartitionDocument>")]
    pub busiest_partitions: Option<Vec<PartitionDocument>>,
}

/// One partition of a scope.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct PartitionDocument {
    /// Partition key, or `(others)`.
    pub partition: String,
    /// Number of requests in flight to the origin.
    pub inflight: u64,
    /// State of the throttle.
    #[serde(flatten)]
    pub throttle: ThrottleDocument,
}

/// State of the throttle of a scope or partition.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ThrottleDocument {
    /// Number of requests waiting for a slot.
    pub queue_length: u64,
    /// Current concurrency limit. It is null if there is none.
    pub limit: Option<u64>,
    /// Current time between two requests, in seconds.
    pub delay_s: f64,
    /// Remaining backoff, in seconds; 0 if the scope is not backing off.
    pub backoff_s: f64,
    /// Number of consecutive overloads, less one for each `backoff.window` without an overload.
    pub backoff_level: u32,
    /// Number of clients, networks and routes of the scope that back off on their own.
    #[serde(default)]
    pub backoff_parts: u64,
    /// Controller: `autothrottle`, `gradient`, `rampup` or `fixed`.
    pub controller: String,
}

/// Crawl compliance of one operator.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CrawlerDocument {
    /// Name of the operator.
    pub operator: String,
    /// Crawl delay in robots.txt, in seconds. It is null if there is none.
    pub crawl_delay_s: Option<u32>,
    /// Number of requests.
    pub requests: u64,
    /// Share of the requests for robots.txt, 0 to 1.
    pub robots_share: Option<f64>,
    /// Mean interval between two page requests, in seconds. It is null before the second one.
    pub mean_interval_s: Option<f64>,
    /// Number of page requests before the crawl delay was over.
    pub violations: u64,
    /// Violations per interval, 0 to 1. It is null without an interval.
    pub violation_ratio: Option<f64>,
}

/// One refused client.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClientDocument {
    /// Key of the client, as in the [access log](ACCESS_LOG.md).
    pub key: String,
    /// Class of the client.
    pub class: String,
    /// Number of refusals by all rules, including tiers, quotas and scopes.
    pub refused: u64,
    /// Tokens in the client's bucket. It is null without a bucket.
    pub bucket_remaining: Option<u64>,
    /// The client's own rule that refuses it now: `bucket` or `blocked`. It is null if there is none.
    pub limited_by: Option<String>,
    /// Time until that limit ends, in whole seconds. It is null for a block.
    pub limited_for_s: Option<u64>,
}

fn default_true() -> bool {
    true
}

/// Responds with the whole state.
pub(super) async fn show(
    State(gateway): State<DynGateway>,
    State(corrections): State<Arc<Corrections>>,
) -> Json<Value> {
    Json(json!(document(&gateway, &corrections)))
}

/// Returns the whole state, as it is now.
pub(super) fn document(gateway: &DynGateway, corrections: &Corrections) -> StateDocument {
    StateDocument { corrections: corrections.list(), ..gateway.state() }
}
