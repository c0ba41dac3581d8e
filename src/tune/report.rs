//! What was found, as one document: the terminal and `--json` are made of it.
//!
//! Figures are percents where the goal asks for a share, counts and units otherwise; null where there was nothing to measure.

use super::candidate::Candidate;
use super::config_editor::{percent, threshold_text};
use super::diff::unified_diff;
use super::goal::Bound;
use super::measure::complete_windows;
use super::pareto::{Objective, ParetoFront};
use super::search::Evaluated;
use super::space::SearchSpace;
use super::tuner::Tuner;
use crate::policy::Rules;
use crate::replay::report::PolicyReport;
use crate::telemetry::rfc3339;
use serde::Serialize;
use std::collections::BTreeMap;

/// The whole of it.
#[derive(Clone, Debug, Serialize)]
pub struct TuningReport {
    /// What was read.
    pub log: TunedLogReport,
    /// The quota whose tiers were varied.
    pub quota: String,
    /// How many policies were tried.
    pub tried: usize,
    /// The number of the point of the trade-off that was picked instead of what comes nearest; null where none was.
    pub picked: Option<usize>,
    /// True where what was found meets the goal.
    pub met: bool,
    /// Why the goal cannot be met by any policy, where that is known: what the best of all for one of its terms would give.
    pub impossible: Vec<String>,
    /// Each term of the goal.
    pub terms: Vec<TermReport>,
    /// The tiers of each class that may be changed: now, and as found.
    pub tiers: Vec<TunedClassReport>,
    /// How the quota is paced: now, and as found.
    pub pacing: PacingReport,
    /// What can be had for what; null where nothing has to be given up for anything.
    pub trade_off: Option<TradeOffReport>,
    /// The changes to the file, as `diff -u` writes them; empty where it stays as it is.
    pub patch: String,
}

/// What was read.
#[derive(Clone, Debug, Serialize)]
pub struct TunedLogReport {
    /// Requests.
    pub requests: u64,
    /// The time of the first ...
    pub first: String,
    /// ... and of the last.
    pub last: String,
    /// From one to the other.
    pub span_s: u64,
    /// The windows of the quota that say what is left at their end ...
    pub windows: usize,
    /// ... which is so little known where the log covers none of them whole.
    pub windows_are_whole: bool,
}

/// One term of the goal.
#[derive(Clone, Debug, Serialize)]
pub struct TermReport {
    /// The term.
    pub term: String,
    /// Its figures are percents.
    pub percent: bool,
    /// Its figure under the file as it is.
    pub present: Option<f64>,
    /// Its figure under what was found.
    pub found: Option<f64>,
    /// What was found meets it.
    pub met: bool,
    /// By how much it does not.
    pub short_by: f64,
}

/// The tiers of one class, as `60%:50%`: from this much used on, refuse this share.
#[derive(Clone, Debug, Serialize)]
pub struct TunedClassReport {
    /// The class.
    pub class: String,
    /// Its tiers in the file.
    pub present: Vec<String>,
    /// Its tiers as found.
    pub found: Vec<String>,
}

/// How the quota is paced: `off`, or a mode and the weights that are not 1.
#[derive(Clone, Debug, Serialize)]
pub struct PacingReport {
    /// In the file.
    pub present: String,
    /// As found.
    pub found: String,
}

/// What can be had for what: of all policies that were tried and miss no other term by more, those that none beats in both.
#[derive(Clone, Debug, Serialize)]
pub struct TradeOffReport {
    /// One measure ...
    pub x: AxisReport,
    /// ... and the other.
    pub y: AxisReport,
    /// The policies, best in `x` first; those that are present and found are among them even where others beat them.
    pub points: Vec<PointReport>,
}

/// One of two measures.
#[derive(Clone, Debug, Serialize)]
pub struct AxisReport {
    /// What is measured.
    pub measure: String,
    /// Its figures are percents.
    pub percent: bool,
    /// More of it is better, not less.
    pub more_is_better: bool,
}

/// One policy.
#[derive(Clone, Debug, Serialize)]
pub struct PointReport {
    /// Its number, from 1: `--pick` takes it.
    pub number: usize,
    /// Its figure in the first measure ...
    pub x: f64,
    /// ... and in the second.
    pub y: f64,
    /// It is the file as it is.
    pub present: bool,
    /// It is what was found, or picked.
    pub found: bool,
    /// How it paces.
    pub pacing: String,
    /// Its tiers, by class.
    pub tiers: BTreeMap<String, Vec<String>>,
}

