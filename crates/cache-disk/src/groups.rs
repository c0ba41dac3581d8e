//! Groups that may have members, so that the invalidation of a group without any does nothing.

use foldhash::fast::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of bits: a MiB in all. With a million records, one group in nine without any counts as one that has some.
const BITS: usize = 8 << 20;

/// Set of the groups that had members since the start; others may count as having some.
pub struct Groups {
    hash: RandomState,
    words: Box<[AtomicU64]>,
}

impl Default for Groups {
    fn default() -> Self {
        Self { hash: RandomState::default(), words: (0..BITS / 64).map(|_| AtomicU64::default()).collect() }
    }
}

impl Groups {
    /// Adds a group.
    pub fn insert(&self, group: u64) {
        let (word, mask) = self.bit(group);
        word.fetch_or(mask, Ordering::AcqRel);
    }

    /// Returns false if the group has no members.
    pub fn may_contain(&self, group: u64) -> bool {
        let (word, mask) = self.bit(group);
        word.load(Ordering::Acquire) & mask != 0
    }

    fn bit(&self, group: u64) -> (&AtomicU64, u64) {
        let bit = self.hash.hash_one(group) as usize % BITS;
        (&self.words[bit / 64], 1 << (bit % 64))
    }
}
