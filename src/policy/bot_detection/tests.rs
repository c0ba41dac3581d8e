use super::*;
use crate::policy::Timestamp;
use proptest::prelude::*;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const THRESHOLD: u16 = 100;

/// Baseline of a site whose humans load images and send referers.
const USUAL: ExpectedBehavior = ExpectedBehavior { assets: 1.0, links: 1.0 };

const CHROME: BrowserTraits =
    BrowserTraits { graphical: true, sends_language: true, sends_fetch: true, hints: ClientHints::Always };

/// All headers of a browser that uses TLS.
const WHOLE: HeadersSeen = HeadersSeen::INSPECTED
    .with(HeadersSeen::ACCEPT, true)
    .with(HeadersSeen::ENCODING, true)
    .with(HeadersSeen::LANGUAGE, true)
    .with(HeadersSeen::FETCH, true)
    .with(HeadersSeen::HINTS, true)
    .with(HeadersSeen::UPGRADE, true)
    .with(HeadersSeen::USER_AGENT, true)
    .with(HeadersSeen::TLS, true);

/// Simulated client of the site.
struct SimulatedClient {
    habits: ClientProfile,
    now: Timestamp,
    page: u16,
    usual: RequestFeatures,
}

impl SimulatedClient {
    fn new(browser: BrowserTraits, seen: HeadersSeen) -> Self {
        let now = Timestamp::from_seconds(1_800_000_000);
        let usual = RequestFeatures {
            at: now,
            browser,
            aim: ResourceKind::Other,
            costly: true,
            referer: Referer::Absent,
            seen,
        };
        Self { habits: ClientProfile::default(), now, page: 0, usual }
    }

    /// Creates a human client; its pages have irregular intervals.
    fn human(browser: BrowserTraits, seen: HeadersSeen) -> Self {
        Self::new(browser, seen)
    }

    fn request(&mut self, aim: ResourceKind, referer: Referer, outcome: ResponseOutcome) {
        let _ = self.habits.record(&RequestFeatures { at: self.now, aim, referer, ..self.usual }, outcome, DAY);
    }

    fn open_page(&mut self, referer: Referer) {
        self.page += 1;
        let pause = [3, 41, 9, 130, 17, 2, 64][usize::from(self.page) % 7];
        self.now += Duration::from_secs(pause);
        self.request(ResourceKind::Page(self.page), referer, ResponseOutcome::Served);
    }

    fn score(&self) -> u16 {
        self.score_on(USUAL)
    }

    fn score_on(&self, site: ExpectedBehavior) -> u16 {
        score(&self.habits.decayed(self.now, DAY), self.usual.browser.graphical, site, || None).points
    }

    fn signal_names(&self) -> Vec<&'static str> {
        let found = score(&self.habits, self.usual.browser.graphical, USUAL, || None);
        found.signals.into_iter().flatten().map(Signal::name).collect()
    }
}

#[test]
fn client_profile_has_the_expected_size() {
    assert_eq!(size_of::<ClientProfile>(), 64);
}

#[test]
fn no_single_signal_reaches_the_threshold() {
    assert!(Signal::ALL.iter().all(|signal| signal.max_points() < THRESHOLD));
    for (place, signal) in Signal::ALL.iter().enumerate() {
        assert_eq!(*signal as usize, place, "{}", signal.name());
    }
}

#[test]
fn human_reading_all_day_is_not_suspected() {
    let mut avid = SimulatedClient::human(CHROME, WHOLE);
    for _ in 0..400 {
        avid.open_page(Referer::Internal);
        avid.request(ResourceKind::Asset, Referer::Internal, ResponseOutcome::Served);
        assert!(avid.score() <= 30, "{:?}", avid.signal_names());
    }
}

#[test]
fn browser_without_referer_is_not_suspected() {
    let mut private = SimulatedClient::human(CHROME, WHOLE);
    for _ in 0..400 {
        private.open_page(Referer::Absent);
        private.request(ResourceKind::Asset, Referer::Absent, ResponseOutcome::Served);
        assert!(private.score() < THRESHOLD, "{:?}", private.signal_names());
    }
}

