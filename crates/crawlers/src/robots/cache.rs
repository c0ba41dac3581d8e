//! Cache of robots.txt by site, in memory. A fresh copy saves a request to the origin; a stale copy is served if the
//! origin fails.
//!
//! Clients choose the host that they request. If there are more sites than [`MAX_SITES`], invented hosts are evicted
//! first: sites that no verified crawler has requested, and of these the sites requested least often.

use super::RobotsDirectives;
use super::document::{OriginRobots, RenderedSource, RobotsDocument};
use super::fetch_scope::FetchScope;
use super::freshness::OVERRIDE_TTL;
use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidegate_policy::Timestamp;
use tracing::warn;

/// Maximum size of a cached robots.txt. Crawlers read 500 KiB (RFC 9309 section 2.5).
pub const MAX_ROBOTS_BYTES: usize = 512 * 1024;

/// Maximum number of cached sites.
const MAX_SITES: usize = 64;

/// A site without a request for this time is evicted first. Crawlers request robots.txt every few days.
const IDLE_TIMEOUT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Maximum age of a copy that is served if the origin fails. Google keeps its own copies as long.
const STALE_IF_ERROR: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Interval between requests to the origin for a stale copy. Meanwhile all clients are served the stale copy.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Cache of robots.txt by site, and the directives written into it. Times are monotonic.
#[derive(Default)]
pub struct RobotsCache {
    sites: Mutex<HashMap<String, CachedSite>>,
    /// Sites whose robots.txt cannot be stored, with the time of the last request: at most [`MAX_SITES`].
    unstorable: Mutex<HashMap<String, Timestamp>>,
    r#override: ArcSwapOption<RenderedSource>,
    directives: ArcSwap<RobotsDirectives>,
    /// Limits of all requests to the origin.
    pub fetch_scope: FetchScope,
    /// True after the warning about a text that exceeds the size limit with directives.
    warned: AtomicBool,
}

struct CachedSite {
    source: Arc<RenderedSource>,
    fetched_at: Timestamp,
    ttl: Duration,
    last_requested: Timestamp,
    requests: u32,
    /// True if a verified crawler has requested it.
    is_crawled: bool,
    revalidate_at: Timestamp,
}

/// Client that requests a robots.txt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// A verified crawler. It requests only hosts that exist.
    VerifiedCrawler,
    /// Any other client.
    Other,
}

/// Result of [`RobotsCache::lookup`].
pub enum CacheLookup {
    /// The copy is fresh, or another request already revalidates it: serve it without a request to the origin.
    Fresh(CachedRobots),
    /// The copy is stale and this request revalidates it. If the origin fails, serve the copy.
    Revalidate(CachedRobots),
    /// No copy: request it from the origin.
    Miss,
}

/// A robots.txt to serve.
pub struct CachedRobots {
    /// Text and headers.
    pub document: Arc<RobotsDocument>,
    /// Time since the origin's response.
    pub age: Duration,
    /// Time for which the copy is fresh after the origin's response.
    pub ttl: Duration,
}

impl RobotsCache {
    /// Sets the directives written into all robots.txt served from now on.
    pub fn set_directives(&self, directives: RobotsDirectives) {
        if **self.directives.load() != directives {
            self.directives.store(Arc::new(directives));
        }
    }

    /// Serves `text` for every site instead of the origin's robots.txt; `None` restores the origin's.
    pub fn set_override(&self, text: Option<Bytes>) {
        let is_unchanged = match (&*self.r#override.load(), &text) {
            (Some(source), Some(text)) => source.original().text == *text,
            (source, text) => source.is_none() == text.is_none(),
        };
        if !is_unchanged {
            let original = |text| OriginRobots { status: 200, content_type: None, text };
            self.r#override.store(text.map(|text| Arc::new(RenderedSource::new(original(text)))));
        }
    }

