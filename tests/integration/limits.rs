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
    let gate = TestGateway::with_rules(origin.address(), PATIENT);
    let mut silent = gate.connect();
    let mut talker = gate.connect();
    assert_eq!(talker.get("/", "").status, 200);
    gate.advance_and_sweep(seconds(2));
    assert!(silent.is_closed());
    assert_eq!(talker.get("/", "").status, 200, "a connection with a request has the longer idle timeout");
}

#[test]
fn head_timeout_covers_the_whole_head() {
    let origin = Origin::plain();
    let gate = TestGateway::with_rules(origin.address(), PATIENT);
    let (mut slow, mut slower) = (gate.connect(), gate.connect());
    slow.send("G");
    slower.send("G");
    for byte in ["E", "T", " ", "/"] {
        gate.advance_and_sweep(seconds(2));
        slow.send(byte);
        slower.send(byte);
    }
    slow.send(" HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(slow.read_response().status, 200, "eight of ten seconds have passed");
    gate.advance_and_sweep(seconds(3));
    slower.try_send(" HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(slower.is_closed(), "the header timeout is total, not per byte");
    assert_eq!(origin.received_requests().len(), 1);
}

#[test]
fn each_request_head_has_its_own_timeout() {
    let origin = Origin::plain();
    let gate = TestGateway::with_rules(origin.address(), PATIENT);
    let mut client = gate.connect();
    client.get("/", "");
    gate.advance_and_sweep(seconds(40));
    client.send("GET / HT");
    gate.advance_and_sweep(seconds(9));
    client.send("TP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.read_response().status, 200);
    client.send("GET / HT");
    gate.advance_and_sweep(seconds(2));
    gate.advance_and_sweep(seconds(11));
    assert!(client.is_closed());
}

#[test]
fn idle_connection_closes_after_keep_alive_timeout() {
    let origin = Origin::plain();
    let gate = TestGateway::with_rules(origin.address(), PATIENT);
    let mut client = gate.connect();
    client.get("/", "");
    gate.advance_and_sweep(seconds(59));
    assert_eq!(client.get("/", "").status, 200);
    gate.advance_and_sweep(seconds(61));
    assert!(client.is_closed());
}

#[test]
fn stalled_request_body_times_out() {
    let origin = Origin::with_script(|request, wire| {
        let body = wire.read_body(request);
        wire.reply("200 OK", "", &body);
    });
    let gate = TestGateway::with_rules(origin.address(), PATIENT);
    let mut slow = gate.connect();
    let mut stalled = gate.connect();
    for client in [&mut slow, &mut stalled] {
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n");
    }
    for byte in ["a", "b", "c"] {
        gate.advance_and_sweep(seconds(20));
        slow.send(byte);
        // The gateway detects a pause at a tick: at most one tick after the last byte.
        gate.advance_and_sweep(seconds(2));
    }
    assert_eq!(slow.read_response().text(), "abc");
    assert!(stalled.is_closed(), "no byte was received for a minute");
    drop((slow, stalled));
    let mut statuses: Vec<_> = gate.read_log().iter().map(|line| line["status"].as_u64()).collect();
    statuses.sort();
    assert_eq!(statuses, [Some(200), Some(499)], "an aborted request is logged, too");
}

#[test]
fn timeouts_start_at_accept_not_at_sweep() {
    let origin = Origin::plain();
    let gate = TestGateway::with_rules(origin.address(), PATIENT);
    let mut silent = gate.connect();
    // Connections are accepted in order: after the response to a later one, the silent one is tracked.
    assert_eq!(gate.connect().send("GET / HTTP/1.1\r\n\r\n").read_response().status, 400);
    gate.clock.advance(seconds(3600));
    let mut fresh = gate.connect();
    assert!(silent.is_closed(), "the next sweep closes it");
    assert_eq!(fresh.get("/", "").status, 200, "it was accepted just before the sweep");
}

#[test]
fn stalled_reader_is_closed_and_releases_the_origin() {
    let (tell, cut_off) = signal();
    let origin = Origin::with_script(move |_, wire| {
        wire.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1u64 << 40));
        let block = vec![b'x'; 1 << 20];
        while wire.send(&block) {}
        wire.close();
        tell.notify();
    });
    let gate = TestGateway::with_rules(origin.address(), PATIENT);
    let mut client = gate.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.head();
    // The response first fills the buffers in between, then it stalls.
    wait_until("the origin connection to be released from a client that does not read", || {
        gate.advance_and_sweep(seconds(31));
        cut_off.is_notified()
    });
    let line = &gate.read_log()[0];
    assert_eq!(line["status"], 200);
    assert!(line["bytes"].as_u64() < Some(1 << 30), "{line}");
}

#[test]
fn origin_response_timeout_is_charged() {
    let (tell, asked) = signal();
    let (told, let_go) = signal();
    let origin = Origin::with_script(move |_, wire| {
        tell.notify();
        wire.expect_eof();
        told.notify();
    });
    let gate = TestGateway::with_rules(origin.address(), &format!("{PATIENT}{COSTLY}"));
    let mut client = gate.connect();
    client.send("GET /page HTTP/1.1\r\nHost: a\r\n\r\n");
    asked.wait();
    gate.advance_and_sweep(seconds(29));
    assert!(!let_go.is_notified(), "the timeout is thirty seconds");
    gate.advance_and_sweep(seconds(2));
    let answer = client.read_response();
    assert_eq!((answer.status, answer.field("content-type")), (504, "application/problem+json"));
    assert_eq!(gate.counters(), (1.0, 0.0), "the origin may have processed the request");
    let_go.wait();
}

#[test]
fn origin_stall_mid_body_closes_the_connection() {
    let (tell, half_way) = signal();
    let origin = Origin::with_script(move |_, wire| {
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
        tell.notify();
        wire.expect_eof();
    });
    let gate = TestGateway::with_rules(origin.address(), PATIENT);
    let mut client = gate.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    half_way.wait();
    gate.advance_and_sweep(seconds(2));
    gate.advance_and_sweep(seconds(31));
    assert_eq!(client.read_rest(), b"half", "a truncated body ends with the connection");
}

#[test]
fn slow_origin_body_does_not_time_out() {
    let (go_on, next) = signal();
    let origin = Origin::with_script(move |_, wire| {
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n");
        for byte in ["a", "b", "c"] {
            next.wait();
            wire.send(byte);
        }
    });
    let gate = TestGateway::with_rules(origin.address(), PATIENT);
    let mut client = gate.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.head();
    for byte in [b"a", b"b", b"c"] {
        gate.advance_and_sweep(seconds(29));
        go_on.notify();
        assert_eq!(client.take(1).expect("the response continues"), byte);
    }
}

#[test]
fn origin_connect_timeout_is_not_charged() {
    let full = FullListener::new();
    let rules = format!("origin: {{ url: ORIGIN, connect_timeout: 200ms }}{COSTLY}");
    let gate = TestGateway::with_rules(full.address, &rules);
    let answer = gate.connect().get("/page", "");
    assert_eq!((answer.status, answer.field("content-type")), (504, "application/problem+json"));
    assert_eq!(gate.counters(), (0.0, 0.0), "no request was sent");
}

#[test]
fn connection_beyond_maximum_is_closed_and_counted() {
    let origin = Origin::plain();
    let gate = TestGateway::with_rules(origin.address(), "limits: { max_connections: 2 }");
    let (mut first, mut second) = (gate.connect(), gate.connect());
    assert_eq!((first.get("/", "").status, second.get("/", "").status), (200, 200));
    assert!(gate.connect().is_closed());
    assert_eq!(gate.metric("tidegate_client_connections_refused_total"), 1.0);
    drop(first);
    gate.wait_for_metric("tidegate_client_connections", 1.0);
    assert_eq!(gate.connect().get("/", "").status, 200, "a connection slot is free again");
    assert_eq!(second.get("/", "").status, 200);
}

#[test]
fn connections_per_address_are_limited() {
    let origin = Origin::plain();
    let gate = TestGateway::with_rules(origin.address(), "limits: { max_connections_per_address: 2 }");
    let (mut first, mut second) = (gate.connect(), gate.connect());
    assert_eq!((first.get("/", "").status, second.get("/", "").status), (200, 200));
    assert!(gate.connect().is_closed());
    assert_eq!(gate.metric("tidegate_client_connections_refused_total"), 1.0);
    let mut neighbour = connect_from(Ipv4Addr::new(127, 0, 0, 2), gate.address());
    assert_eq!(neighbour.get("/", "").status, 200, "the limit is per address");
    drop(first);
    gate.wait_for_metric("tidegate_client_connections", 2.0);
    assert_eq!(gate.connect().get("/", "").status, 200, "a connection slot is free again");
}

#[test]
fn connections_per_address_limit_follows_reload() {
    let origin = Origin::plain();
    let gate = TestGateway::with_rules(origin.address(), "");
    let mut before = gate.connect();
    before.get("/", "");
    gate.reload(origin.address(), "limits: { max_connections_per_address: 1 }").expect("valid rules");
    let mut counted = gate.connect();
    assert_eq!(counted.get("/", "").status, 200, "earlier connections do not count");
    assert!(gate.connect().is_closed());
    drop(before);
    gate.wait_for_metric("tidegate_client_connections", 1.0);
    assert!(gate.connect().is_closed(), "the end of an earlier connection frees no slot");
    gate.reload(origin.address(), "").expect("valid rules");
    assert_eq!(gate.connect().get("/", "").status, 200);
}

#[test]
fn requests_per_connection_limit_announces_close() {
    let origin = Origin::plain();
    let gate = TestGateway::with_rules(origin.address(), "limits: { max_requests_per_connection: 3 }");
    let mut client = gate.connect();
    assert_eq!(client.get("/", "").field("connection"), "");
    assert_eq!(client.get("/", "").field("connection"), "");
    let last = client.get("/", "");
    assert_eq!((last.status, last.field("connection")), (200, "close"));
    assert!(client.is_closed());
}

#[test]
fn oversized_request_head_is_refused() {
    let origin = Origin::plain();
    let gate = TestGateway::with_rules(origin.address(), "limits: { max_header_size: 8KiB, max_headers: 10 }");
    let many = "X-Field: 1\r\n".repeat(10);
    let long = format!("X-Long: {}\r\n", "x".repeat(8192));
    assert_eq!(gate.connect().get("/", &"X-Field: 1\r\n".repeat(9)).status, 200, "ten fields including Host");
    assert_eq!(gate.connect().get("/", &many).status, 431);
    assert_eq!(gate.connect().get("/", &long).status, 431);
    let target = gate.connect().get(&format!("/{}", "x".repeat(9000)), "");
    assert!(matches!(target.status, 414 | 431), "{}", target.status);
    assert_eq!(gate.connect().get(&format!("/{}", "x".repeat(7000)), "").status, 200);
    assert_eq!(origin.received_requests().len(), 2);
}

#[test]
fn request_waits_for_a_free_origin_connection() {
    let (origin, asked, go_on) = Origin::with_held_responses("/first");
    let gate = TestGateway::with_rules(origin.address(), "workers: 1\norigin: { url: ORIGIN, max_connections: 1 }");
    let (mut first, mut second) = (gate.connect(), gate.connect());
    first.send("GET /first HTTP/1.1\r\nHost: a\r\n\r\n");
    asked.wait();
    second.send("GET /second HTTP/1.1\r\nHost: a\r\n\r\n");
    gate.wait_for_metric("tidegate_origin_inflight{scope=\"default\"}", 2.0);
    assert_eq!(origin.received_requests().len(), 1, "the second request is queued");
    go_on.notify();
    assert_eq!((first.read_response().status, second.read_response().status), (200, 200));
    assert_eq!(origin.connections(), 1);
}

#[test]
fn exhausted_origin_pool_refuses_requests_uncharged() {
    let (tell, asked) = signal();
    let (go_on, wait) = signal();
    let origin = Origin::with_script(move |_, wire| {
        tell.notify();
        wait.wait();
        wire.reply("200 OK", "", b"");
    });
    let rules = format!("workers: 1\norigin: {{ url: ORIGIN, max_connections: 1, connect_timeout: 200ms }}{COSTLY}");
    let gate = TestGateway::with_rules(origin.address(), &rules);
    let mut first = gate.connect();
    first.send("GET /page HTTP/1.1\r\nHost: a\r\n\r\n");
    asked.wait();
    let answer = gate.connect().get("/page", "");
    assert_eq!(answer.status, 503);
    let retry_after: u64 = answer.field("retry-after").parse().expect("whole seconds");
    assert!(retry_after >= 1);
    let problem = answer.json();
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity");
    assert_eq!(problem["reason"], "throttle");
    assert_eq!(gate.counters(), (0.0, 1.0), "only the request in flight is reserved");
    go_on.notify();
    assert_eq!(first.read_response().status, 200);

    assert_eq!(gate.metric("tidegate_origin_requests_total{scope=\"default\",code=\"error\"}"), 0.0);
    let refused = "tidegate_requests_total{class=\"other\",verdict=\"refused\",reason=\"throttle\"}";
    assert_eq!(gate.metric(refused), 1.0);
    gate.wait_for_metric("tidegate_origin_inflight{scope=\"default\"}", 0.0);
    let log = gate.read_log();
    let line = log.iter().find(|line| line["status"] == 503).expect("refusal is logged");
    assert_eq!((&line["verdict"], &line["reason"]), (&"refused".into(), &"throttle".into()));
    assert_eq!(line["retry_after_s"], retry_after, "the logged value is the one sent");
    assert_eq!(line["charged"]["api"], 0);
}

#[test]
fn http2_stream_limit_is_enforced() {
    let (tell, asked) = signal();
    let (go_on, wait) = signal();
    let origin = Origin::with_script(move |_, wire| {
        tell.notify();
        wait.wait();
        wire.reply("200 OK", "", b"");
    });
    let gate = TestGateway::with_rules(origin.address(), "limits: { http2_max_concurrent_streams: 2 }");
    let mut client = Http2Client::connect(gate.address());
    for stream in [1, 3, 5] {
        client.get(stream);
    }
    let refused = client.wait_for_frame(|frame| frame.kind == RST_STREAM);
    assert_eq!((refused.stream, refused.payload.as_slice()), (5, &7u32.to_be_bytes()[..]), "REFUSED_STREAM");
    asked.wait();
    asked.wait();
    go_on.notify();
    go_on.notify();
    for _ in 0..2 {
        client.wait_for_frame(|frame| frame.kind == HEADERS);
    }
    assert_eq!(origin.received_requests().len(), 2);
}

#[test]
fn http2_reset_flood_closes_the_connection() {
    let origin = Origin::with_script(|request, wire| match request.target.as_str() {
        "/" => drop(wire.expect_eof()),
        _ => wire.reply("200 OK", "", b""),
    });
    let gate = TestGateway::with_rules(origin.address(), PATIENT);
    let mut client = Http2Client::connect(gate.address());
    let mut streams = (1..).step_by(2);
    gate.wait_for_metric("tidegate_client_connections", 1.0);
    // Each request starts before its reset, so that the HTTP/2 library's own limit on unseen resets is not the only
    // one. The flood continues until the next sweep.
    wait_until("the connection of an attack by resets to be closed", || {
        let sent = streams.by_ref().take(10).all(|stream| client.get(stream) && client.reset(stream));
        !sent || gate.metric("tidegate_client_connections") == 0.0
    });
    gate.wait_for_metric("tidegate_client_connections", 0.0);
    assert_eq!(gate.connect().get("/others", "").status, 200, "other clients are not affected");
}

#[test]
fn stalled_http2_reader_is_closed_and_releases_origin() {
    let (tell, cut_off) = signal();
    let origin = Origin::with_script(move |_, wire| {
        wire.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1u64 << 40));
        let block = vec![b'x'; 1 << 20];
        while wire.send(&block) {}
        wire.close();
        tell.notify();
    });
    let gate = TestGateway::with_rules(origin.address(), PATIENT);
    let mut client = Http2Client::connect(gate.address());
    client.get(1);
    client.wait_for_frame(|frame| frame.kind == DATA);
    // The client reads frames and answers pings, but never opens the flow control window of the response.
    gate.advance_and_sweep(seconds(31));
    client.ping();
    assert!(!cut_off.is_notified(), "a slow origin is not a slow client");
    gate.advance_and_sweep(seconds(31));
    cut_off.wait();
    assert!(gate.read_log()[0]["bytes"].as_u64() > Some(0));
}

