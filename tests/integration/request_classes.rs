//! Classes by what is requested: path, host and method.

use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;

const RULES: &str = "
paths: lenient
quotas: { api: { limit: 2, window: { fixed: 24h } } }
classes:
  - { name: feed, when: { path: ['/feed/**'], method: GET } }
  - { name: partner, when: { host: api.example.com } }
  - { name: other, block: true }
routes: [{ match: '/item/*', cost: { api: 1 } }]
";

#[test]
fn path_host_and_method_choose_the_class() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut client = gateway.connect();
    let mut status = |method: &str, path: &str, host: &str| {
        client
            .send(format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n"))
            .read_response()
            .status
    };
    for (method, path, host, expected, class) in [
        ("GET", "/feed/atom", "example.com", 200, "feed"),
        ("GET", "/Feed/atom", "example.com", 429, "other"),
        ("POST", "/feed/atom", "example.com", 429, "other"),
        ("GET", "/item/1", "api.example.com:80", 200, "partner"),
        ("GET", "/item/1", "example.com", 429, "other"),
        // Origins read these as another page.
        ("GET", "/feed/..%2fitem/1", "example.com", 429, "other"),
        ("GET", "/feed/%2e%2e/item/1", "example.com", 429, "other"),
        ("GET", "/feed/..;/item/1", "example.com", 429, "other"),
        ("GET", "/feed/x/../../item/1", "example.com", 429, "other"),
    ] {
        assert_eq!(status(method, path, host), expected, "{method} {host}{path}: {class}");
    }
    drop(client);
    let classes: Vec<String> = gateway.read_log().iter().map(|line| line["class"].to_string()).collect();
    assert_eq!((&*classes[0], &*classes[3], &*classes[4]), ("\"feed\"", "\"partner\"", "\"other\""), "{classes:?}");
}
