//! Which policies to try.
//!
//! First what the file says, then drafts spread over all that is possible, then a pattern search (Hooke and Jeeves 1961)
//! from the best of them: neighbours are tried, and the first batch with a better one moves the search there; where none
//! is better, the next neighbours are nearer.

use super::draft::Draft;
use super::rank::Rank;
use super::space::Space;
use crate::chance::Chance;

/// How to look.
#[derive(Clone, Debug)]
pub struct Search {
    /// The most policies that are tried; at least one.
    pub effort: usize,
    /// Where drafts that are spread come from.
    pub chance: Chance,
}

/// A policy that has been tried.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    pub(super) draft: Draft,
    /// What was measured.
    pub(super) figures: Vec<Option<f64>>,
    pub(super) rank: Rank,
}

impl Search {
    /// Looks for the best draft. `try_all` tries some and gives them back in their order. All that were tried, the present
    /// one first.
    pub(super) fn run<E>(
        mut self,
        space: &Space,
        try_all: &mut dyn FnMut(Vec<Draft>) -> Result<Vec<Tried>, E>,
    ) -> Result<Vec<Tried>, E> {
        let mut looked = Looked { tried: try_all(vec![space.present().clone()])?, effort: self.effort, try_all };
        for samples in space.samples(self.effort / SPREAD, &mut self.chance).chunks(BATCH) {
            looked.look_at(samples)?;
        }
        let mut reach = FARTHEST;
        while reach > 0 && !looked.is_over() {
            if !looked.finds_better(&space.neighbours(&looked.best().draft, reach))? {
                reach /= 2;
            }
        }
        Ok(looked.tried)
    }
}

/// What has been looked at so far.
struct Looked<'a, E> {
    tried: Vec<Tried>,
    effort: usize,
    try_all: &'a mut dyn FnMut(Vec<Draft>) -> Result<Vec<Tried>, E>,
}

impl<E> Looked<'_, E> {
    fn best(&self) -> &Tried {
        best(&self.tried)
    }

    fn is_over(&self) -> bool {
        self.tried.len() >= self.effort || self.best().rank.is_perfect()
    }

    /// Looks at drafts until one is better than all before.
    fn finds_better(&mut self, drafts: &[Draft]) -> Result<bool, E> {
        let before = self.best().rank.clone();
        for batch in drafts.chunks(BATCH) {
            self.look_at(batch)?;
            if self.best().rank < before || self.is_over() {
                break;
            }
        }
        Ok(self.best().rank < before)
    }

    /// Tries those that are new, as far as the effort goes.
    fn look_at(&mut self, drafts: &[Draft]) -> Result<(), E> {
        let mut new: Vec<Draft> = Vec::new();
        for draft in drafts {
            if !self.tried.iter().any(|tried| tried.draft == *draft) && !new.contains(draft) {
                new.push(draft.clone());
            }
        }
        new.truncate(self.effort.saturating_sub(self.tried.len()));
        self.tried.extend((self.try_all)(new)?);
        Ok(())
    }
}

/// The nearest to the goal; the first of equals.
pub(super) fn best(tried: &[Tried]) -> &Tried {
    tried.iter().min_by(|one, other| one.rank.cmp(&other.rank)).expect("the present policy has been tried")
}

/// One in so many is spread; the rest goes into looking more closely.
const SPREAD: usize = 3;

/// Drafts that are tried at once. It is the same on every machine, or the results would differ with the cores.
const BATCH: usize = 8;

/// The first steps, in percent.
const FARTHEST: u32 = 16;
