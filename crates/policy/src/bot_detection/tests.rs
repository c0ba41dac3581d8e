use super::*;
use crate::Timestamp;
use proptest::prelude::*;

mod sessions;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const THRESHOLD: u16 = 100;

/// Baseline of a site whose humans load images and send referers.
const TYPICAL_BEHAVIOR: ExpectedBehavior = ExpectedBehavior { assets: 1.0, links: 1.0, landings: 0.0 };

const CHROME: BrowserTraits = BrowserTraits {
    is_graphical: true,
    sends_language: true,
    sends_fetch: true,
    hints: ClientHints::Always(HintsBrand::Chrome),
    upgrade: UpgradeRequests::Always,
    sends_zstd: true,
    chromium_major: 142,
};

/// All headers of a browser that uses TLS.
const ALL_HEADERS: HeadersSeen = HeadersSeen::INSPECTED
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
    profile: ClientProfile,
    now: Timestamp,
    page: u16,
    features: RequestFeatures,
}

impl SimulatedClient {
    fn new(browser: BrowserTraits, headers: HeadersSeen) -> Self {
        let now = Timestamp::from_seconds(1_800_000_000);
        let features = RequestFeatures {
            at: now,
            browser,
            resource_kind: ResourceKind::Other,
            is_costly: true,
            referer: Referer::Absent,
            headers,
            session: None,
        };
        Self { profile: ClientProfile::default(), now, page: 0, features }
    }

    /// Creates a human client; its pages have irregular intervals.
    fn human(browser: BrowserTraits, headers: HeadersSeen) -> Self {
        Self::new(browser, headers)
    }

    fn request(&mut self, kind: ResourceKind, referer: Referer, outcome: ResponseOutcome) {
        let _ = self.profile.record(
            &RequestFeatures { at: self.now, resource_kind: kind, referer, ..self.features },
            outcome,
            DAY,
        );
    }

    fn open_page(&mut self, referer: Referer) {
        self.page += 1;
        let pause = [3, 41, 9, 130, 17, 2, 64][usize::from(self.page) % 7];
        self.now += Duration::from_secs(pause);
        self.request(ResourceKind::Page(self.page), referer, ResponseOutcome::Served);
    }

    fn score(&self) -> u16 {
        self.score_on(TYPICAL_BEHAVIOR)
    }

    fn score_on(&self, expected: ExpectedBehavior) -> u16 {
        score(
            &self.profile.decayed(self.now, DAY),
            self.features.browser.is_graphical,
            expected,
            || None,
            ObservedSession::default(),
        )
        .points
    }

    fn signal_names(&self) -> Vec<&'static str> {
        let result = score(
            &self.profile,
            self.features.browser.is_graphical,
            TYPICAL_BEHAVIOR,
            || None,
            ObservedSession::default(),
        );
        result.signals.into_iter().flatten().map(Signal::name).collect()
    }
}

#[test]
fn client_profile_has_the_expected_size() {
    assert_eq!(size_of::<ClientProfile>(), 88);
}

#[test]
fn no_single_signal_but_a_bare_name_reaches_the_threshold() {
    let decisive = Signal::ALL.into_iter().filter(|signal| signal.max_points() >= THRESHOLD);
    assert_eq!(decisive.collect::<Vec<_>>(), [Signal::NameOnly, Signal::BeyondPeople]);
    for (index, signal) in Signal::ALL.iter().enumerate() {
        assert_eq!(*signal as usize, index, "{}", signal.name());
    }
}

/// A browser on a connection without TLS, as a combined log shows it.
const PLAIN_HEADERS: HeadersSeen = HeadersSeen::INSPECTED
    .with(HeadersSeen::ACCEPT, true)
    .with(HeadersSeen::ENCODING, true)
    .with(HeadersSeen::LANGUAGE, true)
    .with(HeadersSeen::USER_AGENT, true);

#[test]
fn client_that_guesses_passwords_is_suspected() {
    let http_10 = PLAIN_HEADERS.with(HeadersSeen::HTTP_10, true);
    for (headers, interval) in [
        (PLAIN_HEADERS, Duration::from_millis(240)),
        (PLAIN_HEADERS, Duration::from_secs(5)),
        (http_10, Duration::from_millis(240)),
        (http_10, Duration::from_secs(20)),
    ] {
        let mut client = SimulatedClient::new(CHROME, headers);
        for _ in 0..60 {
            client.now += interval;
            client.request(ResourceKind::Form(7), Referer::Absent, ResponseOutcome::Served);
        }
        assert!(client.score() >= THRESHOLD, "{interval:?} {} {:?}", client.score(), client.signal_names());
        assert_eq!(client.signal_names()[0], "repeated_posts");
    }
}

#[test]
fn forms_of_people_are_not_suspected() {
    let submit = |client: &mut SimulatedClient, referer| {
        client.now += Duration::from_millis(300);
        client.request(ResourceKind::Form(7), referer, ResponseOutcome::Served);
    };
    let mut app_user = SimulatedClient::human(CHROME, ALL_HEADERS);
    app_user.open_page(Referer::Absent);
    (0..20).for_each(|_| app_user.request(ResourceKind::Asset, Referer::Absent, ResponseOutcome::Served));
    (0..300).for_each(|_| submit(&mut app_user, Referer::Absent));
    let mut chat_user = SimulatedClient::human(CHROME, ALL_HEADERS);
    (0..1000).for_each(|_| submit(&mut chat_user, Referer::Internal));
    let mut widget_user = SimulatedClient::human(CHROME, ALL_HEADERS);
    (0..1000).for_each(|_| submit(&mut widget_user, Referer::External));
    for client in [&app_user, &chat_user, &widget_user] {
        assert!(client.score() < THRESHOLD, "{} {:?}", client.score(), client.signal_names());
    }
    let mut api_user = SimulatedClient::human(CHROME, ALL_HEADERS);
    (0..1000).for_each(|_| submit(&mut api_user, Referer::Absent));
    let without_pages = ExpectedBehavior::default();
    assert!(api_user.score_on(without_pages) < THRESHOLD, "this site has no baseline of referers");
}

