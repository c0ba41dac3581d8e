//! The listener for other proxies: names of requests, decisions, refusals, and the settlement of costs. The proxies
//! themselves are in `forward_auth_proxies`.

use crate::support::client::{Client, Response};
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::wait::wait_until;
use serde_json::{Value, json};
use std::time::Duration;

const RULES: &str = "
forward_auth: { listen: \"127.0.0.1:0\" }
quotas:
  api: { limit: 100, window: { fixed: 24h } }
  search: { limit: 100, window: { fixed: 24h } }
classes:
  - { name: bot, when: { kind: declared_bot }, block: true }
  - { name: person, bucket: { capacity: 1000, fill: 1, interval: 1s } }
routes:
  - { match: /cheap }
  - { match: \"/dear/*\", cost: { api: 3 } }
";

const PERSON: &str =
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\nAccept: */*\r\n";
const BOT: &str = "User-Agent: GPTBot/1.0\r\nAccept: */*\r\n";

#[test]
fn admitted_request_gets_200_and_fields_to_copy() {
    let gateway = gateway(RULES);
    let response = ask(&gateway, "/", "GET", "/dear/1?q=1", PERSON);
    assert_eq!((response.status, response.body.len()), (200, 0));
    assert_eq!((response.field("x-tidegate-class"), response.field("cache-control")), ("person", "no-store"));
    assert_eq!(response.field("x-tidegate-decision").len(), 16);
    assert_eq!(response.field("ratelimit-policy"), "\"person\";q=1000;w=1000, \"api\";q=100;w=86400");
    assert!(response.field("ratelimit").contains("\"api\";r=97"), "{response:?}");
    assert_eq!(gateway.counters(), (0.0, 3.0), "reserved until the cost is known");
}

#[test]
fn refusal_is_that_of_the_gateway() {
    let gateway = gateway(RULES);
    let refused = gateway.connect().get("/dear/1", BOT);
    assert_eq!(refused.status, 429);
    let mut asked = ask(&gateway, "/", "GET", "/dear/1", BOT);
    let without_ids = |response: &Response| {
        let mut document: Value = serde_json::from_slice(&response.body).expect("a problem document");
        document["instance"].take();
        document
    };
    assert_eq!(without_ids(&asked), without_ids(&refused));
    for varying in ["x-tidegate-decision", "retry-after", "date"] {
        assert!(asked.fields.contains_key(varying) && refused.fields.contains_key(varying), "{varying}");
        let other = refused.fields.get(varying).cloned().expect("present");
        asked.fields.insert(varying.to_owned(), other);
    }
    assert_eq!((asked.status, &asked.fields), (429, &refused.fields));
    let nginx = ask(&gateway, "/nginx", "GET", "/dear/1", BOT);
    assert_eq!((nginx.status, nginx.field("x-tidegate-status")), (403, "429"));
    assert!(nginx.field("retry-after").parse::<u64>().is_ok_and(|seconds| seconds >= 1), "{nginx:?}");
    assert_eq!(ask(&gateway, "/nginx", "GET", "/dear/1", PERSON).status, 200);
    assert_eq!(gateway.metric("tidegate_requests_total{class=\"bot\",verdict=\"refused\",reason=\"blocked\"}"), 3.0);
}

#[test]
fn refused_head_has_no_body_to_wait_for() {
    let gateway = gateway(RULES);
    let mut proxy = Client::connect(gateway.forward_auth_address());
    for _ in 0..2 {
        let fields = format!("X-Original-Method: HEAD\r\nX-Original-URI: /dear/1\r\n{BOT}");
        let response = proxy.get("/auth", &fields);
        assert_eq!((response.status, response.body.len(), response.field("content-length")), (429, 0, "0"));
    }
    proxy.send(format!("HEAD /envoy/dear/1 HTTP/1.1\r\nHost: example.com\r\n{BOT}\r\n"));
    assert_eq!(proxy.response_to("HEAD").status, 429);
}

#[test]
fn request_itself_is_asked_about_below_the_prefix() {
    let gateway = gateway(&RULES.replace(":0\" }", ":0\", path_prefix: /check, settle_after: 0s }"));
    let mut proxy = Client::connect(gateway.forward_auth_address());
    proxy.send(format!("POST /check/dear/1?q HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 4\r\n{PERSON}\r\nbody"));
    assert_eq!(proxy.read_response().status, 200);
    assert_eq!(proxy.get("/check/dear/2", BOT).status, 429);
    assert_eq!(proxy.get("/check/../settle", PERSON).status, 200, "a path of the client is no other endpoint");
    assert_eq!(proxy.get("/envoy/dear/1", PERSON).status, 400);
    let log = gateway.read_log();
    let line = &log[0];
    assert_eq!(
        (&line["method"], &line["host"], &line["path"]),
        (&"POST".into(), &"shop.example".into(), &"/dear/1".into())
    );
    assert_eq!((&line["charged"], &line["status"]), (&json!({"api": 3}), &200.into()), "settled at once");
    assert_eq!(log.iter().map(|line| &line["path"]).collect::<Vec<_>>(), ["/dear/1", "/dear/2", "/../settle"]);
}

#[test]
fn ambiguous_and_missing_names_are_rejected_and_not_counted() {
    let gateway = gateway(RULES);
    let mut proxy = Client::connect(gateway.forward_auth_address());
    for (fields, part) in [
        ("", "no request is named"),
        ("X-Forwarded-Uri: /cheap\r\n", "the method is missing"),
        ("X-Forwarded-Method: GET\r\n", "the path is missing"),
        ("X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /cheap\r\nX-Original-URI: /dear/1\r\n", "the path has several"),
        (
            "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /cheap\r\nX-Forwarded-Uri: /dear/1\r\n",
            "x-forwarded-uri has several",
        ),
        ("X-Forwarded-Method: GET\r\nX-Forwarded-Uri: http://b/cheap\r\n", "the path is invalid"),
    ] {
        let response = proxy.get("/auth", fields);
        let text = String::from_utf8_lossy(&response.body).into_owned();
        assert_eq!(response.status, 400, "{fields}");
        assert!(text.contains(part), "{fields}: {text}");
    }
    let long = format!("X-Forwarded-Uri: /{}\r\n", "a".repeat(40_000));
    assert_eq!(Client::connect(gateway.forward_auth_address()).get("/auth", &long).status, 431);
    assert_eq!(gateway.read_log().len(), 0);
}

#[test]
fn web_pages_on_the_machine_of_a_proxy_reserve_nothing() {
    let gateway = gateway(RULES);
    let listener = gateway.forward_auth_address();
    let send = |request: String| Client::connect(listener).send(request).read_response();
    let page = "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n";
    let named = "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /dear/1\r\nX-Forwarded-For: 203.0.113.7\r\n";
    let rebound = format!("evil.example:{}", listener.port());
    for request in [
        format!("GET /envoy/dear/1 HTTP/1.1\r\nHost: {listener}\r\n{PERSON}{page}\r\n"),
        format!("GET /envoy/dear/1 HTTP/1.1\r\nHost: 127.0.0.1:1\r\n{PERSON}Sec-Fetch-Site: same-site\r\n\r\n"),
        format!("GET /envoy/dear/1 HTTP/1.1\r\nHost: {listener}\r\n{PERSON}\r\n"),
        format!(
            "OPTIONS /envoy/dear/1 HTTP/1.1\r\nHost: {listener}\r\n{page}Access-Control-Request-Method: PUT\r\n\r\n"
        ),
        format!("POST /envoy/dear/1 HTTP/1.1\r\nHost: {listener}\r\n{PERSON}{page}Content-Length: 3\r\n\r\na=b"),
        format!("POST /settle HTTP/1.1\r\nHost: {listener}\r\n{PERSON}{page}Content-Length: 3\r\n\r\na=b"),
        format!("GET /traefik HTTP/1.1\r\nHost: {rebound}\r\n{PERSON}{named}\r\n"),
        format!("GET /envoy/dear/1 HTTP/1.1\r\nHost: {rebound}\r\n{PERSON}{named}\r\n"),
    ] {
        let response = send(request.clone());
        assert_eq!((response.status, response.field("content-type")), (403, "application/problem+json"), "{request}");
    }
    assert_eq!(gateway.counters(), (0.0, 0.0));
    // Those that a proxy asks about are requests of pages, too.
    let asked = ask(&gateway, "/nginx", "GET", "/dear/1", &format!("{PERSON}{page}"));
    assert_eq!(asked.status, 200, "{asked:?}");
    let envoy = format!(
        "GET /envoy/dear/1 HTTP/1.1\r\nHost: example.com\r\n{PERSON}{page}X-Forwarded-For: 203.0.113.7\r\n\r\n"
    );
    assert_eq!(send(envoy).status, 200);
    let traefik = format!("GET /traefik HTTP/1.1\r\nHost: {listener}\r\n{PERSON}{page}{named}\r\n");
    assert_eq!(send(traefik).status, 200);
    assert_eq!(gateway.counters(), (0.0, 9.0));
    assert_eq!(gateway.read_log().len(), 3, "only questions are logged");
}

#[test]
fn paths_are_read_like_those_of_the_gateway() {
    let gateway = gateway(RULES);
    for (path, status) in [("/cheap%2f..%2fdear/1", 400), ("/cheap/../dear/1", 200), ("/%00", 400), ("//dear/1", 200)] {
        assert_eq!(ask(&gateway, "/", "GET", path, PERSON).status, status, "{path}");
    }
    let refused = ask(&gateway, "/nginx", "GET", "/cheap%2f..%2fdear/1", PERSON);
    assert_eq!((refused.status, refused.field("x-tidegate-status")), (403, "400"));
    assert_eq!(ask(&gateway, "/", "CONNECT", "/", PERSON).status, 405);
    let routes: Vec<_> = gateway.read_log().iter().map(|line| line["route"].clone()).collect();
    assert_eq!(routes.iter().filter(|route| *route == "/dear/*").count(), 2, "{routes:?}");
}

#[test]
fn client_is_the_one_that_the_proxy_names() {
    let gateway = gateway(&format!("{RULES}clients: {{ trusted_proxies: [10.0.0.0/8] }}\n"));
    for forwarded_for in ["203.0.113.7", "198.51.100.1, 203.0.113.7"] {
        let fields = format!("{PERSON}X-Forwarded-For: {forwarded_for}\r\nX-Forwarded-Proto: https\r\n");
        assert_eq!(ask(&gateway, "/", "GET", "/cheap", &fields).status, 200);
    }
    assert!(gateway.state()["notes"].to_string().find("not trusted").is_none(), "{}", gateway.state()["notes"]);
    for line in gateway.read_log() {
        assert_eq!((&line["client"], &line["tls"]), (&"203.0.113.7".into(), &true.into()), "{line}");
    }
}

#[test]
fn reported_cost_replaces_the_expected_one() {
    let gateway = gateway(RULES);
    let decision = ask(&gateway, "/", "GET", "/dear/1", PERSON).field("x-tidegate-decision").to_owned();
    let report = |cost: &str| format!("{{\"decision\": \"{decision}\", \"cost\": {cost}}}");
    let settled = settle(&gateway, &report("{\"api\": 2.5, \"search\": 1}"));
    assert_eq!(settled.status, 200);
    let document: Value = serde_json::from_slice(&settled.body).expect("JSON");
    assert_eq!(document, json!({"decision": decision, "charged": {"api": 2.5, "search": 1}}));
    assert_eq!(gateway.counters(), (2.5, 0.0));
    assert_eq!(settle(&gateway, &report("{\"api\": 0}")).status, 404, "settled once");
    let other = ask(&gateway, "/", "GET", "/dear/2", PERSON).field("x-tidegate-decision").to_owned();
    assert_eq!(settle(&gateway, &format!("{{\"decision\": \"{other}\"}}")).status, 200);
    assert_eq!(gateway.counters(), (5.5, 0.0), "as expected");
    let log = gateway.read_log();
    let line = line(&log, &decision);
    assert_eq!((&line["charged"], &line["unexpected_cost"]), (&json!({"api": 2.5}), &json!({"search": 1})));
    assert_eq!((&line["cost"], &line["verdict"], log.len()), (&json!({"api": 3}), &"admitted".into(), 2));
}

#[test]
fn invalid_reports_change_nothing() {
    let gateway = gateway(RULES);
    let decision = ask(&gateway, "/", "GET", "/dear/1", PERSON).field("x-tidegate-decision").to_owned();
    let refused = ask(&gateway, "/", "GET", "/dear/1", BOT).field("x-tidegate-decision").to_owned();
    let free = ask(&gateway, "/", "GET", "/cheap", PERSON).field("x-tidegate-decision").to_owned();
    let report = |id: &str, cost: &str| format!("{{\"decision\": \"{id}\", \"cost\": {cost}}}");
    for (body, status) in [
        (String::new(), 400),
        ("{\"decision\"".into(), 400),
        ("[1]".into(), 422),
        (report(&decision, "{\"apis\": 1}"), 422),
        (report(&decision, "{\"api\": -1}"), 422),
        (report(&decision, "{\"api\": 1e99}"), 422),
        (report("x", "{}"), 422),
        (report("0123456789abcdef", "{\"api\": 1}"), 404),
        (report(&refused, "{\"api\": 1}"), 404),
        (report(&free, "{\"api\": 1}"), 404),
        (format!("{}{}", " ".repeat(17_000), report(&decision, "{}")), 413),
    ] {
        let response = settle(&gateway, &body);
        let text = String::from_utf8_lossy(&response.body).into_owned();
        assert_eq!(response.status, status, "{}: {text}", body.trim());
        assert!(text.contains("\"detail\":"), "{text}");
    }
    let response = Client::connect(gateway.forward_auth_address()).get("/settle", "");
    assert_eq!((response.status, response.field("allow")), (405, "POST"));
    assert_eq!(gateway.counters(), (0.0, 3.0));
    assert_eq!(settle(&gateway, &report(&decision, "{\"api\": 1}")).status, 200);
}

#[test]
fn unreported_cost_is_charged_as_expected_after_a_time() {
    let gateway = gateway(&RULES.replace(":0\" }", ":0\", settle_after: 30s }"));
    let decision = ask(&gateway, "/", "GET", "/dear/1", PERSON).field("x-tidegate-decision").to_owned();
    gateway.clock.advance(Duration::from_secs(29));
    let later = ask(&gateway, "/", "GET", "/dear/2", PERSON).field("x-tidegate-decision").to_owned();
    assert_eq!(gateway.counters(), (0.0, 6.0));
    gateway.clock.advance(Duration::from_secs(1));
    wait_until("the first decision to be settled", || gateway.counters() == (3.0, 3.0));
    assert_eq!(settle(&gateway, &format!("{{\"decision\": \"{decision}\"}}")).status, 404);
    assert_eq!(settle(&gateway, &format!("{{\"decision\": \"{later}\", \"cost\": {{\"api\": 0}}}}")).status, 200);
    let line = line(&gateway.read_log(), &decision);
    assert_eq!(line["charged"], json!({"api": 3}));
    assert!(line["total_ms"].as_f64().is_some_and(|total| total < 1000.0), "the time of the answer: {line}");
}

#[test]
fn oldest_pending_decisions_are_settled_above_the_memory() {
    let rules = RULES.replace(":0\" }", ":0\", memory: 1MiB }").replace("api: { limit: 100,", "api: { limit: 100000,");
    let gateway = gateway(&rules);
    let mut proxy = Client::connect(gateway.forward_auth_address());
    for number in 0..1000 {
        let fields = format!("X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /dear/{number}\r\n{PERSON}");
        assert_eq!(proxy.get("/", &fields).status, 200);
    }
    wait_until("the oldest to be settled", || {
        let (used, reserved) = gateway.counters();
        assert!(used + reserved == 3000.0, "no units are lost: {used} + {reserved}");
        used > 2000.0 && reserved > 0.0
    });
    let evicted = gateway.metric("tidegate_forward_auth_evicted_total");
    assert_eq!(evicted + gateway.metric("tidegate_forward_auth_pending"), 1000.0);
    let log = gateway.read_log();
    assert_eq!(log.len(), 1000, "the others at the stop");
    assert!(log.iter().all(|line| line["charged"]["api"] == 3 && line["status"] == 200));
}

#[test]
fn pending_decisions_are_charged_and_logged_at_the_stop() {
    let rules = format!("{RULES}ledger: file\n");
    let mut gateway = gateway(&rules);
    assert_eq!(ask(&gateway, "/", "GET", "/dear/1", PERSON).status, 200);
    gateway.restart();
    assert_eq!(gateway.counters(), (3.0, 0.0));
    let log = gateway.read_log();
    assert_eq!((log.len(), &log[0]["charged"]), (1, &json!({"api": 3})));
}

#[test]
fn pending_decision_can_be_explained() {
    let gateway = gateway(RULES);
    let decision = ask(&gateway, "/", "GET", "/dear/1", PERSON).field("x-tidegate-decision").to_owned();
    let lookup = |path: &str| {
        let (status, body) = gateway.admin_get(path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str::<Value>(&body).expect("JSON")
    };
    assert_eq!(lookup(&format!("/api/v1/decisions/{decision}"))["charged"]["api"], 0);
    assert!(lookup(&format!("/api/v1/decisions/{decision}/explanation")).to_string().contains("/dear/*"));
    assert_eq!(settle(&gateway, &format!("{{\"decision\": \"{decision}\", \"cost\": {{\"api\": 2}}}}")).status, 200);
    assert_eq!(lookup(&format!("/api/v1/decisions/{decision}"))["charged"]["api"], 2);
    assert_eq!(lookup("/api/v1/decisions")["decisions"].as_array().map(Vec::len), Some(1));
}

#[test]
fn robots_txt_and_free_routes_have_no_cost_to_settle() {
    let gateway = gateway(RULES);
    assert_eq!(ask(&gateway, "/", "GET", "/robots.txt", BOT).status, 200, "never refused");
    assert_eq!(ask(&gateway, "/", "GET", "/cheap", PERSON).status, 200);
    assert_eq!(gateway.counters(), (0.0, 0.0));
    assert_eq!(gateway.metric("tidegate_requests_total{class=\"person\",verdict=\"admitted\",reason=\"\"}"), 1.0);
    assert_eq!(gateway.read_log().len(), 2);
}

#[test]
fn reload_without_the_section_answers_nothing() {
    let gateway = gateway(RULES);
    let rules = RULES.replace("forward_auth: { listen: \"127.0.0.1:0\" }", "");
    let address = gateway.forward_auth_address();
    let messages = gateway.reload("127.0.0.1:9".parse().expect("an address"), &rules).expect("reloads");
    assert!(messages.contains("forward_auth.listen"), "{messages}");
    let fields = format!("X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /cheap\r\n{PERSON}");
    assert_eq!(Client::connect(address).get("/", &fields).status, 503);
}

/// Returns the line of a decision.
fn line(log: &[Value], decision: &str) -> Value {
    log.iter().find(|line| line["id"] == decision).expect("a line").clone()
}

fn gateway(rules: &str) -> TestGateway {
    TestGateway::with_rules(Origin::plain().address(), rules)
}

/// Asks about a request, as Traefik and Caddy do.
fn ask(gateway: &TestGateway, path: &str, method: &str, uri: &str, fields: &str) -> Response {
    let fields =
        format!("X-Forwarded-Method: {method}\r\nX-Forwarded-Uri: {uri}\r\nX-Forwarded-Host: example.com\r\n{fields}");
    Client::connect(gateway.forward_auth_address()).get(path, &fields)
}

/// Reports a cost.
fn settle(gateway: &TestGateway, body: &str) -> Response {
    let mut client = Client::connect(gateway.forward_auth_address());
    client.send(format!("POST /settle HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    client.read_response()
}
