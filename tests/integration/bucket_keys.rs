//! Bucket keys: buckets by address, by the value of a header or cookie, by operator or by class; exempt clients; API
//! keys.

use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Sends twice as many requests as the bucket of `first` allows. Returns true if the requests of `second` use the same
/// bucket.
fn shares_bucket(gateway: &TestGateway, first: &str, second: &str) -> bool {
    let status_of = |fields: &str| gateway.connect().get("/", fields).status;
    assert_eq!(status_of(first), 200, "{first:?} has a full bucket");
    assert_eq!(status_of(first), 429, "{first:?}");
    match status_of(second) {
        429 => true,
        status => {
            assert_eq!(status, 200, "{second:?}");
            false
        }
    }
}

fn gateway_with_key(origin: &Origin, key: &str) -> TestGateway {
    let bucket = format!("bucket: {{ capacity: 1, fill: 1, interval: 1h, key: {key} }}");
    TestGateway::with_rules(origin.address(), &format!("classes: [ {{ name: all, {bucket} }} ]"))
}

const ANN: &str = "X-Forwarded-For: 192.0.2.1\r\n";
const BOB: &str = "X-Forwarded-For: 192.0.2.2\r\n";
const CY: &str = "X-Forwarded-For: 192.0.2.3\r\n";
const SECRET: &str = "open-sesame";

#[test]
fn requests_with_one_key_share_a_bucket() {
    let origin = Origin::plain();
    for (key, field) in [
        ("{ header: X-Api-Key }", (|value: &str| format!("x-api-key: {value}\r\n")) as fn(&str) -> String),
        ("{ cookie: session }", |value| format!("Cookie: theme=dark; session={value}; a=b\r\n")),
    ] {
        let gateway = gateway_with_key(&origin, key);
        let sent = |from: &str, value: &str| format!("{from}{}", field(value));
        assert!(shares_bucket(&gateway, &sent(ANN, SECRET), &sent(BOB, SECRET)), "{key}: the address does not matter");
        assert!(
            !shares_bucket(&gateway, &sent(ANN, "second"), &sent(ANN, "third")),
            "{key}: two keys of one address have two buckets"
        );
        assert!(!shares_bucket(&gateway, ANN, BOB), "{key}: without a key, the address has a bucket");
        assert!(shares_bucket(&gateway, CY, &sent(CY, "")), "{key}: an empty value is no key");
        assert_secret_is_never_exposed(gateway);
    }
}

#[test]
fn invented_credentials_of_one_address_share_its_bucket() {
    let origin = Origin::plain();
    let rules = "classes: [ { name: all, bucket: { capacity: 1, fill: 1, interval: 1h, key: { header: X-Api-Key } } } ]\n\
                 limits: { max_credentials_per_address: 2 }";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let status_of = |from: &str, key: &str| gateway.connect().get("/", &format!("{from}X-Api-Key: {key}\r\n")).status;
    assert_eq!(["a", "b", "c", "d", "e"].map(|key| status_of(ANN, key)), [200, 200, 200, 429, 429]);
    assert_eq!(status_of(ANN, "a"), 429, "the credential has a bucket of its own");
    assert_eq!(["e", "f", "g", "h"].map(|key| status_of(BOB, key)), [200, 200, 200, 429], "another address");
    let shared =
        gateway.read_log().into_iter().filter(|line| line["client"] == "192.0.2.1" && line["key"] == "192.0.2.1");
    assert_eq!(shared.count(), 3, "further credentials are logged as the address");
}

/// Asserts that the state and the log contain the same hash, and never the key.
fn assert_secret_is_never_exposed(gateway: TestGateway) {
    let state = gateway.admin_get("/api/v1/state").1;
    assert!(!state.contains(SECRET), "{state}");
    let clients: Vec<String> = key_values(&gateway.state()["top_clients"]);
    let hashes = clients.iter().filter(|key| key.starts_with("hash:")).count();
    assert_eq!((hashes, clients.contains(&"192.0.2.1".to_owned())), (2, true), "{clients:?}");
    let lines = gateway.read_log();
    assert!(lines.iter().all(|line| !line.to_string().contains(SECRET)));
    let mut lines_by_key = BTreeMap::<String, usize>::new();
    key_values(&Value::Array(lines)).into_iter().for_each(|key| *lines_by_key.entry(key).or_default() += 1);
    let (top_key, count) = lines_by_key.iter().max_by_key(|(_, lines)| **lines).expect("there are lines");
    assert!(top_key.starts_with("hash:") && clients.contains(top_key), "{top_key} of {clients:?}");
    assert_eq!((*count, lines_by_key.len()), (3, 6), "one key from two addresses, and five others: {lines_by_key:?}");
}

fn key_values(rows: &Value) -> Vec<String> {
    let list = rows.as_array().expect("a list");
    list.iter().map(|row| row["key"].as_str().expect("a key").to_owned()).collect()
}

#[test]
fn key_hashes_differ_between_gateways() {
    let origin = Origin::plain();
    let logged = || {
        let gateway = gateway_with_key(&origin, "{ header: X-Api-Key }");
        gateway.connect().get("/", &format!("X-Api-Key: {SECRET}\r\n"));
        gateway.read_log()[0]["key"].clone()
    };
    assert_ne!(logged(), logged(), "hashes differ between processes");
}

