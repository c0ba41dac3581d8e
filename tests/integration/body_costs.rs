//! Costs in bodies and trailers: read as they pass, charged at the end of the response.

use crate::support::client::Client;
use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, OriginConnection, signal};
use crate::support::wait::wait_until;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write as _;
use std::time::Duration;

const CHAT: &str = r#"{"id":"c1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"say \"usage\":{\"total_tokens\":1}"}}],"usage":{"prompt_tokens":1000,"completion_tokens":4000,"total_tokens":5000}}"#;
const RESPONSE: &str = r#"{"id":"resp_1","object":"response","output":[{"type":"message","content":[{"type":"output_text","text":"hi"}]}],"usage":{"input_tokens":30,"output_tokens":12,"total_tokens":42}}"#;
const MESSAGE: &str = r#"{"id":"msg_1","type":"message","content":[{"type":"text","text":"hi"}],"usage":{"input_tokens":25,"output_tokens":15}}"#;

const CHAT_STREAM: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"he\"}}],\"usage\":null}\n\n\
    data: {\"choices\":[{\"delta\":{\"content\":\"llo\"}}],\"usage\":null}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7}}\n\n\
    data: [DONE]\n\n";
const MESSAGE_STREAM: &str = "event: message_start\n\
    data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n\
    event: content_block_delta\n\
    data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\n\
    event: message_delta\n\
    data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15}}\n\n\
    event: message_stop\n\
    data: {\"type\":\"message_stop\"}\n\n";

/// A quota with a limit, and a route that expects 100 units.
fn rules(cost: &str) -> String {
    format!(
        "classes: []\nquotas: {{ tokens: {{ limit: 100000, window: {{ fixed: 24h }}, {cost} }} }}\n\
         routes: [{{ match: '/v1/**', cost: {{ tokens: 100 }} }}]\n"
    )
}

/// Sends `path` to an origin that answers with this type, coding and body. Returns the units that were charged.
fn charged(cost: &str, path: &str, content_type: &'static str, coding: &'static str, body: &[u8]) -> f64 {
    let fields = match coding {
        "" => format!("Content-Type: {content_type}\r\n"),
        coding => format!("Content-Type: {content_type}\r\nContent-Encoding: {coding}\r\n"),
    };
    let sent = body.to_vec();
    let origin = Origin::with_script(move |_, connection| connection.reply("200 OK", &fields, &sent));
    let gateway = TestGateway::with_rules(origin.address(), &rules(cost));
    let response = gateway.connect().get(path, "");
    assert_eq!((response.status, response.body == body), (200, true), "the body is the origin's");
    used(&gateway)
}

fn used(gateway: &TestGateway) -> f64 {
    gateway.state()["quotas"][0]["used"].as_f64().expect("a number")
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).expect("memory");
    encoder.finish().expect("memory")
}

#[test]
fn bodies_of_model_apis_are_charged_as_they_report() {
    const TOTAL: &str = "cost_json: usage.total_tokens";
    const MESSAGES: &str = "cost_json: [usage.input_tokens, usage.output_tokens]";
    const STREAMED: &str = "cost_json: [message.usage.input_tokens, usage.output_tokens]";
    const WEIGHTED: &str =
        "cost_json: [{ path: usage.prompt_tokens, weight: 0.25 }, { path: usage.completion_tokens, weight: 4 }]";
    for (cost, content_type, body, expected) in [
        (TOTAL, "application/json", CHAT, 5000.0),
        (TOTAL, "application/json; charset=utf-8", RESPONSE, 42.0),
        (MESSAGES, "application/json", MESSAGE, 40.0),
        (WEIGHTED, "application/json", CHAT, 16_250.0),
        (TOTAL, "text/event-stream", CHAT_STREAM, 7.0),
        (STREAMED, "text/event-stream; charset=utf-8", MESSAGE_STREAM, 40.0),
        (
            TOTAL,
            "application/x-ndjson",
            "{\"usage\":{\"total_tokens\":1}}\n{\"usage\":{\"total_tokens\":9}}\n{}\n",
            9.0,
        ),
        // What reports no cost is charged as expected.
        (TOTAL, "application/json", "{\"usage\":{}}", 100.0),
        (TOTAL, "application/json", "{\"usage\":{\"total_tokens\":-5}}", 100.0),
        (TOTAL, "application/json", "{\"usage\":{\"total_tokens\":\"many\"}}", 100.0),
        (TOTAL, "application/json", "{\"usage\":{\"total_tokens\":7", 100.0),
        (TOTAL, "text/html", CHAT, 100.0),
        // More than the limit cannot be charged.
        (TOTAL, "application/json", "{\"usage\":{\"total_tokens\":99999999999}}", 100_000.0),
        (TOTAL, "application/json", "{\"usage\":{\"total_tokens\":0}}", 0.0),
    ] {
        assert_eq!(charged(cost, "/v1/chat", content_type, "", body.as_bytes()), expected, "{cost} {body}");
    }
    assert_eq!(charged(TOTAL, "/v1/chat", "application/json", "gzip", &gzip(CHAT)), 5000.0);
    assert_eq!(charged(TOTAL, "/v1/chat", "text/event-stream", "gzip", &gzip(CHAT_STREAM)), 7.0);
    assert_eq!(charged(TOTAL, "/v1/chat", "application/json", "unknown", CHAT.as_bytes()), 100.0);
    assert_eq!(charged(TOTAL, "/elsewhere", "application/json", "", CHAT.as_bytes()), 5000.0, "a route without a cost");
}

