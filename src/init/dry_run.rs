//! What a proposed file would have charged on its own log: it is replayed, with nobody refused.

use super::analysis::{LogAnalysis, OUT_OF_ORDER};
use super::generate::{PEOPLE, QUOTA};
use super::logs::Logs;
use super::time_range::LogTimeRange;
use crate::config;
use crate::replay::log::{LogLine, LogReadError, MergedLog};
use crate::replay::report::{QuotaReport, WindowReport};
use crate::replay::{Assumptions, Policy, ReplayRequest, Simulator};
use crate::terminal::group_digits;
use std::path::Path;
use std::sync::Arc;

/// What a day of the site needs.
#[derive(Debug)]
pub(super) struct DailyDemand {
    /// Units charged on the busiest day.
    pub(super) busiest: u64,
    /// The most that people were charged on a day: those who ask, less those whose conduct gives them away as bots.
    pub(super) people: u64,
    /// How that was reckoned.
    pub(super) reckoned: String,
}

/// Why a proposal was not tried.
#[derive(Debug, thiserror::Error)]
pub enum DryRunError {
    /// A log cannot be read again.
    #[error(transparent)]
    Unreadable(#[from] LogReadError),
    /// Our own mistake: what was proposed is no file that would be accepted.
    #[error("what was proposed would not be accepted: {0}")]
    Wrong(String),
}

impl DailyDemand {
    /// Before anything has been tried.
    pub(super) fn unknown() -> Self {
        Self { busiest: 1, people: 0, reckoned: String::new() }
    }

    /// What the file `yaml` would have charged on these logs.
    pub(super) fn replay(yaml: &str, logs: &Logs, findings: &LogAnalysis<'_>) -> Result<Self, DryRunError> {
        let LogAnalysis { agents, operators, days, .. } = findings;
        let names: Vec<&str> = operators.names().collect();
        let settings = config::load(Path::new("proposed"), yaml, &[], &[], &names)
            .map_err(|mistakes| DryRunError::Wrong(mistakes.to_string()))?;
        let (operators, agents) = (Arc::clone(operators), Arc::clone(agents));
        let policy = Policy { name: "proposed".into(), settings, operators, agents, lists: Arc::default() };
        let quotas = replayed(policy, MergedLog::new(logs.open()?, OUT_OF_ORDER))?;
        Ok(quotas.iter().find(|quota| quota.name == QUOTA).map_or_else(Self::unknown, |quota| Self::of(quota, days)))
    }

    /// The most of any day, or where the log is shorter than a day, as much as a day would have.
    fn of(quota: &QuotaReport, days: &LogTimeRange) -> Self {
        let used = |window: &WindowReport| window.used.ceil() as u64;
        let of_people = |window: &WindowReport| window.by_class.get(PEOPLE).map_or(0, |units| units.ceil() as u64);
        if days.is_less_than_a_day() {
            let all = |units: fn(&WindowReport) -> u64| quota.windows.iter().map(units).sum::<u64>();
            let reckoned = format!(
                "{} in about {} h, and as many all day long would be {}",
                group_digits(all(used)),
                days.hours(),
                group_digits(days.per_day(all(used)))
            );
            return Self { busiest: days.per_day(all(used)), people: days.per_day(all(of_people)), reckoned };
        }
        let most = |units: fn(&WindowReport) -> u64| quota.windows.iter().map(units).max().unwrap_or(0);
        let busiest = most(used);
        let mut reckoned = match quota.windows_in_all {
            0 | 1 => format!("{} on its only day", group_digits(busiest)),
            days => format!("{} on the busiest of {} days", group_digits(busiest), group_digits(days)),
        };
        if let Some(usual) = median(quota.windows.iter().filter(|window| days.covers(window)).map(used).collect()) {
            reckoned += &format!(", {} on a usual one", group_digits(usual));
        }
        Self { busiest, people: most(of_people), reckoned }
    }
}

fn replayed(policy: Policy, mut lines: MergedLog) -> Result<Vec<QuotaReport>, LogReadError> {
    let assumptions = Assumptions::default();
    let mut waiting = Some(policy);
    let mut trial: Option<Simulator> = None;
    while let Some(next) = lines.next_line()? {
        let Ok(Some(line)) = LogLine::read(next.text) else { continue };
        let Some(request) = ReplayRequest::of(&line) else { continue };
        if let Some(policy) = waiting.take() {
            trial = Some(Simulator::new(policy, &assumptions, next.at));
        }
        if let Some(trial) = &mut trial {
            trial.process(next, &line, &request, &mut |_, _| {});
        }
    }
    Ok(trial.map_or_else(Vec::new, |trial| trial.end().quotas))
}

/// The median; of a few days there is none to speak of.
fn median(mut days: Vec<u64>) -> Option<u64> {
    days.sort_unstable();
    days.get(days.len() / 2).copied().filter(|_| days.len() >= MIN_DAYS_FOR_MEDIAN)
}

const MIN_DAYS_FOR_MEDIAN: usize = 3;
