//! Forwarding: the rules of RFC 9110 section 7 and RFC 9112 for proxies, over real connections.

use crate::support::frames::Http2Client;
use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, signal};
use crate::support::wait::wait_until;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Without rules, every request is free.
const FREE: &str = "";

/// Bodies of requests for one path are streamed.
const STREAMED: &str = "routes: [{ match: /streamed, stream: true }]";

#[test]
fn request_is_unchanged_except_gateway_headers() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), FREE);
    let response = gateway.connect().get("/a%20b?q=1&r=%2F", "Accept: text/plain\r\nX-Mine: 1\r\n");
    assert_eq!((response.status, response.text().as_str()), (200, "hello"));
    let received = origin.last_request();
    assert_eq!((received.method.as_str(), received.target.as_str()), ("GET", "/a%20b?q=1&r=%2F"));
    assert_eq!(received.fields["host"], "example.com");
    assert_eq!(received.fields["x-mine"], "1");
    assert_eq!(received.fields["x-forwarded-for"], "127.0.0.1");
    assert_eq!(received.fields["x-forwarded-proto"], "http");
    assert_eq!(received.fields["x-forwarded-host"], "example.com");
    assert!(received.fields["via"].starts_with("1.1 tidegate-"), "{}", received.fields["via"]);
    assert_eq!(received.fields["x-tidegate-class"], "other");
    assert!(!received.fields.contains_key("content-length") && !received.fields.contains_key("transfer-encoding"));
}

#[test]
fn connections_are_kept_alive_on_both_sides() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), "workers: 1");
    let mut client = gateway.connect();
    for _ in 0..20 {
        assert_eq!(client.get("/", "").status, 200);
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let origin = Origin::with_script(|request, connection| connection.reply("200 OK", "", request.target.as_bytes()));
    let gateway = TestGateway::with_rules(origin.address(), FREE);
    let mut client = gateway.connect();
    client
        .send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\nGET /3 HTTP/1.1\r\nHost: a\r\n\r\n");
    for target in ["/1", "/2", "/3"] {
        assert_eq!(client.read_response().text(), target);
    }
}

#[test]
fn hop_by_hop_headers_are_removed_both_ways() {
    let hop = "Connection: x-hop, x-forwarded-for\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\n\
               Upgrade: h2c\r\nTE: gzip\r\nX-Hop: secret\r\nProxy-Authorization: Basic eDp5\r\n";
    let origin = Origin::with_script(move |_, connection| {
        let fields =
            "Connection: keep-alive, x-inner\r\nX-Inner: secret\r\nKeep-Alive: timeout=7\r\nX-Outer: shown\r\n";
        connection.reply("200 OK", fields, b"ok");
    });
    let gateway = TestGateway::with_rules(origin.address(), FREE);
    let response = gateway.connect().get("/", hop);
    let received = origin.last_request().fields;
    for name in ["connection", "keep-alive", "proxy-connection", "upgrade", "te", "x-hop", "proxy-authorization"] {
        assert!(!received.contains_key(name), "{name} reached the origin");
    }
    assert_eq!(received["x-forwarded-for"], "127.0.0.1", "Connection cannot remove fields that the gateway adds");
    for name in ["connection", "x-inner", "keep-alive"] {
        assert!(!response.fields.contains_key(name), "{name} reached the client");
    }
    assert_eq!(response.field("x-outer"), "shown");
}

#[test]
fn client_addresses_require_trusted_proxies() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), FREE);
    gateway.connect().get("/", "X-Forwarded-For: 6.6.6.6, 198.51.100.1\r\nX-Forwarded-For: 127.0.0.9\r\n");
    assert_eq!(origin.last_request().fields["x-forwarded-for"], "198.51.100.1, 127.0.0.9, 127.0.0.1");
    let untrusting = TestGateway::with_rules(
        origin.address(),
        "clients: { address_from: x-forwarded-for, trusted_proxies: [10.0.0.0/8] }",
    );
    untrusting.connect().get(
        "/",
        "X-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\nX-Forwarded-Proto: https\r\n",
    );
    let received = origin.last_request();
    assert!(!received.head.contains("6.6.6.6") && !received.head.contains("https"), "{}", received.head);
}

