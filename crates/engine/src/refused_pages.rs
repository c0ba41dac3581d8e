//! Times since which pages have been refused to crawlers. [`tidegate_policy::crawler_guard`] limits these times.
//!
//! A page is stored as a hash of 16 bytes. The table is slightly less than half full at worst: at most 36 bytes per
//! page. A full table stores no new pages: the pages that were refused first become overdue first.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tidegate_policy::{Classification, OperatorId, RequestFacts, Timestamp};

/// Maximum number of pages: twice the daily requests of a search engine on the largest site observed.
const MAX_PAGES: usize = 100_000;

/// Time without requests after which a page is evicted. Its next request counts as the first.
const PAGE_IDLE_TIMEOUT: Duration = Duration::from_secs(7 * 86_400);

/// A page as requested by the crawlers of one operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CrawledPage<'a> {
    /// Operator of the crawlers.
    pub operator: OperatorId,
    /// Requested host.
    pub host: &'a str,
    /// Normalized path, as matched by rules.
    pub path: &'a str,
    /// Query string, if any.
    pub query: Option<&'a str>,
}

impl<'a> CrawledPage<'a> {
    /// Returns the page that a verified crawler requests, or `None` for any other client.
    pub(super) fn new(classified: &Classification, request: &RequestFacts<'a>) -> Option<Self> {
        let RequestFacts { host, path, query, .. } = *request;
        classified.operator.map(|operator| Self { operator, host, path, query })
    }
}

/// Pages that are currently refused.
#[derive(Default)]
pub(super) struct RefusedPages {
    hasher: foldhash::fast::RandomState,
    pages: Mutex<HashMap<u64, RefusalTimes, foldhash::fast::RandomState>>,
    /// Number of pages, readable without the lock.
    count: AtomicUsize,
}

/// Times of the first and last refusal of a page.
#[derive(Clone, Copy, Debug)]
struct RefusalTimes {
    operator: OperatorId,
    first_s: u32,
    last_s: u32,
}

impl RefusedPages {
    /// Returns the time since the first refusal of a page, or `None` if it is not refused.
    pub(super) fn refused_duration(&self, page: &CrawledPage<'_>, now: Timestamp) -> Option<Duration> {
        if self.is_empty() {
            return None;
        }
        let times = self.pages.lock().get(&self.hash(page)).copied()?;
        Some(Duration::from_secs(seconds(now).saturating_sub(times.first_s).into()))
    }

    /// Records the refusal of a page.
    pub(super) fn record_refusal(&self, page: &CrawledPage<'_>, now: Timestamp) {
        let (hash, now_s) = (self.hash(page), seconds(now));
        let mut pages = self.pages.lock();
        let has_room = pages.len() < MAX_PAGES;
        match pages.get_mut(&hash) {
            Some(times) => times.last_s = times.last_s.max(now_s),
            None if has_room => {
                pages.insert(hash, RefusalTimes { operator: page.operator, first_s: now_s, last_s: now_s });
            }
            None => {}
        }
        self.count.store(pages.len(), Ordering::Relaxed);
    }

    /// Records the admission of a page.
    pub(super) fn record_admit(&self, page: &CrawledPage<'_>) {
        if self.is_empty() {
            return;
        }
        let mut pages = self.pages.lock();
        pages.remove(&self.hash(page));
        self.count.store(pages.len(), Ordering::Relaxed);
    }

    /// Evicts the pages that are no longer requested.
    pub(super) fn evict_idle(&self, now: Timestamp) {
        let oldest_s = seconds(now - PAGE_IDLE_TIMEOUT);
        let mut pages = self.pages.lock();
        pages.retain(|_, times| times.last_s >= oldest_s);
        self.count.store(pages.len(), Ordering::Relaxed);
    }

    /// Returns the longest refusal of a page for each operator, ordered by operator.
    pub(super) fn longest_by_operator(&self) -> Vec<(OperatorId, Duration)> {
        let mut longest: Vec<(OperatorId, Duration)> = Vec::new();
        for times in self.pages.lock().values() {
            let duration = Duration::from_secs((times.last_s - times.first_s).into());
            match longest.iter_mut().find(|(operator, _)| *operator == times.operator) {
                Some((_, max)) => *max = duration.max(*max),
                None => longest.push((times.operator, duration)),
            }
        }
        longest.sort_unstable();
        longest
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    fn hash(&self, page: &CrawledPage<'_>) -> u64 {
        self.hasher.hash_one(page)
    }
}

fn seconds(time: Timestamp) -> u32 {
    u32::try_from(time.seconds()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOGLE: OperatorId = OperatorId(0);
    const BING: OperatorId = OperatorId(1);

    fn page(operator: OperatorId, path: &str) -> CrawledPage<'_> {
        CrawledPage { operator, host: "example.com", path, query: None }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_seconds(1_000_000 + seconds)
    }

    #[test]
    fn refusal_time_runs_from_first_refusal_to_admission() {
        let pages = RefusedPages::default();
        assert_eq!(pages.refused_duration(&page(GOOGLE, "/a"), at(0)), None);
        pages.record_refusal(&page(GOOGLE, "/a"), at(0));
        pages.record_refusal(&page(GOOGLE, "/a"), at(50));
        assert_eq!(pages.refused_duration(&page(GOOGLE, "/a"), at(60)), Some(Duration::from_secs(60)));
        assert_eq!(pages.refused_duration(&page(BING, "/a"), at(60)), None, "each operator has its own pages");
        pages.record_admit(&page(GOOGLE, "/a"));
        assert_eq!(pages.refused_duration(&page(GOOGLE, "/a"), at(60)), None);
    }

    #[test]
    fn longest_refusal_is_reported_per_operator() {
        let pages = RefusedPages::default();
        for (operator, path, seconds) in
            [(BING, "/a", 0), (GOOGLE, "/a", 5), (GOOGLE, "/b", 0), (GOOGLE, "/b", 70), (GOOGLE, "/a", 10)]
        {
            pages.record_refusal(&page(operator, path), at(seconds));
        }
        assert_eq!(pages.longest_by_operator(), [(GOOGLE, Duration::from_secs(70)), (BING, Duration::ZERO)]);
    }

    #[test]
    fn stale_pages_are_evicted_and_count_is_bounded() {
        let pages = RefusedPages::default();
        for number in 0..MAX_PAGES + 10 {
            pages.record_refusal(&page(GOOGLE, &number.to_string()), at(0));
        }
        assert_eq!(pages.count.load(Ordering::Relaxed), MAX_PAGES);
        pages.record_refusal(&page(GOOGLE, "7"), at(600_000));
        pages.evict_idle(at(700_000));
        assert_eq!(pages.count.load(Ordering::Relaxed), 1);
        assert_eq!(pages.refused_duration(&page(GOOGLE, "7"), at(700_000)), Some(Duration::from_secs(700_000)));
    }
}
