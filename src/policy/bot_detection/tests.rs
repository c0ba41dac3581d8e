use super::*;
use crate::policy::Timestamp;
use proptest::prelude::*;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const THRESHOLD: u16 = 100;

/// A site where people load pictures and say where they come from.
const USUAL: ExpectedBehavior = ExpectedBehavior { assets: 1.0, links: 1.0 };

const CHROME: BrowserTraits = BrowserTraits { graphical: true, sends_language: true, sends_fetch: true, hints: ClientHints::Always };

/// All headers of a browser that speaks TLS.
const WHOLE: HeadersSeen = HeadersSeen::LOOKED
    .and(HeadersSeen::ACCEPT, true)
    .and(HeadersSeen::ENCODING, true)
    .and(HeadersSeen::LANGUAGE, true)
    .and(HeadersSeen::FETCH, true)
    .and(HeadersSeen::HINTS, true)
    .and(HeadersSeen::UPGRADE, true)
    .and(HeadersSeen::USER_AGENT, true)
    .and(HeadersSeen::SECURE, true);

/// Somebody who visits the site.
struct Visitor {
    habits: ClientProfile,
    now: Timestamp,
    page: u16,
    usual: RequestFeatures,
}

impl Visitor {
    fn new(browser: BrowserTraits, seen: HeadersSeen) -> Self {
        let now = Timestamp::from_seconds(1_800_000_000);
        let usual = RequestFeatures { at: now, browser, aim: ResourceKind::Other, costly: true, referer: Referer::Nowhere, seen };
        Self { habits: ClientProfile::default(), now, page: 0, usual }
    }

    /// A person at their own pace: now fast, now slow.
    fn person(browser: BrowserTraits, seen: HeadersSeen) -> Self {
        Self::new(browser, seen)
    }

    fn sees(&mut self, aim: ResourceKind, referer: Referer, outcome: ResponseOutcome) {
        let _ = self.habits.learn(&RequestFeatures { at: self.now, aim, referer, ..self.usual }, outcome, DAY);
    }

    fn turns_page(&mut self, referer: Referer) {
        self.page += 1;
        let pause = [3, 41, 9, 130, 17, 2, 64][usize::from(self.page) % 7];
        self.now += Duration::from_secs(pause);
        self.sees(ResourceKind::Page(self.page), referer, ResponseOutcome::Served);
    }

    fn points(&self) -> u16 {
        self.points_on(USUAL)
    }

    fn points_on(&self, site: ExpectedBehavior) -> u16 {
        suspicion(&self.habits.at(self.now, DAY), self.usual.browser.graphical, site, || None).points
    }

    fn names(&self) -> Vec<&'static str> {
        let found = suspicion(&self.habits, self.usual.browser.graphical, USUAL, || None);
        found.signals.into_iter().flatten().map(Signal::name).collect()
    }
}

#[test]
fn habits_are_as_small_as_promised() {
    assert_eq!(size_of::<ClientProfile>(), 64);
}

#[test]
fn no_signal_is_enough_alone() {
    assert!(Signal::ALL.iter().all(|signal| signal.most() < THRESHOLD));
    for (place, signal) in Signal::ALL.iter().enumerate() {
        assert_eq!(*signal as usize, place, "{}", signal.name());
    }
}

#[test]
fn a_person_who_reads_all_day_is_left_alone() {
    let mut avid = Visitor::person(CHROME, WHOLE);
    for _ in 0..400 {
        avid.turns_page(Referer::Here);
        avid.sees(ResourceKind::Asset, Referer::Here, ResponseOutcome::Served);
        assert!(avid.points() <= 30, "{:?}", avid.names());
    }
}

#[test]
fn a_browser_that_hides_where_it_comes_from_is_left_alone() {
    let mut private = Visitor::person(CHROME, WHOLE);
    for _ in 0..400 {
        private.turns_page(Referer::Nowhere);
        private.sees(ResourceKind::Asset, Referer::Nowhere, ResponseOutcome::Served);
        assert!(private.points() < THRESHOLD, "{:?}", private.names());
    }
}

#[test]
fn a_reader_without_pictures_is_left_alone() {
    let mut reader = Visitor::person(CHROME, WHOLE);
    for _ in 0..400 {
        reader.turns_page(Referer::Here);
        assert!(reader.points() < THRESHOLD, "{:?}", reader.names());
    }
}

