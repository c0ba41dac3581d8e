//! The robots.txt of each site, kept in memory: fresh ones spare the origin, stale ones stand in for it.
//!
//! Clients choose the host that they ask for. Where there are more than places, those made up go: the ones that no proven
//! crawler has asked for, and of these the ones seldom asked for.

use super::RobotsDirectives;
use super::document::{OriginRobots, RenderedSource, RobotsDocument};
use super::fetch_lock::FetchLocks;
use super::freshness::OVERRIDE_TTL;
use crate::policy::Timestamp;
use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::warn;

/// The largest robots.txt that is kept. Crawlers read 500 KiB (RFC 9309 section 2.5).
pub const MAX_ROBOTS_BYTES: usize = 512 * 1024;

/// Sites that are kept.
const MAX_SITES: usize = 64;

/// A site that nobody has asked for in so long goes first: crawlers come back within days.
const IDLE_AFTER: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// So long a copy stands in for an origin that does not answer. Google keeps its own as long.
const STALE_IF_ERROR: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// While one asks the origin anew, and after the origin has failed, all others are served what there is.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// All that is kept, and what is written into it. Times are of a clock that nobody can set.
#[derive(Default)]
pub struct RobotsCache {
    sites: Mutex<HashMap<String, CachedSite>>,
    r#override: ArcSwapOption<RenderedSource>,
    directives: ArcSwap<RobotsDirectives>,
    /// Who is asking the origin for what is not kept.
    pub fetch_locks: FetchLocks,
    /// It has been told that a text is too long for the wishes.
    warned: AtomicBool,
}

struct CachedSite {
    kept: Arc<RenderedSource>,
    fetched: Timestamp,
    fresh_for: Duration,
    last_requested: Timestamp,
    requests: u32,
    /// A proven crawler has asked for it.
    is_crawled: bool,
    next_try: Timestamp,
}

/// Who asks for a robots.txt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// A crawler whose operator is proven: it asks for hosts that there are.
    VerifiedCrawler,
    /// Anybody else.
    Other,
}

/// What can be served now.
pub enum CacheLookup {
    /// This, without asking the origin: it is fresh, or somebody else is asking.
    Fresh(CachedRobots),
    /// Its time is over. It is this client's turn to ask the origin anew, and it is served this if that fails.
    Revalidate(CachedRobots),
    /// The origin must be asked.
    Miss,
}

/// A robots.txt for a client.
pub struct CachedRobots {
    /// What it says.
    pub edition: Arc<RobotsDocument>,
    /// How long ago the origin said it.
    pub age: Duration,
    /// How long it is fresh.
    pub fresh_for: Duration,
}

impl RobotsCache {
    /// Puts these wishes into whatever is served from now on.
    pub fn set_directives(&self, directives: RobotsDirectives) {
        if **self.directives.load() != directives {
            self.directives.store(Arc::new(directives));
        }
    }

    /// Serves `text` on every site in the origin's place, or what the origin says.
    pub fn set_override(&self, text: Option<Bytes>) {
        let is_known = match (&*self.r#override.load(), &text) {
            (Some(own), Some(text)) => own.original().text == *text,
            (own, text) => own.is_none() == text.is_none(),
        };
        if !is_known {
            let original = |text| OriginRobots { status: 200, content_type: None, text };
            self.r#override.store(text.map(|text| Arc::new(RenderedSource::new(original(text)))));
        }
    }

    /// What is served in the origin's place.
    pub fn override_text(&self) -> Option<Bytes> {
        self.r#override.load().as_ref().map(|own| own.original().text.clone())
    }