    /// Returns the cached robots.txt of `site`, and whether the origin must be requested.
    pub fn lookup(&self, site: &str, requester: Requester, now: Timestamp) -> CacheLookup {
        if let Some(source) = &*self.r#override.load() {
            return CacheLookup::Fresh(self.cached_robots(source, Duration::ZERO, OVERRIDE_TTL));
        }
        let (source, age, ttl, is_due) = {
            let mut sites = self.sites.lock();
            let Some(cached) = sites.get_mut(site) else { return CacheLookup::Miss };
            let age = now.saturating_duration_since(cached.fetched_at);
            if age > STALE_IF_ERROR {
                sites.remove(site);
                return CacheLookup::Miss;
            }
            cached.touch(requester, now);
            let is_due = age >= cached.ttl && now >= cached.revalidate_at;
            if is_due {
                cached.revalidate_at = now + RETRY_INTERVAL;
            }
            (Arc::clone(&cached.source), age, cached.ttl, is_due)
        };
        let robots = self.cached_robots(&source, age, ttl);
        if is_due { CacheLookup::Revalidate(robots) } else { CacheLookup::Fresh(robots) }
    }

    /// Returns true for a site that no client has invented, as far as known: a verified crawler has requested it, or the
    /// origin's response for it cannot be stored, so that each request for it needs a fetch.
    pub fn is_known(&self, site: &str, now: Timestamp) -> bool {
        if let Some(last_requested) = self.unstorable.lock().get_mut(site) {
            *last_requested = now;
            return true;
        }
        self.sites.lock().get(site).is_some_and(|cached| cached.is_crawled)
    }

    /// Stores the origin's response for `site`, unless `fresh_for` is `None`. Returns what to serve.
    pub fn insert(
        &self,
        site: &str,
        original: OriginRobots,
        ttl: Option<Duration>,
        requester: Requester,
        now: Timestamp,
    ) -> CachedRobots {
        let source = Arc::new(RenderedSource::new(original));
        match ttl {
            None => self.set_unstorable(site, now),
            Some(fresh_for) => {
                self.unstorable.lock().remove(site);
                self.store(site, Arc::clone(&source), fresh_for, requester, now);
            }
        }
        self.cached_robots(&source, Duration::ZERO, ttl.unwrap_or_default())
    }

    /// Records that the origin's response for `site` cannot be stored. Removes the copy.
    pub fn set_unstorable(&self, site: &str, now: Timestamp) {
        self.sites.lock().remove(site);
        let mut unstorable = self.unstorable.lock();
        if unstorable.len() >= MAX_SITES && !unstorable.contains_key(site) {
            let oldest = unstorable.iter().min_by_key(|(_, last_requested)| **last_requested);
            let oldest = oldest.map(|(site, _)| site.clone()).unwrap_or_default();
            unstorable.remove(&oldest);
        }
        unstorable.insert(site.to_owned(), now);
    }

    /// Returns the number of served texts that exceed the size limit with directives.
    pub fn over_limit_count(&self) -> usize {
        let sources: Vec<Arc<RenderedSource>> = match self.r#override.load_full() {
            Some(source) => vec![source],
            None => self.sites.lock().values().map(|site| Arc::clone(&site.source)).collect(),
        };
        let directives = self.directives.load_full();
        sources.iter().filter(|source| source.render(&directives).directives_omitted).count()
    }

    fn store(&self, site: &str, source: Arc<RenderedSource>, ttl: Duration, requester: Requester, now: Timestamp) {
        let mut sites = self.sites.lock();
        if let Some(cached) = sites.get_mut(site) {
            (cached.source, cached.fetched_at, cached.ttl, cached.revalidate_at) = (source, now, ttl, now);
            return;
        }
        if sites.len() >= MAX_SITES {
            evict_one(&mut sites, now);
        }
        let mut new = CachedSite {
            source,
            fetched_at: now,
            ttl,
            last_requested: now,
            requests: 0,
            is_crawled: false,
            revalidate_at: now,
        };
        new.touch(requester, now);
        sites.insert(site.to_owned(), new);
    }

    fn cached_robots(&self, source: &RenderedSource, age: Duration, ttl: Duration) -> CachedRobots {
        let document = source.render(&self.directives.load_full());
        if document.directives_omitted && !self.warned.swap(true, Ordering::Relaxed) {
            warn!("robots.txt exceeds 500 KiB with directives: serving it without them");
        }
        CachedRobots { document, age, ttl }
    }
}

impl CachedSite {
    fn touch(&mut self, requester: Requester, now: Timestamp) {
        self.last_requested = now;
        self.requests = self.requests.saturating_add(1);
        self.is_crawled |= requester == Requester::VerifiedCrawler;
    }

    /// Returns the eviction order: the site with the lowest rank is evicted first.
    fn retention_rank(&self, now: Timestamp) -> impl Ord + use<> {
        (
            now.saturating_duration_since(self.last_requested) < IDLE_TIMEOUT,
            self.is_crawled,
            self.requests,
            self.last_requested,
        )
    }
}