#[test]
fn http2_connection_without_requests_is_closed() {
    let origin = Origin::plain();
    let gate = TestGateway::with_rules(origin.address(), PATIENT);
    let mut client = Http2Client::connect(gate.address());
    client.ping();
    gate.advance_and_sweep(seconds(11));
    client.read_rest();
}

#[test]
fn http2_pings_do_not_affect_idle_timeout() {
    let origin = Origin::plain();
    let gate = TestGateway::with_rules(origin.address(), PATIENT);
    let mut client = Http2Client::connect(gate.address());
    client.get(1);
    client.wait_for_frame(|frame| frame.kind == HEADERS && frame.stream == 1);
    // A ping is not the start of a request.
    client.ping();
    gate.advance_and_sweep(seconds(30));
    client.get(3);
    client.wait_for_frame(|frame| frame.kind == HEADERS && frame.stream == 3);
    client.ping();
    gate.advance_and_sweep(seconds(61));
    client.wait_for_frame(|frame| frame.kind == GOAWAY);
    gate.advance_and_sweep(seconds(61));
    client.read_rest();
}

#[test]
fn shutdown_completes_requests_in_flight_and_stops_accepting() {
    let (origin, asked, go_on) = Origin::with_held_responses("/slow");
    let gate = TestGateway::with_rules(origin.address(), "");
    let address = gate.address();
    let (mut busy, mut idle, mut silent) = (gate.connect(), gate.connect(), gate.connect());
    idle.get("/", "");
    busy.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    asked.wait();
    let ending = std::thread::spawn(move || gate.read_log());
    assert!(idle.is_closed() && silent.is_closed(), "idle connections are closed immediately");
    // Workers close their sockets at slightly different times.
    wait_until("all listeners to be closed", || TcpStream::connect(address).is_err());
    go_on.notify();
    let answer = busy.read_response();
    assert_eq!((answer.status, answer.text().as_str(), answer.field("connection")), (200, "hello", "close"));
    assert!(busy.is_closed());
    assert_eq!(ending.join().expect("gateway stops").len(), 2, "both requests are logged");
}

