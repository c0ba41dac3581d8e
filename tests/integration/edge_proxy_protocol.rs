//! The PROXY protocol: who may send a header, what it changes, and what closes a connection.

use crate::support::client::Client;
use crate::support::gateway::TestGateway;
use crate::support::nginx::Nginx;
use crate::support::origin::Origin;
use crate::support::tls::{Certificates, try_connect};
use crate::support::wait::wait_until;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

const LISTEN: &str = "listen: [127.0.0.1:0, { address: '127.0.0.1:0', proxy_protocol: true }]\nworkers: 1\n";
const FROM_HEADER: &str = "clients: { address_from: proxy-protocol, trusted_proxies: [127.0.0.0/8] }";
const TEXT_HEADER: &[u8] = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n";
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const GET: &[u8] = b"GET /item HTTP/1.1\r\nHost: example.com\r\n\r\n";

fn start(origin: &Origin, rules: &str) -> TestGateway {
    TestGateway::with_rules(origin.address(), &format!("{LISTEN}{rules}"))
}

/// Opens a connection to the listener with the PROXY protocol.
fn connect(gateway: &TestGateway) -> Client {
    Client::connect(gateway.addresses()[1])
}

fn binary_header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    [SIGNATURE, &[command, family], &(rest.len() as u16).to_be_bytes(), rest].concat()
}