/// Evicts the site with the lowest rank.
fn evict_one(sites: &mut HashMap<String, CachedSite>, now: Timestamp) {
    let evicted = sites.iter().min_by_key(|(_, site)| site.retention_rank(now)).map(|(name, _)| name.clone());
    evicted.and_then(|name| sites.remove(&name));
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn origin_robots(text: &'static str) -> OriginRobots {
        OriginRobots { status: 200, content_type: None, text: Bytes::from_static(text.as_bytes()) }
    }

    fn at(hours: u32) -> Timestamp {
        Timestamp::from_seconds(1000) + HOUR * hours
    }

    #[test]
    fn one_request_refreshes_while_others_get_stale_text() {
        let cache = RobotsCache::default();
        assert!(matches!(cache.lookup("a", Requester::Other, at(0)), CacheLookup::Miss));
        cache.insert("a", origin_robots("x"), Some(HOUR), Requester::Other, at(0));
        assert!(matches!(cache.lookup("a", Requester::Other, at(0)), CacheLookup::Fresh(_)));
        assert!(matches!(cache.lookup("a", Requester::Other, at(1)), CacheLookup::Revalidate(_)));
        assert!(
            matches!(cache.lookup("a", Requester::Other, at(1)), CacheLookup::Fresh(CachedRobots { age, .. }) if age == HOUR)
        );
        assert!(matches!(cache.lookup("a", Requester::Other, at(1) + RETRY_INTERVAL), CacheLookup::Revalidate(_)));
        assert!(matches!(cache.lookup("a", Requester::Other, at(30 * 24)), CacheLookup::Revalidate(_)));
        assert!(
            matches!(cache.lookup("a", Requester::Other, at(30 * 24 + 1)), CacheLookup::Miss),
            "a copy expires after 30 days"
        );
    }

    #[test]
    fn host_flood_does_not_evict_crawled_sites() {
        let cache = RobotsCache::default();
        let insert =
            |site: &str, requester, hours| cache.insert(site, origin_robots("x"), Some(HOUR), requester, at(hours));
        let is_cached =
            |site: &str, hours| !matches!(cache.lookup(site, Requester::Other, at(hours)), CacheLookup::Miss);
        insert("crawled", Requester::VerifiedCrawler, 0);
        insert("visited", Requester::Other, 0);
        assert!((0..5).all(|hour| is_cached("visited", hour)));
        for number in 0..1000 {
            // Invented, and requested several times.
            insert(&number.to_string(), Requester::Other, 5);
            assert!((0..3).all(|_| is_cached(&number.to_string(), 5)), "a new site is cached");
        }
        assert_eq!(cache.sites.lock().len(), MAX_SITES);
        assert!(is_cached("crawled", 5) && is_cached("visited", 5));
        for number in 0..MAX_SITES {
            insert(&number.to_string(), Requester::Other, 6);
            assert!((0..100).all(|_| is_cached(&number.to_string(), 6)));
        }
        assert!(is_cached("crawled", 6), "a site of verified crawlers outranks any number of other requests");
        insert("late", Requester::Other, 8 * 24);
        assert!(is_cached("late", 8 * 24), "it replaces an idle site");
    }

    #[test]
    fn new_directives_apply_to_cached_texts() {
        let cache = RobotsCache::default();
        let first = cache.insert("a", origin_robots("User-agent: *\n"), Some(HOUR), Requester::Other, at(0));
        cache.set_directives(RobotsDirectives { default: Some(7), ..RobotsDirectives::default() });
        let CacheLookup::Fresh(second) = cache.lookup("a", Requester::Other, at(0)) else {
            panic!("the copy is not fresh")
        };
        assert_eq!(second.document.text, "User-agent: *\nCrawl-delay: 7\n");
        assert_ne!(first.document.etag, second.document.etag);
        assert!(second.document.matches_etag(format!("\"x\", W/{}", second.document.etag).as_bytes()));
    }

    #[test]
    fn directives_are_served_alone_after_origin_404() {
        let cache = RobotsCache::default();
        let not_found =
            OriginRobots { status: 404, content_type: Some(Bytes::from_static(b"text/html")), text: Bytes::new() };
        assert_eq!(cache.insert("a", not_found.clone(), Some(HOUR), Requester::Other, at(0)).document.status, 404);
        cache.set_directives(RobotsDirectives { honeypot: Some("/trap".into()), ..RobotsDirectives::default() });
        let document = cache.insert("a", not_found, Some(HOUR), Requester::Other, at(0)).document;
        assert_eq!((document.status, &document.text[..]), (200, &b"User-agent: *\nDisallow: /trap\n"[..]));
    }

    #[test]
    fn oversized_text_is_served_without_directives() {
        let cache = RobotsCache::default();
        cache.set_directives(RobotsDirectives { default: Some(7), ..RobotsDirectives::default() });
        let rules = format!("User-agent: *\n{}", "Disallow: /a\n".repeat(500 * 1024 / 13 - 2));
        for (padding, is_oversized) in [(0, false), (10, true)] {
            let text = Bytes::from(format!("{rules}#{}\n", "x".repeat(padding)));
            let original = OriginRobots { status: 200, content_type: None, text: text.clone() };
            let document = cache.insert("a", original, Some(HOUR), Requester::Other, at(0)).document;
            assert_eq!(
                (document.directives_omitted, cache.over_limit_count()),
                (is_oversized, usize::from(is_oversized)),
                "{}",
                text.len()
            );
            assert_eq!(document.text == text, is_oversized);
            assert!(document.text.len() <= 500 * 1024);
        }
        cache.set_directives(RobotsDirectives::default());
        assert_eq!(cache.over_limit_count(), 0, "no directives");
    }

    #[test]
    fn override_file_takes_precedence_over_the_origin() {
        let cache = RobotsCache::default();
        cache.insert("a", origin_robots("theirs"), Some(HOUR), Requester::Other, at(0));
        cache.set_override(Some(Bytes::from_static(b"ours")));
        assert!(
            matches!(cache.lookup("b", Requester::Other, at(99)), CacheLookup::Fresh(robots) if robots.document.text == "ours")
        );
        cache.set_override(None);
        assert!(
            matches!(cache.lookup("a", Requester::Other, at(0)), CacheLookup::Fresh(robots) if robots.document.text == "theirs")
        );
    }
}
