//! Throttling toward the origin: slots, backoff and the wait queue.

use crate::support::client::{Client, Response};
use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, OriginConnection, ReceivedRequest, SignalReceiver, SignalSender, signal};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

const ONE_SLOT: &str = "
quotas: { api: { limit: 100, window: { fixed: 24h } } }
classes:
  - { name: bot, when: { kind: [declared_bot, suspected_bot] }, priority: 1 }
  - { name: person, when: { kind: human }, priority: 3 }
scopes: { default: { concurrency: 1, queue: { max_wait: 60s, max_length: 2 } } }
routes: [ { match: \"/**\", cost: { api: 1 } } ]";

const BACKOFF_40_SECONDS: &str = "
workers: 1
headers: { retry_after_spread: 0% }
scopes: { default: { backoff: { min_delay: 40s, jitter: 0%, min_clients: 1 } } }";

#[test]
fn origin_concurrency_never_exceeds_the_limit() {
    const CLIENTS: usize = 64;
    let (inflight, max_inflight) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (origin_inflight, origin_max) = (Arc::clone(&inflight), Arc::clone(&max_inflight));
    // Each request waits for three others: so four are concurrent, and the count is complete.
    let barrier = Barrier::new(4);
    let origin = Origin::with_script(move |_, connection| {
        let current = origin_inflight.fetch_add(1, Ordering::SeqCst) + 1;
        origin_max.fetch_max(current, Ordering::SeqCst);
        barrier.wait();
        origin_inflight.fetch_sub(1, Ordering::SeqCst);
        connection.reply("200 OK", "", b"hello");
    });
    let rules = "workers: 2\nscopes: { default: { concurrency: 4, queue: { max_wait: 60s } } }";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    std::thread::scope(|threads| {
        for client in 0..CLIENTS {
            let gateway = &gateway;
            threads.spawn(move || {
                let mut connection = gateway.connect();
                for _ in 0..2 {
                    let response = connection.get("/", &format!("X-Forwarded-For: 192.0.2.{client}\r\n"));
                    assert_eq!(response.status, 200);
                }
            });
        }
    });
    assert_eq!((origin.received_requests().len(), max_inflight.load(Ordering::SeqCst)), (2 * CLIENTS, 4));
    assert_eq!(gateway.metric("tidegate_origin_concurrency_limit{scope=\"default\"}"), 4.0);
    assert_eq!(gateway.metric("tidegate_queue_length{scope=\"default\"}"), 0.0);
}

#[test]
fn overloaded_origin_gets_backoff_then_one_probe() {
    let (origin, arrival, release) =
        origin_with_signals(|request, connection, release| match request.target.as_str() {
            "/enough" => connection.reply("429 Too Many Requests", "Retry-After: 5\r\n", b"go away"),
            _ => {
                release.wait();
                connection.reply("200 OK", "", b"hello");
            }
        });
    let rules = "
headers: { retry_after_spread: 0% }
scopes: { default: { backoff: { statuses: [429], jitter: 0%, window: 60s, min_clients: 1 }, queue: { max_wait: 2s } } }";
    let gateway = TestGateway::with_rules(origin.address(), rules);

    let response = gateway.connect().get("/enough", "");
    assert_unavailable(&response, "backoff", "5");
    assert!(response.json()["type"].as_str().expect("a type").ends_with("#temporary-reduced-capacity"));
    assert_eq!(gateway.metric("tidegate_origin_backoff_seconds{scope=\"default\"}"), 5.0);
    gateway.clock.advance(Duration::from_secs(1));
    assert_unavailable(&gateway.connect().get("/", ""), "backoff", "4");
    assert_eq!(origin.received_requests().len(), 1, "no request was sent during the backoff");

    gateway.clock.advance(Duration::from_secs(4));
    let mut clients: Vec<Client> = (0..3).map(|_| gateway.connect()).collect();
    clients.iter_mut().for_each(|client| send_get(client, "/"));
    arrival.wait();
    arrival.wait();
    gateway.wait_for_metric("tidegate_queue_length{scope=\"default\"}", 2.0);
    assert_eq!(origin.received_requests().len(), 2, "only one probe is sent");
    (0..3).for_each(|_| release.notify());
    assert!(clients.iter_mut().all(|client| client.read_response().status == 200), "the origin is healthy again");
    assert_eq!(origin.received_requests().len(), 4);

    let log = gateway.read_log();
    let line = |status: u64| log.iter().filter(|line| line["status"] == status).collect::<Vec<_>>();
    assert_eq!(line(200).len(), 3);
    // Two workers write the log, each at its own time.
    let mut verdicts: Vec<_> =
        line(503).iter().map(|line| (line["verdict"].as_str(), line["reason"].as_str())).collect();
    verdicts.sort();
    assert_eq!(verdicts, [(Some("admitted"), None), (Some("refused"), Some("backoff"))]);
}

#[test]
fn origin_429_is_forwarded_without_backoff() {
    let origin = Origin::with_script(|_, connection| {
        connection.reply("429 Too Many Requests", "Retry-After: 5\r\n", b"go away");
    });
    let gateway = TestGateway::with_rules(origin.address(), "scopes: { default: { concurrency: 4 } }");
    for _ in 0..2 {
        let response = gateway.connect().get("/", "");
        assert_eq!((response.status, response.text().as_str(), response.field("retry-after")), (429, "go away", "5"));
    }
    assert_eq!(origin.received_requests().len(), 2);
}

#[test]
fn origin_reset_starts_backoff() {
    let origin = Origin::with_script(|_, connection| connection.reset());
    let rules = "scopes: { default: { backoff: { min_delay: 10s } } }";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    assert_eq!(gateway.connect().get("/", "").status, 502);
    let request_count = origin.received_requests().len();
    assert_eq!(gateway.connect().get("/", "").json()["reason"], "backoff");
    assert_eq!(gateway.connect().get("/robots.txt", "").status, 502, "robots.txt is never refused");
    assert_eq!(origin.received_requests().len(), request_count + 1);
}

#[test]
fn truncated_response_counts_as_overload() {
    let origin = Origin::with_script(|_, connection| {
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc");
        connection.reset();
    });
    let gateway = TestGateway::with_rules(origin.address(), BACKOFF_40_SECONDS);
    gateway.connect().send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").read_rest();
    let response = gateway.connect().get("/", "");
    assert_unavailable(&response, "backoff", "40");
    assert_eq!(
        (origin.received_requests().len(), gateway.state()["scopes"][0]["backoff_level"].as_u64()),
        (1, Some(1))
    );
}

#[test]
fn stalled_response_counts_as_overload() {
    let origin = Origin::with_script(|_, connection| {
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc");
        connection.expect_eof();
    });
    let gateway = TestGateway::with_rules(origin.address(), BACKOFF_40_SECONDS);
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").head();
    client.take(3).expect("response has begun");
    gateway.advance_and_sweep(Duration::from_secs(3600));
    client.read_rest();
    assert_unavailable(&gateway.connect().get("/", ""), "backoff", "40");
}

#[test]
fn client_disconnect_is_not_an_overload() {
    let (closed_sender, closed) = signal();
    let origin = Origin::with_script(move |request, connection| match request.target.as_str() {
        "/long" => {
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc");
            connection.expect_eof();
            closed_sender.notify();
        }
        _ => connection.reply("200 OK", "", b""),
    });
    let rules = format!("origin: {{ url: ORIGIN, aborts_on_disconnect: true }}{BACKOFF_40_SECONDS}");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let mut client = gateway.connect();
    client.send("GET /long HTTP/1.1\r\nHost: a.test\r\n\r\n").head();
    client.reset();
    closed.wait();
    assert_eq!(gateway.connect().get("/", "").status, 200);
}

#[test]
fn failed_response_carries_backoff_retry_after() {
    let origin = Origin::with_script(|_, connection| connection.reset());
    let gateway = TestGateway::with_rules(origin.address(), BACKOFF_40_SECONDS);
    let response = gateway.connect().get("/", "");
    assert_eq!((response.status, response.field("retry-after")), (502, "40"));
    let gateway = TestGateway::with_rules(origin.address(), "scopes: { default: { backoff: { min_delay: 1s } } }");
    assert_eq!(gateway.connect().get("/", "").field("retry-after"), "5");
}

#[test]
fn unmeasured_responses_leave_the_delay_unchanged() {
    let origin = Origin::with_script(|request, connection| match request.target.as_str() {
        "/aged" => connection.reply("200 OK", "Age: 17\r\n", b"known"),
        "/hit" => connection.reply("200 OK", "Cache-Status: Origin; hit\r\n", b"known"),
        _ => connection.reply("200 OK", "", b"new"),
    });
    let rules = "
scopes: { default: { autothrottle: { start_delay: 4s } } }
routes: [ { match: /health, sample_latency: false } ]";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    for (path, delay) in [("/aged", 4.0), ("/hit", 4.0), ("/health", 4.0), ("/", 2.0)] {
        assert_eq!(gateway.connect().get(path, "").status, 200);
        assert_eq!(gateway.metric("tidegate_origin_delay_seconds{scope=\"default\"}"), delay, "{path}");
        gateway.clock.advance(Duration::from_secs(5));
    }
}

#[test]
fn disconnected_waiter_is_dequeued_and_not_charged() {
    let (origin, arrival, release) = origin_with_signals(reply_when_signaled);
    let gateway = TestGateway::with_rules(origin.address(), ONE_SLOT);
    let (mut first, mut leaving, mut last) = (gateway.connect(), gateway.connect(), gateway.connect());
    send_get(&mut first, "/first");
    arrival.wait();
    send_get(&mut leaving, "/leaves");
    gateway.wait_for_metric("tidegate_queue_length{scope=\"default\"}", 1.0);
    leaving.reset();
    gateway.wait_for_metric("tidegate_queue_length{scope=\"default\"}", 0.0);
    assert_eq!(gateway.counters(), (0.0, 1.0));
    send_get(&mut last, "/last");
    gateway.wait_for_metric("tidegate_queue_length{scope=\"default\"}", 1.0);
    gateway.clock.advance(Duration::from_millis(500));
    release.notify();
    release.notify();
    assert_eq!((first.read_response().status, last.read_response().status), (200, 200));
    assert_eq!(received_targets(&origin), ["/first", "/last"]);
    assert_eq!(gateway.counters(), (2.0, 0.0));
    let log = gateway.read_log();
    let line_of = |path: &str| log.iter().find(|line| line["path"] == path).expect("each request is logged");
    assert_eq!((&line_of("/leaves")["status"], &line_of("/leaves")["charged"]["api"]), (&499.into(), &0.into()));
    assert_eq!(
        (&line_of("/first")["scope_wait_ms"], line_of("/last")["scope_wait_ms"].as_f64()),
        (&0.into(), Some(500.0))
    );
    assert_eq!(line_of("/last")["origin_ms"].as_f64(), Some(0.0), "the queue wait is not part of origin_ms");
}

#[test]
fn priority_order_and_immediate_rejection_when_queue_full() {
    let (origin, arrival, release) = origin_with_signals(reply_when_signaled);
    let gateway = TestGateway::with_rules(origin.address(), ONE_SLOT);
    let mut clients: Vec<Client> = (0..4).map(|_| gateway.connect()).collect();
    send_get(&mut clients[0], "/first");
    arrival.wait();
    for (client, path) in [(1, "/bot-1"), (2, "/bot-2")] {
        clients[client]
            .send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nUser-Agent: ExampleBot/1.0 (+http://a)\r\n\r\n"));
        gateway.wait_for_metric("tidegate_queue_length{scope=\"default\"}", client as f64);
    }
    let rejected = gateway.connect().get("/bot-3", "User-Agent: ExampleBot/1.0 (+http://a)\r\n");
    assert_unavailable(&rejected, "throttle", "1");
    send_get(&mut clients[3], "/person");
    let evicted = clients[2].read_response();
    assert_unavailable(&evicted, "throttle", "1");
    (0..3).for_each(|_| release.notify());
    assert!([0, 1, 3].into_iter().all(|client| clients[client].read_response().status == 200));
    assert_eq!(received_targets(&origin), ["/first", "/person", "/bot-1"]);
    assert_eq!(gateway.counters(), (3.0, 0.0));
    assert_eq!(gateway.metric("tidegate_requests_total{class=\"bot\",verdict=\"refused\",reason=\"throttle\"}"), 2.0);
    let top_client = &gateway.state()["top_clients"][0];
    assert_eq!((&top_client["class"], &top_client["refused"]), (&"bot".into(), &2.into()));
    assert!(top_client["limited_by"].is_null(), "no rule limits the client");
}

#[test]
fn requests_are_sent_a_delay_apart() {
    let origin = Origin::plain();
    let rules = "scopes: { default: { delay: 10s, queue: { max_wait: 30s } } }";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    assert_eq!(gateway.connect().get("/", "").status, 200);
    let mut second = gateway.connect();
    send_get(&mut second, "/");
    gateway.wait_for_metric("tidegate_queue_length{scope=\"default\"}", 1.0);
    gateway.clock.advance(Duration::from_millis(9_900));
    assert_eq!(gateway.metric("tidegate_queue_length{scope=\"default\"}"), 1.0);
    gateway.clock.advance(Duration::from_millis(100));
    assert_eq!(second.read_response().status, 200);
    assert_eq!(gateway.metric("tidegate_origin_delay_seconds{scope=\"default\"}"), 10.0);
}

#[test]
fn backoff_survives_a_reload() {
    let origin =
        Origin::with_script(|_, connection| connection.reply("503 Service Unavailable", "Retry-After: 50\r\n", b""));
    let rules = "scopes: { default: { backoff: {} } }";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    assert_eq!(gateway.connect().get("/", "").status, 503);
    gateway.reload(origin.address(), "scopes: { default: { concurrency: 7, backoff: {} } }").expect("valid rules");
    assert_eq!(gateway.connect().get("/", "").json()["reason"], "backoff");
    gateway.reload(origin.address(), "").expect("valid rules");
    assert_eq!(gateway.connect().get("/", "").text(), "", "the scope no longer throttles");
    assert_eq!(origin.received_requests().len(), 2);
}

/// Returns an origin that runs `script`, signals each request, and waits for the test where the script does.
fn origin_with_signals(
    script: impl Fn(&ReceivedRequest, &mut OriginConnection, &SignalReceiver) + Send + Sync + 'static,
) -> (Origin, SignalReceiver, SignalSender) {
    let (arrival_sender, arrival) = signal();
    let (release, release_receiver) = signal();
    let origin = Origin::with_script(move |request, connection| {
        arrival_sender.notify();
        script(request, connection, &release_receiver);
    });
    (origin, arrival, release)
}

fn reply_when_signaled(_: &ReceivedRequest, connection: &mut OriginConnection, release: &SignalReceiver) {
    release.wait();
    connection.reply("200 OK", "", b"hello");
}

fn send_get(client: &mut Client, path: &str) {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nUser-Agent: Mozilla/5.0 Firefox/140.0\r\n\r\n"));
}

fn received_targets(origin: &Origin) -> Vec<String> {
    origin.received_requests().into_iter().map(|request| request.target).collect()
}

fn assert_unavailable(response: &Response, reason: &str, retry_after: &str) {
    assert_eq!((response.status, response.json()["reason"].as_str()), (503, Some(reason)), "{}", response.text());
    assert_eq!(response.field("retry-after"), retry_after);
}