    /// What there is for `site`.
    pub fn lookup(&self, site: &str, asker: Requester, now: Timestamp) -> CacheLookup {
        if let Some(own) = &*self.r#override.load() {
            return CacheLookup::Fresh(self.cached_robots(own, Duration::ZERO, OVERRIDE_TTL));
        }
        let (kept, age, fresh_for, is_due) = {
            let mut sites = self.sites.lock();
            let Some(known) = sites.get_mut(site) else { return CacheLookup::Miss };
            let age = now.saturating_duration_since(known.fetched);
            if age > STALE_IF_ERROR {
                sites.remove(site);
                return CacheLookup::Miss;
            }
            known.touch(asker, now);
            let is_due = age >= known.fresh_for && now >= known.next_try;
            if is_due {
                known.next_try = now + RETRY_INTERVAL;
            }
            (Arc::clone(&known.kept), age, known.fresh_for, is_due)
        };
        let handout = self.cached_robots(&kept, age, fresh_for);
        if is_due { CacheLookup::Revalidate(handout) } else { CacheLookup::Fresh(handout) }
    }

    /// Keeps what the origin has just said of `site`, if it may be kept.
    pub fn insert(
        &self,
        site: &str,
        original: OriginRobots,
        fresh_for: Option<Duration>,
        asker: Requester,
        now: Timestamp,
    ) -> CachedRobots {
        let kept = Arc::new(RenderedSource::new(original));
        match fresh_for {
            None => self.remove(site),
            Some(fresh_for) => self.store(site, Arc::clone(&kept), fresh_for, asker, now),
        }
        self.cached_robots(&kept, Duration::ZERO, fresh_for.unwrap_or_default())
    }

    /// Forgets what was kept of `site`: the origin has said something else.
    pub fn remove(&self, site: &str) {
        self.sites.lock().remove(site);
    }

    /// How many of the texts that are served now are too long for the wishes.
    pub fn over_limit_count(&self) -> usize {
        let kept: Vec<Arc<RenderedSource>> = match self.r#override.load_full() {
            Some(own) => vec![own],
            None => self.sites.lock().values().map(|site| Arc::clone(&site.kept)).collect(),
        };
        let directives = self.directives.load_full();
        kept.iter().filter(|kept| kept.render(&directives).directives_omitted).count()
    }

    fn store(&self, site: &str, kept: Arc<RenderedSource>, fresh_for: Duration, asker: Requester, now: Timestamp) {
        let mut sites = self.sites.lock();
        if let Some(known) = sites.get_mut(site) {
            (known.kept, known.fetched, known.fresh_for, known.next_try) = (kept, now, fresh_for, now);
            return;
        }
        if sites.len() >= MAX_SITES {
            evict_one(&mut sites, now);
        }
        let mut new = CachedSite {
            kept,
            fetched: now,
            fresh_for,
            last_requested: now,
            requests: 0,
            is_crawled: false,
            next_try: now,
        };
        new.touch(asker, now);
        sites.insert(site.to_owned(), new);
    }

    fn cached_robots(&self, kept: &RenderedSource, age: Duration, fresh_for: Duration) -> CachedRobots {
        let edition = kept.render(&self.directives.load_full());
        if edition.directives_omitted && !self.warned.swap(true, Ordering::Relaxed) {
            warn!(
                "A robots.txt would be longer than crawlers read, with crawl delays and trap: it is served without them"
            );
        }
        CachedRobots { edition, age, fresh_for }
    }
}

impl CachedSite {
    fn touch(&mut self, asker: Requester, now: Timestamp) {
        self.last_requested = now;
        self.requests = self.requests.saturating_add(1);
        self.is_crawled |= asker == Requester::VerifiedCrawler;
    }

    /// More where it would be missed more.
    fn retention_rank(&self, now: Timestamp) -> impl Ord + use<> {
        (
            now.saturating_duration_since(self.last_requested) < IDLE_AFTER,
            self.is_crawled,
            self.requests,
            self.last_requested,
        )
    }
}

