//! nginx as the origin: it closes connections, serves ranges and revalidations, and logs the requests it receives.

use crate::support::gateway::TestGateway;
use crate::support::nginx::Nginx;
use crate::support::wait::wait_until;

#[test]
fn origin_keepalive_closes_are_invisible_to_clients() {
    let nginx = Nginx::start("");
    let gateway = TestGateway::with_rules(
        nginx.address,
        "quotas: { api: { limit: 1000, window: { fixed: 24h } } }\nroutes: [ { match: /page, cost: { api: 1 } } ]",
    );
    let mut client = gateway.connect();
    for _ in 0..30 {
        let response = client.get("/page", "");
        assert_eq!((response.status, response.body.len()), (200, 1 << 20));
    }
    let tag = client.get("/page", "").field("etag").to_owned();
    assert_eq!(client.get("/page", &format!("If-None-Match: {tag}\r\n")).status, 304);
    let partial = client.get("/page", "Range: bytes=10-19\r\n");
    assert_eq!((partial.status, partial.body.len(), partial.field("content-range")), (206, 10, "bytes 10-19/1048576"));
    client.send("HEAD /page HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response_to("HEAD").field("content-length"), "1048576");
    assert_eq!(client.get("/missing", "").status, 404);
    assert_eq!(gateway.counters(), (34.0, 0.0));
    // nginx logs a request after it has sent the response, which the client may have read before.
    wait_until("nginx to have logged all page requests", || nginx.logged_page_requests() == 34);
}
