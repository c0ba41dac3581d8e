//! The gateway's own requests for robots.txt: what they carry, how many clients can cause, and what is stored.

use crate::support::client::Client;
use crate::support::gateway::TestGateway;
use crate::support::http2_statuses;
use crate::support::origin::Origin;
use crate::support::wait::wait_until;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Fields of a request by a verified crawler.
const GOOGLE: &str = "X-Forwarded-For: 66.249.66.1\r\nUser-Agent: Mozilla/5.0 (compatible; Googlebot/2.1)\r\n";

const TEXT: &str = "User-agent: *\nDisallow: /cart\n";

/// Maximum number of fetches of unknown hosts at one time.
const BURST: usize = 10;

/// One worker, and a timeout that lets a test advance the clock.
const ONE_WORKER: &str = "workers: 1\nlimits: { first_byte_timeout: 1s }\n";

/// An origin that responds to a request for robots.txt only after the test admits it.
struct HoldingOrigin {
    origin: Origin,
    gate: Arc<Gate>,
}

/// Counts of the requests at the origin.
#[derive(Default)]
struct Gate {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Default)]
struct Counts {
    /// Number of responses that may be sent.
    admitted: usize,
    /// Number of requests so far.
    held: usize,
    in_flight: usize,
    max_in_flight: usize,
}

impl HoldingOrigin {
    fn new() -> Self {
        let gate = Arc::new(Gate::default());
        let held = Arc::clone(&gate);
        let origin = Origin::with_script(move |_, connection| {
            held.pass();
            connection.reply("200 OK", "", TEXT.as_bytes());
        });
        Self { origin, gate }
    }

    /// Lets the origin send `count` responses.
    fn admit(&self, count: usize) {
        self.gate.counts.lock().admitted += count;
        self.gate.changed.notify_all();
    }

    fn max_in_flight(&self) -> usize {
        self.gate.counts.lock().max_in_flight
    }

    fn wait_for_fetches(&self, count: usize) {
        wait_until("the origin to hold a fetch", || self.gate.counts.lock().held >= count);
        assert_eq!(self.origin.received_requests().len(), count);
    }
}

impl Gate {
    fn pass(&self) {
        let mut counts = self.counts.lock();
        counts.held += 1;
        counts.in_flight += 1;
        counts.max_in_flight = counts.max_in_flight.max(counts.in_flight);
        while counts.admitted == 0 {
            self.changed.wait(&mut counts);
        }
        counts.admitted -= 1;
        counts.in_flight -= 1;
    }
}

fn robots_request(host: &str, fields: &str) -> String {
    format!("GET /robots.txt HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n")
}

/// Returns the status of a request for the robots.txt of `host`.
fn status_of(gateway: &TestGateway, host: &str, fields: &str) -> u16 {
    gateway.connect().send(robots_request(host, fields)).read_response().status
}

/// Sends a request for the robots.txt of `host`, and returns once the only worker has read it.
fn send_and_wait_until_read(gateway: &TestGateway, host: &str, fields: &str) -> Client {
    let mut client = gateway.connect();
    client.send(robots_request(host, fields));
    // Connections are served in order: after the response to this one, the request has been read.
    assert_eq!(gateway.connect().send("GET / HTTP/1.1\r\n\r\n").read_response().status, 400);
    client
}

fn origin_with_robots(fields: &'static str) -> Origin {
    Origin::with_script(move |_, connection| connection.reply("200 OK", fields, TEXT.as_bytes()))
}

