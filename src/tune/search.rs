//! Which policies to try.
//!
//! First what the file says, the ends of what is possible and drafts spread between them, then pattern searches (Hooke and Jeeves 1961): from
//! the file as it is, for the best is often near; from the best of all; from the file paced otherwise. In each, neighbours
//! are tried, and the first batch with a better one moves the search to it; where none is better, the next are nearer.

use super::candidate::Candidate;
use super::rank::Rank;
use super::space::SearchSpace;
use crate::rng::Rng;

/// How to look.
#[derive(Clone, Debug)]
pub struct Search {
    /// The most policies that are tried; at least one.
    pub effort: usize,
    /// Where drafts that are spread come from.
    pub chance: Rng,
}

/// A policy that has been tried.
#[derive(Clone, Debug)]
pub(super) struct Evaluated {
    pub(super) draft: Candidate,
    /// What was measured.
    pub(super) figures: Vec<Option<f64>>,
    pub(super) rank: Rank,
}

impl Search {
    /// Looks for the best draft. `try_all` tries some and gives them back in their order. All that were tried, the present
    /// one first.
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

/// What has been looked at so far.
struct SearchState<'a, E> {
    tried: Vec<Evaluated>,
    space: &'a SearchSpace,
    effort: usize,
    try_all: &'a mut dyn FnMut(Vec<Candidate>) -> Result<Vec<Evaluated>, E>,
}

impl<E> SearchState<'_, E> {
    /// Goes from the policy at place `at` to better ones, until there is none near, or half of the effort that is left is
    /// spent.
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

    /// Tries those that are new, as far as the effort goes.
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

/// The place of the nearest to the goal; the first of equals.
pub(super) fn best(tried: &[Evaluated]) -> usize {
    (0..tried.len()).min_by_key(|place| &tried[*place].rank).unwrap_or_default()
}

/// The file as it is, among those that were tried.
pub(super) const BASELINE: usize = 0;

/// One in so many is spread; the rest goes into looking more closely.
const SPREAD: usize = 4;

/// Drafts that are tried at once. It is the same on every machine, or the results would differ with the cores.
const BATCH: usize = 8;

/// The first steps, in percent.
const INITIAL_STEP: u32 = 16;