#[test]
fn a_text_browser_that_hides_where_it_comes_from_is_left_alone() {
    let mut text = Visitor::person(BrowserTraits::default(), HeadersSeen::LOOKED.and(HeadersSeen::OLD_HTTP, true));
    for _ in 0..400 {
        text.turns_page(Referer::Nowhere);
        assert!(text.points() < THRESHOLD, "{:?}", text.names());
    }
}

#[test]
fn a_subscriber_whose_reader_opens_one_page_after_the_other_is_left_alone() {
    // Everything is in the browser's cache, and a feed reader opens the pages.
    let mut subscriber = Visitor::person(CHROME, WHOLE);
    for _ in 0..100 {
        subscriber.turns_page(Referer::Nowhere);
        subscriber.now += Duration::from_secs(3600 * [1, 9, 2, 14, 3][usize::from(subscriber.page) % 5]);
        assert!(subscriber.points() < THRESHOLD, "{:?}", subscriber.names());
    }
}

#[test]
fn a_proxy_that_takes_the_headers_away_is_forgiven() {
    let mut behind = Visitor::person(CHROME, HeadersSeen::LOOKED.and(HeadersSeen::SECURE, true));
    for _ in 0..100 {
        behind.turns_page(Referer::Here);
        behind.sees(ResourceKind::Asset, Referer::Here, ResponseOutcome::Served);
        assert!((50..THRESHOLD).contains(&behind.points()), "{} {:?}", behind.points(), behind.names());
    }
}

#[test]
fn a_reader_behind_a_proxy_that_takes_headers_away_and_keeps_the_pictures_is_left_alone() {
    let mut behind = Visitor::person(CHROME, HeadersSeen::LOOKED.and(HeadersSeen::SECURE, true).and(HeadersSeen::ACCEPT, true));
    for _ in 0..400 {
        behind.turns_page(Referer::Here);
        assert!(behind.points() < THRESHOLD, "{} {:?}", behind.points(), behind.names());
    }
}

#[test]
fn what_a_page_fetches_for_itself_is_no_page() {
    let mut board = Visitor::person(CHROME, WHOLE);
    board.turns_page(Referer::Nowhere);
    for _ in 0..5 {
        board.sees(ResourceKind::Asset, Referer::Here, ResponseOutcome::Served);
    }
    board.usual.seen = HeadersSeen::LOOKED.and(HeadersSeen::SECURE, true).and(HeadersSeen::LANGUAGE, true).and(HeadersSeen::FETCH, true);
    for poll in 0..2000 {
        board.now += Duration::from_secs(5);
        board.sees(ResourceKind::Page(poll), Referer::Here, ResponseOutcome::Served);
        assert!(board.points() < THRESHOLD / 2, "{} {:?}", board.points(), board.names());
    }
}

#[test]
fn a_program_that_copies_such_a_request_is_found() {
    let copied = HeadersSeen::LOOKED.and(HeadersSeen::SECURE, true).and(HeadersSeen::LANGUAGE, true).and(HeadersSeen::FETCH, true);
    let mut script = Visitor::new(CHROME, copied);
    for page in 0..50 {
        script.now += Duration::from_secs(2);
        script.sees(ResourceKind::Page(page), Referer::Here, ResponseOutcome::Served);
    }
    assert!(script.points() >= THRESHOLD, "it never loaded what belongs to one: {:?}", script.names());
}

#[test]
fn a_class_that_opens_pages_together_is_left_alone() {
    let mut class = Visitor::new(CHROME, WHOLE);
    for page in 1..=100 {
        class.now += Duration::from_millis(15);
        class.sees(ResourceKind::Page(page), Referer::Nowhere, ResponseOutcome::Served);
        assert!(class.points() < THRESHOLD, "{} {:?}", class.points(), class.names());
    }
    let opened = class.points();
    class.now += Duration::from_secs(10);
    assert!(class.points() >= THRESHOLD && opened < THRESHOLD, "nothing has been loaded for them");
}

