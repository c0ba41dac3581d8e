//! The robots.txt of each site, kept in memory: fresh ones spare the origin, stale ones stand in for it.
//!
//! Clients choose the host that they ask for. Where there are more than places, those made up go: the ones that no proven
//! crawler has asked for, and of these the ones seldom asked for.

use super::RobotsDirectives;
use super::document::{RobotsDocument, RenderedSource, OriginRobots};
use super::fetch_lock::FetchLocks;
use super::freshness::OF_OUR_OWN;
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
pub const LARGEST: usize = 512 * 1024;

/// Sites that are kept.
const MOST_SITES: usize = 64;

/// A site that nobody has asked for in so long goes first: crawlers come back within days.
const IDLE_AFTER: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// So long a copy stands in for an origin that does not answer. Google keeps its own as long.
const STANDS_IN_FOR: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// While one asks the origin anew, and after the origin has failed, all others are served what there is.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// All that is kept, and what is written into it. Times are of a clock that nobody can set.
#[derive(Default)]
pub struct RobotsCache {
    sites: Mutex<HashMap<String, CachedSite>>,
    own: ArcSwapOption<RenderedSource>,
    wishes: ArcSwap<RobotsDirectives>,
    /// Who is asking the origin for what is not kept.
    pub errands: FetchLocks,
    /// It has been told that a text is too long for the wishes.
    told: AtomicBool,
}

struct CachedSite {
    kept: Arc<RenderedSource>,
    fetched: Timestamp,
    fresh_for: Duration,
    asked: Timestamp,
    times_asked: u32,
    /// A proven crawler has asked for it.
    is_crawled: bool,
    next_try: Timestamp,
}

/// Who asks for a robots.txt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// A crawler whose operator is proven: it asks for hosts that there are.
    Crawler,
    /// Anybody else.
    Anybody,
}

/// What can be served now.
pub enum CacheLookup {
    /// This, without asking the origin: it is fresh, or somebody else is asking.
    Ready(CachedRobots),
    /// Its time is over. It is this client's turn to ask the origin anew, and it is served this if that fails.
    Due(CachedRobots),
    /// The origin must be asked.
    Nothing,
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
    pub fn wish(&self, wishes: RobotsDirectives) {
        if **self.wishes.load() != wishes {
            self.wishes.store(Arc::new(wishes));
        }
    }

    /// Serves `text` on every site in the origin's place, or what the origin says.
    pub fn serve_own(&self, text: Option<Bytes>) {
        let is_known = match (&*self.own.load(), &text) {
            (Some(own), Some(text)) => own.original().text == *text,
            (own, text) => own.is_none() == text.is_none(),
        };
        if !is_known {
            let original = |text| OriginRobots { status: 200, content_type: None, text };
            self.own.store(text.map(|text| Arc::new(RenderedSource::new(original(text)))));
        }
    }

    /// What is served in the origin's place.
    pub fn own(&self) -> Option<Bytes> {
        self.own.load().as_ref().map(|own| own.original().text.clone())
    }

    /// What there is for `site`.
    pub fn find(&self, site: &str, asker: Requester, now: Timestamp) -> CacheLookup {
        if let Some(own) = &*self.own.load() {
            return CacheLookup::Ready(self.handout(own, Duration::ZERO, OF_OUR_OWN));
        }
        let (kept, age, fresh_for, is_due) = {
            let mut sites = self.sites.lock();
            let Some(known) = sites.get_mut(site) else { return CacheLookup::Nothing };
            let age = now.since(known.fetched);
            if age > STANDS_IN_FOR {
                sites.remove(site);
                return CacheLookup::Nothing;
            }
            known.is_asked_for(asker, now);
            let is_due = age >= known.fresh_for && now >= known.next_try;
            if is_due {
                known.next_try = now + ASK_AGAIN_AFTER;
            }
            (Arc::clone(&known.kept), age, known.fresh_for, is_due)
        };
        let handout = self.handout(&kept, age, fresh_for);
        if is_due { CacheLookup::Due(handout) } else { CacheLookup::Ready(handout) }
    }