#[test]
fn four_answers_of_five_thousand_tokens_cost_twenty_thousand() {
    let origin = Origin::with_script(|_, connection| {
        connection.reply("200 OK", "Content-Type: application/json\r\n", CHAT.as_bytes());
    });
    let gateway = TestGateway::with_rules(origin.address(), &rules("cost_json: usage.total_tokens"));
    let mut client = gateway.connect();
    assert!((0..4).all(|_| client.get("/v1/chat", "").status == 200));
    drop(client);
    assert_eq!(used(&gateway), 20_000.0);
    let log = gateway.read_log();
    let charges: Vec<f64> = log.iter().filter_map(|line| line["charged"]["tokens"].as_f64()).collect();
    assert_eq!(charges, [5000.0; 4]);
}

/// Answers with the beginning of a stream.
fn begin_stream(connection: &mut OriginConnection, beginning: &str) {
    connection.send(format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{beginning}\r\n",
        beginning.len()
    ));
}

/// Sends the last event of a stream, and its end.
fn end_stream(connection: &mut OriginConnection, event: &str) {
    connection.send(format!("{:x}\r\n{event}\r\n0\r\n\r\n", event.len()));
}

#[test]
fn a_stream_is_not_held_up_and_its_units_are_reserved_until_its_end() {
    let (release, released) = signal();
    let origin = Origin::with_script(move |_, connection| {
        begin_stream(connection, "data: {\"usage\":{\"total_tokens\":3}}\n\n");
        released.wait();
        end_stream(connection, "data: {\"usage\":{\"total_tokens\":700}}\n\n");
    });
    let gateway = TestGateway::with_rules(origin.address(), &rules("cost_json: usage.total_tokens"));
    let mut client = gateway.connect();
    client.send("GET /v1/chat HTTP/1.1\r\nHost: example.com\r\n\r\n");
    assert_eq!(client.head().status, 200);
    let first = client.take(30).expect("the first event, before the rest");
    assert!(String::from_utf8_lossy(&first).contains("data: "), "{first:?}");
    let quota = |name: &str| gateway.state()["quotas"][0][name].as_f64().expect("a number");
    assert_eq!((quota("used"), quota("reserved")), (0.0, 100.0));
    release.notify();
    wait_until("the end of the stream to be charged", || quota("used") == 700.0);
    assert_eq!(quota("reserved"), 0.0);
}

#[test]
fn a_client_that_leaves_pays_the_larger_of_what_was_expected_and_reported() {
    for (beginning, expected) in [
        ("data: {\"usage\":{\"total_tokens\":3}}\n\n", 100.0),
        ("data: {\"usage\":{\"total_tokens\":345}}\n\n", 345.0),
        ("data: {\"us", 100.0),
    ] {
        let (release, released) = signal();
        let origin = Origin::with_script(move |_, connection| {
            begin_stream(connection, beginning);
            released.wait();
        });
        let gateway = TestGateway::with_rules(origin.address(), &rules("cost_json: usage.total_tokens"));
        let mut client: Client = gateway.connect();
        client.send("GET /v1/chat HTTP/1.1\r\nHost: example.com\r\n\r\n");
        assert_eq!(client.head().status, 200);
        client.take(10).expect("the beginning");
        client.reset();
        release.notify();
        wait_until("the abandoned request to be charged", || {
            gateway.clock.advance(Duration::from_secs(1));
            used(&gateway) == expected
        });
    }
}

