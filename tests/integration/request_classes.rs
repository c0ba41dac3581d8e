//! Classes by what a request shows: path, host, method, header fields and cookies, purpose and network.

use crate::support::gateway::TestGateway;
use crate::support::mmdb::{MmdbValue, database};
use crate::support::origin::Origin;
use serde_json::{Value, json};
use tidegate::cli::check;

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

#[test]
fn header_fields_and_cookies_choose_the_class() {
    const RULES: &str = "
workers: 1
quotas: { api: { limit: 2, window: { fixed: 24h } } }
classes:
  - { name: partner, when: { header: { X-Partner: ['acme*', beta], X-Stage: live } } }
  - { name: login, when: { cookie: sessionid } }
  - { name: variant, when: { cookie: { ab: 'b*' }, header: X-Test } }
  - { name: other }
";
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let cases = [
        ("X-Partner: Acme-7\r\nX-Stage: live\r\n", "partner"),
        ("X-Partner: beta\r\nx-stage: Live\r\n", "partner"),
        ("X-Partner: acme\r\n", "other"),
        ("X-Partner: acme\r\nX-Stage: live\r\nConnection: x-partner\r\n", "other"),
        ("X-Partner: gamma\r\nX-Stage: live\r\n", "other"),
        ("Cookie: a=1; sessionid=x\r\n", "login"),
        ("Cookie: a=sessionid\r\n", "other"),
        ("Cookie: ab=beta\r\nX-Test: \r\n", "variant"),
        ("Cookie: ab=beta\r\n", "other"),
        ("Cookie: ab=alpha\r\nX-Test: 1\r\n", "other"),
    ];
    for (fields, _) in &cases {
        assert_eq!(gateway.connect().get("/", fields).status, 200, "{fields:?}");
    }
    let log = gateway.read_log();
    for ((fields, class), line) in cases.iter().zip(&log) {
        assert_eq!(line["class"], json!(class), "{fields:?}");
    }
    assert_eq!(log[7]["field_classes"], json!(["variant"]));
    assert!(log[2]["field_classes"].is_null() && !format!("{log:?}").contains("beta"), "no value of a field is logged");
}

#[test]
fn purpose_and_network_choose_the_class() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let number = |number| MmdbValue::Map(vec![("autonomous_system_number", MmdbValue::Number(number))]);
    let asns = database(vec![
        ([198, 51, 100, 0].into(), 24, number(64_496)),
        ([203, 0, 113, 128].into(), 25, MmdbValue::Map(vec![("asn", MmdbValue::Text("AS64511"))])),
        ([192, 0, 2, 128].into(), 25, MmdbValue::Map(vec![("autonomous_system_number", MmdbValue::Short(701))])),
    ]);
    let code = |code| MmdbValue::Map(vec![("iso_code", MmdbValue::Text(code))]);
    let countries = database(vec![
        ([203, 0, 113, 0].into(), 24, MmdbValue::Map(vec![("country", code("DE"))])),
        ([192, 0, 2, 0].into(), 24, MmdbValue::Map(vec![("country_code", MmdbValue::Text("FR"))])),
    ]);
    let file = |name: &str, content: Vec<u8>| {
        let path = dir.path().join(name);
        std::fs::write(&path, content).expect("directory is writable");
        path.display().to_string()
    };
    let rules = format!(
        "
workers: 1
clients: {{ asn_database: {}, country_database: {}, address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }}
operators: {{ acme: {{ product_tokens: AcmeBot, ranges: 198.51.100.0/24, purpose: preview }} }}
quotas: {{ api: {{ limit: 2, window: {{ fixed: 24h }} }} }}
classes:
  - {{ name: index, when: {{ purpose: search, kind: verified_bot }} }}
  - {{ name: training, when: {{ purpose: [training, agent] }} }}
  - {{ name: preview, when: {{ purpose: preview }} }}
  - {{ name: cloud, when: {{ asn: 64496, kind: human }} }}
  - {{ name: near, when: {{ country: [de, FR] }} }}
  - {{ name: other }}
",
        file("asn.mmdb", asns),
        file("country.mmdb", countries)
    );
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let cases = [
        ("66.249.66.1", "Googlebot/2.1", "index", json!("search"), Value::Null),
        ("203.0.113.9", "GPTBot/1.2", "training", json!("training"), Value::Null),
        ("192.0.2.1", "ChatGPT-User/1.0", "training", json!("agent"), Value::Null),
        ("198.51.100.9", "AcmeBot/1.0", "preview", json!("preview"), json!(64_496)),
        ("198.51.100.9", "", "cloud", Value::Null, json!(64_496)),
        ("203.0.113.9", "", "near", Value::Null, Value::Null),
        ("203.0.113.129", "", "near", Value::Null, json!(64_511)),
        ("192.0.2.1", "", "near", Value::Null, Value::Null),
        ("192.0.2.129", "", "near", Value::Null, json!(701)),
        ("10.0.0.1", "", "other", Value::Null, Value::Null),
    ];
    for (client, agent, ..) in &cases {
        let fields = format!("X-Forwarded-For: {client}\r\nUser-Agent: {agent}\r\n");
        assert_eq!(gateway.connect().get("/", &fields).status, 200);
    }
    for ((client, agent, class, purpose, asn), line) in cases.iter().zip(gateway.read_log()) {
        let logged = (&line["class"], &line["purpose"], &line["asn"]);
        assert_eq!(logged, (&json!(class), purpose, asn), "{client} {agent}: {line}");
    }
}

#[test]
fn a_broken_database_is_refused_with_its_place() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (file, config) = (dir.path().join("asn.mmdb"), dir.path().join("tidegate.yaml"));
    let rules = format!(
        "origin: http://127.0.0.1:1\nclients: {{ asn_database: {} }}\nquotas: {{ api: {{ limit: 1 }} }}\n",
        file.display()
    );
    std::fs::write(&config, rules).expect("directory is writable");
    let value = MmdbValue::Map(vec![("autonomous_system_number", MmdbValue::Number(7))]);
    let valid = database(vec![([192, 0, 2, 0].into(), 24, value)]);
    let check = || check::check(&config, &[], &[]);
    for content in [&b""[..], b"no database", &valid[..valid.len() / 2]] {
        std::fs::write(&file, content).expect("directory is writable");
        let error = check().expect_err("a broken database");
        assert!(error.contains("tidegate.yaml:2:26: clients.asn_database: ") && error.contains(".mmdb)"), "{error}");
    }
    std::fs::write(&file, valid).expect("directory is writable");
    assert!(check().is_ok(), "{:?}", check());
}
