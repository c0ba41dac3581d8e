//! Responses are received from the origin while their clients read slowly, so that these hold no slots.

use crate::support::client::Client;
use crate::support::frames::{HEADERS, Http2Client};
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::wait::wait_until;
use socket2::{Domain, Socket, Type};
use std::net::SocketAddr;
use std::time::Duration;

const RULES: &str = "
workers: 1
limits: { first_byte_timeout: 1s, response_write_timeout: 1h, min_rate: 0B }
clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }
scopes: { default: { concurrency: 4, queue: { max_wait: 0s } } }
";
/// More than the system's socket buffers hold.
const PAGE_LENGTH: usize = 16 * 1024 * 1024;
/// More than a response that waits has in memory, and than the windows of a connection of HTTP/2.
const MEDIUM_LENGTH: usize = 128 * 1024;
const READERS: usize = 4;
const INFLIGHT: &str = "tidegate_origin_inflight{scope=\"default\"}";

fn page() -> Vec<u8> {
    (0..PAGE_LENGTH).map(|position| (position % 251) as u8).collect()
}

/// Starts an origin with a large page; `/cut` ends before its length.
fn origin() -> Origin {
    let page = page();
    Origin::with_script(move |request, connection| match request.target.as_str() {
        "/large" | "/" => connection.reply("200 OK", "", &page),
        "/medium" => connection.reply("200 OK", "", &page[..MEDIUM_LENGTH]),
        "/cut" => {
            connection.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 2 * PAGE_LENGTH));
            connection.send(&page);
            connection.close();
        }
        _ => connection.reply("200 OK", "", b"page"),
    })
}

/// Connects a client whose system receives little that it does not read.
fn connect_reader(to: SocketAddr) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(16 * 1024).expect("socket option can be set");
    socket.connect(&to.into()).expect("gateway listens");
    Client::from_stream(socket.into())
}

/// Requests `path` as one of several clients, and does not read the response.
fn start_reading(gateway: &TestGateway, path: &str, client: usize) -> Client {
    let mut reader = connect_reader(gateway.address());
    reader.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.{client}\r\n\r\n"));
    reader
}

/// Lets time pass until `metric`, which is `before`, is zero.
fn advance_until_zero(gateway: &TestGateway, metric: &str, before: f64) {
    gateway.wait_for_metric(metric, before);
    wait_until(&format!("{metric} to be 0 while time passes"), || {
        gateway.clock.advance(Duration::from_millis(300));
        gateway.metric(metric) == 0.0
    });
}

/// Lets the gateway see that its clients do not read.
fn let_readers_stall(gateway: &TestGateway) {
    advance_until_zero(gateway, INFLIGHT, READERS as f64);
}

fn assert_others_are_served(gateway: &TestGateway) {
    for visitor in 10..30 {
        let response = gateway.connect().get("/small", &format!("X-Forwarded-For: 192.0.2.{visitor}\r\n"));
        assert_eq!(response.status, 200);
    }
}

#[test]
fn slow_readers_hold_no_slots_and_receive_everything() {
    let origin = origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut readers: Vec<Client> = (0..READERS).map(|client| start_reading(&gateway, "/large", client)).collect();
    let_readers_stall(&gateway);
    assert_others_are_served(&gateway);
    let page = page();
    for reader in &mut readers {
        let response = reader.read_response();
        assert!(response.status == 200 && response.body == page, "the response is unchanged");
        assert_eq!(reader.get("/small", "X-Forwarded-For: 192.0.2.1\r\n").status, 200, "the connection is kept");
    }
    drop(readers);
    let log = gateway.read_log();
    let large = log.iter().filter(|line| line["bytes"].as_u64() == Some(PAGE_LENGTH as u64));
    assert_eq!(large.count(), READERS);
}

#[test]
fn readers_that_leave_free_everything() {
    let origin = origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let readers: Vec<Client> = (0..READERS).map(|client| start_reading(&gateway, "/large", client)).collect();
    let_readers_stall(&gateway);
    readers.into_iter().for_each(Client::reset);
    assert_others_are_served(&gateway);
    gateway.wait_for_metric("tidegate_client_connections", 0.0);
    let log = gateway.read_log();
    let left = log.iter().filter(|line| line["path"] == "/large" && line["bytes"].as_u64() < Some(PAGE_LENGTH as u64));
    assert_eq!(left.count(), READERS);
}

#[test]
fn without_space_for_files_slow_readers_keep_their_slots() {
    let origin = origin();
    let rules = RULES.replace("first_byte_timeout: 1s", "first_byte_timeout: 1s, buffer_disk: 1MiB");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let mut readers: Vec<Client> = (0..READERS).map(|client| start_reading(&gateway, "/large", client)).collect();
    gateway.wait_for_metric(INFLIGHT, READERS as f64);
    for _ in 0..5 {
        gateway.advance_and_sweep(Duration::from_secs(2));
        assert_eq!(gateway.metric(INFLIGHT), READERS as f64);
    }
    let page = page();
    for reader in &mut readers {
        assert!(reader.read_response().body == page, "the response is unchanged");
    }
    gateway.wait_for_metric(INFLIGHT, 0.0);
}

