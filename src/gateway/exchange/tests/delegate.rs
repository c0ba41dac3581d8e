//! Answers to other proxies, and the settlement of what they admit.

use super::site::{Answer, BOT, Site};
use crate::gateway::message::forward_auth::ReportedCosts;
use crate::gateway::transport::listener::ListenerKind;
use serde_json::{Value, json};
use tidegate_policy::Units;
use tokio::sync::oneshot;

const RULES: &str = "
forward_auth: { listen: '127.0.0.1:0' }
headers: { retry_after_spread: 0% }
quotas: { api: { limit: 10, window: { fixed: 60s }, tiers: { bot: [{ above: 0%, shed: 100% }] } } }
classes: [{ name: bot, when: { kind: declared_bot } }, { name: person }]
routes: [{ match: '/item/*', cost: { api: 3 } }, { match: '/moved', redirect: '/to' }, { match: '/**' }]
";

/// A site that a proxy on this machine asks.
fn asked() -> Site {
    asked_with(RULES)
}

fn asked_with(rules: &str) -> Site {
    let mut site = Site::new(rules);
    site.peer = [127, 0, 0, 1].into();
    site.listener.kind = ListenerKind::ForwardAuth;
    site
}

/// Asks about a request of a client at 192.0.2.7.
fn ask(site: &Site, endpoint: &str, method: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
    let named = [("x-forwarded-method", method), ("x-forwarded-uri", path), ("x-forwarded-for", "192.0.2.7")];
    site.send(endpoint, &[&named[..], fields].concat())
}

/// Reports the cost of an admitted request. Returns the charges; `None` if nobody waits for a report.
fn report(site: &Site, answer: &Answer, units: u64) -> Option<Vec<(String, Units)>> {
    let id = u64::from_str_radix(answer.field("x-tidegate-decision"), 16).expect("an id");
    let pending = site.worker.shared().pending_decisions.take(id)?;
    let (charged, charges) = oneshot::channel();
    let costs = vec![("api".to_owned(), Units::from_whole(units))];
    assert!(pending.send(ReportedCosts { costs, charged }).is_ok(), "dropped");
    site.run(charges).ok()
}

fn line(site: &Site, answer: &Answer) -> Value {
    let id = u64::from_str_radix(answer.field("x-tidegate-decision"), 16).expect("an id");
    serde_json::from_slice(&site.telemetry.decision(id).expect("a line")).expect("a line is JSON")
}

#[test]
fn proxy_is_told_that_it_may_forward_the_request_of_its_client() {
    let site = asked();
    let answer = ask(&site, "GET /", "GET", "/item/1", &[]);
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
    assert_eq!((answer.field("x-tidegate-class"), answer.field("cache-control")), ("person", "no-store"));
    assert!(answer.field("ratelimit").starts_with("\"api\""), "{answer:?}");
    let line = line(&site, &answer);
    assert_eq!(
        (&line["client"], &line["path"], &line["method"]),
        (&json!("192.0.2.7"), &json!("/item/1"), &json!("GET"))
    );
}

#[test]
fn proxy_is_told_a_refusal_as_its_client_would_be() {
    let site = asked();
    let answer = ask(&site, "GET /", "GET", "/item/1", &[BOT]);
    assert_eq!((answer.status, answer.logged("reason")), (429, "tier".into()));
    assert_eq!(answer.json()["violated-policies"], json!(["api"]));
    let nginx = ask(&site, "GET /nginx", "GET", "/item/1", &[BOT]);
    assert_eq!((nginx.status, nginx.field("x-tidegate-status")), (403, "429"));
    assert_eq!((nginx.field("retry-after"), nginx.logged("status")), (answer.field("retry-after"), 429.into()));
}

#[test]
fn proxy_that_asks_with_get_about_head_waits_for_no_body() {
    let site = asked();
    let answer = ask(&site, "GET /", "HEAD", "/item/1", &[BOT]);
    assert_eq!((answer.status, answer.field("content-length"), answer.body.as_str()), (429, "", ""));
    let itself = ask(&site, "HEAD /", "HEAD", "/item/1", &[BOT]);
    assert_ne!(itself.field("content-length"), "");
}

#[test]
fn proxy_is_told_what_is_invalid_or_not_named() {
    let site = asked();
    assert_eq!(ask(&site, "GET /", "GET", "/item/a%2Fb", &[]).status, 400);
    assert_eq!(ask(&site, "GET /nginx", "GET", "/item/a%2Fb", &[]).field("x-tidegate-status"), "400");
    let unnamed = site.send("GET /", &[]);
    assert_eq!((unnamed.status, unnamed.field("content-type")), (400, "application/problem+json"));
    assert!(unnamed.body.contains("no request is named"), "{}", unnamed.body);
    assert!(site.telemetry.recent_decisions().is_empty());
}

#[test]
fn error_in_answer_to_head_has_no_body() {
    let site = asked();
    let [get, head] = ["GET /", "HEAD /"].map(|line| site.send(line, &[]));
    assert_eq!((head.status, head.body.as_str()), (400, ""));
    assert_eq!(head.field("content-length"), get.body.len().to_string());
}

