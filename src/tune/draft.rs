//! A policy that may be tried: what of the file has which values.

use super::ladder;
use super::pace::Pace;
use crate::policy::Units;
use crate::policy::tier::{Share, Tier};

/// The values of everything that may be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The tiers of each class that is tuned.
    pub(super) ladders: Vec<Vec<Tier>>,
    /// How the quota is paced.
    pub(super) pace: Pace,
}

/// How much a draft differs from another: first in how many values, then by how far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Changes {
    pub(super) values: u32,
    /// In millionths: of the limit where a tier begins, of all requests where it sheds.
    pub(super) distance: u64,
}

impl Draft {
    pub(super) fn new(ladders: Vec<Vec<Tier>>, pace: Pace) -> Self {
        let is_open = |tiers: &Vec<Tier>| !tiers.iter().any(|tier| tier.shed == Share::ALL && tier.above.is_zero());
        let open: Vec<bool> = ladders.iter().map(is_open).collect();
        Self { ladders, pace: pace.with_meaning(&open) }
    }

    /// How much of it differs from `present`.
    pub(super) fn changes(&self, present: &Self, limit: Units) -> Changes {
        let ladders = self.ladders.iter().zip(&present.ladders);
        let pace = self.pace.changes(&present.pace);
        ladders.fold(pace, |sum, (ladder, present)| sum.and(ladder::changes(ladder, present, limit)))
    }

    /// The same with another ladder for the class at `place`.
    pub(super) fn with_ladder(&self, place: usize, ladder: Vec<Tier>) -> Self {
        let mut ladders = self.ladders.clone();
        ladders[place] = ladder;
        Self::new(ladders, self.pace.clone())
    }

    /// The same, paced otherwise.
    pub(super) fn with_pace(&self, pace: Pace) -> Self {
        Self::new(self.ladders.clone(), pace)
    }
}

impl Changes {
    pub(super) fn and(self, other: Self) -> Self {
        Self { values: self.values + other.values, distance: self.distance + other.distance }
    }
}