/// No wait for a fetch ends, whatever time passes in the test.
const STORED: &str = "\
cache: { memory: 128MiB, max_object: 16MiB, disk: off }
quotas: { api: { limit: 100, window: { fixed: 24h } } }
routes: [{ match: \"/**\", cost: { api: 1 }, response_timeout: 24h }]
";

#[test]
fn stored_page_is_held_from_nobody_by_a_slow_reader() {
    const OTHERS: usize = 8;
    for buffer_disk in ["64MiB", "0B"] {
        let body = page();
        let origin = Origin::with_script(move |_, connection| {
            connection.reply("200 OK", "Cache-Control: max-age=3600\r\n", &body);
        });
        let limits = format!("first_byte_timeout: 1h, buffer_disk: {buffer_disk}");
        let rules = RULES.replace("first_byte_timeout: 1s", &limits);
        let gateway = TestGateway::with_rules(origin.address(), &format!("{rules}{STORED}"));
        let mut slow = start_reading(&gateway, "/page", 1);
        wait_until("the origin to be asked", || origin.received_requests().len() == 1);
        let address = gateway.address();
        let others: Vec<_> = (0..OTHERS)
            .map(|other| {
                // The same host as that of the slow reader: otherwise it is another page.
                let request =
                    format!("GET /page HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.{}\r\n\r\n", 10 + other);
                std::thread::spawn(move || Client::connect(address).send(request).read_response())
            })
            .collect();
        wait_until("all others to be served while the slow one reads nothing", || {
            gateway.clock.advance(Duration::from_millis(300));
            others.iter().all(std::thread::JoinHandle::is_finished)
        });
        let page = page();
        for other in others {
            let response = other.join().expect("a response");
            assert!(response.status == 200 && response.body == page, "{buffer_disk}");
        }
        assert!(slow.read_response().body == page, "the slow one gets all, too, with {buffer_disk}");
        assert_eq!(origin.received_requests().len(), 1, "one fetch, with {buffer_disk}");
        assert_eq!(gateway.metric("tidegate_quota_used{quota=\"api\"}"), 1.0, "with {buffer_disk}");
    }
}

#[test]
fn readers_below_the_least_rate_are_disconnected() {
    let origin = origin();
    // No client reads as fast as that.
    let rules = RULES.replace("min_rate: 0B", "min_rate: 64GiB");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let mut readers: Vec<Client> = (0..READERS).map(|client| start_reading(&gateway, "/large", client)).collect();
    advance_until_zero(&gateway, "tidegate_client_connections", READERS as f64);
    for reader in &mut readers {
        assert!(reader.read_rest().len() < PAGE_LENGTH);
    }
}

#[test]
fn truncated_response_stays_truncated() {
    let origin = origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut readers: Vec<Client> = (0..READERS).map(|client| start_reading(&gateway, "/cut", client)).collect();
    let_readers_stall(&gateway);
    for reader in &mut readers {
        assert_eq!(reader.head().status, 200);
        assert!(reader.read_rest() == page(), "what the origin sent arrives, then the connection is closed");
    }
}

#[test]
fn stalled_http2_streams_hold_no_slots() {
    let origin = origin();
    let rules = RULES.replace("concurrency: 4", "concurrency: 4, per_client: 100%");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let mut client = Http2Client::connect(gateway.address());
    // The client never enlarges its windows, which hold less than a response of these.
    for stream in 0..READERS as u32 {
        client.get(2 * stream + 1);
    }
    (0..READERS).for_each(|_| drop(client.wait_for_frame(|frame| frame.kind == HEADERS)));
    let_readers_stall(&gateway);
    assert_others_are_served(&gateway);
}

/// Without space in files, such a response would hold its slots and its connection to the origin.
#[test]
fn client_that_leaves_all_responses_unread_holds_no_slots() {
    const CONNECTIONS: usize = 4;
    const STREAMS: usize = 75;
    const MAX_FILES: usize = 256;
    let origin = origin();
    let rules = RULES.replace("concurrency: 4", "concurrency: 100, per_client: 100%");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let connections = [(); CONNECTIONS].map(|()| {
        let mut client = Http2Client::connect(gateway.address());
        for stream in 0..STREAMS as u32 {
            client.get_path(2 * stream + 1, "/medium", "reader");
        }
        (0..STREAMS).for_each(|_| drop(client.wait_for_frame(|frame| frame.kind == HEADERS)));
        advance_until_zero(&gateway, INFLIGHT, STREAMS as f64);
        client
    });
    assert_others_are_served(&gateway);
    drop(connections);
    gateway.wait_for_metric("tidegate_client_connections", 0.0);
    let log = gateway.read_log();
    let cut = log.iter().filter(|line| line["cut"] == "too_many_unread");
    // The window of a connection may have left one response that fits in memory.
    let (cut, most) = (cut.count(), CONNECTIONS * STREAMS - MAX_FILES);
    assert!((most - CONNECTIONS..=most).contains(&cut), "{cut}");
}
