//! What came of a replay, as one document: the terminal, `--json` and the page with charts are made of it.
//!
//! Times are RFC 3339 in UTC, spans in seconds, quantities in whole units. Everything is in an order that follows from the
//! log and the files alone.

use crate::policy::{BotId, OperatorId};
use crate::user_agents::UserAgentMatcher;
use crate::verify::OperatorTable;
use serde::Serialize;
use std::collections::BTreeMap;

/// The whole of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was read.
    pub log: LogReport,
    /// What was taken for true where the log is silent.
    pub assumptions: AssumptionsReport,
    /// What became of the requests: under the policy, and under the other one where two are compared.
    pub policies: Vec<PolicyReport>,
    /// Where two policies differ.
    pub comparison: Option<ComparisonReport>,
}

/// What was read.
#[derive(Clone, Debug, Serialize)]
pub struct LogReport {
    /// The files, in the order in which they were named.
    pub files: Vec<String>,
    /// All lines.
    pub lines: u64,
    /// Lines that were decided.
    pub requests: u64,
    /// Lines with nothing in them.
    pub empty: u64,
    /// Lines that no log has, by what is wrong with them.
    pub broken: BTreeMap<&'static str, LineErrorReport>,
    /// Requests that the gate does not take for one: none was sent, or not to a path.
    pub not_requests: u64,
    /// The first of them, as FILE:LINE; null where there is none.
    pub first_not_request: Option<String>,
    /// Lines that were put in order.
    pub out_of_order: u64,
    /// Lines that were too late for that, and taken at the latest time before them.
    pub late: u64,
    /// By how much a line may be late.
    pub window_s: u64,
    /// The time of the first line ...
    pub first: Option<String>,
    /// ... and of the last.
    pub last: Option<String>,
    /// From one to the other.
    pub span_s: u64,
    /// What policy would like to know and lines do not say.
    #[serde(rename = "lacking")]
    pub missing_fields: Vec<MissingFieldReport>,
}

/// Lines that no log has.
#[derive(Clone, Debug, Serialize)]
pub struct LineErrorReport {
    /// How many.
    pub lines: u64,
    /// The first of them, as FILE:LINE.
    pub first: String,
    /// What is wrong with them.
    pub what: &'static str,
}

/// Something that lines do not say.
#[derive(Clone, Debug, Serialize)]
pub struct MissingFieldReport {
    /// What.
    pub fact: &'static str,
    /// How many lines do not say it.
    pub lines: u64,
    /// What is done without it.
    pub instead: String,
}

/// What was taken for true where the log is silent.
#[derive(Clone, Debug, Serialize)]
pub struct AssumptionsReport {
    /// For how long the site keeps its pages; null where it does not.
    pub cache_ttl_s: Option<u64>,
    /// How long a request holds what was set aside for it.
    pub latency_ms: f64,
    /// What refused clients do: `deaf`, `obey` or `as-known`.
    pub clients: &'static str,
    /// What requests of a route really cost.
    pub costs: BTreeMap<String, f64>,
}

/// What became of the requests under one policy.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyReport {
    /// Its file.
    pub name: String,
    /// Decisions: more than lines, where clients come back.
    pub requests: u64,
    /// Those that were let through.
    pub admitted: u64,
    /// Those that were turned away.
    pub refused: u64,
    /// Each class, in the order of the file.
    pub classes: Vec<ClassReport>,
    /// Each quota, in the order of the file.
    pub quotas: Vec<QuotaReport>,
    /// Each hour of the log in which something happened, at most 17,568.
    pub hours: Vec<HourReport>,
    /// How verified bots were served from hour to hour.
    pub verified_bots: ServedReport,
    /// The bots that cost most, dearest first.
    pub bots: Vec<BotReport>,
    /// The pages that verified bots were refused most often.
    pub refused_pages: Vec<RefusedPageReport>,
    /// How far the verdicts are those of the gate that wrote the log; null where no gate did.
    pub agreement: Option<AgreementReport>,
    /// Requests that were put off and never asked again, because they were refused too often or the log ended.
    #[serde(rename = "never_asked_again")]
    pub abandoned: u64,
    /// What of the policy was not tried.
    #[serde(rename = "untried")]
    pub unsupported: Vec<String>,
}

