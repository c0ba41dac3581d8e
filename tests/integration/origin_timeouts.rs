//! Maximum waits for parts of a response, by route and kind, and what the log says of a response that was cut.

use crate::support::client::Client;
use crate::support::frames::{Http2Client, RST_STREAM};
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use serde_json::Value;
use std::time::Duration;

const RULES: &str = "
workers: 1
limits: { first_byte_timeout: 1s }
routes:
  - { match: \"/long/**\", response_timeout: 10m }
  - { match: \"/short/**\", response_timeout: 2s }
  - { match: \"/**\" }
";

const PART: &str = "5\r\na: b\n\r\n";

/// Starts an origin that sends one part of a response: an event, or the beginning of a page; at `/…/nothing`, nothing.
fn pausing_origin() -> Origin {
    Origin::with_script(|request, connection| {
        let media_type =
            if request.target.contains("events") { "Text/Event-Stream; charset=utf-8" } else { "text/html" };
        if !request.target.ends_with("nothing") {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nTransfer-Encoding: chunked\r\n\r\n");
            connection.send(head + PART);
        }
        if request.target.ends_with("broken") {
            return connection.close();
        }
        connection.expect_eof();
    })
}

/// Requests `path` and reads the first part of its response.
fn begin(gateway: &TestGateway, path: &str) -> Client {
    let mut client = gateway.connect();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!(client.head().status, 200, "{path}");
    assert_eq!(client.take(PART.len()).as_deref(), Ok(PART.as_bytes()));
    client
}

fn line<'a>(log: &'a [Value], path: &str) -> &'a Value {
    log.iter().find(|line| line["path"] == path).expect("the request is logged")
}

#[test]
fn pauses_are_as_long_as_the_route_and_the_kind_of_response_allow() {
    let origin = pausing_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let [mut short, mut page, mut events, long] =
        ["/short/events", "/page", "/events", "/long/page"].map(|path| begin(&gateway, path));
    let mut http2 = Http2Client::connect(gateway.address());
    http2.get_path(1, "/events2", "Person");
    http2.ping();
    let mut without_head = gateway.connect();
    without_head.send("GET /short/nothing HTTP/1.1\r\nHost: a\r\n\r\n");
    gateway.advance_and_sweep(Duration::from_secs(5));
    assert!(short.is_closed());
    assert_eq!(without_head.read_response().status, 504);
    gateway.advance_and_sweep(Duration::from_secs(40));
    assert!(page.is_closed());
    gateway.advance_and_sweep(Duration::from_secs(250));
    gateway.advance_and_sweep(Duration::from_secs(15));
    assert!(events.is_closed());
    http2.wait_for_frame(|frame| frame.kind == RST_STREAM && frame.stream == 1);
    drop(long);
    let log = gateway.read_log();
    for (path, cut, at_least) in
        [("/short/events", true, 2.0), ("/page", true, 30.0), ("/events", true, 300.0), ("/long/page", false, 310.0)]
    {
        let line = line(&log, path);
        assert_eq!(line["cut"], if cut { Value::from("response_timeout") } else { Value::Null }, "{path}");
        assert!(line["total_ms"].as_f64().expect("a number") >= at_least * 1000.0, "{path}: {line}");
    }
    assert_eq!(line(&log, "/events2")["cut"], "response_timeout");
    assert_eq!(line(&log, "/short/nothing")["cut"], Value::Null, "the client was sent a whole 504");
}

#[test]
fn timeout_of_the_origin_is_the_default_of_all_responses() {
    let origin = pausing_origin();
    let rules = format!("{RULES}origin: {{ url: \"ORIGIN\", response_timeout: 3s }}\n");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let (mut events, mut broken) = (begin(&gateway, "/events"), begin(&gateway, "/broken"));
    assert!(broken.is_closed());
    gateway.advance_and_sweep(Duration::from_secs(5));
    assert!(events.is_closed());
    let log = gateway.read_log();
    assert_eq!(line(&log, "/events")["cut"], "response_timeout");
    assert_eq!(line(&log, "/broken")["cut"], "origin");
}
