//! Copies for a crowd: who makes one, and which responses it gets.

use super::site::{BOT, Site};
use crate::gateway::exchange::cache_trip::CopyReason;
use crate::gateway::exchange::lookup::CacheRole;

/// Pages of one unit, of which a crowd gets copies for a minute.
const CROWDED: &str = "
cache: { disk: off, refresh: off, crowd_max_age: 60s }
quotas: { api: { limit: 1000, window: { fixed: 600s } } }
classes: [{ name: person }]
routes: [{ match: '/item/*', cost: { api: 1 } }, { match: '/**' }]
";

const MINUTE: (&str, &str) = ("cache-control", "max-age=60");

/// A site that has stored a page with this field.
fn with_copy(rules: &str, field: (&str, &str)) -> Site {
    let site = Site::new(rules);
    site.store("GET /item/1", &[], &[field, ("etag", "\"v1\"")], "page");
    site
}

/// Requests the page from 100 networks.
fn gather_crowd(site: &mut Site) {
    for network in 0..100 {
        site.peer = [203, 0, network, 1].into();
        site.cache_role("GET /item/1", &[]);
    }
}

#[test]
fn crowd_gets_a_stale_copy_for_the_time_that_the_file_allows() {
    let mut site = with_copy(CROWDED, MINUTE);
    gather_crowd(&mut site);
    site.advance(70);
    let answer = site.send("GET /item/1", &[]);
    assert_eq!((answer.status, answer.field("age")), (200, "70"));
    assert_eq!(answer.field("cache-status"), "tidegate; hit; ttl=-10; detail=crowd");
    assert_eq!(
        (answer.logged("cache"), answer.logged("verdict"), site.used()),
        ("stale".into(), "admitted".into(), 0.0)
    );
    gather_crowd(&mut site);
    site.advance(51);
    assert!(matches!(site.cache_role("GET /item/1", &[]), CacheRole::Fetch(_)), "121 s old");
}

#[test]
fn crowd_is_over_five_minutes_after_its_last_request() {
    let mut site = with_copy(CROWDED, ("cache-control", "max-age=310"));
    gather_crowd(&mut site);
    site.advance(311);
    assert!(matches!(site.cache_role("GET /item/1", &[]), CacheRole::Fetch(_)));
}

#[test]
fn response_without_a_lifetime_is_for_a_crowd_and_fetched_once() {
    let mut site = with_copy(CROWDED, ("content-type", "text/html"));
    assert!(matches!(site.cache_role("GET /item/1", &[]), CacheRole::Fetch(_)), "no crowd");
    gather_crowd(&mut site);
    assert!(matches!(site.cache_role("GET /item/1", &[]), CacheRole::Copy(_, CopyReason::Crowd)));
    site.advance(61);
    let CacheRole::Fetch(fetch) = site.cache_role("GET /item/1", &[]) else { panic!("a copy") };
    assert!(fetch.guard.is_some(), "others wait for it");
}

#[test]
fn one_client_and_one_network_make_no_crowd() {
    let mut site = with_copy(CROWDED, MINUTE);
    for client in 0..500_u16 {
        site.peer = [203, 0, 113, client as u8].into();
        site.cache_role("GET /item/1", &[]);
    }
    site.advance(61);
    assert!(matches!(site.cache_role("GET /item/1", &[]), CacheRole::Fetch(_)));
}

#[test]
fn bots_and_pages_without_cost_make_no_crowd() {
    let mut site = with_copy(CROWDED, MINUTE);
    site.store("GET /free", &[], &[MINUTE], "page");
    for network in 0..100 {
        site.peer = [203, 0, network, 1].into();
        site.cache_role("GET /item/1", &[BOT]);
        site.cache_role("GET /free", &[]);
    }
    site.advance(61);
    for line in ["GET /item/1", "GET /free"] {
        assert!(matches!(site.cache_role(line, &[]), CacheRole::Fetch(_)), "{line}");
    }
}

#[test]
fn crowd_gets_no_response_that_origin_or_client_want_validated() {
    for field in ["max-age=60, must-revalidate", "max-age=60, proxy-revalidate", "s-maxage=60", "no-cache"] {
        let mut site = with_copy(CROWDED, ("cache-control", field));
        gather_crowd(&mut site);
        site.advance(61);
        assert!(matches!(site.cache_role("GET /item/1", &[]), CacheRole::Fetch(_)), "{field}");
    }
    let mut site = with_copy(CROWDED, MINUTE);
    gather_crowd(&mut site);
    site.advance(61);
    for field in ["no-cache", "max-age=0", "max-age=10", "min-fresh=1"] {
        let role = site.cache_role("GET /item/1", &[("cache-control", field)]);
        assert!(matches!(role, CacheRole::Fetch(_)), "{field}");
    }
}

#[test]
fn there_is_no_crowd_by_default() {
    let mut site = with_copy(&CROWDED.replace(", crowd_max_age: 60s", ""), MINUTE);
    gather_crowd(&mut site);
    site.advance(61);
    assert!(matches!(site.cache_role("GET /item/1", &[]), CacheRole::Fetch(_)));
}
