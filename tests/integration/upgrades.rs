//! Upgrades of the protocol: WebSockets over HTTP/1.1 and HTTP/2. What passes unbuffered besides: event streams.

use crate::support::browser::{Browser, Screen};
use crate::support::client::Client;
use crate::support::frames::{DATA, HEADERS, Http2Client, RST_STREAM, SETTINGS};
use crate::support::gateway::TestGateway;
use crate::support::http2_origin::Http2Origin;
use crate::support::origin::{Origin, OriginConnection, ReceivedRequest, signal};
use crate::support::tls::Certificates;
use crate::support::tls_tunnel::for_http2;
use crate::support::wait::wait_until;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use serde_json::{Value, json};
use std::time::Duration;

const RULES: &str = "\
workers: 1
quotas: { api: { limit: 100, window: { calendar: day, zone: UTC } } }
scopes: { default: { concurrency: 2 } }
routes: [{ match: /**, cost: { api: 1 } }]
";

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
/// A text message from a client: masked with zeros.
const HELLO: &[u8] = b"\x81\x85\0\0\0\0hello";
const CLOSE: &[u8] = b"\x88\x80\0\0\0\0";

fn upgrade(connection: &mut OriginConnection, request: &ReceivedRequest) -> bool {
    let key = format!("{}258EAFA5-E914-47DA-95CA-C5AB0DC85B11", request.fields["sec-websocket-key"]);
    let accept = base64::engine::general_purpose::STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, key.as_bytes()));
    connection.send(format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    ))
}

/// Sends back each short message until a close or the end of the connection.
fn echo(connection: &mut OriginConnection) {
    loop {
        let head = connection.take(6);
        let &[first, second, ref mask @ ..] = head.as_slice() else { break };
        let mut payload = connection.take(usize::from(second & 0x7f));
        payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
        connection.send([&[first, payload.len() as u8][..], &payload].concat());
        if first & 0xf == 8 {
            break;
        }
    }
    connection.close();
}

/// Starts an origin with a WebSocket at `/socket`, which sends back what it receives.
fn echo_origin() -> Origin {
    Origin::with_script(|request, connection| {
        if request.fields.get("upgrade").is_some_and(|protocol| protocol == "websocket") {
            upgrade(connection, request);
            echo(connection);
        } else {
            connection.reply("200 OK", "", b"page");
        }
    })
}

fn open(gateway: &TestGateway, fields: &str) -> Client {
    let mut client = gateway.connect();
    client.send(format!(
        "GET /socket HTTP/1.1\r\nHost: example.com\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n{fields}\r\n"
    ));
    client
}

#[test]
fn websocket_is_one_request_with_one_charge_and_one_line() {
    let origin = echo_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    // The first message is sent before the response.
    let mut client = open(&gateway, "");
    client.send(HELLO);
    let head = client.head();
    assert_eq!((head.status, head.field("upgrade"), head.field("connection")), (101, "websocket", "Upgrade"));
    assert_eq!(head.field("sec-websocket-accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_eq!(client.take(7).as_deref(), Ok(&b"\x81\x05hello"[..]));
    for _ in 0..100 {
        client.send(HELLO);
        assert_eq!(client.take(7).as_deref(), Ok(&b"\x81\x05hello"[..]));
    }
    assert_eq!(gateway.metric("tidegate_origin_inflight{scope=\"default\"}"), 0.0, "the slot is free");
    assert_eq!(gateway.metric("tidegate_quota_used{quota=\"api\"}"), 1.0);
    assert_eq!(gateway.connect().get("/page", "").status, 200);
    client.send(CLOSE);
    assert_eq!(client.read_rest(), b"\x88\0");
    let log = gateway.read_log();
    assert_eq!(log.len(), 2);
    let of =
        |line: &Value| json!([line["path"], line["status"], line["bytes"], line["charged"]["api"], line["verdict"]]);
    assert_eq!(of(&log[1]), json!(["/socket", 101, 7 * 101 + 2, 1, "admitted"]), "written at the end");
}

#[test]
fn slots_stay_in_use_if_the_operator_says_so() {
    let origin = echo_origin();
    let rules = format!("{RULES}limits: {{ upgrade_holds_slots: true }}\n");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let mut client = open(&gateway, "");
    assert_eq!(client.head().status, 101);
    assert_eq!(gateway.metric("tidegate_origin_inflight{scope=\"default\"}"), 1.0);
    drop(client);
    gateway.wait_for_metric("tidegate_origin_inflight{scope=\"default\"}", 0.0);
}

#[test]
fn refused_upgrade_is_refused_like_any_request() {
    let origin = echo_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    gateway.set_used("api", 100);
    let mut client = open(&gateway, "");
    assert_eq!(client.read_response().status, 429);
    assert!(origin.received_requests().is_empty());
    gateway.set_used("api", 0);
    assert_eq!(client.get("/page", "").status, 200, "the connection is still HTTP");
}

#[test]
fn response_of_the_origin_that_upgrades_nothing_is_a_response() {
    let origin = Origin::with_script(|_, connection| connection.reply("403 Forbidden", "", b"no"));
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut client = open(&gateway, "");
    assert_eq!(client.read_response().status, 403);
    assert_eq!(client.get("/page", "").status, 403);
}

#[test]
fn other_upgrades_are_not_passed_on() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    for (method, version, fields) in [
        ("GET", "1.1", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"),
        ("GET", "1.1", "Connection: Upgrade\r\nUpgrade: H2C\r\n"),
        ("GET", "1.1", "Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n"),
        ("GET", "1.1", "Connection: Upgrade\r\nUpgrade: h2c;x\r\n"),
        ("GET", "1.1", "Connection: Upgrade\r\nUpgrade: \"h2c\"\r\n"),
        ("GET", "1.1", "Connection: Upgrade\r\nUpgrade: foo/h2c\r\n"),
        ("GET", "1.1", "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n"),
        ("GET", "1.1", "Upgrade: websocket\r\n"),
        ("GET", "1.0", "Connection: Upgrade\r\nUpgrade: websocket\r\n"),
        ("POST", "1.1", "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n"),
        ("GET", "1.1", "Connection: Upgrade\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\n"),
    ] {
        let mut client = gateway.connect();
        let end = if fields.contains("chunked") { "0\r\n\r\n" } else { "" };
        client.send(format!("{method} / HTTP/{version}\r\nHost: example.com\r\n{fields}\r\n{end}"));
        assert_eq!(client.response_to(method).status, 200, "{fields}");
        let received = origin.last_request();
        assert!(!received.fields.contains_key("upgrade"), "{fields}: {}", received.head);
    }
}

#[test]
fn switch_that_no_client_wanted_is_a_failure_of_the_origin() {
    let origin = Origin::with_script(|_, connection| {
        connection
            .send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: evil\r\n\r\nGET / HTTP/1.1\r\n");
        connection.expect_eof();
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    assert_eq!(gateway.connect().get("/", "").status, 502);
}

#[test]
fn switch_to_another_protocol_than_the_one_asked_for_is_a_failure_of_the_origin() {
    let origin = Origin::with_script(|request, connection| {
        connection.send(format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n{}\r\n\r\nhello",
            request.field("x-answer").replace("; ", "\r\n")
        ));
        connection.expect_eof();
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    for (answer, status) in [
        ("Upgrade: Other", 101),
        ("Upgrade: h2c", 502),
        ("Upgrade: other, h2c", 502),
        ("Upgrade: other; Upgrade: h2c", 502),
        ("X-None: 1", 502),
    ] {
        let mut client = gateway.connect();
        client.send(format!(
            "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: other\r\nX-Answer: {answer}\r\n\r\n"
        ));
        assert_eq!(client.head().status, status, "{answer}");
    }
}

#[test]
fn connections_of_a_client_that_a_switch_blocks_end() {
    let origin = Origin::with_script(|request, connection| {
        if request.field("upgrade") == "websocket" {
            upgrade(connection, request);
            return echo(connection);
        }
        connection.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n");
        connection.expect_eof();
    });
    let rules = format!("{RULES}clients: {{ address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }}\n");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let open_from = |host: u8| {
        let mut client = open(&gateway, &format!("X-Forwarded-For: 192.0.2.{host}\r\n"));
        assert_eq!(client.head().status, 101);
        client
    };
    let (mut blocked, mut within_a_frame, mut neighbor) = (open_from(7), open_from(7), open_from(8));
    within_a_frame.send(&HELLO[..3]);
    let mut other = gateway.connect();
    other.send(
        "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: other\r\nX-Forwarded-For: 192.0.2.7\r\n\r\n",
    );
    assert_eq!(other.head().status, 101);
    let block = json!({ "target": "192.0.2.7", "effect": "block", "for_s": 3600, "why": "scrapes" });
    let (status, text) = gateway.admin_request("POST", "/api/v1/switches", &block.to_string());
    assert!(status < 300, "{text}");
    let policy_violation = b"\x88\x02\x03\xf0";
    assert_eq!(blocked.take(4).as_deref(), Ok(&policy_violation[..]));
    blocked.send(CLOSE);
    blocked.read_rest();
    assert!(other.read_rest().is_empty(), "nothing is known of another protocol");
    neighbor.send(HELLO);
    assert_eq!(neighbor.take(7).as_deref(), Ok(&b"\x81\x05hello"[..]));
    assert_eq!(within_a_frame.take(4).as_deref(), Ok(&policy_violation[..]));
    gateway.advance_and_sweep(Duration::from_secs(11));
    within_a_frame.read_rest();
    gateway.wait_for_metric("tidegate_upgrades", 1.0);
}

#[test]
fn upgraded_connection_ends_when_it_is_idle_and_after_its_longest_time() {
    let origin = echo_origin();
    let rules = format!("{RULES}limits: {{ upgrade_idle_timeout: 10m, upgrade_timeout: 25m }}\n");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let mut idle = open(&gateway, "");
    assert_eq!(idle.head().status, 101);
    gateway.advance_and_sweep(Duration::from_secs(601));
    assert!(idle.read_rest().is_empty());
    let mut busy = open(&gateway, "");
    assert_eq!(busy.head().status, 101);
    for _ in 0..4 {
        busy.send(HELLO);
        assert_eq!(busy.take(7).as_deref(), Ok(&b"\x81\x05hello"[..]));
        gateway.advance_and_sweep(Duration::from_secs(360));
    }
    gateway.advance_and_sweep(Duration::from_secs(360));
    assert!(busy.read_rest().is_empty());
    assert_eq!(gateway.read_log().len(), 2);
}

#[test]
fn upgrades_of_one_address_and_of_all_have_a_limit() {
    let origin = echo_origin();
    let rules = format!(
        "{RULES}clients: {{ address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }}\n\
         limits: {{ max_upgrades: 3, max_upgrades_per_address: 2 }}\n"
    );
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let open_from = |host: u8| {
        let mut client = open(&gateway, &format!("X-Forwarded-For: 192.0.2.{host}\r\n"));
        (client.head().status, client)
    };
    let first = [open_from(1), open_from(1), open_from(2)];
    assert_eq!(first.each_ref().map(|(status, _)| *status), [101; 3]);
    assert_eq!(open_from(1).0, 503, "third of its address");
    assert_eq!(open_from(3).0, 503, "fourth of all");
    assert_eq!(origin.received_requests().len(), 3);
    assert_eq!(gateway.metric("tidegate_quota_used{quota=\"api\"}"), 3.0, "a refused one costs nothing");
    assert_eq!(gateway.metric("tidegate_upgrades"), 3.0);
    let [(_, mut ended), ..] = first;
    ended.send(CLOSE);
    assert_eq!(ended.read_rest(), b"\x88\0");
    drop(ended);
    wait_until("the slot to be free", || open_from(3).0 == 101);
}

#[test]
fn streams_of_one_connection_have_the_same_limit() {
    let origin = echo_origin();
    let rules = format!("{RULES}limits: {{ max_upgrades_per_address: 2 }}\n");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let mut client = Http2Client::connect(gateway.address());
    client.wait_for_frame(|frame| frame.kind == SETTINGS);
    for stream in [1, 3, 5] {
        client.extended_connect(stream, "websocket");
        client.wait_for_frame(|frame| frame.kind == HEADERS && frame.stream == stream);
    }
    assert_eq!(origin.received_requests().len(), 2);
    assert_eq!(open(&gateway, "").head().status, 503, "over HTTP/1.1 neither");
    client.reset(1);
    wait_until("the slot to be free", || open(&gateway, "").head().status == 101);
}

#[test]
fn client_without_a_window_holds_neither_slot_nor_origin() {
    let (closed, ended) = signal();
    let ended = parking_lot::Mutex::new(ended);
    let closed = parking_lot::Mutex::new(closed);
    let origin = Origin::with_script(move |request, connection| {
        upgrade(connection, request);
        while connection.send(vec![0; 1 << 16]) {}
        closed.lock().notify();
    });
    let rules = format!(
        "{RULES}limits: {{ max_upgrades: 1, upgrade_idle_timeout: 10s, upgrade_timeout: 1m, keep_alive_timeout: 10h }}\n"
    );
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let mut client = Http2Client::over(Client::connect(for_http2(gateway.address())));
    // SETTINGS_INITIAL_WINDOW_SIZE is 1.
    client.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1]);
    client.wait_for_frame(|frame| frame.kind == SETTINGS);
    client.extended_connect(1, "websocket");
    client.wait_for_frame(|frame| frame.kind == HEADERS && frame.stream == 1);
    gateway.wait_for_metric("tidegate_upgrades", 1.0);
    wait_until("the slot to be free while time passes", || {
        gateway.clock.advance(Duration::from_secs(5));
        gateway.metric("tidegate_upgrades") == 0.0
    });
    // The stream has ended, not its connection.
    client.ping();
    ended.lock().wait();
    assert_eq!(gateway.read_log().len(), 1, "the request is over");
}

/// Asks for a WebSocket on a stream, and returns the status in the log.
fn logged_status_over_http2(gateway: TestGateway) -> u64 {
    let mut client = Http2Client::connect(gateway.address());
    client.wait_for_frame(|frame| frame.kind == SETTINGS);
    client.extended_connect(1, "websocket");
    client.wait_for_frame(|frame| frame.kind == HEADERS && frame.stream == 1);
    gateway.read_log()[0]["status"].as_u64().expect("a status")
}

#[test]
fn success_without_an_upgrade_is_a_failure_over_http2() {
    let origin = Origin::with_script(|_, connection| connection.reply("200 OK", "", b"no socket here"));
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    assert_eq!(logged_status_over_http2(gateway), 502);
}

#[test]
fn streams_carry_no_other_protocol() {
    let origin = echo_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut client = Http2Client::connect(gateway.address());
    client.wait_for_frame(|frame| frame.kind == SETTINGS);
    for (stream, protocol) in [(1, "h2c"), (3, "connect-udp"), (5, "evil\r\nX: y")] {
        client.extended_connect(stream, protocol);
        client.wait_for_frame(|frame| matches!(frame.kind, HEADERS | RST_STREAM) && frame.stream == stream);
    }
    assert!(origin.received_requests().is_empty());
}

#[test]
fn answer_to_another_key_is_a_failure_of_the_origin() {
    let origin = Origin::with_script(|_, connection| {
        connection.send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
        );
        connection.expect_eof();
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    assert_eq!(logged_status_over_http2(gateway), 502);
}

#[test]
fn client_that_does_not_read_stops_the_origin() {
    let origin = Origin::with_script(|request, connection| {
        upgrade(connection, request);
        while connection.send(vec![0; 1 << 16]) {}
        connection.close();
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut client = open(&gateway, "");
    assert_eq!(client.head().status, 101);
    gateway.advance_and_sweep(Duration::from_secs(120));
    wait_until("the connection to be closed", || gateway.state()["connections"] == 0);
    let log = gateway.read_log();
    assert!(log[0]["bytes"].as_u64() < Some(64 << 20), "{}", log[0]);
}

#[test]
fn event_stream_passes_unbuffered() {
    let (release, held) = crate::support::origin::signal();
    let held = parking_lot::Mutex::new(held);
    let origin = Origin::with_script(move |_, connection| {
        connection.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n");
        held.lock().wait();
        connection.send("data: 2\n\n");
        connection.close();
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut client = gateway.connect();
    client.send("GET /events HTTP/1.1\r\nHost: example.com\r\n\r\n");
    assert_eq!(client.head().field("content-type"), "text/event-stream");
    assert_eq!(client.take(14).as_deref(), Ok(&b"9\r\ndata: 1\n\n\r\n"[..]), "before the second event exists");
    release.notify();
    assert_eq!(client.take(14).as_deref(), Ok(&b"9\r\ndata: 2\n\n\r\n"[..]));
}

/// A page that uses all that a page can: a WebSocket, an event stream, an upload and a download.
const PAGE: &str = "<!doctype html><title>page</title><script>
const results = {};
const socket = new WebSocket(`wss://${location.host}/socket`);
socket.onopen = () => socket.send('hello');
socket.onmessage = (message) => { results.socket = message.data; socket.close(); };
socket.onclose = (event) => { results.clean = event.wasClean; };
socket.onerror = () => { results.socket = 'failed'; };
const events = new EventSource('/events');
events.onmessage = (event) => { results.event = event.data; events.close(); };
fetch('/upload', { method: 'POST', body: new Blob([new Uint8Array(5000000)]) })
  .then((response) => response.text()).then((text) => { results.upload = text; });
fetch('/download').then(async (response) => {
  let bytes = 0;
  for await (const part of response.body) bytes += part.length;
  results.download = bytes;
});
</script>";

/// Bytes of the download.
const DOWNLOAD: usize = 256 << 20;

#[test]
fn chromium_uses_a_page_over_tls_and_http2() {
    let origin = Origin::with_script(|request, connection| match request.target.as_str() {
        "/socket" => {
            upgrade(connection, request);
            echo(connection);
        }
        "/events" => {
            connection.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: tick\n\n");
            connection.expect_eof();
        }
        "/upload" => {
            let length = connection.read_body(request).len();
            connection.reply("200 OK", "", length.to_string().as_bytes());
        }
        "/download" => {
            connection.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {DOWNLOAD}\r\n\r\n"));
            let part = vec![7; 1 << 20];
            (0..DOWNLOAD / part.len()).all(|_| connection.send(&part));
        }
        "/" => connection.reply("200 OK", "Content-Type: text/html\r\n", PAGE.as_bytes()),
        _ => connection.reply("404 Not Found", "", b""),
    });
    let certificates = Certificates::new();
    let rules = format!(
        "{RULES}listen: {{ address: '127.0.0.1:0', tls: {{ {} }} }}\n",
        certificates.issue("site", &["localhost"])
    )
    .replace("concurrency: 2", "concurrency: 20");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let mut browser = Browser::start_with(&["--ignore-certificate-errors"]);
    let screen = Screen { width: 1200, scheme: "light" };
    browser.open_url(&format!("https://localhost:{}/", gateway.address().port()), screen);
    browser.wait_until("results.event && results.upload && results.download && 'clean' in results");
    let results = browser.evaluate("JSON.stringify(results)");
    let results: Value = serde_json::from_str(results.as_str().expect("text")).expect("JSON");
    let expected =
        json!({ "socket": "hello", "clean": true, "event": "tick", "upload": "5000000", "download": DOWNLOAD });
    assert_eq!(results, expected);
    drop(browser);
    let log = gateway.read_log();
    for path in ["/", "/socket", "/events", "/upload", "/download"] {
        let line = log.iter().find(|line| line["path"] == path).unwrap_or_else(|| panic!("no line of {path}"));
        assert_eq!(line["version"], "2", "{line}");
    }
}

/// At the end of the drain timeout, WebSockets are closed with frames, in both directions.
#[test]
fn websockets_are_closed_when_the_gateway_ends() {
    let (closed, is_closed) = signal();
    let origin = Origin::with_script(move |request, connection| {
        upgrade(connection, request);
        connection.send(b"\x81\x05hello");
        let frame = connection.take(8);
        let unmasked: Vec<u8> = frame[6..].iter().zip(&frame[2..]).map(|(byte, mask)| byte ^ mask).collect();
        assert_eq!((&frame[..2], &unmasked[..]), (&b"\x88\x82"[..], &b"\x03\xe9"[..]), "going away");
        assert!(connection.expect_eof());
        closed.notify();
    });
    let rules = format!("{RULES}limits: {{ drain_timeout: 4s }}\n");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let mut client = open(&gateway, "");
    assert_eq!(client.head().status, 101);
    assert_eq!(client.take(7).as_deref(), Ok(&b"\x81\x05hello"[..]));
    let mut http2 = Http2Client::connect(gateway.address());
    http2.wait_for_frame(|frame| frame.kind == SETTINGS);
    http2.extended_connect(1, "websocket");
    let data = http2.wait_for_frame(|frame| frame.kind == DATA);
    assert_eq!(data.payload, b"\x81\x05hello");
    let end = std::thread::spawn(move || gateway.shut_down());
    assert_eq!(client.take(4).as_deref(), Ok(&b"\x88\x02\x03\xe9"[..]));
    assert_eq!(http2.wait_for_frame(|frame| frame.kind == DATA).payload, b"\x88\x02\x03\xe9");
    client.send(CLOSE);
    drop((client, http2));
    (0..2).for_each(|_| is_closed.wait());
    end.join().expect("the gateway ends");
}

/// Asks for upgrades from three networks, which the origin does not answer, and then for a page.
fn ask_for_upgrades_in_vain(gateway: &TestGateway) {
    for network in 1..=6 {
        let mut client = open(gateway, &format!("X-Forwarded-For: 203.0.{network}.1\r\n"));
        assert_eq!(client.head().status, 502);
    }
    let response = gateway.connect().get("/", "X-Forwarded-For: 198.51.100.1\r\n");
    assert_eq!(response.status, 200, "a page of others");
    let state = gateway.state();
    let scope = &state["scopes"][0];
    assert_eq!((&scope["backoff_level"], &scope["backoff_parts"]), (&json!(0), &json!(0)), "{scope:#}");
    assert_eq!(state["origin"]["outage"], Value::Null, "{state:#}");
}

/// A scope that three networks can close, and an origin of one server.
const BACKOFF: &str = "clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.1/32] }\n\
    scopes: { default: { concurrency: 8, backoff: {} } }\n";

#[test]
fn upgrades_that_the_origin_closes_pause_no_one() {
    let origin = Origin::with_script(|request, connection| match request.fields.contains_key("upgrade") {
        true => connection.close(),
        false => connection.reply("200 OK", "", b"page"),
    });
    ask_for_upgrades_in_vain(&TestGateway::with_rules(origin.address(), BACKOFF));
}

#[test]
fn upgrades_for_an_origin_of_http2_pause_no_one() {
    let origin = Http2Origin::with_script(|exchange| async { exchange.reply(200, "page") });
    let rules = format!("origin: {{ url: 'http://{}', http2: true }}\n{BACKOFF}", origin.address);
    ask_for_upgrades_in_vain(&TestGateway::with_rules(origin.address, &rules));
}
