//! What one client, or all together, may hold on to: every limit, and the clock that enforces it moved by hand.

use crate::support::client::Client;
use crate::support::frames::{DATA, Frames, GOAWAY, HEADERS, RST_STREAM};
use crate::support::gate::Gate;
use crate::support::origin::{Origin, signal};
use crate::support::wait::wait_until;
use socket2::{Domain, Socket, Type};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

#[test]
fn a_client_that_says_nothing_is_closed() {
    let origin = Origin::plain();
    let gate = Gate::before(origin.address(), PATIENT);
    let mut silent = gate.connect();
    let mut talker = gate.connect();
    assert_eq!(talker.get("/", "").status, 200);
    gate.pass(seconds(2));
    assert!(silent.is_closed());
    assert_eq!(talker.get("/", "").status, 200, "who has spoken may be silent for longer");
}

#[test]
fn a_head_may_take_its_time_in_all_not_for_each_byte() {
    let origin = Origin::plain();
    let gate = Gate::before(origin.address(), PATIENT);
    let (mut slow, mut slower) = (gate.connect(), gate.connect());
    slow.send("G");
    slower.send("G");
    for byte in ["E", "T", " ", "/"] {
        gate.pass(seconds(2));
        slow.send(byte);
        slower.send(byte);
    }
    slow.send(" HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(slow.answer().status, 200, "eight seconds of ten");
    gate.pass(seconds(3));
    slower.try_send(" HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(slower.is_closed(), "eleven seconds, though never two without a byte");
    assert_eq!(origin.seen().len(), 1);
}

#[test]
fn a_second_head_has_its_own_time() {
    let origin = Origin::plain();
    let gate = Gate::before(origin.address(), PATIENT);
    let mut client = gate.connect();
    client.get("/", "");
    gate.pass(seconds(40));
    client.send("GET / HT");
    gate.pass(seconds(9));
    client.send("TP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    client.send("GET / HT");
    gate.pass(seconds(2));
    gate.pass(seconds(11));
    assert!(client.is_closed());
}

#[test]
fn an_idle_connection_is_kept_for_a_while_and_then_closed_in_good_order() {
    let origin = Origin::plain();
    let gate = Gate::before(origin.address(), PATIENT);
    let mut client = gate.connect();
    client.get("/", "");
    gate.pass(seconds(59));
    assert_eq!(client.get("/", "").status, 200);
    gate.pass(seconds(61));
    assert!(client.is_closed());
}

#[test]
fn a_body_may_pause_but_not_stall() {
    let origin = Origin::scripted(|request, wire| {
        let body = wire.body(request);
        wire.reply("200 OK", "", &body);
    });
    let gate = Gate::before(origin.address(), PATIENT);
    let mut slow = gate.connect();
    let mut stalled = gate.connect();
    for client in [&mut slow, &mut stalled] {
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n");
    }
    for byte in ["a", "b", "c"] {
        gate.pass(seconds(20));
        slow.send(byte);
        // A pause begins when the gate sees it, at most a tick after the byte.
        gate.pass(seconds(2));
    }
    assert_eq!(slow.answer().text(), "abc");
    assert!(stalled.is_closed(), "it has sent nothing for a minute");
    drop((slow, stalled));
    let mut statuses: Vec<_> = gate.into_log().iter().map(|line| line["status"].as_u64()).collect();
    statuses.sort();
    assert_eq!(statuses, [Some(200), Some(499)], "one line for the one that was cut off, too");
}

#[test]
fn a_connection_is_not_dated_by_the_sweep_before_it() {
    let origin = Origin::plain();
    let gate = Gate::before(origin.address(), PATIENT);
    let mut silent = gate.connect();
    // Connections are accepted in turn: once a later one has its answer, the silent one is under watch.
    assert_eq!(gate.connect().send("GET / HTTP/1.1\r\n\r\n").answer().status, 400);
    gate.clock.advance(seconds(3600));
    let mut fresh = gate.connect();
    assert!(silent.is_closed(), "the next sweep has come");
    assert_eq!(fresh.get("/", "").status, 200, "it had just been accepted");
}

#[test]
fn a_reader_that_stalls_is_cut_off_and_frees_the_origin() {
    let (tell, cut_off) = signal();
    let origin = Origin::scripted(move |_, wire| {
        wire.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1u64 << 40));
        let block = vec![b'x'; 1 << 20];
        while wire.send(&block) {}
        wire.close();
        tell.tell();
    });
    let gate = Gate::before(origin.address(), PATIENT);
    let mut client = gate.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.head();
    // Some of it is still on its way into the buffers between; it stalls once they are full.
    wait_until("the origin to be freed from a client that does not read", || {
        gate.pass(seconds(31));
        cut_off.has_come()
    });
    let line = &gate.into_log()[0];
    assert_eq!(line["status"], 200);
    assert!(line["bytes"].as_u64() < Some(1 << 30), "{line}");
}

#[test]
fn an_origin_that_never_answers_is_a_timeout_that_costs() {
    let (tell, asked) = signal();
    let (told, let_go) = signal();
    let origin = Origin::scripted(move |_, wire| {
        tell.tell();
        wire.sees_the_end();
        told.tell();
    });
    let gate = Gate::before(origin.address(), &format!("{PATIENT}{COSTLY}"));
    let mut client = gate.connect();
    client.send("GET /page HTTP/1.1\r\nHost: a\r\n\r\n");
    asked.wait();
    gate.pass(seconds(29));
    assert!(!let_go.has_come(), "it had thirty seconds");
    gate.pass(seconds(2));
    let answer = client.answer();
    assert_eq!((answer.status, answer.field("content-type")), (504, "application/problem+json"));
    assert_eq!(gate.books(), (1.0, 0.0), "it may have done the work");
    let_go.wait();
}

#[test]
fn an_origin_that_falls_silent_in_the_middle_is_cut_off() {
    let (tell, half_way) = signal();
    let origin = Origin::scripted(move |_, wire| {
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
        tell.tell();
        wire.sees_the_end();
    });
    let gate = Gate::before(origin.address(), PATIENT);
    let mut client = gate.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    half_way.wait();
    gate.pass(seconds(2));
    gate.pass(seconds(31));
    assert_eq!(client.rest(), b"half", "and the connection ends: nobody takes it for whole");
}

#[test]
fn a_slow_origin_is_no_silent_one() {
    let (go_on, next) = signal();
    let origin = Origin::scripted(move |_, wire| {
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n");
        for byte in ["a", "b", "c"] {
            next.wait();
            wire.send(byte);
        }
    });
    let gate = Gate::before(origin.address(), PATIENT);
    let mut client = gate.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.head();
    for byte in [b"a", b"b", b"c"] {
        gate.pass(seconds(29));
        go_on.tell();
        assert_eq!(client.take(1).expect("it goes on"), byte);
    }
}

#[test]
fn an_origin_that_does_not_take_connections_is_a_timeout_that_costs_nothing() {
    let full = FullListener::new();
    let rules = format!("origin: {{ url: ORIGIN, connect_timeout: 200ms }}{COSTLY}");
    let gate = Gate::before(full.address, &rules);
    let answer = gate.connect().get("/page", "");
    assert_eq!((answer.status, answer.field("content-type")), (504, "application/problem+json"));
    assert_eq!(gate.books(), (0.0, 0.0), "nothing was sent");
}

#[test]
fn one_connection_too_many_is_closed_and_counted() {
    let origin = Origin::plain();
    let gate = Gate::before(origin.address(), "limits: { max_connections: 2 }");
    let (mut first, mut second) = (gate.connect(), gate.connect());
    assert_eq!((first.get("/", "").status, second.get("/", "").status), (200, 200));
    assert!(gate.connect().is_closed());
    assert_eq!(gate.metric("tidegate_connections_refused_total"), 1.0);
    drop(first);
    gate.wait_for_metric("tidegate_connections", 1.0);
    assert_eq!(gate.connect().get("/", "").status, 200, "there is room again");
    assert_eq!(second.get("/", "").status, 200);
}

#[test]
fn one_address_may_hold_only_so_many_connections() {
    let origin = Origin::plain();
    let gate = Gate::before(origin.address(), "limits: { max_connections_per_address: 2 }");
    let (mut first, mut second) = (gate.connect(), gate.connect());
    assert_eq!((first.get("/", "").status, second.get("/", "").status), (200, 200));
    assert!(gate.connect().is_closed());
    assert_eq!(gate.metric("tidegate_connections_refused_total"), 1.0);
    let mut neighbour = from(Ipv4Addr::new(127, 0, 0, 2), gate.address());
    assert_eq!(neighbour.get("/", "").status, 200, "another address is another matter");
    drop(first);
    gate.wait_for_metric("tidegate_connections", 2.0);
    assert_eq!(gate.connect().get("/", "").status, 200, "there is room again");
}

#[test]
fn a_bound_for_each_address_can_come_and_go_with_a_reload() {
    let origin = Origin::plain();
    let gate = Gate::before(origin.address(), "");
    let mut before = gate.connect();
    before.get("/", "");
    gate.reload(origin.address(), "limits: { max_connections_per_address: 1 }").expect("good rules");
    let mut counted = gate.connect();
    assert_eq!(counted.get("/", "").status, 200, "what was open before does not count");
    assert!(gate.connect().is_closed());
    drop(before);
    gate.wait_for_metric("tidegate_connections", 1.0);
    assert!(gate.connect().is_closed(), "nor does its end make room");
    gate.reload(origin.address(), "").expect("good rules");
    assert_eq!(gate.connect().get("/", "").status, 200);
}

#[test]
fn a_connection_serves_so_many_requests_and_says_when_it_ends() {
    let origin = Origin::plain();
    let gate = Gate::before(origin.address(), "limits: { requests_per_connection: 3 }");
    let mut client = gate.connect();
    assert_eq!(client.get("/", "").field("connection"), "");
    assert_eq!(client.get("/", "").field("connection"), "");
    let last = client.get("/", "");
    assert_eq!((last.status, last.field("connection")), (200, "close"));
    assert!(client.is_closed());
}

#[test]
fn a_head_that_is_too_large_is_refused_whatever_makes_it_large() {
    let origin = Origin::plain();
    let gate = Gate::before(origin.address(), "limits: { max_head_size: 8KiB, max_headers: 10 }");
    let many = "X-Field: 1\r\n".repeat(10);
    let long = format!("X-Long: {}\r\n", "x".repeat(8192));
    assert_eq!(gate.connect().get("/", &"X-Field: 1\r\n".repeat(9)).status, 200, "ten with Host");
    assert_eq!(gate.connect().get("/", &many).status, 431);
    assert_eq!(gate.connect().get("/", &long).status, 431);
    let target = gate.connect().get(&format!("/{}", "x".repeat(9000)), "");
    assert!(matches!(target.status, 414 | 431), "{}", target.status);
    assert_eq!(gate.connect().get(&format!("/{}", "x".repeat(7000)), "").status, 200);
    assert_eq!(origin.seen().len(), 2);
}

#[test]
fn a_request_waits_for_a_connection_to_the_origin_that_comes_free() {
    let (origin, asked, go_on) = Origin::holding("/first");
    let gate = Gate::before(origin.address(), "workers: 1\norigin: { url: ORIGIN, max_connections: 1 }");
    let (mut first, mut second) = (gate.connect(), gate.connect());
    first.send("GET /first HTTP/1.1\r\nHost: a\r\n\r\n");
    asked.wait();
    second.send("GET /second HTTP/1.1\r\nHost: a\r\n\r\n");
    gate.wait_for_metric("tidegate_origin_inflight{scope=\"default\"}", 2.0);
    assert_eq!(origin.seen().len(), 1, "the second waits in the gate");
    go_on.tell();
    assert_eq!((first.answer().status, second.answer().status), (200, 200));
    assert_eq!(origin.connections(), 1);
}

#[test]
fn an_origin_without_room_turns_requests_away_uncharged_with_a_time_to_come_back() {
    let (tell, asked) = signal();
    let (go_on, wait) = signal();
    let origin = Origin::scripted(move |_, wire| {
        tell.tell();
        wait.wait();
        wire.reply("200 OK", "", b"");
    });
    let rules = format!("workers: 1\norigin: {{ url: ORIGIN, max_connections: 1, connect_timeout: 200ms }}{COSTLY}");
    let gate = Gate::before(origin.address(), &rules);
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
    assert_eq!(gate.books(), (0.0, 1.0), "only the one that is under way");
    go_on.tell();
    assert_eq!(first.answer().status, 200);

    assert_eq!(gate.metric("tidegate_origin_requests_total{scope=\"default\",code=\"error\"}"), 0.0);
    let refused = "tidegate_requests_total{class=\"other\",verdict=\"refused\",reason=\"throttle\"}";
    assert_eq!(gate.metric(refused), 1.0);
    gate.wait_for_metric("tidegate_origin_inflight{scope=\"default\"}", 0.0);
    let log = gate.into_log();
    let line = log.iter().find(|line| line["status"] == 503).expect("it is logged");
    assert_eq!((&line["verdict"], &line["reason"]), (&"refused".into(), &"throttle".into()));
    assert_eq!(line["retry_after_s"], retry_after, "what the client was told");
    assert_eq!(line["charged"]["api"], 0);
}

#[test]
fn an_http2_client_may_not_have_more_streams_than_allowed() {
    let (tell, asked) = signal();
    let (go_on, wait) = signal();
    let origin = Origin::scripted(move |_, wire| {
        tell.tell();
        wait.wait();
        wire.reply("200 OK", "", b"");
    });
    let gate = Gate::before(origin.address(), "limits: { http2_streams: 2 }");
    let mut client = Frames::connect(gate.address());
    for stream in [1, 3, 5] {
        client.get(stream);
    }
    let refused = client.until(|frame| frame.kind == RST_STREAM);
    assert_eq!((refused.stream, refused.payload.as_slice()), (5, &7u32.to_be_bytes()[..]), "REFUSED_STREAM");
    asked.wait();
    asked.wait();
    go_on.tell();
    go_on.tell();
    for _ in 0..2 {
        client.until(|frame| frame.kind == HEADERS);
    }
    assert_eq!(origin.seen().len(), 2);
}

#[test]
fn a_flood_of_requests_taken_back_ends_the_connection() {
    let origin = Origin::scripted(|request, wire| match request.target.as_str() {
        "/" => drop(wire.sees_the_end()),
        _ => wire.reply("200 OK", "", b""),
    });
    let gate = Gate::before(origin.address(), PATIENT);
    let mut client = Frames::connect(gate.address());
    let mut streams = (1..).step_by(2);
    gate.wait_for_metric("tidegate_connections", 1.0);
    // A flood that lets each request begin, so that not only the protocol's own count of unseen resets is at work. It
    // goes on until the next sweep.
    wait_until("the connection of an attack by resets to be closed", || {
        let sent = streams.by_ref().take(10).all(|stream| client.get(stream) && client.reset(stream));
        !sent || gate.metric("tidegate_connections") == 0.0
    });
    gate.wait_for_metric("tidegate_connections", 0.0);
    assert_eq!(gate.connect().get("/others", "").status, 200, "which is nobody else's trouble");
}

#[test]
fn an_http2_reader_that_gives_no_window_is_cut_off_and_frees_the_origin() {
    let (tell, cut_off) = signal();
    let origin = Origin::scripted(move |_, wire| {
        wire.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1u64 << 40));
        let block = vec![b'x'; 1 << 20];
        while wire.send(&block) {}
        wire.close();
        tell.tell();
    });
    let gate = Gate::before(origin.address(), PATIENT);
    let mut client = Frames::connect(gate.address());
    client.get(1);
    client.until(|frame| frame.kind == DATA);
    // It reads what comes and answers pings, but lets nothing more of the answer come.
    gate.pass(seconds(31));
    client.ping();
    assert!(!cut_off.has_come(), "it may have been the origin that was slow");
    gate.pass(seconds(31));
    cut_off.wait();
    assert!(gate.into_log()[0]["bytes"].as_u64() > Some(0));
}

