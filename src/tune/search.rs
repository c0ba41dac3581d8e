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
        let mut looked =
            SearchState { tried: try_all(vec![space.present().clone()])?, space, effort: self.effort, try_all };
        for corners in space.extreme_candidates().chunks(BATCH) {
            looked.evaluate_new(corners)?;
        }
        for samples in space.samples(self.effort / SPREAD, &mut self.chance).chunks(BATCH) {
            looked.evaluate_new(samples)?;
        }
        if looked.tried[BASELINE].rank.is_perfect() {
            return Ok(looked.tried);
        }
        looked.descend(BASELINE)?;
        looked.descend(best(&looked.tried))?;
        for start in space.with_other_pacing() {
            if looked.tried[best(&looked.tried)].rank.is_met_with_one_change() {
                break;
            }
            looked.evaluate_new(std::slice::from_ref(&start))?;
            if let Some(start) = looked.place_of(&start) {
                looked.descend(start)?;
            }
        }
        Ok(looked.tried)
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
        let most = (self.tried.len() + self.effort).div_ceil(2);
        let mut reach = INITIAL_STEP;
        while reach > 0 && self.tried.len() < most && !self.tried[at].rank.is_perfect() {
            match self.better_neighbor(at, reach)? {
                Some(better) => at = better,
                None => reach /= 2,
            }
        }
        Ok(())
    }

    fn better_neighbor(&mut self, at: usize, reach: u32) -> Result<Option<usize>, E> {
        for batch in self.space.neighbours(&self.tried[at].draft, reach).chunks(BATCH) {
            self.evaluate_new(batch)?;
            let looked_at = batch.iter().filter_map(|draft| self.place_of(draft));
            let best = looked_at.min_by_key(|place| &self.tried[*place].rank);
            if let Some(best) = best.filter(|best| self.tried[*best].rank < self.tried[at].rank) {
                return Ok(Some(best));
            }
        }
        Ok(None)
    }

    fn place_of(&self, draft: &Candidate) -> Option<usize> {
        self.tried.iter().position(|tried| tried.draft == *draft)
    }

    /// Evaluates the candidates that are new, up to the maximum number of trials.
    fn evaluate_new(&mut self, drafts: &[Candidate]) -> Result<(), E> {
        let mut new: Vec<Candidate> = Vec::new();
        for draft in drafts {
            if self.place_of(draft).is_none() && !new.contains(draft) {
                new.push(draft.clone());
            }
        }
        new.truncate(self.effort.saturating_sub(self.tried.len()));
        self.tried.extend((self.try_all)(new)?);
        Ok(())
    }
}

/// Returns the index of the policy nearest to the goal; the first of equals.
pub(super) fn best(tried: &[Evaluated]) -> usize {
    (0..tried.len()).min_by_key(|place| &tried[*place].rank).unwrap_or_default()
}

/// Index of the present file among the tried policies.
pub(super) const BASELINE: usize = 0;

/// Inverse of the share of trials used for samples; the others refine.
const SPREAD: usize = 4;

/// Candidates evaluated at once. Constant, because a number that depends on the CPU cores would change the results.
const BATCH: usize = 8;

/// Initial step, in percent.
const INITIAL_STEP: u32 = 16;