    /// Keeps what the origin has just said of `site`, if it may be kept.
    pub fn keep(
        &self,
        site: &str,
        original: OriginRobots,
        fresh_for: Option<Duration>,
        asker: Requester,
        now: Timestamp,
    ) -> CachedRobots {
        let kept = Arc::new(RenderedSource::new(original));
        match fresh_for {
            None => self.forget(site),
            Some(fresh_for) => self.put(site, Arc::clone(&kept), fresh_for, asker, now),
        }
        self.handout(&kept, Duration::ZERO, fresh_for.unwrap_or_default())
    }

    /// Forgets what was kept of `site`: the origin has said something else.
    pub fn forget(&self, site: &str) {
        self.sites.lock().remove(site);
    }

    /// How many of the texts that are served now are too long for the wishes.
    pub fn bare(&self) -> usize {
        let kept: Vec<Arc<RenderedSource>> = match self.own.load_full() {
            Some(own) => vec![own],
            None => self.sites.lock().values().map(|site| Arc::clone(&site.kept)).collect(),
        };
        let wishes = self.wishes.load_full();
        kept.iter().filter(|kept| kept.edition(&wishes).is_bare).count()
    }

    fn put(&self, site: &str, kept: Arc<RenderedSource>, fresh_for: Duration, asker: Requester, now: Timestamp) {
        let mut sites = self.sites.lock();
        if let Some(known) = sites.get_mut(site) {
            (known.kept, known.fetched, known.fresh_for, known.next_try) = (kept, now, fresh_for, now);
            return;
        }
        if sites.len() >= MOST_SITES {
            make_room(&mut sites, now);
        }
        let mut new =
            CachedSite { kept, fetched: now, fresh_for, asked: now, times_asked: 0, is_crawled: false, next_try: now };
        new.is_asked_for(asker, now);
        sites.insert(site.to_owned(), new);
    }

    fn handout(&self, kept: &RenderedSource, age: Duration, fresh_for: Duration) -> CachedRobots {
        let edition = kept.edition(&self.wishes.load_full());
        if edition.is_bare && !self.told.swap(true, Ordering::Relaxed) {
            warn!(
                "A robots.txt would be longer than crawlers read, with crawl delays and trap: it is served without them"
            );
        }
        CachedRobots { edition, age, fresh_for }
    }
}

impl CachedSite {
    fn is_asked_for(&mut self, asker: Requester, now: Timestamp) {
        self.asked = now;
        self.times_asked = self.times_asked.saturating_add(1);
        self.is_crawled |= asker == Requester::Crawler;
    }

    /// More where it would be missed more.
    fn worth(&self, now: Timestamp) -> impl Ord + use<> {
        (now.since(self.asked) < IDLE_AFTER, self.is_crawled, self.times_asked, self.asked)
    }
}