#[test]
fn a_client_that_leaves_before_the_last_event_pays_for_it() {
    let (release, released) = signal();
    let origin = Origin::with_script(move |_, connection| {
        begin_stream(connection, "data: {\"choices\":[]}\n\n");
        released.wait();
        end_stream(connection, "data: {\"usage\":{\"total_tokens\":5000}}\n\n");
    });
    let gateway = TestGateway::with_rules(origin.address(), &rules("cost_json: usage.total_tokens"));
    let mut client: Client = gateway.connect();
    client.send("GET /v1/chat HTTP/1.1\r\nHost: example.com\r\n\r\n");
    assert_eq!(client.head().status, 200);
    client.take(10).expect("the beginning");
    client.reset();
    gateway.wait_for_metric("tidegate_client_connections", 0.0);
    release.notify();
    wait_until("the last event to be charged", || used(&gateway) == 5000.0);
}

#[test]
fn a_stream_longer_than_a_window_closes_no_quota() {
    for window in ["sliding: 10s", "fixed: 10s", "first_use: 10s"] {
        let (release, released) = signal();
        let origin = Origin::with_script(move |request, connection| match request.target.as_str() {
            "/long" => {
                begin_stream(connection, "data: {\"choices\":[]}\n\n");
                released.wait();
                end_stream(connection, "data: {\"usage\":{\"total_tokens\":700}}\n\n");
            }
            _ => connection.reply("200 OK", "Content-Type: application/json\r\n", br#"{"usage":{"total_tokens":1}}"#),
        });
        let rules =
            rules("cost_json: usage.total_tokens").replace("fixed: 24h", window).replace("tokens: 100 ", "tokens: 1 ");
        let gateway = TestGateway::with_rules(
            origin.address(),
            &format!("{}, {{ match: /long }}]\n", rules.trim_end().trim_end_matches(']')),
        );
        let mut long = gateway.connect();
        long.send("GET /long HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n");
        assert_eq!(long.head().status, 200);
        for _ in 0..13 {
            gateway.clock.advance(Duration::from_secs(1));
            assert_eq!(gateway.connect().get("/v1/chat", "").status, 200, "{window}");
        }
        release.notify();
        assert!(long.read_rest().ends_with(b"0\r\n\r\n"), "the stream ends");
        for _ in 0..3 {
            assert_eq!(gateway.connect().get("/v1/chat", "").status, 200, "{window}");
            assert!(used(&gateway) < 800.0, "{window}: {}", used(&gateway));
            gateway.clock.advance(Duration::from_secs(1));
        }
    }
}

#[test]
fn a_refused_call_costs_nothing_and_teaches_nothing() {
    let origin = Origin::with_script(|request, connection| match request.target.as_str() {
        "/v1/ok" => connection.reply("200 OK", "Content-Type: application/json\r\n", CHAT.as_bytes()),
        "/v1/denied" => connection.reply("401 Unauthorized", "Content-Type: application/json\r\n", b"{\"error\":{}}"),
        "/v1/empty" => connection.reply("404 Not Found", "", b""),
        _ => connection.reply("500 Internal Server Error", "Content-Type: application/json\r\n", b"{}"),
    });
    let learned = rules("cost_json: usage.total_tokens").replace("tokens: 100 }", "tokens: learned }");
    let gateway = TestGateway::with_rules(origin.address(), &learned);
    let mut client = gateway.connect();
    let mut charged = |path: &str| {
        let before = used(&gateway);
        client.get(path, "");
        used(&gateway) - before
    };
    assert_eq!(charged("/v1/ok"), 5000.0);
    let expected = charged("/v1/broken");
    assert!(expected > 1.0, "a failure may have cost what calls cost: {expected}");
    for _ in 0..20 {
        assert_eq!((charged("/v1/denied"), charged("/v1/empty")), (0.0, 0.0));
    }
    assert!(charged("/v1/broken") >= expected, "refused calls have taught nothing");
}

#[test]
fn an_origin_is_asked_for_trailers_and_a_client_that_asked_for_none_gets_none() {
    let origin = Origin::with_script(|request, connection| match request.field("te") {
        "trailers" => {
            connection.send(
                "HTTP/1.1 200 OK\r\nTrailer: X-Cost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Cost: 31\r\n\r\n",
            );
        }
        _ => connection.reply("200 OK", "", b"hi"),
    });
    let gateway = TestGateway::with_rules(origin.address(), &rules("cost_trailer: X-Cost"));
    assert_eq!(gateway.connect().get("/v1/chat", "").text(), "hi");
    assert_eq!(used(&gateway), 31.0);
}

#[test]
fn a_trailer_and_a_header_precede_the_body() {
    let body = "{\"usage\":{\"total_tokens\":9}}";
    let answer = move |fields: &str, trailers: &str| {
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{fields}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n{trailers}\r\n",
            body.len()
        )
    };
    for (fields, trailers, expected) in [
        ("Trailer: X-Cost\r\n", "X-Cost: 31\r\n", 31.0),
        ("Trailer: X-Cost\r\n", "X-Cost: many\r\n", 9.0),
        ("", "", 9.0),
        ("X-Head-Cost: 12\r\n", "X-Cost: 31\r\n", 12.0),
    ] {
        let text = answer(fields, trailers);
        let origin = Origin::with_script(move |_, connection| {
            connection.send(&text);
        });
        let cost = "cost_header: X-Head-Cost, cost_json: usage.total_tokens, cost_trailer: X-Cost";
        let gateway = TestGateway::with_rules(origin.address(), &rules(cost));
        assert_eq!(gateway.connect().get("/v1/chat", "").status, 200);
        assert_eq!(used(&gateway), expected, "{fields} {trailers}");
    }
}

