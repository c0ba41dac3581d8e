//! Changes of header fields by route: what the origin and clients get, and that neither the decision, the log nor the cache
//! sees them.

use crate::support::client::{Client, Response};
use crate::support::gateway::TestGateway;
use crate::support::http2_responses;
use crate::support::origin::Origin;

/// A page with fields that rules of the tests change.
const PAGE: &str =
    "Cache-Control: max-age=3600\r\nETag: \"1\"\r\nServer: origin\r\nX-Powered-By: php\r\nLink: </a>\r\n";

const RULES: &str = "
cache: { reload: all }
quotas: { api: { limit: 1, window: { fixed: 1h } } }
headers: { retry_after_spread: 0% }
classes: [ { name: blocked, when: { user_agent: blocked }, block: true }, { name: all } ]
user_agent_rules: [ { match: Person, kind: human } ]
routes:
  - match: \"/page/**\"
    request_headers:
      set: { X-Role: public, User-Agent: gateway, Authorization: Basic c2VzYW1l, Accept-Language: de }
      add: { X-Tag: b }
      remove: [Referer, X-Internal]
    response_headers:
      set: { Content-Security-Policy: \"default-src 'self'\", Cache-Control: no-store, X-XSS-Protection: 0 }
      add: { Link: </b>, Vary: X-Seen }
      remove: [Server, x-powered-by]
  - { match: /costly, cost: { api: 1 }, response_headers: { set: { X-Frame-Options: DENY, Cache-Control: public } } }
";

fn origin() -> Origin {
    Origin::with_script(|request, connection| match request.field("if-none-match") {
        "" => connection.reply("200 OK", PAGE, b"page"),
        _ => connection.reply("304 Not Modified", "ETag: \"1\"\r\nCache-Control: max-age=3600\r\n", b""),
    })
}

/// Fields of a response that the rules of `/page/**` change.
fn changed(response: &Response) -> [&str; 6] {
    ["content-security-policy", "cache-control", "x-xss-protection", "link", "vary", "server"]
        .map(|name| response.field(name))
}

const CHANGED: [&str; 6] = ["default-src 'self'", "no-store", "0", "</a>, </b>", "X-Seen", ""];

#[test]
fn origin_gets_the_fields_of_the_rules_alone() {
    let origin = origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let hostile = "User-Agent: Person\r\nReferer: http://a/\r\nX-Tag: a\r\nX-Role: admin\r\nx-role: root\r\nX_Role: admin\r\n\
                   X-Internal: 1\r\nx_internal: 2\r\nAuthorization: Basic aGFja2Vy\r\nConnection: X-Role, X-Tag, Authorization\r\n";
    assert_eq!(gateway.connect().get("/page/1", hostile).status, 200);
    let sent = origin.last_request();
    for (name, value) in [
        ("x-role", "public"),
        ("x_role", ""),
        ("user-agent", "gateway"),
        ("authorization", "Basic c2VzYW1l"),
        ("x-tag", "b"),
        ("referer", ""),
        ("x-internal", ""),
        ("x_internal", ""),
    ] {
        assert_eq!(sent.field(name), value, "{name}: {}", sent.head);
    }
    // Not cached, with a body: nothing is left out for the cache.
    let mut client = gateway.connect();
    client
        .send("POST /page/2 HTTP/1.1\r\nHost: a\r\nX-Tag: a\r\nX-Role: x\r\nContent-Length: 0\r\n\r\n")
        .read_response();
    let sent = origin.last_request();
    assert_eq!((sent.field("x-tag"), sent.field("x-role")), ("a, b", "public"));
    http2_responses(gateway.address(), |request| {
        let request = request.method("POST").uri("http://a/page/3").header("x-role", "admin").header("x_role", "admin");
        vec![request.header("x-tag", "a").body(()).expect("valid")]
    });
    let sent = origin.last_request();
    assert_eq!((sent.field("x-tag"), sent.field("x-role"), sent.field("x_role")), ("a, b", "public", ""));
    client.get("/other", "X-Role: admin\r\n");
    assert_eq!(origin.last_request().field("x-role"), "admin", "another route has no rules");
    drop(client);
    let log = gateway.read_log();
    let line = log.iter().find(|line| line["path"] == "/page/1").expect("logged");
    assert_eq!((&line["user_agent"], &line["referer"]), (&"Person".into(), &"http://a/".into()));
    assert_eq!((&line["kind"], &line["class"]), (&"human".into(), &"all".into()));
}

#[test]
fn client_gets_the_fields_of_the_rules_with_every_response() {
    let origin = origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut client = gateway.connect();
    let first = client.get("/page/1", "");
    assert_eq!((first.status, changed(&first), first.field("x-powered-by")), (200, CHANGED, ""));
    let hit = client.get("/page/1", "");
    assert!(hit.field("cache-status").starts_with("tidegate; hit"), "{hit:?}");
    assert_eq!((hit.status, changed(&hit), hit.text().as_str()), (200, CHANGED, "page"));
    let unchanged = client.get("/page/1", "If-None-Match: \"1\"\r\n");
    assert_eq!((unchanged.status, unchanged.field("content-security-policy")), (304, "default-src 'self'"));
    client.send("HEAD /page/1 HTTP/1.1\r\nHost: example.com\r\n\r\n");
    assert_eq!(changed(&client.response_to("HEAD")), CHANGED);
    let responses = http2_responses(gateway.address(), |request| {
        vec![request.uri("http://example.com/page/1").body(()).expect("valid")]
    });
    assert_eq!(responses[0].headers()["content-security-policy"], "default-src 'self'");
    assert!(!responses[0].headers().contains_key("server"));
    assert_eq!(origin.received_requests().len(), 1);
}

#[test]
fn refusal_has_the_fields_of_the_rules_and_keeps_its_own() {
    let gateway = TestGateway::with_rules(origin().address(), RULES);
    let mut client = gateway.connect();
    let admitted = client.get("/costly", "");
    assert_eq!((admitted.status, admitted.field("cache-control")), (200, "public"));
    let refused = client.get("/costly?other", "");
    assert_eq!((refused.status, refused.field("x-frame-options")), (429, "DENY"));
    assert_eq!((refused.field("cache-control"), refused.field("retry-after")), ("no-store", "3600"));
    let blocked = client.get("/page/1", "User-Agent: blocked\r\n");
    assert_eq!((blocked.status, blocked.field("content-security-policy")), (429, "default-src 'self'"));
    assert_eq!((blocked.field("content-type"), blocked.field("link")), ("application/problem+json", "</b>"));
}

#[test]
fn failure_of_the_origin_and_documents_of_the_gateway_have_the_fields() {
    let rules = "crawl_policy: on\nroutes: [ { match: \"/**\", response_headers: { set: { X-Frame-Options: DENY, ETag: a } } } ]";
    let gateway = TestGateway::with_rules(Origin::unreachable(), rules);
    let mut client = gateway.connect();
    for (path, status) in [("/", 502), ("/robots.txt", 502), ("/.well-known/crawl-policy", 200)] {
        let response = client.get(path, "");
        assert_eq!((response.status, response.field("x-frame-options")), (status, "DENY"), "{path}");
        assert_eq!(response.field("etag") == "a", status == 502, "the gateway keeps its own fields: {path}");
    }
    assert_eq!(client.send("GET /%2F HTTP/1.1\r\nHost: a\r\n\r\n").read_response().field("x-frame-options"), "");
}

#[test]
fn reload_changes_the_fields_of_stored_responses() {
    let origin = origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    assert_eq!(changed(&gateway.connect().get("/page/1", "")), CHANGED);
    gateway.reload(origin.address(), "cache: {}\nroutes: [ { match: \"/page/**\" } ]").expect("valid rules");
    let hit = gateway.connect().get("/page/1", "");
    assert!(hit.field("cache-status").starts_with("tidegate; hit"), "{hit:?}");
    assert_eq!(changed(&hit), ["", "max-age=3600", "", "</a>", "", "origin"], "stored as the origin sent it");
    assert_eq!(origin.received_requests().len(), 1);
}

#[test]
fn rules_select_no_stored_response() {
    let origin = Origin::with_script(|request, connection| {
        let fields = "Cache-Control: max-age=3600\r\nVary: Accept-Language\r\n";
        connection.reply("200 OK", fields, request.field("accept-language").as_bytes());
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let get = |fields: &str| {
        let response = gateway.connect().get("/page/1", fields);
        (response.text(), response.field("cache-status").starts_with("tidegate; hit"))
    };
    let german = |is_hit| ("de".to_owned(), is_hit);
    assert_eq!(get("Accept-Language: en\r\n"), german(false), "what the rule sets is what the origin sees");
    // A fetch sends Accept-Language of clients once a response has named it.
    assert_eq!(get("Accept-Language: en\r\n"), german(false));
    assert_eq!(get("Accept-Language: en\r\n"), german(true));
    assert_eq!(get("Accept-Language: fr\r\n"), german(false), "Vary selects by what the client sent");
    assert_eq!(get("Accept-Language: de\r\n"), german(false), "what the rule sets is not what clients sent");
    // A credential of the client keeps its response from others; one of the rule does not.
    let private = gateway.connect().get("/page/2", "Authorization: Basic aGFja2Vy\r\n");
    assert!(private.field("cache-status").ends_with("fwd=uri-miss; detail=authorization"), "{private:?}");
}

#[test]
fn answers_for_other_proxies_have_no_fields_of_rules() {
    let rules = format!("forward_auth: {{ listen: \"127.0.0.1:0\" }}\n{RULES}");
    let gateway = TestGateway::with_rules(origin().address(), &rules);
    let asked = "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /page/1\r\nX-Forwarded-Host: example.com\r\n\
                 X-Forwarded-For: 192.0.2.1\r\n";
    let mut client = Client::connect(gateway.forward_auth_address());
    for (fields, status) in [("", 200), ("User-Agent: blocked\r\n", 429)] {
        let answer = client.get("/", &format!("{asked}{fields}"));
        assert_eq!((answer.status, answer.field("content-security-policy")), (status, ""), "{answer:?}");
    }
}

#[test]
fn upgrade_passes_with_rules() {
    let origin = Origin::with_script(|request, connection| {
        let accepted = format!("{}{}", request.field("upgrade"), request.field("x-role"));
        connection.send(format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\nServer: a\r\nX-Sent: {accepted}\r\n\r\n"
        ));
        connection.close();
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut client = gateway.connect();
    client.send("GET /page/1 HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n");
    let switched = client.head();
    assert_eq!((switched.status, switched.field("upgrade"), switched.field("x-sent")), (101, "chat", "chatpublic"));
    assert_eq!((switched.field("connection").to_lowercase().as_str(), switched.field("server")), ("upgrade", ""));
}
