//! Redirects by route: where they lead, that no client changes the host, and that they cost and occupy nothing.

use crate::support::client::Client;
use crate::support::gateway::TestGateway;
use crate::support::http2_responses;
use crate::support::origin::Origin;

const RULES: &str = "
quotas: { api: { limit: 10, window: { fixed: 1h } } }
scopes: { default: { concurrency: 1, queue: { max_wait: 0s }, quota: { limit: 5, window: { fixed: 1h } } } }
classes:
  - { name: blocked, when: { user_agent: blocked }, block: true }
  - { name: slow, when: { user_agent: slow }, bucket: { capacity: 1, fill: 1, interval: 1h } }
routes:
  - { match: /old, redirect: /new }
  - { match: \"/shop/**\", redirect: { to: \"https://shop.example/{rest}\", status: 307 }, response_headers: { set: { X-Frame-Options: DENY, Cache-Control: public } } }
  - { match: \"/root/**\", redirect: \"/{rest}\" }
  - { match: /plain, redirect: { to: \"/new?\", status: 302 } }
  - { match: /form, method: POST, redirect: { to: /form, status: 303 } }
  - { match: \"/**\" }
";

fn location(client: &mut Client, path: &str) -> (u16, String) {
    let response = client.get(path, "");
    (response.status, response.field("location").to_owned())
}

#[test]
fn redirect_leads_to_its_target_with_rest_and_query() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut client = gateway.connect();
    for (path, status, expected) in [
        ("/old", 301, "/new"),
        ("/old?a=b&c", 301, "/new?a=b&c"),
        ("/shop", 307, "https://shop.example/"),
        ("/shop/a%20b/c?d=%26", 307, "https://shop.example/a%20b/c?d=%26"),
        ("/shop/a/../b", 307, "https://shop.example/b"),
        ("/root/a/", 301, "/a/"),
        ("/plain?a=b", 302, "/new?"),
    ] {
        assert_eq!(location(&mut client, path), (status, expected.to_owned()), "{path}");
    }
    client.send("POST /old HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    let posted = client.read_response();
    assert_eq!((posted.status, posted.field("location")), (308, "/new"), "method and body are kept");
    client.send("POST /form HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.read_response().status, 303);
    client.send("HEAD /old HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response_to("HEAD").field("location"), "/new");
    let redirected = client.get("/shop/a", "");
    assert_eq!((redirected.field("cache-control"), redirected.field("x-frame-options")), ("no-store", "DENY"));
    assert_eq!((redirected.field("x-tidegate-decision").len(), redirected.body.len()), (16, 0));
    let responses =
        http2_responses(gateway.address(), |request| vec![request.uri("http://a/shop//x?y").body(()).expect("valid")]);
    assert_eq!(responses[0].headers()["location"], "https://shop.example/x?y");
    assert_eq!(origin.received_requests().len(), 0);
    assert_eq!(client.get("/form", "").text(), "hello", "another method is not redirected");
}

#[test]
fn client_does_not_change_the_host_of_a_redirect() {
    let origin = Origin::plain();
    for paths in ["strict", "lenient", "raw"] {
        let gateway = TestGateway::with_rules(origin.address(), &format!("paths: {paths}\n{RULES}"));
        for path in [
            "/root//evil.example",
            "/root///evil.example/%2e%2e",
            "/root/%2F/evil.example",
            "/root/%5Cevil.example",
            "/root/%5c%5cevil.example",
            "/root/\\evil.example",
            "/root/\\/evil.example",
            "/root/%09/evil.example",
            "/root/%0d%0aLocation:%20//evil.example",
            "/root/.//evil.example",
            "/root/x/..//evil.example",
            "/root/%2e%2f/evil.example",
            "/root/@evil.example",
            "//root//evil.example",
            "/root/;/evil.example",
            "/root;//evil.example",
            "/x/../root//evil.example",
            "/root/https://evil.example",
            "http://evil.example/root//evil.example",
        ] {
            let response = gateway.connect().get(path, "");
            let location = response.field("location");
            let is_own = location.starts_with('/') && !location[1..].starts_with(['/', '\\']);
            assert!(location.is_empty() || is_own, "{paths} {path}: {response:?}");
            assert!(
                location.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\'),
                "{paths} {path}: {location}"
            );
        }
        for (path, expected) in [("/shop/@evil.example", "@evil.example"), ("/shop//evil.example", "evil.example")] {
            let response = gateway.connect().get(path, "");
            assert_eq!(response.field("location"), format!("https://shop.example/{expected}"), "{paths}");
        }
    }
}

#[test]
fn redirect_costs_nothing_takes_no_slot_and_is_logged() {
    let (origin, arrival, release) = Origin::with_held_responses("/held");
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut holder = gateway.connect();
    holder.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    arrival.wait();
    let mut client = gateway.connect();
    assert_eq!(client.get("/other", "").status, 503, "the only slot is taken");
    let redirected = client.get("/old", "User-Agent: curl/8.0\r\n");
    assert_eq!((redirected.status, redirected.field("ratelimit")), (301, ""));
    assert_eq!(client.get("/old", "User-Agent: blocked\r\n").status, 429);
    assert_eq!(client.get("/old", "User-Agent: slow\r\n").status, 301);
    let limited = client.get("/old", "User-Agent: slow\r\n");
    assert_eq!((limited.status, limited.json()["reason"].as_str()), (429, Some("bucket")));
    release.notify();
    assert_eq!(holder.read_response().status, 200);
    let (status, explanation) =
        gateway.admin_get(&format!("/api/v1/decisions/{}", redirected.field("x-tidegate-decision")));
    assert_eq!(status, 200, "{explanation}");
    let responses = "tidegate_responses_total{class=\"other\",code=\"3xx\"}";
    assert_eq!(gateway.metric(responses), 1.0);
    drop((client, holder));
    let log = gateway.read_log();
    let line = log.iter().find(|line| line["path"] == "/old" && line["status"] == 301).expect("logged");
    assert_eq!(
        (&line["route"], &line["verdict"], &line["charged"]),
        (&"/old".into(), &"admitted".into(), &serde_json::json!({}))
    );
    assert!(line["origin_ms"].is_null(), "{line}");
    assert_eq!(origin.received_requests().len(), 1);
}

#[test]
fn robots_txt_is_not_redirected() {
    let origin = Origin::with_script(|request, connection| match request.target.as_str() {
        "/robots.txt" => connection.reply("200 OK", "Content-Type: text/plain\r\n", b"User-agent: *\nDisallow: /x\n"),
        _ => connection.reply("200 OK", "", b"hello"),
    });
    let rules = "routes: [ { match: \"/**\", redirect: \"https://new.example/{rest}\" } ]";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let mut client = gateway.connect();
    assert_eq!(location(&mut client, "/a/b?c"), (301, "https://new.example/a/b?c".into()));
    let robots = client.get("/robots.txt", "");
    assert!(robots.status == 200 && robots.text().contains("Disallow: /x"), "{robots:?}");
    gateway.reload(origin.address(), "").expect("valid rules");
    assert_eq!(client.get("/a/b?c", "").text(), "hello");
}

#[test]
fn another_proxy_forwards_requests_of_a_route_with_a_redirect() {
    let origin = Origin::plain();
    let rules = format!("forward_auth: {{ listen: \"127.0.0.1:0\" }}\n{RULES}");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let asked =
        "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /old\r\nX-Forwarded-Host: a\r\nX-Forwarded-For: 192.0.2.1\r\n";
    let answer = Client::connect(gateway.forward_auth_address()).get("/", asked);
    assert_eq!((answer.status, answer.field("location")), (200, ""));
}