/// One class.
#[derive(Clone, Debug, Serialize)]
pub struct ClassReport {
    /// Its name.
    pub name: String,
    /// Its requests.
    pub requests: u64,
    /// Those that were let through.
    pub admitted: u64,
    /// Those that were turned away, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Those that a rule in shadow mode would have turned away, by reason.
    pub shadow: BTreeMap<&'static str, u64>,
    /// Those that cost something ...
    pub costly: u64,
    /// ... and were let through.
    pub costly_admitted: u64,
    /// What it was charged, by quota.
    pub units: BTreeMap<String, f64>,
}

/// One quota.
#[derive(Clone, Debug, Serialize)]
pub struct QuotaReport {
    /// Its name.
    pub name: String,
    /// What may be spent in a window.
    pub limit: f64,
    /// The time zone by whose calendar its windows begin and end; null where they go by none.
    pub zone: Option<String>,
    /// The tiers of each class that has any.
    pub tiers: Vec<LadderReport>,
    /// How many windows there were; the last thousand follow.
    pub windows_in_all: u64,
    /// Each of them. A window that slides is one.
    pub windows: Vec<WindowReport>,
    /// How far apart the points of `used` are.
    pub step_s: u64,
    /// What was settled and reserved, at the end of each step in which a decision was made on it.
    pub used: Vec<PointReport>,
    /// What would have been used by then, had the plan been followed; empty for a quota that is not paced.
    pub planned: Vec<PointReport>,
}

/// The tiers of one class in a quota.
#[derive(Clone, Debug, Serialize)]
pub struct LadderReport {
    /// The class.
    pub class: String,
    /// Its tiers, lowest first.
    pub tiers: Vec<TierReport>,
}

/// One tier.
#[derive(Clone, Debug, Serialize)]
pub struct TierReport {
    /// From so many units on ...
    pub above: f64,
    /// ... this share is refused, from 0 to 1.
    pub shed: f64,
}

/// One window of a quota.
#[derive(Clone, Debug, Serialize)]
pub struct WindowReport {
    /// When it began, or the log did.
    pub start: String,
    /// When it ended.
    pub end: String,
    /// What was charged in it, up to the limit; in the first also what was used before the log began, where the log says so.
    pub used: f64,
    /// What was left of the limit.
    pub left: f64,
    /// What was charged beyond the limit.
    pub overrun: f64,
    /// When a request was first refused for it, but of a class that is shut out from the first unit on; null where none was.
    pub first_refused: Option<String>,
    /// When a request first found nothing left; null where none did.
    pub spent: Option<String>,
    /// What was charged, by class.
    pub by_class: BTreeMap<String, f64>,
}

/// How much it was at a moment.
#[derive(Clone, Debug, Serialize)]
pub struct PointReport {
    /// The beginning of the step.
    pub time: String,
    /// Units.
    pub units: f64,
}

/// One hour.
#[derive(Clone, Debug, Serialize)]
pub struct HourReport {
    /// Its beginning.
    pub start: String,
    /// Each class that asked for something, or was charged.
    pub classes: Vec<HourOfClassReport>,
}

/// One class in one hour.
#[derive(Clone, Debug, Serialize)]
pub struct HourOfClassReport {
    /// Its name.
    pub name: String,
    /// Its requests.
    pub requests: u64,
    /// Those that were let through.
    pub admitted: u64,
    /// Those that were turned away.
    pub refused: u64,
    /// Those that cost something ...
    pub costly: u64,
    /// ... and were let through.
    pub costly_admitted: u64,
    /// The share of these; null where there were none.
    pub served: Option<f64>,
    /// What it was charged, by quota.
    pub units: BTreeMap<String, f64>,
}

/// How verified bots were served from hour to hour: of their requests that cost something, the share that was let
/// through. Hours with fewer than ten do not count.
#[derive(Clone, Debug, Serialize)]
pub struct ServedReport {
    /// Their requests that cost something ...
    pub costly: u64,
    /// ... and were let through.
    pub admitted: u64,
    /// The hour in which they were served least.
    pub worst: Option<ServedHourReport>,
    /// The hour in which they were served most.
    pub best: Option<ServedHourReport>,
}

