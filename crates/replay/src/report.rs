//! Report of a replay, from which the terminal summary, `--json` and the HTML page are rendered.
//!
//! In JSON, times are RFC 3339 in UTC, durations in seconds, amounts in units. The order of all entries follows from the
//! log and the configuration files alone.

use super::assumptions::Assumptions;
use super::log::ClientNotes;
use super::serialize;
use serde::Serialize;
use std::collections::BTreeMap;
use tidegate_crawlers::user_agents::UserAgentMatcher;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_policy::tier::Share;
use tidegate_policy::{BotId, OperatorId, Timestamp, Units};

/// Result of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Lines read.
    pub log: LogReport,
    /// Values that replaced facts missing from the log.
    pub assumptions: Assumptions,
    /// Results of the policy, and of the second policy of a comparison.
    pub policies: Vec<PolicyReport>,
    /// Differences between two policies.
    pub comparison: Option<ComparisonReport>,
}

/// Counts of the lines read.
#[derive(Clone, Debug, Serialize)]
pub struct LogReport {
    /// Files, in the order of the command line.
    pub files: Vec<String>,
    /// Number of lines.
    pub lines: u64,
    /// Number of lines that were decided.
    pub requests: u64,
    /// How the clients were found.
    pub clients: ClientNotes,
    /// Number of empty lines.
    pub empty: u64,
    /// Invalid lines, by error.
    pub invalid_lines: BTreeMap<&'static str, LineErrorReport>,
    /// Requests that the gateway rejects as invalid before a decision.
    pub non_requests: u64,
    /// Position of the first of them, as FILE:LINE; null if there is none.
    pub first_non_request: Option<String>,
    /// Lines out of order that were sorted.
    pub out_of_order: u64,
    /// Lines too late to be sorted; they take the latest time before them.
    pub late: u64,
    /// Maximum lateness of a sorted line (`--reorder-window`).
    pub window_s: u64,
    /// Time of the first line.
    #[serde(serialize_with = "serialize::rfc3339")]
    pub first: Timestamp,
    /// Time of the last line.
    #[serde(serialize_with = "serialize::rfc3339")]
    pub last: Timestamp,
    /// Time from the first to the last line.
    pub span_s: u64,
    /// Facts that lines lack.
    pub missing_fields: Vec<MissingFieldReport>,
}

/// Invalid lines with one error.
#[derive(Clone, Debug, Serialize)]
pub struct LineErrorReport {
    /// Number of lines.
    pub lines: u64,
    /// Position of the first line, as FILE:LINE.
    pub first: String,
    /// Description of the error.
    pub what: &'static str,
}

/// A fact that lines lack.
#[derive(Clone, Debug, Serialize)]
pub struct MissingFieldReport {
    /// Name of the fact.
    pub fact: &'static str,
    /// Number of lines without it.
    pub lines: u64,
    /// Substitute for the fact.
    pub instead: String,
}

/// Results of one policy.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyReport {
    /// File name of the policy.
    pub name: String,
    /// Number of decisions; more than lines if clients retry.
    pub requests: u64,
    /// Admitted requests.
    pub admitted: u64,
    /// Refused requests.
    pub refused: u64,
    /// Classes, in the order of the file.
    pub classes: Vec<ClassReport>,
    /// Quotas without budgets, in the order of the file.
    pub quotas: Vec<QuotaReport>,
    /// Quotas with a budget for each key, in the order of the file.
    pub budgets: Vec<BudgetReport>,
    /// Hours with requests, at most 17,568.
    pub hours: Vec<HourReport>,
    /// Admitted requests of verified bots, with their worst and best hour.
    pub verified_bots: AdmitReport,
    /// The most expensive bots, by the units that they asked for.
    pub bots: Vec<BotReport>,
    /// The most expensive routes, by the units that were asked for.
    pub routes: Vec<RouteReport>,
    /// Who asked for the most units.
    pub spenders: SpendersReport,
    /// Times at which far more units were asked for than usual.
    pub spikes: Vec<SpikeReport>,
    /// Pages that were refused to verified bots most often.
    pub refused_pages: Vec<RefusedPageReport>,
    /// What the cache did and saved; null without a cache.
    pub cache: Option<CacheReport>,
    /// Agreement with the verdicts of the gateway that wrote the log; null for logs of other servers.
    pub agreement: Option<AgreementReport>,
    /// Deferred requests that were never retried: refused too often, or the log ended before.
    pub abandoned: u64,
    /// Settings that a log cannot test.
    pub unsupported: Vec<String>,
}

