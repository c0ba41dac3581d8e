//! Limits per client and in total. Timeouts are tested on a clock that the test advances.

use crate::support::client::Client;
use crate::support::frames::{DATA, GOAWAY, HEADERS, Http2Client, RST_STREAM};
use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, signal};
use crate::support::wait::wait_until;
use socket2::{Domain, Socket, Type};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

#[test]
fn silent_connection_is_closed() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), DEFAULT_TIMEOUTS);
    let mut silent_client = gateway.connect();
    let mut active_client = gateway.connect();
    assert_eq!(active_client.get("/", "").status, 200);
    gateway.advance_and_sweep(seconds(2));
    assert!(silent_client.is_closed());
    assert_eq!(active_client.get("/", "").status, 200, "a connection with a request has the longer idle timeout");
}

#[test]
fn head_timeout_covers_the_whole_head() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), DEFAULT_TIMEOUTS);
    let (mut slow_client, mut slower_client) = (gateway.connect(), gateway.connect());
    slow_client.send("G");
    slower_client.send("G");
    for byte in ["E", "T", " ", "/"] {
        gateway.advance_and_sweep(seconds(2));
        slow_client.send(byte);
        slower_client.send(byte);
    }
    slow_client.send(" HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(slow_client.read_response().status, 200, "eight of ten seconds have passed");
    gateway.advance_and_sweep(seconds(3));
    slower_client.try_send(" HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(slower_client.is_closed(), "the header timeout is total, not per byte");
    assert_eq!(origin.received_requests().len(), 1);
}

#[test]
fn head_that_began_behind_a_request_has_the_head_timeout() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), DEFAULT_TIMEOUTS);
    let (mut idle_client, mut slow_client) = (gateway.connect(), gateway.connect());
    idle_client.get("/", "");
    slow_client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HT");
    assert_eq!(slow_client.read_response().status, 200);
    gateway.advance_and_sweep(seconds(11));
    assert!(slow_client.is_closed());
    assert_eq!(idle_client.get("/", "").status, 200, "between requests, the longer idle timeout applies");
}

#[test]
fn http2_requests_have_a_maximum_number_of_fields() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), "limits: { max_headers: 10 }");
    let mut client = Http2Client::connect(gateway.address());
    // RFC 7541 appendix A: GET, http and / are in the static table. The other fields are literals.
    let mut fields = [&[0x82, 0x86, 0x84, 0x41, 11][..], b"example.com"].concat();
    fields.extend_from_slice(&b"\0\x01a\x01b".repeat(11));
    client.send(HEADERS, 5, 1, &fields);
    client.wait_for_frame(|frame| frame.kind == HEADERS && frame.stream == 1);
    assert_eq!(gateway.metric("tidegate_responses_total{class=\"\",code=\"4xx\"}"), 1.0);
    assert!(origin.received_requests().is_empty());
    client.get(3);
    client.wait_for_frame(|frame| frame.kind == DATA && frame.stream == 3);
    assert_eq!(origin.received_requests().len(), 1);
}

#[test]
fn each_request_head_has_its_own_timeout() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), DEFAULT_TIMEOUTS);
    let mut client = gateway.connect();
    client.get("/", "");
    gateway.advance_and_sweep(seconds(40));
    client.send("GET / HT");
    gateway.advance_and_sweep(seconds(9));
    client.send("TP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.read_response().status, 200);
    client.send("GET / HT");
    gateway.advance_and_sweep(seconds(2));
    gateway.advance_and_sweep(seconds(11));
    assert!(client.is_closed());
}

#[test]
fn idle_connection_closes_after_keep_alive_timeout() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), DEFAULT_TIMEOUTS);
    let mut client = gateway.connect();
    client.get("/", "");
    gateway.advance_and_sweep(seconds(59));
    assert_eq!(client.get("/", "").status, 200);
    gateway.advance_and_sweep(seconds(61));
    assert!(client.is_closed());
}

