//! The tuning itself: a search over drafts, each tried on the whole log.

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

/// What is to be tuned, and for what.
pub struct Tuner<'a> {
    /// The requests.
    pub recording: &'a InMemoryLog,
    /// What is taken for true where the log is silent.
    pub assumptions: &'a Assumptions,
    /// What is wanted.
    pub goal: &'a Goal,
    /// What may be changed.
    pub space: &'a SearchSpace,
    /// The file.
    pub manuscript: &'a ConfigEditor<'a>,
    /// The policy of the file as it is.
    pub policy: &'a Policy,
    /// Makes settings of a text of the file.
    pub settings: &'a (dyn Fn(&str) -> Result<Settings, String> + Sync),
    /// Policies are tried on so many threads, whose number changes nothing but the time it takes.
    pub threads: NonZeroUsize,
}

/// What was found.
pub struct TuneResult {
    /// All that there is to tell.
    pub report: TuningReport,
    /// The file with the best values.
    pub text: String,
}

/// Why nothing was found.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// The log cannot be read, or there is nothing in it.
    #[error(transparent)]
    Replay(#[from] replay::ReplayError),
    /// The log does not fit in memory.
    #[error(
        "the log is longer than fits in memory (1 GiB): it is full after the lines from {} to {}; give fewer days",
        rfc3339(*first),
        rfc3339(*last)
    )]
    TooLong {
        /// The first line ...
        first: Timestamp,
        /// ... and the last that fitted.
        last: Timestamp,
    },
    /// The file cannot be changed where it has to be.
    #[error(transparent)]
    Unwritable(#[from] EditError),
    /// The file is wrong.
    #[error("{0}")]
    Wrong(String),
    /// There is no such point.
    #[error("--pick: there is no point {picked}; {}", match points { 0 => "nothing has to be given up for anything".to_owned(), points => format!("they are numbered from 1 to {points}") })]
    NoSuchPoint {
        /// The one that was picked.
        picked: usize,
        /// How many there are.
        points: usize,
    },
}

impl Tuner<'_> {
    /// Runs it. Proposes what comes nearest to the goal, or the point of the trade-off of the number that is `picked`. `watch`
    /// sees how many policies have been tried.
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

    /// What is measured: first the terms of the goal, then what else could be traded for them.
    fn objectives(&self) -> Vec<Objective> {
        let asked = self.goal.terms.iter().map(|term| Objective { measure: term.measure.clone(), better: term.bound });
        let mut stakes: Vec<Objective> = asked.collect();
        let share = |what, name: &str| Measure { what, name: name.to_owned(), is_share: true };
        let classes = &self.policy.settings.rules.classes;
        let served = self
            .space
            .classes()
            .iter()
            .map(|class| (share(MeasureKind::Served, &classes[*class].name), Bound::AtLeast));
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

    /// Tries drafts side by side.
    fn evaluate_all(&self, stakes: &[Objective], drafts: &[Candidate]) -> Result<Vec<Evaluated>, TuneError> {
        let threads = self.threads.get().min(drafts.len()).max(1);
        let share = |thread: usize| {
            move || drafts.iter().skip(thread).step_by(threads).map(|draft| self.evaluate(stakes, draft)).collect()
        };
        let mut shares: Vec<_> = thread::scope(|scope| {
            let working: Vec<_> = (0..threads).map(|thread| scope.spawn(share(thread))).collect();
            let done = working.into_iter().map(|thread| thread.join().expect("a trial does not panic"));
            done.map(|share: Vec<Result<Evaluated, TuneError>>| share.into_iter()).collect()
        });
        let next = |place: usize| shares[place % threads].next().expect("each draft has been tried by its thread");
        (0..drafts.len()).map(next).collect()
    }

    fn evaluate(&self, stakes: &[Objective], draft: &Candidate) -> Result<Evaluated, TuneError> {
        let report = self.replay(draft)?;
        let span = self.recording.span();
        let figures: Vec<Option<f64>> = stakes.iter().map(|stake| stake.measure.of(&report, &span)).collect();
        let rank = Rank::of(self.goal, &figures, self.space.changes(draft));
        Ok(Evaluated { draft: draft.clone(), figures, rank })
    }

    /// The whole log under the file with the values of a draft.
    fn replay(&self, draft: &Candidate) -> Result<PolicyReport, TuneError> {
        let text = self.manuscript.with(self.space, draft)?;
        let settings = (self.settings)(&text).map_err(TuneError::Wrong)?;
        if self.space.draft(&settings) != *draft {
            return Err(self.manuscript.edit_error(self.space).into());
        }
        Ok(self.recording.replay(self.policy.with(settings), self.assumptions))
    }
}

/// The place of the point with this number among those that were tried.
fn pick_point(curve: Option<&(ParetoFront, Vec<usize>)>, picked: usize) -> Result<usize, TuneError> {
    let points = curve.map_or(&[][..], |(_, points)| points);
    let place = picked.checked_sub(1).and_then(|place| points.get(place));
    place.copied().ok_or(TuneError::NoSuchPoint { picked, points: points.len() })
}
