//! URLs whose responses a write invalidated. A response that was requested before the write is not stored after it.
//! Responses that are also keyed by request fields are not found by the URL alone, so each use of one compares the times.

use super::key::CacheKey;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_policy::Timestamp;

/// Most URLs that are remembered.
const MAX_URLS: usize = 16 * 1024;

/// Times of the last writes.
#[derive(Default)]
pub(in crate::gateway) struct Invalidations {
    writes: Mutex<Writes>,
    /// Time of the last write, in nanoseconds. Responses requested since are not searched for.
    latest: AtomicU64,
}

#[derive(Default)]
struct Writes {
    by_url: HashMap<CacheKey, Timestamp>,
    /// Oldest first; a URL may occur several times.
    order: VecDeque<(CacheKey, Timestamp)>,
    /// Time of the last write that was forgotten. Older responses count as invalidated.
    forgotten: Timestamp,
    /// Time of the last removal by an administrator, which may have been of any URL.
    purged: Timestamp,
}

impl Invalidations {
    /// Records a write to the URL with this key.
    pub(in crate::gateway) fn record(&self, url: CacheKey, now: Timestamp) {
        let mut writes = self.writes.lock();
        self.latest.fetch_max(now.0, Ordering::Release);
        writes.by_url.insert(url, now);
        writes.order.push_back((url, now));
        if writes.order.len() > MAX_URLS
            && let Some((oldest, at)) = writes.order.pop_front()
        {
            writes.forgotten = writes.forgotten.max(at);
            if writes.by_url.get(&oldest) == Some(&at) {
                writes.by_url.remove(&oldest);
            }
        }
    }

    /// Records a removal by an administrator.
    pub(in crate::gateway) fn record_purge(&self, now: Timestamp) {
        let mut writes = self.writes.lock();
        writes.purged = writes.purged.max(now);
    }

    /// Returns true if a response of the URL that was requested at `requested_at` must not be stored any more.
    pub(super) fn forbids_storage(&self, url: CacheKey, requested_at: Timestamp) -> bool {
        requested_at < self.writes.lock().purged || self.includes(|| url, requested_at)
    }

    /// Returns true if a response that was requested at `requested_at` was invalidated. `url` returns the key of its URL.
    pub(in crate::gateway) fn includes(&self, url: impl FnOnce() -> CacheKey, requested_at: Timestamp) -> bool {
        if requested_at.0 >= self.latest.load(Ordering::Acquire) {
            return false;
        }
        let writes = self.writes.lock();
        requested_at < writes.forgotten || writes.by_url.get(&url()).is_some_and(|at| requested_at < *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgotten_writes_count_for_all_older_responses() {
        let at = Timestamp::from_seconds;
        let key = |number: usize| CacheKey::of_url(&number.to_string());
        let invalidations = Invalidations::default();
        assert!(!invalidations.includes(|| key(0), at(1)));
        invalidations.record(key(0), at(10));
        assert!(invalidations.includes(|| key(0), at(9)) && !invalidations.includes(|| key(0), at(10)));
        assert!(!invalidations.includes(|| key(1), at(9)));
        (1..=MAX_URLS).for_each(|number| invalidations.record(key(number), at(20)));
        assert!(invalidations.includes(|| key(0), at(9)) && invalidations.includes(|| key(MAX_URLS + 1), at(9)));
        assert!(!invalidations.includes(|| key(MAX_URLS + 1), at(10)), "requested after the forgotten write");
        assert!(invalidations.writes.lock().by_url.len() <= MAX_URLS);
    }
}
