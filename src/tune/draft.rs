//! A policy that may be tried: what of the file has which values.

use super::ladder;
use crate::policy::Units;
use crate::policy::tier::Tier;

/// The values of everything that may be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The tiers of each class that is tuned.
    pub(super) ladders: Vec<Vec<Tier>>,
}

/// How much a draft differs from another: first in how many values, then by how far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Changes {
    pub(super) values: u32,
    /// In millionths: of the limit where a tier begins, of all requests where it sheds.
    pub(super) distance: u64,
}

impl Draft {
    /// How much of it differs from `present`.
    pub(super) fn changes(&self, present: &Self, limit: Units) -> Changes {
        let ladders = self.ladders.iter().zip(&present.ladders);
        ladders.fold(Changes::default(), |sum, (ladder, present)| sum.and(ladder::changes(ladder, present, limit)))
    }

    /// The same with another ladder for the class at `place`.
    pub(super) fn with_ladder(&self, place: usize, ladder: Vec<Tier>) -> Self {
        let mut draft = self.clone();
        draft.ladders[place] = ladder;
        draft
    }
}

impl Changes {
    pub(super) fn and(self, other: Self) -> Self {
        Self { values: self.values + other.values, distance: self.distance + other.distance }
    }
}
