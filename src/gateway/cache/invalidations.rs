//! URLs whose responses a write invalidated. A response that was requested before the write is not stored after it.
//! Responses that are also keyed by request fields, or by another spelling of the URL, are not found by the URL alone, so
//! each use of one compares the times.

use super::key::CacheKey;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::hash::BuildHasher;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use tidegate_policy::Timestamp;

/// Number of tables, each with a hash of its own.
const TABLES: usize = 2;
/// Number of slots of a table: half a MiB each.
const SLOTS: usize = 64 * 1024;

/// Times of the last writes, in a count-min sketch: a write sets one slot of each table, and a response counts as
/// invalidated if all its slots were set since it was requested. Other URLs share a slot, so that a few responses are
/// fetched again without need: about 5 % of them after 16,384 writes to URLs of their own, which no client can choose.
#[derive(Default)]
pub(in crate::gateway) struct Invalidations {
    /// Absent before the first write.
    tables: OnceLock<[WriteTimes; TABLES]>,
    /// Time of the last write, in nanoseconds. Responses requested since are not searched for.
    latest: AtomicU64,
    /// Time of the last removal by an administrator, which may have been of any URL, in nanoseconds.
    purged: AtomicU64,
    /// Number of writes that invalidated responses, and of those that exceeded the rate of their client.
    counts: [AtomicU64; 2],
    /// Where writes are sent, once another process has the stored responses.
    successor: Mutex<Option<Sender<WrittenUrl>>>,
}

/// Key of a URL that was written to, for another process of this gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenUrl(pub [u8; 16]);

/// Time of the last write by the hash of the URL, in nanoseconds.
struct WriteTimes {
    hash: RandomState,
    slots: Box<[AtomicU64]>,
}

impl Invalidations {
    /// Records a write to the URL with this key.
    pub(in crate::gateway) fn record(&self, url: CacheKey, now: Timestamp) {
        for table in self.tables.get_or_init(|| std::array::from_fn(|_| WriteTimes::new())) {
            table.slot(url).fetch_max(now.0, Ordering::Release);
        }
        self.latest.fetch_max(now.0, Ordering::Release);
        if let Some(successor) = &*self.successor.lock() {
            // Fails if the other process has ended.
            let _ = successor.send(WrittenUrl(url.to_bytes()));
        }
    }

    /// Counts a write, by whether it is within the rate of its client.
    pub(super) fn count(&self, is_within_rate: bool) {
        self.counts[usize::from(!is_within_rate)].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of writes that invalidated responses, and of those that exceeded the rate of their client.
    pub(in crate::gateway) fn counts(&self) -> [u64; 2] {
        self.counts.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Returns the writes from now on.
    pub(in crate::gateway) fn follow(&self) -> Receiver<WrittenUrl> {
        let (sender, receiver) = channel();
        *self.successor.lock() = Some(sender);
        receiver
    }

    /// Ends what [`Self::follow`] has begun.
    pub(in crate::gateway) fn end_follow(&self) {
        self.successor.lock().take();
    }

    /// Records a removal by an administrator.
    pub(in crate::gateway) fn record_purge(&self, now: Timestamp) {
        self.purged.fetch_max(now.0, Ordering::Release);
    }

    /// Returns true if a response of the URL that was requested at `requested_at` must not be stored any more.
    pub(super) fn forbids_storage(&self, url: CacheKey, requested_at: Timestamp) -> bool {
        requested_at.0 < self.purged.load(Ordering::Acquire) || self.includes(|| url, requested_at)
    }

    /// Returns true if a response that was requested at `requested_at` was invalidated, or may have been. `url` returns the
    /// key of its URL.
    pub(in crate::gateway) fn includes(&self, url: impl FnOnce() -> CacheKey, requested_at: Timestamp) -> bool {
        if requested_at.0 >= self.latest.load(Ordering::Acquire) {
            return false;
        }
        let url = url();
        let is_later = |table: &WriteTimes| requested_at.0 < table.slot(url).load(Ordering::Acquire);
        self.tables.get().is_some_and(|tables| tables.iter().all(is_later))
    }
}

impl WriteTimes {
    fn new() -> Self {
        Self { hash: RandomState::default(), slots: (0..SLOTS).map(|_| AtomicU64::default()).collect() }
    }

    fn slot(&self, url: CacheKey) -> &AtomicU64 {
        &self.slots[self.hash.hash_one(url) as usize % SLOTS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_to_many_urls_leave_the_responses_of_others() {
        let at = Timestamp::from_seconds;
        let key = |name: &str, number: usize| CacheKey::of_url(&format!("http://example.com/{name}/{number}"));
        let invalidations = Invalidations::default();
        assert!(!invalidations.includes(|| key("page", 0), at(1)));
        invalidations.record(key("page", 0), at(10));
        let is_invalidated = |number, second| invalidations.includes(|| key("page", number), at(second));
        assert!(is_invalidated(0, 9) && !is_invalidated(0, 10) && !is_invalidated(1, 9));
        (0..16 * 1024).for_each(|number| invalidations.record(key("form", number), at(20)));
        assert!((0..16 * 1024).all(|number| invalidations.includes(|| key("form", number), at(19))));
        assert!(is_invalidated(0, 9), "a later write to another URL changes nothing");
        let others = (1..=10_000).filter(|number| is_invalidated(*number, 19)).count();
        assert!(others < 1000, "{others} of 10,000 other pages count as written to");
        assert!((1..=10_000).all(|number| !is_invalidated(number, 20)));
    }

    #[test]
    fn purge_forbids_to_store_what_was_requested_before() {
        let (at, url) = (Timestamp::from_seconds, CacheKey::of_url("http://example.com/"));
        let invalidations = Invalidations::default();
        invalidations.record_purge(at(10));
        assert!(invalidations.forbids_storage(url, at(9)) && !invalidations.forbids_storage(url, at(10)));
        assert!(!invalidations.includes(|| url, at(9)), "what is stored was removed by the purge itself");
    }
}