/// Forgets the site that is worth least.
fn make_room(sites: &mut HashMap<String, CachedSite>, now: Timestamp) {
    let least = sites.iter().min_by_key(|(_, site)| site.worth(now)).map(|(name, _)| name.clone());
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
        assert!(matches!(shelf.find("a", Requester::Anybody, at(0)), CacheLookup::Nothing));
        shelf.keep("a", original("x"), Some(HOUR), Requester::Anybody, at(0));
        assert!(matches!(shelf.find("a", Requester::Anybody, at(0)), CacheLookup::Ready(_)));
        assert!(matches!(shelf.find("a", Requester::Anybody, at(1)), CacheLookup::Due(_)));
        assert!(matches!(shelf.find("a", Requester::Anybody, at(1)), CacheLookup::Ready(CachedRobots { age, .. }) if age == HOUR));
        assert!(matches!(shelf.find("a", Requester::Anybody, at(1) + ASK_AGAIN_AFTER), CacheLookup::Due(_)));
        assert!(matches!(shelf.find("a", Requester::Anybody, at(30 * 24)), CacheLookup::Due(_)));
        assert!(matches!(shelf.find("a", Requester::Anybody, at(30 * 24 + 1)), CacheLookup::Nothing), "a month is long enough");
    }

    #[test]
    fn a_flood_of_hosts_does_not_drive_out_those_that_crawlers_ask_for() {
        let shelf = RobotsCache::default();
        let keep = |site: &str, asker, hours| shelf.keep(site, original("x"), Some(HOUR), asker, at(hours));
        let is_kept = |site: &str, hours| !matches!(shelf.find(site, Requester::Anybody, at(hours)), CacheLookup::Nothing);
        keep("crawled", Requester::Crawler, 0);
        keep("visited", Requester::Anybody, 0);
        assert!((0..5).all(|hour| is_kept("visited", hour)));
        for number in 0..1000 {
            // Made up, and asked for more than once.
            keep(&number.to_string(), Requester::Anybody, 5);
            assert!((0..3).all(|_| is_kept(&number.to_string(), 5)), "a newcomer has a place");
        }
        assert_eq!(shelf.sites.lock().len(), MOST_SITES);
        assert!(is_kept("crawled", 5) && is_kept("visited", 5));
        for number in 0..MOST_SITES {
            keep(&number.to_string(), Requester::Anybody, 6);
            assert!((0..100).all(|_| is_kept(&number.to_string(), 6)));
        }
        assert!(is_kept("crawled", 6), "however often the others are asked for");
        keep("late", Requester::Anybody, 8 * 24);
        assert!(is_kept("late", 8 * 24), "in the place of one that nobody asks for");
    }

    #[test]
    fn new_wishes_are_in_what_is_kept_already() {
        let shelf = RobotsCache::default();
        let first = shelf.keep("a", original("User-agent: *\n"), Some(HOUR), Requester::Anybody, at(0));
        shelf.wish(RobotsDirectives { of_everybody: Some(7), ..RobotsDirectives::default() });
        let CacheLookup::Ready(second) = shelf.find("a", Requester::Anybody, at(0)) else { panic!("it is fresh") };
        assert_eq!(second.edition.text, "User-agent: *\nCrawl-delay: 7\n");
        assert_ne!(first.edition.etag, second.edition.etag);
        assert!(second.edition.is_known(format!("\"x\", W/{}", second.edition.etag).as_bytes()));
    }

    #[test]
    fn where_the_origin_has_none_the_wishes_stand_alone() {
        let shelf = RobotsCache::default();
        let none = OriginRobots { status: 404, content_type: Some(Bytes::from_static(b"text/html")), text: Bytes::new() };
        assert_eq!(shelf.keep("a", none.clone(), Some(HOUR), Requester::Anybody, at(0)).edition.status, 404);
        shelf.wish(RobotsDirectives { trap: Some("/trap".into()), ..RobotsDirectives::default() });
        let edition = shelf.keep("a", none, Some(HOUR), Requester::Anybody, at(0)).edition;
        assert_eq!((edition.status, &edition.text[..]), (200, &b"User-agent: *\nDisallow: /trap\n"[..]));
    }

    #[test]
    fn a_text_that_crawlers_would_not_read_to_the_end_is_served_as_it_is() {
        let shelf = RobotsCache::default();
        shelf.wish(RobotsDirectives { of_everybody: Some(7), ..RobotsDirectives::default() });
        let rules = format!("User-agent: *\n{}", "Disallow: /a\n".repeat(500 * 1024 / 13 - 2));
        for (more, is_bare) in [(0, false), (10, true)] {
            let text = Bytes::from(format!("{rules}#{}\n", "x".repeat(more)));
            let original = OriginRobots { status: 200, content_type: None, text: text.clone() };
            let edition = shelf.keep("a", original, Some(HOUR), Requester::Anybody, at(0)).edition;
            assert_eq!((edition.is_bare, shelf.bare()), (is_bare, usize::from(is_bare)), "{}", text.len());
            assert_eq!(edition.text == text, is_bare);
            assert!(edition.text.len() <= 500 * 1024);
        }
        shelf.wish(RobotsDirectives::default());
        assert_eq!(shelf.bare(), 0, "nothing is asked");
    }

    #[test]
    fn our_own_goes_before_the_origins() {
        let shelf = RobotsCache::default();
        shelf.keep("a", original("theirs"), Some(HOUR), Requester::Anybody, at(0));
        shelf.serve_own(Some(Bytes::from_static(b"ours")));
        assert!(
            matches!(shelf.find("b", Requester::Anybody, at(99)), CacheLookup::Ready(handout) if handout.edition.text == "ours")
        );
        shelf.serve_own(None);
        assert!(
            matches!(shelf.find("a", Requester::Anybody, at(0)), CacheLookup::Ready(handout) if handout.edition.text == "theirs")
        );
    }
}
