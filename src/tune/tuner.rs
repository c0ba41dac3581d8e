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
    pub recording: &'a InMemoryLog,
    /// Values that replace facts missing from the log.
    pub assumptions: &'a Assumptions,
    /// Goal of the search.
    pub goal: &'a Goal,
    /// Values that may be changed.
    pub space: &'a SearchSpace,
    /// Editor of the configuration file.
    pub manuscript: &'a ConfigEditor<'a>,
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
    Unwritable(#[from] EditError),
    /// The file is invalid.
    #[error("{0}")]
    Wrong(String),
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
    /// `picked`. Calls `watch` with the number of policies tried.
    pub fn run(
        &self,
        search: Search,
        picked: Option<usize>,
        watch: &mut dyn FnMut(usize),
    ) -> Result<TuneResult, TuneError> {
        let stakes = self.objectives();
        let mut count = 0;
        let tried = search.run(self.space, &mut |drafts| {
            let tried = self.evaluate_all(&stakes, &drafts)?;
            count += tried.len();
            watch(count);
            Ok::<_, TuneError>(tried)
        })?;
        let best = search::best(&tried);
        let curve = ParetoFront::of(&stakes, &tried, &tried[best].rank).map(|front| {
            let points = front.along(&stakes, &tried, [search::BASELINE, best]);
            (front, points)
        });
        let chosen = picked.map_or(Ok(best), |picked| pick_point(curve.as_ref(), picked))?;
        let text = self.manuscript.annotated(self.space, &tried[chosen].draft)?;
        let present = self.replay(self.space.present())?;
        let impossible = feasibility::infeasible_terms(self, &tried[best].rank);
        let outcome = SearchOutcome { stakes: &stakes, tried: &tried, curve, picked, chosen, impossible };
        Ok(TuneResult { report: report::report(self, outcome, &present, &text), text })
    }

    /// Returns the measures: first the terms of the goal, then others that may conflict with them.
    fn objectives(&self) -> Vec<Objective> {
        let asked = self.goal.terms.iter().map(|term| Objective { measure: term.measure.clone(), better: term.bound });
        let mut stakes: Vec<Objective> = asked.collect();
        let share = |what, name: &str| Measure { what, name: name.to_owned(), is_share: true };
        let classes = &self.policy.settings.rules.classes;
        let served = self
            .space
            .classes()
            .iter()
            .map(|class| (share(MeasureKind::Admitted, &classes[*class].name), Bound::AtLeast));
        let others = (0..classes.len()).filter(|class| !self.space.classes().contains(class));
        let refused = others.map(|class| (share(MeasureKind::Refused, &classes[class].name), Bound::AtMost));
        for (measure, better) in served.chain(refused) {
            let is_new = |known: &Objective| known.measure.name != measure.name || known.measure.what != measure.what;
            if stakes.iter().all(is_new) {
                stakes.push(Objective { measure, better });
            }
        }
        stakes
    }

    /// Evaluates candidates in parallel.
    fn evaluate_all(&self, stakes: &[Objective], drafts: &[Candidate]) -> Result<Vec<Evaluated>, TuneError> {
        let threads = self.threads.get().min(drafts.len()).max(1);
        let share = |thread: usize| {
            move || drafts.iter().skip(thread).step_by(threads).map(|draft| self.evaluate(stakes, draft)).collect()
        };
        let mut shares: Vec<_> = thread::scope(|scope| {
            let working: Vec<_> = (0..threads).map(|thread| scope.spawn(share(thread))).collect();
            let done = working.into_iter().map(|thread| thread.join().expect("evaluation does not panic"));
            done.map(|share: Vec<Result<Evaluated, TuneError>>| share.into_iter()).collect()
        });
        let next = |place: usize| shares[place % threads].next().expect("each thread evaluated its candidates");
        (0..drafts.len()).map(next).collect()
    }

    fn evaluate(&self, stakes: &[Objective], draft: &Candidate) -> Result<Evaluated, TuneError> {
        let report = self.replay(draft)?;
        let span = self.recording.span();
        let figures: Vec<Option<f64>> = stakes.iter().map(|stake| stake.measure.of(&report, &span)).collect();
        let rank = Rank::of(self.goal, &figures, self.space.changes(draft));
        Ok(Evaluated { draft: draft.clone(), figures, rank })
    }

    /// Replays the log under the file with the values of a candidate.
    fn replay(&self, draft: &Candidate) -> Result<PolicyReport, TuneError> {
        let text = self.manuscript.with(self.space, draft)?;
        let settings = (self.settings)(&text).map_err(TuneError::Wrong)?;
        if self.space.draft(&settings) != *draft {
            return Err(self.manuscript.edit_error(self.space).into());
        }
        Ok(self.recording.replay(self.policy.with(settings), self.assumptions))
    }
}

/// Returns the index of the point with this number among the tried policies.
fn pick_point(curve: Option<&(ParetoFront, Vec<usize>)>, picked: usize) -> Result<usize, TuneError> {
    let points = curve.map_or(&[][..], |(_, points)| points);
    let place = picked.checked_sub(1).and_then(|place| points.get(place));
    place.copied().ok_or(TuneError::NoSuchPoint { picked, points: points.len() })
}
