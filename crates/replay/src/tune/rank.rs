//! Order of policies by their distance to a goal.
//!
//! Deb's rules (2000, "An efficient constraint handling method for genetic algorithms"): a policy that meets the goal
//! precedes one that misses it; of two that miss it, the one with the smaller shortfall is first. Of two that meet it,
//! the one with fewer changes to the file is first. Shortfalls are compared term by term, in the order of the goal.

use super::changes::Changes;
use super::goal::Goal;
use std::cmp::Ordering;

/// Rank of a policy; the least is nearest to the goal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// Shortfall of each term.
    shortfalls: Vec<Shortfall>,
    changes: Changes,
}

/// Shortfall of a term in tenths; smaller differences do not justify a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shortfall(u64);

impl Rank {
    /// Creates the rank of a policy with these values for the terms of a goal.
    pub(super) fn new(goal: &Goal, figures: &[Option<f64>], changes: Changes) -> Self {
        let shortfalls =
            goal.terms.iter().zip(figures).map(|(term, figure)| Shortfall::from_amount(term.shortfall(*figure)));
        Self { shortfalls: shortfalls.collect(), changes }
    }

    /// Returns true if every term is met.
    pub(super) fn meets_goal(&self) -> bool {
        self.shortfalls.iter().all(|shortfall| shortfall.0 == 0)
    }

    /// Returns true if the term at this index is missed.
    pub(super) fn is_missed(&self, term: usize) -> bool {
        self.shortfalls[term].0 > 0
    }

    /// Returns true if no policy can be nearer: the goal is met without changes.
    pub(super) fn is_perfect(&self) -> bool {
        self.meets_goal() && self.changes == Changes::default()
    }

    /// Returns true if at most one change meets the goal; no policy with other pacing has fewer changes.
    pub(super) fn is_met_with_one_change(&self) -> bool {
        self.meets_goal() && self.changes.priority_inversions == 0 && self.changes.changed_values <= 1
    }

    /// Returns true if no term, except those in `except`, is missed by more than under `other`.
    pub(super) fn dominates_except(&self, other: &Self, except: [usize; 2]) -> bool {
        let pairs = self.shortfalls.iter().zip(&other.shortfalls).enumerate();
        pairs.filter(|(term, _)| !except.contains(term)).all(|(_, (left, right))| left.cmp(right) != Ordering::Greater)
    }
}

impl Shortfall {
    fn from_amount(amount: f64) -> Self {
        Self((amount * 10.0).ceil() as u64)
    }
}
