//! Spellings of a path that origins read in different ways: which are rejected, what they cost, and what the origin is
//! sent.

use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;

const ROUTES: &str = "
quotas: { api: { limit: 1000, window: { fixed: 24h } } }
routes:
  - { match: /search, cost: { api: 4 } }
  - { match: \"/item/*\", cost: { api: 1 } }
  - { match: \"/use/**\", cost: { api: 2 } }
  - { match: /list, query: page, cost: { api: 3 } }
  - { match: /host, host: shop.example, cost: { api: 5 } }
  - { match: /get, method: GET, cost: { api: 6 } }
";

fn gateway(origin: &Origin, paths: &str) -> TestGateway {
    TestGateway::with_rules(origin.address(), &format!("paths: {paths}\n{ROUTES}"))
}

#[test]
fn path_with_readings_in_different_quotas_is_rejected() {
    const TWO_QUOTAS: &str = "
quotas: { scarce: { limit: 10, window: { fixed: 24h } }, cheap: { limit: 100, window: { fixed: 24h } } }
routes:
  - { match: \"/search/**\", cost: { scarce: 4 } }
  - { match: /cheap, cost: { cheap: 5 } }
";
    let origin = Origin::plain();
    for paths in ["strict", "lenient", "raw"] {
        let gateway = TestGateway::with_rules(origin.address(), &format!("paths: {paths}\n{TWO_QUOTAS}"));
        for target in ["/search/..;/cheap", "/search/x/..;/..;/cheap"] {
            let response = gateway.connect().get(target, "");
            assert_eq!(response.status, 400, "{target}");
            assert!(response.json()["detail"].as_str().unwrap_or_default().contains("different quotas"));
        }
        for target in ["/search/a;b=1", "/cheap;b=1", "/free;/x"] {
            assert_eq!(status(&gateway, target), 200, "{target}");
        }
    }
}

fn status(gateway: &TestGateway, target: &str) -> u16 {
    gateway.connect().get(target, "").status
}

fn request_count(gateway: &TestGateway) -> f64 {
    let metrics = gateway.metrics();
    metrics.iter().filter(|(name, _)| name.starts_with("tidegate_requests_total{")).map(|(_, count)| count).sum()
}

/// Returns the units charged for a request line with a host.
fn charge(gateway: &TestGateway, method: &str, target: &str, host: &str) -> f64 {
    let used = || gateway.state()["quotas"][0]["used"].as_f64().expect("used units");
    let before = used();
    let response =
        gateway.connect().send(format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n")).response_to(method);
    assert_eq!(response.status, 200, "{method} {target}");
    used() - before
}

#[test]
fn strict_policy_rejects_ambiguous_paths_before_anything_is_counted() {
    let origin = Origin::plain();
    let gateway = gateway(&origin, "strict");
    for (target, detail) in [
        ("/free%2f..%2fsearch", "encoded slash"),
        ("/item%2F1", "encoded slash"),
        ("/free/..%5Csearch", "backslash"),
        ("/free/..\\search", "backslash"),
        ("/search%0a", "encoded control"),
        ("/search%00", "NUL"),
    ] {
        let response = gateway.connect().get(target, "");
        assert_eq!(response.status, 400, "{target}");
        let found = response.json()["detail"].as_str().unwrap_or_default().to_owned();
        assert!(found.contains(detail), "{target}: {found}");
    }
    assert!(origin.received_requests().is_empty());
    assert_eq!(request_count(&gateway), 0.0);
    for target in ["/a%20b", "/100%25", "/caf%C3%A9", "/a;b=1"] {
        assert_eq!(status(&gateway, target), 200, "{target}");
        assert_eq!(origin.last_request().target, target);
    }
    assert_eq!(request_count(&gateway), 4.0);
}

#[test]
fn target_with_too_many_parts_is_rejected_before_anything_is_counted() {
    let origin = Origin::plain();
    for policy in ["strict", "lenient", "raw"] {
        let gateway = gateway(&origin, policy);
        for target in [format!("/search?{}", "&".repeat(1000)), format!("/search{}", "/a;b".repeat(256))] {
            assert_eq!(gateway.connect().get(&target, "").status, 414, "{policy} {target}");
        }
        assert_eq!(request_count(&gateway), 0.0);
        assert_eq!(status(&gateway, &format!("/search?{}", "&".repeat(999))), 200);
    }
    assert_eq!(origin.received_requests().len(), 3);
}

#[test]
fn target_without_a_path_is_rejected() {
    let origin = Origin::plain();
    let gateway = gateway(&origin, "strict");
    for target in ["shop.example:443", "shop.example", "shop.example/"] {
        assert_eq!(status(&gateway, target), 400, "{target}");
    }
    assert_eq!(origin.received_requests().len(), 0);
    assert_eq!(status(&gateway, "http://shop.example"), 200, "the path of a URL may be empty");
    assert!(origin.last_request().head.starts_with("GET / HTTP/1.1"));
}

#[test]
fn every_reading_of_a_costed_page_is_charged() {
    let origin = Origin::plain();
    let gateway = gateway(&origin, "strict");
    for (method, target, host, units) in [
        ("GET", "/SEARCH", "example.com", 4.0),
        ("GET", "/search/", "example.com", 4.0),
        ("GET", "/search/?x", "example.com", 4.0),
        ("GET", "/search;v=1", "example.com", 4.0),
        ("GET", "/free/..;/search", "example.com", 4.0),
        ("GET", "/%73earch", "example.com", 4.0),
        ("GET", "/Item/1/", "example.com", 1.0),
        ("GET", "/item/1%3A2", "example.com", 1.0),
        ("GET", "/list?%70age=2", "example.com", 3.0),
        ("GET", "/list?page[]=2", "example.com", 3.0),
        ("GET", "/list?page%5B0%5D=2", "example.com", 3.0),
        ("GET", "/list?a=1;page=2", "example.com", 3.0),
        ("GET", "/host", "shop.example.", 5.0),
        ("GET", "/host", "SHOP.example.:80", 5.0),
        ("HEAD", "/get", "example.com", 6.0),
        ("GET", "/free", "example.com", 0.0),
        ("GET", "/list?pages=2", "example.com", 0.0),
        ("GET", "/item/1/../../free", "example.com", 0.0),
    ] {
        assert_eq!(charge(&gateway, method, target, host), units, "{method} {target} {host}");
    }
}

#[test]
fn origin_is_sent_the_path_that_was_charged() {
    let origin = Origin::plain();
    let gateway = gateway(&origin, "strict");
    for (target, sent) in [
        ("/use/1/../../free?a=/../b", "/free?a=/../b"),
        ("/x/%2e%2e/%69tem/./1", "/%69tem/1"),
        ("//host/item", "/host/item"),
        ("http://example.com//a/../item/1?q", "/item/1?q"),
        ("/item//1", "/item//1"),
    ] {
        assert_eq!(status(&gateway, target), 200, "{target}");
        assert_eq!(origin.last_request().target, sent, "{target}");
        assert_eq!(origin.last_request().fields["host"], "example.com", "{target}");
    }
    let log = gateway.read_log();
    assert!(
        log.iter().any(|line| line["path"] == "/use/1/../../free" && line["query"] == "a=/../b"),
        "as sent: {log:?}"
    );
}

#[test]
fn lenient_policy_charges_the_dearest_reading() {
    let origin = Origin::plain();
    let gateway = gateway(&origin, "lenient");
    for (target, units, sent) in [
        ("/free%2f..%2fsearch", 4.0, "/free%2f..%2fsearch"),
        ("/item/x%5C..%5C..%5Csearch", 4.0, "/item/x%5C..%5C..%5Csearch"),
        ("/item/x\\..\\..\\free", 1.0, "/item/x%5C..%5C..%5Cfree"),
        ("/item%2F1", 1.0, "/item%2F1"),
        ("/free%2F1", 0.0, "/free%2F1"),
    ] {
        assert_eq!(charge(&gateway, "GET", target, "example.com"), units, "{target}");
        assert_eq!(origin.last_request().target, sent, "{target}");
    }
    assert_eq!(status(&gateway, "/search%00"), 400);
}

#[test]
fn raw_policy_charges_unresolved_paths_and_sends_them() {
    let origin = Origin::plain();
    let gateway = gateway(&origin, "raw");
    for (target, units) in [
        ("/use/1/../../free", 2.0),
        ("/free/../search", 4.0),
        ("//host/search", 4.0),
        ("/\\host\\search", 4.0),
        ("/free/./x", 0.0),
    ] {
        assert_eq!(charge(&gateway, "GET", target, "example.com"), units, "{target}");
        assert_eq!(origin.last_request().target, target);
    }
}
