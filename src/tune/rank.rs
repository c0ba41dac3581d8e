//! Which of two policies is nearer to a goal.
//!
//! Deb's rules (2000, "An efficient constraint handling method for genetic algorithms"): of two that miss the goal, the one
//! that misses it by less; before these, those that meet it; of two that meet it, here, the one that changes less of the
//! file. By how much a goal is missed is compared term by term, in the order in which they were written.

use super::candidate::Changes;
use super::goal::Goal;
use std::cmp::Ordering;

/// How near to a goal a policy is. The least is the nearest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// By how much each term is missed.
    shortfalls: Vec<Shortfall>,
    changes: Changes,
}

/// By how much a term is missed, to a tenth: nobody would change a file for less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shortfall(u64);

impl Rank {
    /// Of a policy with these figures for the terms of a goal.
    pub(super) fn of(goal: &Goal, figures: &[Option<f64>], changes: Changes) -> Self {
        let shortfalls = goal.terms.iter().zip(figures).map(|(term, figure)| Shortfall::of(term.shortfall(*figure)));
        Self { shortfalls: shortfalls.collect(), changes }
    }

    /// True where every term is met.
    pub(super) fn meets_goal(&self) -> bool {
        self.shortfalls.iter().all(|shortfall| shortfall.0 == 0)
    }

    /// True where the term at this place is missed.
    pub(super) fn misses(&self, term: usize) -> bool {
        self.shortfalls[term].0 > 0
    }

    /// True where no policy can be nearer: the goal is met, and nothing is changed.
    pub(super) fn is_perfect(&self) -> bool {
        self.meets_goal() && self.changes == Changes::default()
    }

    /// True where the goal is met and no more than one value is another: nothing that is paced otherwise changes fewer.
    pub(super) fn is_met_with_one_change(&self) -> bool {
        self.meets_goal() && self.changes.priority_inversions == 0 && self.changes.values <= 1
    }

    /// True where each term but those in `aside` is missed by no more than under `other`.
    pub(super) fn dominates_except(&self, other: &Self, aside: [usize; 2]) -> bool {
        let pairs = self.shortfalls.iter().zip(&other.shortfalls).enumerate();
        pairs.filter(|(term, _)| !aside.contains(term)).all(|(_, (own, others))| own.cmp(others) != Ordering::Greater)
    }
}

impl Shortfall {
    fn of(amount: f64) -> Self {
        Self((amount * 10.0).ceil() as u64)
    }
}
