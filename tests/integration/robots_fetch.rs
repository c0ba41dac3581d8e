//! The gateway's own requests for robots.txt: what they carry, and what is stored.

use crate::support::gateway::TestGateway;
use crate::support::http2_statuses;
use crate::support::origin::Origin;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Fields of a request by a verified crawler.
const GOOGLE: &str = "X-Forwarded-For: 66.249.66.1\r\nUser-Agent: Mozilla/5.0 (compatible; Googlebot/2.1)\r\n";

const TEXT: &str = "User-agent: *\nDisallow: /cart\n";

fn robots_request(host: &str, fields: &str) -> String {
    format!("GET /robots.txt HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n")
}

/// Returns the status of a request for the robots.txt of `host`.
fn status_of(gateway: &TestGateway, host: &str, fields: &str) -> u16 {
    gateway.connect().send(robots_request(host, fields)).read_response().status
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