#[test]
fn human_reading_all_day_is_not_suspected() {
    let mut client = SimulatedClient::human(CHROME, ALL_HEADERS);
    for _ in 0..400 {
        client.open_page(Referer::Internal);
        client.request(ResourceKind::Asset, Referer::Internal, ResponseOutcome::Served);
        assert!(client.score() <= 30, "{:?}", client.signal_names());
    }
}

#[test]
fn browser_without_referer_is_not_suspected() {
    let mut client = SimulatedClient::human(CHROME, ALL_HEADERS);
    for _ in 0..400 {
        client.open_page(Referer::Absent);
        client.request(ResourceKind::Asset, Referer::Absent, ResponseOutcome::Served);
        assert!(client.score() < THRESHOLD, "{:?}", client.signal_names());
    }
}

#[test]
fn human_without_images_is_not_suspected() {
    let mut client = SimulatedClient::human(CHROME, ALL_HEADERS);
    for _ in 0..400 {
        client.open_page(Referer::Internal);
        assert!(client.score() < THRESHOLD, "{:?}", client.signal_names());
    }
}

#[test]
fn text_browser_without_referer_is_not_suspected() {
    let mut client =
        SimulatedClient::human(BrowserTraits::default(), HeadersSeen::INSPECTED.with(HeadersSeen::HTTP_10, true));
    for _ in 0..30 {
        client.open_page(Referer::Absent);
        assert!(client.score() < THRESHOLD, "{:?}", client.signal_names());
    }
}

#[test]
fn a_hundred_costly_pages_and_nothing_else_are_suspected_whatever_the_browser() {
    let first_suspected = |load: &dyn Fn(&mut SimulatedClient), expected| {
        let mut client = SimulatedClient::new(BrowserTraits::default(), HeadersSeen::INSPECTED);
        (1..=2400).find(|_| {
            load(&mut client);
            client.score_on(expected) >= THRESHOLD
        })
    };
    let bare = |client: &mut SimulatedClient| client.open_page(Referer::Absent);
    let at = first_suspected(&bare, TYPICAL_BEHAVIOR).expect("suspected");
    assert!((80..=130).contains(&at), "{at}");
    assert_eq!(first_suspected(&bare, ExpectedBehavior::default()), None, "people of this site may send no referers");
    let reader = |client: &mut SimulatedClient| client.open_page(Referer::Internal);
    assert_eq!(first_suspected(&reader, TYPICAL_BEHAVIOR), None, "a text browser that follows links");
    let private = |client: &mut SimulatedClient| {
        client.open_page(Referer::Absent);
        client.request(ResourceKind::Asset, Referer::Absent, ResponseOutcome::Served);
    };
    assert_eq!(first_suspected(&private, TYPICAL_BEHAVIOR), None, "a reader who hides referers");
}

#[test]
fn feed_reader_page_views_are_not_suspected() {
    // All assets are in the browser's cache, and a feed reader opens the pages.
    let mut client = SimulatedClient::human(CHROME, ALL_HEADERS);
    for _ in 0..100 {
        client.open_page(Referer::Absent);
        client.now += Duration::from_secs(3600 * [1, 9, 2, 14, 3][usize::from(client.page) % 5]);
        assert!(client.score() < THRESHOLD, "{:?}", client.signal_names());
    }
}

#[test]
fn header_stripping_proxy_stays_below_the_threshold() {
    let mut client = SimulatedClient::human(CHROME, HeadersSeen::INSPECTED.with(HeadersSeen::TLS, true));
    for _ in 0..100 {
        client.open_page(Referer::Internal);
        client.request(ResourceKind::Asset, Referer::Internal, ResponseOutcome::Served);
        assert!((50..THRESHOLD).contains(&client.score()), "{} {:?}", client.score(), client.signal_names());
    }
}

#[test]
fn header_stripping_proxy_with_image_cache_is_tolerated() {
    let mut client = SimulatedClient::human(
        CHROME,
        HeadersSeen::INSPECTED.with(HeadersSeen::TLS, true).with(HeadersSeen::ACCEPT, true),
    );
    for _ in 0..400 {
        client.open_page(Referer::Internal);
        assert!(client.score() < THRESHOLD, "{} {:?}", client.score(), client.signal_names());
    }
}

#[test]
fn background_fetches_are_not_counted_as_pages() {
    let mut client = SimulatedClient::human(CHROME, ALL_HEADERS);
    client.open_page(Referer::Absent);
    for _ in 0..5 {
        client.request(ResourceKind::Asset, Referer::Internal, ResponseOutcome::Served);
    }
    client.features.headers = HeadersSeen::INSPECTED
        .with(HeadersSeen::TLS, true)
        .with(HeadersSeen::LANGUAGE, true)
        .with(HeadersSeen::FETCH, true);
    for page in 0..2000 {
        client.now += Duration::from_secs(5);
        client.request(ResourceKind::Page(page), Referer::Internal, ResponseOutcome::Served);
        assert!(client.score() < THRESHOLD / 2, "{} {:?}", client.score(), client.signal_names());
    }
}