#[test]
fn human_without_images_is_not_suspected() {
    let mut reader = SimulatedClient::human(CHROME, WHOLE);
    for _ in 0..400 {
        reader.open_page(Referer::Internal);
        assert!(reader.score() < THRESHOLD, "{:?}", reader.signal_names());
    }
}

#[test]
fn text_browser_without_referer_is_not_suspected() {
    let mut text =
        SimulatedClient::human(BrowserTraits::default(), HeadersSeen::INSPECTED.with(HeadersSeen::HTTP_10, true));
    for _ in 0..400 {
        text.open_page(Referer::Absent);
        assert!(text.score() < THRESHOLD, "{:?}", text.signal_names());
    }
}

#[test]
fn feed_reader_page_views_are_not_suspected() {
    // All assets are in the browser's cache, and a feed reader opens the pages.
    let mut subscriber = SimulatedClient::human(CHROME, WHOLE);
    for _ in 0..100 {
        subscriber.open_page(Referer::Absent);
        subscriber.now += Duration::from_secs(3600 * [1, 9, 2, 14, 3][usize::from(subscriber.page) % 5]);
        assert!(subscriber.score() < THRESHOLD, "{:?}", subscriber.signal_names());
    }
}

#[test]
fn header_stripping_proxy_stays_below_the_threshold() {
    let mut behind = SimulatedClient::human(CHROME, HeadersSeen::INSPECTED.with(HeadersSeen::TLS, true));
    for _ in 0..100 {
        behind.open_page(Referer::Internal);
        behind.request(ResourceKind::Asset, Referer::Internal, ResponseOutcome::Served);
        assert!((50..THRESHOLD).contains(&behind.score()), "{} {:?}", behind.score(), behind.signal_names());
    }
}

#[test]
fn header_stripping_proxy_with_image_cache_is_tolerated() {
    let mut behind = SimulatedClient::human(
        CHROME,
        HeadersSeen::INSPECTED.with(HeadersSeen::TLS, true).with(HeadersSeen::ACCEPT, true),
    );
    for _ in 0..400 {
        behind.open_page(Referer::Internal);
        assert!(behind.score() < THRESHOLD, "{} {:?}", behind.score(), behind.signal_names());
    }
}

#[test]
fn background_fetches_are_not_counted_as_pages() {
    let mut board = SimulatedClient::human(CHROME, WHOLE);
    board.open_page(Referer::Absent);
    for _ in 0..5 {
        board.request(ResourceKind::Asset, Referer::Internal, ResponseOutcome::Served);
    }
    board.usual.seen = HeadersSeen::INSPECTED
        .with(HeadersSeen::TLS, true)
        .with(HeadersSeen::LANGUAGE, true)
        .with(HeadersSeen::FETCH, true);
    for poll in 0..2000 {
        board.now += Duration::from_secs(5);
        board.request(ResourceKind::Page(poll), Referer::Internal, ResponseOutcome::Served);
        assert!(board.score() < THRESHOLD / 2, "{} {:?}", board.score(), board.signal_names());
    }
}

#[test]
fn script_copying_a_background_fetch_is_detected() {
    let copied = HeadersSeen::INSPECTED
        .with(HeadersSeen::TLS, true)
        .with(HeadersSeen::LANGUAGE, true)
        .with(HeadersSeen::FETCH, true);
    let mut script = SimulatedClient::new(CHROME, copied);
    for page in 0..50 {
        script.now += Duration::from_secs(2);
        script.request(ResourceKind::Page(page), Referer::Internal, ResponseOutcome::Served);
    }
    assert!(script.score() >= THRESHOLD, "no assets were loaded: {:?}", script.signal_names());
}

#[test]
fn simultaneous_page_loads_behind_nat_are_not_suspected() {
    let mut class = SimulatedClient::new(CHROME, WHOLE);
    for page in 1..=100 {
        class.now += Duration::from_millis(15);
        class.request(ResourceKind::Page(page), Referer::Absent, ResponseOutcome::Served);
        assert!(class.score() < THRESHOLD, "{} {:?}", class.score(), class.signal_names());
    }
    let opened = class.score();
    class.now += Duration::from_secs(10);
    assert!(class.score() >= THRESHOLD && opened < THRESHOLD, "no assets were loaded in time");
}