#[test]
fn a_page_that_refreshes_itself_has_no_pace() {
    let mut board = Visitor::new(CHROME, WHOLE);
    for _ in 0..200 {
        board.now += Duration::from_secs(30);
        board.sees(ResourceKind::Page(7), Referer::Here, ResponseOutcome::Served);
    }
    assert!(!board.names().contains(&"even_pace"), "{:?}", board.names());
}

#[test]
fn what_is_not_known_is_not_missing() {
    // A log with neither headers nor referers, of a site that keeps its pictures elsewhere.
    let mut logged = Visitor::new(CHROME, HeadersSeen::default());
    logged.usual.referer = Referer::Unknown;
    for _ in 0..400 {
        logged.turns_page(Referer::Unknown);
    }
    assert!(logged.points_on(ExpectedBehavior::default()) <= 30, "{:?}", logged.names());
}

#[test]
fn nothing_is_held_against_headers_that_are_kept_for_tls() {
    let plain = HeadersSeen::LOOKED.and(HeadersSeen::ACCEPT, true).and(HeadersSeen::ENCODING, true).and(HeadersSeen::LANGUAGE, true);
    let mut person = Visitor::person(CHROME, plain);
    person.turns_page(Referer::Here);
    person.sees(ResourceKind::Asset, Referer::Here, ResponseOutcome::Served);
    assert_eq!(person.points(), 0, "{:?}", person.names());
}

#[test]
fn a_program_that_only_borrows_a_user_agent_is_found_after_two_pages() {
    let mut script = Visitor::new(CHROME, HeadersSeen::LOOKED.and(HeadersSeen::ACCEPT, true).and(HeadersSeen::SECURE, true));
    script.turns_page(Referer::Nowhere);
    script.turns_page(Referer::Nowhere);
    assert!(script.points() >= THRESHOLD, "{} {:?}", script.points(), script.names());
}

#[test]
fn a_program_with_all_headers_is_found_by_its_pace() {
    let mut timer = Visitor::new(CHROME, WHOLE);
    let mut found_at = None;
    for page in 1..=50 {
        timer.now += Duration::from_secs(70);
        timer.page += 1;
        timer.sees(ResourceKind::Page(timer.page), Referer::Nowhere, ResponseOutcome::Served);
        found_at = found_at.or((timer.points() >= THRESHOLD).then_some(page));
    }
    assert!(found_at.is_some_and(|page| page <= 12), "{found_at:?}");
}

#[test]
fn who_tries_the_doors_is_found() {
    let mut scanner = Visitor::new(BrowserTraits::default(), WHOLE);
    for _ in 0..20 {
        scanner.turns_page(Referer::Nowhere);
    }
    let harmless = scanner.points();
    let mut scanner = Visitor::new(BrowserTraits::default(), WHOLE);
    for page in 1..=20 {
        scanner.now += Duration::from_secs(1);
        scanner.sees(ResourceKind::Page(page), Referer::Nowhere, ResponseOutcome::Missing);
    }
    assert!(harmless < THRESHOLD && scanner.points() >= THRESHOLD, "{harmless} {:?}", scanner.names());
    assert_eq!(scanner.names()[0], "probes");
}

#[test]
fn a_trap_counts_unless_another_site_has_set_it() {
    let mut crawler = Visitor::new(CHROME, WHOLE);
    crawler.turns_page(Referer::Nowhere);
    crawler.now += Duration::from_secs(5);
    crawler.sees(ResourceKind::Trap, Referer::Nowhere, ResponseOutcome::Missing);
    assert!(crawler.points() >= THRESHOLD);
    let mut person = Visitor::new(CHROME, WHOLE);
    person.turns_page(Referer::Nowhere);
    person.sees(ResourceKind::Trap, Referer::Elsewhere, ResponseOutcome::Missing);
    assert!(!person.names().contains(&"trapped"));
}

#[test]
fn what_the_gate_refuses_is_held_against_nobody() {
    let mut refused = Visitor::new(CHROME, WHOLE);
    for page in 1..=100 {
        refused.now += Duration::from_secs(1);
        refused.sees(ResourceKind::Page(page), Referer::Nowhere, ResponseOutcome::Refused);
    }
    assert_eq!(refused.points(), 0);
}