#[test]
fn verified_operator_crawlers_share_a_bucket() {
    let origin = Origin::plain();
    let gateway = gateway_with_key(&origin, "operator");
    let googlebot = |address: &str| {
        format!(
            "X-Forwarded-For: {address}\r\nUser-Agent: Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)\r\n"
        )
    };
    assert!(shares_bucket(&gateway, &googlebot("66.249.66.1"), &googlebot("66.249.66.2")));
    assert!(
        !shares_bucket(&gateway, &googlebot("192.0.2.1"), &googlebot("192.0.2.2")),
        "unverified claims use buckets by address"
    );
    let top = key_values(&gateway.state()["top_clients"]);
    assert_eq!(top[0], "operator:googlebot", "{top:?}");
    // Two workers write the log, each at its own time.
    assert!(gateway.read_log().iter().any(|line| line["key"] == "operator:googlebot"));
}

#[test]
fn class_key_shares_one_bucket() {
    let origin = Origin::plain();
    let gateway = gateway_with_key(&origin, "class");
    assert!(shares_bucket(&gateway, ANN, BOB));
    assert_eq!(key_values(&gateway.state()["top_clients"]), ["class"]);
    assert_eq!(gateway.read_log()[0]["key"], "class");
}

#[test]
fn reload_keeps_bucket_tokens() {
    let origin = Origin::plain();
    let rules =
        "classes: [ { name: all, bucket: { capacity: 1, fill: 1, interval: 1h, key: { header: X-Api-Key } } } ]";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let status = || gateway.connect().get("/", "X-Api-Key: one\r\n").status;
    assert_eq!((status(), status()), (200, 429));
    gateway.reload(origin.address(), rules).expect("rules are unchanged");
    assert_eq!(status(), 429, "the hash does not change within a process");
}

#[test]
fn class_without_bucket_exempts_its_clients() {
    let origin = Origin::plain();
    let rules = "
classes:
  - { name: exempt, when: { address: [192.0.2.1, 2001:db8:7::/48] } }
  - { name: monitor, when: { user_agent: AcmeMonitor } }
  - { name: unwanted, when: { address: 198.51.100.0/24 }, block: true }
  - { name: all, bucket: { capacity: 1, fill: 1, interval: 1h } }";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let statuses = |from: &str, agent: &str| {
        let fields = format!("X-Forwarded-For: {from}\r\nUser-Agent: {agent}\r\n");
        [(); 3].map(|()| gateway.connect().get("/", &fields).status)
    };
    assert_eq!(statuses("192.0.2.1", "x"), [200; 3]);
    assert_eq!(statuses("2001:db8:7:1::1", "x"), [200; 3]);
    assert_eq!(statuses("203.0.113.7", "AcmeMonitor/2"), [200; 3]);
    assert_eq!(statuses("198.51.100.9", "x"), [429; 3]);
    assert_eq!(statuses("203.0.113.7", "x"), [200, 429, 429]);
}

#[test]
fn api_key_selects_class_and_is_never_logged() {
    let origin = Origin::plain();
    let rules = format!(
        "
classes:
  - {{ name: partner, when: {{ api_key: {{ header: X-Api-Key, value: [\"{SECRET}\", another-key-of-theirs] }} }} }}
  - {{ name: shop, when: {{ api_key: {{ cookie: pass, value: \"{SECRET}\" }}, address: 192.0.2.0/24 }} }}
  - {{ name: stranger, when: {{ api_key: {{ cookie: ban, value: this-one-was-stolen }} }}, block: true }}
  - {{ name: all, bucket: {{ capacity: 1, fill: 1, interval: 1h, key: {{ header: X-Account }} }} }}"
    );
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let statuses = |fields: &str| [(); 2].map(|()| gateway.connect().get("/", fields).status);
    assert_eq!(statuses(&format!("X-Api-Key: {SECRET}\r\n")), [200; 2]);
    assert_eq!(statuses("X-API-KEY: another-key-of-theirs\r\n"), [200; 2]);
    assert_eq!(statuses(&format!("{ANN}Cookie: a=b; pass={SECRET}\r\n")), [200; 2]);
    assert_eq!(statuses("Cookie: ban=this-one-was-stolen\r\n"), [429; 2]);
    for (account, wrong_key) in [
        format!("X-Api-Key: {SECRET}x\r\n"),
        format!("X-Api-Key: {}\r\n", &SECRET[1..]),
        format!("X-Api-Key: {}\r\n", SECRET.to_uppercase()),
        format!("Cookie: X-Api-Key={SECRET}\r\n"),
        format!("X-Forwarded-For: 198.51.100.1\r\nCookie: pass={SECRET}\r\n"),
        "X-Api-Key: \r\n".to_owned(),
    ]
    .iter()
    .enumerate()
    {
        assert_eq!(statuses(&format!("X-Account: {account}\r\n{wrong_key}")), [200, 429], "{wrong_key:?}");
    }
    assert!(!gateway.admin_get("/api/v1/state").1.contains(SECRET));
    let log = gateway.read_log();
    assert!(log.iter().all(|line| !line.to_string().contains(SECRET) && !line.to_string().contains("stolen")));
    let line_of = |class: &str| log.iter().find(|line| line["class"] == class).expect("each class has a log line");
    for class in ["partner", "shop", "stranger"] {
        assert_eq!(line_of(class)["headers_seen"], json!(["x-api-key", "cookie"]), "{class}");
        assert_eq!(line_of(class)["evidence"], json!(["no_user_agent", "api_key"]), "{class}");
    }
    assert_eq!(line_of("all")["headers_seen"], json!(["x-api-key", "cookie", "x-account"]));
    assert_eq!(line_of("all")["evidence"], json!(["no_user_agent"]));
}
