//! Stored responses of the simulated cache: their times and sizes, without bodies, in bounded memory.

use super::page_hash::PageHash;
use foldhash::fast::FixedState;
use std::collections::{HashMap, VecDeque};
use tidegate_http_cache::ReuseTerms;
use tidegate_policy::Timestamp;

/// Stored responses, bounded by their bytes and by their number.
///
/// Displaces like the gateway's store on disk: the oldest first, with a second chance for those that were used since.
pub(super) struct ResponseStore {
    entries: HashMap<PageHash, Entry, FixedState>,
    /// Pages of all entries, oldest first.
    order: VecDeque<PageHash>,
    /// Bytes that the responses occupy in a gateway.
    bytes: u64,
    /// Bytes that they may occupy.
    capacity: u64,
    evictions: u64,
}

/// A stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredCopy {
    /// Time at which the origin generated it.
    pub(super) generated_at: Timestamp,
    /// Freshness lifetime, in seconds.
    pub(super) lifetime_s: u32,
    /// Bytes of its body.
    pub(super) body_bytes: u32,
    /// A write has invalidated the response.
    pub(super) is_invalidated: bool,
}

/// A page of the store. Stays in its place when its response is replaced or removed, so that each page has one place.
struct Entry {
    copy: StoredCopy,
    /// The response was used since it got its place.
    is_used: bool,
    /// The response was removed.
    is_removed: bool,
}

/// Contents of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StoreUsage {
    /// Number of responses.
    pub(super) entries: u64,
    /// Bytes that they occupy in a gateway.
    pub(super) bytes: u64,
    /// Number of responses that were displaced.
    pub(super) evictions: u64,
}

impl StoredCopy {
    /// Returns the terms of its reuse.
    pub(super) fn terms(self) -> ReuseTerms {
        let is_invalidated = self.is_invalidated;
        ReuseTerms { is_invalidated, ..ReuseTerms::of_lifetime(self.generated_at, self.lifetime_s) }
    }

    /// Returns the bytes that the response occupies in a gateway.
    fn weight(self) -> u64 {
        OVERHEAD + u64::from(self.body_bytes)
    }
}

impl ResponseStore {
    /// Creates a store for `capacity` bytes.
    pub(super) fn new(capacity: u64) -> Self {
        let (entries, order) = (HashMap::with_hasher(FixedState::default()), VecDeque::new());
        Self { entries, order, bytes: 0, capacity, evictions: 0 }
    }

    /// Returns the response of a page.
    pub(super) fn get(&self, page: PageHash) -> Option<StoredCopy> {
        self.entries.get(&page).filter(|entry| !entry.is_removed).map(|entry| entry.copy)
    }

    /// Records that the response of a page was used.
    pub(super) fn record_use(&mut self, page: PageHash) {
        if let Some(entry) = self.entries.get_mut(&page) {
            entry.is_used = true;
        }
    }

    /// Stores a response in place of that of the page.
    pub(super) fn insert(&mut self, page: PageHash, copy: StoredCopy) {
        self.remove(page);
        self.bytes += copy.weight();
        let is_new = self.entries.insert(page, Entry { copy, is_used: false, is_removed: false }).is_none();
        if is_new {
            self.order.push_back(page);
        } else {
            // It was requested again since it got its place.
            self.record_use(page);
        }
        while self.bytes > self.capacity || self.entries.len() > MAX_ENTRIES {
            self.displace_oldest();
        }
    }

    /// Removes the response of a page.
    pub(super) fn remove(&mut self, page: PageHash) {
        if let Some(entry) = self.entries.get_mut(&page).filter(|entry| !entry.is_removed) {
            entry.is_removed = true;
            self.bytes -= entry.copy.weight();
        }
    }

    /// Makes the response of a page stale: a write has invalidated it.
    pub(super) fn invalidate(&mut self, page: PageHash) {
        if let Some(entry) = self.entries.get_mut(&page) {
            entry.copy.is_invalidated = true;
        }
    }