/// What a search has come to.
pub(super) struct SearchOutcome<'a> {
    pub(super) stakes: &'a [Objective],
    pub(super) tried: &'a [Evaluated],
    /// What can be had for what, by place among those that were tried.
    pub(super) curve: Option<(ParetoFront, Vec<usize>)>,
    /// The number of the point on it that was picked.
    pub(super) picked: Option<usize>,
    /// The place of what is proposed.
    pub(super) chosen: usize,
    pub(super) impossible: Vec<String>,
}

/// What is to be told; `present` is the replay of the file as it is, `text` the file as found.
pub(super) fn report(
    tuning: &Tuner<'_>,
    outcome: SearchOutcome<'_>,
    present: &PolicyReport,
    text: &str,
) -> TuningReport {
    let SearchOutcome { stakes, tried, chosen, .. } = outcome;
    let Tuner { recording, goal, space, policy, manuscript, .. } = tuning;
    let rules = &policy.settings.rules;
    let found = &tried[chosen];
    let (span, quota) = (recording.span(), &present.quotas[space.quota()]);
    let windows = complete_windows(quota, &span);
    let figures = goal.terms.iter().zip(tried[0].figures.iter().zip(&found.figures));
    let terms = figures.map(|(term, (now, found))| TermReport {
        term: term.to_string(),
        percent: term.measure.is_share,
        present: *now,
        found: *found,
        met: term.shortfall(*found) == 0.0,
        short_by: term.shortfall(*found),
    });
    let (now, then) = (change_rows(&tried[0].draft, space), change_rows(&found.draft, space));
    let tiers = space.classes().iter().zip(now.into_iter().zip(then)).map(|(class, (present, found))| {
        TunedClassReport { class: rules.classes[*class].name.clone(), present, found }
    });
    TuningReport {
        log: TunedLogReport {
            requests: recording.requests(),
            first: rfc3339(span.first),
            last: rfc3339(span.last),
            span_s: span.last.saturating_duration_since(span.first).as_secs(),
            windows: windows.len(),
            windows_are_whole: windows.iter().any(|window| span.covers(window)),
        },
        quota: quota.name.clone(),
        tried: tried.len(),
        picked: outcome.picked,
        met: found.rank.meets_goal(),
        impossible: outcome.impossible,
        terms: terms.collect(),
        tiers: tiers.collect(),
        pacing: PacingReport {
            present: pacing(&tried[0].draft, space, rules),
            found: pacing(&found.draft, space, rules),
        },
        trade_off: outcome.curve.map(|(front, points)| trade_off(tuning, stakes, tried, &front, (points, chosen))),
        patch: unified_diff(&present.name, manuscript.text(), text),
    }
}

fn trade_off(
    tuning: &Tuner<'_>,
    stakes: &[Objective],
    tried: &[Evaluated],
    front: &ParetoFront,
    (points, chosen): (Vec<usize>, usize),
) -> TradeOffReport {
    let (space, rules) = (tuning.space, &tuning.policy.settings.rules);
    let [x, y] = front.stakes;
    let axis = |stake: &Objective| AxisReport {
        measure: stake.measure.to_string(),
        percent: stake.measure.is_share,
        more_is_better: stake.better == Bound::AtLeast,
    };
    let point = |(number, place): (usize, usize)| {
        let policy = &tried[place];
        let names = space.classes().iter().map(|class| rules.classes[*class].name.clone());
        PointReport {
            number: number + 1,
            x: policy.figures[x].unwrap_or_default(),
            y: policy.figures[y].unwrap_or_default(),
            present: place == 0,
            found: place == chosen,
            pacing: pacing(&policy.draft, space, rules),
            tiers: names.zip(change_rows(&policy.draft, space)).collect(),
        }
    };
    TradeOffReport {
        x: axis(&stakes[x]),
        y: axis(&stakes[y]),
        points: points.into_iter().enumerate().map(point).collect(),
    }
}

fn pacing(draft: &Candidate, space: &SearchSpace, rules: &Rules) -> String {
    let classes = space.classes().iter().zip(&draft.pace.weights).filter(|(_, weight)| **weight > 1);
    let weights = classes.map(|(class, weight)| format!(" {} {weight}", rules.classes[*class].name));
    draft.pace.mode().to_owned() + &weights.collect::<String>()
}

/// The tiers of each class, in words.
fn change_rows(draft: &Candidate, space: &SearchSpace) -> Vec<Vec<String>> {
    let tier = |tier: &crate::policy::tier::Tier| {
        format!("{}:{}", threshold_text(tier.above, space.limit()), percent(tier.shed))
    };
    draft.ladders.iter().map(|tiers| tiers.iter().map(tier).collect()).collect()
}
