//! The crawl policy and robots.txt, which are free and never refused for a quota.

use super::QUOTA;
use super::site::{BOT, Site, head};
use crate::gateway::exchange::handle;
use crate::gateway::exchange::lookup::CacheRole;
use crate::gateway::message::site::Site as OfSite;
use crate::gateway::transport::client_body::ClientBody;
use bytes::Bytes;
use std::time::Duration;
use tidegate_crawlers::robots::{OriginRobots, Requester};
use tidegate_http1::Request;

const POLICY: &str = "/.well-known/crawl-policy";

fn with_policy() -> Site {
    Site::new(&format!("crawl_policy: on{QUOTA}"))
}

/// A site with a copy of robots.txt that is fresh for an hour.
fn with_robots() -> Site {
    with_robots_and(QUOTA)
}

fn with_robots_and(rules: &str) -> Site {
    let site = Site::new(rules);
    let text = Bytes::from_static(b"User-agent: *\nDisallow: /search\n");
    let original = OriginRobots { status: 200, content_type: None, text };
    let cache = &site.worker.shared().robots_cache;
    let key = OfSite::from_head(&head("GET /robots.txt", &[]), false).key();
    cache.insert(&key, original, Some(Duration::from_secs(3600)), Requester::Other, site.worker.monotonic_now());
    site
}

#[test]
fn crawl_policy_is_a_page_of_the_origin_unless_enabled() {
    assert_eq!(Site::new(QUOTA).send(&format!("GET {POLICY}"), &[]).status, 502);
    let answer = with_policy().send(&format!("GET {POLICY}"), &[]);
    assert_eq!(answer.status, 200);
    assert!(answer.json().is_object());
}

#[test]
fn crawl_policy_is_recorded_and_counted_once() {
    let site = with_policy();
    let answer = site.send(&format!("GET {POLICY}"), &[BOT]);
    assert_eq!(answer.logged("id"), answer.field("x-tidegate-decision"));
    assert_eq!((answer.logged("path"), answer.logged("status")), (POLICY.into(), 200.into()));
    assert_eq!((answer.logged("verdict"), answer.logged("origin_ms")), ("admitted".into(), serde_json::Value::Null));
    assert_eq!((answer.logged("charged"), answer.logged("bytes")), (serde_json::json!({}), answer.body.len().into()));
    assert_eq!(site.metric("tidegate_requests_total{class=\"bot\",verdict=\"admitted\",reason=\"\"}"), 1.0);
    assert_eq!(site.metric("tidegate_responses_total{class=\"bot\",code=\"2xx\"}"), 1.0);
    assert_eq!(site.telemetry.recent_decisions().len(), 1);
}

#[test]
fn crawl_policy_is_served_while_the_quota_is_exhausted() {
    let site = with_policy();
    site.spend("GET /item/1", 10);
    let answer = site.send(&format!("GET {POLICY}"), &[BOT]);
    assert_eq!((answer.status, site.used()), (200, 10.0));
    assert_eq!(answer.logged("bytes"), answer.body.len());
}

#[test]
fn crawl_policy_has_a_page_for_people_and_a_validator_for_each_form() {
    let site = with_policy();
    let json = site.send(&format!("GET {POLICY}"), &[]);
    let html = site.send(&format!("GET {POLICY}"), &[("accept", "text/html")]);
    assert!(html.field("content-type").starts_with("text/html"), "{html:?}");
    assert_eq!((json.field("vary"), html.field("vary")), ("accept", "accept"));
    assert_ne!(json.field("etag"), html.field("etag"));
    let again = site.send(&format!("GET {POLICY}"), &[("if-none-match", json.field("etag"))]);
    assert_eq!((again.status, again.body.as_str(), again.logged("bytes")), (304, "", 0.into()));
    let other = site.send(&format!("GET {POLICY}"), &[("if-none-match", html.field("etag"))]);
    assert_eq!(other.status, 200);
}

#[test]
fn crawl_policy_answers_head_without_a_body() {
    let site = with_policy();
    let [get, head] = ["GET", "HEAD"].map(|method| site.send(&format!("{method} {POLICY}"), &[]));
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(head.field("content-length"), get.body.len().to_string());
    assert_eq!(head.field("etag"), get.field("etag"));
}