#[test]
fn stalled_streamed_request_body_times_out() {
    let origin = Origin::with_script(|request, connection| {
        let body = connection.read_body(request);
        connection.reply("200 OK", "", &body);
    });
    let gateway = TestGateway::with_rules(
        origin.address(),
        &format!("{DEFAULT_TIMEOUTS}\nroutes: [{{ match: \"/**\", stream: true }}]"),
    );
    let mut slow_client = gateway.connect();
    let mut stalled_client = gateway.connect();
    for client in [&mut slow_client, &mut stalled_client] {
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n");
    }
    for byte in ["a", "b", "c"] {
        gateway.advance_and_sweep(seconds(20));
        slow_client.send(byte);
        // The gateway detects a pause at a tick: at most one tick after the last byte.
        gateway.advance_and_sweep(seconds(2));
    }
    assert_eq!(slow_client.read_response().text(), "abc");
    assert!(stalled_client.is_closed(), "no byte was received for a minute");
    drop((slow_client, stalled_client));
    let mut statuses: Vec<_> = gateway.read_log().iter().map(|line| line["status"].as_u64()).collect();
    statuses.sort();
    assert_eq!(statuses, [Some(200), Some(499)], "an aborted request is logged, too");
}

#[test]
fn timeouts_start_at_accept_not_at_sweep() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), DEFAULT_TIMEOUTS);
    let mut silent_client = gateway.connect();
    // Connections are accepted in order: after the response to a later one, the silent one is tracked.
    assert_eq!(gateway.connect().send("GET / HTTP/1.1\r\n\r\n").read_response().status, 400);
    gateway.clock.advance(seconds(3600));
    let mut new_client = gateway.connect();
    assert!(silent_client.is_closed(), "the next sweep closes it");
    assert_eq!(new_client.get("/", "").status, 200, "it was accepted just before the sweep");
}

#[test]
fn stalled_reader_is_closed_and_releases_the_origin() {
    let (closed_sender, closed) = signal();
    let origin = Origin::with_script(move |_, connection| {
        connection.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1u64 << 40));
        let block = vec![b'x'; 1 << 20];
        while connection.send(&block) {}
        connection.close();
        closed_sender.notify();
    });
    let gateway = TestGateway::with_rules(origin.address(), DEFAULT_TIMEOUTS);
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.head();
    // The response first fills the buffers in between, then it stalls.
    wait_until("the origin connection to be released from a client that does not read", || {
        gateway.advance_and_sweep(seconds(31));
        closed.is_notified()
    });
    let line = &gateway.read_log()[0];
    assert_eq!(line["status"], 200);
    assert!(line["bytes"].as_u64() < Some(1 << 30), "{line}");
}

#[test]
fn origin_response_timeout_is_charged() {
    let (arrival_sender, arrival) = signal();
    let (closed_sender, closed) = signal();
    let origin = Origin::with_script(move |_, connection| {
        arrival_sender.notify();
        connection.expect_eof();
        closed_sender.notify();
    });
    let gateway = TestGateway::with_rules(origin.address(), &format!("{DEFAULT_TIMEOUTS}{COSTED_PAGE}"));
    let mut client = gateway.connect();
    client.send("GET /page HTTP/1.1\r\nHost: a\r\n\r\n");
    arrival.wait();
    gateway.advance_and_sweep(seconds(29));
    assert!(!closed.is_notified(), "the timeout is thirty seconds");
    gateway.advance_and_sweep(seconds(2));
    let response = client.read_response();
    assert_eq!((response.status, response.field("content-type")), (504, "application/problem+json"));
    assert_eq!(gateway.counters(), (1.0, 0.0), "the origin may have processed the request");
    closed.wait();
}

#[test]
fn origin_stall_mid_body_closes_the_connection() {
    let (half_sent_sender, half_sent) = signal();
    let origin = Origin::with_script(move |_, connection| {
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
        half_sent_sender.notify();
        connection.expect_eof();
    });
    let gateway = TestGateway::with_rules(origin.address(), DEFAULT_TIMEOUTS);
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    half_sent.wait();
    gateway.advance_and_sweep(seconds(2));
    gateway.advance_and_sweep(seconds(31));
    assert_eq!(client.read_rest(), b"half", "a truncated body ends with the connection");
}