#[test]
fn a_route_that_never_reports_its_cost_is_a_problem() {
    for fields in [
        "Content-Type: application/json\r\n",
        "Content-Type: text/plain\r\n",
        "Content-Type: application/json\r\nContent-Encoding: rot13\r\n",
        "",
    ] {
        let origin = Origin::with_script(move |_, connection| {
            connection.reply("200 OK", fields, b"{\"usage\":{\"tokens\":5}}");
        });
        check_missing_costs(&origin);
    }
}

/// Asserts that ten responses without a cost are a problem of their route.
fn check_missing_costs(origin: &Origin) {
    let gateway = TestGateway::with_rules(origin.address(), &rules("cost_json: usage.total_tokens"));
    let mut client = gateway.connect();
    let warnings = || gateway.state()["notes"].to_string();
    assert!((0..9).all(|_| client.get("/v1/chat", "").status == 200) && !warnings().contains("tokens"));
    client.get("/v1/chat", "");
    assert!(
        warnings().contains("quotas.tokens: none of 10 responses of the route /v1/** reported its cost"),
        "{}",
        warnings()
    );
    assert_eq!(gateway.metric("tidegate_cost_missing_total{quota=\"tokens\",route=\"/v1/**\"}"), 10.0);
}

#[test]
fn invalid_paths_are_refused_with_their_place() {
    for (cost, expected) in [
        (
            "cost_json: /usage/total_tokens",
            "quotas.tokens.cost_json: invalid path: \"/usage/total_tokens\" does not separate",
        ),
        ("cost_json: usage..tokens", "quotas.tokens.cost_json: invalid path: segment 2 is empty"),
        ("cost_json: [usage.a, { weight: 2 }]", "quotas.tokens.cost_json[1].path: missing"),
        ("cost_json: { path: a.b, weight: -1 }", "quotas.tokens.cost_json"),
        ("cost_json: 5", "quotas.tokens.cost_json"),
    ] {
        let text = format!("origin: http://127.0.0.1:1\n{}", rules(cost));
        let loaded = tidegate_config::load(std::path::Path::new("gate.yaml"), &text, &[], &[], &[]);
        let errors = loaded.map(|_| ()).expect_err("an invalid path").to_string();
        assert!(errors.contains(expected), "{cost}: {errors}");
    }
}