#[test]
fn self_refreshing_page_gives_no_even_pace() {
    let mut board = SimulatedClient::new(CHROME, WHOLE);
    for _ in 0..200 {
        board.now += Duration::from_secs(30);
        board.request(ResourceKind::Page(7), Referer::Internal, ResponseOutcome::Served);
    }
    assert!(!board.signal_names().contains(&"constant_interval"), "{:?}", board.signal_names());
}

#[test]
fn unknown_features_are_not_missing_features() {
    // A log with neither headers nor referers, of a site with external images.
    let mut logged = SimulatedClient::new(CHROME, HeadersSeen::default());
    logged.usual.referer = Referer::Unknown;
    for _ in 0..400 {
        logged.open_page(Referer::Unknown);
    }
    assert!(logged.score_on(ExpectedBehavior::default()) <= 30, "{:?}", logged.signal_names());
}

#[test]
fn tls_only_headers_are_not_expected_on_plaintext() {
    let plain = HeadersSeen::INSPECTED
        .with(HeadersSeen::ACCEPT, true)
        .with(HeadersSeen::ENCODING, true)
        .with(HeadersSeen::LANGUAGE, true);
    let mut person = SimulatedClient::human(CHROME, plain);
    person.open_page(Referer::Internal);
    person.request(ResourceKind::Asset, Referer::Internal, ResponseOutcome::Served);
    assert_eq!(person.score(), 0, "{:?}", person.signal_names());
}

#[test]
fn fake_browser_is_detected_after_two_pages() {
    let mut script = SimulatedClient::new(
        CHROME,
        HeadersSeen::INSPECTED.with(HeadersSeen::ACCEPT, true).with(HeadersSeen::TLS, true),
    );
    script.open_page(Referer::Absent);
    script.open_page(Referer::Absent);
    assert!(script.score() >= THRESHOLD, "{} {:?}", script.score(), script.signal_names());
}

#[test]
fn script_with_browser_headers_is_detected_by_pace() {
    let mut timer = SimulatedClient::new(CHROME, WHOLE);
    let mut found_at = None;
    for page in 1..=50 {
        timer.now += Duration::from_secs(70);
        timer.page += 1;
        timer.request(ResourceKind::Page(timer.page), Referer::Absent, ResponseOutcome::Served);
        found_at = found_at.or((timer.score() >= THRESHOLD).then_some(page));
    }
    assert!(found_at.is_some_and(|page| page <= 12), "{found_at:?}");
}

#[test]
fn path_scanner_is_detected() {
    let mut scanner = SimulatedClient::new(BrowserTraits::default(), WHOLE);
    for _ in 0..20 {
        scanner.open_page(Referer::Absent);
    }
    let harmless = scanner.score();
    let mut scanner = SimulatedClient::new(BrowserTraits::default(), WHOLE);
    for page in 1..=20 {
        scanner.now += Duration::from_secs(1);
        scanner.request(ResourceKind::Page(page), Referer::Absent, ResponseOutcome::NotFound);
    }
    assert!(harmless < THRESHOLD && scanner.score() >= THRESHOLD, "{harmless} {:?}", scanner.signal_names());
    assert_eq!(scanner.signal_names()[0], "probing");
}

#[test]
fn honeypot_counts_unless_linked_from_another_site() {
    let mut crawler = SimulatedClient::new(CHROME, WHOLE);
    crawler.open_page(Referer::Absent);
    crawler.now += Duration::from_secs(5);
    crawler.request(ResourceKind::Honeypot, Referer::Absent, ResponseOutcome::NotFound);
    assert!(crawler.score() >= THRESHOLD);
    let mut person = SimulatedClient::new(CHROME, WHOLE);
    person.open_page(Referer::Absent);
    person.request(ResourceKind::Honeypot, Referer::External, ResponseOutcome::NotFound);
    assert!(!person.signal_names().contains(&"honeypot"));
}

