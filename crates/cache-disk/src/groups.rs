//! Groups that may have records, so that the removal of a group without any writes nothing.

use foldhash::fast::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of bits: a MiB in all. With a million records, one group in nine without any counts as one that has some.
const BITS: usize = 8 << 20;

/// Set of the groups that had records since the start; others may count as members.
pub(crate) struct Groups {
    hash: RandomState,
    words: Box<[AtomicU64]>,
}

impl Groups {
    pub(crate) fn new() -> Self {
        Self { hash: RandomState::default(), words: (0..BITS / 64).map(|_| AtomicU64::default()).collect() }
    }

    pub(crate) fn insert(&self, group: u64) {
        let (word, mask) = self.bit(group);
        word.fetch_or(mask, Ordering::AcqRel);
    }

    /// Returns false if the group has no records.
    pub(crate) fn may_contain(&self, group: u64) -> bool {
        let (word, mask) = self.bit(group);
        word.load(Ordering::Acquire) & mask != 0
    }

    fn bit(&self, group: u64) -> (&AtomicU64, u64) {
        let bit = self.hash.hash_one(group) as usize % BITS;
        (&self.words[bit / 64], 1 << (bit % 64))
    }
}