#[test]
fn only_trusted_proxies_may_ask() {
    let mut site = asked();
    site.peer = [198, 51, 100, 1].into();
    assert_eq!(ask(&site, "GET /", "GET", "/item/1", &[]).status, 403);
    let mut site = asked_with(&format!("clients: {{ trusted_proxies: [198.51.100.1] }}{RULES}"));
    site.peer = [198, 51, 100, 1].into();
    assert_eq!(ask(&site, "GET /", "GET", "/item/1", &[]).status, 200);
}

#[test]
fn listener_answers_nothing_once_the_section_is_gone() {
    let site = asked();
    site.reload(&RULES.replace("forward_auth: { listen: '127.0.0.1:0' }", ""));
    let answer = ask(&site, "GET /", "GET", "/item/1", &[]);
    assert_eq!((answer.status, answer.line), (503, None));
}

#[test]
fn envoy_asks_about_the_request_itself_below_the_prefix() {
    let site = asked();
    let answer = site.send("POST /envoy/item/1?a=b", &[("x-forwarded-for", "192.0.2.7")]);
    let line = line(&site, &answer);
    assert_eq!((&line["method"], &line["path"], &line["query"]), (&json!("POST"), &json!("/item/1"), &json!("a=b")));
}

#[test]
fn admitted_request_is_held_until_its_cost_is_reported() {
    let site = asked();
    let answer = ask(&site, "GET /", "GET", "/item/1", &[]);
    let reserved = || site.worker.config().admission.quotas(site.clock.now())[0].reserved.as_f64();
    assert_eq!((site.used(), reserved(), line(&site, &answer)["charged"].clone()), (0.0, 3.0, json!({"api": 0})));
    site.advance(20);
    assert_eq!(report(&site, &answer, 2), Some(vec![("api".to_owned(), Units::from_whole(2))]));
    assert_eq!((site.used(), reserved()), (2.0, 0.0));
    let line = line(&site, &answer);
    assert_eq!((&line["charged"], &line["status"], &line["total_ms"]), (&json!({"api": 2}), &json!(200), &json!(0)));
    assert_eq!(report(&site, &answer, 1), None, "settled once");
}

#[test]
fn admitted_request_costs_what_was_expected_if_nobody_reports() {
    let site = asked();
    let answer = ask(&site, "GET /", "GET", "/item/1", &[]);
    let id = u64::from_str_radix(answer.field("x-tidegate-decision"), 16).expect("an id");
    drop(site.worker.shared().pending_decisions.take(id));
    site.run(tokio::task::yield_now());
    site.run(tokio::task::yield_now());
    assert_eq!((site.used(), line(&site, &answer)["charged"].clone()), (3.0, json!({"api": 3})));
}

#[test]
fn request_is_charged_at_once_where_no_report_is_awaited() {
    let site = asked_with(&RULES.replace(":0' }", ":0', settle_after: 0s }"));
    let answer = ask(&site, "GET /", "GET", "/item/1", &[]);
    assert_eq!((site.used(), report(&site, &answer, 1)), (3.0, None));
    let free = ask(&site, "GET /", "GET", "/", &[]);
    assert_eq!((free.status, report(&site, &free, 1)), (200, None));
}

#[test]
fn other_proxy_forwards_what_the_gateway_would_answer_itself() {
    let site = asked();
    assert_eq!(ask(&site, "GET /", "GET", "/moved", &[]).status, 200);
    let robots = ask(&site, "GET /", "GET", "/robots.txt", &[BOT]);
    assert_eq!((robots.status, site.used()), (200, 0.0));
}

#[test]
fn report_is_answered_with_the_charges() {
    let site = asked();
    let answer = ask(&site, "GET /", "GET", "/item/1", &[]);
    let id = answer.field("x-tidegate-decision");
    let settle = |document: &str| {
        site.send_body("POST /settle", &[], &format!("Content-Length: {}\r\n\r\n{document}", document.len()))
    };
    for (document, status) in [
        ("", 400),
        ("{\"decision\"", 400),
        ("[1]", 422),
        (&format!("{{\"decision\": \"{id}\", \"cost\": {{\"other\": 1}}}}"), 422),
        ("{\"decision\": \"0123456789abcdef\"}", 404),
        (&" ".repeat(17_000), 413),
    ] {
        let answer = settle(document);
        assert_eq!((answer.status, answer.field("content-type")), (status, "application/problem+json"), "{document}");
    }
    assert_eq!(site.used(), 0.0, "invalid reports change nothing");
    let document = format!("{{\"decision\": \"{id}\", \"cost\": {{\"api\": 0.5}}}}");
    let settled = settle(&document);
    assert_eq!((settled.status, settled.json()), (200, json!({"decision": id, "charged": {"api": 0.5}})));
    assert_eq!((settle(&document).status, site.used()), (404, 0.5));
}

#[test]
fn settlement_needs_post() {
    let answer = asked().send("GET /settle", &[]);
    assert_eq!((answer.status, answer.field("allow")), (405, "POST"));
}

#[test]
fn empty_settlement_is_no_report() {
    let answer = asked().send("POST /settle", &[("content-type", "application/json")]);
    assert_eq!((answer.status, answer.field("content-type")), (400, "application/problem+json"));
}