/// Results of one class.
#[derive(Clone, Debug, Serialize)]
pub struct ClassReport {
    /// Name of the class.
    pub name: String,
    /// Number of requests.
    pub requests: u64,
    /// Admitted requests.
    pub admitted: u64,
    /// Refused requests, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Requests that a rule in shadow mode would have refused, by reason.
    pub shadow: BTreeMap<&'static str, u64>,
    /// Requests with a cost.
    pub costly: u64,
    /// Admitted requests with a cost.
    pub costly_admitted: u64,
    /// Units charged, by quota.
    #[serde(serialize_with = "serialize::units_by_name")]
    pub units: BTreeMap<String, Units>,
}

/// Results of one quota.
#[derive(Clone, Debug, Serialize)]
pub struct QuotaReport {
    /// Name of the quota.
    pub name: String,
    /// Limit per window.
    #[serde(serialize_with = "serialize::units")]
    pub limit: Units,
    /// Time zone of the calendar windows; null for other windows.
    pub zone: Option<String>,
    /// Tiers of each class that has any.
    pub tiers: Vec<ClassTiersReport>,
    /// Number of windows; `windows` contains the last thousand.
    pub windows_in_all: u64,
    /// Windows in order of time. A sliding window counts as one.
    pub windows: Vec<WindowReport>,
    /// Interval of the points of `used` and `planned`.
    pub step_s: u64,
    /// Units settled and reserved at the end of each step with a decision on the quota.
    pub used: Vec<PointReport>,
    /// Units that the pacing plan would have used by then; empty without pacing.
    pub planned: Vec<PointReport>,
}

/// Results of one quota with a budget for each key, such as a customer.
#[derive(Clone, Debug, Serialize)]
pub struct BudgetReport {
    /// Name of the quota.
    pub name: String,
    /// Number of keys with a request, at most `max_keys`.
    pub keys: u64,
    /// Number of keys that were refused or reached their limit.
    pub limited: u64,
    /// Units charged to all keys.
    #[serde(serialize_with = "serialize::units")]
    pub used: Units,
    /// Time of the first refusal of a key; null if there was none.
    #[serde(serialize_with = "serialize::optional_rfc3339")]
    pub first_refused: Option<Timestamp>,
}

/// Tiers of one class in a quota.
#[derive(Clone, Debug, Serialize)]
pub struct ClassTiersReport {
    /// Name of the class.
    pub class: String,
    /// Tiers, lowest first.
    pub tiers: Vec<TierReport>,
}

/// A tier of a class.
#[derive(Clone, Debug, Serialize)]
pub struct TierReport {
    /// Usage from which the tier applies, in units.
    #[serde(serialize_with = "serialize::units")]
    pub above: Units,
    /// Ratio of requests that are refused, 0 to 1.
    #[serde(serialize_with = "serialize::share")]
    pub shed: Share,
}