#[test]
fn script_copying_a_background_fetch_is_detected() {
    let headers = HeadersSeen::INSPECTED
        .with(HeadersSeen::TLS, true)
        .with(HeadersSeen::LANGUAGE, true)
        .with(HeadersSeen::FETCH, true);
    let mut client = SimulatedClient::new(CHROME, headers);
    for page in 0..50 {
        client.now += Duration::from_secs(2);
        client.request(ResourceKind::Page(page), Referer::Internal, ResponseOutcome::Served);
    }
    assert!(client.score() >= THRESHOLD, "no assets were loaded: {:?}", client.signal_names());
}

#[test]
fn simultaneous_page_loads_behind_nat_are_not_suspected() {
    let mut client = SimulatedClient::new(CHROME, ALL_HEADERS);
    for page in 1..=100 {
        client.now += Duration::from_millis(15);
        client.request(ResourceKind::Page(page), Referer::Absent, ResponseOutcome::Served);
        assert!(client.score() < THRESHOLD, "{} {:?}", client.score(), client.signal_names());
    }
    let initial_score = client.score();
    client.now += Duration::from_secs(10);
    assert!(client.score() >= THRESHOLD && initial_score < THRESHOLD, "no assets were loaded in time");
}

#[test]
fn self_refreshing_page_gives_no_even_pace() {
    let mut client = SimulatedClient::new(CHROME, ALL_HEADERS);
    for _ in 0..200 {
        client.now += Duration::from_secs(30);
        client.request(ResourceKind::Page(7), Referer::Internal, ResponseOutcome::Served);
    }
    assert!(!client.signal_names().contains(&"constant_interval"), "{:?}", client.signal_names());
}

#[test]
fn unknown_features_are_not_missing_features() {
    // A log with neither headers nor referers, of a site with external images.
    let mut client = SimulatedClient::new(CHROME, HeadersSeen::default());
    client.features.referer = Referer::Unknown;
    for _ in 0..400 {
        client.open_page(Referer::Unknown);
    }
    assert!(client.score_on(ExpectedBehavior::default()) <= 30, "{:?}", client.signal_names());
}

#[test]
fn tls_only_headers_are_not_expected_on_plaintext() {
    let headers = HeadersSeen::INSPECTED
        .with(HeadersSeen::ACCEPT, true)
        .with(HeadersSeen::ENCODING, true)
        .with(HeadersSeen::LANGUAGE, true);
    let mut client = SimulatedClient::human(CHROME, headers);
    client.open_page(Referer::Internal);
    client.request(ResourceKind::Asset, Referer::Internal, ResponseOutcome::Served);
    assert_eq!(client.score(), 0, "{:?}", client.signal_names());
}

#[test]
fn fake_browser_is_detected_after_two_pages() {
    let mut client = SimulatedClient::new(
        CHROME,
        HeadersSeen::INSPECTED.with(HeadersSeen::ACCEPT, true).with(HeadersSeen::TLS, true),
    );
    client.open_page(Referer::Absent);
    client.open_page(Referer::Absent);
    assert!(client.score() >= THRESHOLD, "{} {:?}", client.score(), client.signal_names());
}

/// Returns the points of a client's first request, of a page.
fn first_points(browser: BrowserTraits, headers: HeadersSeen, referer: Referer) -> u16 {
    let client = SimulatedClient::new(browser, headers);
    let request = RequestFeatures { resource_kind: ResourceKind::Page(1), referer, ..client.features };
    let profile = ClientProfile::with_request(None, &request);
    profile.map_or(0, |profile| {
        score(&profile, browser.is_graphical, TYPICAL_BEHAVIOR, || None, ObservedSession::default()).points
    })
}

const FIREFOX: BrowserTraits = BrowserTraits { hints: ClientHints::Never, chromium_major: 0, ..CHROME };
const SAFARI: BrowserTraits = BrowserTraits { upgrade: UpgradeRequests::WithoutTls, sends_zstd: false, ..FIREFOX };

#[test]
fn name_of_a_browser_and_nothing_else_is_suspected_at_once() {
    let secure = PLAIN_HEADERS.with(HeadersSeen::TLS, true);
    let bare = HeadersSeen::INSPECTED.with(HeadersSeen::USER_AGENT, true);
    let proxied = secure.with(HeadersSeen::UPGRADE, true);
    for (name, browser, headers, is_suspected) in [
        ("a library with the fields of all clients", CHROME, secure, true),
        ("the same as Firefox", FIREFOX, secure, true),
        ("a library without fields", CHROME, bare.with(HeadersSeen::TLS, true), true),
        ("the same as Safari", SAFARI, bare.with(HeadersSeen::TLS, true), true),
        ("without TLS, where browsers add little", CHROME, bare, false),
        ("Chrome behind a proxy that removes what it does not know", CHROME, proxied, false),
        ("Firefox behind it", FIREFOX, proxied, false),
        ("Safari behind it", SAFARI, secure, false),
        ("Chrome", CHROME, ALL_HEADERS, false),
        ("Chrome without TLS", CHROME, PLAIN_HEADERS.with(HeadersSeen::UPGRADE, true), false),
        ("a fetch of a page without TLS", CHROME, PLAIN_HEADERS, false),
        ("a log without headers", CHROME, HeadersSeen::default(), false),
        ("an unknown browser", BrowserTraits::default(), bare, false),
    ] {
        let points = first_points(browser, headers, Referer::Absent);
        assert_eq!(points >= THRESHOLD, is_suspected, "{name}: {points}");
    }
    // Who loads assets and follows links shows more than header fields do.
    let mut reader = SimulatedClient::human(CHROME, secure);
    reader.open_page(Referer::External);
    reader.request(ResourceKind::Asset, Referer::Internal, ResponseOutcome::Served);
    reader.open_page(Referer::Internal);
    assert!(reader.score() < THRESHOLD, "{} {:?}", reader.score(), reader.signal_names());
}