#[test]
fn invalid_or_ambiguous_host_is_refused() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), FREE);
    for head in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: user@a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: \r\n\r\n",
        "GET http://user@a/ HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert_eq!(gateway.connect().send(head).read_response().status, 400, "{head:?}");
    }
    assert_eq!(
        gateway.connect().send("GET http://other.example/x HTTP/1.1\r\nHost: a\r\n\r\n").read_response().status,
        200
    );
    let received = origin.last_request();
    assert_eq!(
        (received.target.as_str(), received.fields["host"].as_str()),
        ("/x", "other.example"),
        "the host of the target has precedence"
    );
    assert_eq!(origin.received_requests().len(), 1, "no other request reached the origin");
}

#[test]
fn ambiguous_framing_is_refused() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), FREE);
    for fields in [
        "Content-Length: 1\r\nContent-Length: 2\r\n",
        "Content-Length: +1\r\n",
        "Content-Length: 0x1\r\n",
        "Content-Length: 1, 1\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "X-Bad : 1\r\n",
        "X-Folded: 1\r\n 2\r\n",
    ] {
        let mut client = gateway.connect();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n0\r\n\r\n"));
        assert_eq!(client.read_response().status, 400, "{fields:?}");
    }
    assert!(origin.received_requests().is_empty());
}

#[test]
fn content_length_with_chunked_smuggles_no_request() {
    let origin = Origin::with_script(|request, connection| {
        connection.read_body(request);
        connection.reply("200 OK", "", b"one");
    });
    let gateway = TestGateway::with_rules(origin.address(), FREE);
    let mut client = gateway.connect();
    client.send(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n\
         0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    client.read_rest();
    assert!(origin.received_requests().iter().all(|request| request.target != "/smuggled"));
    assert!(origin.received_requests().iter().all(|request| !request.fields.contains_key("content-length")));
}

#[test]
fn connect_and_trace_are_rejected() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), FREE);
    assert_eq!(gateway.connect().send("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n").read_response().status, 405);
    assert_eq!(gateway.connect().send("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n").read_response().status, 405);
    assert_eq!(gateway.connect().send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").read_response().status, 200);
    assert_eq!(origin.last_request().target, "*");
}

#[test]
fn origin_cannot_set_fields_of_the_gateway() {
    let origin = Origin::with_script(|_, connection| {
        connection.reply("200 OK", "X-Tidegate-Decision: 1\r\nx-tidegate-class: vip\r\nX-Other: kept\r\n", b"page");
    });
    let gateway = TestGateway::with_rules(origin.address(), FREE);
    let response = gateway.connect().get("/", "");
    assert!(!response.fields.keys().any(|name| name.starts_with("x-tidegate")), "{:?}", response.fields);
    assert_eq!(response.field("x-other"), "kept");
}

#[test]
fn bodies_pass_in_both_framings() {
    let origin = Origin::with_script(|request, connection| {
        let body = connection.read_body(request);
        connection.reply("200 OK", "", &body);
    });
    let gateway = TestGateway::with_rules(origin.address(), STREAMED);
    let mut client = gateway.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.read_response().text(), "hello");
    assert_eq!(origin.last_request().fields["content-length"], "5");
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n");
    assert_eq!(client.read_response().text(), "hello");
    assert_eq!(origin.last_request().fields["content-length"], "5", "the length is known once the body is received");
    let chunked = "POST /streamed HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    assert_eq!(client.send(chunked).read_response().text(), "hello");
    assert_eq!(origin.last_request().fields["transfer-encoding"], "chunked");
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.read_response().text(), "");
}