#[test]
fn slow_origin_body_does_not_time_out() {
    let (release, release_receiver) = signal();
    let origin = Origin::with_script(move |_, connection| {
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n");
        for byte in ["a", "b", "c"] {
            release_receiver.wait();
            connection.send(byte);
        }
    });
    let gateway = TestGateway::with_rules(origin.address(), DEFAULT_TIMEOUTS);
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.head();
    for byte in [b"a", b"b", b"c"] {
        gateway.advance_and_sweep(seconds(29));
        release.notify();
        assert_eq!(client.take(1).expect("the response continues"), byte);
    }
}

#[test]
fn origin_connect_timeout_is_not_charged() {
    let listener = FullListener::new();
    let rules = format!("origin: {{ url: ORIGIN, connect_timeout: 200ms }}{COSTED_PAGE}");
    let gateway = TestGateway::with_rules(listener.address, &rules);
    let response = gateway.connect().get("/page", "");
    assert_eq!((response.status, response.field("content-type")), (504, "application/problem+json"));
    assert_eq!(gateway.counters(), (0.0, 0.0), "no request was sent");
}

#[test]
fn connection_beyond_maximum_is_closed_and_counted() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), "limits: { max_connections: 2 }");
    let (mut first, mut second) = (gateway.connect(), gateway.connect());
    assert_eq!((first.get("/", "").status, second.get("/", "").status), (200, 200));
    assert!(gateway.connect().is_closed());
    assert_eq!(gateway.metric("tidegate_client_connections_refused_total"), 1.0);
    drop(first);
    gateway.wait_for_metric("tidegate_client_connections", 1.0);
    assert_eq!(gateway.connect().get("/", "").status, 200, "a connection slot is free again");
    assert_eq!(second.get("/", "").status, 200);
}

#[test]
fn connections_per_address_are_limited() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), "limits: { max_connections_per_address: 2 }");
    let (mut first, mut second) = (gateway.connect(), gateway.connect());
    assert_eq!((first.get("/", "").status, second.get("/", "").status), (200, 200));
    assert!(gateway.connect().is_closed());
    assert_eq!(gateway.metric("tidegate_client_connections_refused_total"), 1.0);
    let mut neighbor = connect_from(Ipv4Addr::new(127, 0, 0, 2), gateway.address());
    assert_eq!(neighbor.get("/", "").status, 200, "the limit is per address");
    drop(first);
    gateway.wait_for_metric("tidegate_client_connections", 2.0);
    assert_eq!(gateway.connect().get("/", "").status, 200, "a connection slot is free again");
}

#[test]
fn connections_per_address_limit_follows_reload() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), "");
    let mut before = gateway.connect();
    before.get("/", "");
    gateway.reload(origin.address(), "limits: { max_connections_per_address: 1 }").expect("valid rules");
    let mut client = gateway.connect();
    assert_eq!(client.get("/", "").status, 200, "earlier connections do not count");
    assert!(gateway.connect().is_closed());
    drop(before);
    gateway.wait_for_metric("tidegate_client_connections", 1.0);
    assert!(gateway.connect().is_closed(), "the end of an earlier connection frees no slot");
    gateway.reload(origin.address(), "").expect("valid rules");
    assert_eq!(gateway.connect().get("/", "").status, 200);
}

#[test]
fn requests_per_connection_limit_announces_close() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), "limits: { max_requests_per_connection: 3 }");
    let mut client = gateway.connect();
    assert_eq!(client.get("/", "").field("connection"), "");
    assert_eq!(client.get("/", "").field("connection"), "");
    let last = client.get("/", "");
    assert_eq!((last.status, last.field("connection")), (200, "close"));
    assert!(client.is_closed());
}