#[test]
fn values_of_headers_that_no_browser_sends_together_count_once_each() {
    let of_other_version = ALL_HEADERS.with_hints_major(136);
    let typed_link = |headers: HeadersSeen| headers.with_fetch(Some(FetchMode::Navigate), Some(FetchSite::None));
    assert_eq!(first_points(CHROME, ALL_HEADERS.with_hints_major(142), Referer::Absent), 0);
    assert_eq!(first_points(CHROME, of_other_version, Referer::Absent), Signal::HintsVersion.max_points());
    assert_eq!(first_points(CHROME, typed_link(ALL_HEADERS), Referer::External), Signal::FetchSite.max_points());
    assert_eq!(first_points(CHROME, typed_link(ALL_HEADERS), Referer::Absent), 0);
    assert!(first_points(CHROME, typed_link(of_other_version), Referer::Internal) >= THRESHOLD);
}

#[test]
fn brand_and_encoding_of_another_browser_count() {
    let branded = |brand| ALL_HEADERS.with_hints_major(142).with_hints_brand(Some(brand));
    let edge = BrowserTraits { hints: ClientHints::Always(HintsBrand::Edge), ..CHROME };
    for (browser, brand, points) in [
        (CHROME, HintsBrand::Chrome, 0),
        (edge, HintsBrand::Edge, 0),
        (CHROME, HintsBrand::Headless, Signal::HintsVersion.max_points()),
        (CHROME, HintsBrand::Edge, Signal::HintsVersion.max_points()),
        (edge, HintsBrand::Chrome, Signal::HintsVersion.max_points()),
    ] {
        assert_eq!(first_points(browser, branded(brand), Referer::Absent), points, "{brand:?}");
    }
    let old_encodings = ALL_HEADERS.with(HeadersSeen::NO_ZSTD, true);
    assert_eq!(first_points(CHROME, old_encodings, Referer::Absent), Signal::MissingAccept.max_points());
    let older = BrowserTraits { sends_zstd: false, ..CHROME };
    assert_eq!(first_points(older, old_encodings, Referer::Absent), 0);
    // A proxy that looks into the connection and offers what it can read changes no verdict.
    let mut reader = SimulatedClient::human(CHROME, old_encodings);
    for _ in 0..100 {
        reader.open_page(Referer::Absent);
        reader.request(ResourceKind::Asset, Referer::Absent, ResponseOutcome::Served);
        assert!(reader.score() < THRESHOLD, "{} {:?}", reader.score(), reader.signal_names());
    }
}

#[test]
fn missing_referer_counts_once() {
    let linked = ALL_HEADERS.with_fetch(Some(FetchMode::Navigate), Some(FetchSite::SameOrigin));
    let third = Signal::FetchSite.max_points() / 3;
    assert!((third - 1..=third).contains(&first_points(CHROME, linked, Referer::Absent)));
    assert_eq!(first_points(CHROME, linked, Referer::Internal), 0);
    assert_eq!(first_points(CHROME, linked, Referer::Unknown), 0);
    let fetched = ALL_HEADERS.with_fetch(Some(FetchMode::Subresource), Some(FetchSite::SameOrigin));
    assert_eq!(first_points(CHROME, fetched, Referer::Absent), 0);
    // An extension removes the referers, and images are off.
    let mut reader = SimulatedClient::human(CHROME, linked);
    let mut without_site = SimulatedClient::human(CHROME, ALL_HEADERS);
    for page in 0..15 {
        reader.open_page(Referer::Absent);
        without_site.open_page(Referer::Absent);
        assert!(reader.score() < THRESHOLD, "{} {:?}", reader.score(), reader.signal_names());
        assert!(page < 1 || reader.score() == without_site.score(), "{:?}", reader.signal_names());
    }
    // The site forbids referers, so that nobody sends any.
    let without_referers = ExpectedBehavior { assets: 1.0, links: 0.0, ..ExpectedBehavior::default() };
    assert_eq!(reader.score_on(without_referers), without_site.score_on(without_referers));
}

