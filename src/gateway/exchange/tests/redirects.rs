//! Redirects by the listener and by the route, and what else a listener adds.

use super::site::Site;

const SITE: &str = "hosts: shop.example\nclasses: [{ name: all }]\nroutes: [{ match: '/**' }]\n";

const ROUTES: &str = "
quotas: { api: { limit: 10, window: { fixed: 60s } } }
classes: [{ name: all, bucket: { capacity: 3, fill: 1, interval: 60s } }]
routes:
  - { match: '/old/**', redirect: '/new/{rest}' }
  - { match: '/moved', redirect: { to: 'https://other.example/', status: 307 }, response_headers: { set: { X-Frame-Options: DENY } } }
  - { match: '/**', cost: { api: 1 } }
";

/// A site whose listener redirects to https at `port`.
fn redirecting(port: u16) -> Site {
    let mut site = Site::new(SITE);
    site.listener.redirect_port = Some(port);
    site
}

#[test]
fn listener_redirects_to_the_same_url_with_https() {
    let answer = redirecting(443).send("GET /item/1?a=b&c", &[("host", "Shop.example:8080")]);
    assert_eq!((answer.status, answer.field("location")), (301, "https://shop.example/item/1?a=b&c"));
    assert_eq!(answer.field("cache-control"), "no-store");
    assert_eq!(redirecting(8443).send("GET /", &[]).field("location"), "https://shop.example:8443/");
}

#[test]
fn redirect_to_https_names_addresses_and_has_a_path() {
    let mut site = Site::new(&SITE.replace("hosts: shop.example", "hosts: ['[2001:db8::1]', 192.0.2.7]"));
    site.listener.redirect_port = Some(8443);
    let location = |line: &str, host: &str| site.send(line, &[("host", host)]).field("location").to_owned();
    assert_eq!(location("GET /a", "[2001:db8::1]:8080"), "https://[2001:db8::1]:8443/a");
    assert_eq!(location("GET /a", "192.0.2.7"), "https://192.0.2.7:8443/a");
    assert_eq!(location("OPTIONS *", "192.0.2.7"), "https://192.0.2.7:8443/");
}

#[test]
fn listener_keeps_method_and_body_of_a_form() {
    let site = redirecting(443);
    let statuses = ["GET /", "HEAD /", "POST /", "PUT /"].map(|line| site.send(line, &[]).status);
    assert_eq!(statuses, [301, 301, 308, 308]);
}

#[test]
fn redirect_to_https_is_no_decision() {
    let site = redirecting(443);
    assert!(site.send("GET /", &[]).line.is_none());
    assert_eq!(site.metric("tidegate_responses_total{class=\"\",code=\"3xx\"}"), 1.0);
}

#[test]
fn listener_redirects_to_no_foreign_host_and_no_invalid_path() {
    let site = redirecting(443);
    assert_eq!(site.send("GET /", &[("host", "evil.example")]).status, 421);
    assert_eq!(site.send("GET http://evil.example/", &[]).status, 421);
    assert_eq!(site.send("GET /a%2Fb", &[]).status, 400);
}

#[test]
fn route_redirects_the_rest_of_the_path_and_the_query() {
    let site = Site::new(ROUTES);
    let answer = site.send("GET /old/a%20b/../c?d=e", &[]);
    assert_eq!((answer.status, answer.field("location")), (301, "/new/c?d=e"));
    assert_eq!(answer.field("x-tidegate-decision"), answer.logged("id"));
    let answer = site.send("POST /old/form", &[]);
    assert_eq!((answer.status, answer.field("location")), (308, "/new/form"));
}

#[test]
fn redirect_by_route_has_the_fields_of_its_route() {
    let answer = Site::new(ROUTES).send("HEAD /moved", &[]);
    assert_eq!((answer.status, answer.field("x-frame-options")), (307, "DENY"));
    assert_eq!((answer.field("location"), answer.field("cache-control")), ("https://other.example/", "no-store"));
}

#[test]
fn redirect_by_route_is_decided_like_a_page_and_free() {
    let site = Site::new(ROUTES);
    let answers = [(); 4].map(|()| site.send("GET /old/a", &[]));
    assert_eq!(answers.each_ref().map(|answer| answer.status), [301, 301, 301, 429]);
    assert_eq!((answers[0].logged("status"), answers[0].logged("bytes")), (301.into(), 0.into()));
    assert_eq!((answers[0].logged("origin_ms"), site.used()), (serde_json::Value::Null, 0.0));
}

#[test]
fn strict_transport_security_is_added_once() {
    let rules = "classes: [{ name: all }]\nroutes:\n  - { match: /own, redirect: /, response_headers: { set: { Strict-Transport-Security: max-age=1 } } }\n  - { match: '/**' }\n";
    let mut site = Site::new(rules);
    assert_eq!(site.send("GET /", &[]).field("strict-transport-security"), "", "without TLS");
    site.listener.hsts = Some("max-age=60".to_owned());
    assert_eq!(site.send("GET /", &[]).field("strict-transport-security"), "max-age=60");
    assert_eq!(site.send("GET /a%2Fb", &[]).field("strict-transport-security"), "max-age=60", "also if invalid");
    assert_eq!(site.send("GET /own", &[]).field("strict-transport-security"), "max-age=1");
}

#[test]
fn acme_server_gets_its_token_in_place_of_a_redirect() {
    let site = redirecting(443);
    let pending = site.challenges.answer_http("token", "token.thumbprint");
    let answer = site.send("GET /.well-known/acme-challenge/token", &[("host", "unknown.example")]);
    assert_eq!((answer.status, answer.body.as_str()), (200, "token.thumbprint"));
    assert_eq!(answer.field("content-type"), "application/octet-stream");
    assert!(answer.line.is_none());
    let head = site.send("HEAD /.well-known/acme-challenge/token", &[]);
    assert_eq!((head.status, head.body.as_str(), head.field("content-length")), (200, "", "16"));
    let other = |line: &str| site.send(line, &[]).status;
    assert_eq!(other("GET /.well-known/acme-challenge/another"), 301);
    assert_eq!(other("POST /.well-known/acme-challenge/token"), 308);
    drop(pending);
    assert_eq!(other("GET /.well-known/acme-challenge/token"), 301, "the challenge is over");
}

#[test]
fn redirects_of_the_gateway_itself_are_no_pages_for_bot_detection() {
    let site = Site::new("classes: [{ name: all }]\nroutes: [{ match: '/**', redirect: 'https://other.example/' }]\n");
    let scores: Vec<_> = (0..60).map(|page| site.send(&format!("GET /item/{page}"), &[]).logged("bot_score")).collect();
    // The points of the header fields of the first one.
    assert!(scores.iter().all(|score| *score == scores[0]), "{scores:?}");
}