/// Forgets the site that is worth least.
fn evict_one(sites: &mut HashMap<String, CachedSite>, now: Timestamp) {
    let least = sites.iter().min_by_key(|(_, site)| site.retention_rank(now)).map(|(name, _)| name.clone());
    least.and_then(|name| sites.remove(&name));
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn original(text: &'static str) -> OriginRobots {
        OriginRobots { status: 200, content_type: None, text: Bytes::from_static(text.as_bytes()) }
    }

    fn at(hours: u32) -> Timestamp {
        Timestamp::from_seconds(1000) + HOUR * hours
    }

    #[test]
    fn one_asks_the_origin_and_the_others_are_served_meanwhile() {
        let shelf = RobotsCache::default();
        assert!(matches!(shelf.lookup("a", Requester::Other, at(0)), CacheLookup::Miss));
        shelf.insert("a", original("x"), Some(HOUR), Requester::Other, at(0));
        assert!(matches!(shelf.lookup("a", Requester::Other, at(0)), CacheLookup::Fresh(_)));
        assert!(matches!(shelf.lookup("a", Requester::Other, at(1)), CacheLookup::Revalidate(_)));
        assert!(
            matches!(shelf.lookup("a", Requester::Other, at(1)), CacheLookup::Fresh(CachedRobots { age, .. }) if age == HOUR)
        );
        assert!(matches!(shelf.lookup("a", Requester::Other, at(1) + RETRY_INTERVAL), CacheLookup::Revalidate(_)));
        assert!(matches!(shelf.lookup("a", Requester::Other, at(30 * 24)), CacheLookup::Revalidate(_)));
        assert!(
            matches!(shelf.lookup("a", Requester::Other, at(30 * 24 + 1)), CacheLookup::Miss),
            "a month is long enough"
        );
    }

    #[test]
    fn a_flood_of_hosts_does_not_drive_out_those_that_crawlers_ask_for() {
        let shelf = RobotsCache::default();
        let keep = |site: &str, asker, hours| shelf.insert(site, original("x"), Some(HOUR), asker, at(hours));
        let is_kept = |site: &str, hours| !matches!(shelf.lookup(site, Requester::Other, at(hours)), CacheLookup::Miss);
        keep("crawled", Requester::VerifiedCrawler, 0);
        keep("visited", Requester::Other, 0);
        assert!((0..5).all(|hour| is_kept("visited", hour)));
        for number in 0..1000 {
            // Made up, and asked for more than once.
            keep(&number.to_string(), Requester::Other, 5);
            assert!((0..3).all(|_| is_kept(&number.to_string(), 5)), "a newcomer has a place");
        }
        assert_eq!(shelf.sites.lock().len(), MAX_SITES);
        assert!(is_kept("crawled", 5) && is_kept("visited", 5));
        for number in 0..MAX_SITES {
            keep(&number.to_string(), Requester::Other, 6);
            assert!((0..100).all(|_| is_kept(&number.to_string(), 6)));
        }
        assert!(is_kept("crawled", 6), "however often the others are asked for");
        keep("late", Requester::Other, 8 * 24);
        assert!(is_kept("late", 8 * 24), "in the place of one that nobody asks for");
    }

    #[test]
    fn new_wishes_are_in_what_is_kept_already() {
        let shelf = RobotsCache::default();
        let first = shelf.insert("a", original("User-agent: *\n"), Some(HOUR), Requester::Other, at(0));
        shelf.set_directives(RobotsDirectives { default: Some(7), ..RobotsDirectives::default() });
        let CacheLookup::Fresh(second) = shelf.lookup("a", Requester::Other, at(0)) else { panic!("it is fresh") };
        assert_eq!(second.edition.text, "User-agent: *\nCrawl-delay: 7\n");
        assert_ne!(first.edition.etag, second.edition.etag);
        assert!(second.edition.matches_etag(format!("\"x\", W/{}", second.edition.etag).as_bytes()));
    }

    #[test]
    fn where_the_origin_has_none_the_wishes_stand_alone() {
        let shelf = RobotsCache::default();
        let none =
            OriginRobots { status: 404, content_type: Some(Bytes::from_static(b"text/html")), text: Bytes::new() };
        assert_eq!(shelf.insert("a", none.clone(), Some(HOUR), Requester::Other, at(0)).edition.status, 404);
        shelf.set_directives(RobotsDirectives { honeypot: Some("/trap".into()), ..RobotsDirectives::default() });
        let edition = shelf.insert("a", none, Some(HOUR), Requester::Other, at(0)).edition;
        assert_eq!((edition.status, &edition.text[..]), (200, &b"User-agent: *\nDisallow: /trap\n"[..]));
    }

    #[test]
    fn a_text_that_crawlers_would_not_read_to_the_end_is_served_as_it_is() {
        let shelf = RobotsCache::default();
        shelf.set_directives(RobotsDirectives { default: Some(7), ..RobotsDirectives::default() });
        let rules = format!("User-agent: *\n{}", "Disallow: /a\n".repeat(500 * 1024 / 13 - 2));
        for (more, is_bare) in [(0, false), (10, true)] {
            let text = Bytes::from(format!("{rules}#{}\n", "x".repeat(more)));
            let original = OriginRobots { status: 200, content_type: None, text: text.clone() };
            let edition = shelf.insert("a", original, Some(HOUR), Requester::Other, at(0)).edition;
            assert_eq!(
                (edition.directives_omitted, shelf.over_limit_count()),
                (is_bare, usize::from(is_bare)),
                "{}",
                text.len()
            );
            assert_eq!(edition.text == text, is_bare);
            assert!(edition.text.len() <= 500 * 1024);
        }
        shelf.set_directives(RobotsDirectives::default());
        assert_eq!(shelf.over_limit_count(), 0, "nothing is asked");
    }

    #[test]
    fn our_own_goes_before_the_origins() {
        let shelf = RobotsCache::default();
        shelf.insert("a", original("theirs"), Some(HOUR), Requester::Other, at(0));
        shelf.set_override(Some(Bytes::from_static(b"ours")));
        assert!(
            matches!(shelf.lookup("b", Requester::Other, at(99)), CacheLookup::Fresh(handout) if handout.edition.text == "ours")
        );
        shelf.set_override(None);
        assert!(
            matches!(shelf.lookup("a", Requester::Other, at(0)), CacheLookup::Fresh(handout) if handout.edition.text == "theirs")
        );
    }
}
