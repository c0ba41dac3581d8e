//! Candidates of the search.

use super::changes::Changes;
use super::pacing::PacingChoice;
use super::tiers;
use tidegate_policy::Units;
use tidegate_policy::tier::{Share, Tier};

/// A policy to try: the values of everything that `tune` may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Tiers of each tuned class, in the order of [`SearchSpace::classes`](super::SearchSpace::classes).
    pub(super) tier_sets: Vec<Vec<Tier>>,
    /// Pacing of the quota.
    pub(super) pacing: PacingChoice,
}

impl Candidate {
    /// Creates a candidate. Removes pacing values without effect, so that equal policies are equal candidates.
    pub(super) fn new(tier_sets: Vec<Vec<Tier>>, pacing: PacingChoice) -> Self {
        let open_classes: Vec<bool> = tier_sets.iter().map(|tiers| is_open(tiers)).collect();
        Self { tier_sets, pacing: pacing.normalized(&open_classes) }
    }

    /// Returns the difference from `present`; `priorities` are those of the tuned classes.
    pub(super) fn changes(&self, present: &Self, priorities: &[u8], limit: Units) -> Changes {
        let pacing_changes = self.pacing.changes(&present.pacing);
        let tier_pairs = self.tier_sets.iter().zip(&present.tier_sets);
        let tier_changes = tier_pairs.map(|(tiers, present_tiers)| tiers::changes(tiers, present_tiers, limit));
        let value_changes = tier_changes.fold(pacing_changes, Changes::add);
        Changes { priority_inversions: self.priority_inversions(present, priorities), ..value_changes }
    }

    /// Returns the number of pairs of classes whose weights contradict their priorities, but do not in `present`. The
    /// weight of a class that is refused entirely has no effect.
    fn priority_inversions(&self, present: &Self, priorities: &[u8]) -> u32 {
        let pairs = (0..priorities.len()).flat_map(|low| (0..priorities.len()).map(move |high| (low, high)));
        let is_inverted = |candidate: &Self, low: usize, high: usize| {
            priorities[low] < priorities[high]
                && candidate.pacing.weights[low] > candidate.pacing.weights[high]
                && is_open(&candidate.tier_sets[high])
        };
        let new_inversions =
            pairs.filter(|&(low, high)| is_inverted(self, low, high) && !is_inverted(present, low, high));
        new_inversions.count() as u32
    }

    /// Returns a copy with other tiers for the class at `index`.
    pub(super) fn with_tiers(&self, index: usize, tiers: Vec<Tier>) -> Self {
        let mut tier_sets = self.tier_sets.clone();
        tier_sets[index] = tiers;
        Self::new(tier_sets, self.pacing.clone())
    }

    /// Returns a copy with other pacing.
    pub(super) fn with_pacing(&self, pacing: PacingChoice) -> Self {
        Self::new(self.tier_sets.clone(), pacing)
    }
}

/// Returns true unless the tiers refuse all requests from the first unit.
fn is_open(tiers: &[Tier]) -> bool {
    !tiers.iter().any(|tier| tier.shed_share == Share::ALL && tier.threshold.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::tiers;
    use tidegate_policy::pacing::PacingMode;

    #[test]
    fn weights_following_priorities_count_as_smaller_change() {
        let limit = Units::from_whole(100);
        let paced = |weights: [u32; 2]| {
            let pacing = PacingChoice { mode: Some(PacingMode::Learned), weights: weights.to_vec() };
            Candidate::new(vec![tiers::minimal(limit); 2], pacing)
        };
        let changes = |candidate: &Candidate, present: &Candidate| candidate.changes(present, &[1, 2], limit);
        let baseline = paced([1, 1]);
        let [inverted, ordered] = [paced([2, 1]), paced([1, 8])].map(|candidate| changes(&candidate, &baseline));
        assert!(ordered < inverted, "{ordered:?} {inverted:?}");
        assert_eq!(changes(&paced([4, 1]), &paced([2, 1])).priority_inversions, 0, "it is in the file already");
    }
}
