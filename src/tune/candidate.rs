//! A policy that may be tried: what of the file has which values.

use super::pacing::PacingChoice;
use super::tiers;
use crate::policy::Units;
use crate::policy::tier::{Share, Tier};

/// The values of everything that may be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The tiers of each class that is tuned.
    pub(super) ladders: Vec<Vec<Tier>>,
    /// How the quota is paced.
    pub(super) pace: PacingChoice,
}

/// How much a draft differs from another: first in what nobody would expect, then in how many values, then by how far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Changes {
    /// So many pairs of classes have weights against the order of their priorities, and had none before.
    pub(super) priority_inversions: u32,
    pub(super) values: u32,
    /// In millionths: of the limit where a tier begins, of all requests where it sheds.
    pub(super) distance: u64,
}

impl Candidate {
    pub(super) fn new(ladders: Vec<Vec<Tier>>, pace: PacingChoice) -> Self {
        let open: Vec<bool> = ladders.iter().map(|tiers| is_open(tiers)).collect();
        Self { ladders, pace: pace.normalized(&open) }
    }

    /// How much of it differs from `present`; the classes have these `priorities`.
    pub(super) fn changes(&self, present: &Self, priorities: &[u8], limit: Units) -> Changes {
        let ladders = self.ladders.iter().zip(&present.ladders);
        let pace = self.pace.changes(&present.pace);
        let pace = Changes { priority_inversions: self.disorder(present, priorities), ..pace };
        ladders.fold(pace, |sum, (ladder, present)| sum.add(tiers::changes(ladder, present, limit)))
    }

    /// How many pairs of paced classes have weights against the order of their priorities, and do not in `present`.
    fn disorder(&self, present: &Self, priorities: &[u8]) -> u32 {
        let pairs = (0..priorities.len()).flat_map(|low| (0..priorities.len()).map(move |high| (low, high)));
        let is_against = |draft: &Self, low: usize, high: usize| {
            priorities[low] < priorities[high]
                && draft.pace.weights[low] > draft.pace.weights[high]
                && is_open(&draft.ladders[high])
        };
        let new = pairs.filter(|&(low, high)| is_against(self, low, high) && !is_against(present, low, high));
        new.count() as u32
    }

    /// The same with another ladder for the class at `place`.
    pub(super) fn with_ladder(&self, place: usize, ladder: Vec<Tier>) -> Self {
        let mut ladders = self.ladders.clone();
        ladders[place] = ladder;
        Self::new(ladders, self.pace.clone())
    }

    /// The same, paced otherwise.
    pub(super) fn with_pace(&self, pace: PacingChoice) -> Self {
        Self::new(self.ladders.clone(), pace)
    }
}

/// True where a class gets anything.
fn is_open(tiers: &[Tier]) -> bool {
    !tiers.iter().any(|tier| tier.shed == Share::ALL && tier.above.is_zero())
}

impl Changes {
    pub(super) fn add(self, other: Self) -> Self {
        Self {
            priority_inversions: self.priority_inversions + other.priority_inversions,
            values: self.values + other.values,
            distance: self.distance + other.distance,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::pacing::PacingMode;
    use crate::tune::tiers;

    #[test]
    fn of_equal_drafts_the_one_whose_weights_follow_priorities_is_nearer_to_the_file() {
        let limit = Units::from_whole(100);
        let paced = |weights: [u32; 2]| {
            let pace = PacingChoice { forecast: Some(PacingMode::Learned), weights: weights.to_vec() };
            Candidate::new(vec![tiers::open(limit); 2], pace)
        };
        let changes = |draft: &Candidate, present: &Candidate| draft.changes(present, &[1, 2], limit);
        let plain = paced([1, 1]);
        let [against, along] = [paced([2, 1]), paced([1, 8])].map(|draft| changes(&draft, &plain));
        assert!(along < against, "{along:?} {against:?}");
        assert_eq!(changes(&paced([4, 1]), &paced([2, 1])).priority_inversions, 0, "somebody wants it so");
    }
}