#[test]
fn response_body_is_streamed() {
    let (release, release_receiver) = signal();
    let origin = Origin::with_script(move |_, connection| {
        connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
        release_receiver.wait();
        connection.send("6\r\nsecond\r\n0\r\n\r\n");
    });
    let gateway = TestGateway::with_rules(origin.address(), FREE);
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.head();
    assert_eq!(client.take(10).expect("the first chunk, before the second is sent"), b"5\r\nfirst\r\n");
    release.notify();
    assert_eq!(client.take(16).expect("the rest"), b"6\r\nsecond\r\n0\r\n\r\n"[..16]);
}

#[test]
fn slow_reader_applies_backpressure_to_origin() {
    const MIB: usize = 1 << 20;
    let sent = Arc::new(AtomicUsize::new(0));
    let (closed_sender, closed) = signal();
    let counter = Arc::clone(&sent);
    let origin = Origin::with_script(move |_, connection| {
        connection.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 256 * MIB));
        let block = vec![b'x'; MIB];
        while counter.load(Ordering::SeqCst) < 256 && connection.send(&block) {
            counter.fetch_add(1, Ordering::SeqCst);
        }
        connection.close();
        closed_sender.notify();
    });
    let gateway = TestGateway::with_rules(origin.address(), "workers: 1\nlimits: { first_byte_timeout: 1s }\n");
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.head();
    for _ in 0..50 {
        client.take(64 * 1024).expect("the response flows while the client reads");
    }
    wait_until("the client that stopped reading to be disconnected", || {
        gateway.advance_and_sweep(Duration::from_secs(31));
        closed.is_notified()
    });
    let sent = sent.load(Ordering::SeqCst);
    assert!(sent < 64, "{sent} of 256 MiB were read from the origin, more than the buffers hold");
}

#[test]
fn trailers_are_forwarded_when_negotiated() {
    let origin = Origin::with_script(|_, connection| {
        connection.send(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 42\r\n\r\n",
        );
    });
    let gateway = TestGateway::with_rules(origin.address(), FREE);
    let response = gateway.connect().get("/", "TE: trailers\r\nConnection: TE\r\n");
    assert_eq!((response.text().as_str(), response.trailers["x-sum"].as_str()), ("ok", "42"));
    assert_eq!(origin.last_request().fields["te"], "trailers");
    let response = gateway.connect().get("/", "");
    assert_eq!(response.text(), "ok");
    assert!(response.trailers.is_empty(), "a client without TE gets no trailers");
}

