//! Tuner: a search over candidates, each replayed on the whole log.

use super::candidate::Candidate;
use super::config_editor::{ConfigEditor, EditError};
use super::feasibility;
use super::goal::{Bound, Goal};
use super::in_memory_log::InMemoryLog;
use super::measure::{Measure, MeasureKind};
use super::pareto::{Objective, ParetoFront};
use super::rank::Rank;
use super::report::{self, SearchOutcome, TuningReport};
use super::search::{self, Evaluated, Search};
use super::space::SearchSpace;
use crate::config::Settings;
use crate::policy::Timestamp;
use crate::replay::report::PolicyReport;
use crate::replay::{self, Assumptions, Policy};
use crate::telemetry::rfc3339;
use std::num::NonZeroUsize;
use std::thread;

/// Input of a search.
pub struct Tuner<'a> {
    /// Requests of the log.
    pub log: &'a InMemoryLog,
    /// Values that replace facts missing from the log.
    pub assumptions: &'a Assumptions,
    /// Goal of the search.
    pub goal: &'a Goal,
    /// Values that may be changed.
    pub space: &'a SearchSpace,
    /// Editor of the configuration file.
    pub editor: &'a ConfigEditor<'a>,
    /// Policy of the present file.
    pub policy: &'a Policy,
    /// Loads settings from a text of the file.
    pub settings: &'a (dyn Fn(&str) -> Result<Settings, String> + Sync),
    /// Number of threads, which affects only the duration.
    pub threads: NonZeroUsize,
}

/// Result of a search.
pub struct TuneResult {
    /// Report of the search.
    pub report: TuningReport,
    /// Text of the file with the found values.
    pub text: String,
}

/// Reason why a search has no result.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// The log cannot be read or contains no requests.
    #[error(transparent)]
    Replay(#[from] replay::ReplayError),
    /// The log does not fit in memory.
    #[error(
        "the log does not fit in memory (1 GiB): only the lines from {} to {} fit; use fewer days",
        rfc3339(*first),
        rfc3339(*last)
    )]
    TooLong {
        /// Time of the first line.
        first: Timestamp,
        /// Time of the last line that fits.
        last: Timestamp,
    },
    /// A value of the file cannot be edited.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The file is invalid.
    #[error("{0}")]
    InvalidConfig(String),
    /// No point of the trade-off has the selected number.
    #[error("--select: no point {picked}; {}", match points {
        0 => "there are no trade-offs".to_owned(),
        points => format!("points are numbered from 1 to {points}"),
    })]
    NoSuchPoint {
        /// Selected number.
        picked: usize,
        /// Number of points.
        points: usize,
    },
}

impl Tuner<'_> {
    /// Runs the search. Proposes the policy nearest to the goal, or the point of the trade-off with the number
    /// `picked`. Calls `on_progress` with the number of policies tried.
    pub fn run(
        &self,
        search: Search,
        picked: Option<usize>,
        on_progress: &mut dyn FnMut(usize),
    ) -> Result<TuneResult, TuneError> {
        let objectives = self.objectives();
        let mut count = 0;
        let evaluated = search.run(self.space, &mut |candidates| {
            let evaluated = self.evaluate_all(&objectives, &candidates)?;
            count += evaluated.len();
            on_progress(count);
            Ok::<_, TuneError>(evaluated)
        })?;
        let best = search::best(&evaluated);
        let curve = ParetoFront::compute(&objectives, &evaluated, &evaluated[best].rank).map(|front| {
            let points = front.sorted_points(&objectives, &evaluated, [search::BASELINE, best]);
            (front, points)
        });
        let chosen = picked.map_or(Ok(best), |picked| select_point(curve.as_ref(), picked))?;
        let text = self.editor.apply_annotated(self.space, &evaluated[chosen].candidate)?;
        let present = self.replay(self.space.present())?;
        let impossible = feasibility::infeasible_terms(self, &evaluated[best].rank);
        let outcome = SearchOutcome {
            objectives: &objectives,
            evaluated: &evaluated,
            front: curve,
            picked,
            chosen,
            infeasible: impossible,
        };
        Ok(TuneResult { report: report::report(self, outcome, &present, &text), text })
    }

    /// Returns the measures: first the terms of the goal, then others that may conflict with them.
    fn objectives(&self) -> Vec<Objective> {
        let goal_objectives =
            self.goal.terms.iter().map(|term| Objective { measure: term.measure.clone(), direction: term.bound });
        let mut objectives: Vec<Objective> = goal_objectives.collect();
        let share = |kind, name: &str| Measure { kind, name: name.to_owned(), is_share: true };
        let classes = &self.policy.settings.rules.classes;
        let admitted = self
            .space
            .classes()
            .iter()
            .map(|class| (share(MeasureKind::Admitted, &classes[*class].name), Bound::AtLeast));
        let others = (0..classes.len()).filter(|class| !self.space.classes().contains(class));
        let refused = others.map(|class| (share(MeasureKind::Refused, &classes[class].name), Bound::AtMost));
        for (measure, better) in admitted.chain(refused) {
            let is_new =
                |existing: &Objective| existing.measure.name != measure.name || existing.measure.kind != measure.kind;
            if objectives.iter().all(is_new) {
                objectives.push(Objective { measure, direction: better });
            }
        }
        objectives
    }

    /// Evaluates candidates in parallel.
    fn evaluate_all(&self, objectives: &[Objective], candidates: &[Candidate]) -> Result<Vec<Evaluated>, TuneError> {
        let threads = self.threads.get().min(candidates.len()).max(1);
        let share = |thread: usize| {
            move || {
                candidates
                    .iter()
                    .skip(thread)
                    .step_by(threads)
                    .map(|candidate| self.evaluate(objectives, candidate))
                    .collect()
            }
        };
        let mut shares: Vec<_> = thread::scope(|scope| {
            let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(share(thread))).collect();
            let results = handles.into_iter().map(|thread| thread.join().expect("evaluation does not panic"));
            results.map(|share: Vec<Result<Evaluated, TuneError>>| share.into_iter()).collect()
        });
        let next = |index: usize| shares[index % threads].next().expect("each thread evaluated its candidates");
        (0..candidates.len()).map(next).collect()
    }

    fn evaluate(&self, objectives: &[Objective], candidate: &Candidate) -> Result<Evaluated, TuneError> {
        let report = self.replay(candidate)?;
        let span = self.log.span();
        let figures: Vec<Option<f64>> =
            objectives.iter().map(|objective| objective.measure.value(&report, &span)).collect();
        let rank = Rank::new(self.goal, &figures, self.space.changes(candidate));
        Ok(Evaluated { candidate: candidate.clone(), figures, rank })
    }

    /// Replays the log under the file with the values of a candidate.
    fn replay(&self, candidate: &Candidate) -> Result<PolicyReport, TuneError> {
        let text = self.editor.apply(self.space, candidate)?;
        let settings = (self.settings)(&text).map_err(TuneError::InvalidConfig)?;
        if self.space.candidate(&settings) != *candidate {
            return Err(self.editor.edit_error(self.space).into());
        }
        Ok(self.log.replay(self.policy.with_settings(settings), self.assumptions))
    }
}

/// Returns the index of the point with this number among the tried policies.
fn select_point(curve: Option<&(ParetoFront, Vec<usize>)>, picked: usize) -> Result<usize, TuneError> {
    let points = curve.map_or(&[][..], |(_, points)| points);
    let index = picked.checked_sub(1).and_then(|index| points.get(index));
    index.copied().ok_or(TuneError::NoSuchPoint { picked, points: points.len() })
}
