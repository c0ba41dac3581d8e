//! Throttling toward the origin: slots, backoff and the wait queue.

use crate::support::client::{Client, Response};
use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, OriginConnection, OriginControl, ReceivedRequest, SignalReceiver, signal};
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

const RESTS_40_SECONDS: &str = "
workers: 1
headers: { retry_after_spread: 0% }
scopes: { default: { backoff: { min_delay: 40s, jitter: 0% } } }";

#[test]
fn origin_concurrency_never_exceeds_the_limit() {
    const CLIENTS: usize = 64;
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (of_origin, seen_most) = (Arc::clone(&inside), Arc::clone(&most));
    // Each request waits for three others: so four are concurrent, and the count is complete.
    let four = Barrier::new(4);
    let origin = Origin::with_script(move |_, wire| {
        let now = of_origin.fetch_add(1, Ordering::SeqCst) + 1;
        seen_most.fetch_max(now, Ordering::SeqCst);
        four.wait();
        of_origin.fetch_sub(1, Ordering::SeqCst);
        wire.reply("200 OK", "", b"hello");
    });
    let rules = "workers: 2\nscopes: { default: { concurrency: 4, queue: { max_wait: 60s } } }";
    let gate = TestGateway::with_rules(origin.address(), rules);
    std::thread::scope(|threads| {
        for client in 0..CLIENTS {
            let gate = &gate;
            threads.spawn(move || {
                let mut connection = gate.connect();
                for _ in 0..2 {
                    let answer = connection.get("/", &format!("X-Forwarded-For: 192.0.2.{client}\r\n"));
                    assert_eq!(answer.status, 200);
                }
            });
        }
    });
    assert_eq!((origin.received_requests().len(), most.load(Ordering::SeqCst)), (2 * CLIENTS, 4));
    assert_eq!(gate.metric("tidegate_origin_concurrency_limit{scope=\"default\"}"), 4.0);
    assert_eq!(gate.metric("tidegate_queue_length{scope=\"default\"}"), 0.0);
}

#[test]
fn overloaded_origin_gets_backoff_then_one_probe() {
    let (origin, asked, answers) = origin_with_signals(|seen, wire, answers| match seen.target.as_str() {
        "/enough" => wire.reply("429 Too Many Requests", "Retry-After: 5\r\n", b"go away"),
        _ => {
            answers.wait();
            wire.reply("200 OK", "", b"hello");
        }
    });
    let rules = "
headers: { retry_after_spread: 0% }
scopes: { default: { backoff: { statuses: [429], jitter: 0%, window: 60s }, queue: { max_wait: 2s } } }";
    let gate = TestGateway::with_rules(origin.address(), rules);

    let told = gate.connect().get("/enough", "");
    assert_unavailable(&told, "backoff", "5");
    assert!(told.json()["type"].as_str().expect("a type").ends_with("#temporary-reduced-capacity"));
    assert_eq!(gate.metric("tidegate_origin_backoff_seconds{scope=\"default\"}"), 5.0);
    gate.clock.advance(Duration::from_secs(1));
    assert_unavailable(&gate.connect().get("/", ""), "backoff", "4");
    assert_eq!(origin.received_requests().len(), 1, "no request was sent during the backoff");

    gate.clock.advance(Duration::from_secs(4));
    let mut crowd: Vec<Client> = (0..3).map(|_| gate.connect()).collect();
    crowd.iter_mut().for_each(|client| send_get(client, "/"));
    asked.wait();
    asked.wait();
    gate.wait_for_metric("tidegate_queue_length{scope=\"default\"}", 2.0);
    assert_eq!(origin.received_requests().len(), 2, "only one probe is sent");
    (0..3).for_each(|_| answers.notify());
    assert!(crowd.iter_mut().all(|client| client.read_response().status == 200), "the origin is healthy again");
    assert_eq!(origin.received_requests().len(), 4);

    let log = gate.read_log();
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
    let origin = Origin::with_script(|_, wire| wire.reply("429 Too Many Requests", "Retry-After: 5\r\n", b"go away"));
    let gate = TestGateway::with_rules(origin.address(), "scopes: { default: { concurrency: 4 } }");
    for _ in 0..2 {
        let answer = gate.connect().get("/", "");
        assert_eq!((answer.status, answer.text().as_str(), answer.field("retry-after")), (429, "go away", "5"));
    }
    assert_eq!(origin.received_requests().len(), 2);
}

#[test]
fn origin_reset_starts_backoff() {
    let origin = Origin::with_script(|_, wire| wire.reset());
    let rules = "scopes: { default: { backoff: { min_delay: 10s } } }";
    let gate = TestGateway::with_rules(origin.address(), rules);
    assert_eq!(gate.connect().get("/", "").status, 502);
    let seen = origin.received_requests().len();
    assert_eq!(gate.connect().get("/", "").json()["reason"], "backoff");
    assert_eq!(gate.connect().get("/robots.txt", "").status, 502, "robots.txt is never refused");
    assert_eq!(origin.received_requests().len(), seen + 1);
}