#[test]
fn a_network_without_people_makes_two_pages_tell() {
    let usual = Visitor::new(CHROME, WHOLE).usual;
    let mut network = NetworkProfile::default();
    for client in 0..40_u64 {
        let page = RequestFeatures { aim: ResourceKind::Page(client as u16), ..usual };
        network.learn(client << 59, &page, ResponseOutcome::Served, DAY);
    }
    let points = |visitor: &Visitor, network| suspicion(&visitor.habits, true, USUAL, || Some(network)).points;
    let mut rented = Visitor::new(CHROME, WHOLE);
    rented.turns_page(Referer::Nowhere);
    assert!(points(&rented, network) < THRESHOLD, "one page proves nothing");
    rented.turns_page(Referer::Nowhere);
    assert!(points(&rented, network) >= THRESHOLD);
    // One who does as people do is not held to account for the neighbours, and clears their name before long.
    let mut person = Visitor::new(CHROME, WHOLE);
    person.turns_page(Referer::Nowhere);
    person.sees(ResourceKind::Asset, Referer::Here, ResponseOutcome::Served);
    assert!(points(&person, network) < THRESHOLD);
    for _ in 0..4 {
        network.learn(0, &RequestFeatures { aim: ResourceKind::Asset, ..usual }, ResponseOutcome::Served, DAY);
    }
    assert!(points(&rented, network) < THRESHOLD);
}

#[test]
fn customs_are_learned_from_those_who_do_as_people_do() {
    let mut customs = SiteBaseline::default();
    let now = Timestamp::from_seconds(1_800_000_000);
    for _ in 0..4 {
        customs.hear(BaselineSample::LoadsAssets, now, DAY);
    }
    assert_eq!(customs.expected(), ExpectedBehavior::default(), "too few to know");
    customs.hear(BaselineSample::LoadsAssets, now, DAY);
    assert_eq!(customs.expected(), ExpectedBehavior { assets: 1.0, links: 0.0 });
    for _ in 0..5 {
        customs.hear(BaselineSample::LoadsNone, now, DAY);
    }
    assert_eq!(customs.expected(), ExpectedBehavior::default(), "half of them keep their pictures elsewhere");
}

#[test]
fn a_client_is_a_witness_once() {
    let mut person = Visitor::new(CHROME, WHOLE);
    let mut heard = Vec::new();
    for page in 1..=9 {
        for (aim, referer) in
            [(ResourceKind::Page(page), Referer::Here), (ResourceKind::Asset, Referer::Here), (ResourceKind::Asset, Referer::Here)]
        {
            let sight = RequestFeatures { aim, referer, ..person.usual };
            heard.extend(person.habits.learn(&sight, ResponseOutcome::Served, DAY));
        }
    }
    assert_eq!(heard, [BaselineSample::LoadsAssets, BaselineSample::TellsLinks]);
}

#[test]
fn what_a_path_asks_for_is_told_by_its_name() {
    let aim = |path| ResourceKind::of(&http::Method::GET, path, None, Some("/trap"));
    assert!(matches!(aim("/"), ResourceKind::Page(_)));
    assert!(matches!(aim("/item/42.html"), ResourceKind::Page(_)));
    assert!(matches!(aim("/v1.2/item"), ResourceKind::Page(_)));
    assert!(matches!(aim("/trapeze"), ResourceKind::Page(_)));
    assert_eq!(aim("/static/Main.3f2a.CSS"), ResourceKind::Asset);
    assert_eq!(aim("/favicon.ico"), ResourceKind::Other);
    assert_eq!(aim("/apple-touch-icon-120x120.png"), ResourceKind::Other);
    assert_eq!(aim("/robots.txt"), ResourceKind::Robots);
    assert_eq!((aim("/trap"), aim("/trap/1")), (ResourceKind::Trap, ResourceKind::Trap));
    assert_eq!(ResourceKind::of(&http::Method::POST, "/item/42", None, None), ResourceKind::Other);
    assert_ne!(
        ResourceKind::of(&http::Method::GET, "/s", Some("q=1"), None),
        ResourceKind::of(&http::Method::GET, "/s", Some("q=2"), None)
    );
}