#[test]
fn underscore_variants_and_trailers_forge_no_headers() {
    let (arrival_sender, arrival) = signal();
    let raw = Arc::new(Mutex::new(Vec::new()));
    let read = Arc::clone(&raw);
    let origin = Origin::with_script(move |request, connection| {
        if request.method == "POST" {
            // Read to the last byte that the client sends: the trailer that is forwarded.
            while !read.lock().ends_with(b"x-sum: 7\r\n\r\n") {
                let bytes = connection.take(1);
                assert!(!bytes.is_empty(), "{:?}", String::from_utf8_lossy(&read.lock()));
                read.lock().extend(bytes);
            }
            arrival_sender.notify();
        }
        connection.reply("200 OK", "", b"hello");
    });
    let gateway = TestGateway::with_rules(origin.address(), FREE);
    let forged_fields = "X_Tidegate_Operator: googlebot\r\nx-tidegate_class: forged\r\nX-Tidegate-Future: forged\r\n\
                  X_Forwarded_For: 6.6.6.6\r\nX_Real-IP: 6.6.6.6\r\nx_api_key: kept\r\n";
    assert_eq!(gateway.connect().get("/", forged_fields).status, 200);
    let statuses = crate::support::http2_statuses(gateway.address(), |request| {
        let forged_request = request.header("x_tidegate_operator", "googlebot").header("x_forwarded_for", "6.6.6.6");
        vec![forged_request.header("x_api_key", "kept").uri("http://a/").body(()).expect("a request")]
    });
    assert_eq!(statuses, [200]);
    for received in origin.received_requests() {
        assert!(
            !["googlebot", "forged", "6.6.6.6"].iter().any(|claim| received.head.contains(claim)),
            "{}",
            received.head
        );
        assert_eq!(received.fields["x_api_key"], "kept");
    }
    let declared = "X_Tidegate_Operator, X-Tidegate-Class, Forwarded, X-Real-IP, X-Hop, Host, Via, Expect, X-Sum";
    let trailers = "X_Tidegate_Operator: googlebot\r\nX-Tidegate-Class: forged\r\nForwarded: for=6.6.6.6\r\n\
                    X-Real-IP: 6.6.6.6\r\nX-Hop: forged\r\nHost: forged\r\nVia: forged\r\nExpect: forged\r\nX-Sum: 7\r\n";
    let mut client = gateway.connect();
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: X-Hop\r\nTrailer: {declared}\r\nTransfer-Encoding: chunked\r\n\r\n\
         2\r\nok\r\n0\r\n{trailers}\r\n"
    ));
    assert_eq!(client.read_response().status, 200);
    arrival.wait();
    assert_eq!(origin.last_request().fields["trailer"], "X-Sum");
    assert_eq!(String::from_utf8_lossy(&raw.lock()), "2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n");
}

#[test]
fn only_configured_address_header_is_trusted() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), FREE);
    let forwarded_fields =
        "X-Forwarded-For: 198.51.100.1\r\nForwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\nX-Forwarded-Proto: https\r\n";
    gateway.connect().get("/", forwarded_fields);
    let received = origin.last_request();
    assert!(!received.head.contains("6.6.6.6"), "{}", received.head);
    assert_eq!(
        (&*received.fields["x-forwarded-for"], &*received.fields["x-forwarded-proto"]),
        ("198.51.100.1, 127.0.0.1", "https")
    );
}

#[test]
fn bare_lf_is_refused_but_leading_crlf_accepted() {
    let origin = Origin::with_script(|request, connection| {
        connection.read_body(request);
        connection.reply("200 OK", "", b"hello");
    });
    let gateway = TestGateway::with_rules(origin.address(), FREE);
    for head in [
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\nX-B: 2\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert_eq!(gateway.connect().send(head).read_response().status, 400, "{head:?}");
    }
    for body in ["1 2\r\na\r\n0\r\n\r\n", "1\na\r\n0\r\n\r\n", "0\r\nx-sum: 1\n\r\n", "00000000000000000\r\n\r\n"] {
        let mut client = gateway.connect();
        client
            .send(format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n{body}"));
        assert_eq!(client.read_response().status, 400, "{body:?}");
    }
    assert!(
        origin.received_requests().iter().all(|request| request.method == "POST"),
        "{:?}",
        origin.received_requests()
    );
    assert_eq!(gateway.connect().send("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").read_response().status, 200);
}

#[test]
fn continue_is_sent_only_after_admission() {
    let origin = Origin::with_script(|request, connection| {
        let body = connection.read_body(request);
        connection.reply("200 OK", "", &body);
    });
    let gateway = TestGateway::with_rules(origin.address(), STREAMED);
    let mut client = gateway.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.head().status, 100);
    client.send("hello");
    assert_eq!(client.read_response().text(), "hello");
    assert!(!origin.last_request().fields.contains_key("expect"));
    assert_eq!(gateway.connect().get("/", "Expect: a-miracle\r\n").status, 417);
}

#[test]
fn refused_expect_continue_gets_immediate_response() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), REFUSED_PAGE);
    let mut client = gateway.connect();
    client.send("POST /page HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.head().status, 429, "no 100 before the final status");
}