#[test]
fn client_is_the_source_in_the_header() {
    let v4 = [192, 0, 2, 2, 198, 51, 100, 1, 0xdc, 0x04, 0, 80];
    let v6 =
        [&[0x20, 1, 0xd, 0xb8][..], &[0; 11], &[1], &[0x20, 1, 0xd, 0xb8], &[0; 11], &[2], &[1, 2, 0, 80]].concat();
    let origin = Origin::plain();
    let gateway = start(&origin, FROM_HEADER);
    for (header, client) in [
        (TEXT_HEADER.to_vec(), "192.0.2.1"),
        (b"PROXY TCP6 2001:db8::9 2001:db8::2 1 2\r\n".to_vec(), "2001:db8::9"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1"),
        (binary_header(0x21, 0x11, &v4), "192.0.2.2"),
        (binary_header(0x21, 0x11, &[&v4[..], &[4, 0, 3, 1, 2, 3]].concat()), "192.0.2.2"),
        (binary_header(0x21, 0x21, &v6), "2001:db8::1"),
        (binary_header(0x20, 0x00, b""), "127.0.0.1"),
        (binary_header(0x20, 0x11, &v4), "127.0.0.1"),
    ] {
        let whole = [&header[..], GET].concat();
        assert_eq!(connect(&gateway).send(whole).read_response().status, 200, "{client}");
        assert_eq!(origin.last_request().field("x-forwarded-for"), client);
        let mut trickling = connect(&gateway);
        header.iter().chain(GET).for_each(|byte| {
            trickling.send([*byte]);
        });
        assert_eq!(trickling.read_response().status, 200, "{client}");
        assert_eq!(origin.last_request().field("x-forwarded-for"), client, "byte by byte");
    }
    let clients: Vec<_> = gateway.read_log().iter().map(|line| line["client"].clone()).collect();
    assert_eq!(clients[..2], ["192.0.2.1", "192.0.2.1"]);
}

#[test]
fn header_comes_before_the_tls_handshake() {
    let (certificates, origin) = (Certificates::new(), Origin::plain());
    let pair = certificates.issue("site", &["example.com"]);
    let listen = format!("listen: {{ address: '127.0.0.1:0', proxy_protocol: true, tls: {{ {pair} }} }}\n");
    let gateway = TestGateway::with_rules(origin.address(), &format!("{listen}{FROM_HEADER}"));
    let mut stream = TcpStream::connect(gateway.address()).expect("gateway listens");
    stream.write_all(TEXT_HEADER).expect("gateway reads");
    let mut client = try_connect(stream, "example.com", &Arc::new(certificates.client_config())).expect("handshake");
    assert_eq!(client.get("/item", "").status, 200);
    let request = origin.last_request();
    assert_eq!((request.field("x-forwarded-for"), request.field("x-forwarded-proto")), ("192.0.2.1", "https"));
    let stream = TcpStream::connect(gateway.address()).expect("gateway listens");
    assert!(try_connect(stream, "example.com", &Arc::new(certificates.client_config())).is_err(), "no header");
}

#[test]
fn fields_of_the_client_are_not_those_of_its_proxy() {
    let origin = Origin::plain();
    let gateway = start(&origin, FROM_HEADER);
    let spoofed = "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil.com\r\n";
    let mut client = connect(&gateway);
    client.send(TEXT_HEADER);
    assert_eq!(client.get("/item", spoofed).status, 200);
    let request = origin.last_request();
    let fields = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"].map(|name| request.field(name));
    assert_eq!(fields, ["192.0.2.1", "http", "example.com"]);
}

#[test]
fn address_in_the_header_may_be_that_of_a_trusted_http_proxy() {
    let origin = Origin::plain();
    let rules = "clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8, 192.0.2.1] }";
    let gateway = start(&origin, rules);
    let mut client = connect(&gateway);
    client.send(TEXT_HEADER);
    assert_eq!(client.get("/item", "X-Forwarded-For: 203.0.113.9\r\n").status, 200);
    assert_eq!(origin.last_request().field("x-forwarded-for"), "203.0.113.9, 192.0.2.1");
}

#[test]
fn untrusted_peer_is_closed_whatever_it_sends() {
    let origin = Origin::plain();
    let gateway = start(&origin, "clients: { address_from: proxy-protocol, trusted_proxies: [10.0.0.0/8] }");
    let mut client = connect(&gateway);
    client.try_send([TEXT_HEADER, GET].concat());
    assert!(client.is_closed());
    assert_eq!(gateway.connect().get("/item", "").status, 200, "the other listener needs no header");
    assert_eq!(origin.received_requests().len(), 1);
}

#[test]
fn invalid_missing_and_oversized_headers_close_the_connection() {
    let origin = Origin::plain();
    let gateway = start(&origin, FROM_HEADER);
    let long_text = [b"PROXY UNKNOWN ", &[b'a'; 200][..], b"\r\n"].concat();
    for sent in [
        GET,
        b"PROXY TCP4 192.0.2.1 198.51.100.1 1\r\n\r\n",
        b"PROXY TCP4 localhost 198.51.100.1 1 2\r\n",
        b"PROXY\r\n 192.0.2.1",
        &long_text,
        &binary_header(0x21, 0x11, &[0; 5]),
        &binary_header(0x21, 0x12, &[0; 12]),
        &binary_header(0x31, 0x11, &[0; 12]),
        &binary_header(0x21, 0x11, &vec![0; 65535])[..16],
    ] {
        let mut client = connect(&gateway);
        client.try_send(sent);
        assert!(client.is_closed(), "{}", String::from_utf8_lossy(sent));
    }
    assert!(origin.received_requests().is_empty());
}

#[test]
fn header_that_never_ends_is_closed_at_its_timeout() {
    let origin = Origin::plain();
    let rules = format!("limits: {{ proxy_header_timeout: 5s, first_byte_timeout: 1s }}\n{FROM_HEADER}");
    let gateway = start(&origin, &rules);
    let mut slow = connect(&gateway);
    slow.send("PROXY TCP4 ");
    gateway.advance_and_sweep(Duration::from_secs(4));
    slow.send("192.0.2.1 198.51.100.1 1 2\r\n").send(GET);
    assert_eq!(slow.read_response().status, 200, "it is in time");

    for first_bytes in [&b""[..], b"PROXY TCP4 192.0.2.1", SIGNATURE] {
        let mut stream = TcpStream::connect(gateway.addresses()[1]).expect("gateway listens");
        stream.write_all(first_bytes).expect("gateway reads");
        stream.set_nonblocking(true).expect("socket option can be set");
        wait_until("the gateway to close the connection", || {
            gateway.clock.advance(Duration::from_secs(1));
            match stream.read(&mut [0; 64]) {
                Ok(length) => length == 0,
                Err(error) => error.kind() != ErrorKind::WouldBlock,
            }
        });
    }
}

#[test]
fn connections_per_address_are_those_of_the_clients() {
    let origin = Origin::plain();
    let gateway = start(&origin, &format!("limits: {{ max_connections_per_address: 1 }}\n{FROM_HEADER}"));
    let mut first = connect(&gateway);
    assert_eq!(first.send(TEXT_HEADER).send(GET).read_response().status, 200);
    let mut second = connect(&gateway);
    second.try_send([TEXT_HEADER, GET].concat());
    assert!(second.is_closed(), "the client has a connection");
    let mut other = connect(&gateway);
    other.send("PROXY TCP4 192.0.2.7 198.51.100.1 1 2\r\n").send(GET);
    assert_eq!(other.read_response().status, 200, "another client of the same proxy");
}

#[test]
fn connections_per_address_have_a_default() {
    const DEFAULT: usize = 512;
    let origin = Origin::plain();
    let gateway = start(&origin, FROM_HEADER);
    let connect_client = |header: &str| {
        let mut client = connect(&gateway);
        client.try_send([header.as_bytes(), GET].concat());
        client
    };
    let text_header = std::str::from_utf8(TEXT_HEADER).expect("text");
    let open = (0..DEFAULT).map(|_| {
        let mut client = connect_client(text_header);
        assert_eq!(client.read_response().status, 200);
        client
    });
    let open: Vec<Client> = open.collect();
    assert!(connect_client(text_header).is_closed(), "the client has {} connections", open.len());
    let mut other = connect_client("PROXY TCP4 192.0.2.7 198.51.100.1 1 2\r\n");
    assert_eq!(other.read_response().status, 200);
    let of_machine = (0..DEFAULT + 1).map(|_| {
        let mut client = connect_client("PROXY UNKNOWN\r\n");
        assert_eq!(client.read_response().status, 200, "many clients have the address of a proxy");
        client
    });
    assert_eq!(of_machine.collect::<Vec<_>>().len(), DEFAULT + 1);
}

/// nginx, whose connections serve three requests, closes one that does not begin with a header.
#[test]
fn origin_is_told_the_client_of_each_connection() {
    let certificates = Certificates::new();
    certificates.issue("server", &["site.internal"]);
    let [plain, tls] = [(); 2].map(|()| Origin::free_address());
    let nginx = Nginx::start(&format!(
        "listen {plain} proxy_protocol; listen {tls} ssl proxy_protocol; ssl_certificate {}; ssl_certificate_key {};\n\
         add_header X-Client '$proxy_protocol_addr $proxy_protocol_server_port';",
        certificates.path("server.pem").display(),
        certificates.path("server.key").display()
    ));
    let ca = format!("ca: {}, server_name: site.internal", certificates.path("ca.pem").display());
    for version in ["v1", "v2"] {
        for (url, keys) in [(format!("http://{plain}"), ""), (format!("https://{tls}"), &*ca)] {
            let rules = format!("{LISTEN}{FROM_HEADER}\norigin: {{ url: '{url}', proxy_protocol: {version}, {keys} }}");
            let gateway = TestGateway::with_rules(nginx.address, &rules);
            let mut clients = ["192.0.2.1", "192.0.2.2", "2001:db8::9"].map(|address| {
                let family = if address.contains(':') { "TCP6 2001:db8::9 ::" } else { "TCP4 ADDRESS 0.0.0.0" };
                let mut client = connect(&gateway);
                client.send(format!("PROXY {} 1 2\r\n", family.replace("ADDRESS", address)));
                (address, client)
            });
            let port = gateway.addresses()[1].port();
            for _ in 0..5 {
                for (address, client) in &mut clients {
                    let response = client.get("/page", "");
                    assert_eq!(response.status, 200, "{url} {version}");
                    assert_eq!(response.field("x-client"), format!("{address} {port}"), "{url} {version}");
                }
            }
        }
    }
}

#[test]
fn clients_with_connections_of_their_own_do_not_exhaust_the_pool() {
    let origin = Origin::free_address();
    let nginx = Nginx::start(&format!("listen {origin} proxy_protocol; add_header X-Client $proxy_protocol_addr;"));
    let rules =
        format!("{LISTEN}{FROM_HEADER}\norigin: {{ url: 'http://{origin}', proxy_protocol: v2, max_connections: 2 }}");
    let gateway = TestGateway::with_rules(nginx.address, &rules);
    for number in 1..=20 {
        let mut client = connect(&gateway);
        client.send(format!("PROXY TCP4 192.0.2.{number} 0.0.0.0 1 2\r\n"));
        assert_eq!(client.get("/page", "").field("x-client"), format!("192.0.2.{number}"));
    }
}

/// Starts nginx with the PROXY protocol, whose responses may be stored, and says which client it was told.
fn start_cached(rules: &str) -> (Nginx, TestGateway) {
    let origin = Origin::free_address();
    let nginx = Nginx::start(&format!(
        "listen {origin} proxy_protocol; \
         add_header Cache-Control \"public, max-age=31536000\" always; add_header X-Client \"<$proxy_protocol_addr>\" always; \
         location = /small {{ return 200 page; }} location = /inside {{ \
         if ($proxy_protocol_addr !~ \"^10[.]\") {{ return 403; }} return 200 page; }}"
    ));
    let rules = format!(
        "workers: 1\ncache: {{ disk: off }}\nclients: {{ address_from: x-forwarded-for, trusted_proxies: [127.0.0.1/32] }}\n\
         origin: {{ url: 'http://{origin}', proxy_protocol: v1 }}\n{rules}"
    );
    let gateway = TestGateway::with_rules(nginx.address, &rules);
    (nginx, gateway)
}

fn client_told(gateway: &TestGateway, address: &str, fields: &str) -> (String, bool) {
    let response = gateway.connect().get("/small", &format!("X-Forwarded-For: {address}\r\n{fields}"));
    assert_eq!(response.status, 200);
    (response.field("x-client").to_owned(), response.field("cache-status").contains("hit"))
}

#[test]
fn response_that_is_stored_for_all_is_made_for_no_client() {
    let (_nginx, gateway) = start_cached("routes: [{ match: /** }]");
    assert_eq!(client_told(&gateway, "10.1.2.3", ""), ("<>".into(), false));
    assert_eq!(client_told(&gateway, "203.0.113.9", ""), ("<>".into(), true));
}

/// The origin serves networks that begin with 10 only.
#[test]
fn refusal_of_a_fetch_without_a_client_is_not_that_of_all_clients() {
    let (_nginx, gateway) = start_cached("routes: [{ match: /** }]");
    for (address, status) in [("203.0.113.9", 403), ("10.1.2.3", 200), ("203.0.113.9", 403), ("10.1.2.4", 200)] {
        let response = gateway.connect().get("/inside", &format!("X-Forwarded-For: {address}\r\n"));
        assert_eq!(response.status, status, "{address}");
        assert!(!response.field("cache-status").contains("hit"), "{address}");
    }
}

#[test]
fn personal_response_is_made_for_its_client_and_not_stored() {
    let (_nginx, gateway) = start_cached("routes: [{ match: /** }]");
    for fields in ["Authorization: Basic YTpi\r\n", "Cookie: a=1\r\n"] {
        assert_eq!(client_told(&gateway, "10.1.2.3", fields), ("<10.1.2.3>".into(), false), "{fields}");
        assert_eq!(client_told(&gateway, "10.1.2.4", fields), ("<10.1.2.4>".into(), false), "{fields}");
    }
    assert_eq!(client_told(&gateway, "203.0.113.9", ""), ("<>".into(), false));
}

#[test]
fn response_with_the_address_in_its_key_is_made_for_it() {
    let (_nginx, gateway) = start_cached("routes: [{ match: /**, cache: { key: { headers: [x-forwarded-for] } } }]");
    for is_hit in [false, true] {
        for address in ["10.1.2.3", "203.0.113.9"] {
            assert_eq!(client_told(&gateway, address, ""), (format!("<{address}>"), is_hit));
        }
    }
    // What a client claims is not what the proxy says.
    assert_eq!(client_told(&gateway, "10.1.2.3, 203.0.113.66", ""), ("<203.0.113.66>".into(), false));
}

#[test]
fn response_for_a_route_without_a_cache_is_made_for_its_client() {
    let (_nginx, gateway) = start_cached("routes: [{ match: /**, cache: off }]");
    assert_eq!(client_told(&gateway, "10.1.2.3", "").0, "<10.1.2.3>");
}

#[test]
fn client_without_an_address_is_refused() {
    let origin = Origin::plain();
    let gateway = start(&origin, FROM_HEADER);
    for header in ["PROXY TCP4 0.0.0.0 198.51.100.1 1 2\r\n", "PROXY TCP6 :: 2001:db8::2 1 2\r\n"] {
        let mut client = connect(&gateway);
        client.send(header);
        assert!(client.is_closed(), "{header}");
    }
}
