//! Report of a search, from which the terminal summary and `--json` are rendered.
//!
//! Values are in percent for a share, else counts or units; null if there was nothing to measure.

use super::candidate::Candidate;
use super::config_editor::threshold_text;
use super::goal::Bound;
use super::measure::complete_windows;
use super::pareto::{Objective, ParetoFront};
use super::search::Evaluated;
use super::space::SearchSpace;
use super::tuner::Tuner;
use crate::log::ClientNotes;
use crate::report::{CacheReport, PolicyReport};
use crate::serialize;
use serde::Serialize;
use similar::TextDiff;
use std::collections::BTreeMap;
use tidegate_policy::{Rules, Timestamp};

/// Result of a search.
#[derive(Clone, Debug, Serialize)]
pub struct TuningReport {
    /// Log that was replayed.
    pub log: TunedLogReport,
    /// What the cache of the present file does; null without one. Measures do not count the requests that it answers.
    pub cache: Option<CacheReport>,
    /// Quota whose tiers were varied.
    pub quota: String,
    /// Number of policies tried.
    pub tried: usize,
    /// Number of the point selected with `--select`; null if none was.
    pub picked: Option<usize>,
    /// True if the found policy meets the goal.
    pub met: bool,
    /// Reasons why no policy can meet the goal, with the value of the best possible policy for a term.
    pub impossible: Vec<String>,
    /// Terms of the goal.
    pub terms: Vec<TermReport>,
    /// Tiers of each tunable class, present and found.
    pub tiers: Vec<TunedClassReport>,
    /// Pacing of the quota, present and found.
    pub pacing: PacingReport,
    /// Trade-off between two measures; null if no measures conflict.
    pub trade_off: Option<TradeOffReport>,
    /// Changes to the file as a unified diff; empty if there are none.
    pub patch: String,
}

/// Log that was replayed.
#[derive(Clone, Debug, Serialize)]
pub struct TunedLogReport {
    /// Number of requests.
    pub requests: u64,
    /// How the clients were found.
    pub clients: ClientNotes,
    /// Time of the first request.
    #[serde(serialize_with = "serialize::rfc3339")]
    pub first: Timestamp,
    /// Time of the last request.
    #[serde(serialize_with = "serialize::rfc3339")]
    pub last: Timestamp,
    /// Time from the first to the last request, in seconds.
    pub span_s: u64,
    /// Number of windows of the quota that count.
    pub windows: usize,
    /// True if the log covers these windows; false if it covers none, so that their usage is not representative.
    pub windows_are_whole: bool,
}

/// Term of the goal.
#[derive(Clone, Debug, Serialize)]
pub struct TermReport {
    /// Text of the term.
    pub term: String,
    /// True if its values are in percent.
    pub percent: bool,
    /// Value under the present file.
    pub present: Option<f64>,
    /// Value under the found policy.
    pub found: Option<f64>,
    /// True if the found policy meets the term.
    pub met: bool,
    /// Amount by which the found policy misses the term.
    pub short_by: f64,
}

/// Tiers of one class, as `60%:50%`: above this usage, refuse this share.
#[derive(Clone, Debug, Serialize)]
pub struct TunedClassReport {
    /// Name of the class.
    pub class: String,
    /// Tiers in the file.
    pub present: Vec<String>,
    /// Tiers as found.
    pub found: Vec<String>,
}

/// Pacing of the quota: `off`, or a mode and the weights other than 1.
#[derive(Clone, Debug, Serialize)]
pub struct PacingReport {
    /// Pacing in the file.
    pub present: String,
    /// Pacing as found.
    pub found: String,
}

/// Trade-off between two measures: tried policies that no other beats in both, and that miss no other term by more.
#[derive(Clone, Debug, Serialize)]
pub struct TradeOffReport {
    /// First measure.
    pub x: AxisReport,
    /// Second measure.
    pub y: AxisReport,
    /// Policies, best in `x` first; includes the present and the found policy even if others beat them.
    pub points: Vec<CandidateReport>,
}

/// Measure on an axis of the trade-off.
#[derive(Clone, Debug, Serialize)]
pub struct AxisReport {
    /// Name of the measure.
    pub measure: String,
    /// True if its values are in percent.
    pub percent: bool,
    /// True if higher values are better.
    pub more_is_better: bool,
}

/// Policy of the trade-off.
#[derive(Clone, Debug, Serialize)]
pub struct CandidateReport {
    /// Number from 1, for `--select`.
    pub number: usize,
    /// Value of the first measure.
    pub x: f64,
    /// Value of the second measure.
    pub y: f64,
    /// True for the present file.
    pub present: bool,
    /// True for the found or selected policy.
    pub found: bool,
    /// Pacing of the policy.
    pub pacing: String,
    /// Tiers by class.
    pub tiers: BTreeMap<String, Vec<String>>,
}

