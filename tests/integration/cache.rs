//! The cache before a scripted origin: what costs nothing, who fetches, and what stands in for refusals and errors.

use crate::support::client::{Client, Response};
use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, OriginConnection, ReceivedRequest, signal};
use crate::support::wait::wait_until;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const HOUR: Duration = Duration::from_secs(3600);

/// A quota of ten units, of which bots have none from half of it on.
const RULES: &str = "\
workers: 1
cache: { reload: all }
quotas:
  api: { limit: 10, window: { calendar: day, zone: UTC }, tiers: { bot: [{ above: 50%, shed: 100% }] } }
classes:
  - { name: person, when: { kind: human } }
  - { name: bot }
user_agent_rules: [{ match: Person, kind: human }]
routes:
  - { match: \"/account/**\", cache: off }
  - { match: \"/none\" }
  - { match: \"/**\", cost: { api: 1 } }
";

const PERSON: &str = "User-Agent: Person\r\n";
const BOT: &str = "User-Agent: Bot/1.0\r\n";

fn fresh(_: &ReceivedRequest, connection: &mut OriginConnection) {
    connection.reply("200 OK", "Cache-Control: max-age=3600\r\nETag: \"1\"\r\n", b"page");
}

fn get(gateway: &TestGateway, path: &str, fields: &str) -> Response {
    gateway.connect().get(path, fields)
}

fn status_of(response: &Response) -> &str {
    response.field("cache-status")
}

#[test]
fn copy_costs_nothing_and_no_tier_refuses_it() {
    let origin = Origin::with_script(fresh);
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let first = get(&gateway, "/page", PERSON);
    assert_eq!((first.status, status_of(&first)), (200, "tidegate; fwd=uri-miss; stored"));
    gateway.set_used("api", 10);
    gateway.clock.advance(Duration::from_secs(60));
    for fields in [PERSON, BOT] {
        let hit = get(&gateway, "/page", fields);
        assert_eq!((hit.status, hit.text().as_str()), (200, "page"));
        assert_eq!((status_of(&hit), hit.field("age")), ("tidegate; hit; ttl=3540", "60"));
    }
    assert_eq!(get(&gateway, "/other", PERSON).status, 429, "a page without a copy costs a unit");
    assert_eq!(origin.received_requests().len(), 1);
    assert_eq!(gateway.metric("tidegate_cache_requests_total{result=\"hit\"}"), 2.0);
    assert_eq!(gateway.metric("tidegate_quota_saved_total{quota=\"api\",class=\"bot\"}"), 1.0);
    let log = gateway.read_log();
    let results: Vec<_> = log.iter().map(|line| line["cache"].as_str()).collect();
    assert_eq!(results, [Some("miss"), Some("hit"), Some("hit"), None]);
    assert_eq!((&log[1]["charged"], &log[1]["verdict"]), (&serde_json::json!({}), &serde_json::json!("admitted")));
}

#[test]
fn block_and_bucket_hold_for_copies() {
    let origin = Origin::with_script(fresh);
    let bucket = "- { name: bot, bucket: { capacity: 1, fill: 1, interval: 1h } }";
    let gateway = TestGateway::with_rules(origin.address(), &RULES.replace("- { name: bot }", bucket));
    assert_eq!(get(&gateway, "/page", PERSON).status, 200);
    assert_eq!(get(&gateway, "/page", BOT).status, 200);
    let refused = get(&gateway, "/page", BOT);
    assert_eq!((refused.status, refused.json()["reason"].as_str()), (429, Some("bucket")));
    let blocked = RULES.replace("- { name: bot }", "- { name: bot, block: true }");
    gateway.reload(origin.address(), &blocked).expect("valid rules");
    let refused = get(&gateway, "/page", BOT);
    assert_eq!((refused.status, refused.json()["reason"].as_str()), (429, Some("blocked")));
    assert_eq!(get(&gateway, "/page", PERSON).status, 200);
}

#[test]
fn stale_copy_stands_in_for_a_refusal() {
    let origin = Origin::with_script(fresh);
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    get(&gateway, "/page", PERSON);
    gateway.clock.advance(2 * HOUR);
    gateway.set_used("api", 6);
    let stale = get(&gateway, "/page", BOT);
    assert_eq!((stale.status, status_of(&stale)), (200, "tidegate; hit; ttl=-3600; detail=refused"));
    assert_eq!((stale.field("retry-after"), stale.field("x-tidegate-decision")), ("", ""));
    let validated = get(&gateway, "/page", PERSON);
    assert_eq!(status_of(&validated), "tidegate; fwd=stale; stored", "a person is still admitted");
    gateway.set_used("api", 10);
    gateway.clock.advance(2 * HOUR);
    assert_eq!(
        status_of(&get(&gateway, "/page", PERSON)),
        "tidegate; hit; ttl=-3600; detail=refused",
        "nothing is left"
    );
    gateway.clock.advance(31 * 24 * HOUR);
    gateway.set_used("api", 10);
    assert_eq!(get(&gateway, "/page", PERSON).status, 429, "older than stale_when_refused");
    let log = gateway.read_log();
    let refused = &log[1];
    assert_eq!(
        (&refused["verdict"], &refused["reason"], &refused["status"], &refused["cache"]),
        (&"refused".into(), &"tier".into(), &200.into(), &"stale".into())
    );
}

#[test]
fn explanation_names_the_copy() {
    let origin = Origin::with_script(fresh);
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    get(&gateway, "/page", PERSON);
    gateway.set_used("api", 6);
    get(&gateway, "/page", BOT);
    gateway.clock.advance(2 * HOUR);
    get(&gateway, "/page", BOT);
    let json = |path: &str| -> serde_json::Value {
        serde_json::from_str(&gateway.admin_get(path).1).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let decisions = json("/api/v1/decisions");
    let explained = |result: &str| {
        let is_it = |decision: &&serde_json::Value| decision["cache"] == result;
        let decision = decisions["decisions"].as_array().expect("a list").iter().find(is_it).expect(result);
        let id = decision["id"].as_str().expect("an id").to_owned();
        let explanation = json(&format!("/api/v1/decisions/{id}/explanation"));
        let steps = explanation["steps"].as_array().expect("a list").clone();
        let text = |step: &serde_json::Value| format!("{}: {}", step["step"], step["finding"]).replace('"', "");
        (steps.iter().map(text).collect::<Vec<_>>(), explanation["responses"][0]["status"].clone())
    };
    let (hit, status) = explained("hit");
    assert!(hit.contains(&"cache: passed".to_owned()) && !hit.iter().any(|step| step.starts_with("tier")), "{hit:?}");
    assert_eq!(status, 200);
    let (stale, status) = explained("stale");
    for step in ["cache: info", "tier: refused"] {
        assert!(stale.contains(&step.to_owned()), "{step} in {stale:?}");
    }
    assert_eq!(status, 200);
}

#[test]
fn copy_that_must_be_validated_stands_in_for_nothing() {
    let origin = Origin::with_script(|_, connection| {
        connection.reply("200 OK", "Cache-Control: max-age=60, must-revalidate\r\n", b"page");
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    get(&gateway, "/page", PERSON);
    gateway.clock.advance(HOUR);
    gateway.set_used("api", 10);
    assert_eq!(get(&gateway, "/page", PERSON).status, 429);
}

#[test]
fn stale_copy_stands_in_for_a_failing_origin() {
    let fails = Arc::new(AtomicUsize::new(0));
    let origin = {
        let fails = Arc::clone(&fails);
        Origin::with_script(move |request, connection| match fails.load(Ordering::SeqCst) {
            0 => fresh(request, connection),
            1 => connection.reply("503 Service Unavailable", "", b"down"),
            2 => connection.reply("404 Not Found", "", b"gone"),
            _ => connection.close(),
        })
    };
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    get(&gateway, "/page", PERSON);
    gateway.clock.advance(2 * HOUR);
    for how in [1, 3] {
        fails.store(how, Ordering::SeqCst);
        let stale = get(&gateway, "/page", PERSON);
        assert_eq!((stale.status, status_of(&stale)), (200, "tidegate; hit; ttl=-3600; detail=error"), "{how}");
        let mut client = gateway.connect();
        client.send(format!("HEAD /page HTTP/1.1\r\nHost: example.com\r\n{PERSON}\r\n"));
        assert_eq!(client.response_to("HEAD").status, 200, "{how}");
        let range = format!("{PERSON}Range: bytes=0-0\r\n");
        assert_eq!(get(&gateway, "/page", &range).status, 206, "{how}");
    }
    gateway.clock.advance(24 * HOUR);
    assert_eq!(get(&gateway, "/page", PERSON).status, 502, "older than stale_if_error");
    fails.store(2, Ordering::SeqCst);
    assert_eq!(get(&gateway, "/page", PERSON).status, 404, "a missing page is no failure");
}

#[test]
fn failure_that_a_copy_replaces_still_reports_the_exhausted_quota() {
    let fails = Arc::new(AtomicUsize::new(0));
    let origin = {
        let fails = Arc::clone(&fails);
        Origin::with_script(move |request, connection| match fails.load(Ordering::SeqCst) {
            0 => fresh(request, connection),
            _ => connection.reply("503 Service Unavailable", "", b"{\"error\": {\"reason\": \"spent\"}}"),
        })
    };
    let sync = "limit: 10, sync_from: { exhausted: { statuses: [503], contains: spent, json: /error/reason } }";
    let gateway = TestGateway::with_rules(origin.address(), &RULES.replace("limit: 10", sync));
    get(&gateway, "/page", PERSON);
    gateway.clock.advance(2 * HOUR);
    fails.store(1, Ordering::SeqCst);
    assert_eq!(status_of(&get(&gateway, "/page", PERSON)), "tidegate; hit; ttl=-3600; detail=error");
    assert_eq!(get(&gateway, "/other", PERSON).status, 429);
}

#[test]
fn confirmed_copy_costs_what_a_validation_costs() {
    let origin = Origin::with_script(|request, connection| match request.fields.get("if-none-match") {
        Some(etag) if etag == "\"1\"" => {
            connection.reply("304 Not Modified", "Cache-Control: max-age=7200\r\nX-New: 1\r\n", b"");
        }
        _ => fresh(request, connection),
    });
    let rules = RULES.replace("cost: { api: 1 } }", "cost: { api: 1 }, cache: { revalidation_cost: { api: 0.1 } } }");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    get(&gateway, "/page", PERSON);
    gateway.clock.advance(2 * HOUR);
    let confirmed = get(&gateway, "/page", PERSON);
    assert_eq!((confirmed.status, confirmed.text().as_str()), (200, "page"));
    assert_eq!(status_of(&confirmed), "tidegate; fwd=stale; fwd-status=304; stored");
    assert_eq!((confirmed.field("x-new"), confirmed.field("age")), ("1", "0"));
    assert_eq!(gateway.metric("tidegate_quota_used{quota=\"api\"}"), 1.1);
    gateway.clock.advance(HOUR);
    assert_eq!(status_of(&get(&gateway, "/page", BOT)), "tidegate; hit; ttl=3600", "the 304 gave a new lifetime");
    let own = get(&gateway, "/page", "User-Agent: Person\r\nIf-None-Match: W/\"1\"\r\n");
    assert_eq!((own.status, own.field("etag"), own.field("content-length")), (304, "\"1\"", ""));
    let log = gateway.read_log();
    assert_eq!((&log[1]["cache"], &log[1]["charged"]["api"]), (&"revalidated".into(), &0.1.into()));
}

#[test]
fn crowd_on_a_missing_page_causes_one_fetch() {
    let (arrived, arrival) = signal();
    let (release, released) = signal();
    let origin = Origin::with_script(move |request, connection| {
        arrived.notify();
        released.wait();
        fresh(request, connection);
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut clients: Vec<Client> = (0..64).map(|_| gateway.connect()).collect();
    for client in &mut clients {
        client.send(format!("GET /page HTTP/1.1\r\nHost: example.com\r\n{PERSON}\r\n"));
    }
    arrival.wait();
    gateway.wait_for_metric("tidegate_client_connections", 64.0);
    release.notify();
    let responses: Vec<Response> = clients.iter_mut().map(Client::read_response).collect();
    assert!(responses.iter().all(|response| response.text() == "page"));
    assert_eq!(responses.iter().filter(|response| status_of(response).ends_with("; stored")).count(), 1);
    assert_eq!(origin.received_requests().len(), 1);
    assert_eq!(gateway.metric("tidegate_quota_used{quota=\"api\"}"), 1.0);
}

#[test]
fn ten_thousand_requests_for_a_missing_page_cause_one_fetch() {
    const CONNECTIONS: usize = 100;
    const STREAMS: usize = 100;
    let (arrived, arrival) = signal();
    let (release, released) = signal();
    let origin = Origin::with_script(move |request, connection| {
        arrived.notify();
        released.wait();
        fresh(request, connection);
    });
    let rules = format!("{RULES}limits: {{ http2_max_concurrent_streams: {STREAMS} }}\n");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let local = tokio::task::LocalSet::new();
    let bodies = local.block_on(&runtime, async {
        let mut requests = JoinSet::new();
        for _ in 0..CONNECTIONS {
            let stream = TcpStream::connect(gateway.address()).await.expect("the gateway accepts");
            let (sender, connection) =
                hyper::client::conn::http2::handshake(LocalExecutor, TokioIo::new(stream)).await.expect("HTTP/2");
            tokio::task::spawn_local(connection);
            for _ in 0..STREAMS {
                let mut sender = sender.clone();
                let request = http::Request::get("http://example.com/page").header("user-agent", "Person");
                let request = request.body(Empty::<Bytes>::new()).expect("valid request");
                requests.spawn_local(async move {
                    let response = sender.send_request(request).await.expect("a response");
                    response.into_body().collect().await.expect("a body").to_bytes()
                });
            }
        }
        // The fetch goes on until all requests have been sent.
        let all_sent = tokio::task::spawn_blocking(move || arrival.wait());
        all_sent.await.expect("the origin is asked");
        release.notify();
        requests.join_all().await
    });
    assert_eq!(bodies.len(), CONNECTIONS * STREAMS);
    assert!(bodies.iter().all(|body| body == "page"));
    assert_eq!(origin.received_requests().len(), 1);
    assert_eq!(gateway.metric("tidegate_quota_used{quota=\"api\"}"), 1.0);
}

/// Runs the tasks of an HTTP/2 client on its thread.
#[derive(Clone)]
struct LocalExecutor;

impl<F: Future<Output: 'static> + 'static> Executor<F> for LocalExecutor {
    fn execute(&self, task: F) {
        tokio::task::spawn_local(task);
    }
}

#[test]
fn next_request_fetches_if_the_first_one_fails() {
    let count = Arc::new(AtomicUsize::new(0));
    let (arrived, arrival) = signal();
    let (release, released) = signal();
    let origin = {
        let count = Arc::clone(&count);
        Origin::with_script(move |request, connection| match count.fetch_add(1, Ordering::SeqCst) {
            0 => {
                arrived.notify();
                released.wait();
                connection.close();
            }
            _ => fresh(request, connection),
        })
    };
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut clients: Vec<Client> = (0..8).map(|_| gateway.connect()).collect();
    for client in &mut clients {
        client.send(format!("GET /page HTTP/1.1\r\nHost: example.com\r\n{PERSON}\r\n"));
    }
    arrival.wait();
    gateway.wait_for_metric("tidegate_client_connections", 8.0);
    release.notify();
    let responses: Vec<Response> = clients.iter_mut().map(Client::read_response).collect();
    assert_eq!(responses.iter().filter(|response| response.status == 502).count(), 1);
    assert_eq!(responses.iter().filter(|response| response.text() == "page").count(), 7);
    assert_eq!(origin.received_requests().len(), 2);
}

#[test]
fn one_of_those_who_wait_takes_over_a_late_fetch() {
    const OTHERS: usize = 12;
    let count = Arc::new(AtomicUsize::new(0));
    let (release, released) = signal();
    let origin = {
        let count = Arc::clone(&count);
        Origin::with_script(move |request, connection| match count.fetch_add(1, Ordering::SeqCst) {
            0 => {
                connection.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Length: 4\r\n\r\np");
                released.wait();
                connection.close();
            }
            _ => fresh(request, connection),
        })
    };
    let clients = "clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }\n";
    let limits = "limits: { first_byte_timeout: 1h }\n";
    let gateway = TestGateway::with_rules(origin.address(), &format!("{RULES}{clients}{limits}"));
    let request = |client: usize| {
        format!("GET /page HTTP/1.1\r\nHost: example.com\r\nX-Forwarded-For: 192.0.2.{client}\r\n{PERSON}\r\n")
    };
    let mut first = gateway.connect();
    first.send(request(1));
    wait_until("the origin to be asked", || count.load(Ordering::SeqCst) == 1);
    let mut others: Vec<Client> = (0..OTHERS).map(|_| gateway.connect()).collect();
    for (number, other) in others.iter_mut().enumerate() {
        other.send(request(10 + number));
    }
    gateway.wait_for_metric("tidegate_client_connections", 1.0 + OTHERS as f64);
    // Later than the patience for the first fetch, whenever a request began to wait, and not for the second.
    gateway.clock.advance(Duration::from_secs(45));
    for other in &mut others {
        let response = other.read_response();
        assert_eq!((response.status, response.text().as_str()), (200, "page"));
    }
    assert_eq!(origin.received_requests().len(), 2, "one takes over for all");
    release.notify();
}

/// Pages of `/costly` cost a unit each, all others nothing.
const DISPLACED: &str = "\
workers: 1
clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }
quotas: { api: { limit: 1000, window: { fixed: 24h } } }
routes:
  - { match: \"/costly/*\", cost: { api: 1 } }
  - { match: \"/reported/*\", cost: { api: 1 } }
  - { match: \"/**\" }
";

#[test]
fn pages_that_cost_nothing_displace_no_copy_that_saves_units() {
    let origin = Origin::with_script(|request, connection| {
        let reported = if request.target.starts_with("/reported") { "X-Cost: 0\r\n" } else { "" };
        let fields = format!("Cache-Control: max-age=3600\r\n{reported}");
        connection.reply("200 OK", &fields, &[b'x'; 100_000]);
    });
    // In memory alone, and as many as do not fit there.
    for (disk, pages) in [("off", 10), ("{ size: 16MiB }", 40)] {
        let rules = DISPLACED.replace("fixed: 24h }", "fixed: 24h }, cost_header: x-cost");
        let gateway = TestGateway::with_rules(
            origin.address(),
            &format!("{rules}cache: {{ memory: 2MiB, max_object: 256KiB, disk: {disk} }}\n"),
        );
        let visit = || {
            for page in 0..pages {
                let fields = format!("X-Forwarded-For: 198.51.100.{page}\r\n");
                assert_eq!(get(&gateway, &format!("/costly/{page}"), &fields).status, 200);
            }
            gateway.metric("tidegate_quota_used{quota=\"api\"}")
        };
        let used = visit();
        assert_eq!(used, pages as f64);
        for number in 0..300 {
            // Two networks in turn count as two, one that asks again does not.
            for network in [113, 113, 114] {
                let fields = format!("X-Forwarded-For: 203.0.{network}.66\r\n");
                let path = if number % 2 == 0 { "/app.js?v=" } else { "/reported/" };
                assert_eq!(get(&gateway, &format!("{path}{number}"), &fields).status, 200);
            }
        }
        let charged = visit() - used;
        let unwritten = unwritten(&gateway);
        assert!(
            charged <= unwritten as f64,
            "{charged} copies that save units are gone, with disk {disk}, {unwritten} unwritten"
        );
    }
}

#[test]
fn reload_that_the_origin_answers_for_less_makes_no_copy_worthless() {
    // The origin charges for the first request of a page alone. It says so of a page that another server has asked for.
    let charged = parking_lot::Mutex::new(HashSet::new());
    let origin = Origin::with_script(move |request, connection| {
        let is_hit = request.target.starts_with("/costly/shared");
        let is_new = charged.lock().insert(request.target.clone());
        let cost = if is_hit || (request.target.starts_with("/costly") && !is_new) { "X-Cost: 0\r\n" } else { "" };
        let hit = if is_hit { "Cache-Status: origin; hit\r\n" } else { "" };
        connection.reply("200 OK", &format!("Cache-Control: max-age=3600\r\n{cost}{hit}"), &[b'x'; 100_000]);
    });
    for (disk, pages) in [("off", 10), ("{ size: 16MiB }", 40)] {
        let rules = DISPLACED.replace("fixed: 24h }", "fixed: 24h }, cost_header: x-cost");
        let gateway = TestGateway::with_rules(
            origin.address(),
            &format!("{rules}cache: {{ memory: 2MiB, max_object: 256KiB, reload: all, disk: {disk} }}\n"),
        );
        let visit = |fields: &str| {
            for page in 0..pages {
                let name = if page % 2 == 0 { "own" } else { "shared" };
                let fields = format!("X-Forwarded-For: 198.51.100.{page}\r\n{fields}");
                assert_eq!(get(&gateway, &format!("/costly/{name}-{pages}-{page}"), &fields).status, 200);
            }
        };
        visit("");
        let used = gateway.metric("tidegate_quota_used{quota=\"api\"}");
        visit("Cache-Control: no-cache\r\n");
        assert_eq!(gateway.metric("tidegate_quota_used{quota=\"api\"}"), used, "the reloads are free");
        for number in 0..150 {
            for network in [113, 114] {
                let fields = format!("X-Forwarded-For: 203.0.{network}.66\r\n");
                assert_eq!(get(&gateway, &format!("/app.js?v={number}"), &fields).status, 200);
            }
        }
        let requests = origin.received_requests().len();
        visit("");
        let fetched = origin.received_requests().len() - requests;
        let unwritten = unwritten(&gateway);
        assert!(fetched <= unwritten, "{fetched} copies are not left, with disk {disk}, {unwritten} unwritten");
    }
}

/// Returns the number of copies that were not written, because the disk was too slow for a busy machine; 0 without a disk.
fn unwritten(gateway: &TestGateway) -> usize {
    let (_, state) = gateway.admin_get("/api/v1/cache");
    let state: serde_json::Value = serde_json::from_str(&state).expect("JSON");
    state["disk"]["dropped"].as_u64().unwrap_or(0) as usize
}

#[test]
fn responses_for_one_client_are_fetched_one_by_one() {
    let origin = Origin::with_script(|request, connection| {
        let fields = match request.target.as_str() {
            "/private" => "Cache-Control: private\r\n",
            "/cookie" => "Cache-Control: max-age=60\r\nSet-Cookie: id=1\r\n",
            "/vary" => "Cache-Control: max-age=60\r\nVary: *\r\n",
            "/large" => "Cache-Control: max-age=60\r\n",
            _ => "Cache-Control: no-store\r\n",
        };
        let body = if request.target == "/large" { vec![b'x'; 200_000] } else { b"page".to_vec() };
        connection.reply("200 OK", fields, &body);
    });
    let rules = RULES.replace("reload: all", "max_object: 64KiB").replace("limit: 10", "limit: 100");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    for (path, detail) in [
        ("/private", "private"),
        ("/cookie", "set-cookie"),
        ("/vary", "vary"),
        ("/large", "too-large"),
        ("/no-store", "no-store"),
    ] {
        for _ in 0..2 {
            let response = get(&gateway, path, PERSON);
            let status = format!("tidegate; fwd=uri-miss; detail={detail}");
            assert_eq!((response.status, status_of(&response)), (200, status.as_str()));
        }
    }
    let login = get(&gateway, "/account/me", PERSON);
    assert_eq!(status_of(&login), "", "the route is not cached");
    assert_eq!(origin.received_requests().len(), 11);
}

#[test]
fn page_that_is_not_stored_is_not_waited_for_also_after_a_calm() {
    let (release, released) = signal();
    let origin = Origin::with_script(move |_, connection| {
        released.wait();
        connection.reply("200 OK", "Cache-Control: no-store\r\n", b"mine");
    });
    let gateway = TestGateway::with_rules(origin.address(), &RULES.replace("limit: 10", "limit: 100"));
    let request = format!("GET /page HTTP/1.1\r\nHost: example.com\r\n{PERSON}\r\n");
    let mut first = gateway.connect();
    first.send(&request);
    release.notify();
    assert_eq!(first.read_response().status, 200);
    for minutes in [1, 30, 59] {
        gateway.clock.advance(Duration::from_secs(60 * minutes));
        let before = origin.received_requests().len();
        let mut clients: Vec<Client> = (0..4).map(|_| gateway.connect()).collect();
        for client in &mut clients {
            client.send(&request);
        }
        wait_until("all requests to reach the origin", || origin.received_requests().len() == before + 4);
        (0..4).for_each(|_| release.notify());
        assert!(clients.iter_mut().all(|client| client.read_response().status == 200));
    }
}

#[test]
fn copies_answer_head_ranges_and_conditions() {
    let body: Vec<u8> = (0..200_000_u32).map(|number| number as u8).collect();
    let page = body.clone();
    let origin = Origin::with_script(move |_, connection| {
        connection.reply("200 OK", "Cache-Control: max-age=3600\r\nETag: \"1\"\r\nContent-Type: a/b\r\n", &page);
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    assert_eq!(get(&gateway, "/page", PERSON).body, body);
    let whole = get(&gateway, "/page", BOT);
    assert_eq!((whole.body == body, whole.field("content-length")), (true, "200000"));
    let mut client = gateway.connect();
    client.send(format!("HEAD /page HTTP/1.1\r\nHost: example.com\r\n{BOT}\r\n"));
    let head = client.response_to("HEAD");
    assert_eq!((head.status, head.field("content-length"), head.body.len()), (200, "200000", 0));
    let part = get(&gateway, "/page", "User-Agent: Bot\r\nRange: bytes=65530-131080\r\nIf-Range: \"1\"\r\n");
    assert_eq!((part.status, part.field("content-range")), (206, "bytes 65530-131080/200000"));
    assert_eq!(part.body, body[65530..=131_080]);
    let beyond = get(&gateway, "/page", "User-Agent: Bot\r\nRange: bytes=200000-\r\n");
    assert_eq!((beyond.status, beyond.field("content-range")), (416, "bytes */200000"));
    let other = get(&gateway, "/page", "User-Agent: Bot\r\nRange: bytes=0-1\r\nIf-Range: \"2\"\r\n");
    assert_eq!((other.status, other.body.len()), (200, 200_000));
    let unchanged = get(&gateway, "/page", "User-Agent: Bot\r\nIf-None-Match: \"0\", \"1\"\r\n");
    assert_eq!((unchanged.status, unchanged.field("content-type"), unchanged.body.len()), (304, "", 0));
    let heads: Vec<_> = origin.received_requests().into_iter().map(|request| request.head).collect();
    assert_eq!(heads.len(), 1, "{heads:?}");
}

#[test]
fn reload_counts_for_those_whom_the_administrator_names() {
    let origin = Origin::with_script(fresh);
    let gateway = TestGateway::with_rules(origin.address(), &RULES.replace("reload: all", ""));
    let reload = |fields: &str| {
        let response = get(&gateway, "/page", &format!("{fields}Cache-Control: no-cache\r\n"));
        status_of(&response).to_owned()
    };
    get(&gateway, "/page", PERSON);
    assert_eq!(reload(BOT), "tidegate; hit; ttl=3600");
    assert_eq!(reload(PERSON), "tidegate; fwd=request; stored");
    gateway.set_used("api", 10);
    assert_eq!(reload(PERSON), "tidegate; hit; ttl=3600; detail=refused");
}

#[test]
fn copy_is_validated_while_the_client_has_it_already() {
    let (arrived, arrival) = signal();
    let count = Arc::new(AtomicUsize::new(0));
    let origin = {
        let count = Arc::clone(&count);
        Origin::with_script(move |_, connection| {
            let fields = "Cache-Control: max-age=60, stale-while-revalidate=600\r\n";
            connection.reply("200 OK", fields, format!("page {}", count.fetch_add(1, Ordering::SeqCst)).as_bytes());
            arrived.notify();
        })
    };
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    get(&gateway, "/page", PERSON);
    arrival.wait();
    gateway.clock.advance(Duration::from_secs(120));
    let stale = get(&gateway, "/page", BOT);
    assert_eq!((stale.text().as_str(), status_of(&stale)), ("page 0", "tidegate; hit; ttl=-60"));
    arrival.wait();
    gateway.wait_for_metric("tidegate_cache_requests_total{result=\"stale\"}", 1.0);
    let fresh = get(&gateway, "/page", BOT);
    assert_eq!((fresh.text().as_str(), status_of(&fresh)), ("page 1", "tidegate; hit; ttl=60"));
    assert_eq!(gateway.metric("tidegate_quota_used{quota=\"api\"}"), 2.0);
    let log = gateway.read_log();
    assert_eq!(
        (&log[1]["cache"], &log[1]["charged"]["api"], &log[1]["bytes"]),
        (&"stale".into(), &1.into(), &6.into())
    );
}

#[test]
fn write_invalidates_the_copies_that_it_changes() {
    let origin = Origin::with_script(|request, connection| {
        connection.read_body(request);
        let fields = request.fields.get("x-fields").map_or("", String::as_str).replace('|', "\r\n");
        match (request.method.as_str(), request.target.as_str()) {
            ("GET", _) => fresh(request, connection),
            (_, "/new") => connection.reply("201 Created", &fields, b""),
            (_, "/moved") => connection.reply("303 See Other", &fields, b""),
            (_, "/failed") => connection.reply("409 Conflict", &fields, b""),
            _ => connection.reply("200 OK", &fields, b""),
        }
    });
    let rules = RULES
        .replace("limit: 10", "limit: 100")
        .replace("- { match: \"/none\" }", "- { match: \"/**\", method: POST }");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let write = |method: &str, path: &str, fields: &str| {
        let mut client = gateway.connect();
        let fields = if fields.is_empty() { String::new() } else { format!("X-Fields: {fields}|\r\n") };
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: example.com\r\n{fields}{PERSON}Content-Length: 1\r\n\r\nx"
        ));
        client.read_response();
    };
    for (method, path, fields, is_invalidated) in [
        ("POST", "/page", "", true),
        ("MADE-UP", "/page", "", true),
        ("PROPFIND", "/page", "", false),
        ("POST", "//%70age", "", true),
        ("POST", "/other", "", false),
        ("POST", "/new", "Location: /page", true),
        ("POST", "/new", "Location: http://EXAMPLE.com:80/x/../page#top", true),
        ("POST", "/new", "Location: page", true),
        ("POST", "/new", "Location: http://other.example/page", false),
        ("POST", "/other", "Location: /page", false),
        ("POST", "/other", "Content-Location: /page", true),
        ("POST", "/moved", "Location: /page|Content-Location: /page", false),
        ("POST", "/failed", "Location: /page|Content-Location: /page", false),
    ] {
        get(&gateway, "/page", PERSON);
        gateway.clock.advance(Duration::from_secs(1));
        write(method, path, fields);
        let expected = if is_invalidated { "tidegate; fwd=stale; stored" } else { "tidegate; hit; ttl=" };
        let visit = get(&gateway, "/page", PERSON);
        assert!(status_of(&visit).starts_with(expected), "{method} {path} {fields}: {}", status_of(&visit));
    }
}

#[test]
fn writes_of_one_client_leave_the_copies_that_stand_in_for_refusals() {
    let origin = Origin::with_script(|request, connection| {
        connection.read_body(request);
        match request.method.as_str() {
            "GET" => fresh(request, connection),
            _ => connection.reply("200 OK", "", b"ignored"),
        }
    });
    let rules = RULES
        .replace("limit: 10", "limit: 1000")
        .replace("- { match: \"/none\" }", "- { match: \"/**\", method: POST }");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let pages: Vec<String> = (0..100).map(|number| format!("/page/{number}")).collect();
    pages.iter().for_each(|page| drop(get(&gateway, page, PERSON)));
    gateway.clock.advance(Duration::from_secs(1));
    let mut client = gateway.connect();
    let mut post = |page: &str| {
        client.send(format!("POST {page} HTTP/1.1\r\nHost: example.com\r\n{PERSON}Content-Length: 1\r\n\r\nx"));
        client.read_response();
    };
    (0..50).for_each(|number| post(&format!("/never-fetched/{number}")));
    pages.iter().for_each(|page| post(page));
    gateway.set_used("api", 1000);
    let visits: Vec<_> = pages.iter().map(|page| get(&gateway, page, PERSON)).collect();
    assert!(visits.iter().all(|visit| visit.status == 200), "copies replace refusals");
    let is_stale = |visit: &&Response| status_of(visit) == "tidegate; hit; ttl=0; detail=refused";
    assert_eq!(visits.iter().filter(is_stale).count(), 60, "the rate of one client");
    assert_eq!(gateway.metric("tidegate_cache_invalidations_total{result=\"marked\"}"), 60.0);
    assert_eq!(gateway.metric("tidegate_cache_invalidations_total{result=\"ignored\"}"), 40.0);
    assert_eq!(status_of(&visits[99]), "tidegate; hit; ttl=3599");
}

#[test]
fn administrator_removes_copies_in_every_spelling() {
    let origin = Origin::with_script(fresh);
    let gateway = TestGateway::with_rules(origin.address(), &RULES.replace("limit: 10", "limit: 1000"));
    let purge = |kind: &str, url: &str| {
        let url: String = url.bytes().map(|byte| format!("%{byte:02X}")).collect();
        gateway.admin_request("DELETE", &format!("/api/v1/cache?{kind}={url}"), "").1
    };
    let spellings =
        ["/gr%C3%B6%C3%9Fe", "/gr%c3%b6%c3%9fe", "/%67r%C3%B6%C3%9Fe", "/a/../gr%C3%B6%C3%9Fe", "//gr%C3%B6%C3%9Fe"];
    for kind in ["url", "prefix"] {
        for named in ["http://example.com/größe", "http://EXAMPLE.com:80//x/../gr%c3%b6%c3%9fe"] {
            spellings.iter().for_each(|path| drop(get(&gateway, path, PERSON)));
            let removed = purge(kind, named);
            assert_eq!(removed, "{\"removed\":3}", "{kind} {named}");
            assert_eq!(purge(kind, named), "{\"removed\":0}", "{kind} {named}");
        }
    }
    get(&gateway, "/search?q=%c3%b6%7E", PERSON);
    assert_eq!(purge("url", "http://example.com/search?q=ö~"), "{\"removed\":1}");
    let mut client = gateway.connect();
    client.send("GET /page HTTP/1.1\r\nHost: XN--bcher-kva.example\r\nUser-Agent: Person\r\n\r\n");
    assert_eq!(client.read_response().status, 200);
    assert_eq!(purge("url", "http://bücher.example/page"), "{\"removed\":1}");
}

#[test]
fn administrator_removes_copies_by_url_prefix_and_tag() {
    let origin = Origin::with_script(|request, connection| {
        let tag = if request.target.starts_with("/shop/") { "shop new" } else { "other" };
        let fields = format!("Cache-Control: max-age=3600\r\nCache-Tag: {tag}\r\n");
        connection.reply("200 OK", &fields, b"page");
    });
    let gateway = TestGateway::with_rules(origin.address(), &RULES.replace("limit: 10", "limit: 100"));
    let paths = ["/page?utm_source=a&b=1", "/shop/1", "/shop/2", "/shops"];
    let fetch_all = || paths.map(|path| status_of(&get(&gateway, path, PERSON)).starts_with("tidegate; hit"));
    let purge = |query: &str| gateway.admin_request("DELETE", &format!("/api/v1/cache?{query}"), "");
    assert_eq!(fetch_all(), [false; 4]);
    assert_eq!(fetch_all(), [true; 4]);
    assert_eq!(purge("url=http://EXAMPLE.com/page?b=1"), (200, "{\"removed\":1}".to_owned()));
    assert_eq!(fetch_all(), [false, true, true, true]);
    assert_eq!(purge("prefix=http://example.com/shop/"), (200, "{\"removed\":2}".to_owned()));
    assert_eq!(fetch_all(), [true, false, false, true]);
    assert_eq!(purge("tag=new"), (200, "{\"removed\":2}".to_owned()));
    assert_eq!(purge("tag=absent"), (200, "{\"removed\":0}".to_owned()));
    for invalid in ["", "url=/page", "url=http://example.com/&tag=a", "host=a"] {
        assert_eq!(purge(invalid).0, 422, "{invalid}");
    }
    let (status, stats) = gateway.admin_get("/api/v1/cache");
    let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
    assert_eq!((status, &stats["entries"], &stats["requests"]["hit"]), (200, &2.into(), &9.into()));
    assert_eq!(stats["most_requested"][0]["url"], "http://example.com/shops");
    assert_eq!(stats["most_requested"][0]["saved"], 3);
}

#[test]
fn without_the_section_nothing_is_stored() {
    let origin = Origin::with_script(fresh);
    let rules = RULES.replace("cache: { reload: all }\n", "").replace(", cache: off", "");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    for _ in 0..2 {
        assert_eq!(status_of(&get(&gateway, "/page", PERSON)), "");
    }
    assert_eq!(origin.received_requests().len(), 2);
    assert_eq!(gateway.admin_get("/api/v1/cache").0, 404);
}

#[test]
fn truncated_response_is_not_stored_and_stops_no_worker() {
    let origin = Origin::with_script(|request, connection| {
        let framing =
            if request.target.starts_with("/chunked") { "Transfer-Encoding: chunked" } else { "Content-Length: 1000" };
        let part = if request.target.starts_with("/chunked") { "4\r\nhalf\r\n" } else { "half" };
        connection.send(format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\n{framing}\r\n\r\n{part}"));
        connection.close();
    });
    let gateway = TestGateway::with_rules(origin.address(), "workers: 1\ncache: {}\nroutes: [ { match: \"/**\" } ]\n");
    for (asked, path) in ["/length", "/chunked", "/length", "/chunked"].into_iter().enumerate() {
        let mut client = gateway.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        let sent = String::from_utf8_lossy(&client.read_rest()).into_owned();
        assert!(sent.contains("fwd=uri-miss") && sent.contains("half"), "{path}: {sent}");
        assert_eq!(origin.received_requests().len(), asked + 1, "the part was not stored as the whole");
    }
    // A client that leaves in the middle.
    for path in ["/length/left", "/chunked/left"] {
        let mut client = gateway.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.head();
        client.reset();
    }
    assert_eq!(gateway.admin_get("/healthz").0, 200);
    let mut client = gateway.connect();
    client.send("GET /length HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(String::from_utf8_lossy(&client.read_rest()).contains("half"), "the worker goes on");
}
