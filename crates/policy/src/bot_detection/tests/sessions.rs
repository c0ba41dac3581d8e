//! Signals that need sessions: landings without a cookie, and sessions beyond people.

use super::*;
use crate::session::Session;

/// Landings from which on a client is no person, on the site of these tests.
const MAX_LANDINGS: f32 = 20.0;

/// A site with sessions whose people send referers.
const SITE: ExpectedBehavior = ExpectedBehavior { landings: MAX_LANDINGS, ..TYPICAL_BEHAVIOR };

fn client_of(session: Option<Session>) -> SimulatedClient {
    let mut client = SimulatedClient::new(CHROME, ALL_HEADERS);
    client.features.session = session;
    client
}

/// Loads a page that no page of the site led to, with two of its assets.
fn land(client: &mut SimulatedClient) {
    client.open_page(Referer::Absent);
    (0..2).for_each(|_| client.request(ResourceKind::Asset, Referer::Internal, ResponseOutcome::Served));
}

/// Returns the score of the next page request of a client, with this session.
fn next_score(client: &SimulatedClient, session: Option<Session>) -> BotScore {
    let request =
        RequestFeatures { at: client.now, resource_kind: ResourceKind::Page(999), session, ..client.features };
    let known = client.profile.decayed(client.now, DAY);
    let mut profile = ClientProfile::with_request(Some(known), &request).expect("a profile");
    profile.note_session(&request);
    score(&profile, true, SITE, || None, ObservedSession { is_lacking: request.lacks_session(), beyond: None })
}

#[test]
fn many_landings_without_a_cookie_are_suspected() {
    let mut client = client_of(Some(Session::None));
    let at = (1..100).find(|_| {
        land(&mut client);
        next_score(&client, Some(Session::None)).points >= THRESHOLD
    });
    assert!((20..30).contains(&at.expect("suspected")), "{at:?}");
    assert_eq!(next_score(&client, Some(Session::None)).signals[0], Some(Signal::Landings));
    let returned = next_score(&client, Some(Session::New));
    assert!(returned.points < THRESHOLD, "it came back with the cookie: {returned:?}");
}

#[test]
fn landings_of_people_are_not_suspected() {
    for (session, what) in [
        (None, "a reader who hides referers, on a site without sessions"),
        (Some(Session::New), "the same with a new session"),
        (Some(Session::Known), "the same with a known one"),
    ] {
        let mut client = client_of(session);
        for _ in 0..300 {
            land(&mut client);
            let score = next_score(&client, session);
            assert!(score.points < THRESHOLD, "{what}: {score:?}");
        }
    }
    // A browser that refuses cookies follows links.
    let mut client = client_of(Some(Session::None));
    for _ in 0..100 {
        land(&mut client);
        (0..2).for_each(|_| client.open_page(Referer::Internal));
        let score = next_score(&client, Some(Session::None));
        assert!(score.points < THRESHOLD, "{score:?}");
    }
    // Many people behind one address with one browser, each on the first page.
    let mut office = client_of(Some(Session::New));
    land(&mut office);
    office.features.session = Some(Session::None);
    for _ in 0..100 {
        land(&mut office);
        let score = next_score(&office, Some(Session::None));
        assert!(score.points < THRESHOLD, "{score:?}");
    }
}

#[test]
fn landings_are_compared_with_those_of_people_who_follow_links() {
    let now = Timestamp::from_seconds(1_800_000_000);
    let mut baseline = SiteBaseline::default();
    (0..150).for_each(|_| baseline.record_landings(2.0, now, DAY));
    assert_eq!(baseline.expected().landings, 0.0, "too few people");
    (0..150).for_each(|_| baseline.record_landings(3.0, now, DAY));
    assert_eq!(baseline.expected().landings, 20.0, "the least that counts");
    baseline.record_landings(1000.0, now, DAY);
    assert_eq!(baseline.expected().landings, 20.0, "one client teaches nothing alone");
    (0..10).for_each(|_| baseline.record_landings(30.0, now, DAY));
    assert!((45.0..60.0).contains(&baseline.expected().landings), "{:?}", baseline.expected());
}

#[test]
fn only_readers_with_a_cookie_teach_how_many_landings_are_usual() {
    let landings = |session, referer| {
        let mut client = client_of(session);
        let requests = [
            (ResourceKind::Page(1), Referer::External),
            (ResourceKind::Asset, Referer::Internal),
            (ResourceKind::Asset, Referer::Internal),
            (ResourceKind::Asset, Referer::Internal),
            (ResourceKind::Page(2), referer),
        ];
        let record = |(resource_kind, referer)| {
            let request = RequestFeatures { resource_kind, referer, ..client.features };
            client.profile.record(&request, ResponseOutcome::Served, DAY).landings
        };
        requests.into_iter().find_map(record)
    };
    assert_eq!(landings(None, Referer::Internal), Some(1.0));
    assert_eq!(landings(Some(Session::New), Referer::Internal), Some(1.0));
    assert_eq!(landings(Some(Session::None), Referer::Internal), None, "no cookie came back");
    assert_eq!(landings(None, Referer::Absent), None, "a program that loads all assets and follows no link");
}

#[test]
fn clients_without_a_session_teach_nothing_about_people() {
    let samples = |session| {
        let mut client = client_of(session);
        let mut samples = 0;
        for page in 1..=5 {
            for (resource_kind, referer) in
                [(ResourceKind::Page(page), Referer::Internal), (ResourceKind::Asset, Referer::Internal)]
            {
                let request = RequestFeatures { resource_kind, referer, ..client.features };
                let recorded = client.profile.record(&request, ResponseOutcome::Served, DAY);
                samples += usize::from(recorded.sample.is_some());
            }
        }
        samples
    };
    assert_eq!([None, Some(Session::None), Some(Session::New)].map(samples), [2, 0, 2]);
}

#[test]
fn a_session_beyond_people_is_suspected_with_its_figure() {
    let mut reader = client_of(Some(Session::Known));
    reader.open_page(Referer::Internal);
    reader.request(ResourceKind::Asset, Referer::Internal, ResponseOutcome::Served);
    let beyond = PagesBeyond { pages: 301, limit: 300 };
    let session = ObservedSession { is_lacking: false, beyond: Some(beyond) };
    let found = score(&reader.profile, true, SITE, || None, session);
    assert!(found.points >= THRESHOLD, "{found:?}");
    assert_eq!((found.signals[0], found.beyond), (Some(Signal::BeyondPeople), Some(beyond)));
}
