//! Evaluates candidates: replays the whole log under the file with the values of each.

use super::candidate::Candidate;
use super::config_editor::ConfigEditor;
use super::error::TuneError;
use super::goal::Goal;
use super::in_memory_log::InMemoryLog;
use super::pareto::Objective;
use super::rank::Rank;
use super::search::Evaluated;
use super::space::SearchSpace;
use crate::report::PolicyReport;
use crate::{Assumptions, Policy};
use std::num::NonZeroUsize;
use std::thread;
use tidegate_config::Settings;

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

impl Tuner<'_> {
    /// Evaluates candidates in parallel. Returns the results in their order.
    pub(super) fn evaluate_all(
        &self,
        objectives: &[Objective],
        candidates: &[Candidate],
    ) -> Result<Vec<Evaluated>, TuneError> {
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
        let figures: Vec<Option<f64>> = objectives.iter().map(|objective| objective.measure.value(&report)).collect();
        let rank = Rank::new(self.goal, &figures, self.space.changes(candidate));
        Ok(Evaluated { candidate: candidate.clone(), figures, rank })
    }

    /// Replays the log under the file with the values of a candidate.
    pub(super) fn replay(&self, candidate: &Candidate) -> Result<PolicyReport, TuneError> {
        let text = self.editor.apply(self.space, candidate)?;
        let settings = (self.settings)(&text).map_err(TuneError::InvalidConfig)?;
        if self.space.candidate(&settings) != *candidate {
            return Err(self.editor.edit_error(self.space).into());
        }
        Ok(self.log.replay(self.policy.with_settings(settings), self.assumptions))
    }
}
