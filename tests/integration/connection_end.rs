//! The end of a connection: its last response announces it, whoever made the response and whatever ends the connection.

use crate::support::client::Client;
use crate::support::frames::{Frame, GOAWAY, Http2Client};
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::wait::wait_until;
use std::net::TcpStream;

const RULES: &str = "
limits: { max_requests_per_connection: 3, drain_timeout: 10h }
cache: {}
crawl_policy: on
quotas: { api: { limit: 1, window: { fixed: 1h } } }
classes:
  - { name: bad, when: { user_agent: BadBot }, block: true }
  - { name: busy, when: { user_agent: Busy }, bucket: { capacity: 1, fill: 1, interval: 1h } }
routes:
  - { match: \"/item/*\", cost: { api: 1 } }
  - { match: /old, redirect: /new }
  - { match: \"/**\" }
";

const PERSON: &str = "Person";

/// Maker of a response, with a request that gets it, and its status.
const RESPONSES: [(&str, &str, &str, u16); 10] = [
    ("origin", "/free", PERSON, 200),
    ("stored response", "/stored", PERSON, 200),
    ("robots.txt", "/robots.txt", PERSON, 200),
    ("crawl policy", "/.well-known/crawl-policy", PERSON, 200),
    ("redirect", "/old", PERSON, 301),
    ("block", "/free", "BadBot", 429),
    ("bucket", "/free", "Busy", 429),
    ("spent quota", "/item/2", PERSON, 429),
    ("invalid path", "/a%2fb", PERSON, 400),
    ("failed origin", "/fail", PERSON, 502),
];

/// Starts a gateway that has a stored response, a spent quota and an empty bucket.
fn start() -> (Origin, TestGateway) {
    let origin = Origin::with_script(|request, connection| match request.target.as_str() {
        "/fail" => connection.close(),
        "/stored" => connection.reply("200 OK", "Cache-Control: max-age=600\r\n", b"hello"),
        _ => connection.reply("200 OK", "Cache-Control: no-store\r\n", b"hello"),
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    for (path, agent) in [("/stored", PERSON), ("/item/1", PERSON), ("/free", "Busy")] {
        assert_eq!(get(&mut gateway.connect(), path, agent, ""), (200, String::new()), "{path}");
    }
    (origin, gateway)
}

/// Returns the status and the Connection field of the response.
fn get(client: &mut Client, path: &str, agent: &str, fields: &str) -> (u16, String) {
    let response = client.get(path, &format!("User-Agent: {agent}\r\n{fields}"));
    (response.status, response.field("connection").to_owned())
}

#[test]
fn last_response_announces_the_end_whoever_made_it() {
    let (_origin, gateway) = start();
    let closing = |status| (status, "close".to_owned());
    for (maker, path, agent, status) in RESPONSES {
        let mut client = gateway.connect();
        for _ in 0..2 {
            assert_eq!(get(&mut client, path, agent, ""), (status, String::new()), "{maker}");
        }
        assert_eq!(get(&mut client, path, agent, ""), closing(status), "{maker}: request limit");
        assert!(client.is_closed(), "{maker}: request limit");

        let mut client = gateway.connect();
        assert_eq!(get(&mut client, path, agent, "Connection: close\r\n"), closing(status), "{maker}: by the client");
        assert!(client.is_closed(), "{maker}: by the client");

        let mut client = gateway.connect();
        client.send(format!("GET {path} HTTP/1.0\r\nHost: example.com\r\nUser-Agent: {agent}\r\n\r\n"));
        let response = client.read_response();
        assert_eq!((response.status, response.field("connection")), (status, "close"), "{maker}: HTTP/1.0");
        assert!(client.is_closed(), "{maker}: HTTP/1.0");
    }
}

#[test]
fn response_to_a_body_that_is_not_read_announces_the_end() {
    let (_origin, gateway) = start();
    for (maker, path, agent, _) in RESPONSES.iter().filter(|(_, path, agent, _)| *agent != PERSON || *path == "/a%2fb")
    {
        for framing in ["Content-Length: 900000", "Transfer-Encoding: chunked"] {
            let mut client = gateway.connect();
            client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\n{framing}\r\n\r\n5\r\nhe"));
            let response = client.read_response();
            assert_eq!(response.field("connection"), "close", "{maker}, {framing}: {}", response.status);
        }
    }
}

#[test]
fn last_response_while_the_gateway_drains_announces_the_end() {
    let (_origin, gateway) = start();
    let address = gateway.addresses()[0];
    let mut clients = RESPONSES.map(|_| gateway.connect());
    for client in &mut clients {
        assert_eq!(get(client, "/free", PERSON, ""), (200, String::new()));
    }
    let shutdown = std::thread::spawn(move || gateway.shut_down());
    wait_until("all listeners to be closed", || TcpStream::connect(address).is_err());
    for (client, (maker, path, agent, status)) in clients.iter_mut().zip(RESPONSES) {
        assert_eq!(get(client, path, agent, ""), (status, "close".to_owned()), "{maker}");
        assert!(client.is_closed(), "{maker}");
    }
    shutdown.join().expect("gateway stops");
}

#[test]
fn http2_connection_announces_its_end_whoever_made_the_last_response() {
    let (_origin, gateway) = start();
    for (maker, path, agent, _) in RESPONSES {
        let mut client = Http2Client::connect(gateway.address());
        for stream in [1, 3] {
            client.get_path(stream, path, agent);
            let is_end = |frame: &Frame| frame.stream == stream && frame.flags & 1 == 1;
            client.wait_for_frame(|frame| {
                assert_ne!(frame.kind, GOAWAY, "{maker}: before the last request");
                is_end(frame)
            });
        }
        client.get_path(5, path, agent);
        client.wait_for_frame(|frame| frame.kind == GOAWAY);
    }
}
