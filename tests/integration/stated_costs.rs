//! Costs that bodies of requests state: read before the decision, reserved, and replaced by what the response reports.

use crate::support::gateway::TestGateway;
use crate::support::http2_responses_to;
use crate::support::origin::{Origin, signal};
use crate::support::wait::wait_until;
use bytes::Bytes;
use http_body_util::Full;
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

const STATED: &str = "{ json: [max_tokens, max_completion_tokens], per_byte: 0.25, default: 1000 }";

fn rules(stream: bool) -> String {
    format!(
        "workers: 1\nclasses: []\nlimits: {{ request_body_timeout: 20s }}\n\
         quotas: {{ tokens: {{ limit: 1000000, window: {{ fixed: 24h }}, cost_json: usage.total_tokens }} }}\n\
         routes: [{{ match: '/v1/**', stream: {stream}, cost: {{ tokens: {STATED} }} }}]\n"
    )
}

fn post(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /v1/chat HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn chunked(parts: &[&[u8]]) -> Vec<u8> {
    let mut message = b"POST /v1/chat HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for part in parts {
        message.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        message.extend_from_slice(part);
        message.extend_from_slice(b"\r\n");
    }
    message.extend_from_slice(b"0\r\n\r\n");
    message
}

/// Starts an origin that records the body of each request, and reports a cost of 7.
fn reporting_origin() -> (Origin, Arc<Mutex<Vec<Vec<u8>>>>) {
    let bodies = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let recorded = Arc::clone(&bodies);
    let origin = Origin::with_script(move |request, connection| {
        let body = connection.read_body(request);
        recorded.lock().push(body);
        connection.reply("200 OK", "Content-Type: application/json\r\n", br#"{"usage":{"total_tokens":7}}"#);
    });
    (origin, bodies)
}

fn number(line: &Value, field: &str) -> f64 {
    line[field]["tokens"].as_f64().expect("a number")
}

#[test]
fn request_reserves_what_its_body_states_and_pays_what_the_response_reports() {
    let giant = format!("{{\"x\":\"{}\",\"max_tokens\":5}}", "x".repeat(200_000));
    let early = format!("{{\"max_tokens\":5000,\"x\":\"{}\"}}", "x".repeat(200_000));
    let deep = format!("{{\"x\":{}{},\"max_tokens\":50}}", "[".repeat(10_000), "]".repeat(10_000));
    let of_bytes = |body: &str| body.len() as f64 / 4.0;
    let cases: &[(&str, f64)] = &[
        (r#"{"max_tokens":300}"#, 304.5),
        (r#"{"max_tokens":300,"max_completion_tokens":500}"#, 511.5),
        (r#"{"messages":[{"max_tokens":9}],"max_tokens":0}"#, 11.5),
        (r#"{"max_tokens":0.5}"#, 5.0),
        (r#"{"max_tokens":"40"}"#, 44.75),
        (r#"{"max_tokens":128000}"#, 128_005.25),
        // Twice the same key.
        (r#"{"max_tokens":2000,"max_tokens":1}"#, 2008.5),
        // No number.
        (r#"{"max_tokens":-5}"#, 1000.0),
        (r#"{"max_tokens":"many"}"#, 1000.0),
        (r#"{"max_tokens":null}"#, 1000.0),
        (r#"{"messages":[]}"#, 1000.0),
        (r#"[{"max_tokens":9}]"#, 1000.0),
        ("max_tokens=9", 1000.0),
        (&deep, 50.0 + of_bytes(&deep)),
        (&giant, of_bytes(&giant)),
        (&early, 5000.0 + of_bytes(&early)),
    ];
    for stream in [true, false] {
        let (origin, bodies) = reporting_origin();
        let gateway = TestGateway::with_rules(origin.address(), &rules(stream));
        let mut client = gateway.connect();
        for (body, _) in cases {
            assert_eq!(client.send(post(body.as_bytes())).read_response().status, 200, "{body:.80}");
            assert!(bodies.lock().last().is_some_and(|last| last == body.as_bytes()), "{body:.80}");
        }
        assert_eq!(client.get("/v1/models", "").status, 200);
        // Only a lenient parser reads it, with any number: the limit is reserved, of which a part is used.
        assert_eq!(client.send(post(br#"{"max_tokens":9"#)).read_response().status, 429);
        // The origin may read it in UTF-7, where it states 9.
        let message = String::from_utf8(post(br#"{"+AG0-ax_tokens":9}"#)).expect("text");
        let message = message.replace("application/json", "application/json; charset=utf-7");
        assert_eq!(client.send(message).read_response().status, 429);
        drop(client);
        let mut log = gateway.read_log();
        log.sort_by(|one, other| one["time"].as_str().cmp(&other["time"].as_str()));
        let expected = cases.iter().map(|(body, cost)| (*body, *cost)).chain([("", 1000.0)]);
        for (line, (body, cost)) in log.iter().zip(expected) {
            assert_eq!((number(line, "cost"), number(line, "charged")), (cost, 7.0), "{body:.80}");
        }
        assert_eq!(log.len(), cases.len() + 3);
    }
}

#[test]
fn bodies_arrive_unchanged_however_they_are_cut() {
    let long: Vec<u8> = (0..300_000_u32).map(|position| b'a' + (position % 26) as u8).collect();
    for stream in [true, false] {
        let (origin, bodies) = reporting_origin();
        let gateway = TestGateway::with_rules(origin.address(), &rules(stream));
        let mut client = gateway.connect();
        for length in [0, 1, 65_535, 65_536, 65_537, 300_000] {
            let body = &long[..length];
            let (begin, end) = body.split_at(length / 3);
            let parts: Vec<&[u8]> = [begin, end].into_iter().filter(|part| !part.is_empty()).collect();
            for message in [post(body), chunked(&parts)] {
                assert_eq!(client.send(message).read_response().status, 200, "{length} bytes");
                assert!(bodies.lock().last().is_some_and(|last| last == body), "{length} bytes");
            }
        }
    }
}

#[test]
fn bodies_over_http2_state_costs_and_arrive_unchanged() {
    let early = format!("{{\"max_tokens\":300,\"x\":\"{}\"}}", "x".repeat(300_000));
    for stream in [true, false] {
        let (origin, bodies) = reporting_origin();
        let gateway = TestGateway::with_rules(origin.address(), &rules(stream));
        let texts = [r#"{"max_tokens":300}"#, &early, ""];
        let requests = texts.map(|body| {
            let request = http::Request::post("http://a/v1/chat");
            request.body(Full::new(Bytes::from(body.to_owned()))).expect("a request")
        });
        let responses = http2_responses_to(gateway.address(), requests);
        assert!(responses.iter().all(|response| response.status() == 200), "{responses:?}");
        assert!(bodies.lock().iter().zip(&texts).all(|(body, text)| body == text.as_bytes()));
        let mut log = gateway.read_log();
        log.sort_by(|one, other| one["time"].as_str().cmp(&other["time"].as_str()));
        let costs: Vec<f64> = log.iter().map(|line| number(line, "cost")).collect();
        assert_eq!(costs, [304.5, 300.0 + early.len() as f64 / 4.0, 1000.0], "stream: {stream}");
    }
}

#[test]
fn learned_cost_is_reserved_where_it_is_less() {
    let (origin, _) = reporting_origin();
    let gateway = TestGateway::with_rules(origin.address(), &rules(true));
    let mut client = gateway.connect();
    for _ in 0..40 {
        assert_eq!(client.send(post(br#"{"max_tokens":128000}"#)).read_response().status, 200);
    }
    client.send(post(br#"{"max_tokens":1}"#)).read_response();
    drop(client);
    let mut log = gateway.read_log();
    log.sort_by(|one, other| one["time"].as_str().cmp(&other["time"].as_str()));
    let costs: Vec<f64> = log.iter().map(|line| number(line, "cost")).collect();
    assert_eq!(
        (costs[..32].iter().all(|cost| *cost == 128_005.25), &costs[32..]),
        (true, &[[7.0; 8].as_slice(), &[5.0]].concat()[..])
    );
}

#[test]
fn client_that_sends_its_body_slowly_holds_no_units() {
    for stream in [true, false] {
        let (origin, _) = reporting_origin();
        let gateway = TestGateway::with_rules(origin.address(), &rules(stream));
        let body = br#"{"max_tokens":900000}"#;
        let message = post(body);
        let mut slow: Vec<_> = (0..8).map(|_| gateway.connect()).collect();
        slow.iter_mut().for_each(|client| _ = client.send(&message[..message.len() - 5]));
        gateway.wait_for_metric("tidegate_client_connections", 8.0);
        assert_eq!(gateway.connect().send(post(body)).read_response().status, 200);
        gateway.wait_for_metric("tidegate_quota_reserved{quota=\"tokens\"}", 0.0);
        let mut last = slow.pop().expect("a client");
        assert_eq!(last.send(&message[message.len() - 5..]).read_response().status, 200);
        wait_until("the slow clients to be refused", || {
            gateway.clock.advance(Duration::from_secs(5));
            gateway.metric("tidegate_client_connections") <= 1.0
        });
        for client in &mut slow {
            assert_eq!(client.read_response().status, 408, "stream: {stream}");
        }
        assert_eq!(origin.received_requests().len(), 2, "no incomplete request is sent");
        gateway.wait_for_metric("tidegate_quota_used{quota=\"tokens\"}", 14.0);
    }
}

#[test]
fn response_of_a_stream_is_relayed_while_its_stated_cost_is_reserved() {
    let (release, released) = signal();
    let origin = Origin::with_script(move |request, connection| {
        connection.read_body(request);
        let event = "data: {\"choices\":[]}\n\n";
        connection.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{event}\r\n",
            event.len()
        ));
        released.wait();
        let event = "data: {\"usage\":{\"total_tokens\":345}}\n\n";
        connection.send(format!("{:x}\r\n{event}\r\n0\r\n\r\n", event.len()));
    });
    let gateway = TestGateway::with_rules(origin.address(), &rules(true));
    let mut client = gateway.connect();
    client.send(post(br#"{"stream":true,"max_tokens":996}"#));
    assert_eq!(client.head().status, 200);
    client.take(20).expect("the first event");
    let quota = |name: &str| gateway.state()["quotas"][0][name].as_f64().expect("a number");
    assert_eq!((quota("used"), quota("reserved")), (0.0, 1004.0));
    release.notify();
    wait_until("the end of the stream to be charged", || quota("used") == 345.0);
    assert_eq!(quota("reserved"), 0.0);
}

#[test]
fn request_that_states_more_than_is_left_is_refused() {
    let (origin, _) = reporting_origin();
    let gateway = TestGateway::with_rules(origin.address(), &rules(false));
    gateway.set_used("tokens", 999_000);
    let mut client = gateway.connect();
    assert_eq!(client.send(post(br#"{"max_tokens":2000}"#)).read_response().status, 429);
    assert_eq!(client.send(post(br#"{"max_tokens":1e300}"#)).read_response().status, 429);
    assert_eq!(client.send(post(br#"{"max_tokens":20}"#)).read_response().status, 200);
    assert_eq!(origin.received_requests().len(), 1);
}

#[test]
fn invalid_stated_costs_are_refused_with_their_place() {
    for (stated, expected) in [
        ("{ default: 5 }", "routes[0].cost.tokens: found neither json nor per_byte"),
        ("{ json: a..b }", "routes[0].cost.tokens.json: invalid path: segment 2 is empty"),
        ("{ json: [a, $.b] }", "routes[0].cost.tokens.json[1]: invalid path: \"$.b\" does not separate"),
        ("{ json: a, default: 2000000 }", "routes[0].cost.tokens: cost 2000000 exceeds the quota limit"),
        ("{ json: a, per_byte: -1 }", "routes[0].cost.tokens.per_byte"),
        ("{ json: a, weight: 1 }", "routes[0].cost.tokens"),
        ("many", "an amount to a thousandth, or learned"),
    ] {
        let text = format!("origin: http://127.0.0.1:1\n{}", rules(false).replace(STATED, stated));
        let loaded = tidegate_config::load(std::path::Path::new("gate.yaml"), &text, &[], &[], &[]);
        let errors = loaded.map(|_| ()).expect_err("an invalid cost").to_string();
        assert!(errors.contains(expected), "{stated}: {errors}");
    }
}
