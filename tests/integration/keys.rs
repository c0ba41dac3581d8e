//! Who shares a bucket: one address, one value of a header or a cookie, one operator, or a class as a whole; and who is exempt.

use crate::support::gate::Gate;
use crate::support::origin::Origin;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Asks twice as often as the bucket of one allows; what the second is told says whether both are one client.
fn share(gate: &Gate, one: &str, other: &str) -> bool {
    let ask = |fields: &str| gate.connect().get("/", fields).status;
    assert_eq!(ask(one), 200, "{one:?} is new here");
    assert_eq!(ask(one), 429, "{one:?}");
    match ask(other) {
        429 => true,
        status => {
            assert_eq!(status, 200, "{other:?}");
            false
        }
    }
}

fn gate(origin: &Origin, key: &str) -> Gate {
    let bucket = format!("bucket: {{ capacity: 1, fill: 1, interval: 1h, key: {key} }}");
    Gate::before(origin.address(), &format!("classes: [ {{ name: all, {bucket} }} ]"))
}

const ANN: &str = "X-Forwarded-For: 192.0.2.1\r\n";
const BOB: &str = "X-Forwarded-For: 192.0.2.2\r\n";
const CY: &str = "X-Forwarded-For: 192.0.2.3\r\n";
const SECRET: &str = "open-sesame";

#[test]
fn who_sends_the_same_key_is_one_client() {
    let origin = Origin::plain();
    for (key, with) in [
        ("{ header: X-Api-Key }", (|value: &str| format!("x-api-key: {value}\r\n")) as fn(&str) -> String),
        ("{ cookie: session }", |value| format!("Cookie: theme=dark; session={value}; a=b\r\n")),
    ] {
        let gate = gate(&origin, key);
        let sent = |from: &str, value: &str| format!("{from}{}", with(value));
        assert!(share(&gate, &sent(ANN, SECRET), &sent(BOB, SECRET)), "{key}: wherever it comes from");
        assert!(!share(&gate, &sent(ANN, "second"), &sent(ANN, "third")), "{key}: two of one address are two");
        assert!(!share(&gate, ANN, BOB), "{key}: without one, an address is a client");
        assert!(share(&gate, CY, &sent(CY, "")), "{key}: nothing is no key");
        never_tells_the_secret(gate);
    }
}

/// Neither the state nor the log says what was sent, but both say that it was the same.
fn never_tells_the_secret(gate: Gate) {
    let state = gate.admin("/api/v1/state").1;
    assert!(!state.contains(SECRET), "{state}");
    let clients: Vec<String> = keys(&gate.state()["top_clients"]);
    let hashes = clients.iter().filter(|key| key.starts_with("hash:")).count();
    assert_eq!((hashes, clients.contains(&"192.0.2.1".to_owned())), (2, true), "{clients:?}");
    let lines = gate.into_log();
    assert!(lines.iter().all(|line| !line.to_string().contains(SECRET)));
    let mut lines_by_key = BTreeMap::<String, usize>::new();
    keys(&Value::Array(lines)).into_iter().for_each(|key| *lines_by_key.entry(key).or_default() += 1);
    let (most, of) = lines_by_key.iter().max_by_key(|(_, lines)| **lines).expect("there are lines");
    assert!(most.starts_with("hash:") && clients.contains(most), "{most} of {clients:?}");
    assert_eq!((*of, lines_by_key.len()), (3, 6), "one key from two addresses, and five others: {lines_by_key:?}");
}

fn keys(of: &Value) -> Vec<String> {
    let list = of.as_array().expect("a list");
    list.iter().map(|one| one["key"].as_str().expect("a key").to_owned()).collect()
}

#[test]
fn a_hash_is_worth_nothing_to_another_gate() {
    let origin = Origin::plain();
    let logged = || {
        let gate = gate(&origin, "{ header: X-Api-Key }");
        gate.connect().get("/", &format!("X-Api-Key: {SECRET}\r\n"));
        gate.into_log()[0]["key"].clone()
    };
    assert_ne!(logged(), logged(), "nobody can look up what a hash stands for by trying");
}

#[test]
fn all_of_a_proven_operators_crawlers_are_one_client() {
    let origin = Origin::plain();
    let gate = gate(&origin, "operator");
    let googlebot = |address: &str| {
        format!(
            "X-Forwarded-For: {address}\r\nUser-Agent: Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)\r\n"
        )
    };
    assert!(share(&gate, &googlebot("66.249.66.1"), &googlebot("66.249.66.2")));
    assert!(!share(&gate, &googlebot("192.0.2.1"), &googlebot("192.0.2.2")), "who only says so goes by address");
    let top = keys(&gate.state()["top_clients"]);
    assert_eq!(top[0], "operator:googlebot", "{top:?}");
    // Two workers write it, each in its own time.
    assert!(gate.into_log().iter().any(|line| line["key"] == "operator:googlebot"));
}

