//! Requests whose clients leave before the end of the response: the origin still works on them.

use crate::support::client::Client;
use crate::support::frames::Http2Client;
use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, SignalReceiver, SignalSender, signal};
use crate::support::wait::wait_until;
use serde_json::Value;
use std::time::Duration;

const ONE_SLOT: &str = "
workers: 1
limits: { first_byte_timeout: 1s }
quotas: { api: { limit: 100, window: { fixed: 24h }, cost_header: X-API-Cost } }
scopes: { default: { concurrency: 1, queue: { max_wait: 1h } } }
routes: [ { match: \"/**\", cost: { api: 1 } } ]";

const QUEUE_LENGTH: &str = "tidegate_queue_length{scope=\"default\"}";

#[test]
fn http1_client_that_leaves_keeps_its_slot_and_pays_the_actual_cost() {
    let (origin, arrival, release) = origin_with_expensive_page();
    let gateway = TestGateway::with_rules(origin.address(), ONE_SLOT);
    let leaving = send_get(&gateway, "/");
    arrival.wait();
    leaving.reset();
    gateway.wait_for_metric("tidegate_client_connections", 0.0);
    check_next_request_waits(gateway, &origin, &arrival, &release);
}

#[test]
fn http2_client_that_resets_its_stream_keeps_its_slot_and_pays_the_actual_cost() {
    let (origin, arrival, release) = origin_with_expensive_page();
    let gateway = TestGateway::with_rules(origin.address(), ONE_SLOT);
    let mut leaving = Http2Client::connect(gateway.address());
    assert!(leaving.get(1));
    arrival.wait();
    assert!(leaving.reset(1));
    leaving.ping();
    check_next_request_waits(gateway, &origin, &arrival, &release);
}

#[test]
fn client_that_leaves_within_the_response_keeps_its_slot_to_the_end_of_it() {
    let (release, released) = signal();
    let origin = Origin::with_script(move |request, connection| match request.target.as_str() {
        "/long" => {
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc");
            released.wait();
            connection.send("def");
        }
        _ => connection.reply("200 OK", "", b"hello"),
    });
    let gateway = TestGateway::with_rules(origin.address(), ONE_SLOT);
    let mut leaving = send_get(&gateway, "/long");
    assert_eq!(leaving.head().status, 200);
    leaving.reset();
    gateway.wait_for_metric("tidegate_client_connections", 0.0);
    let mut waiting = send_get(&gateway, "/");
    gateway.wait_for_metric(QUEUE_LENGTH, 1.0);
    release.notify();
    assert_eq!(waiting.read_response().text(), "hello");
    assert_eq!(origin.connections(), 1, "the connection of a drained response is reused");
}

#[test]
fn response_that_does_not_end_is_aborted_after_the_response_timeout() {
    let (closed_sender, closed) = signal();
    let origin = Origin::with_script(move |request, connection| match request.target.as_str() {
        "/endless" => {
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc");
            connection.expect_eof();
            closed_sender.notify();
        }
        _ => connection.reply("200 OK", "", b"hello"),
    });
    let gateway = TestGateway::with_rules(origin.address(), ONE_SLOT);
    let mut leaving = send_get(&gateway, "/endless");
    leaving.head();
    leaving.reset();
    gateway.wait_for_metric("tidegate_client_connections", 0.0);
    let mut waiting = send_get(&gateway, "/");
    gateway.wait_for_metric(QUEUE_LENGTH, 1.0);
    wait_until("the gateway to close the connection", || {
        gateway.advance_and_sweep(Duration::from_secs(31));
        closed.is_notified()
    });
    assert_eq!(waiting.read_response().text(), "hello");
}

#[test]
fn client_that_leaves_before_a_slow_response_is_recorded_at_its_end() {
    let (arrival_sender, arrival) = signal();
    let (head_release, head_released) = signal();
    let (release, released) = signal();
    let (head_sender, head_sent) = signal();
    let origin = Origin::with_script(move |request, connection| match request.target.as_str() {
        "/slow" => {
            arrival_sender.notify();
            head_released.wait();
            connection.send("HTTP/1.1 200 OK\r\nX-API-Cost: 4\r\nContent-Length: 6\r\n\r\nabc");
            head_sender.notify();
            released.wait();
            connection.send("def");
        }
        _ => connection.reply("200 OK", "", b"hello"),
    });
    let gateway = TestGateway::with_rules(origin.address(), ONE_SLOT);
    let leaving = send_get(&gateway, "/slow");
    arrival.wait();
    leaving.reset();
    gateway.wait_for_metric("tidegate_client_connections", 0.0);
    head_release.notify();
    head_sent.wait();
    wait_until("the head to be charged", || gateway.state()["quotas"][0]["used"] == 4.0);
    gateway.advance_and_sweep(Duration::from_secs(2));
    release.notify();
    wait_until("the request to be recorded", || {
        gateway.metrics().iter().any(|(name, count)| name.starts_with("tidegate_requests_total{") && *count == 1.0)
    });
    assert_eq!(send_get(&gateway, "/").read_response().text(), "hello");
    let log = gateway.read_log();
    assert_eq!(charged_for_abandoned(&log), 4);
}

#[test]
fn large_response_is_aborted_when_its_client_leaves() {
    let (closed_sender, closed) = signal();
    let origin = Origin::with_script(move |request, connection| match request.target.as_str() {
        "/large" => {
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
            while connection.send([b'x'; 64 * 1024]) {}
            closed_sender.notify();
        }
        _ => connection.reply("200 OK", "", b"hello"),
    });
    let gateway = TestGateway::with_rules(origin.address(), ONE_SLOT);
    let mut leaving = send_get(&gateway, "/large");
    leaving.head();
    leaving.reset();
    closed.wait();
    assert_eq!(send_get(&gateway, "/").read_response().text(), "hello");
}

#[test]
fn shutdown_waits_for_abandoned_requests() {
    let (origin, arrival, release) = origin_with_expensive_page();
    let gateway = TestGateway::with_rules(origin.address(), ONE_SLOT);
    let leaving = send_get(&gateway, "/");
    arrival.wait();
    leaving.reset();
    gateway.wait_for_metric("tidegate_client_connections", 0.0);
    let address = gateway.addresses()[0];
    let shutdown = std::thread::spawn(move || gateway.read_log());
    wait_until("all listeners to be closed", || std::net::TcpStream::connect(address).is_err());
    release.notify();
    assert_eq!(charged_for_abandoned(&shutdown.join().expect("gateway stops")), 4);
}

/// Returns an origin whose page costs more than expected and is held until released, with the signals of both.
fn origin_with_expensive_page() -> (Origin, SignalReceiver, SignalSender) {
    let (arrival_sender, arrival) = signal();
    let (release, released) = signal();
    let origin = Origin::with_script(move |_, connection| {
        arrival_sender.notify();
        released.wait();
        connection.reply("200 OK", "X-API-Cost: 4\r\n", b"hello");
    });
    (origin, arrival, release)
}

/// Checks that the next request is sent only after the origin has responded to the abandoned one, and what is charged.
fn check_next_request_waits(gateway: TestGateway, origin: &Origin, arrival: &SignalReceiver, release: &SignalSender) {
    let mut waiting = send_get(&gateway, "/");
    gateway.wait_for_metric(QUEUE_LENGTH, 1.0);
    assert_eq!(origin.received_requests().len(), 1);
    release.notify();
    arrival.wait();
    release.notify();
    assert_eq!(waiting.read_response().text(), "hello");
    assert_eq!(charged_for_abandoned(&gateway.read_log()), 4);
}

/// Returns the units charged for the request that a log has with status 499.
fn charged_for_abandoned(log: &[Value]) -> u64 {
    let line = log.iter().find(|line| line["status"] == 499).expect("the abandoned request is logged");
    assert_eq!(line["bytes"], 0, "nobody received the response");
    line["charged"]["api"].as_u64().expect("whole units")
}

fn send_get(gateway: &TestGateway, path: &str) -> Client {
    let mut client = gateway.connect();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: example.com\r\nUser-Agent: Mozilla/5.0 Firefox/140.0\r\n\r\n"));
    client
}
