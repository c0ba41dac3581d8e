//! Requests that are rejected before they are counted.

use super::QUOTA;
use super::site::Site;
use crate::gateway::exchange::origin_head::prepare_head;
use tidegate_http1::Name;

#[test]
fn invalid_request_gets_the_status_of_its_fault() {
    let site = Site::new(QUOTA);
    let parameters = format!("GET /?{}", "a&".repeat(1001));
    let segments = format!("GET {}", "/a".repeat(300));
    for (line, fields, status) in [
        ("GET /item/1", &[("host", "")][..], 400),
        ("GET /item/1", &[("host", "a b")], 400),
        ("GET /item/1", &[("host", "a.example"), ("host", "b.example")], 400),
        ("GET /item/a%2Fb", &[], 400),
        ("GET /item/a%00", &[], 400),
        ("GET /item/a%5Cb", &[], 400),
        ("GET *", &[], 400),
        ("TRACE /item/1", &[], 405),
        ("CONNECT shop.example:443", &[], 405),
        ("POST /item/1", &[("content-length", "1"), ("transfer-encoding", "chunked")], 400),
        ("POST /item/1", &[("content-length", "99999999999")], 413),
        ("POST /item/1", &[("expect", "a-miracle")], 417),
        (&parameters, &[], 414),
        (&segments, &[], 414),
    ] {
        let answer = site.send(line, fields);
        let allowed = if status == 405 { "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS" } else { "" };
        assert_eq!((answer.status, answer.field("allow")), (status, allowed), "{line} {fields:?}");
        assert!(answer.line.is_none(), "{line} is recorded");
    }
    assert_eq!(site.used(), 0.0);
}

#[test]
fn rejected_request_is_counted_as_a_response_without_a_class() {
    let site = Site::new(QUOTA);
    site.send("TRACE /item/1", &[]);
    assert_eq!(site.metric("tidegate_responses_total{class=\"\",code=\"4xx\"}"), 1.0);
    assert_eq!(site.metric("tidegate_requests_total{class=\"person\",verdict=\"admitted\",reason=\"\"}"), 0.0);
}

#[test]
fn too_many_fields_are_rejected() {
    let site = Site::new(
        "limits: { max_headers: 10 }\nclasses: [{ name: all }]\nroutes: [{ match: '/**', redirect: 'https://other.example/' }]\n",
    );
    let fields = [("x-a", "1"); 9];
    assert_eq!(site.send("GET /", &fields[..8]).status, 301);
    assert_eq!(site.send("GET /", &fields).status, 431);
}

#[test]
fn blank_around_a_value_makes_no_other_key_over_http2() {
    let site = Site::new(QUOTA);
    for (value, status) in [("key", 502), ("a key", 502), (" key", 400), ("key ", 400), ("\tkey", 400), ("key\t", 400)]
    {
        let answer = site.send("GET /item/1 HTTP/2", &[("x-api-key", value)]);
        assert_eq!((answer.status, answer.line.is_some()), (status, status == 502), "{value:?}");
    }
}

#[test]
fn request_that_has_passed_the_gateway_is_a_loop() {
    let site = Site::new(QUOTA);
    let mut known = site.known("GET /item/1", &[("via", "1.1 another, 1.1 tidegate-00000000")]);
    prepare_head(&mut known);
    let via: Vec<_> = known.request.head.fields.all(Name::Via).map(String::from_utf8_lossy).collect();
    assert_eq!(via[0], "1.1 another, 1.1 tidegate-00000000", "none of the gateway");
    assert_eq!(site.send("GET /item/1", &[("via", &via[1])]).status, 508);
    assert_eq!(site.send("GET /item/1", &[("via", &via.join(", "))]).status, 508);
    assert_eq!(site.send("GET /item/1", &[("via", &via[0])]).status, 502);
}

#[test]
fn foreign_host_is_misdirected_and_not_counted() {
    let site = Site::new(&format!("hosts: ['shop.example', '*.shop.example']{QUOTA}"));
    for (host, status) in [
        ("shop.example", 502),
        ("SHOP.example.:8080", 502),
        ("www.shop.example", 502),
        ("other.example", 421),
        ("shop.example.other.example", 421),
        ("192.0.2.7", 421),
    ] {
        let answer = site.send("GET /item/1", &[("host", host)]);
        assert_eq!((answer.status, answer.line.is_some()), (status, status == 502), "{host}");
    }
}

#[test]
fn host_of_an_absolute_target_counts() {
    let site = Site::new(&format!("hosts: shop.example{QUOTA}"));
    assert_eq!(site.send("GET http://other.example/item/1", &[]).status, 421);
    assert_eq!(site.send("GET http://shop.example/item/1", &[("host", "other.example")]).status, 502);
}

#[test]
fn rejection_is_in_the_form_that_the_client_prefers() {
    let site = Site::new(QUOTA);
    let json = site.send("TRACE /item/1", &[("origin", "https://other.example")]);
    assert_eq!((json.json()["status"].clone(), json.field("cache-control")), (405.into(), "no-store"));
    assert_eq!(json.field("access-control-allow-origin"), "https://other.example");
    assert_ne!(json.field("x-tidegate-decision"), "");
    let html = site.send("TRACE /item/1", &[("accept", "text/html")]);
    assert!(html.body.contains("This request cannot be served"), "{}", html.body);
    let head = site.send("HEAD /item/a%2Fb", &[]);
    assert_eq!((head.status, head.body.as_str()), (400, ""));
}

#[test]
fn lenient_paths_cost_what_their_most_expensive_reading_costs() {
    let rules = QUOTA.replace("match: '/search'", "match: '/search/*'");
    assert_eq!(Site::new(&rules).send("GET /search%2Fa", &[]).status, 400);
    let site = Site::new(&format!("paths: lenient{rules}"));
    assert_eq!(site.journal("GET /search%2Fa", &[]).quota_usage[0].cost.as_f64(), 4.0);
}
