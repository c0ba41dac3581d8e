//! Compression of responses: as they pass, and of copies, of which the cache keeps one form for each coding.

use crate::support::client::{Client, Response};
use crate::support::frames::{HEADERS, Http2Client, SETTINGS};
use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, OriginConnection, ReceivedRequest, SignalSender, signal};
use crate::support::wait::wait_until;
use std::io::Read;
use std::process::Command;
use std::time::Duration;

const RULES: &str = "\
workers: 1
compression: on
quotas: { api: { limit: 100, window: { calendar: day, zone: UTC } } }
routes:
  - { match: /secret, compress: false, cost: { api: 1 } }
  - { match: /**, cost: { api: 1 } }
";
const CACHE: &str = "cache: { disk: off }\n";
const HTML: &str = "Content-Type: text/html; charset=utf-8\r\n";
const FRESH: &str = "Content-Type: text/html\r\nCache-Control: max-age=3600\r\nETag: \"1\"\r\nAccept-Ranges: bytes\r\n";
const CODINGS: [&str; 3] = ["zstd", "br", "gzip"];

fn accepts(codings: &str) -> String {
    format!("Accept-Encoding: {codings}\r\n")
}

/// Returns a page of `length` bytes that differ.
fn page(length: usize) -> Vec<u8> {
    (0..).flat_map(|line: u32| format!("<p>line {line}</p>\n").into_bytes()).take(length).collect()
}

fn decompress(coding: &str, body: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    match coding {
        "gzip" => flate2::read::GzDecoder::new(body).read_to_end(&mut text),
        "br" => brotli::Decompressor::new(body, 4096).read_to_end(&mut text),
        "zstd" => zstd::stream::read::Decoder::new(body).and_then(|mut decoder| decoder.read_to_end(&mut text)),
        other => panic!("{other} is no coding"),
    }
    .expect("the body is valid");
    text
}

/// Starts an origin that replies with `body`, which is never compressed.
fn origin_with(fields: &'static str, body: Vec<u8>) -> Origin {
    Origin::with_script(move |_, connection| connection.reply("200 OK", fields, &body))
}

/// Starts an origin that sends the first part of a page, and ends it once released.
fn origin_that_pauses() -> (Origin, SignalSender) {
    let (release, held) = signal();
    let held = parking_lot::Mutex::new(held);
    let origin = Origin::with_script(move |_, connection| {
        connection.send(format!("HTTP/1.1 200 OK\r\n{HTML}\r\nfirst part"));
        held.lock().wait();
        connection.close();
    });
    (origin, release)
}

fn coding(response: &Response) -> &str {
    response.fields.get("content-encoding").map_or("", String::as_str)
}

#[test]
fn page_is_sent_in_the_coding_that_the_client_prefers() {
    let body = page(300_000);
    let origin = origin_with("Content-Type: text/html\r\nETag: \"1\"\r\nAccept-Ranges: bytes\r\n", body.clone());
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut client = gateway.connect();
    for expected in CODINGS {
        let response = client.get("/", &accepts(expected));
        assert_eq!((response.status, coding(&response)), (200, expected));
        assert_eq!((response.field("vary"), response.field("etag")), ("Accept-Encoding", "W/\"1\""));
        assert!(!response.fields.contains_key("content-length") && !response.fields.contains_key("accept-ranges"));
        assert!(response.body.len() < body.len() / 3, "{expected}: {} bytes", response.body.len());
        assert_eq!(decompress(expected, &response.body), body, "{expected}");
    }
    let plain = client.get("/", "");
    assert_eq!((plain.body.len(), plain.field("vary"), plain.field("etag")), (body.len(), "Accept-Encoding", "\"1\""));
    let head = {
        client.send("HEAD / HTTP/1.1\r\nHost: example.com\r\nAccept-Encoding: gzip\r\n\r\n");
        client.response_to("HEAD")
    };
    assert_eq!((coding(&head), head.field("etag")), ("gzip", "W/\"1\""));
    assert_eq!(client.get("/", "").status, 200, "the connection is in step");
    let log = gateway.read_log();
    let bytes = |index: usize| log[index]["bytes"].as_u64().expect("a number") as usize;
    assert!(bytes(0) < body.len() / 3, "the log has the bytes that were sent");
    assert_eq!((bytes(3), bytes(4)), (body.len(), 0));
}

#[test]
fn curl_decompresses_over_http2() {
    let body = page(100_000);
    let origin = origin_with(HTML, body.clone());
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let url = format!("http://{}/", gateway.address());
    let curl = Command::new("curl").args(["--silent", "--compressed", "--http2-prior-knowledge", &url]).output();
    assert!(curl.expect("curl is installed").stdout == body);
}

#[test]
fn some_responses_pass_as_they_are() {
    let origin = Origin::with_script(|request, connection| {
        let large = page(5000);
        let (status, fields, body) = match request.target.as_str() {
            "/small" => ("200 OK", HTML, &large[..900]),
            "/image" => ("200 OK", "Content-Type: image/png\r\n", &large[..]),
            "/events" => ("200 OK", "Content-Type: text/event-stream\r\n", &large[..]),
            "/coded" => ("200 OK", "Content-Type: text/html\r\nContent-Encoding: br\r\n", &large[..]),
            "/kept" => ("200 OK", "Content-Type: text/html\r\nCache-Control: no-transform\r\n", &large[..]),
            "/digest" => ("200 OK", "Content-Type: text/html\r\nRepr-Digest: sha-256=:AAAA:\r\n", &large[..]),
            "/part" => {
                ("206 Partial Content", "Content-Type: text/html\r\nContent-Range: bytes 0-4999/9000\r\n", &large[..])
            }
            _ => ("200 OK", HTML, &large[..]),
        };
        connection.reply(status, fields, body);
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut client = gateway.connect();
    for path in ["/small", "/image", "/events", "/coded", "/kept", "/digest", "/part", "/secret"] {
        let response = client.get(path, &accepts("gzip, br"));
        let length = if path == "/small" { 900 } else { 5000 };
        assert_eq!(
            (coding(&response), response.body.len()),
            (if path == "/coded" { "br" } else { "" }, length),
            "{path}"
        );
    }
    for fields in ["Range: bytes=0-9\r\nAccept-Encoding: gzip\r\n", "Accept-Encoding: gzip;q=0\r\n"] {
        assert_eq!(coding(&client.get("/page", fields)), "", "{fields}");
    }
    assert_eq!(coding(&client.get("/page", &accepts("gzip"))), "gzip", "others are compressed");
}

#[test]
fn parts_are_sent_when_they_are_received() {
    let (origin, release) = origin_that_pauses();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nHost: example.com\r\nAccept-Encoding: gzip\r\n\r\n");
    let head = client.head();
    assert_eq!(coding(&head), "gzip");
    let length = String::from_utf8(client.take(2).expect("a chunk")).expect("hexadecimal digits");
    client.take(2).expect("the end of the line");
    let chunk = client.take(usize::from_str_radix(&length, 16).expect("a length")).expect("the first chunk");
    let mut text = [0; 10];
    flate2::read::GzDecoder::new(&chunk[..]).read_exact(&mut text).expect("the whole part");
    assert_eq!(&text, b"first part");
    release.notify();
}

#[test]
fn response_that_breaks_off_does_not_end_well() {
    let origin = Origin::with_script(|_, connection| {
        connection.send(format!("HTTP/1.1 200 OK\r\n{HTML}Content-Length: 100000\r\n\r\n"));
        connection.send(page(50_000));
        connection.close();
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nHost: example.com\r\nAccept-Encoding: gzip\r\n\r\n");
    let rest = client.read_rest();
    assert!(rest.starts_with(b"HTTP/1.1 200 ") && !rest.ends_with(b"0\r\n\r\n"));
}

#[test]
fn one_fetch_serves_all_codings_and_each_is_made_once() {
    // A large page is compressed by a thread, and sent as it is until then.
    for length in [20_000, 300_000] {
        let body = page(length);
        let origin = origin_with(FRESH, body.clone());
        let gateway = TestGateway::with_rules(origin.address(), &format!("{RULES}{CACHE}"));
        let mut client = gateway.connect();
        assert_eq!(client.get("/", "").body, body);
        for accepted in CODINGS {
            let mut response = client.get("/", &accepts(accepted));
            wait_until("the form", || {
                assert_eq!(response.field("vary"), "Accept-Encoding");
                match coding(&response) {
                    "" => assert!(response.body == body && length > 64 * 1024, "{length}"),
                    coding => assert!(coding == accepted && decompress(coding, &response.body) == body),
                }
                let is_compressed = coding(&response) == accepted;
                response = client.get("/", &accepts(accepted));
                is_compressed
            });
            assert!(response.body.len() < length / 3 && response.fields.contains_key("content-length"), "{accepted}");
        }
        assert_eq!(origin.received_requests().len(), 1);
        assert_eq!(origin.last_request().field("accept-encoding"), "identity");
        assert_eq!(gateway.metric("tidegate_quota_used{quota=\"api\"}"), 1.0);
        // The page, and its three forms.
        assert_eq!(gateway.metric("tidegate_cache_entries"), 4.0);
        let purged = gateway.admin_request("DELETE", "/api/v1/cache?prefix=http://example.com/", "");
        assert_eq!(purged, (200, "{\"removed\":1}".to_owned()), "the forms are no pages");
        assert_eq!(gateway.metric("tidegate_cache_entries"), 0.0);
    }
}

#[test]
fn page_on_disk_has_forms() {
    let body = page(600_000);
    let origin = origin_with(FRESH, body.clone());
    let mut gateway = TestGateway::with_rules(origin.address(), &format!("{RULES}cache: {{}}\n"));
    assert_eq!(gateway.connect().get("/", "").body, body);
    gateway.restart_with_disk();
    let mut client = gateway.connect();
    wait_until("the form", || {
        let response = client.get("/", &accepts("br"));
        coding(&response) == "br" && decompress("br", &response.body) == body
    });
    assert_eq!(origin.received_requests().len(), 1);
}

/// A client that opens streams and no window gets a page a byte at a time, and holds it.
#[test]
fn streams_that_do_not_read_a_large_copy_make_one_form() {
    let origin = origin_with(FRESH, page(2_000_000));
    let gateway = TestGateway::with_rules(origin.address(), &format!("{RULES}{CACHE}"));
    assert_eq!(gateway.connect().get("/", "").status, 200);
    let mut hostile = Http2Client::over(gateway.connect());
    // SETTINGS_INITIAL_WINDOW_SIZE is 1.
    hostile.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1]);
    for stream in (1..200).step_by(2) {
        hostile.get_with_coding(stream, "br");
    }
    for stream in (1..200).step_by(2) {
        hostile.wait_for_frame(|frame| frame.kind == HEADERS && frame.stream == stream);
    }
    // It is made although none of them ever has its page.
    gateway.wait_for_metric("tidegate_cache_entries", 2.0);
    assert_eq!(coding(&gateway.connect().get("/", &accepts("br"))), "br");
    hostile.ping();
}

#[test]
fn response_over_http_1_0_is_not_compressed() {
    let origin = origin_with(HTML, page(5000));
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.0\r\nHost: example.com\r\nAccept-Encoding: gzip\r\n\r\n");
    let response = client.read_response();
    assert_eq!((coding(&response), response.body.len()), ("", 5000));
}

#[test]
fn confirmation_by_the_origin_has_the_validator_of_the_form() {
    let origin = Origin::with_script(|request, connection| match request.fields.contains_key("if-none-match") {
        true => connection.reply("304 Not Modified", "ETag: \"1\"\r\n", b""),
        false => connection.reply("200 OK", "Content-Type: text/html\r\nETag: \"1\"\r\n", &page(5000)),
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut client = gateway.connect();
    assert_eq!(client.get("/", &accepts("gzip")).field("etag"), "W/\"1\"");
    for (sent, etag, vary) in [("W/\"1\"", "W/\"1\"", "Accept-Encoding"), ("\"1\"", "\"1\"", "")] {
        let response = client.get("/", &format!("If-None-Match: {sent}\r\n{}", accepts("gzip")));
        assert_eq!((response.status, response.field("etag"), response.field("vary")), (304, etag, vary));
    }
}

#[test]
fn write_on_condition_of_a_compressed_form_reaches_the_origin_with_its_validator() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut client = gateway.connect();
    for (sent, received) in [
        ("If-Match: W/\"1\"\r\n", "\"1\""),
        ("If-Match: \"1\"\r\n", "\"1\""),
        ("If-Match: *\r\n", "*"),
        ("If-Match: \"a,W/b\" , W/\"1\"\r\nIf-Match: W/\"2\"\r\n", "\"a,W/b\", \"1\", \"2\""),
    ] {
        client.send(format!("PUT / HTTP/1.1\r\nHost: a\r\n{sent}Content-Length: 0\r\n\r\n"));
        assert_eq!(client.read_response().status, 200);
        assert_eq!(origin.last_request().field("if-match"), received, "{sent}");
    }
    client.get("/", "If-None-Match: W/\"1\"\r\n");
    assert_eq!(origin.last_request().field("if-none-match"), "W/\"1\"", "it is compared in meaning");
    gateway.reload(origin.address(), "").expect("valid rules");
    gateway.connect().get("/", "If-Match: W/\"1\"\r\n");
    assert_eq!(origin.last_request().field("if-match"), "W/\"1\"", "without compression, it is not the gateway's");
}

#[test]
fn conditions_and_ranges_of_copies_are_those_of_the_form() {
    let body = page(20_000);
    let origin = origin_with(FRESH, body.clone());
    let gateway = TestGateway::with_rules(origin.address(), &format!("{RULES}{CACHE}"));
    let mut client = gateway.connect();
    let first = client.get("/", &accepts("gzip"));
    assert_eq!(first.field("etag"), "W/\"1\"");
    let unchanged = client.get("/", &format!("If-None-Match: W/\"1\"\r\n{}", accepts("gzip")));
    assert_eq!(
        (unchanged.status, unchanged.field("etag"), unchanged.field("vary")),
        (304, "W/\"1\"", "Accept-Encoding")
    );
    // A part of the compressed page cannot be continued with one of the page.
    let range = client.get("/", &format!("Range: bytes=5-9\r\nIf-Range: W/\"1\"\r\n{}", accepts("gzip")));
    assert_eq!((range.status, coding(&range), range.body.len()), (200, "", body.len()));
    let range = client.get("/", &format!("Range: bytes=5-9\r\nIf-Range: \"1\"\r\n{}", accepts("gzip")));
    assert_eq!((range.status, coding(&range), &range.body[..]), (206, "", &body[5..10]));
    client.send("HEAD / HTTP/1.1\r\nHost: example.com\r\nAccept-Encoding: gzip\r\n\r\n");
    let head = client.response_to("HEAD");
    assert_eq!((coding(&head), head.field("etag")), ("gzip", "W/\"1\""));
    assert_eq!(origin.received_requests().len(), 1);
}

#[test]
fn changed_page_has_new_forms_and_a_confirmed_one_keeps_them() {
    let origin = Origin::with_script(|request: &ReceivedRequest, connection: &mut OriginConnection| {
        let version = usize::from(request.target == "/changes" && request.fields.contains_key("if-none-match"));
        match (request.fields.contains_key("if-none-match"), version) {
            (true, 0) => connection.reply("304 Not Modified", "ETag: \"1\"\r\nCache-Control: max-age=60\r\n", b""),
            _ => {
                let body = page(20_000 + version);
                let fields = format!("Content-Type: text/html\r\nCache-Control: max-age=60\r\nETag: \"{version}\"\r\n");
                connection.reply("200 OK", &fields, &body);
            }
        }
    });
    let gateway = TestGateway::with_rules(origin.address(), &format!("{RULES}{CACHE}"));
    // A page is compressed as it passes, and then once as a copy.
    let lengths = || {
        let mut client = gateway.connect();
        ["/changes", "/changes", "/stays", "/stays"]
            .map(|path| decompress("br", &client.get(path, &accepts("br")).body).len())
    };
    assert_eq!(lengths(), [20_000; 4]);
    gateway.clock.advance(Duration::from_secs(61));
    assert_eq!(lengths(), [20_001, 20_001, 20_000, 20_000]);
    // Two pages with a form each. The form of the old page is left until others need its space.
    assert_eq!(gateway.metric("tidegate_cache_entries"), 5.0);
}

#[test]
fn origin_that_always_compresses_is_cached_for_clients_that_accept_it() {
    let origin =
        origin_with("Content-Type: text/html\r\nCache-Control: max-age=60\r\nContent-Encoding: br\r\n", page(5000));
    let gateway = TestGateway::with_rules(origin.address(), &format!("{RULES}{CACHE}"));
    let get = |codings: &str| gateway.connect().get("/", &accepts(codings));
    for codings in ["gzip, br", "br, gzip", "identity", "identity"] {
        assert_eq!(coding(&get(codings)), "br", "{codings}");
    }
    assert_eq!(origin.received_requests().len(), 2, "one for each set of codings");
}

#[test]
fn stale_page_is_compressed_while_it_is_validated() {
    let body = page(30_000);
    let fields = "Content-Type: text/html\r\nCache-Control: max-age=60, stale-while-revalidate=600\r\n";
    let origin = origin_with(fields, body.clone());
    let gateway = TestGateway::with_rules(origin.address(), &format!("{RULES}{CACHE}"));
    let mut client = gateway.connect();
    assert_eq!(client.get("/", "").body.len(), body.len());
    gateway.clock.advance(Duration::from_secs(61));
    client = gateway.connect();
    let stale = client.get("/", &accepts("zstd"));
    assert_eq!(decompress(coding(&stale), &stale.body), body);
    assert!(stale.field("cache-status").contains("hit"), "{}", stale.field("cache-status"));
}

#[test]
fn slow_reader_of_a_compressed_page_holds_no_slot() {
    // Random data: what is sent is as large as the page.
    let body: Vec<u8> = {
        let mut state = 1u64;
        std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(8 << 20)
        .collect()
    };
    let rules = format!(
        "{RULES}scopes: {{ default: {{ concurrency: 1 }} }}\n\
         limits: {{ min_rate: 0B, response_write_timeout: 1000h }}\n"
    );
    let origin = origin_with(HTML, body.clone());
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let mut slow = gateway.connect();
    slow.send("GET / HTTP/1.1\r\nHost: example.com\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n");
    assert_eq!(coding(&slow.head()), "gzip");
    wait_until("the slot to be free while time passes", || {
        gateway.clock.advance(Duration::from_millis(300));
        gateway.metric("tidegate_origin_inflight{scope=\"default\"}") == 0.0
    });
    let chunked = slow.read_rest();
    assert!(chunked.ends_with(b"0\r\n\r\n"));
    assert_eq!(decompress("gzip", &dechunk(&chunked)), body);
}

fn dechunk(mut chunked: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = chunked.windows(2).position(|bytes| bytes == b"\r\n").expect("the end of a line");
        let length = std::str::from_utf8(&chunked[..end]).expect("text");
        let length = usize::from_str_radix(length, 16).expect("a length");
        if length == 0 {
            return body;
        }
        body.extend(&chunked[end + 2..end + 2 + length]);
        chunked = &chunked[end + 4 + length..];
    }
}

#[test]
fn compressors_occupy_a_quarter_of_the_memory_of_connections() {
    let (origin, release) = origin_that_pauses();
    let rules = format!("{RULES}\nlimits: {{ memory: 16MiB }}");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let mut clients: Vec<Client> = (0..3).map(|_| gateway.connect()).collect();
    let codings = clients.iter_mut().map(|client| {
        client.send("GET / HTTP/1.1\r\nHost: example.com\r\nAccept-Encoding: br\r\n\r\n");
        client.head().fields.contains_key("content-encoding")
    });
    assert_eq!(codings.collect::<Vec<_>>(), [true, true, false], "two of 1.5 MiB fit into a quarter of 16 MiB");
    clients.iter().for_each(|_| release.notify());
}

#[test]
fn clients_that_compress_large_pages_are_charged_for_the_memory() {
    let (origin, release) = origin_that_pauses();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let memory = |gateway: &TestGateway| gateway.metric("tidegate_client_connection_memory_bytes");
    let before = memory(&gateway);
    let mut client: Client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nHost: example.com\r\nAccept-Encoding: br\r\n\r\n");
    assert_eq!(coding(&client.head()), "br");
    wait_until("the memory of the compressor", || memory(&gateway) >= before + f64::from(1 << 20));
    release.notify();
}
