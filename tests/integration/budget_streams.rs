//! A thousand parallel event streams with expected costs, on sockets, against one budget of one or two gateways.

use crate::support::client::Client;
use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, SignalSender, signal};
use crate::support::redis::RedisServer;
use crate::support::wait::{wait_for, wait_until};
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_engine::clock::Clock;

const STREAMS: usize = 1000;

/// Number of threads that open streams at the same time.
const OPENERS: usize = 8;

/// What each stream states, and is reserved.
const STATED: u64 = 1000;

const ADMITTED: u64 = 700;

const LIMIT: u64 = ADMITTED * STATED;

/// SHA-256 of `key-of-acme`.
const ACME_HASH: &str = "689febd264f8b977e29c0fdb75f839eb248ba07d1561b14f2b95f42756943245";

/// What the stream with a number costs: half of them less than they state, and half of them more.
fn cost(number: u64) -> u64 {
    if number.is_multiple_of(2) { STATED / 2 } else { STATED + 800 }
}

/// What the origin spends on `streams` streams, and what of it none of them has stated.
fn spent(streams: u64) -> (u64, u64) {
    let costs = (0..streams).map(cost);
    (costs.clone().sum(), costs.map(|cost| cost.saturating_sub(STATED)).sum())
}

fn chunk(event: &str) -> String {
    format!("{:x}\r\n{event}\r\n", event.len())
}

/// Starts an origin whose streams end, each with its cost, when the test releases them.
fn origin() -> (Origin, SignalSender) {
    let (release, released) = signal();
    let started = AtomicU64::new(0);
    let origin = Origin::with_script(move |request, connection| {
        connection.read_body(request);
        let number = started.fetch_add(1, Ordering::SeqCst);
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        connection.send(format!("{head}{}", chunk("data: {\"choices\":[]}\n\n")));
        released.wait();
        let last = format!("data: {{\"usage\":{{\"total_tokens\":{}}}}}\n\n", cost(number));
        connection.send(format!("{}0\r\n\r\n", chunk(&last)));
    });
    (origin, release)
}

fn start(origin: &Origin, ledger: &str) -> TestGateway {
    let rules = format!(
        "api_keys: [{{ name: acme, class: any, sha256: {ACME_HASH} }}]\n\
         origin: {{ url: 'http://{}', max_connections: 4000 }}\n\
         limits: {{ max_connections_per_address: 4000 }}\n{ledger}\
         quotas: {{ customer: {{ per: api_key, limit: {LIMIT}, window: {{ fixed: 87600h }}, cost_json: usage.total_tokens }} }}\n\
         classes: [{{ name: any, when: {{ api_key: own }} }}]\n\
         routes: [{{ match: /**, stream: true, cost: {{ customer: {{ json: max_tokens, default: 5 }} }} }}]\n",
        origin.address()
    );
    TestGateway::with_clock(origin.address(), &rules, Clock::system())
}

/// Sends a request of the customer. Returns its open stream, or `None` if the budget refuses it. Repeats what waits for a lease.
fn open(gateway: &TestGateway) -> Option<Client> {
    let body = format!("{{\"stream\":true,\"max_tokens\":{STATED}}}");
    let request = format!(
        "POST /v1/chat HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer key-of-acme\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    wait_for("a lease of the customer", || {
        let mut client = gateway.connect();
        match client.send(&request).head().status {
            200 => Some(Some(client)),
            429 => Some(None),
            status => (status != 503).then(|| panic!("status {status}")),
        }
    })
}

/// Opens all streams at the same time, each at the next gateway. Returns those that are admitted.
fn open_all(gateways: &[TestGateway]) -> Vec<Client> {
    std::thread::scope(|scope| {
        let open_some = |opener: usize| {
            let numbers = (opener..STREAMS).step_by(OPENERS);
            numbers.filter_map(|number| open(&gateways[number / OPENERS % gateways.len()])).collect::<Vec<_>>()
        };
        let openers: Vec<_> = (0..OPENERS).map(|opener| scope.spawn(move || open_some(opener))).collect();
        openers.into_iter().flat_map(|opener| opener.join().expect("no thread panics")).collect()
    })
}

fn used(gateway: &TestGateway) -> u64 {
    let (_, usage) = gateway.admin_get("/api/v1/usage?key=acme");
    let usage: serde_json::Value = serde_json::from_str(&usage).expect("JSON");
    usage[0]["used"].as_u64().expect("a number")
}

fn keep_to_the_bound(gateways: &[TestGateway], origin: &Origin, release: &SignalSender) {
    let streams = open_all(gateways);
    let received = || origin.received_requests().len() as u64;
    assert_eq!((streams.len() as u64, received()), (ADMITTED, ADMITTED));
    for gateway in gateways {
        wait_until("all of it to be reserved", || used(gateway) == LIMIT);
    }
    // While streams end, those that cost less than reserved leave units to others.
    (0..2 * STREAMS).for_each(|_| release.notify());
    let further: Vec<Client> = std::thread::scope(|scope| {
        let further = scope.spawn(|| open_all(gateways));
        for mut client in streams {
            assert!(String::from_utf8_lossy(&client.read_rest()).contains("usage"));
        }
        further.join().expect("no thread panics")
    });
    for mut client in further {
        assert!(String::from_utf8_lossy(&client.read_rest()).contains("usage"));
    }
    let (spent, beyond) = spent(received());
    assert!(LIMIT < spent && spent <= LIMIT + beyond, "{spent} of {LIMIT}, {beyond} beyond what was stated");
    for gateway in gateways {
        wait_until("all streams to be settled", || used(gateway) == spent);
        assert!(open(gateway).is_none());
    }
}

#[test]
fn thousand_streams_keep_to_the_bound_of_the_overrun_and_reserve_nothing_afterwards() {
    let (origin, release) = origin();
    keep_to_the_bound(&[start(&origin, "")], &origin, &release);
}

#[test]
fn thousand_streams_over_two_gateways_keep_to_the_bound_of_one() {
    let redis = RedisServer::start(&[]);
    let (origin, release) = origin();
    let ledger = format!("ledger: {{ redis: {{ url: 'redis://127.0.0.1:{}' }} }}\n", redis.port);
    keep_to_the_bound(&[(); 2].map(|()| start(&origin, &ledger)), &origin, &release);
}
