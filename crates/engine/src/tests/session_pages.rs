//! Sessions that ask for more costly pages in a day than people of the site do.

use super::*;
use crate::ProfileKey;
use tidegate_policy::bot_detection::{
    BotDetection, BotScore, BrowserTraits, HeadersSeen, LearnedBaseline, PagesBeyond, Referer, RequestFeatures,
    ResourceKind, ResponseOutcome, Signal,
};
use tidegate_policy::session::Session;

/// People of the site, each with a session: enough to know what is usual.
const PEOPLE: u32 = 1100;

/// A site whose people have asked for three costly pages each.
struct Site(Admission);

impl Site {
    fn new() -> Self {
        Self::with_people(3)
    }

    fn with_people(pages: u16) -> Self {
        let day = Duration::from_secs(24 * 60 * 60);
        let detection = BotDetection { threshold: 100, half_life: day, max_clients: 100_000, honeypot: None };
        let rules = Rules { bot_detection: Some(detection), ..fixtures::rules() };
        let site = Self(Engine::new(LeaseMode::Local, 1000).admission(Arc::new(rules), NOON));
        (1..=PEOPLE).for_each(|person| site.read(u64::from(person) << 8, person, pages, NOON));
        site
    }

    fn key(&self, client: u64, session: u32) -> ProfileKey {
        self.0.profile_key(ClientKey::from_u64(client), b"Mozilla/5.0", session)
    }

    /// Reads pages with a session, following links.
    fn read(&self, client: u64, session: u32, pages: u16, at: Timestamp) {
        for page in 0..pages {
            self.0.record_request(self.key(client, session), &request(page, at), ResponseOutcome::Served);
        }
    }

    fn score(&self, client: u64, session: u32, at: Timestamp) -> Option<BotScore> {
        self.0.bot_score_if_suspected(self.key(client, session), &request(9999, at))
    }
}

fn request(page: u16, at: Timestamp) -> RequestFeatures {
    RequestFeatures {
        at,
        browser: BrowserTraits::default(),
        resource_kind: ResourceKind::Page(page + 1),
        is_costly: true,
        referer: Referer::Internal,
        headers: HeadersSeen::default(),
        session: Some(Session::Known),
    }
}

#[test]
fn a_session_is_suspected_beyond_what_people_ask_for_until_its_day_ends() {
    let (site, reader) = (Site::new(), 5000);
    site.read(reader, 7777, 100, NOON);
    assert_eq!(site.score(reader, 7777, NOON), None, "a hundred pages are always usual");
    site.read(reader, 7777, 1, NOON);
    let score = site.score(reader, 7777, NOON).expect("suspected");
    assert_eq!(score.signals[0], Some(Signal::BeyondPeople));
    assert_eq!(score.beyond, Some(PagesBeyond { pages: 101, limit: 100 }));
    assert_eq!(site.score(reader, 7777, NOON + Duration::from_secs(24 * 60 * 60)), None);
}

#[test]
fn one_network_teaches_little_of_people() {
    let (site, reader) = (Site::with_people(120), 5000 << 8);
    site.read(reader, 7777, 250, NOON);
    assert_eq!(site.score(reader, 7777, NOON), None, "people of this site read much");
    let baseline = |site: &Site| site.0.engine.learned_baseline();
    let before = baseline(&site);
    // Addresses, browsers and sessions without end, with a page each that is reached by a link, and no assets.
    for number in 0..20_000_u32 {
        let client = ClientKey::from_u64(6000 << 8 | u64::from(number % 256));
        let key = site.0.profile_key(client, &number.to_le_bytes(), 10_000 + number);
        for page in 0..3 {
            site.0.record_request(key, &request(page, NOON), ResponseOutcome::Served);
        }
    }
    assert_eq!(site.score(reader, 7777, NOON), None, "others have not decided what is usual");
    let after = baseline(&site);
    let taught = |counts: fn(&LearnedBaseline) -> f32| counts(&after) - counts(&before);
    let samples = [taught(|learned| learned.assets.samples()), taught(|learned| learned.links.samples())];
    assert!(samples.iter().all(|samples| *samples <= 5.0) && samples[1] > 0.0, "{samples:?}");
}

#[test]
fn people_behind_one_address_are_counted_by_their_sessions() {
    let (site, office) = (Site::new(), 5000);
    for session in 2000..2020 {
        site.read(office, session, 60, NOON);
        assert_eq!(site.score(office, session, NOON), None);
    }
    assert_eq!(site.score(office, 0, NOON), None, "a stranger of the office");
}