#[test]
fn oversized_request_head_is_refused() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), "limits: { max_header_size: 8KiB, max_headers: 10 }");
    let many_fields = "X-Field: 1\r\n".repeat(10);
    let long_field = format!("X-Long: {}\r\n", "x".repeat(8192));
    assert_eq!(gateway.connect().get("/", &"X-Field: 1\r\n".repeat(9)).status, 200, "ten fields including Host");
    assert_eq!(gateway.connect().get("/", &many_fields).status, 431);
    assert_eq!(gateway.connect().get("/", &long_field).status, 431);
    let target = gateway.connect().get(&format!("/{}", "x".repeat(9000)), "");
    assert!(matches!(target.status, 414 | 431), "{}", target.status);
    assert_eq!(gateway.connect().get(&format!("/{}", "x".repeat(7000)), "").status, 200);
    assert_eq!(origin.received_requests().len(), 2);
}

#[test]
fn request_waits_for_a_free_origin_connection() {
    let (origin, arrival, release) = Origin::with_held_responses("/first");
    let gateway = TestGateway::with_rules(origin.address(), "workers: 1\norigin: { url: ORIGIN, max_connections: 1 }");
    let (mut first, mut second) = (gateway.connect(), gateway.connect());
    first.send("GET /first HTTP/1.1\r\nHost: a\r\n\r\n");
    arrival.wait();
    second.send("GET /second HTTP/1.1\r\nHost: a\r\n\r\n");
    gateway.wait_for_metric("tidegate_origin_inflight{scope=\"default\"}", 2.0);
    assert_eq!(origin.received_requests().len(), 1, "the second request is queued");
    release.notify();
    assert_eq!((first.read_response().status, second.read_response().status), (200, 200));
    assert_eq!(origin.connections(), 1);
}

#[test]
fn exhausted_origin_pool_refuses_requests_uncharged() {
    let (arrival_sender, arrival) = signal();
    let (release, release_receiver) = signal();
    let origin = Origin::with_script(move |_, connection| {
        arrival_sender.notify();
        release_receiver.wait();
        connection.reply("200 OK", "", b"");
    });
    let rules =
        format!("workers: 1\norigin: {{ url: ORIGIN, max_connections: 1, connect_timeout: 200ms }}{COSTED_PAGE}");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let mut first = gateway.connect();
    first.send("GET /page HTTP/1.1\r\nHost: a\r\n\r\n");
    arrival.wait();
    let response = gateway.connect().get("/page", "");
    assert_eq!(response.status, 503);
    let retry_after: u64 = response.field("retry-after").parse().expect("whole seconds");
    assert!(retry_after >= 1);
    let problem = response.json();
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity");
    assert_eq!(problem["reason"], "throttle");
    assert_eq!(gateway.counters(), (0.0, 1.0), "only the request in flight is reserved");
    release.notify();
    assert_eq!(first.read_response().status, 200);

    assert_eq!(gateway.metric("tidegate_origin_requests_total{scope=\"default\",code=\"error\"}"), 0.0);
    let refused = "tidegate_requests_total{class=\"other\",verdict=\"refused\",reason=\"throttle\"}";
    assert_eq!(gateway.metric(refused), 1.0);
    gateway.wait_for_metric("tidegate_origin_inflight{scope=\"default\"}", 0.0);
    let log = gateway.read_log();
    let line = log.iter().find(|line| line["status"] == 503).expect("refusal is logged");
    assert_eq!((&line["verdict"], &line["reason"]), (&"refused".into(), &"throttle".into()));
    assert_eq!(line["retry_after_s"], retry_after, "the logged value is the one sent");
    assert_eq!(line["charged"]["api"], 0);
}

#[test]
fn http2_stream_limit_is_enforced() {
    let (arrival_sender, arrival) = signal();
    let (release, release_receiver) = signal();
    let origin = Origin::with_script(move |_, connection| {
        arrival_sender.notify();
        release_receiver.wait();
        connection.reply("200 OK", "", b"");
    });
    let gateway = TestGateway::with_rules(origin.address(), "limits: { http2_max_concurrent_streams: 2 }");
    let mut client = Http2Client::connect(gateway.address());
    for stream in [1, 3, 5] {
        client.get(stream);
    }
    let refused = client.wait_for_frame(|frame| frame.kind == RST_STREAM);
    assert_eq!((refused.stream, refused.payload.as_slice()), (5, &7u32.to_be_bytes()[..]), "REFUSED_STREAM");
    arrival.wait();
    arrival.wait();
    release.notify();
    release.notify();
    for _ in 0..2 {
        client.wait_for_frame(|frame| frame.kind == HEADERS);
    }
    assert_eq!(origin.received_requests().len(), 2);
}