#[test]
fn a_class_may_have_one_bucket_for_all() {
    let origin = Origin::plain();
    let gate = gate(&origin, "class");
    assert!(share(&gate, ANN, BOB));
    assert_eq!(keys(&gate.state()["top_clients"]), ["class"]);
    assert_eq!(gate.into_log()[0]["key"], "class");
}

#[test]
fn a_reload_keeps_what_everybody_has_left() {
    let origin = Origin::plain();
    let rules =
        "classes: [ { name: all, bucket: { capacity: 1, fill: 1, interval: 1h, key: { header: X-Api-Key } } } ]";
    let gate = Gate::before(origin.address(), rules);
    let ask = || gate.connect().get("/", "X-Api-Key: one\r\n").status;
    assert_eq!((ask(), ask()), (200, 429));
    gate.reload(origin.address(), rules).expect("the same rules");
    assert_eq!(ask(), 429, "the hash is the same for as long as the process lives");
}

#[test]
fn who_is_exempt_is_in_a_class_above_without_a_bucket() {
    let origin = Origin::plain();
    let rules = "
classes:
  - { name: exempt, when: { address: [192.0.2.1, 2001:db8:7::/48] } }
  - { name: monitor, when: { user_agent: AcmeMonitor } }
  - { name: unwanted, when: { address: 198.51.100.0/24 }, block: true }
  - { name: all, bucket: { capacity: 1, fill: 1, interval: 1h } }";
    let gate = Gate::before(origin.address(), rules);
    let ask = |from: &str, agent: &str| {
        let fields = format!("X-Forwarded-For: {from}\r\nUser-Agent: {agent}\r\n");
        [(); 3].map(|()| gate.connect().get("/", &fields).status)
    };
    assert_eq!(ask("192.0.2.1", "x"), [200; 3]);
    assert_eq!(ask("2001:db8:7:1::1", "x"), [200; 3]);
    assert_eq!(ask("203.0.113.7", "AcmeMonitor/2"), [200; 3]);
    assert_eq!(ask("198.51.100.9", "x"), [429; 3]);
    assert_eq!(ask("203.0.113.7", "x"), [200, 429, 429]);
}

#[test]
fn who_holds_a_known_key_is_in_its_class_and_nobody_ever_reads_it() {
    let origin = Origin::plain();
    let rules = format!(
        "
classes:
  - {{ name: partner, when: {{ key: {{ header: X-Api-Key, value: [\"{SECRET}\", another-key-of-theirs] }} }} }}
  - {{ name: shop, when: {{ key: {{ cookie: pass, value: \"{SECRET}\" }}, address: 192.0.2.0/24 }} }}
  - {{ name: stranger, when: {{ key: {{ cookie: ban, value: this-one-was-stolen }} }}, block: true }}
  - {{ name: all, bucket: {{ capacity: 1, fill: 1, interval: 1h, key: {{ header: X-Account }} }} }}"
    );
    let gate = Gate::before(origin.address(), &rules);
    let ask = |fields: &str| [(); 2].map(|()| gate.connect().get("/", fields).status);
    assert_eq!(ask(&format!("X-Api-Key: {SECRET}\r\n")), [200; 2]);
    assert_eq!(ask("X-API-KEY: another-key-of-theirs\r\n"), [200; 2]);
    assert_eq!(ask(&format!("{ANN}Cookie: a=b; pass={SECRET}\r\n")), [200; 2]);
    assert_eq!(ask("Cookie: ban=this-one-was-stolen\r\n"), [429; 2]);
    for (account, guess) in [
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
        assert_eq!(ask(&format!("X-Account: {account}\r\n{guess}")), [200, 429], "{guess:?}");
    }
    assert!(!gate.admin("/api/v1/state").1.contains(SECRET));
    let log = gate.into_log();
    assert!(log.iter().all(|line| !line.to_string().contains(SECRET) && !line.to_string().contains("stolen")));
    let of = |class: &str| log.iter().find(|line| line["class"] == class).expect("a line for each");
    for class in ["partner", "shop", "stranger"] {
        assert_eq!(of(class)["headers_seen"], json!(["x-api-key", "cookie"]), "{class}");
        assert_eq!(of(class)["evidence"], json!(["no_user_agent", "holds_key"]), "{class}");
    }
    assert_eq!(of("all")["headers_seen"], json!(["x-api-key", "cookie", "x-account"]));
    assert_eq!(of("all")["evidence"], json!(["no_user_agent"]));
}