/// A window of a quota.
#[derive(Clone, Debug, Serialize)]
pub struct WindowReport {
    /// Start of the window, or of the log if that is later.
    #[serde(serialize_with = "serialize::rfc3339")]
    pub start: Timestamp,
    /// End of the window.
    #[serde(serialize_with = "serialize::rfc3339")]
    pub end: Timestamp,
    /// True if the log has at least 90 % of the window.
    pub whole: bool,
    /// Units charged, up to the limit. The first window includes earlier usage if the log contains it.
    #[serde(serialize_with = "serialize::units")]
    pub used: Units,
    /// Units left of the limit.
    #[serde(serialize_with = "serialize::units")]
    pub left: Units,
    /// Units charged beyond the limit.
    #[serde(serialize_with = "serialize::units")]
    pub overrun: Units,
    /// Time of the first refusal by the quota, except of classes refused from the first unit; null if there was none.
    #[serde(serialize_with = "serialize::optional_rfc3339")]
    pub first_refused: Option<Timestamp>,
    /// Time of the first request that found no units left; null if there was none.
    #[serde(serialize_with = "serialize::optional_rfc3339")]
    pub spent: Option<Timestamp>,
    /// Units charged, by class.
    #[serde(serialize_with = "serialize::units_by_name")]
    pub by_class: BTreeMap<String, Units>,
}

/// An amount at a point in time.
#[derive(Clone, Debug, Serialize)]
pub struct PointReport {
    /// Start of the step.
    #[serde(serialize_with = "serialize::rfc3339")]
    pub time: Timestamp,
    /// Amount in units.
    #[serde(serialize_with = "serialize::units")]
    pub units: Units,
}

/// Results of one hour.
#[derive(Clone, Debug, Serialize)]
pub struct HourReport {
    /// Start of the hour.
    #[serde(serialize_with = "serialize::rfc3339")]
    pub start: Timestamp,
    /// Classes with requests or charges in the hour.
    pub classes: Vec<ClassHourReport>,
}

/// Results of one class in one hour.
#[derive(Clone, Debug, Serialize)]
pub struct ClassHourReport {
    /// Name of the class.
    pub name: String,
    /// Number of requests.
    pub requests: u64,
    /// Admitted requests.
    pub admitted: u64,
    /// Refused requests.
    pub refused: u64,
    /// Requests with a cost.
    pub costly: u64,
    /// Admitted requests with a cost.
    pub costly_admitted: u64,
    /// Ratio of requests with a cost that were admitted; null if there were none.
    pub admit_ratio: Option<f64>,
    /// Units charged, by quota.
    #[serde(serialize_with = "serialize::units_by_name")]
    pub units: BTreeMap<String, Units>,
}

/// Admitted requests of verified bots by hour. Counts only requests with a cost; hours with fewer than ten of them are
/// neither worst nor best.
#[derive(Clone, Debug, Serialize)]
pub struct AdmitReport {
    /// Requests with a cost.
    pub costly: u64,
    /// Admitted requests with a cost.
    pub admitted: u64,
    /// Hour with the lowest admit ratio.
    pub worst: Option<AdmitHourReport>,
    /// Hour with the highest admit ratio.
    pub best: Option<AdmitHourReport>,
}

/// Minimum number of requests with a cost for which the admit ratio of an hour is meaningful.
pub(crate) const MIN_REQUESTS_PER_HOUR: u64 = 10;

/// Worst or best hour of verified bots.
#[derive(Clone, Debug, Serialize)]
pub struct AdmitHourReport {
    /// Start of the hour.
    #[serde(serialize_with = "serialize::rfc3339")]
    pub start: Timestamp,
    /// Requests with a cost.
    pub costly: u64,
    /// Ratio of them that was admitted.
    pub admit_ratio: f64,
}

/// Results of one bot.
#[derive(Clone, Debug, Serialize)]
pub struct BotReport {
    /// Name of the verified operator, or of the bot that the user agent names.
    pub name: String,
    /// Kind of the client.
    pub kind: &'static str,
    /// Number of requests.
    pub requests: u64,
    /// Refused requests.
    pub refused: u64,
    /// Units charged, over all quotas.
    #[serde(serialize_with = "serialize::units")]
    pub units: Units,
    /// Units charged, plus the cost of its refused requests.
    #[serde(serialize_with = "serialize::units")]
    pub units_asked: Units,
}

