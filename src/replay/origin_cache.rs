//! The site's own cache of pages, as far as it matters for what a request costs.

use super::request::ReplayRequest;
use crate::policy::Timestamp;
use foldhash::fast::FixedState;
use http::Method;
use std::hash::BuildHasher;
use std::time::Duration;

/// When pages were last fetched.
///
/// Each page has one place, and the last to want it has it: what is forgotten costs once more. Nothing grows.
pub(super) struct OriginCache {
    ttl: Duration,
    places: Box<[(u64, u32)]>,
}

/// A page, by a hash of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageNumber(u64);

impl OriginCache {
    pub(super) fn new(ttl: Duration) -> Self {
        Self { ttl, places: vec![(0, 0); SLOTS].into() }
    }

    /// The page that a request asks for; nothing where no cache would keep it.
    pub(super) fn page(&self, request: &ReplayRequest<'_>) -> Option<PageNumber> {
        let kept = matches!(*request.method, Method::GET | Method::HEAD);
        // Never zero, which marks an empty place.
        kept.then(|| PageNumber(FixedState::default().hash_one((request.host, &*request.path, request.query)) | 1))
    }

    /// True where the page need not be fetched again.
    pub(super) fn is_fresh(&self, page: PageNumber, now: Timestamp) -> bool {
        let (known, fetched) = self.places[slot(page)];
        known == page.0 && now.saturating_duration_since(Timestamp::from_seconds(fetched.into())) < self.ttl
    }

    /// Keeps a page that was fetched.
    pub(super) fn insert(&mut self, page: PageNumber, now: Timestamp) {
        self.places[slot(page)] = (page.0, u32::try_from(now.seconds()).unwrap_or(u32::MAX));
    }
}

fn slot(page: PageNumber) -> usize {
    (page.0 >> 32) as usize % SLOTS
}

/// A power of two: 16 MiB, for more pages than most sites have.
const SLOTS: usize = 1 << 20;