    /// Removes all responses.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
        self.bytes = 0;
    }

    /// Returns what the store contains.
    pub(super) fn usage(&self) -> StoreUsage {
        let entries = self.entries.values().filter(|entry| !entry.is_removed).count() as u64;
        StoreUsage { entries, bytes: self.bytes, evictions: self.evictions }
    }

    /// Removes the oldest response, or moves it to the newest place if it was used.
    fn displace_oldest(&mut self) {
        let Some(page) = self.order.pop_front() else { return };
        let entry = self.entries.get_mut(&page).expect("each page in order has an entry");
        if entry.is_used && !entry.is_removed {
            entry.is_used = false;
            self.order.push_back(page);
            return;
        }
        if !entry.is_removed {
            self.bytes -= entry.copy.weight();
            self.evictions += 1;
        }
        self.entries.remove(&page);
    }
}

/// Bytes of a response in a gateway besides its body: head, URL, and its place in the index.
const OVERHEAD: u64 = 600;

/// As many as a hash map of 2^21 buckets cleans up in place: 78 MiB with the order, 110 MiB while the map grows.
const MAX_ENTRIES: usize = 7 << 17;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BODY: u32 = 1000;

    fn page(number: u64) -> PageHash {
        PageHash::new("example.com", &number.to_string(), None)
    }

    fn copy(second: u64) -> StoredCopy {
        StoredCopy {
            generated_at: Timestamp::from_seconds(second),
            lifetime_s: 60,
            body_bytes: BODY,
            is_invalidated: false,
        }
    }

    fn store_of(responses: u64) -> ResponseStore {
        ResponseStore::new(responses * copy(0).weight())
    }

    #[test]
    fn used_responses_outlive_older_and_newer_ones() {
        let mut store = store_of(3);
        (0..3).for_each(|number| store.insert(page(number), copy(number)));
        store.record_use(page(0));
        store.insert(page(3), copy(3));
        let kept: Vec<u64> = (0..4).filter(|number| store.get(page(*number)).is_some()).collect();
        assert_eq!((kept, store.usage().evictions), (vec![0, 2, 3], 1));
        // The second chance is used up.
        (4..7).for_each(|number| store.insert(page(number), copy(number)));
        assert_eq!(store.get(page(0)), None);
    }

    #[test]
    fn removed_responses_occupy_nothing_and_can_be_stored_again() {
        let mut store = store_of(2);
        store.insert(page(0), copy(0));
        store.remove(page(0));
        store.remove(page(0));
        assert_eq!((store.get(page(0)), store.usage()), (None, StoreUsage::default()));
        store.insert(page(0), copy(9));
        assert_eq!((store.get(page(0)), store.usage().entries), (Some(copy(9)), 1));
    }

    #[test]
    fn a_response_larger_than_the_store_is_not_kept() {
        let mut store = ResponseStore::new(10);
        store.insert(page(0), copy(0));
        store.insert(page(0), copy(1));
        assert_eq!((store.get(page(0)), store.usage().bytes), (None, 0));
    }

    proptest! {
        /// Neither bytes nor places exceed their bounds, and the bytes are those of the responses that are found.
        #[test]
        fn contents_stay_within_their_bounds(
            steps in proptest::collection::vec((0_u64..20, 0_u8..4, 0_u32..3000), 1..400),
            capacity in 0_u64..20_000,
        ) {
            let mut store = ResponseStore::new(capacity);
            for (second, (number, step, body_bytes)) in steps.into_iter().enumerate() {
                match step {
                    0 => store.remove(page(number)),
                    1 => store.record_use(page(number)),
                    _ => store.insert(page(number), StoredCopy { body_bytes, ..copy(second as u64) }),
                }
                let found: Vec<StoredCopy> = (0..20).filter_map(|number| store.get(page(number))).collect();
                let bytes: u64 = found.iter().map(|copy| copy.weight()).sum();
                prop_assert!(bytes <= capacity);
                prop_assert_eq!((bytes, found.len() as u64), (store.usage().bytes, store.usage().entries));
                prop_assert_eq!(store.order.len(), store.entries.len());
            }
        }
    }
}
