//! Identity of a page, in few bytes.

use foldhash::fast::FixedState;
use std::hash::BuildHasher;

/// Hash of host, path and query of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PageHash(u64);

impl PageHash {
    pub(super) fn new(host: &str, path: &str, query: Option<&str>) -> Self {
        Self(FixedState::default().hash_one((host, path, query)))
    }

    /// Returns the hash of the page as one of several origins has it.
    pub(super) fn of_origin(self, origin: &str) -> Self {
        Self(FixedState::default().hash_one((self.0, origin)))
    }

    /// Returns the hash as a number.
    pub(super) fn number(self) -> u64 {
        self.0
    }
}