/// One of these hours.
#[derive(Clone, Debug, Serialize)]
pub struct ServedHourReport {
    /// Its beginning.
    pub start: String,
    /// Requests that cost something.
    pub costly: u64,
    /// The share of them that was let through.
    pub served: f64,
}

/// One bot.
#[derive(Clone, Debug, Serialize)]
pub struct BotReport {
    /// Whose crawler it is, where that is proven, or what it calls itself.
    pub name: String,
    /// What kind of client it is.
    pub kind: &'static str,
    /// Its requests.
    pub requests: u64,
    /// Those that were turned away.
    pub refused: u64,
    /// What it was charged, all quotas together ...
    pub units: f64,
    /// ... and with what its refused requests would have cost.
    pub units_asked: f64,
}

/// A page that was refused to a verified bot.
#[derive(Clone, Debug, Serialize)]
pub struct RefusedPageReport {
    /// Whose crawler.
    pub operator: String,
    /// The page: host, where it is known, path and query.
    pub page: String,
    /// How often it was refused.
    pub refused: u64,
    /// When first ...
    pub first: String,
    /// ... and when last.
    pub last: String,
}

/// How far the verdicts are those of the gate that wrote the log.
#[derive(Clone, Debug, Serialize)]
pub struct AgreementReport {
    /// Lines with the same verdict, reason and class.
    pub same: u64,
    /// Lines with another.
    pub different: u64,
    /// The first of them, as LINE of the file at that place among those named, from 1.
    pub first_different: Option<PlaceReport>,
    /// Refusals taken as the log has them: they came from how the origin was, or how far the ledger had come.
    #[serde(rename = "taken_as_logged")]
    pub copied_from_log: u64,
    /// How often the gate was started anew.
    pub restarts: u64,
    /// How often the log says that more or less was used than its requests explain; followed up to the first other verdict.
    pub corrections: u64,
}

/// Where a line stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PlaceReport {
    /// The file, by its place among those that were named, from 1.
    pub file: usize,
    /// The line, from 1.
    pub line: u64,
}

/// Where two policies differ.
#[derive(Clone, Debug, Serialize)]
pub struct ComparisonReport {
    /// Lines on which both say the same.
    pub same: u64,
    /// Lines that only the first lets through.
    pub only_first_admits: u64,
    /// Lines that only the second lets through.
    pub only_second_admits: u64,
    /// Lines that both refuse, for other reasons.
    pub other_reason: u64,
    /// Lines that are of another class under the second policy.
    pub other_class: u64,
    /// What is let through otherwise, by the class that the client is of under the policy that refuses it.
    pub by_class: BTreeMap<String, DifferenceReport>,
    /// The first lines on which they differ.
    pub examples: Vec<ExampleReport>,
}

/// What two policies let through otherwise.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct DifferenceReport {
    /// Requests that only the first lets through.
    pub only_first_admits: u64,
    /// Requests that only the second lets through.
    pub only_second_admits: u64,
}

/// A line on which two policies differ.
#[derive(Clone, Debug, Serialize)]
pub struct ExampleReport {
    /// Where it stands.
    pub place: PlaceReport,
    /// Its time.
    pub time: String,
    /// Its class, under the first.
    pub class: String,
    /// Its class, under the second.
    pub second_class: String,
    /// What the first says: `admitted`, or the reason of its refusal.
    pub first: &'static str,
    /// What the second says.
    pub second: &'static str,
}

/// Gives names to bots.
pub(super) struct NameLookup<'a> {
    pub(super) agents: &'a UserAgentMatcher,
    pub(super) operators: &'a OperatorTable,
}

impl NameLookup<'_> {
    pub(super) fn operator(&self, operator: OperatorId) -> &str {
        self.operators.name(operator)
    }

    pub(super) fn bot(&self, bot: BotId) -> &str {
        self.agents.name(bot)
    }
}

impl From<super::log::LinePosition> for PlaceReport {
    fn from(place: super::log::LinePosition) -> Self {
        Self { file: place.file + 1, line: place.number }
    }
}
