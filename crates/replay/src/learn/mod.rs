//! What a gateway would have learned from a log: the demand of paced quotas, and the baseline of bot detection.
//!
//! The log passes through the same code as live requests, so the same rules of evidence apply: a burst of one hour counts
//! little, a client contributes to the baseline once, and refused requests count as demand.

pub mod summary;

use super::learned_state::LearnedState;
use super::report::LogReport;
use super::run::LogLearning;
use crate::log::LogField;
use crate::serialize;
use serde::Serialize;
use tidegate_engine::LearnedDemand;
use tidegate_policy::bot_detection::{BaselineCounts, LearnedBaseline};
use tidegate_policy::pacing::PacingRole;
use tidegate_policy::pacing::week::{HOURS_PER_DAY, MIN_KNOWN_HOURS, WeeklyProfile};
use tidegate_policy::quota::Quota;
use tidegate_policy::{ClassId, Rules, Timestamp};

/// What was learned from a log, for people and programs.
#[derive(Clone, Debug, Serialize)]
pub struct LearnReport {
    /// Lines read.
    pub log: LogReport,
    /// The longest time without a request; it counts as observed up to a day.
    pub longest_gap: GapReport,
    /// All quotas, in the order of the file.
    pub quotas: Vec<QuotaLearning>,
    /// Baseline of bot detection; null if it is disabled.
    pub baseline: Option<BaselineLearning>,
    /// Files written.
    pub written: Vec<String>,
}

/// A time without requests.
#[derive(Clone, Debug, Serialize)]
pub struct GapReport {
    /// Time of the last request before it.
    #[serde(serialize_with = "serialize::rfc3339")]
    pub start: Timestamp,
    /// Time of the first request after it.
    #[serde(serialize_with = "serialize::rfc3339")]
    pub end: Timestamp,
}

/// What was learned of one quota.
#[derive(Clone, Debug, Serialize)]
pub struct QuotaLearning {
    /// Name of the quota.
    pub name: String,
    /// Time zone of its hours; null for UTC.
    pub zone: Option<String>,
    /// Mode of its pacing; null if it is not paced.
    pub pacing: Option<&'static str>,
    /// Number of whole hours observed; of each hour of the week, the last four count.
    pub hours: u32,
    /// Number of hours of the week observed, at most 168.
    pub hours_of_week: usize,
    /// Number of hours of the day observed, at most 24.
    pub hours_of_day: usize,
    /// Number of hours of the day that pacing still lacks for a forecast; 0 if it forecasts from the start.
    pub missing_hours: usize,
    /// Demand by class; empty if no request of the log has a cost in this quota.
    pub classes: Vec<ClassLearning>,
}

/// Learned demand of a class.
#[derive(Clone, Debug, Serialize)]
pub struct ClassLearning {
    /// Name of the class.
    pub class: String,
    /// Role in the plan: `unpaced`, `paced` or `excluded`.
    pub role: &'static str,
    /// Demand of an average day, in units.
    pub units_per_day: f64,
    /// Demand of each hour of an average day, in units.
    pub by_hour: [f64; HOURS_PER_DAY],
}

/// What was learned of the behavior of people on this site.
#[derive(Clone, Debug, Serialize)]
pub struct BaselineLearning {
    /// Clients that load the assets of pages.
    pub assets: BehaviorLearning,
    /// Clients that send the referer of the previous page; null if the log lacks hosts.
    pub links: Option<BehaviorLearning>,
}

/// Clients with one behavior.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BehaviorLearning {
    /// Number of clients, with their decay.
    pub clients: f32,
    /// Share of them that show the behavior; null without clients.
    pub ratio: Option<f32>,
    /// Confidence with which bot detection expects it of people, 0 to 1.
    pub confidence: f32,
}

impl LogLearning {
    /// Returns what `tidegate learn` stores.
    pub fn state(&self) -> LearnedState {
        LearnedState { demand: self.covered_demand(), baseline: self.usable_baseline() }
    }

    /// Returns the demand of the quotas of which the log contains a request with a cost.
    fn covered_demand(&self) -> Vec<LearnedDemand> {
        let is_covered = |learned: &&LearnedDemand| {
            let of_quota = self.demand.iter().filter(|other| other.quota == learned.quota);
            of_quota.flat_map(|other| &other.week).any(|hour| hour.units > 0.0)
        };
        self.demand.iter().filter(is_covered).cloned().collect()
    }