#[test]
fn an_http2_client_that_only_says_hello_is_closed() {
    let origin = Origin::plain();
    let gate = Gate::before(origin.address(), PATIENT);
    let mut client = Frames::connect(gate.address());
    client.ping();
    gate.pass(seconds(11));
    client.rest();
}

#[test]
fn an_idle_http2_client_that_answers_pings_keeps_its_connection_for_as_long_as_any_other() {
    let origin = Origin::plain();
    let gate = Gate::before(origin.address(), PATIENT);
    let mut client = Frames::connect(gate.address());
    client.get(1);
    client.until(|frame| frame.kind == HEADERS && frame.stream == 1);
    // A ping is no request that has begun to arrive.
    client.ping();
    gate.pass(seconds(30));
    client.get(3);
    client.until(|frame| frame.kind == HEADERS && frame.stream == 3);
    client.ping();
    gate.pass(seconds(61));
    client.until(|frame| frame.kind == GOAWAY);
    gate.pass(seconds(61));
    client.rest();
}

#[test]
fn a_gate_that_stops_finishes_what_is_under_way_and_takes_nothing_new() {
    let (origin, asked, go_on) = Origin::holding("/slow");
    let gate = Gate::before(origin.address(), "");
    let address = gate.address();
    let (mut busy, mut idle, mut silent) = (gate.connect(), gate.connect(), gate.connect());
    idle.get("/", "");
    busy.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    asked.wait();
    let ending = std::thread::spawn(move || gate.into_log());
    assert!(idle.is_closed() && silent.is_closed(), "who waits for nothing is let go at once");
    // One worker may close its socket a moment before another.
    wait_until("all listeners to be closed", || TcpStream::connect(address).is_err());
    go_on.tell();
    let answer = busy.answer();
    assert_eq!((answer.status, answer.text().as_str(), answer.field("connection")), (200, "hello", "close"));
    assert!(busy.is_closed());
    assert_eq!(ending.join().expect("it ends").len(), 2, "and everything is in the log");
}