#[test]
fn what_became_of_a_request_is_told_by_its_status() {
    let of = |statuses: &[u16]| statuses.iter().map(|&status| ResponseOutcome::of_status(status)).collect::<Vec<_>>();
    assert_eq!(of(&[200, 206]), [ResponseOutcome::Served; 2]);
    assert_eq!(of(&[301, 304, 401, 403]), [ResponseOutcome::Moved; 4], "a door that is shut is not one that is not there");
    assert_eq!(of(&[400, 404, 410]), [ResponseOutcome::Missing; 3]);
    assert_eq!(of(&[429, 500, 503]), [ResponseOutcome::Refused; 3]);
}

#[test]
fn a_referer_is_ours_where_the_domain_is() {
    let of = |referer: &str, host| Referer::of(Some(referer.as_bytes()), host);
    assert_eq!(of("https://www.shop.example/a", "shop.example"), Referer::Here);
    assert_eq!(of("https://Shop.Example:8443", "www.shop.example"), Referer::Here);
    assert_eq!(of("https://search.example/", "shop.test"), Referer::Elsewhere);
    assert_eq!(of("https://search.example/", ""), Referer::Here, "a log that names no host");
    assert_eq!(of("about:blank", "shop.example"), Referer::Elsewhere);
    assert_eq!(Referer::of(Some(b""), "shop.example"), Referer::Nowhere);
    assert_eq!(Referer::of(None, "shop.example"), Referer::Nowhere);
}

#[test]
fn headers_have_the_names_that_they_are_logged_by() {
    assert_eq!(WHOLE.names().count(), 7);
    for name in WHOLE.names() {
        assert!(HeadersSeen::named(name).is_some_and(|header| WHOLE.has(header)), "{name}");
    }
    assert_eq!(HeadersSeen::named("cookie"), None);
}

fn any_sight() -> impl Strategy<Value = (u64, u8, u16, u8, bool, ResponseOutcome)> {
    let outcome =
        prop_oneof![Just(ResponseOutcome::Refused), Just(ResponseOutcome::Served), Just(ResponseOutcome::Moved), Just(ResponseOutcome::Missing)];
    (0..400_000_u64, 0..5_u8, 0..60_u16, 0..4_u8, any::<bool>(), outcome)
}

proptest! {
    #[test]
    fn pages_that_are_numbered_are_as_many_as_others(
        folder in "/[a-z]{1,12}/", first in 0_u64..1_000_000_000, by_query in any::<bool>(), step in 1_u64..20,
    ) {
        let aim = |number: u64| {
            let number = number.to_string();
            let path = if by_query { folder.clone() } else { format!("{folder}{number}") };
            match ResourceKind::of(&http::Method::GET, &path, by_query.then_some(&number), None) {
                ResourceKind::Page(page) => page,
                other => panic!("{other:?}"),
            }
        };
        let pages: std::collections::BTreeSet<u16> = (0..60).map(|place| aim(first + place * step)).collect();
        prop_assert!(pages.len() >= 57, "{} of 60", pages.len());
    }

    #[test]
    fn whatever_comes_is_weighed_within_bounds_and_forgotten_in_the_end(
        sights in proptest::collection::vec(any_sight(), 1..120),
        back in any::<bool>(),
    ) {
        let mut visitor = Visitor::new(CHROME, WHOLE);
        let mut latest = visitor.now;
        for (wait, aim, page, referer, costly, outcome) in sights {
            // A clock that is set back now and then.
            visitor.now = if back && wait % 7 == 0 { visitor.now - Duration::from_secs(wait) } else { visitor.now + Duration::from_millis(wait) };
            latest = latest.max(visitor.now);
            visitor.usual.costly = costly;
            let aim = [ResourceKind::Page(page), ResourceKind::Asset, ResourceKind::Robots, ResourceKind::Trap, ResourceKind::Other][usize::from(aim)];
            let referer = [Referer::Unknown, Referer::Nowhere, Referer::Elsewhere, Referer::Here][usize::from(referer)];
            visitor.sees(aim, referer, outcome);
            let most: u16 = Signal::ALL.iter().map(|signal| signal.most()).sum();
            prop_assert!(visitor.points() <= most);
        }
        let long_after = visitor.habits.at(latest + 14 * DAY, DAY);
        let left = suspicion(&long_after, true, USUAL, || None);
        // The pace is a ratio and does not fade, but is not enough.
        prop_assert!(left.points <= Signal::EvenPace.most() + 2, "{left:?}");
    }
}
