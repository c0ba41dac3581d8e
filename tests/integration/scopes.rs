//! Scopes with one instance per partition, and scopes with their own quota.

use crate::support::client::Client;
use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, SignalReceiver, SignalSender, signal};
use serde_json::{Value, json};
use std::time::Duration;

const TENANTS: &str = "
scopes: { tenant: { partition_by: { query: tenant }, concurrency: 1, queue: { max_wait: 60s } } }
routes: [ { match: \"/t/**\", scopes: [default, tenant] } ]";

#[test]
fn partitions_have_independent_slots() {
    let (origin, arrival, release) = origin_with_signals();
    let gateway = TestGateway::with_rules(origin.address(), TENANTS);
    let mut clients: Vec<Client> = (0..4).map(|_| gateway.connect()).collect();
    send_get(&mut clients[0], "/t/1?tenant=a%20b");
    arrival.wait();
    send_get(&mut clients[1], "/t/2?tenant=a+b");
    gateway.wait_for_metric("tidegate_queue_length{scope=\"tenant\"}", 1.0);
    send_get(&mut clients[2], "/t/3?tenant=other");
    arrival.wait();
    send_get(&mut clients[3], "/elsewhere?tenant=other");
    arrival.wait();
    let scope = tenant_scope_state(&gateway);
    assert_eq!((&scope["queue_length"], &scope["partitions"]), (&json!(1), &json!(2)));
    let busiest = &scope["busiest_partitions"][0];
    assert_eq!(
        [&busiest["partition"], &busiest["inflight"], &busiest["queue_length"]],
        [&json!("a b"), &json!(1), &json!(1)]
    );
    assert_eq!(gateway.metric("tidegate_scope_partitions{scope=\"tenant\"}"), 2.0);
    (0..4).for_each(|_| release.notify());
    assert!(clients.iter_mut().all(|client| client.read_response().status == 200));
    assert_eq!(origin.received_requests().len(), 4);
    gateway.wait_for_metric("tidegate_scope_partitions{scope=\"tenant\"}", 0.0);
    assert_eq!(tenant_scope_state(&gateway)["partitions"], json!(0), "an idle partition is evicted");
    assert!(!gateway.metrics().keys().any(|series| series.contains("a b")), "partition values are not labels");
}

#[test]
fn missing_or_ambiguous_partition_keys_share_one() {
    let (origin, arrival, release) = origin_with_signals();
    let gateway = TestGateway::with_rules(origin.address(), TENANTS);
    let mut clients: Vec<Client> = (0..3).map(|_| gateway.connect()).collect();
    send_get(&mut clients[0], "/t/1");
    arrival.wait();
    for (client, path) in [(1, "/t/2?tenant="), (2, "/t/3?tenant=a&tenant=b")] {
        send_get(&mut clients[client], path);
        gateway.wait_for_metric("tidegate_queue_length{scope=\"tenant\"}", client as f64);
    }
    assert_eq!(
        (
            &tenant_scope_state(&gateway)["partitions"],
            &tenant_scope_state(&gateway)["busiest_partitions"][0]["partition"]
        ),
        (&json!(1), &json!(""))
    );
    (0..3).for_each(|_| release.notify());
    assert!(clients.iter_mut().all(|client| client.read_response().status == 200));
}

#[test]
fn partition_key_supports_all_sources() {
    for (from, first, matching, other) in [
        ("host", "/t/a HTTP/1.1\r\nHost: One", "/t/b HTTP/1.1\r\nHost: one.:80", "/t/a HTTP/1.1\r\nHost: two"),
        (
            "{ header: X-Tenant }",
            "/t/a HTTP/1.1\r\nHost: a\r\nX-Tenant: one",
            "/t/b HTTP/1.1\r\nHost: b\r\nx-tenant:  one",
            "/t/a HTTP/1.1\r\nHost: a\r\nX-Tenant: two",
        ),
        (
            "{ path: 2 }",
            "/t/a/1 HTTP/1.1\r\nHost: a",
            "/x/../t//%61/2 HTTP/1.1\r\nHost: a",
            "/t/b/1 HTTP/1.1\r\nHost: a",
        ),
        ("route", "/t/a HTTP/1.1\r\nHost: a", "/t/b HTTP/1.1\r\nHost: a", "/u/b HTTP/1.1\r\nHost: a"),
    ] {
        let (origin, arrival, release) = origin_with_signals();
        let rules = format!(
            "
scopes: {{ tenant: {{ partition_by: {from}, concurrency: 1, queue: {{ max_wait: 60s }} }} }}
routes: [ {{ match: \"/t/**\", scopes: tenant }}, {{ match: \"/u/**\", scopes: tenant }} ]"
        );
        let gateway = TestGateway::with_rules(origin.address(), &rules);
        let mut clients: Vec<Client> = (0..3).map(|_| gateway.connect()).collect();
        clients[0].send(format!("GET {first}\r\n\r\n"));
        arrival.wait();
        clients[1].send(format!("GET {matching}\r\n\r\n"));
        gateway.wait_for_metric("tidegate_queue_length{scope=\"tenant\"}", 1.0);
        clients[2].send(format!("GET {other}\r\n\r\n"));
        arrival.wait();
        (0..3).for_each(|_| release.notify());
        assert!(clients.iter_mut().all(|client| client.read_response().status == 200), "{from}");
    }
}

/// Backoff keeps a partition from eviction, so each of these would be kept.
#[test]
fn partition_flood_is_bounded_and_throttled() {
    let origin = Origin::with_script(|_, connection| connection.reply("503 Service Unavailable", "", b""));
    let rules = "
scopes: { tenant: { partition_by: { query: tenant }, max_partitions: 50, backoff: { min_delay: 60s, jitter: 0% } } }
routes: [ { match: \"/**\", scopes: tenant } ]";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let mut client = gateway.connect();
    for value in 0..200 {
        assert_eq!(client.get(&format!("/?tenant={value}"), "").status, 503);
    }
    assert_eq!(
        origin.received_requests().len(),
        51,
        "partitions beyond the maximum share one instance, which backs off after its first request"
    );
    assert_eq!(tenant_scope_state(&gateway)["partitions"], json!(50));
    assert_eq!(client.get("/?tenant=new", "").json()["reason"], "backoff");
    gateway.clock.advance(Duration::from_secs(600));
    assert_eq!(tenant_scope_state(&gateway)["partitions"], json!(0), "all are evicted ten minutes later");
}

#[test]
fn scope_quota_is_enforced_and_survives_restart() {
    let origin = Origin::plain();
    let rules = "
ledger: file
scopes: { search: { quota: { limit: 3, window: { fixed: 24h } } } }
routes: [ { match: /search, scopes: search }, { match: /dear, scopes: search, cost: { search: 2 } } ]";
    let mut gateway = TestGateway::with_rules(origin.address(), rules);
    let response = gateway.connect().get("/search", "");
    assert_eq!((response.status, response.field("ratelimit")), (200, "\"search\";r=2;t=43200"));
    assert_eq!(gateway.counters(), (1.0, 0.0));
    gateway.restart();
    assert_eq!(gateway.counters(), (1.0, 0.0));
    assert_eq!(gateway.connect().get("/dear", "").status, 200);
    let refused = gateway.connect().get("/search", "");
    assert_eq!((refused.status, &refused.json()["reason"]), (429, &json!("quota")));
    assert_eq!(gateway.metric("tidegate_quota_used{quota=\"search\"}"), 3.0);
    assert_eq!(gateway.connect().get("/elsewhere", "").status, 200);
}

/// Returns an origin that signals each request, and responds when the test signals.
fn origin_with_signals() -> (Origin, SignalReceiver, SignalSender) {
    let (arrival_sender, arrival) = signal();
    let (release, release_receiver) = signal();
    let origin = Origin::with_script(move |_, connection| {
        arrival_sender.notify();
        release_receiver.wait();
        connection.reply("200 OK", "", b"hello");
    });
    (origin, arrival, release)
}

fn send_get(client: &mut Client, path: &str) {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
}

fn tenant_scope_state(gateway: &TestGateway) -> Value {
    let state = gateway.state();
    let scopes = state["scopes"].as_array().expect("scopes");
    scopes.iter().find(|scope| scope["name"] == "tenant").expect("state lists the scope").clone()
}