#[test]
fn refused_requests_do_not_raise_the_score() {
    let mut refused = SimulatedClient::new(CHROME, WHOLE);
    for page in 1..=100 {
        refused.now += Duration::from_secs(1);
        refused.request(ResourceKind::Page(page), Referer::Absent, ResponseOutcome::Refused);
    }
    assert_eq!(refused.score(), 0);
}

#[test]
fn automated_network_makes_two_pages_suspicious() {
    let usual = SimulatedClient::new(CHROME, WHOLE).usual;
    let mut network = NetworkProfile::default();
    for client in 0..40_u64 {
        let page = RequestFeatures { aim: ResourceKind::Page(client as u16), ..usual };
        network.record(client << 59, &page, ResponseOutcome::Served, DAY);
    }
    let points = |visitor: &SimulatedClient, network| score(&visitor.habits, true, USUAL, || Some(network)).points;
    let mut rented = SimulatedClient::new(CHROME, WHOLE);
    rented.open_page(Referer::Absent);
    assert!(points(&rented, network) < THRESHOLD, "one page is not enough");
    rented.open_page(Referer::Absent);
    assert!(points(&rented, network) >= THRESHOLD);
    // A client with human behavior is not affected by its network, and soon clears it.
    let mut person = SimulatedClient::new(CHROME, WHOLE);
    person.open_page(Referer::Absent);
    person.request(ResourceKind::Asset, Referer::Internal, ResponseOutcome::Served);
    assert!(points(&person, network) < THRESHOLD);
    for _ in 0..4 {
        network.record(0, &RequestFeatures { aim: ResourceKind::Asset, ..usual }, ResponseOutcome::Served, DAY);
    }
    assert!(points(&rented, network) < THRESHOLD);
}

#[test]
fn baseline_is_learned_from_humanlike_clients() {
    let mut customs = SiteBaseline::default();
    let now = Timestamp::from_seconds(1_800_000_000);
    for _ in 0..4 {
        customs.record(BaselineSample::LoadsAssets, now, DAY);
    }
    assert_eq!(customs.expected(), ExpectedBehavior::default(), "too few samples");
    customs.record(BaselineSample::LoadsAssets, now, DAY);
    assert_eq!(customs.expected(), ExpectedBehavior { assets: 1.0, links: 0.0 });
    for _ in 0..5 {
        customs.record(BaselineSample::NoAssets, now, DAY);
    }
    assert_eq!(customs.expected(), ExpectedBehavior::default(), "half of the clients load no assets");
}

#[test]
fn client_contributes_to_the_baseline_once() {
    let mut person = SimulatedClient::new(CHROME, WHOLE);
    let mut heard = Vec::new();
    for page in 1..=9 {
        for (aim, referer) in [
            (ResourceKind::Page(page), Referer::Internal),
            (ResourceKind::Asset, Referer::Internal),
            (ResourceKind::Asset, Referer::Internal),
        ] {
            let sight = RequestFeatures { aim, referer, ..person.usual };
            heard.extend(person.habits.record(&sight, ResponseOutcome::Served, DAY));
        }
    }
    assert_eq!(heard, [BaselineSample::LoadsAssets, BaselineSample::SendsReferer]);
}

#[test]
fn resource_kind_is_derived_from_the_path() {
    let aim = |path| ResourceKind::of(&http::Method::GET, path, None, Some("/trap"));
    assert!(matches!(aim("/"), ResourceKind::Page(_)));
    assert!(matches!(aim("/item/42.html"), ResourceKind::Page(_)));
    assert!(matches!(aim("/v1.2/item"), ResourceKind::Page(_)));
    assert!(matches!(aim("/trapeze"), ResourceKind::Page(_)));
    assert_eq!(aim("/static/Main.3f2a.CSS"), ResourceKind::Asset);
    assert_eq!(aim("/favicon.ico"), ResourceKind::Other);
    assert_eq!(aim("/apple-touch-icon-120x120.png"), ResourceKind::Other);
    assert_eq!(aim("/robots.txt"), ResourceKind::Robots);
    assert_eq!((aim("/trap"), aim("/trap/1")), (ResourceKind::Honeypot, ResourceKind::Honeypot));
    assert_eq!(ResourceKind::of(&http::Method::POST, "/item/42", None, None), ResourceKind::Other);
    assert_ne!(
        ResourceKind::of(&http::Method::GET, "/s", Some("q=1"), None),
        ResourceKind::of(&http::Method::GET, "/s", Some("q=2"), None)
    );
}