#[test]
fn refused_upload_receives_the_response() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), REFUSED_PAGE);
    let mut client = gateway.connect();
    let body = vec![b'x'; 200 * 1024];
    client.send(format!("POST /page HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()));
    assert!(client.try_send(&body), "the body in transit is read");
    assert_eq!(client.read_response().status, 429);
    assert_eq!(client.get("/free", "").status, 200, "the connection stays open");
    let mut client = gateway.connect();
    client.send("POST /page HTTP/1.1\r\nHost: a\r\nContent-Length: 50000000\r\n\r\n");
    client.send(&body);
    assert_eq!(client.read_response().status, 429, "the response is sent before a large body is read");
}

#[test]
fn body_beyond_max_size_is_refused() {
    let origin = Origin::with_script(|request, connection| {
        connection.read_body(request);
        connection.reply("200 OK", "", b"");
    });
    let gateway = TestGateway::with_rules(origin.address(), "limits: { max_body_size: 1KiB }");
    let mut client = gateway.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1025\r\n\r\n");
    assert_eq!(client.read_response().status, 413);
    assert!(origin.received_requests().is_empty(), "Content-Length alone exceeds the limit");
    let mut client = gateway.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(format!("800\r\n{}\r\n", "x".repeat(0x800)));
    assert_eq!(client.read_response().status, 413);
}

#[test]
fn head_and_304_responses_have_no_body() {
    let origin = Origin::with_script(|request, connection| match request.method.as_str() {
        "HEAD" => drop(connection.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")),
        _ => drop(connection.send("HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n")),
    });
    let gateway = TestGateway::with_rules(origin.address(), "workers: 1");
    let mut client = gateway.connect();
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    let response = client.response_to("HEAD");
    assert_eq!((response.status, response.field("content-length")), (200, "1000"));
    assert_eq!(client.get("/", "If-None-Match: \"x\"\r\n").status, 304);
    assert_eq!(origin.connections(), 1, "both connections stay open");
}

#[test]
fn http10_client_receives_no_chunked_encoding() {
    let origin = Origin::with_script(|_, connection| {
        connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    });
    let gateway = TestGateway::with_rules(origin.address(), FREE);
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
    let response = client.read_response();
    assert_eq!(response.text(), "hello");
    assert!(!response.fields.contains_key("transfer-encoding"));
}

#[test]
fn client_disconnect_aborts_the_request_at_an_origin_that_aborts_with_it() {
    let (arrival_sender, arrival) = signal();
    let (closed_sender, closed) = signal();
    let origin = Origin::with_script(move |_, connection| {
        arrival_sender.notify();
        connection.expect_eof();
        closed_sender.notify();
    });
    let rules = format!("origin: {{ url: ORIGIN, aborts_on_disconnect: true }}{COSTED_PAGE}");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let mut client = gateway.connect();
    client.send("GET /page HTTP/1.1\r\nHost: a\r\n\r\n");
    arrival.wait();
    client.reset();
    closed.wait();
    let log = gateway.read_log();
    assert_eq!(
        (&log[0]["status"], &log[0]["charged"]["api"]),
        (&499.into(), &1.into()),
        "the origin has processed the request"
    );
}

#[test]
fn truncated_origin_response_stays_truncated() {
    let origin = Origin::with_script(|request, connection| {
        match request.target.as_str() {
            "/length" => connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"),
            _ => connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"),
        };
        connection.close();
    });
    let gateway = TestGateway::with_rules(origin.address(), FREE);
    let mut client = gateway.connect();
    client.send("GET /length HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    assert_eq!(client.read_rest(), b"half");
    let mut client = gateway.connect();
    client.send("GET /chunks HTTP/1.1\r\nHost: a\r\n\r\n");
    client.head();
    let rest = String::from_utf8(client.read_rest()).expect("response is UTF-8");
    assert!(!rest.contains("0\r\n\r\n"), "the gateway added an end of body: {rest:?}");
}

#[test]
fn missing_or_invalid_origin_response_is_502() {
    let origin = Origin::with_script(|request, connection| {
        match request.target.as_str() {
            "/nothing" => {}
            "/junk" => drop(connection.send("this is not HTTP\r\n\r\n")),
            _ => drop(connection.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab")),
        }
        connection.close();
    });
    let gateway = TestGateway::with_rules(origin.address(), FREE);
    for path in ["/nothing", "/junk", "/two-lengths"] {
        let response = gateway.connect().get(path, "");
        assert_eq!((response.status, response.field("content-type")), (502, "application/problem+json"), "{path}");
    }
    let unreachable = TestGateway::with_rules(Origin::unreachable(), FREE);
    assert_eq!(unreachable.connect().get("/", "").status, 502);
}

#[test]
fn unsent_request_is_not_charged() {
    let gateway = TestGateway::with_rules(Origin::unreachable(), COSTED_PAGE);
    assert_eq!(gateway.connect().get("/page", "").status, 502);
    assert_eq!(gateway.counters(), (0.0, 0.0));
    assert_eq!(gateway.read_log()[0]["charged"]["api"], 0);
}

#[test]
fn early_response_reaches_client_during_upload() {
    let origin = Origin::with_script(|_, connection| {
        connection.reply("413 Content Too Large", "Connection: close\r\n", b"too much");
        connection.close();
    });
    let gateway = TestGateway::with_rules(origin.address(), STREAMED);
    let mut client = gateway.connect();
    client.send("POST /streamed HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nabc");
    let response = client.read_response();
    assert_eq!((response.status, response.text().as_str()), (413, "too much"));
}

#[test]
fn interim_responses_pass_to_clients_of_http11() {
    const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nConnection: x-hop\r\nX-Hop: 1\r\n\
                         Keep-Alive: timeout=5\r\nContent-Length: 3\r\nX-Tidegate-Class: vip\r\n\r\n";
    let (hinted, is_hinted) = signal();
    let is_hinted = Mutex::new(is_hinted);
    let origin = Origin::with_script(move |request, connection| {
        connection.send(HINTS);
        if request.target == "/waits" {
            // The hints arrive before the response is there.
            is_hinted.lock().wait();
        }
        connection.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n");
        connection.reply("200 OK", "Cache-Control: max-age=60\r\n", b"ok");
    });
    let gateway = TestGateway::with_rules(origin.address(), &format!("{FREE}\ncache: {{ disk: off }}"));
    let mut client = gateway.connect();
    client.send("GET /waits HTTP/1.1\r\nHost: a\r\n\r\n");
    let hints = client.head();
    hinted.notify();
    assert_eq!((hints.status, hints.field("link")), (103, "</a.css>; rel=preload"));
    assert_eq!(hints.fields.len(), 1, "{hints:?}");
    assert_eq!(client.head().status, 102, "100 answers a request of the gateway");
    let response = client.read_response();
    assert_eq!((response.status, response.text().as_str()), (200, "ok"));
    assert!(!response.fields.contains_key("link"));
    let copy = client.send("GET /waits HTTP/1.1\r\nHost: a\r\n\r\n").head();
    assert_eq!((copy.status, copy.fields.contains_key("link")), (200, false), "they are not stored");
    let old = gateway.connect().send("GET /old HTTP/1.0\r\nHost: a\r\n\r\n").head();
    assert_eq!(old.status, 200, "a client of HTTP/1.0 understands none");
}

#[test]
fn endless_interim_responses_are_a_failure_of_the_origin() {
    let origin =
        Origin::with_script(
            |_, connection| {
                while connection.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n".repeat(100)) {}
            },
        );
    let gateway = TestGateway::with_rules(origin.address(), FREE);
    assert_eq!(gateway.connect().get("/", "").status, 502);
}

#[test]
fn closed_origin_connection_is_not_reused() {
    const REQUESTS: usize = 20;
    let (closed_sender, closed) = signal();
    let origin = Origin::with_script(move |_, connection| {
        connection.reply("200 OK", "", b"once");
        connection.close();
        closed_sender.notify();
    });
    let gateway = TestGateway::with_rules(origin.address(), "workers: 1");
    let mut client = gateway.connect();
    for _ in 0..REQUESTS {
        assert_eq!(client.get("/", "").status, 200);
        closed.wait();
    }
    let mut client = gateway.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(
        client.read_response().status,
        200,
        "a stale connection is not used for a request that cannot be retried"
    );
}

#[test]
fn http2_cookies_are_joined_and_authority_must_match() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), FREE);
    let address = gateway.address();
    let statuses = crate::support::http2_statuses(address, |request| {
        let request = request.uri("http://shop.example/x").header("cookie", "a=1").header("cookie", "b=2");
        vec![request.body(()).expect("a request")]
    });
    assert_eq!(statuses, [200]);
    let received = origin.last_request();
    assert_eq!(received.fields["cookie"], "a=1; b=2");
    assert_eq!(received.fields["host"], "shop.example");
    assert!(received.fields["via"].starts_with("2.0 tidegate-"));
    assert!(received.head.starts_with("GET /x HTTP/1.1\r\n"));
    let statuses = crate::support::http2_statuses(address, |request| {
        vec![request.uri("http://a.example/").header("host", "b.example").body(()).expect("a request")]
    });
    assert_eq!(statuses, [400]);
}

/// Pages cost one unit of a large quota.
const COSTED_PAGE: &str = "
quotas: { api: { limit: 1000, window: { fixed: 24h } } }
routes: [ { match: /page, cost: { api: 1 } } ]";

const ALL_COSTED: &str = "
quotas: { api: { limit: 1000, window: { fixed: 24h } } }
routes: [ { match: /**, cost: { api: 1 } } ]";

/// Pages are refused to all clients; everything else is free.
const REFUSED_PAGE: &str = "
quotas: { api: { limit: 1000, window: { fixed: 24h }, tiers: { other: [ { above: 0%, shed: 100% } ] } } }
routes: [ { match: /page, cost: { api: 1 } } ]";

#[test]
fn all_request_outcomes_release_slots_and_reservations() {
    let origin = Origin::with_script(|request, connection| match request.target.as_str() {
        "/reset" => connection.reset(),
        "/close" => connection.close(),
        "/half" => {
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
            connection.close();
        }
        "/junk" => {
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n");
            connection.close();
        }
        "/early" => connection.reply("413 Payload Too Large", "Connection: close\r\n", b"no"),
        "/silent" => drop(connection.expect_eof()),
        "/endless" => while connection.send([b'x'; 8192]) {},
        _ => connection.reply("200 OK", "", b"hello"),
    });
    let rules = format!("origin: {{ url: ORIGIN, aborts_on_disconnect: true }}{ALL_COSTED}");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let send_and_disconnect = |text: String| {
        let mut client = gateway.connect();
        client.send(text);
        client.reset();
    };
    for round in 0..3 {
        for path in ["/page", "/reset", "/close", "/half", "/junk"] {
            gateway.connect().send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")).read_rest();
        }
        for path in ["/silent", "/endless", "/early", "/page"] {
            send_and_disconnect(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            send_and_disconnect(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nhalf"));
            send_and_disconnect(format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"));
        }
        let mut http2 = Http2Client::connect(gateway.address());
        for stream in [1, 3, 5] {
            http2.get(stream);
            http2.reset(stream);
        }
        drop(http2);
        gateway.wait_for_metric("tidegate_origin_inflight{scope=\"default\"}", 0.0);
        gateway.wait_for_metric("tidegate_quota_reserved{quota=\"api\"}", 0.0);
        assert!(gateway.counters().0 > 0.0, "round {round}: a request that the origin may have processed is charged");
    }
}