/// Result of a search.
pub(super) struct SearchOutcome<'a> {
    pub(super) objectives: &'a [Objective],
    pub(super) evaluated: &'a [Evaluated],
    /// Front, and the indexes of its points among the tried policies.
    pub(super) front: Option<(ParetoFront, Vec<usize>)>,
    /// Number of the selected point.
    pub(super) picked: Option<usize>,
    /// Index of the proposed policy.
    pub(super) chosen: usize,
    pub(super) infeasible: Vec<String>,
}

/// Builds the report; `present` is the replay of the present file, `text` the file as found.
pub(super) fn report(
    tuner: &Tuner<'_>,
    outcome: SearchOutcome<'_>,
    present: &PolicyReport,
    text: &str,
) -> TuningReport {
    let SearchOutcome { objectives, evaluated, chosen, .. } = outcome;
    let Tuner { log: recording, goal, space, policy, editor, .. } = tuner;
    let rules = &policy.settings.rules;
    let found = &evaluated[chosen];
    let (span, quota) = (recording.span(), &present.quotas[space.quota().index()]);
    let windows = complete_windows(quota);
    let figures = goal.terms.iter().zip(evaluated[0].figures.iter().zip(&found.figures));
    let terms = figures.map(|(term, (now, found))| TermReport {
        term: term.to_string(),
        percent: term.measure.is_share,
        present: *now,
        found: *found,
        met: term.shortfall(*found) == 0.0,
        short_by: term.shortfall(*found),
    });
    let (present_rows, found_rows) =
        (format_tiers(&evaluated[0].candidate, space), format_tiers(&found.candidate, space));
    let tiers = space
        .classes()
        .iter()
        .zip(present_rows.into_iter().zip(found_rows))
        .map(|(class, (present, found))| TunedClassReport { class: rules[*class].name.clone(), present, found });
    TuningReport {
        log: TunedLogReport {
            requests: recording.request_count(),
            clients: recording.clients.clone(),
            first: span.first,
            last: span.last,
            span_s: span.last.saturating_duration_since(span.first).as_secs(),
            windows: windows.len(),
            windows_are_whole: windows.iter().any(|window| window.whole),
        },
        cache: present.cache.clone(),
        quota: quota.name.clone(),
        tried: evaluated.len(),
        picked: outcome.picked,
        met: found.rank.meets_goal(),
        impossible: outcome.infeasible,
        terms: terms.collect(),
        tiers: tiers.collect(),
        pacing: PacingReport {
            present: format_pacing(&evaluated[0].candidate, space, rules),
            found: format_pacing(&found.candidate, space, rules),
        },
        trade_off: outcome
            .front
            .map(|(front, points)| trade_off(tuner, objectives, evaluated, &front, (points, chosen))),
        patch: TextDiff::from_lines(editor.text(), text)
            .unified_diff()
            .header(&present.name, &present.name)
            .to_string(),
    }
}

fn trade_off(
    tuner: &Tuner<'_>,
    objectives: &[Objective],
    evaluated: &[Evaluated],
    front: &ParetoFront,
    (points, chosen): (Vec<usize>, usize),
) -> TradeOffReport {
    let (space, rules) = (tuner.space, &tuner.policy.settings.rules);
    let [x, y] = front.axes;
    let axis = |objective: &Objective| AxisReport {
        measure: objective.measure.to_string(),
        percent: objective.measure.is_share,
        more_is_better: objective.direction == Bound::AtLeast,
    };
    let point = |(number, index): (usize, usize)| {
        let policy = &evaluated[index];
        let names = space.classes().iter().map(|class| rules[*class].name.clone());
        CandidateReport {
            number: number + 1,
            x: policy.figures[x].unwrap_or_default(),
            y: policy.figures[y].unwrap_or_default(),
            present: index == 0,
            found: index == chosen,
            pacing: format_pacing(&policy.candidate, space, rules),
            tiers: names.zip(format_tiers(&policy.candidate, space)).collect(),
        }
    };
    TradeOffReport {
        x: axis(&objectives[x]),
        y: axis(&objectives[y]),
        points: points.into_iter().enumerate().map(point).collect(),
    }
}

fn format_pacing(candidate: &Candidate, space: &SearchSpace, rules: &Rules) -> String {
    let classes = space.classes().iter().zip(&candidate.pacing.weights).filter(|(_, weight)| **weight > 1);
    let weights = classes.map(|(class, weight)| format!(" {} {weight}", rules[*class].name));
    candidate.pacing.mode_name().to_owned() + &weights.collect::<String>()
}

/// Formats the tiers of each class.
fn format_tiers(candidate: &Candidate, space: &SearchSpace) -> Vec<Vec<String>> {
    let tier = |tier: &tidegate_policy::tier::Tier| {
        format!("{}:{}", threshold_text(tier.threshold, space.limit()), tier.shed_share)
    };
    candidate.tier_sets.iter().map(|tiers| tiers.iter().map(tier).collect()).collect()
}