/// Results of one route.
#[derive(Clone, Debug, Serialize)]
pub struct RouteReport {
    /// Pattern of the route (`match`).
    pub name: String,
    /// Number of requests.
    pub requests: u64,
    /// Refused requests.
    pub refused: u64,
    /// Units charged, over all quotas.
    #[serde(serialize_with = "serialize::units")]
    pub units: Units,
    /// Units charged, plus the cost of the refused requests.
    #[serde(serialize_with = "serialize::units")]
    pub units_asked: Units,
}

/// A time at which more than three times the usual units were asked for.
#[derive(Clone, Debug, Serialize)]
pub struct SpikeReport {
    /// Start of its first quarter of an hour.
    #[serde(serialize_with = "serialize::rfc3339")]
    pub start: Timestamp,
    /// End of its last quarter of an hour.
    #[serde(serialize_with = "serialize::rfc3339")]
    pub end: Timestamp,
    /// Units asked for, over all quotas.
    #[serde(serialize_with = "serialize::units")]
    pub units_asked: Units,
    /// Units asked for in its largest quarter of an hour.
    #[serde(serialize_with = "serialize::units")]
    pub peak: Units,
    /// Median of the quarters of an hour with demand, in units.
    #[serde(serialize_with = "serialize::units")]
    pub usual: Units,
    /// Clients that asked for most of it, at most three.
    pub clients: Vec<SpenderReport>,
    /// Paths that were asked for most, at most three.
    pub paths: Vec<SpenderReport>,
}

/// Who asked for the most units, in descending order.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SpendersReport {
    /// Addresses, each with the kind of client; empty for a log with host names.
    pub clients: Vec<SpenderReport>,
    /// Networks: IPv4 /24 or IPv6 /48; empty for a log with host names.
    pub networks: Vec<SpenderReport>,
    /// Normalized paths.
    pub paths: Vec<SpenderReport>,
    /// User agents.
    pub user_agents: Vec<SpenderReport>,
}

/// Demand of one client, network, path or user agent.
#[derive(Clone, Debug, Serialize)]
pub struct SpenderReport {
    /// Address, network, path or user agent.
    pub name: String,
    /// Kind of a client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// Number of requests.
    pub requests: u64,
    /// Refused requests.
    pub refused: u64,
    /// Units charged, over all quotas.
    #[serde(serialize_with = "serialize::units")]
    pub units: Units,
    /// Units charged, plus the cost of the refused requests.
    #[serde(serialize_with = "serialize::units")]
    pub units_asked: Units,
}

/// A page that was refused to a verified bot.
#[derive(Clone, Debug, Serialize)]
pub struct RefusedPageReport {
    /// Operator of the crawler.
    pub operator: String,
    /// Page: host (if known), path and query.
    pub page: String,
    /// Number of refusals.
    pub refused: u64,
    /// Time of the first refusal.
    #[serde(serialize_with = "serialize::rfc3339")]
    pub first: Timestamp,
    /// Time of the last refusal.
    #[serde(serialize_with = "serialize::rfc3339")]
    pub last: Timestamp,
}

/// Results of the cache: simulated, or as the log of a gateway with a cache names them.
#[derive(Clone, Debug, Serialize)]
pub struct CacheReport {
    /// Admitted requests on cached routes.
    pub requests: u64,
    /// Admitted requests that a stored response answered without the origin.
    pub hits: u64,
    /// Ratio of `hits` to `requests`; null if there were none.
    pub hit_share: Option<f64>,
    /// Requests whose stored response the origin confirmed; only a log tells of them.
    pub revalidated: u64,
    /// Requests that the origin answered, and whose response may be stored.
    pub misses: u64,
    /// Requests that do not use stored responses.
    pub bypassed: u64,
    /// Refused requests that a stored response answered.
    pub replaced_refusals: u64,
    /// Units saved, by quota.
    #[serde(serialize_with = "serialize::units_by_name")]
    pub saved: BTreeMap<String, Units>,
    /// Classes that used the cache, in the order of the file.
    pub classes: Vec<ClassCacheReport>,
    /// What the simulated cache contains at the end; null without one.
    pub store: Option<CacheStoreReport>,
}