#[test]
fn documents_support_no_other_method_whatever_the_rules_say_of_the_client() {
    let rules = QUOTA
        .replace("name: bot,", "name: bot, block: true,")
        .replace("match: '/**'", "match: '/**', cost: { api: 1 }");
    let hash = "689febd264f8b977e29c0fdb75f839eb248ba07d1561b14f2b95f42756943245";
    let with_usage = rules
        .replace("retry_after_spread: 0%", "retry_after_spread: 0%, usage: true")
        .replace("classes:\n", "  own: { per: api_key, limit: 10, window: { fixed: 60s } }\nclasses:\n  - { name: pro, when: { api_key: own } }\n")
        .replace("api: 1 }", "api: 1, own: 1 }");
    let with_usage = format!("api_keys: [{{ name: acme, class: pro, sha256: {hash} }}]{with_usage}");
    const PREFLIGHT: [(&str, &str); 2] = [("origin", "https://a.example"), ("access-control-request-method", "PUT")];
    for (rules, path) in [
        (format!("crawl_policy: on{rules}"), POLICY),
        (with_usage.clone(), "/.well-known/usage"),
        (format!("crawl_policy: on\n{with_usage}"), "/.well-known/./usage"),
    ] {
        let site = Site::new(&rules);
        for spent in [0.0, 10.0] {
            assert_eq!(site.used(), spent);
            for method in ["POST", "DELETE", "OPTIONS", "PROPFIND"] {
                for fields in [&[][..], &[BOT], &PREFLIGHT] {
                    let answer = site.send(&format!("{method} {path}"), fields);
                    assert_eq!(
                        (answer.status, answer.field("allow")),
                        (405, "GET, HEAD"),
                        "{method} {path} {fields:?}"
                    );
                    assert!(answer.line.is_none() && answer.field("ratelimit").is_empty(), "no rule has decided on it");
                }
            }
            assert_eq!(site.used(), spent, "{path}");
            if spent == 0.0 {
                site.spend("GET /item/1", 10);
            }
        }
    }
    let site = Site::new(&rules);
    site.spend("GET /item/1", 10);
    assert_eq!(site.send(&format!("POST {POLICY}"), &[]).status, 429, "a page of the origin");
}

#[test]
fn stored_robots_txt_is_served_to_bots_without_units() {
    let site = with_robots();
    site.spend("GET /item/1", 10);
    let answer = site.send("GET /robots.txt?a=b", &[BOT]);
    assert_eq!((answer.status, answer.body.as_str()), (200, "User-agent: *\nDisallow: /search\n"));
    assert_eq!((answer.logged("origin_ms"), answer.logged("verdict")), (serde_json::Value::Null, "admitted".into()));
    let again = site.send("GET /robots.txt", &[("if-none-match", answer.field("etag"))]);
    assert_eq!((again.status, again.body.as_str()), (304, ""));
    let head = site.send("HEAD /robots.txt", &[]);
    assert_eq!((head.body.as_str(), head.field("content-length")), ("", "32"));
}

#[test]
fn robots_txt_is_served_while_another_request_for_it_is_in_flight() {
    let site = with_robots_and(&format!("cache: {{ disk: off, refresh: off }}{QUOTA}"));
    let _in_flight = site.cache_role("GET /robots.txt", &[]);
    let request = Request { head: head("GET /robots.txt", &[]), body: ClientBody::Empty };
    let status = site.run(async {
        tokio::select! {
            biased;
            response = handle(site.connection(), request) => Some(response.status.as_u16()),
            () = std::future::ready(()) => None,
        }
    });
    assert_eq!(status, Some(200), "it does not wait for the other one");
}

#[test]
fn cache_has_no_part_in_what_the_gateway_itself_answers() {
    let rules = QUOTA.replace("match: '/search'", "match: '/old', redirect: '/new' }\n  - { match: '/search'");
    let site = Site::new(&format!("cache: {{ disk: off, refresh: off }}\ncrawl_policy: on{rules}"));
    for path in ["/robots.txt", "/a/../robots.txt", POLICY, "/old"] {
        let role = site.cache_role(&format!("GET {path}"), &[]);
        assert!(matches!(role, CacheRole::Unused), "{path}");
    }
    assert!(matches!(site.cache_role("GET /item/1", &[]), CacheRole::Fetch(_)));
}

#[test]
fn robots_txt_of_one_host_is_none_of_another() {
    let site = with_robots();
    assert_eq!(site.send("GET /robots.txt", &[]).status, 200);
    assert_eq!(site.send("GET /robots.txt", &[("host", "other.example")]).status, 502);
}

#[test]
fn stale_robots_txt_is_served_if_the_origin_fails() {
    let site = with_robots();
    site.advance(2 * 3600);
    let answer = site.send("GET /robots.txt", &[]);
    assert_eq!((answer.status, answer.field("age")), (200, "7200"));
    assert_eq!(answer.logged("charged"), serde_json::json!({}));
    assert!(site.has_outage(), "the failure is recorded");
}

#[test]
fn robots_txt_that_cannot_be_fetched_is_unavailable_and_free() {
    let site = Site::new(QUOTA);
    let answer = site.send("GET /robots.txt", &[]);
    assert_eq!((answer.status, answer.logged("verdict")), (502, "admitted".into()));
    assert_eq!(site.used(), 0.0);
}

#[test]
fn fetches_of_robots_txt_for_unknown_hosts_are_bounded() {
    let site = Site::new(QUOTA);
    let mut answers = (0..1000).map(|number| site.send("GET /robots.txt", &[("host", &format!("a{number}.example"))]));
    let refused = answers.find(|answer| answer.status == 503).expect("a bound");
    assert_eq!(refused.logged("retry_after_s").to_string(), refused.field("retry-after"));
    assert_eq!(refused.logged("verdict"), "admitted");
    site.clock.advance(Duration::from_secs(60));
    assert_eq!(site.send("GET /robots.txt", &[("host", "a9999.example")]).status, 502, "later, it is tried");
}

#[test]
fn robots_txt_by_another_method_is_an_ordinary_request() {
    let site = Site::new(&QUOTA.replace("match: '/**'", "match: '/**', cost: { api: 1 }"));
    assert_eq!(site.send("POST /robots.txt", &[BOT]).status, 429);
    assert_eq!(site.send("GET /robots.txt", &[BOT]).status, 502);
}