#[test]
fn http2_reset_flood_closes_the_connection() {
    let origin = Origin::with_script(|request, connection| match request.target.as_str() {
        "/" => drop(connection.expect_eof()),
        _ => connection.reply("200 OK", "", b""),
    });
    let gateway = TestGateway::with_rules(origin.address(), DEFAULT_TIMEOUTS);
    let mut client = Http2Client::connect(gateway.address());
    let mut streams = (1..).step_by(2);
    gateway.wait_for_metric("tidegate_client_connections", 1.0);
    // Each request starts before its reset, so that the HTTP/2 library's own limit on unseen resets is not the only
    // one. The flood continues until the next sweep.
    wait_until("the connection of an attack by resets to be closed", || {
        let sent = streams.by_ref().take(10).all(|stream| client.get(stream) && client.reset(stream));
        !sent || gateway.metric("tidegate_client_connections") == 0.0
    });
    gateway.wait_for_metric("tidegate_client_connections", 0.0);
    assert_eq!(gateway.connect().get("/others", "").status, 200, "other clients are not affected");
}

#[test]
fn stalled_http2_reader_is_closed_and_releases_origin() {
    let (closed_sender, closed) = signal();
    let origin = Origin::with_script(move |_, connection| {
        connection.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1u64 << 40));
        let block = vec![b'x'; 1 << 20];
        while connection.send(&block) {}
        connection.close();
        closed_sender.notify();
    });
    let gateway = TestGateway::with_rules(origin.address(), DEFAULT_TIMEOUTS);
    let mut client = Http2Client::connect(gateway.address());
    client.get(1);
    client.wait_for_frame(|frame| frame.kind == DATA);
    // The client reads frames and answers pings, but never opens the flow control window of the response.
    gateway.advance_and_sweep(seconds(31));
    client.ping();
    assert!(!closed.is_notified(), "a slow origin is not a slow client");
    gateway.advance_and_sweep(seconds(31));
    closed.wait();
    assert!(gateway.read_log()[0]["bytes"].as_u64() > Some(0));
}

#[test]
fn http2_connection_without_requests_is_closed() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), DEFAULT_TIMEOUTS);
    let mut client = Http2Client::connect(gateway.address());
    client.ping();
    gateway.advance_and_sweep(seconds(11));
    client.read_rest();
}

#[test]
fn http2_pings_do_not_affect_idle_timeout() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), DEFAULT_TIMEOUTS);
    let mut client = Http2Client::connect(gateway.address());
    client.get(1);
    client.wait_for_frame(|frame| frame.kind == HEADERS && frame.stream == 1);
    // A ping is not the start of a request.
    client.ping();
    gateway.advance_and_sweep(seconds(30));
    client.get(3);
    client.wait_for_frame(|frame| frame.kind == HEADERS && frame.stream == 3);
    client.ping();
    gateway.advance_and_sweep(seconds(61));
    client.wait_for_frame(|frame| frame.kind == GOAWAY);
    gateway.advance_and_sweep(seconds(61));
    client.read_rest();
}

#[test]
fn shutdown_completes_requests_in_flight_and_stops_accepting() {
    let (origin, arrival, release) = Origin::with_held_responses("/slow");
    let gateway = TestGateway::with_rules(origin.address(), "");
    let address = gateway.addresses()[0];
    let (mut busy_client, mut idle_client, mut silent_client) =
        (gateway.connect(), gateway.connect(), gateway.connect());
    idle_client.get("/", "");
    busy_client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    arrival.wait();
    let shutdown = std::thread::spawn(move || gateway.read_log());
    assert!(idle_client.is_closed() && silent_client.is_closed(), "idle connections are closed early");
    // Workers close their sockets at slightly different times.
    wait_until("all listeners to be closed", || TcpStream::connect(address).is_err());
    release.notify();
    let response = busy_client.read_response();
    assert_eq!((response.status, response.text().as_str(), response.field("connection")), (200, "hello", "close"));
    assert!(busy_client.is_closed());
    assert_eq!(shutdown.join().expect("gateway stops").len(), 2, "both requests are logged");
}