    /// Returns the baseline as far as the log is evidence of what the gateway will see.
    ///
    /// A server in front may serve assets itself. Unless the gateway wrote the log, the samples have the least weight,
    /// which the first live clients outvote. Without hosts, referers of other sites look like those of this one.
    fn usable_baseline(&self) -> LearnedBaseline {
        let weighted = if self.lacks(LogField::Headers, 0) { self.baseline.with_least_weight() } else { self.baseline };
        match self.lacks_hosts() {
            true => LearnedBaseline { links: BaselineCounts::default(), ..weighted },
            false => weighted,
        }
    }

    /// Returns the report. `written` are the files written.
    pub fn into_report(self, rules: &Rules, written: Vec<String>) -> LearnReport {
        let demand = self.covered_demand();
        let baseline = rules.bot_detection.as_ref().map(|_| BaselineLearning {
            assets: BehaviorLearning::from_counts(self.baseline.assets),
            links: (!self.lacks_hosts()).then(|| BehaviorLearning::from_counts(self.baseline.links)),
        });
        let (start, end) = self.longest_gap;
        LearnReport {
            quotas: rules.quotas.iter().map(|quota| QuotaLearning::new(quota, rules, &demand)).collect(),
            log: self.log,
            longest_gap: GapReport { start, end },
            baseline,
            written,
        }
    }

    fn lacks_hosts(&self) -> bool {
        self.lacks(LogField::Host, self.log.requests / 2)
    }

    /// Returns true if more than `max_lines` lack `field`.
    fn lacks(&self, field: LogField, max_lines: u64) -> bool {
        self.log.missing_fields.iter().any(|missing| missing.fact == field.name() && missing.lines > max_lines)
    }
}

impl QuotaLearning {
    fn new(quota: &Quota, rules: &Rules, demand: &[LearnedDemand]) -> Self {
        let learned = |class: &str| demand.iter().find(|it| it.quota == quota.name && it.class == class);
        let profiles: Vec<(ClassId, WeeklyProfile)> = rules
            .classes
            .iter()
            .enumerate()
            .filter_map(|(index, class)| {
                Some((ClassId(index as u16), WeeklyProfile::from_hours(learned(&class.name)?.week)))
            })
            .collect();
        let hours = |profile: &WeeklyProfile| profile.hours().iter().map(|hour| hour.weeks as u32).sum();
        let known = |profile: &WeeklyProfile| profile.hours().iter().filter(|hour| hour.weeks > 0.0).count();
        let least = |count: &dyn Fn(&WeeklyProfile) -> usize| profiles.iter().map(|(_, profile)| count(profile)).min();
        let hours_of_day = least(&WeeklyProfile::known_hours_of_day).unwrap_or_default();
        Self {
            name: quota.name.clone(),
            zone: quota.window.zone().map(str::to_owned),
            pacing: quota.pacing.as_ref().map(|pacing| pacing.forecast.name()),
            hours: profiles.iter().map(|(_, profile)| hours(profile)).max().unwrap_or_default(),
            hours_of_week: least(&known).unwrap_or_default(),
            hours_of_day,
            missing_hours: MIN_KNOWN_HOURS.saturating_sub(hours_of_day),
            classes: profiles
                .iter()
                .map(|(class, profile)| ClassLearning::new(quota, rules, *class, profile))
                .collect(),
        }
    }
}

impl ClassLearning {
    fn new(quota: &Quota, rules: &Rules, class: ClassId, profile: &WeeklyProfile) -> Self {
        let typical = |hour: usize| profile.typical().map_or(0.0, |typical| typical[hour]);
        let days = || (0..).step_by(HOURS_PER_DAY).take_while(|start| *start < profile.hours().len());
        let by_hour: [f64; HOURS_PER_DAY] =
            std::array::from_fn(|hour| days().map(|start| typical(start + hour)).sum::<f64>() / days().count() as f64);
        let by_hour = by_hour.map(|units| (units * 1000.0).round() / 1000.0);
        Self {
            class: rules[class].name.clone(),
            role: match quota.pacing.as_ref().map(|pacing| pacing.role(class)) {
                Some(PacingRole::Paced(_)) => "paced",
                Some(PacingRole::Excluded) => "excluded",
                Some(PacingRole::Unpaced) | None => "unpaced",
            },
            units_per_day: (by_hour.iter().sum::<f64>() * 1000.0).round() / 1000.0,
            by_hour,
        }
    }
}

impl BehaviorLearning {
    fn from_counts(counts: BaselineCounts) -> Self {
        let ratio = (counts.samples() > 0.0).then(|| counts.present / counts.samples());
        Self { clients: counts.samples(), ratio, confidence: counts.confidence() }
    }
}