#[test]
fn response_outcome_is_derived_from_the_status() {
    let of = |statuses: &[u16]| statuses.iter().map(|&status| ResponseOutcome::from_status(status)).collect::<Vec<_>>();
    assert_eq!(of(&[200, 206]), [ResponseOutcome::Served; 2]);
    assert_eq!(
        of(&[301, 304, 401, 403]),
        [ResponseOutcome::Redirected; 4],
        "a redirected or forbidden page is not missing"
    );
    assert_eq!(of(&[400, 404, 410]), [ResponseOutcome::NotFound; 3]);
    assert_eq!(of(&[429, 500, 503]), [ResponseOutcome::Refused; 3]);
}

#[test]
fn referer_of_the_same_domain_is_internal() {
    let of = |referer: &str, host| Referer::of(Some(referer.as_bytes()), host);
    assert_eq!(of("https://www.shop.example/a", "shop.example"), Referer::Internal);
    assert_eq!(of("https://Shop.Example:8443", "www.shop.example"), Referer::Internal);
    assert_eq!(of("https://search.example/", "shop.test"), Referer::External);
    assert_eq!(of("https://search.example/", ""), Referer::Internal, "a log without hosts");
    assert_eq!(of("about:blank", "shop.example"), Referer::External);
    assert_eq!(Referer::of(Some(b""), "shop.example"), Referer::Absent);
    assert_eq!(Referer::of(None, "shop.example"), Referer::Absent);
}

#[test]
fn headers_are_found_by_their_logged_name() {
    assert_eq!(WHOLE.names().count(), 7);
    for name in WHOLE.names() {
        assert!(HeadersSeen::from_name(name).is_some_and(|header| WHOLE.contains(header)), "{name}");
    }
    assert_eq!(HeadersSeen::from_name("cookie"), None);
}

fn any_features() -> impl Strategy<Value = (u64, u8, u16, u8, bool, ResponseOutcome)> {
    let outcome = prop_oneof![
        Just(ResponseOutcome::Refused),
        Just(ResponseOutcome::Served),
        Just(ResponseOutcome::Redirected),
        Just(ResponseOutcome::NotFound)
    ];
    (0..400_000_u64, 0..5_u8, 0..60_u16, 0..4_u8, any::<bool>(), outcome)
}

proptest! {
    #[test]
    fn numbered_pages_hash_to_distinct_values(
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
    fn score_is_bounded_and_decays(
        sights in proptest::collection::vec(any_features(), 1..120),
        back in any::<bool>(),
    ) {
        let mut visitor = SimulatedClient::new(CHROME, WHOLE);
        let mut latest = visitor.now;
        for (wait, aim, page, referer, costly, outcome) in sights {
            // A clock that is set back occasionally.
            visitor.now = if back && wait % 7 == 0 { visitor.now - Duration::from_secs(wait) } else { visitor.now + Duration::from_millis(wait) };
            latest = latest.max(visitor.now);
            visitor.usual.costly = costly;
            let aim = [ResourceKind::Page(page), ResourceKind::Asset, ResourceKind::Robots, ResourceKind::Honeypot, ResourceKind::Other][usize::from(aim)];
            let referer = [Referer::Unknown, Referer::Absent, Referer::External, Referer::Internal][usize::from(referer)];
            visitor.request(aim, referer, outcome);
            let most: u16 = Signal::ALL.iter().map(|signal| signal.max_points()).sum();
            prop_assert!(visitor.score() <= most);
        }
        let long_after = visitor.habits.decayed(latest + 14 * DAY, DAY);
        let left = score(&long_after, true, USUAL, || None);
        // The interval statistics do not decay, but are not enough alone.
        prop_assert!(left.points <= Signal::EvenPace.max_points() + 2, "{left:?}");
    }
}