#[test]
fn truncated_response_counts_as_overload() {
    let origin = Origin::with_script(|_, wire| {
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc");
        wire.reset();
    });
    let gate = TestGateway::with_rules(origin.address(), RESTS_40_SECONDS);
    gate.connect().send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").read_rest();
    let answer = gate.connect().get("/", "");
    assert_unavailable(&answer, "backoff", "40");
    assert_eq!((origin.received_requests().len(), gate.state()["scopes"][0]["backoff_level"].as_u64()), (1, Some(1)));
}

#[test]
fn stalled_response_counts_as_overload() {
    let origin = Origin::with_script(|_, wire| {
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc");
        wire.expect_eof();
    });
    let gate = TestGateway::with_rules(origin.address(), RESTS_40_SECONDS);
    let mut client = gate.connect();
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").head();
    client.take(3).expect("response has begun");
    gate.advance_and_sweep(Duration::from_secs(3600));
    client.read_rest();
    assert_unavailable(&gate.connect().get("/", ""), "backoff", "40");
}

#[test]
fn client_disconnect_is_not_an_overload() {
    let (gone, has_gone) = signal();
    let origin = Origin::with_script(move |seen, wire| match seen.target.as_str() {
        "/long" => {
            wire.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc");
            wire.expect_eof();
            gone.notify();
        }
        _ => wire.reply("200 OK", "", b""),
    });
    let gate = TestGateway::with_rules(origin.address(), RESTS_40_SECONDS);
    let mut client = gate.connect();
    client.send("GET /long HTTP/1.1\r\nHost: a.test\r\n\r\n").head();
    client.reset();
    has_gone.wait();
    assert_eq!(gate.connect().get("/", "").status, 200);
}

#[test]
fn failed_response_carries_backoff_retry_after() {
    let origin = Origin::with_script(|_, wire| wire.reset());
    let gate = TestGateway::with_rules(origin.address(), RESTS_40_SECONDS);
    let answer = gate.connect().get("/", "");
    assert_eq!((answer.status, answer.field("retry-after")), (502, "40"));
    let gate = TestGateway::with_rules(origin.address(), "scopes: { default: { backoff: { min_delay: 1s } } }");
    assert_eq!(gate.connect().get("/", "").field("retry-after"), "5");
}

#[test]
fn unmeasured_responses_leave_the_delay_unchanged() {
    let origin = Origin::with_script(|seen, wire| match seen.target.as_str() {
        "/aged" => wire.reply("200 OK", "Age: 17\r\n", b"known"),
        "/hit" => wire.reply("200 OK", "Cache-Status: Origin; hit\r\n", b"known"),
        _ => wire.reply("200 OK", "", b"new"),
    });
    let rules = "
scopes: { default: { autothrottle: { start_delay: 4s } } }
routes: [ { match: /health, sample_latency: false } ]";
    let gate = TestGateway::with_rules(origin.address(), rules);
    for (path, delay) in [("/aged", 4.0), ("/hit", 4.0), ("/health", 4.0), ("/", 2.0)] {
        assert_eq!(gate.connect().get(path, "").status, 200);
        assert_eq!(gate.metric("tidegate_origin_delay_seconds{scope=\"default\"}"), delay, "{path}");
        gate.clock.advance(Duration::from_secs(5));
    }
}

#[test]
fn disconnected_waiter_is_dequeued_and_not_charged() {
    let (origin, asked, answers) = origin_with_signals(reply_when_signaled);
    let gate = TestGateway::with_rules(origin.address(), ONE_SLOT);
    let (mut first, mut leaves, mut last) = (gate.connect(), gate.connect(), gate.connect());
    send_get(&mut first, "/first");
    asked.wait();
    send_get(&mut leaves, "/leaves");
    gate.wait_for_metric("tidegate_queue_length{scope=\"default\"}", 1.0);
    leaves.reset();
    gate.wait_for_metric("tidegate_queue_length{scope=\"default\"}", 0.0);
    assert_eq!(gate.counters(), (0.0, 1.0));
    send_get(&mut last, "/last");
    gate.wait_for_metric("tidegate_queue_length{scope=\"default\"}", 1.0);
    gate.clock.advance(Duration::from_millis(500));
    answers.notify();
    answers.notify();
    assert_eq!((first.read_response().status, last.read_response().status), (200, 200));
    assert_eq!(received_targets(&origin), ["/first", "/last"]);
    assert_eq!(gate.counters(), (2.0, 0.0));
    let log = gate.read_log();
    let of = |path: &str| log.iter().find(|line| line["path"] == path).expect("each request is logged");
    assert_eq!((&of("/leaves")["status"], &of("/leaves")["charged"]["api"]), (&499.into(), &0.into()));
    assert_eq!((&of("/first")["scope_wait_ms"], of("/last")["scope_wait_ms"].as_f64()), (&0.into(), Some(500.0)));
    assert_eq!(of("/last")["origin_ms"].as_f64(), Some(0.0), "the queue wait is not part of origin_ms");
}

