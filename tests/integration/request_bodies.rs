//! Request bodies are received before the request takes slots.

use crate::support::client::Client;
use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, signal};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

const RULES: &str = "
workers: 1
clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }
limits: { first_byte_timeout: 1s, max_body_size: 1MiB, buffer_body: 64KiB, buffer_disk: 8MiB }
quotas: { api: { limit: 1000, window: { fixed: 24h } } }
scopes: { default: { concurrency: 2, queue: { max_wait: 0s } } }
routes: [{ match: \"/streamed\", stream: true }, { match: \"/**\", cost: { api: 1 } }]
";
const KIB: usize = 1024;

/// Starts an origin that records the body of each request, and responds once it is complete.
fn recording_origin() -> (Origin, Arc<Mutex<Vec<Vec<u8>>>>) {
    let bodies = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let recorded = Arc::clone(&bodies);
    let origin = Origin::with_script(move |request, connection| {
        let body = connection.read_body(request);
        recorded.lock().push(body);
        connection.reply("200 OK", "", b"page");
    });
    (origin, bodies)
}

fn post(length: usize) -> String {
    format!("POST /form HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|position| b'a' + (position % 26) as u8).collect()
}

#[test]
fn incomplete_bodies_hold_no_slots() {
    let (origin, bodies) = recording_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut slow: Vec<Client> = (0..64).map(|_| gateway.connect()).collect();
    for (number, client) in slow.iter_mut().enumerate() {
        let head = post(100).replace("Host: a", &format!("Host: a\r\nX-Forwarded-For: 192.0.2.{number}"));
        client.send(head).send(content(50));
    }
    gateway.wait_for_metric("tidegate_quota_reserved{quota=\"api\"}", 64.0);
    for _ in 0..20 {
        assert_eq!(gateway.connect().get("/page", "").status, 200);
    }
    assert_eq!(origin.received_requests().len(), 20, "no part of an incomplete request is sent");
    for client in &mut slow {
        assert_eq!(client.send(content(50)).read_response().status, 200);
    }
    assert_eq!(bodies.lock().len(), 84);
}

#[test]
fn incomplete_bodies_of_one_address_hold_few_units() {
    const BOUND: usize = 64;
    let (origin, _) = recording_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut slow: Vec<Client> = (0..BOUND).map(|_| gateway.connect()).collect();
    for client in &mut slow {
        client.send(post(100)).send(content(50));
    }
    gateway.wait_for_metric("tidegate_quota_reserved{quota=\"api\"}", BOUND as f64);
    for _ in 0..20 {
        let mut client = gateway.connect();
        client.send(post(100)).try_send(content(50));
        assert_eq!(client.read_response().status, 503);
    }
    assert_eq!(gateway.metric("tidegate_quota_reserved{quota=\"api\"}"), BOUND as f64);
    assert_eq!(gateway.connect().get("/page", "").status, 200, "a request without a body is not bounded");
    slow.into_iter().for_each(Client::reset);
    gateway.wait_for_metric("tidegate_quota_reserved{quota=\"api\"}", 0.0);
    assert_eq!(gateway.connect().send(post(2)).send("ab").read_response().status, 200, "the bodies are forgotten");
}

#[test]
fn bodies_of_any_length_arrive_unchanged() {
    let (origin, bodies) = recording_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut client = gateway.connect();
    for length in [1, 63 * KIB, 64 * KIB, 64 * KIB + 1, 200 * KIB, 1024 * KIB] {
        assert_eq!(client.send(post(length)).send(content(length)).read_response().status, 200, "{length} bytes");
        assert!(bodies.lock().last() == Some(&content(length)), "{length} bytes");
        assert_eq!(origin.last_request().fields["content-length"], length.to_string());
    }

    let chunked = |path: &str| format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut body = Vec::new();
    for part in content(100 * KIB).chunks(1000) {
        body.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        body.extend_from_slice(part);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"0\r\n\r\n");
    assert_eq!(client.send(chunked("/form")).send(&body).read_response().status, 200);
    assert!(bodies.lock().last() == Some(&content(100 * KIB)));
    assert_eq!(origin.last_request().fields["content-length"], (100 * KIB).to_string(), "the length is known by then");

    assert_eq!(client.send(chunked("/empty")).send("0\r\n\r\n").read_response().status, 200);
    assert_eq!(bodies.lock().last(), Some(&Vec::new()));
}

#[test]
fn bodies_beyond_the_limits_are_rejected_before_they_are_sent() {
    let (origin, _) = recording_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    assert_eq!(gateway.connect().send(post(1024 * KIB + 1)).read_response().status, 413, "by its declared length");
    let mut client = gateway.connect();
    client.send("POST /form HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n100001\r\n");
    client.send(content(1024 * KIB + 1));
    assert_eq!(client.read_response().status, 413, "by its length");
    assert_eq!(gateway.counters(), (0.0, 0.0), "rejected requests cost nothing");
}

#[test]
fn bodies_beyond_the_space_for_files_are_refused() {
    let (origin, bodies) = recording_origin();
    let gateway = TestGateway::with_rules(origin.address(), &RULES.replace("buffer_disk: 8MiB", "buffer_disk: 1MiB"));
    for (length, status) in [(300 * KIB, 200), (1000 * KIB, 503), (300 * KIB, 200)] {
        let mut client = gateway.connect();
        client.send(post(length)).try_send(content(length));
        assert_eq!(client.read_response().status, status, "{length} bytes, of which one client has a quarter in files");
    }
    assert_eq!(bodies.lock().len(), 2);
    assert_eq!(gateway.counters(), (2.0, 0.0), "the refused request costs nothing");
}

#[test]
fn beginning_of_a_body_is_in_memory_however_the_body_arrives() {
    let (origin, bodies) = recording_origin();
    let gateway = TestGateway::with_rules(origin.address(), &RULES.replace("buffer_disk: 8MiB", "buffer_disk: 1MiB"));
    let body = content(64 * KIB + 256 * KIB);
    // What memory does not take would exceed the space for files.
    for first in [0, 1, 30 * KIB, 63 * KIB, 64 * KIB] {
        let mut client = gateway.connect();
        client.send(post(body.len()));
        gateway.wait_for_metric("tidegate_quota_reserved{quota=\"api\"}", 1.0);
        client.send(&body[..first]).send(&body[first..]);
        assert_eq!(client.read_response().status, 200, "{first} bytes arrive before the rest");
        assert!(bodies.lock().pop().is_some_and(|received| received == body));
    }
}

#[test]
fn body_of_a_client_that_leaves_is_not_sent() {
    let (origin, _) = recording_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut client = gateway.connect();
    client.send(post(100)).send(content(50));
    gateway.wait_for_metric("tidegate_quota_reserved{quota=\"api\"}", 1.0);
    client.reset();
    gateway.wait_for_metric("tidegate_quota_reserved{quota=\"api\"}", 0.0);
    assert_eq!((origin.received_requests().len(), gateway.counters()), (0, (0.0, 0.0)));
}

#[test]
fn slow_bodies_end_with_408() {
    let (origin, _) = recording_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut paused = gateway.connect();
    paused.send(post(100)).send(content(50));
    gateway.wait_for_metric("tidegate_quota_reserved{quota=\"api\"}", 1.0);
    gateway.advance_and_sweep(Duration::from_secs(9));
    assert_eq!(gateway.metric("tidegate_quota_reserved{quota=\"api\"}"), 1.0);
    gateway.advance_and_sweep(Duration::from_secs(22));
    assert_eq!(paused.read_response().status, 408);

    // A byte a second is less than the least rate, though no pause is long.
    let mut dripping = gateway.connect();
    dripping.send(post(100));
    gateway.wait_for_metric("tidegate_quota_reserved{quota=\"api\"}", 1.0);
    let mut seconds = 0;
    while gateway.metric("tidegate_quota_reserved{quota=\"api\"}") == 1.0 {
        dripping.try_send("x");
        gateway.advance_and_sweep(Duration::from_secs(2));
        seconds += 2;
        assert!(seconds <= 20, "the least rate applies after ten seconds");
    }
    assert!(seconds >= 10, "{seconds} seconds");
    assert_eq!(dripping.read_response().status, 408);
    assert_eq!((origin.received_requests().len(), gateway.counters()), (0, (0.0, 0.0)));
}

#[test]
fn streamed_body_reaches_the_origin_while_it_is_sent() {
    let (head_sender, head) = signal();
    let origin = Origin::with_script(move |request, connection| {
        head_sender.notify();
        connection.read_body(request);
        connection.reply("200 OK", "", b"page");
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut client = gateway.connect();
    client.send("POST /streamed HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345");
    head.wait();
    assert_eq!(client.send("67890").read_response().status, 200);
}