#[test]
fn a_gate_that_stops_waits_only_so_long() {
    let (tell, asked) = signal();
    let origin = Origin::scripted(move |_, wire| {
        tell.tell();
        wire.sees_the_end();
    });
    let gate = Gate::before(origin.address(), &format!("limits: {{ drain_timeout: 300ms }}{COSTLY}"));
    let mut client = gate.connect();
    client.send("GET /page HTTP/1.1\r\nHost: a\r\n\r\n");
    asked.wait();
    let log = gate.into_log();
    assert!(client.is_closed());
    assert_eq!((&log[0]["status"], &log[0]["charged"]["api"]), (&499.into(), &1.into()), "cut off, logged, charged");
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A client with another address of this machine.
fn from(address: Ipv4Addr, to: SocketAddr) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from((address, 0)).into()).expect("all of 127/8 is here");
    socket.connect(&to.into()).expect("somebody listens");
    Client::over(socket.into())
}

/// A listener that accepts nothing and whose queue is full: further connections hang.
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
        listener.listen(0).expect("it can listen");
        let address = listener.local_addr().ok().and_then(|address| address.as_socket()).expect("it is bound");
        // A queue of none holds one; those beyond it are not answered, and a few more make sure of it.
        let wait = |_| {
            let waiting = socket();
            waiting.set_nonblocking(true).expect("an option can be set");
            let _ = waiting.connect(&address.into());
            waiting
        };
        Self { address, _listener: listener, _waiting: (0..4).map(wait).collect() }
    }
}

/// One worker, whose clients may be silent for a second; everything else takes as long as by default.
const PATIENT: &str = "workers: 1
limits: { first_byte_timeout: 1s, head_timeout: 10s, keep_alive_timeout: 60s, request_body_timeout: 30s, response_write_timeout: 30s }";

/// Pages cost one unit of a plentiful quota.
const COSTLY: &str = "
quotas: { api: { limit: 1000, window: { fixed: 24h } } }
routes: [ { match: /page, cost: { api: 1 } } ]";

#[test]
fn what_cannot_be_read_is_answered_like_everything_else_the_gate_says() {
    let origin = Origin::plain();
    let gate = Gate::before(origin.address(), "limits: { max_headers: 10 }");
    let mut client = gate.connect();
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X-Field: 1\r\n".repeat(20)));
    let answer = client.answer();
    assert_eq!((answer.status, answer.field("content-type")), (431, "application/problem+json"));
    assert_eq!((answer.field("cache-control"), answer.field("x-tidegate-decision").len()), ("no-store", 16));
    assert_eq!(answer.json()["status"], 431);
    assert!(client.is_closed(), "where the next request begins is not known");
    assert_eq!(gate.metric("tidegate_responses_total{class=\"\",code=\"4xx\"}"), 1.0);
}