#[test]
fn shutdown_serves_a_request_that_is_on_its_way() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), "limits: { drain_timeout: 10h }");
    let (mut idle_client, address) = (gateway.connect(), gateway.addresses()[0]);
    assert_eq!(idle_client.get("/", "").field("connection"), "");
    let shutdown = std::thread::spawn(move || gateway.read_log());
    wait_until("all listeners to be closed", || TcpStream::connect(address).is_err());
    let response = idle_client.get("/", "");
    assert_eq!((response.status, response.field("connection")), (200, "close"));
    assert!(idle_client.is_closed());
    assert_eq!(shutdown.join().expect("gateway stops without waiting for the timeout").len(), 2);
}

#[test]
fn shutdown_ends_after_drain_timeout() {
    let (arrival_sender, arrival) = signal();
    let origin = Origin::with_script(move |_, connection| {
        arrival_sender.notify();
        connection.expect_eof();
    });
    let gateway =
        TestGateway::with_rules(origin.address(), &format!("limits: {{ drain_timeout: 300ms }}{COSTED_PAGE}"));
    let mut client = gateway.connect();
    client.send("GET /page HTTP/1.1\r\nHost: a\r\n\r\n");
    arrival.wait();
    let log = gateway.read_log();
    assert!(client.is_closed());
    assert_eq!(
        (&log[0]["status"], &log[0]["charged"]["api"]),
        (&499.into(), &1.into()),
        "aborted requests are logged and charged"
    );
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Connects a client from another loopback address.
fn connect_from(address: Ipv4Addr, to: SocketAddr) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from((address, 0)).into()).expect("all of 127/8 is local");
    socket.connect(&to.into()).expect("gateway listens");
    Client::from_stream(socket.into())
}

/// A listener that accepts no connections and whose backlog is full: further connections hang.
struct FullListener {
    address: SocketAddr,
    _listener: Socket,
    _waiting: Vec<Socket>,
}

impl FullListener {
    fn new() -> Self {
        let socket = || Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let listener = socket();
        listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a free port");
        listener.listen(0).expect("socket can listen");
        let address = listener.local_addr().ok().and_then(|address| address.as_socket()).expect("socket is bound");
        // A backlog of 0 holds one connection. Further connections get no response; open a few to be sure that it is
        // full.
        let wait = |_| {
            let connection = socket();
            connection.set_nonblocking(true).expect("socket option can be set");
            let _ = connection.connect(&address.into());
            connection
        };
        Self { address, _listener: listener, _waiting: (0..4).map(wait).collect() }
    }
}

/// A single worker and an idle timeout of one second; all other timeouts have their defaults.
const DEFAULT_TIMEOUTS: &str = "workers: 1
limits: { first_byte_timeout: 1s, header_timeout: 10s, keep_alive_timeout: 60s, request_body_timeout: 30s, response_write_timeout: 30s }";

/// Pages cost one unit of a large quota.
const COSTED_PAGE: &str = "
quotas: { api: { limit: 1000, window: { fixed: 24h } } }
routes: [ { match: /page, cost: { api: 1 } } ]";

#[test]
fn unreadable_request_receives_a_problem_response() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), "limits: { max_headers: 10 }");
    let mut client = gateway.connect();
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X-Field: 1\r\n".repeat(20)));
    let response = client.read_response();
    assert_eq!((response.status, response.field("content-type")), (431, "application/problem+json"));
    assert_eq!((response.field("cache-control"), response.field("x-tidegate-decision").len()), ("no-store", 16));
    assert_eq!(response.json()["status"], 431);
    assert!(client.is_closed(), "the start of the next request is unknown");
    assert_eq!(gateway.metric("tidegate_responses_total{class=\"\",code=\"4xx\"}"), 1.0);
}
