//! Search over candidates.
//!
//! Tries the present file, the extremes of the search space, and samples between them. Then runs pattern searches
//! (Hooke and Jeeves 1961): from the present file, because the best is often near; from the best candidate; from the
//! present file with other pacing. A pattern search tries neighbors and moves to the best of the first batch that
//! contains a better one. Without a better neighbor, it halves the step.

use super::candidate::Candidate;
use super::rank::Rank;
use super::space::SearchSpace;
use tidegate_policy::rng::Rng;

/// Parameters of a search.
#[derive(Clone, Debug)]
pub struct Search {
    /// Maximum number of policies tried; at least one.
    pub max_evaluations: usize,
    /// Random number generator for samples.
    pub rng: Rng,
}

/// A policy that was tried.
#[derive(Clone, Debug)]
pub(super) struct Evaluated {
    pub(super) candidate: Candidate,
    /// Measured values, by objective.
    pub(super) figures: Vec<Option<f64>>,
    pub(super) rank: Rank,
}

impl Search {
    /// Searches for the best candidate. `evaluate_all` evaluates candidates and returns them in their order. Returns all
    /// evaluated candidates, the present file first.
    pub(super) fn run<E>(
        mut self,
        space: &SearchSpace,
        evaluate_all: &mut dyn FnMut(Vec<Candidate>) -> Result<Vec<Evaluated>, E>,
    ) -> Result<Vec<Evaluated>, E> {
        let mut state = SearchState {
            evaluated: evaluate_all(vec![space.present().clone()])?,
            space,
            max_evaluations: self.max_evaluations,
            evaluate_all,
        };
        for extremes in space.extreme_candidates().chunks(BATCH_SIZE) {
            state.evaluate_new(extremes)?;
        }
        for samples in space.samples(self.max_evaluations / SAMPLE_DIVISOR, &mut self.rng).chunks(BATCH_SIZE) {
            state.evaluate_new(samples)?;
        }
        if state.evaluated[BASELINE].rank.is_perfect() {
            return Ok(state.evaluated);
        }
        state.descend(BASELINE)?;
        state.descend(best(&state.evaluated))?;
        for start in space.with_other_pacing() {
            if state.evaluated[best(&state.evaluated)].rank.is_met_with_one_change() {
                break;
            }
            state.evaluate_new(std::slice::from_ref(&start))?;
            if let Some(start) = state.index_of(&start) {
                state.descend(start)?;
            }
        }
        Ok(state.evaluated)
    }
}

/// State of a running search.
struct SearchState<'a, E> {
    evaluated: Vec<Evaluated>,
    space: &'a SearchSpace,
    max_evaluations: usize,
    evaluate_all: &'a mut dyn FnMut(Vec<Candidate>) -> Result<Vec<Evaluated>, E>,
}

impl<E> SearchState<'_, E> {
    /// Moves from the policy at index `at` to better neighbors until there is none, or half of the remaining trials are
    /// used.
    fn descend(&mut self, mut at: usize) -> Result<(), E> {
        let max_trials = (self.evaluated.len() + self.max_evaluations).div_ceil(2);
        let mut step = INITIAL_STEP;
        while step > 0 && self.evaluated.len() < max_trials && !self.evaluated[at].rank.is_perfect() {
            match self.better_neighbor(at, step)? {
                Some(better) => at = better,
                None => step /= 2,
            }
        }
        Ok(())
    }

    fn better_neighbor(&mut self, at: usize, step: u32) -> Result<Option<usize>, E> {
        for batch in self.space.neighbors(&self.evaluated[at].candidate, step).chunks(BATCH_SIZE) {
            self.evaluate_new(batch)?;
            let indices = batch.iter().filter_map(|candidate| self.index_of(candidate));
            let best = indices.min_by_key(|index| &self.evaluated[*index].rank);
            if let Some(best) = best.filter(|best| self.evaluated[*best].rank < self.evaluated[at].rank) {
                return Ok(Some(best));
            }
        }
        Ok(None)
    }

    fn index_of(&self, candidate: &Candidate) -> Option<usize> {
        self.evaluated.iter().position(|evaluated| evaluated.candidate == *candidate)
    }

    /// Evaluates the candidates that are new, up to the maximum number of trials.
    fn evaluate_new(&mut self, candidates: &[Candidate]) -> Result<(), E> {
        let mut new: Vec<Candidate> = Vec::new();
        for candidate in candidates {
            if self.index_of(candidate).is_none() && !new.contains(candidate) {
                new.push(candidate.clone());
            }
        }
        new.truncate(self.max_evaluations.saturating_sub(self.evaluated.len()));
        self.evaluated.extend((self.evaluate_all)(new)?);
        Ok(())
    }
}

/// Returns the index of the policy nearest to the goal; the first of equals.
pub(super) fn best(evaluated: &[Evaluated]) -> usize {
    (0..evaluated.len()).min_by_key(|index| &evaluated[*index].rank).unwrap_or_default()
}

/// Index of the present file among the tried policies.
pub(super) const BASELINE: usize = 0;

/// Inverse of the share of trials used for samples; the others refine.
const SAMPLE_DIVISOR: usize = 4;

/// Candidates evaluated at once. Constant, because a number that depends on the CPU cores would change the results.
const BATCH_SIZE: usize = 8;

/// Initial step, in percent.
const INITIAL_STEP: u32 = 16;
