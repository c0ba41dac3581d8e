//! Requests for hosts of other sites: which are rejected, and that a rejected request has no effect.

use crate::support::gateway::TestGateway;
use crate::support::http2_statuses;
use crate::support::origin::Origin;

const RULES: &str = "
hosts: [example.com, \"*.shop.example\", \"[2001:db8::1]\"]
quotas: { api: { limit: 100, window: { fixed: 24h } } }
routes: [{ match: /**, cost: { api: 1 } }]
";

/// Hosts of other sites that resemble own ones.
const FOREIGN_HOSTS: [&str; 17] = [
    "evil.com",
    "example.com.evil.com",
    "example.com..",
    "evilexample.com",
    "www.example.com",
    "example.co",
    "example.com,evil.com",
    "shop.example",
    "evilshop.example",
    ".shop.example",
    "a..shop.example",
    "evil.com,.shop.example",
    "a.shop.example.evil.com",
    "[2001:db8::2]",
    "[::ffff:192.0.2.1]",
    "127.0.0.1",
    "localhost:8080",
];

/// Spellings of own hosts.
const OWN_HOSTS: [&str; 9] = [
    "example.com",
    "EXAMPLE.Com",
    "example.com.",
    "example.com:8443",
    "Example.com.:80",
    "a.shop.example",
    "a.b.Shop.Example.:81",
    "[2001:DB8::1]",
    "[2001:db8:0:0::1]:8080",
];

fn get(gateway: &TestGateway, target: &str, fields: &str) -> u16 {
    gateway.connect().send(format!("GET {target} HTTP/1.1\r\n{fields}\r\n")).read_response().status
}

#[test]
fn foreign_hosts_are_rejected_before_anything_is_counted() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    for host in FOREIGN_HOSTS {
        for target in ["/item", "/robots.txt", "/.well-known/crawl-policy"] {
            let head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let response = gateway.connect().send(head).read_response();
            assert_eq!(response.status, 421, "{host}");
            assert_eq!(response.json()["title"], "Misdirected Request");
        }
    }
    for host in [
        "",
        "example.com:80.evil.com",
        "example.com:evil",
        "user@example.com",
        "example.com/evil",
        "exam ple.com",
        "example%2ecom",
        "example.com\r\nHost: evil.com",
    ] {
        assert_eq!(get(&gateway, "/", &format!("Host: {host}\r\n")), 400, "{host:?}");
    }
    assert_eq!(get(&gateway, "/", ""), 400, "HTTP/1.1 requires a host");
    let mut client = gateway.connect();
    client.send("HEAD / HTTP/1.1\r\nHost: evil.com\r\n\r\n");
    assert_eq!(client.response_to("HEAD").status, 421);
    client.send("POST / HTTP/1.1\r\nHost: evil.com\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!(client.read_response().status, 421);
    assert_eq!(client.get("/", "").status, 200, "the connection stays usable");
    assert_eq!(gateway.counters(), (1.0, 0.0));
    let rejected = (FOREIGN_HOSTS.len() * 3 + 11) as f64;
    assert_eq!(gateway.metric("tidegate_responses_total{class=\"\",code=\"4xx\"}"), rejected);
    assert_eq!(origin.received_requests().len(), 1);
    let log = gateway.read_whole_log();
    let (admitted, others): (Vec<_>, Vec<_>) = log.iter().partition(|line| line["verdict"] == "admitted");
    assert_eq!(admitted.len(), 1);
    let count = |status: u16, problem: &str| {
        let is_such = |line: &&&serde_json::Value| {
            line["status"] == status && line["problem"].as_str().is_some_and(|text| text.contains(problem))
        };
        others.iter().filter(is_such).count()
    };
    assert!(others.iter().all(|line| line["verdict"] == "rejected"), "{others:?}");
    assert_eq!((count(421, "host"), count(400, "host")), (FOREIGN_HOSTS.len() * 3 + 2, 9));
}

#[test]
fn own_hosts_are_served_in_every_spelling() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    for host in OWN_HOSTS {
        assert_eq!(get(&gateway, "/", &format!("Host: {host}\r\n")), 200, "{host}");
        assert_eq!(origin.last_request().fields["host"], host, "the origin is sent the host of the client");
    }
}

#[test]
fn request_without_a_host_needs_a_site_without_own_hosts() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let status = || gateway.connect().send("GET / HTTP/1.0\r\n\r\n").read_response().status;
    assert_eq!(status(), 421);
    gateway.reload(origin.address(), "").expect("valid rules");
    assert_eq!(status(), 200);
}

#[test]
fn host_of_an_absolute_target_counts() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    for target in ["http://evil.com/", "http://example.com.evil.com/"] {
        assert_eq!(get(&gateway, target, "Host: example.com\r\n"), 421, "{target}");
    }
    assert_eq!(get(&gateway, "http://example.com:80.evil.com/", "Host: example.com\r\n"), 400);
    assert_eq!(get(&gateway, "http://example.com@evil.com/", "Host: example.com\r\n"), 400);
    assert!(origin.received_requests().is_empty());
    assert_eq!(get(&gateway, "http://EXAMPLE.com./", "Host: evil.com\r\n"), 200);
    assert_eq!(origin.last_request().fields["host"], "EXAMPLE.com.");
}

#[test]
fn authority_of_http2_counts() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let statuses = http2_statuses(gateway.address(), |_| {
        let request = |uri: &str, host: Option<&str>| {
            let builder = http::Request::builder().uri(uri);
            let builder = host.into_iter().fold(builder, |builder, host| builder.header("host", host));
            builder.body(()).expect("a request")
        };
        vec![
            request("http://example.com/", None),
            request("http://EXAMPLE.com.:81/", None),
            request("http://evil.com/", None),
            request("http://evil.com/", Some("example.com")),
            request("http://example.com/", Some("evil.com")),
            request("http://[2001:db8::2]/", None),
        ]
    });
    assert_eq!(statuses, [200, 200, 421, 400, 400, 421]);
    assert_eq!(origin.received_requests().len(), 2);
}

#[test]
fn forwarded_host_makes_no_host_an_own_one() {
    let origin = Origin::plain();
    let trusted = TestGateway::with_rules(origin.address(), RULES);
    let untrusted = format!("{RULES}clients: {{ address_from: x-forwarded-for, trusted_proxies: [10.0.0.0/8] }}\n");
    let untrusted = TestGateway::with_rules(origin.address(), &untrusted);
    let spoofed = "X-Forwarded-Host: example.com\r\nForwarded: host=example.com\r\nX_Forwarded_Host: example.com\r\n";
    for gateway in [&trusted, &untrusted] {
        assert_eq!(get(gateway, "/", &format!("Host: evil.com\r\n{spoofed}")), 421);
    }
    assert!(origin.received_requests().is_empty());
    assert_eq!(get(&untrusted, "/", "Host: example.com\r\nX-Forwarded-Host: evil.com\r\n"), 200);
    assert_eq!(origin.last_request().fields["x-forwarded-host"], "example.com");
}

#[test]
fn reload_applies_own_hosts_to_open_connections() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), "");
    let mut client = gateway.connect();
    assert_eq!(client.get("/", "").status, 200);
    gateway.reload(origin.address(), "hosts: other.example").expect("valid rules");
    assert_eq!(client.get("/", "").status, 421);
    let error = gateway.reload(origin.address(), "hosts: [other.example, \"*\"]").expect_err("invalid pattern");
    assert!(error.contains("hosts[1]: found \"*\", needs a host; write example.com"), "{error}");
    assert_eq!(client.get("/", "").status, 421, "the last valid hosts stay in effect");
    gateway.reload(origin.address(), "hosts: [other.example, example.com]").expect("valid rules");
    assert_eq!(client.get("/", "").status, 200);
}
