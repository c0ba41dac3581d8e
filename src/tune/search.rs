//! Search over candidates.
//!
//! Tries the present file, the extremes of the search space, and samples between them. Then runs pattern searches
//! (Hooke and Jeeves 1961): from the present file, because the best is often near; from the best candidate; from the
//! present file with other pacing. A pattern search tries neighbors and moves to the best of the first batch that
//! contains a better one. Without a better neighbor, it halves the step.

use super::candidate::Candidate;
use super::rank::Rank;
use super::space::SearchSpace;
use crate::rng::Rng;

/// Parameters of a search.
#[derive(Clone, Debug)]
pub struct Search {
    /// Maximum number of policies tried; at least one.
    pub effort: usize,
    /// Random number generator for samples.
    pub chance: Rng,
}

/// A policy that was tried.
#[derive(Clone, Debug)]
pub(super) struct Evaluated {
    pub(super) draft: Candidate,
    /// Measured values, by objective.
    pub(super) figures: Vec<Option<f64>>,
    pub(super) rank: Rank,
}

impl Search {
    /// Searches for the best candidate. `try_all` evaluates candidates and returns them in their order. Returns all
    /// evaluated candidates, the present file first.
    pub(super) fn run<E>(
        mut self,
        space: &SearchSpace,
        try_all: &mut dyn FnMut(Vec<Candidate>) -> Result<Vec<Evaluated>, E>,
    ) -> Result<Vec<Evaluated>, E> {
        let mut state =
            SearchState { tried: try_all(vec![space.present().clone()])?, space, effort: self.effort, try_all };
        for extremes in space.extreme_candidates().chunks(BATCH) {
            state.evaluate_new(extremes)?;
        }
        for samples in space.samples(self.effort / SPREAD, &mut self.chance).chunks(BATCH) {
            state.evaluate_new(samples)?;
        }
        if state.tried[BASELINE].rank.is_perfect() {
            return Ok(state.tried);
        }
        state.descend(BASELINE)?;
        state.descend(best(&state.tried))?;
        for start in space.with_other_pacing() {
            if state.tried[best(&state.tried)].rank.is_met_with_one_change() {
                break;
            }
            state.evaluate_new(std::slice::from_ref(&start))?;
            if let Some(start) = state.place_of(&start) {
                state.descend(start)?;
            }
        }
        Ok(state.tried)
    }
}

/// State of a running search.
struct SearchState<'a, E> {
    tried: Vec<Evaluated>,
    space: &'a SearchSpace,
    effort: usize,
    try_all: &'a mut dyn FnMut(Vec<Candidate>) -> Result<Vec<Evaluated>, E>,
}

impl<E> SearchState<'_, E> {
    /// Moves from the policy at index `at` to better neighbors until there is none, or half of the remaining trials are
    /// used.
    fn descend(&mut self, mut at: usize) -> Result<(), E> {
        let max_trials = (self.tried.len() + self.effort).div_ceil(2);
        let mut step = INITIAL_STEP;
        while step > 0 && self.tried.len() < max_trials && !self.tried[at].rank.is_perfect() {
            match self.better_neighbor(at, step)? {
                Some(better) => at = better,
                None => step /= 2,
            }
        }
        Ok(())
    }

    fn better_neighbor(&mut self, at: usize, step: u32) -> Result<Option<usize>, E> {
        for batch in self.space.neighbours(&self.tried[at].draft, step).chunks(BATCH) {
            self.evaluate_new(batch)?;
            let indices = batch.iter().filter_map(|candidate| self.place_of(candidate));
            let best = indices.min_by_key(|index| &self.tried[*index].rank);
            if let Some(best) = best.filter(|best| self.tried[*best].rank < self.tried[at].rank) {
                return Ok(Some(best));
            }
        }
        Ok(None)
    }

    fn place_of(&self, candidate: &Candidate) -> Option<usize> {
        self.tried.iter().position(|evaluated| evaluated.draft == *candidate)
    }

    /// Evaluates the candidates that are new, up to the maximum number of trials.
    fn evaluate_new(&mut self, candidates: &[Candidate]) -> Result<(), E> {
        let mut new: Vec<Candidate> = Vec::new();
        for candidate in candidates {
            if self.place_of(candidate).is_none() && !new.contains(candidate) {
                new.push(candidate.clone());
            }
        }
        new.truncate(self.effort.saturating_sub(self.tried.len()));
        self.tried.extend((self.try_all)(new)?);
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
const SPREAD: usize = 4;

/// Candidates evaluated at once. Constant, because a number that depends on the CPU cores would change the results.
const BATCH: usize = 8;

/// Initial step, in percent.
const INITIAL_STEP: u32 = 16;