#[test]
fn shutdown_ends_after_drain_timeout() {
    let (tell, asked) = signal();
    let origin = Origin::with_script(move |_, wire| {
        tell.notify();
        wire.expect_eof();
    });
    let gate = TestGateway::with_rules(origin.address(), &format!("limits: {{ drain_timeout: 300ms }}{COSTLY}"));
    let mut client = gate.connect();
    client.send("GET /page HTTP/1.1\r\nHost: a\r\n\r\n");
    asked.wait();
    let log = gate.read_log();
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
            let waiting = socket();
            waiting.set_nonblocking(true).expect("socket option can be set");
            let _ = waiting.connect(&address.into());
            waiting
        };
        Self { address, _listener: listener, _waiting: (0..4).map(wait).collect() }
    }
}

/// A single worker and an idle timeout of one second; all other timeouts have their defaults.
const PATIENT: &str = "workers: 1
limits: { first_byte_timeout: 1s, header_timeout: 10s, keep_alive_timeout: 60s, request_body_timeout: 30s, response_write_timeout: 30s }";

/// Pages cost one unit of a large quota.
const COSTLY: &str = "
quotas: { api: { limit: 1000, window: { fixed: 24h } } }
routes: [ { match: /page, cost: { api: 1 } } ]";

#[test]
fn unreadable_request_receives_a_problem_response() {
    let origin = Origin::plain();
    let gate = TestGateway::with_rules(origin.address(), "limits: { max_headers: 10 }");
    let mut client = gate.connect();
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X-Field: 1\r\n".repeat(20)));
    let answer = client.read_response();
    assert_eq!((answer.status, answer.field("content-type")), (431, "application/problem+json"));
    assert_eq!((answer.field("cache-control"), answer.field("x-tidegate-decision").len()), ("no-store", 16));
    assert_eq!(answer.json()["status"], 431);
    assert!(client.is_closed(), "the start of the next request is unknown");
    assert_eq!(gate.metric("tidegate_responses_total{class=\"\",code=\"4xx\"}"), 1.0);
}