#[test]
fn brand_is_read_from_the_quoted_names() {
    for (value, brand) in [
        (&br#""Chromium";v="142", "Google Chrome";v="142", "Not_A Brand";v="99""#[..], Some(HintsBrand::Chrome)),
        (br#""Not_A Brand";v="99", "Microsoft Edge";v="142", "Chromium";v="142""#, Some(HintsBrand::Edge)),
        (br#""Microsoft Edge WebView2";v="142", "Microsoft Edge";v="142", "Chromium";v="142""#, Some(HintsBrand::Edge)),
        (br#""HeadlessChrome";v="142", "Chromium";v="142""#, Some(HintsBrand::Headless)),
        (br#""Brave";v="142", "Chromium";v="142""#, None),
        (br#""Not Google Chrome at all";v="1""#, None),
        (b"", None),
        (b"\"Google Chrome", None),
    ] {
        assert_eq!(HintsBrand::from_value(value), brand, "{}", String::from_utf8_lossy(value));
    }
}

#[test]
fn links_of_safari_are_no_background_fetches() {
    let without = |headers: HeadersSeen, removed: HeadersSeen| HeadersSeen::from_bits(headers.bits() & !removed.bits());
    let silent = without(ALL_HEADERS, HeadersSeen::UPGRADE.with(HeadersSeen::HINTS, true));
    let fetched = silent.with_fetch(Some(FetchMode::Subresource), Some(FetchSite::SameOrigin));
    let navigated = silent.with_fetch(Some(FetchMode::Navigate), Some(FetchSite::SameOrigin));
    let plain = without(silent, HeadersSeen::TLS);
    for (name, browser, headers, is_background) in [
        ("a link in Safari, of a log without values", SAFARI, silent, false),
        ("a link in Safari", SAFARI, navigated, false),
        ("a fetch in Safari", SAFARI, fetched, true),
        ("a link in Safari without TLS", SAFARI, plain.with(HeadersSeen::UPGRADE, true), false),
        ("a fetch in Safari without TLS", SAFARI, plain, true),
        ("a fetch in Firefox", FIREFOX, silent, true),
        ("a link in Firefox", FIREFOX, silent.with(HeadersSeen::UPGRADE, true), false),
        ("a program with a forged referer", FIREFOX, without(silent, HeadersSeen::FETCH), false),
    ] {
        let client = SimulatedClient::new(browser, headers);
        let request = RequestFeatures { referer: Referer::Internal, ..client.features };
        assert_eq!(request.is_background_fetch(), is_background, "{name}");
    }
}

#[test]
fn script_with_browser_headers_is_detected_by_pace() {
    let mut client = SimulatedClient::new(CHROME, ALL_HEADERS);
    let mut detected_at = None;
    for page in 1..=50 {
        client.now += Duration::from_secs(70);
        client.page += 1;
        client.request(ResourceKind::Page(client.page), Referer::Absent, ResponseOutcome::Served);
        detected_at = detected_at.or((client.score() >= THRESHOLD).then_some(page));
    }
    assert!(detected_at.is_some_and(|page| page <= 12), "{detected_at:?}");
}

#[test]
fn client_that_is_faster_than_readers_is_detected_without_a_baseline() {
    let points = |pages_per_second: u64, pages: u64, headers| {
        let mut client = SimulatedClient::new(CHROME, headers);
        for _ in 0..pages {
            client.now += Duration::from_millis(1000 / pages_per_second);
            client.page += 1;
            client.request(ResourceKind::Page(client.page), Referer::Absent, ResponseOutcome::Served);
        }
        client.score_on(ExpectedBehavior::default())
    };
    assert!(points(20, 60, HeadersSeen::INSPECTED) >= THRESHOLD);
    assert!(points(20, 40, HeadersSeen::INSPECTED) < THRESHOLD, "tabs opened at once");
    assert!(points(20, 2000, ALL_HEADERS) < THRESHOLD, "speed and costs alone");
}

#[test]
fn human_who_opens_many_tabs_at_once_is_not_suspected() {
    let mut client = SimulatedClient::human(CHROME, ALL_HEADERS);
    for _ in 0..80 {
        client.now += Duration::from_millis(200);
        client.page += 1;
        client.request(ResourceKind::Page(client.page), Referer::Internal, ResponseOutcome::Served);
    }
    (0..160).for_each(|_| client.request(ResourceKind::Asset, Referer::Internal, ResponseOutcome::Served));
    assert_eq!(client.score(), 0, "{:?}", client.signal_names());
}

#[test]
fn path_scanner_is_detected() {
    let mut client = SimulatedClient::new(BrowserTraits::default(), ALL_HEADERS);
    for _ in 0..20 {
        client.open_page(Referer::Absent);
    }
    let served_score = client.score();
    let mut client = SimulatedClient::new(BrowserTraits::default(), ALL_HEADERS);
    for page in 1..=20 {
        client.now += Duration::from_secs(1);
        client.request(ResourceKind::Page(page), Referer::Absent, ResponseOutcome::NotFound);
    }
    assert!(served_score < THRESHOLD && client.score() >= THRESHOLD, "{served_score} {:?}", client.signal_names());
    assert_eq!(client.signal_names()[0], "probing");
}

#[test]
fn honeypot_counts_unless_linked_from_another_site() {
    let mut bot = SimulatedClient::new(CHROME, ALL_HEADERS);
    bot.open_page(Referer::Absent);
    bot.now += Duration::from_secs(5);
    bot.request(ResourceKind::Honeypot, Referer::Absent, ResponseOutcome::NotFound);
    assert!(bot.score() >= THRESHOLD);
    let mut human = SimulatedClient::new(CHROME, ALL_HEADERS);
    human.open_page(Referer::Absent);
    human.request(ResourceKind::Honeypot, Referer::External, ResponseOutcome::NotFound);
    assert!(!human.signal_names().contains(&"honeypot"));
}

#[test]
fn refused_requests_do_not_raise_the_score() {
    let mut client = SimulatedClient::new(CHROME, ALL_HEADERS);
    for page in 1..=100 {
        client.now += Duration::from_secs(1);
        client.request(ResourceKind::Page(page), Referer::Absent, ResponseOutcome::Refused);
    }
    assert_eq!(client.score(), 0);
}

/// A network, and its clients in the order of their addresses.
#[derive(Default)]
struct SimulatedNetwork {
    profile: NetworkProfile,
    now: Timestamp,
}

impl SimulatedNetwork {
    /// Records a visit of a new client: its requests, one a second.
    fn visit(&mut self, address: u64, requests: &[(ResourceKind, Referer)]) {
        let mut client = SimulatedClient::new(CHROME, ALL_HEADERS);
        self.now = self.now.max(client.now);
        for &(resource_kind, referer) in requests {
            self.now += Duration::from_secs(1);
            let features = RequestFeatures { at: self.now, resource_kind, referer, ..client.features };
            let recorded = client.profile.record(&features, ResponseOutcome::Served, DAY);
            self.profile.record(address << 59, recorded.visit, self.now, DAY);
        }
    }

    /// Records visits of one page without anything else, each from another address.
    fn bare_visits(&mut self, addresses: std::ops::Range<u64>) {
        addresses.for_each(|address| self.visit(address, &[(ResourceKind::Page(1), Referer::Absent)]));
        self.now += Duration::from_secs(121);
    }

    fn people(&mut self, addresses: std::ops::Range<u64>) {
        let requests = [
            (ResourceKind::Page(1), Referer::External),
            (ResourceKind::Asset, Referer::Internal),
            (ResourceKind::Page(2), Referer::Internal),
        ];
        addresses.for_each(|address| self.visit(address, &requests));
    }

    fn points(&self, client: &SimulatedClient, expected: ExpectedBehavior) -> u16 {
        score(&client.profile, true, expected, || Some(self.profile.decayed(self.now, DAY)), ObservedSession::default())
            .points
    }
}

/// Returns a client that has loaded that many pages, and nothing else.
fn client_with_pages(count: u16) -> SimulatedClient {
    let mut client = SimulatedClient::new(CHROME, ALL_HEADERS);
    (0..count).for_each(|_| client.open_page(Referer::Absent));
    client
}

#[test]
fn bare_visits_of_a_network_make_two_pages_suspicious() {
    let mut network = SimulatedNetwork::default();
    network.bare_visits(0..20);
    let points = |client: &SimulatedClient| network.points(client, TYPICAL_BEHAVIOR);
    assert!(points(&client_with_pages(1)) < THRESHOLD, "one page is not enough");
    assert!(points(&client_with_pages(2)) >= THRESHOLD);
    let unknown_site = network.points(&client_with_pages(2), ExpectedBehavior::default());
    assert!(unknown_site < 60, "people may load assets elsewhere, and send no referers");
}

#[test]
fn a_person_in_an_automated_network_is_not_suspected() {
    let mut network = SimulatedNetwork::default();
    network.bare_visits(0..32);
    let mut person = SimulatedClient::new(CHROME, ALL_HEADERS);
    person.open_page(Referer::External);
    assert!(network.points(&person, TYPICAL_BEHAVIOR) < THRESHOLD);
    for _ in 0..100 {
        person.request(ResourceKind::Asset, Referer::Internal, ResponseOutcome::Served);
        assert!(network.points(&person, TYPICAL_BEHAVIOR) < THRESHOLD / 2);
        person.open_page(Referer::Internal);
        assert!(network.points(&person, TYPICAL_BEHAVIOR) < THRESHOLD / 2);
    }
}

#[test]
fn a_network_is_judged_by_its_visits() {
    let is_automated =
        |network: &SimulatedNetwork| network.points(&client_with_pages(2), TYPICAL_BEHAVIOR) >= THRESHOLD;
    for (people, bare, expected) in
        [(0, 5, false), (0, 9, true), (1, 9, true), (2, 10, true), (2, 16, true), (3, 9, false), (8, 32, false)]
    {
        let mut network = SimulatedNetwork::default();
        network.bare_visits(0..bare);
        network.people(0..people);
        assert_eq!(is_automated(&network), expected, "{people} people, {bare} bare visits");
    }
}

#[test]
fn one_address_neither_suspects_nor_clears_its_network() {
    // A bare page an hour for a week, and a visit of a person.
    let client = client_with_pages(2);
    let mut forged = SimulatedNetwork::default();
    for _ in 0..7 * 24 {
        forged.now += Duration::from_secs(3600 - 121);
        forged.bare_visits(7..8);
        assert!(forged.points(&client, TYPICAL_BEHAVIOR) < THRESHOLD);
    }
    let mut cleared = SimulatedNetwork::default();
    for _ in 0..7 * 24 {
        cleared.now += Duration::from_secs(3600 - 121);
        cleared.people(25..26);
        cleared.bare_visits(0..20);
        assert!(cleared.points(&client, TYPICAL_BEHAVIOR) >= THRESHOLD);
    }
}

#[test]
fn one_address_counts_one_visit_an_hour() {
    let mut forged = SimulatedNetwork::default();
    (0..1000).for_each(|_| forged.visit(7, &[(ResourceKind::Page(1), Referer::Absent)]));
    forged.now += Duration::from_secs(121);
    let mut single = SimulatedNetwork::default();
    single.bare_visits(7..8);
    let client = client_with_pages(2);
    assert_eq!(forged.points(&client, TYPICAL_BEHAVIOR), single.points(&client, TYPICAL_BEHAVIOR));
    // Nor can it clear a network of scrapers: people behind it count once, too, and take nothing back of other addresses.
    let mut network = SimulatedNetwork::default();
    network.bare_visits(0..20);
    (0..1000).for_each(|_| network.people(25..26));
    assert!(network.points(&client, TYPICAL_BEHAVIOR) >= THRESHOLD);
}

#[test]
fn people_whose_pages_are_still_loading_make_no_bare_network() {
    let mut network = SimulatedNetwork::default();
    let mut clients: Vec<SimulatedClient> = (0..30).map(|_| SimulatedClient::new(CHROME, ALL_HEADERS)).collect();
    let mut record = |client: &mut SimulatedClient, address: u64, now, kind| {
        let features = RequestFeatures { at: now, resource_kind: kind, ..client.features };
        let recorded = client.profile.record(&features, ResponseOutcome::Served, DAY);
        network.profile.record(address << 59, recorded.visit, now, DAY);
        network.now = now;
        let other = client_with_pages(2);
        assert!(network.points(&other, TYPICAL_BEHAVIOR) < THRESHOLD);
    };
    let start = clients[0].now;
    for (address, client) in clients.iter_mut().enumerate() {
        record(client, address as u64, start + Duration::from_secs(address as u64), ResourceKind::Page(1));
    }
    for (address, client) in clients.iter_mut().enumerate() {
        record(client, address as u64, start + Duration::from_secs(40 + address as u64), ResourceKind::Asset);
    }
    record(&mut SimulatedClient::new(CHROME, ALL_HEADERS), 31, start + Duration::from_secs(300), ResourceKind::Asset);
}

#[test]
fn own_bare_visits_make_nobody_suspected_by_its_network() {
    // A reader who opens a page of a list each hour, with all assets in the cache.
    let (mut client, mut network) = (SimulatedClient::new(CHROME, ALL_HEADERS), SimulatedNetwork::default());
    for hour in 0..100 {
        client.now += Duration::from_secs(3600);
        let page = ResourceKind::Page(hour);
        let features = RequestFeatures { at: client.now, resource_kind: page, ..client.features };
        let recorded = client.profile.record(&features, ResponseOutcome::Served, DAY);
        network.profile.record(3 << 59, recorded.visit, client.now, DAY);
        network.now = client.now + Duration::from_secs(121);
        let score = score(
            &client.profile,
            true,
            TYPICAL_BEHAVIOR,
            || Some(network.profile.decayed(network.now, DAY)),
            ObservedSession::default(),
        );
        assert!(!score.signals.contains(&Some(Signal::Network)), "{hour}: {score:?}");
    }
}

#[test]
fn baseline_is_learned_from_humanlike_clients() {
    let mut baseline = SiteBaseline::default();
    let now = Timestamp::from_seconds(1_800_000_000);
    for _ in 0..4 {
        baseline.record(BaselineSample::LoadsAssets, now, DAY);
    }
    assert_eq!(baseline.expected(), ExpectedBehavior::default(), "too few samples");
    baseline.record(BaselineSample::LoadsAssets, now, DAY);
    assert_eq!(baseline.expected(), ExpectedBehavior { assets: 1.0, ..ExpectedBehavior::default() });
    for _ in 0..5 {
        baseline.record(BaselineSample::NoAssets, now, DAY);
    }
    assert_eq!(baseline.expected(), ExpectedBehavior::default(), "half of the clients load no assets");
}

#[test]
fn restored_baseline_keeps_a_weight_that_a_few_clients_outvote() {
    let now = Timestamp::from_seconds(1_800_000_000);
    let mut busy = SiteBaseline::default();
    (0..100).for_each(|_| busy.record(BaselineSample::LoadsAssets, now, DAY));
    (0..3).for_each(|_| busy.record(BaselineSample::SendsReferer, now, DAY));
    let learned = busy.learned();
    assert_eq!((learned.assets.samples(), learned.links.samples(), learned.updated_at), (100.0, 3.0, now));
    assert!(!learned.is_empty() && LearnedBaseline::default().is_empty());

    let after = |days: u32| SiteBaseline::restore(&learned, now + DAY * days, DAY).learned();
    assert_eq!([0, 1, 2, 9].map(|days| after(days).assets.present), [100.0, 50.0, 25.0, 20.0]);
    assert_eq!(after(9).links.present, 3.0, "fewer samples keep their weight");
    assert_eq!(learned.with_least_weight().assets.present, 20.0);

    let mut restored = SiteBaseline::restore(&learned, now + DAY * 9, DAY);
    assert_eq!(restored.expected(), ExpectedBehavior { assets: 1.0, ..ExpectedBehavior::default() });
    (0..11).for_each(|_| restored.record(BaselineSample::NoAssets, now + DAY * 9, DAY));
    assert_eq!(restored.expected(), ExpectedBehavior::default(), "the site now serves assets elsewhere");
    let set_back = SiteBaseline::restore(&learned, now - DAY, DAY).learned();
    assert_eq!(set_back.assets.present, 100.0, "a clock set back decays nothing");
}

#[test]
fn client_contributes_to_the_baseline_once() {
    let mut client = SimulatedClient::new(CHROME, ALL_HEADERS);
    let mut samples = Vec::new();
    for page in 1..=9 {
        for (kind, referer) in [
            (ResourceKind::Page(page), Referer::Internal),
            (ResourceKind::Asset, Referer::Internal),
            (ResourceKind::Asset, Referer::Internal),
        ] {
            let features = RequestFeatures { resource_kind: kind, referer, ..client.features };
            samples.extend(client.profile.record(&features, ResponseOutcome::Served, DAY).sample);
        }
    }
    assert_eq!(samples, [BaselineSample::LoadsAssets, BaselineSample::SendsReferer]);
}

#[test]
fn resource_kind_is_derived_from_the_path() {
    let kind = |path| ResourceKind::from_request(&http::Method::GET, path, None, Some("/trap"));
    assert!(matches!(kind("/"), ResourceKind::Page(_)));
    assert!(matches!(kind("/item/42.html"), ResourceKind::Page(_)));
    assert!(matches!(kind("/v1.2/item"), ResourceKind::Page(_)));
    assert!(matches!(kind("/trapeze"), ResourceKind::Page(_)));
    assert_eq!(kind("/static/Main.3f2a.CSS"), ResourceKind::Asset);
    assert_eq!(kind("/favicon.ico"), ResourceKind::Other);
    assert_eq!(kind("/apple-touch-icon-120x120.png"), ResourceKind::Other);
    assert_eq!(kind("/robots.txt"), ResourceKind::Robots);
    assert_eq!((kind("/trap"), kind("/trap/1")), (ResourceKind::Honeypot, ResourceKind::Honeypot));
    let kind_of = |method: http::Method, path: &str| ResourceKind::from_request(&method, path, Some("q=1"), None);
    assert_eq!(kind_of(http::Method::OPTIONS, "/item/42"), ResourceKind::Other);
    assert_eq!(kind_of(http::Method::HEAD, "/item/42"), kind_of(http::Method::GET, "/item/42"));
    let ResourceKind::Form(path) = kind_of(http::Method::POST, "/login.css") else {
        panic!("a form, whatever its path")
    };
    assert_eq!(kind_of(http::Method::PUT, "/login.css"), ResourceKind::Form(path));
    assert_ne!(
        ResourceKind::from_request(&http::Method::GET, "/s", Some("q=1"), None),
        ResourceKind::from_request(&http::Method::GET, "/s", Some("q=2"), None)
    );
}

#[test]
fn response_outcome_is_derived_from_the_status() {
    let outcomes =
        |statuses: &[u16]| statuses.iter().map(|&status| ResponseOutcome::from_status(status)).collect::<Vec<_>>();
    assert_eq!(outcomes(&[200, 206]), [ResponseOutcome::Served; 2]);
    assert_eq!(
        outcomes(&[301, 304, 401, 403]),
        [ResponseOutcome::Redirected; 4],
        "a redirected or forbidden page is not missing"
    );
    assert_eq!(outcomes(&[400, 404, 410]), [ResponseOutcome::NotFound; 3]);
    assert_eq!(outcomes(&[429, 500, 503]), [ResponseOutcome::Refused; 3]);
}

#[test]
fn referer_of_the_same_domain_is_internal() {
    let classify = |referer: &str, host| Referer::from_header(Some(referer.as_bytes()), host);
    assert_eq!(classify("https://www.shop.example/a", "shop.example"), Referer::Internal);
    assert_eq!(classify("https://Shop.Example:8443", "www.shop.example"), Referer::Internal);
    assert_eq!(classify("https://search.example/", "shop.test"), Referer::External);
    assert_eq!(classify("https://search.example/", ""), Referer::Internal, "a log without hosts");
    assert_eq!(classify("about:blank", "shop.example"), Referer::External);
    assert_eq!(Referer::from_header(Some(b""), "shop.example"), Referer::Absent);
    assert_eq!(Referer::from_header(None, "shop.example"), Referer::Absent);
}

#[test]
fn headers_are_found_by_their_logged_name() {
    assert_eq!(ALL_HEADERS.names().count(), 7);
    for name in ALL_HEADERS.names() {
        assert!(HeadersSeen::from_name(name).is_some_and(|header| ALL_HEADERS.contains(header)), "{name}");
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
        directory in "/[a-z]{1,12}/", first in 0_u64..1_000_000_000, by_query in any::<bool>(), step in 1_u64..20,
    ) {
        let page_hash = |number: u64| {
            let number = number.to_string();
            let path = if by_query { directory.clone() } else { format!("{directory}{number}") };
            match ResourceKind::from_request(&http::Method::GET, &path, by_query.then_some(&number), None) {
                ResourceKind::Page(page) => page,
                other => panic!("{other:?}"),
            }
        };
        let pages: std::collections::BTreeSet<u16> = (0..60).map(|index| page_hash(first + index * step)).collect();
        prop_assert!(pages.len() >= 57, "{} of 60", pages.len());
    }

    #[test]
    fn score_is_bounded_and_decays(
        requests in proptest::collection::vec(any_features(), 1..120),
        clock_jumps_back in any::<bool>(),
    ) {
        let mut client = SimulatedClient::new(CHROME, ALL_HEADERS);
        let mut latest = client.now;
        for (wait, kind, page, referer, costly, outcome) in requests {
            // A clock that is set back occasionally.
            client.now = if clock_jumps_back && wait % 7 == 0 { client.now - Duration::from_secs(wait) } else { client.now + Duration::from_millis(wait) };
            latest = latest.max(client.now);
            client.features.is_costly = costly;
            let kind = [ResourceKind::Page(page), ResourceKind::Asset, ResourceKind::Robots, ResourceKind::Honeypot, ResourceKind::Form(page), ResourceKind::Other][usize::from(kind)];
            let referer = [Referer::Unknown, Referer::Absent, Referer::External, Referer::Internal][usize::from(referer)];
            client.request(kind, referer, outcome);
            let max_points: u16 = Signal::ALL.iter().map(|signal| signal.max_points()).sum();
            prop_assert!(client.score() <= max_points);
        }
        let profile = client.profile.decayed(latest + 14 * DAY, DAY);
        let remaining = score(&profile, true, TYPICAL_BEHAVIOR, || None, ObservedSession::default());
        // The interval statistics do not decay, but are not enough alone.
        prop_assert!(remaining.points <= Signal::ConstantInterval.max_points() + 2, "{remaining:?}");
    }
}
