//! The time of a request (`total_ms` and its histogram): from its first byte to the last byte of the response.

use crate::support::frames::{DATA, Http2Client};
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use serde_json::Value;
use std::time::Duration;

const RULES: &str = "
workers: 1
cache: {}
classes: [{ name: bad, when: { user_agent: BadBot }, block: true }]
routes: [{ match: \"/**\", cache: { ttl: 1m } }]
";

/// Returns a time of the logged requests for `path`, in milliseconds.
fn times(log: &[Value], path: &str, field: &str) -> Vec<Option<f64>> {
    log.iter().filter(|line| line["path"] == path).map(|line| line[field].as_f64()).collect()
}

/// Returns the sum of all request times in the metrics, in seconds.
fn measured_seconds(gateway: &TestGateway) -> f64 {
    let metrics = gateway.metrics();
    let sums = metrics.iter().filter(|(name, _)| name.starts_with("tidegate_request_duration_seconds_sum"));
    sums.map(|(_, seconds)| seconds).sum()
}

#[test]
fn wait_for_the_fetch_of_another_request_counts() {
    let (origin, arrival, release) = Origin::with_held_responses("/slow");
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let (mut first, mut second, mut other) = (gateway.connect(), gateway.connect(), gateway.connect());
    let mut third = Http2Client::connect(gateway.address());
    first.send("GET /slow HTTP/1.1\r\nHost: example.com\r\n\r\n");
    arrival.wait();
    second.send("GET /slow HTTP/1.1\r\nHost: example.com\r\n\r\n");
    third.get_path(1, "/slow", "Person");
    third.ping();
    // The worker has read what was sent before: it reads connections in turn.
    other.get("/other", "");
    gateway.clock.advance(Duration::from_secs(5));
    release.notify();
    assert_eq!((first.read_response().status, second.read_response().status), (200, 200));
    third.wait_for_frame(|frame| frame.kind == DATA && frame.stream == 1);
    assert_eq!(origin.received_requests().iter().filter(|request| request.target == "/slow").count(), 1);
    gateway.wait_for_metric("tidegate_cache_requests_total{result=\"hit\"}", 2.0);
    assert_eq!(measured_seconds(&gateway), 15.0);
    let log = gateway.read_log();
    assert_eq!(times(&log, "/slow", "total_ms"), [Some(5000.0); 3]);
    let mut origin_times = times(&log, "/slow", "origin_ms");
    origin_times.sort_by_key(Option::is_some);
    assert_eq!(origin_times, [None, None, Some(5000.0)], "only the first one waited for the origin");
    assert_eq!(times(&log, "/slow", "scope_wait_ms"), [Some(0.0); 3]);
}

#[test]
fn request_begins_with_its_first_byte_and_not_with_the_pause_before() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let (mut slow, mut refused, mut other) = (gateway.connect(), gateway.connect(), gateway.connect());
    slow.get("/before", "");
    refused.get("/before", "");
    gateway.clock.advance(Duration::from_secs(7));
    for client in [&mut slow, &mut refused] {
        client.send("GET /slow-head HT");
    }
    other.get("/other", "");
    gateway.clock.advance(Duration::from_secs(2));
    slow.send("TP/1.1\r\nHost: example.com\r\n");
    refused.send("TP/1.1\r\nHost: example.com\r\nUser-Agent: BadBot\r\n");
    other.get("/other", "");
    gateway.clock.advance(Duration::from_secs(1));
    slow.send("\r\n");
    refused.send("\r\n");
    assert_eq!((slow.read_response().status, refused.read_response().status), (200, 429));
    gateway.clock.advance(Duration::from_secs(7));
    slow.get("/after", "");
    assert_eq!(measured_seconds(&gateway), 6.0);
    let log = gateway.read_log();
    assert_eq!(times(&log, "/slow-head", "total_ms"), [Some(3000.0); 2]);
    assert_eq!(times(&log, "/after", "total_ms"), [Some(0.0)]);
}