#[test]
fn fetch_carries_nothing_of_the_client() {
    let origin = origin_with_robots("Cache-Control: no-store\r\n");
    let gateway = TestGateway::with_rules(origin.address(), "hosts: example.com\n");
    let of_the_client = "X-Forwarded-Proto: https\r\nX-Forwarded-Host: evil.com\r\nX-Forwarded-Port: 99\r\n\
        X-Forwarded-For: 192.0.2.7\r\nForwarded: for=192.0.2.7;host=evil.com\r\nX-Real-IP: 192.0.2.7\r\nVia: 1.1 other\r\n\
        User-Agent: SomeBot/1.0\r\nAccept: text/html\r\nAccept-Encoding: gzip, br\r\nAccept-Language: de\r\n\
        Cookie: session=1\r\nAuthorization: Basic eA==\r\nProxy-Authorization: Basic eA==\r\nReferer: http://a/\r\n\
        Range: bytes=0-3\r\nIf-None-Match: \"x\"\r\nIf-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
        Cache-Control: no-cache\r\nPragma: no-cache\r\nOrigin: http://evil.com\r\nX-Original-URL: /admin\r\nX-Mine: 1\r\n\
        X_Forwarded_Host: evil.com\r\nTE: trailers\r\nTrailer: X-Sum\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\
        X-Tidegate-Class: person\r\nSignature-Agent: \"https://evil.com\"\r\nSec-Fetch-Mode: navigate\r\n";
    let own_fields: BTreeMap<String, String> = [
        ("host", "example.com"),
        ("user-agent", concat!("tidegate/", env!("CARGO_PKG_VERSION"))),
        ("accept", "text/plain"),
        ("accept-encoding", "identity"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "example.com"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let assert_own = |case: &str| {
        let mut request = origin.last_request();
        assert_eq!((&request.method[..], &request.target[..]), ("GET", "/robots.txt"), "{case}");
        let via = request.fields.remove("via").expect("the gateway names itself");
        assert!(via.starts_with("1.1 tidegate-") && !via.contains(','), "{case}: {via}");
        assert_eq!(request.fields, own_fields, "{case}");
    };
    for (target, host) in [
        ("/robots.txt", "example.com"),
        ("/robots.txt?session=1", "Example.COM.:443"),
        ("http://EXAMPLE.com/robots.txt", "evil.com"),
    ] {
        let mut client = gateway.connect();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{of_the_client}\r\n"));
        assert_eq!(client.read_response().status, 200, "{target}");
        assert_own(target);
    }
    let mut client = gateway.connect();
    client.send(format!("HEAD /robots.txt HTTP/1.1\r\nHost: example.com\r\n{of_the_client}\r\n"));
    assert_eq!(client.response_to("HEAD").status, 200);
    assert_own("HEAD");
    client
        .send(format!("GET /robots.txt HTTP/1.1\r\nHost: example.com\r\n{of_the_client}Content-Length: 4\r\n\r\nbody"));
    assert_eq!(client.read_response().status, 200);
    assert_own("a body");
    let statuses = http2_statuses(gateway.address(), |builder| {
        let builder = builder.uri("http://example.com/robots.txt").header("x-forwarded-proto", "https");
        vec![builder.header("cookie", "a=1").header("x-forwarded-host", "evil.com").body(()).expect("a request")]
    });
    assert_eq!(statuses, [200]);
    assert_own("HTTP/2");
    assert_eq!(origin.received_requests().len(), 6);
}

#[test]
fn log_line_shows_the_request_of_the_client() {
    let origin = origin_with_robots("");
    let gateway = TestGateway::with_rules(origin.address(), "");
    assert_eq!(status_of(&gateway, "Example.com:80", "User-Agent: SomeBot/1.0\r\nReferer: http://a/\r\n"), 200);
    let line = gateway.read_log().pop().expect("one line");
    assert_eq!((&line["host"], &line["user_agent"]), (&"Example.com:80".into(), &"SomeBot/1.0".into()), "{line}");
}

#[test]
fn responses_for_one_client_are_not_stored() {
    let fields = Arc::new(Mutex::new(("200 OK", "")));
    let origin = {
        let fields = Arc::clone(&fields);
        Origin::with_script(move |_, connection| {
            let (status, fields) = *fields.lock();
            connection.reply(status, fields, TEXT.as_bytes());
        })
    };
    let gateway = TestGateway::with_rules(origin.address(), "hosts: \"*.example.com\"\n");
    let fetches_of_two_requests = |host: &str, status, response_fields| {
        *fields.lock() = (status, response_fields);
        let before = origin.received_requests().len();
        for _ in 0..2 {
            let response = gateway.connect().send(robots_request(host, GOOGLE)).read_response();
            assert_eq!((response.status.to_string(), response.text()), (status[..3].to_owned(), TEXT.to_owned()));
            assert_eq!(response.field("set-cookie"), "", "a cookie of the gateway's fetch is for no client");
        }
        origin.received_requests().len() - before
    };
    for (index, (status, response_fields)) in [
        ("200 OK", "Content-Type: text/plain\r\nSet-Cookie: session=1\r\n"),
        ("404 Not Found", "set-cookie: session=1\r\n"),
        ("200 OK", "Content-Type: text/plain\r\nVary: Accept-Encoding, User-Agent\r\n"),
        ("200 OK", "Content-Type: text/plain\r\nVary: *\r\n"),
        ("200 OK", "Content-Type: text/html\r\n"),
        ("200 OK", "Content-Type: application/json\r\n"),
    ]
    .into_iter()
    .enumerate()
    {
        let host = format!("{index}.example.com");
        assert_eq!(fetches_of_two_requests(&host, status, response_fields), 2, "{status} {response_fields}");
    }
    for (index, response_fields) in
        ["", "Content-Type: Text/Plain;charset=utf-8\r\nVary: accept-encoding\r\n"].into_iter().enumerate()
    {
        let host = format!("stored-{index}.example.com");
        assert_eq!(fetches_of_two_requests(&host, "200 OK", response_fields), 1, "{response_fields}");
    }
}

/// Returns the field of a client in a network of its own.
fn network(number: usize) -> String {
    format!("X-Forwarded-For: 10.{}.{}.1\r\n", number / 256, number % 256)
}

#[test]
fn made_up_hosts_cause_a_bounded_number_of_fetches() {
    let origin = origin_with_robots("Cache-Control: max-age=1\r\n");
    let gateway = TestGateway::with_rules(origin.address(), "");
    let fetches = || origin.received_requests().len();
    assert_eq!(status_of(&gateway, "crawled.example", GOOGLE), 200);
    assert_eq!(status_of(&gateway, "visited.example", ""), 200);
    let mut client = gateway.connect();
    let mut served = 0;
    for number in 0..300 {
        let host = match number % 3 {
            0 => format!("made-up-{number}.example"),
            1 => format!("visited.example:{number}"),
            _ => format!("[2001:db8::{number}]"),
        };
        let response = client.send(robots_request(&host, &network(number))).read_response();
        match response.status {
            200 => served += 1,
            status => {
                assert_eq!((status, response.field("content-type")), (503, "application/problem+json"), "{host}");
                let wait: u64 = response.field("retry-after").parse().expect("seconds");
                assert!((1..=8).contains(&wait), "{wait}");
            }
        }
    }
    assert_eq!((served, fetches()), (BURST - 1, 1 + BURST), "the tenth is that of visited.example");
    gateway.clock.advance(Duration::from_secs(2));
    assert_eq!(status_of(&gateway, "visited.example.", ""), 200, "the stale copy");
    assert_eq!(fetches(), 1 + BURST);
    assert_eq!(status_of(&gateway, "crawled.example", ""), 200);
    assert_eq!(status_of(&gateway, "new.example", GOOGLE), 200);
    assert_eq!(fetches(), 3 + BURST, "hosts that verified crawlers request are fetched");
    gateway.clock.advance(Duration::from_secs(4));
    let statuses: Vec<u16> =
        (0..3).map(|number| status_of(&gateway, &format!("later-{number}.example"), &network(number))).collect();
    assert_eq!(statuses, [200, 503, 503], "one more each 6 s");
    let impostor = "X-Forwarded-For: 192.0.2.1\r\nUser-Agent: Googlebot/2.1\r\n";
    assert_eq!(status_of(&gateway, "later.example", impostor), 503, "a claim is no proof");
}

#[test]
fn made_up_hosts_of_one_network_leave_fetches_to_others() {
    let origin = origin_with_robots("Cache-Control: max-age=60\r\n");
    let gateway = TestGateway::with_rules(origin.address(), "");
    let mut client = gateway.connect();
    for number in 0..300 {
        let (host, fields) =
            (format!("made-up-{number}.example"), format!("X-Forwarded-For: 192.0.2.{}\r\n", number % 256));
        client.send(robots_request(&host, &fields)).read_response();
    }
    assert_eq!(origin.received_requests().len(), 4);
    assert_eq!(status_of(&gateway, "site.example", &network(1)), 200);
}

#[test]
fn robots_txt_that_cannot_be_stored_is_served_to_everybody() {
    for fields in ["Set-Cookie: a=1\r\n", "Vary: User-Agent\r\n", "Cache-Control: no-store\r\n"] {
        let origin = origin_with_robots(fields);
        let gateway = TestGateway::with_rules(origin.address(), "");
        for number in 0..40 {
            assert_eq!(status_of(&gateway, "site.example", &network(number)), 200, "{fields}{number}");
        }
        assert_eq!(origin.received_requests().len(), 40);
    }
}

#[test]
fn made_up_hosts_cost_nothing_with_own_hosts() {
    let origin = origin_with_robots("Cache-Control: no-store\r\n");
    let hosts = "hosts: [example.com, \"*.shop.example\"]\n";
    let gateway = TestGateway::with_rules(origin.address(), hosts);
    let mut client = gateway.connect();
    let mut sent = 0;
    let mut status_of = |host: &str| {
        sent += 1;
        client.send(robots_request(host, &network(sent))).read_response().status
    };
    for number in 0..300 {
        assert_eq!(status_of(&format!("made-up-{number}.example")), 421);
        assert_eq!(status_of(&format!("example.com.made-up-{number}.example")), 421);
    }
    assert!(origin.received_requests().is_empty());
    for number in 1000..1150 {
        for host in [format!("made-up-{number}.shop.example"), format!("example.com:{number}")] {
            assert!(matches!(status_of(&host), 200 | 503), "{host}");
        }
    }
    assert_eq!(origin.received_requests().len(), BURST, "names below a wildcard and ports can be made up");
    for host in ["example.com", "EXAMPLE.com.", "example.com:80", "example.com"] {
        assert_eq!(status_of(host), 200, "a named host is always fetched");
    }
    assert_eq!(origin.received_requests().len(), BURST + 4);
}

#[test]
fn spellings_of_a_host_share_one_fetch() {
    let origin = origin_with_robots("");
    let gateway = TestGateway::with_rules(origin.address(), "");
    for host in
        ["shop.example", "SHOP.Example", "shop.example.", "shop.example:80", "shop.example:", "Shop.example.:80"]
    {
        assert_eq!(status_of(&gateway, host, ""), 200, "{host}");
    }
    let mut client = gateway.connect();
    client.send("GET http://shop.EXAMPLE./robots.txt HTTP/1.1\r\nHost: evil.com\r\n\r\n");
    assert_eq!(client.read_response().status, 200);
    for proto in ["gopher", "http, http", "https://evil.com"] {
        assert_eq!(status_of(&gateway, "shop.example", &format!("X-Forwarded-Proto: {proto}\r\n")), 200);
    }
    assert_eq!(origin.received_requests().len(), 1);
    assert_eq!(origin.last_request().fields["host"], "shop.example");
}

#[test]
fn at_most_two_fetches_are_at_the_origin() {
    for workers in [1, 4] {
        let server = HoldingOrigin::new();
        let gateway = TestGateway::with_rules(server.origin.address(), &format!("workers: {workers}\n"));
        let mut clients: Vec<Client> = (0..6)
            .map(|number| send_and_wait_until_read(&gateway, &format!("shop-{number}.example"), GOOGLE))
            .collect();
        server.wait_for_fetches(2);
        server.admit(6);
        assert!(clients.iter_mut().all(|client| client.read_response().status == 200));
        assert_eq!((server.max_in_flight(), server.origin.received_requests().len()), (2, 6), "{workers} workers");
    }
}

#[test]
fn unknown_hosts_leave_a_slot_to_known_ones() {
    let server = HoldingOrigin::new();
    let gateway = TestGateway::with_rules(server.origin.address(), ONE_WORKER);
    let mut unknown: Vec<Client> =
        (0..3).map(|number| send_and_wait_until_read(&gateway, &format!("made-up-{number}.example"), "")).collect();
    server.wait_for_fetches(1);
    let mut known = send_and_wait_until_read(&gateway, "shop.example", GOOGLE);
    server.wait_for_fetches(2);
    server.admit(4);
    assert_eq!(known.read_response().status, 200);
    assert!(unknown.iter_mut().all(|client| client.read_response().status == 200));
}

#[test]
fn wait_for_a_fetch_is_bounded() {
    let server = HoldingOrigin::new();
    let rules = format!("{ONE_WORKER}origin: {{ url: ORIGIN, response_timeout: 4s }}\n");
    let gateway = TestGateway::with_rules(server.origin.address(), &rules);
    let mut first = send_and_wait_until_read(&gateway, "one.example", "");
    let mut second = send_and_wait_until_read(&gateway, "two.example", "");
    let mut third = send_and_wait_until_read(&gateway, "three.example", "");
    server.wait_for_fetches(1);
    gateway.clock.advance(Duration::from_secs(2));
    server.admit(1);
    assert_eq!(first.read_response().status, 200);
    server.wait_for_fetches(2);
    gateway.advance_and_sweep(Duration::from_millis(2500));
    let response = third.read_response();
    assert_eq!((response.status, response.json()["title"].as_str()), (503, Some("Service Unavailable")));
    assert!(!response.field("retry-after").is_empty());
    server.admit(1);
    assert_eq!(second.read_response().status, 200, "a fetch may take as long itself");
    assert_eq!(server.origin.received_requests().len(), 2);
}

#[test]
fn client_that_leaves_does_not_free_the_slot_of_its_fetch() {
    let server = HoldingOrigin::new();
    let gateway = TestGateway::with_rules(server.origin.address(), "workers: 1\n");
    for number in 0..2 {
        let leaving = send_and_wait_until_read(&gateway, &format!("shop-{number}.example"), GOOGLE);
        server.wait_for_fetches(number + 1);
        leaving.reset();
    }
    gateway.wait_for_metric("tidegate_client_connections", 0.0);
    let mut waiting = send_and_wait_until_read(&gateway, "shop-2.example", GOOGLE);
    assert_eq!(server.origin.received_requests().len(), 2);
    server.admit(3);
    assert_eq!(waiting.read_response().status, 200);
    assert_eq!(status_of(&gateway, "shop-0.example", ""), 200);
    assert_eq!((server.max_in_flight(), server.origin.received_requests().len()), (2, 3), "its fetch was stored");
    assert_eq!(gateway.read_log().iter().filter(|line| line["status"] == 499).count(), 2);
}

#[test]
fn stop_does_not_wait_for_a_fetch_whose_client_left() {
    let server = HoldingOrigin::new();
    let gateway = TestGateway::with_rules(server.origin.address(), "workers: 1\nlimits: { drain_timeout: 1s }\n");
    let leaving = send_and_wait_until_read(&gateway, "shop.example", GOOGLE);
    server.wait_for_fetches(1);
    leaving.reset();
    gateway.wait_for_metric("tidegate_client_connections", 0.0);
    gateway.shut_down();
    server.admit(1);
}

#[test]
fn slow_readers_hold_no_slot() {
    let page = "x".repeat(400 * 1024);
    let origin = {
        let page = page.clone();
        Origin::with_script(move |_, connection| {
            connection.reply("200 OK", "Content-Type: text/html\r\n", page.as_bytes());
        })
    };
    let gateway = TestGateway::with_rules(origin.address(), "hosts: example.com\nworkers: 1\n");
    let silent: Vec<Client> = (0..4).map(|_| send_and_wait_until_read(&gateway, "example.com", "")).collect();
    assert!(gateway.connect().get("/robots.txt", "").body == page.as_bytes());
    wait_until("each request to be fetched", || origin.received_requests().len() == 5);
    drop(silent);
}
