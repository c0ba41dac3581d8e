//! Requests that browsers and certificate authorities send by themselves, and what pages of other origins can read.

use crate::support::client::Response;
use crate::support::gateway::TestGateway;
use crate::support::http2_responses_to;
use crate::support::origin::Origin;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use std::time::Duration;

const ALLOW_ORIGIN: &str = "access-control-allow-origin";
const EXPOSE_HEADERS: &str = "access-control-expose-headers";
const PREFLIGHT: &str = "Origin: https://app.example\r\nAccess-Control-Request-Method: GET\r\n";
const CROSS_ORIGIN: &str = "Origin: https://app.example\r\n";
const CHALLENGE: &str = "/.well-known/acme-challenge/abcDEF123_-";
const LIMIT_OF_TWO: &str = "
quotas: { api: { limit: 2, window: { fixed: 24h } } }
classes:
  - { name: blocked, when: { user_agent: blocked }, block: true }
  - { name: limited, when: { user_agent: limited }, bucket: { capacity: 1, fill: 1, interval: 24h } }
routes: [ { match: /**, cost: { api: 1 } } ]
";

#[test]
fn preflights_and_validations_cost_nothing_and_pass_without_units() {
    let origin = Origin::with_cors();
    let gateway = TestGateway::with_rules(origin.address(), LIMIT_OF_TWO);
    assert_free_and_admitted(&gateway);
    assert_eq!(gateway.counters(), (0.0, 0.0));
    assert_eq!((0..3).map(|_| gateway.connect().get("/page", "").status).collect::<Vec<_>>(), [200, 200, 429]);
    assert_free_and_admitted(&gateway);
    assert_eq!(gateway.counters(), (2.0, 0.0));
}

fn assert_free_and_admitted(gateway: &TestGateway) {
    for class in ["person", "blocked", "limited", "limited"] {
        let agent = format!("User-Agent: {class}\r\n");
        assert_eq!(options(gateway, "/page", &format!("{agent}{PREFLIGHT}")).status, 200, "{class}");
        assert_eq!(gateway.connect().get(CHALLENGE, &agent).status, 200, "{class}");
    }
}

#[test]
fn what_only_resembles_an_exempt_request_is_decided_and_charged() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), LIMIT_OF_TWO);
    gateway.set_used("api", 2);
    let method = "Access-Control-Request-Method: GET\r\n";
    for fields in ["", CROSS_ORIGIN, method] {
        assert_eq!(options(&gateway, "/page", fields).status, 429, "{fields}");
    }
    for path in [
        "/page",
        "/.well-known/acme-challenge/",
        "/.well-known/acme-challenge/../../page",
        "/.well-known/acme-challenge/a/b",
        "/.well-known/acme-challenge/page.php",
        "/.well-known/acme-challenge/a;b",
        "/.well-known/security.txt",
    ] {
        assert_eq!(gateway.connect().get(path, PREFLIGHT).status, 429, "{path}");
    }
    let mut client = gateway.connect();
    client.send(format!("POST {CHALLENGE} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"));
    assert_eq!(client.response_to("POST").status, 429);
    assert_eq!(origin.received_requests().len(), 0);
}

#[test]
fn exempt_requests_of_one_client_are_bounded() {
    let origin = Origin::with_cors();
    let gateway = TestGateway::with_rules(origin.address(), LIMIT_OF_TWO);
    let preflight = || options(&gateway, "/page", PREFLIGHT).status;
    let validation = || gateway.connect().get(CHALLENGE, "").status;
    let admitted = |request: &dyn Fn() -> u16| (0..120).filter(|_| request() == 200).count();
    assert_eq!((admitted(&preflight), admitted(&validation)), (100, 100), "a bucket for each");
    gateway.clock.advance(Duration::from_secs(1));
    assert_eq!((admitted(&preflight), admitted(&validation)), (10, 10));
    let refused = options(&gateway, "/page", PREFLIGHT);
    assert_eq!((refused.status, refused.field("retry-after")), (429, "1"));
    assert_eq!(gateway.counters(), (0.0, 0.0));
    assert_eq!(gateway.connect().get("/page", "").status, 200, "other requests have their own rules");
}

/// What the origin spent is gone, whatever asked for it; but a preflight says nothing of the page.
#[test]
fn costs_reported_for_a_preflight_are_charged_and_not_learned() {
    let origin = Origin::with_script(|_, connection| connection.reply("200 OK", "X-Cost: 2\r\n", b"page"));
    let rules = "
quotas: { api: { limit: 10, window: { fixed: 24h }, cost_header: X-Cost } }
routes: [ { match: /item/*, cost: { api: 1 } } ]";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    for (path, used) in [("/item/1", 2.0), ("/search", 4.0)] {
        assert_eq!(options(&gateway, path, PREFLIGHT).status, 200, "{path}");
        assert_eq!(gateway.counters(), (used, 0.0), "{path}");
    }
    gateway.set_used("api", 10);
    assert_eq!(gateway.connect().get("/search", "").status, 200, "nothing is known of the path");
    assert_eq!(gateway.connect().get("/search", "").status, 429);
}

/// A page that ignores the method costs units, whichever method asks for it.
#[test]
fn preflights_that_the_origin_answers_with_pages_are_ordinary_requests() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), LIMIT_OF_TWO);
    let preflight = |used| {
        let status = options(&gateway, "/page", PREFLIGHT).status;
        assert_eq!(gateway.counters().0, used, "status {status}");
        status
    };
    assert_eq!(preflight(1.0), 200, "the page is charged");
    assert_eq!([preflight(2.0), preflight(2.0), preflight(2.0)], [200, 429, 429]);
    gateway.clock.advance(Duration::from_secs(3600));
    assert_eq!([preflight(2.0), preflight(2.0)], [200, 429], "one an hour is tried");
    assert_eq!(gateway.state()["quotas"][0]["overrun"], 1);
}

#[test]
fn validations_that_the_origin_answers_with_pages_are_ordinary_requests() {
    let page = "a page ".repeat(100);
    let origin = Origin::with_script(move |_, connection| connection.reply("200 OK", "", page.as_bytes()));
    let gateway = TestGateway::with_rules(origin.address(), LIMIT_OF_TWO);
    let validation = |used| {
        let status = gateway.connect().get(CHALLENGE, "").status;
        assert_eq!(gateway.counters().0, used, "status {status}");
        status
    };
    assert_eq!([validation(1.0), validation(2.0), validation(2.0)], [200, 200, 429]);
    let mut html = b"<!doctype html>".to_vec();
    html.extend([b'a'; 10]);
    let origin =
        Origin::with_script(move |_, connection| connection.reply("200 OK", "Content-Type: text/html\r\n", &html));
    let gateway = TestGateway::with_rules(origin.address(), LIMIT_OF_TWO);
    assert_eq!([(); 3].map(|()| gateway.connect().get(CHALLENGE, "").status), [200, 200, 429]);
}

#[test]
fn empty_and_failed_responses_to_preflights_cost_nothing() {
    for status in ["204 No Content", "200 OK", "403 Forbidden", "405 Method Not Allowed", "500 Internal Server Error"] {
        let origin = Origin::with_script(move |_, connection| match status {
            "200 OK" => connection.reply(status, "", b""),
            "204 No Content" => {
                connection.send(format!("HTTP/1.1 {status}\r\n\r\n"));
            }
            _ => connection.reply(status, "", b"an error"),
        });
        let gateway = TestGateway::with_rules(origin.address(), LIMIT_OF_TWO);
        for _ in 0..3 {
            assert_eq!(options(&gateway, "/page", PREFLIGHT).status.to_string(), status[..3]);
        }
        assert_eq!(gateway.counters(), (0.0, 0.0), "{status}");
    }
}

#[test]
fn options_with_content_over_http2_are_no_preflight() {
    let origin = Origin::with_cors();
    let gateway = TestGateway::with_rules(origin.address(), LIMIT_OF_TWO);
    gateway.set_used("api", 2);
    let request = |content: &'static str| {
        let request = http::Request::options("http://a/page")
            .header("origin", "https://app.example")
            .header("access-control-request-method", "GET");
        // Of unknown length, so that no field tells that there is content.
        request.body(Full::new(Bytes::from(content)).map_frame(|frame| frame)).expect("valid request")
    };
    let responses = http2_responses_to(gateway.address(), ["", "content"].map(request));
    assert_eq!(responses.iter().map(|response| response.status().as_u16()).collect::<Vec<_>>(), [200, 429]);
}

/// Browsers send neither with a preflight.
#[test]
fn options_with_credentials_content_or_empty_fields_are_no_preflight() {
    let origin = Origin::with_cors();
    let gateway = TestGateway::with_rules(origin.address(), LIMIT_OF_TWO);
    gateway.set_used("api", 2);
    assert_eq!(options(&gateway, "/page", PREFLIGHT).status, 200);
    for fields in ["Cookie: a=1\r\n", "Authorization: Bearer a\r\n", "Content-Length: 3\r\n\r\nabc"] {
        assert_eq!(options(&gateway, "/page", &format!("{PREFLIGHT}{fields}")).status, 429, "{fields}");
    }
    assert_eq!(options(&gateway, "/page", "Origin:\r\nAccess-Control-Request-Method:\r\n").status, 429);
}

#[test]
fn pages_of_other_origins_read_refusals_and_errors_of_the_gateway() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), LIMIT_OF_TWO);
    gateway.set_used("api", 2);
    let too_long = "/a".repeat(300);
    for (path, status) in [("/page", 429), ("/a%00", 400), (too_long.as_str(), 414)] {
        let response = gateway.connect().get(path, CROSS_ORIGIN);
        assert_eq!(response.status, status, "{path}");
        assert_eq!(response.field(ALLOW_ORIGIN), "https://app.example", "{path}");
        assert!(response.field(EXPOSE_HEADERS).contains("Retry-After, RateLimit, RateLimit-Policy"), "{path}");
        assert_eq!((response.field("vary"), response.field("cache-control")), ("Origin", "no-store"), "{path}");
        assert_eq!(response.field("access-control-allow-credentials"), "", "{path}");
    }
    let same_origin = gateway.connect().get("/page", "");
    assert_eq!((same_origin.status, same_origin.field(ALLOW_ORIGIN)), (429, ""));
    for invalid in ["Origin: https://a.example, https://b.example\r\n", "Origin: a b\r\n", "Origin: \r\n"] {
        assert_eq!(gateway.connect().get("/page", invalid).field(ALLOW_ORIGIN), "", "{invalid}");
    }
    assert_eq!(gateway.connect().get("/page", "Origin: null\r\n").field(ALLOW_ORIGIN), "null");
}

#[test]
fn failed_origin_is_readable_and_a_response_of_the_origin_is_left_alone() {
    let origin = Origin::with_script(|request, connection| match request.target.as_str() {
        "/closed" => connection.close(),
        "/own" => connection.reply("200 OK", "Access-Control-Allow-Origin: https://other.example\r\n", b"page"),
        "/robots.txt" => connection.reply("200 OK", "", b"User-agent: *\n"),
        _ => connection.reply("403 Forbidden", "", b"page"),
    });
    let gateway = TestGateway::with_rules(origin.address(), "routes: [ { match: /** } ]");
    for (path, status, allowed) in [
        ("/closed", 502, "https://app.example"),
        ("/own", 200, "https://other.example"),
        ("/none", 403, ""),
        ("/robots.txt", 200, ""),
    ] {
        let response = gateway.connect().get(path, CROSS_ORIGIN);
        assert_eq!((response.status, response.field(ALLOW_ORIGIN)), (status, allowed), "{path}");
    }
}

fn options(gateway: &TestGateway, path: &str, fields: &str) -> Response {
    let mut client = gateway.connect();
    client.send(format!("OPTIONS {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    client.response_to("OPTIONS")
}
