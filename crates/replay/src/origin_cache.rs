//! Model of the origin's own page cache, which makes requests free.

use super::page_hash::PageHash;
use super::request::ReplayRequest;
use http::Method;
use std::time::Duration;
use tidegate_policy::Timestamp;

/// Times at which pages were last fetched, in a table of fixed size.
///
/// Each page has one slot. A page that takes the slot of another evicts it; the evicted page costs once more.
pub(super) struct OriginCache {
    ttl: Duration,
    slots: Box<[(u64, u32)]>,
}

impl OriginCache {
    pub(super) fn new(ttl: Duration) -> Self {
        Self { ttl, slots: vec![(0, 0); SLOTS].into() }
    }

    /// Returns the requested page; `None` if the method is not cacheable.
    pub(super) fn page(&self, request: &ReplayRequest<'_>) -> Option<PageHash> {
        let is_cacheable = matches!(*request.method, Method::GET | Method::HEAD);
        is_cacheable.then(|| PageHash::new(request.host, &request.path, request.query))
    }

    /// Returns true if the page is cached and fresh.
    pub(super) fn is_fresh(&self, page: PageHash, now: Timestamp) -> bool {
        let (stored, fetched) = self.slots[slot(page)];
        stored == tag(page) && now.saturating_duration_since(Timestamp::from_seconds(fetched.into())) < self.ttl
    }

    /// Stores a fetched page.
    pub(super) fn insert(&mut self, page: PageHash, now: Timestamp) {
        self.slots[slot(page)] = (tag(page), u32::try_from(now.seconds()).unwrap_or(u32::MAX));
    }
}

/// Returns the number of the page in its slot. Never zero, which marks an empty slot.
fn tag(page: PageHash) -> u64 {
    page.number() | 1
}

fn slot(page: PageHash) -> usize {
    (page.number() >> 32) as usize % SLOTS
}

/// A power of two. 16 MiB: more pages than most sites have.
const SLOTS: usize = 1 << 20;