#[test]
fn priority_order_and_immediate_rejection_when_queue_full() {
    let (origin, asked, answers) = origin_with_signals(reply_when_signaled);
    let gate = TestGateway::with_rules(origin.address(), ONE_SLOT);
    let mut clients: Vec<Client> = (0..4).map(|_| gate.connect()).collect();
    send_get(&mut clients[0], "/first");
    asked.wait();
    for (client, path) in [(1, "/bot-1"), (2, "/bot-2")] {
        clients[client]
            .send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nUser-Agent: ExampleBot/1.0 (+http://a)\r\n\r\n"));
        gate.wait_for_metric("tidegate_queue_length{scope=\"default\"}", client as f64);
    }
    let turned_away = gate.connect().get("/bot-3", "User-Agent: ExampleBot/1.0 (+http://a)\r\n");
    assert_unavailable(&turned_away, "throttle", "1");
    send_get(&mut clients[3], "/person");
    let pushed_out = clients[2].read_response();
    assert_unavailable(&pushed_out, "throttle", "1");
    (0..3).for_each(|_| answers.notify());
    assert!([0, 1, 3].into_iter().all(|client| clients[client].read_response().status == 200));
    assert_eq!(received_targets(&origin), ["/first", "/person", "/bot-1"]);
    assert_eq!(gate.counters(), (3.0, 0.0));
    assert_eq!(gate.metric("tidegate_requests_total{class=\"bot\",verdict=\"refused\",reason=\"throttle\"}"), 2.0);
    let most_refused = &gate.state()["top_clients"][0];
    assert_eq!((&most_refused["class"], &most_refused["refused"]), (&"bot".into(), &2.into()));
    assert!(most_refused["limited_by"].is_null(), "no rule limits the client");
}

#[test]
fn requests_are_sent_a_delay_apart() {
    let origin = Origin::plain();
    let rules = "scopes: { default: { delay: 10s, queue: { max_wait: 30s } } }";
    let gate = TestGateway::with_rules(origin.address(), rules);
    assert_eq!(gate.connect().get("/", "").status, 200);
    let mut second = gate.connect();
    send_get(&mut second, "/");
    gate.wait_for_metric("tidegate_queue_length{scope=\"default\"}", 1.0);
    gate.clock.advance(Duration::from_millis(9_900));
    assert_eq!(gate.metric("tidegate_queue_length{scope=\"default\"}"), 1.0);
    gate.clock.advance(Duration::from_millis(100));
    assert_eq!(second.read_response().status, 200);
    assert_eq!(gate.metric("tidegate_origin_delay_seconds{scope=\"default\"}"), 10.0);
}

#[test]
fn backoff_survives_a_reload() {
    let origin = Origin::with_script(|_, wire| wire.reply("503 Service Unavailable", "Retry-After: 50\r\n", b""));
    let rules = "scopes: { default: { backoff: {} } }";
    let gate = TestGateway::with_rules(origin.address(), rules);
    assert_eq!(gate.connect().get("/", "").status, 503);
    gate.reload(origin.address(), "scopes: { default: { concurrency: 7, backoff: {} } }").expect("valid rules");
    assert_eq!(gate.connect().get("/", "").json()["reason"], "backoff");
    gate.reload(origin.address(), "").expect("valid rules");
    assert_eq!(gate.connect().get("/", "").text(), "", "the scope no longer throttles");
    assert_eq!(origin.received_requests().len(), 2);
}

/// Returns an origin that runs `script`, signals each request, and waits for the test where the script does.
fn origin_with_signals(
    script: impl Fn(&ReceivedRequest, &mut OriginConnection, &SignalReceiver) + Send + Sync + 'static,
) -> (Origin, SignalReceiver, OriginControl) {
    let (tell, asked) = signal();
    let (answers, waits) = signal();
    let origin = Origin::with_script(move |seen, wire| {
        tell.notify();
        script(seen, wire, &waits);
    });
    (origin, asked, answers)
}

fn reply_when_signaled(_: &ReceivedRequest, wire: &mut OriginConnection, answers: &SignalReceiver) {
    answers.wait();
    wire.reply("200 OK", "", b"hello");
}

fn send_get(client: &mut Client, path: &str) {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nUser-Agent: Mozilla/5.0 Firefox/140.0\r\n\r\n"));
}

fn received_targets(origin: &Origin) -> Vec<String> {
    origin.received_requests().into_iter().map(|seen| seen.target).collect()
}

fn assert_unavailable(answer: &Response, reason: &str, retry_after: &str) {
    assert_eq!((answer.status, answer.json()["reason"].as_str()), (503, Some(reason)), "{}", answer.text());
    assert_eq!(answer.field("retry-after"), retry_after);
}