/// Results of the cache for one class.
#[derive(Clone, Debug, Serialize)]
pub struct ClassCacheReport {
    /// Name of the class.
    pub name: String,
    /// Admitted requests on cached routes.
    pub requests: u64,
    /// Admitted requests that a stored response answered without the origin.
    pub hits: u64,
    /// Ratio of `hits` to `requests`; null if there were none.
    pub hit_share: Option<f64>,
    /// Refused requests that a stored response answered.
    pub replaced_refusals: u64,
    /// Units saved, by quota.
    #[serde(serialize_with = "serialize::units_by_name")]
    pub saved: BTreeMap<String, Units>,
}

/// Contents of a simulated cache.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CacheStoreReport {
    /// Number of stored responses.
    pub entries: u64,
    /// Bytes that they occupy.
    pub bytes: u64,
    /// Number of responses that others displaced.
    pub evictions: u64,
}

/// Agreement with the verdicts of the gateway that wrote the log.
#[derive(Clone, Debug, Serialize)]
pub struct AgreementReport {
    /// Lines with the same verdict, reason and class.
    pub same: u64,
    /// Lines with a different verdict, reason or class.
    pub different: u64,
    /// Position of the first different line.
    pub first_different: Option<PositionReport>,
    /// Refusals copied from the log because they followed from the state of the origin or of the ledger.
    pub copied_from_log: u64,
    /// Restarts of the gateway.
    pub restarts: u64,
    /// Times at which the logged usage differed from the replayed usage; adopted up to the first different verdict.
    pub corrections: u64,
}

/// Position of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PositionReport {
    /// Index of the file on the command line, from 1.
    pub file: usize,
    /// Line number, from 1.
    pub line: u64,
}

/// Differences between two policies.
#[derive(Clone, Debug, Serialize)]
pub struct ComparisonReport {
    /// Lines with the same verdict and reason.
    pub same: u64,
    /// Lines that only the first policy admits.
    pub only_first_admits: u64,
    /// Lines that only the second policy admits.
    pub only_second_admits: u64,
    /// Lines that both policies refuse, for different reasons.
    pub other_reason: u64,
    /// Lines whose client is in another class under the second policy.
    pub other_class: u64,
    /// Lines that only one policy admits, by the client's class under the policy that refuses them.
    pub by_class: BTreeMap<String, DifferenceReport>,
    /// The first lines with different decisions.
    pub examples: Vec<ExampleReport>,
}

/// Requests that only one of two policies admits.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct DifferenceReport {
    /// Requests that only the first policy admits.
    pub only_first_admits: u64,
    /// Requests that only the second policy admits.
    pub only_second_admits: u64,
}

/// A line with different decisions under two policies.
#[derive(Clone, Debug, Serialize)]
pub struct ExampleReport {
    /// Position of the line.
    pub place: PositionReport,
    /// Time of the line.
    #[serde(serialize_with = "serialize::rfc3339")]
    pub time: Timestamp,
    /// Class under the first policy.
    pub class: String,
    /// Class under the second policy.
    pub second_class: String,
    /// Decision of the first policy: `admitted`, or the reason of the refusal.
    pub first: &'static str,
    /// Decision of the second policy: `admitted`, or the reason of the refusal.
    pub second: &'static str,
}

/// Resolves names of bots and operators.
pub(super) struct NameLookup<'a> {
    pub(super) user_agents: &'a UserAgentMatcher,
    pub(super) operators: &'a OperatorTable,
}

impl NameLookup<'_> {
    pub(super) fn operator(&self, operator: OperatorId) -> &str {
        self.operators.name(operator)
    }

    pub(super) fn bot(&self, bot: BotId) -> &str {
        self.user_agents.name(bot)
    }
}

impl From<super::log::LinePosition> for PositionReport {
    fn from(position: super::log::LinePosition) -> Self {
        Self { file: position.file + 1, line: position.number }
    }
}
