//! Since when each page has been refused to a crawler: what [`crate::policy::crawler_guard`] keeps from going on for too long.
//!
//! A page is kept as a hash, 16 bytes in a table that is at worst a little less than half full: at most 36 bytes a page.
//! When there is no room, newcomers are not remembered: those that were refused first are the first in danger.

use crate::policy::{Classification, Facts, OperatorId, Timestamp};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Twice what the largest of the sites in view has a search engine ask for in a day.
const MAX_PAGES: usize = 100_000;

/// A page that nobody has asked for in this time is no longer in danger: its next request is the first again.
const ASKED_FOR_WITHIN: Duration = Duration::from_secs(7 * 86_400);

/// A page as one operator's crawlers know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CrawledPage<'a> {
    /// Whose crawlers.
    pub operator: OperatorId,
    /// The host asked for.
    pub host: &'a str,
    /// The path as rules see it.
    pub path: &'a str,
    /// The query.
    pub query: Option<&'a str>,
}

impl<'a> CrawledPage<'a> {
    /// The page that a request asks for, where it is a verified crawler's.
    pub(super) fn of(classified: &Classification, facts: &Facts<'a>) -> Option<Self> {
        let Facts { host, path, query, .. } = *facts;
        classified.operator.map(|operator| Self { operator, host, path, query })
    }
}

/// The pages that are being refused.
#[derive(Default)]
pub(super) struct RefusedPages {
    hasher: foldhash::fast::RandomState,
    pages: Mutex<HashMap<u64, RefusalTimes, foldhash::fast::RandomState>>,
    /// How many there are, for whoever need not wait to know.
    count: AtomicUsize,
}

/// When a page was refused.
#[derive(Clone, Copy, Debug)]
struct RefusalTimes {
    operator: OperatorId,
    first_s: u32,
    last_s: u32,
}

impl RefusedPages {
    /// Returns how long a page has been refused, if it has.
    pub(super) fn refused_duration(&self, page: &CrawledPage<'_>, now: Timestamp) -> Option<Duration> {
        if self.is_empty() {
            return None;
        }
        let refused = self.pages.lock().get(&self.hash(page)).copied()?;
        Some(Duration::from_secs(seconds(now).saturating_sub(refused.first_s).into()))
    }

    /// Notes that a page was refused.
    pub(super) fn record_refusal(&self, page: &CrawledPage<'_>, now: Timestamp) {
        let (hash, now_s) = (self.hash(page), seconds(now));
        let mut pages = self.pages.lock();
        let has_room = pages.len() < MAX_PAGES;
        match pages.get_mut(&hash) {
            Some(known) => known.last_s = known.last_s.max(now_s),
            None if has_room => {
                pages.insert(hash, RefusalTimes { operator: page.operator, first_s: now_s, last_s: now_s });
            }
            None => {}
        }
        self.count.store(pages.len(), Ordering::Relaxed);
    }

    /// Notes that a page was let through.
    pub(super) fn record_admit(&self, page: &CrawledPage<'_>) {
        if self.is_empty() {
            return;
        }
        let mut pages = self.pages.lock();
        pages.remove(&self.hash(page));
        self.count.store(pages.len(), Ordering::Relaxed);
    }

    /// Forgets the pages that nobody asks for any more.
    pub(super) fn evict_idle(&self, now: Timestamp) {
        let oldest_s = seconds(now - ASKED_FOR_WITHIN);
        let mut pages = self.pages.lock();
        pages.retain(|_, refused| refused.last_s >= oldest_s);
        self.count.store(pages.len(), Ordering::Relaxed);
    }

    /// Returns for how long the page that has been refused longest has been, operator by operator, in their order.
    pub(super) fn longest_by_operator(&self) -> Vec<(OperatorId, Duration)> {
        let mut longest: Vec<(OperatorId, Duration)> = Vec::new();
        for refused in self.pages.lock().values() {
            let span = Duration::from_secs((refused.last_s - refused.first_s).into());
            match longest.iter_mut().find(|(operator, _)| *operator == refused.operator) {
                Some((_, known)) => *known = span.max(*known),
                None => longest.push((refused.operator, span)),
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

fn seconds(moment: Timestamp) -> u32 {
    u32::try_from(moment.seconds()).unwrap_or(u32::MAX)
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
    fn a_page_is_refused_from_its_first_refusal_until_it_is_let_through() {
        let pages = RefusedPages::default();
        assert_eq!(pages.refused_duration(&page(GOOGLE, "/a"), at(0)), None);
        pages.record_refusal(&page(GOOGLE, "/a"), at(0));
        pages.record_refusal(&page(GOOGLE, "/a"), at(50));
        assert_eq!(pages.refused_duration(&page(GOOGLE, "/a"), at(60)), Some(Duration::from_secs(60)));
        assert_eq!(pages.refused_duration(&page(BING, "/a"), at(60)), None, "each crawler for itself");
        pages.record_admit(&page(GOOGLE, "/a"));
        assert_eq!(pages.refused_duration(&page(GOOGLE, "/a"), at(60)), None);
    }

    #[test]
    fn the_longest_is_told_of_each_operator() {
        let pages = RefusedPages::default();
        for (operator, path, seconds) in
            [(BING, "/a", 0), (GOOGLE, "/a", 5), (GOOGLE, "/b", 0), (GOOGLE, "/b", 70), (GOOGLE, "/a", 10)]
        {
            pages.record_refusal(&page(operator, path), at(seconds));
        }
        assert_eq!(pages.longest_by_operator(), [(GOOGLE, Duration::from_secs(70)), (BING, Duration::ZERO)]);
    }

    #[test]
    fn what_nobody_asks_for_is_forgotten_and_there_is_a_most() {
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
