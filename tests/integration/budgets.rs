//! Budgets: units of a quota for each customer, client or class.

use crate::support::client::Response;
use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, ReceivedRequest};
use crate::support::program::run;
use crate::support::running_gateway::RunningGateway;
use crate::support::wait::wait_until;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const ACME: &str = "key-of-acme";
const TRIAL: &str = "key-of-trial";

/// SHA-256 of these keys, and of `key-of-late`.
const ACME_HASH: &str = "689febd264f8b977e29c0fdb75f839eb248ba07d1561b14f2b95f42756943245";
const TRIAL_HASH: &str = "3dfb31644d2f211cb9f95a142303b1b19c1ade944165d87fb9eb67b252496a44";
const LATE_HASH: &str = "f098e8c81b4f84e4c2ebc52e38be021854b17b2bb688e1f8f435505cad23c78f";

/// Customers with keys: `acme` has 5 units of each hour, `trial` 2; all of them together 1000.
const RULES: &str = "
api_keys:
  - { name: acme, class: pro, sha256: ACME_HASH }
  - { name: trial, class: free, sha256: TRIAL_HASH }
  - { name: late, class: pro, sha256: LATE_HASH, expires: 1990-01-01 }
quotas:
  all: { limit: 1000, window: { fixed: 1h } }
  customer: { per: api_key, limit: 3, limits: { pro: 5, free: 2 }, window: { fixed: 1h } }
classes:
  - { name: pro, when: { api_key: own } }
  - { name: free, when: { api_key: own } }
routes: [{ match: /free }, { match: /**, cost: { all: 1, customer: 1 } }]
";

fn rules() -> String {
    RULES.replace("ACME_HASH", ACME_HASH).replace("TRIAL_HASH", TRIAL_HASH).replace("LATE_HASH", LATE_HASH)
}

fn get(gateway: &TestGateway, key: &str) -> Response {
    gateway.connect().get("/v1/chat", &format!("Authorization: Bearer {key}\r\n"))
}

fn admitted(gateway: &TestGateway, key: &str, count: usize) -> usize {
    (0..count).filter(|_| get(gateway, key).status == 200).count()
}

#[test]
fn each_customer_has_its_own_budget_and_sees_no_other() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), &rules());
    assert_eq!([admitted(&gateway, ACME, 8), admitted(&gateway, TRIAL, 8)], [5, 2]);
    let refused = get(&gateway, ACME);
    assert_eq!((refused.status, refused.json()["reason"].as_str()), (429, Some("quota")));
    assert_eq!(refused.field("ratelimit-policy"), "\"customer\";q=5;w=3600", "not what remains for all");
    assert!(refused.field("ratelimit").contains("\"customer\";r=0;t="), "{}", refused.field("ratelimit"));
    // Neither an unknown nor an expired key is one: the address pays, and has the limit of all others.
    assert_eq!([admitted(&gateway, "unknown", 5), admitted(&gateway, "key-of-late", 5)], [3, 0]);
    let by_other_field = gateway.connect().get("/v1/chat", &format!("X-Api-Key: {TRIAL}\r\n"));
    assert_eq!(by_other_field.status, 429, "the same customer");
    assert_eq!(gateway.connect().get("/free", &format!("X-Api-Key: {TRIAL}\r\n")).status, 200);
    assert_eq!(gateway.counters().0, 10.0, "what a budget refuses is charged nowhere");
    assert_eq!(gateway.metric("tidegate_budget_keys{quota=\"customer\"}"), 3.0);
    assert!(!gateway.metrics().keys().any(|series| series.contains("acme")), "no series has the name of a customer");
    let log = gateway.read_log();
    let customers: Vec<_> = log.iter().filter(|line| line["class"] == "pro").map(|line| &line["customer"]).collect();
    assert!(customers.iter().all(|customer| customer.as_str().is_some_and(|it| it.starts_with("hash:"))));
    assert!(log.iter().all(|line| !line.to_string().contains("key-of")), "no key is logged");
}

#[test]
fn headers_show_a_customer_the_limit_of_its_key() {
    let origin = Origin::plain();
    let rules = format!(
        "api_keys:\n  - {{ name: acme, class: pro, sha256: {ACME_HASH}, limits: {{ customer: 5 }} }}\n\
         \x20 - {{ name: trial, class: pro, sha256: {TRIAL_HASH} }}\n\
         quotas: {{ customer: {{ per: api_key, limit: 10, limits: {{ pro: 8 }}, window: {{ fixed: 1h }} }} }}\n\
         classes: [{{ name: pro, when: {{ api_key: own }} }}, {{ name: other }}]\nheaders: {{ legacy: [github] }}\n\
         routes: [{{ match: /free }}, {{ match: /**, cost: {{ customer: 1 }} }}]\n"
    );
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    for (key, limit) in [(ACME, 5), (TRIAL, 8), ("unknown", 10)] {
        for used in 1..=limit + 1 {
            let response = get(&gateway, key);
            assert_eq!(response.field("ratelimit-policy"), format!("\"customer\";q={limit};w=3600"));
            assert_eq!(response.field("x-ratelimit-limit"), limit.to_string());
            assert!(response.field("ratelimit").starts_with(&format!("\"customer\";r={};", limit - used.min(limit))));
        }
    }
    let free = gateway.connect().get("/free", &format!("Authorization: Bearer {ACME}\r\n"));
    assert!(!free.fields.contains_key("ratelimit-policy"));
}

#[test]
fn headers_show_the_limit_of_a_customer_that_has_used_more() {
    let origin = Origin::with_script(|request, connection| {
        connection.read_body(request);
        connection.reply("200 OK", "X-Units: 7\r\n", b"");
    });
    let rules = format!(
        "api_keys: [{{ name: acme, class: pro, sha256: {ACME_HASH}, limits: {{ customer: 5 }} }}]\n\
         quotas: {{ customer: {{ per: api_key, limit: 10, window: {{ fixed: 1h }}, cost_header: x-units }} }}\n\
         classes: [{{ name: pro, when: {{ api_key: own }} }}, {{ name: other }}]\nheaders: {{ legacy: [github] }}\n\
         routes: [{{ match: /**, cost: {{ customer: 1 }} }}]\n"
    );
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    for (status, remaining) in [(200, 4), (429, 0)] {
        let response = get(&gateway, ACME);
        assert_eq!(response.status, status);
        assert_eq!(response.field("ratelimit-policy"), "\"customer\";q=5;w=3600");
        assert_eq!(response.field("x-ratelimit-limit"), "5");
        assert!(response.field("ratelimit").starts_with(&format!("\"customer\";r={remaining};")));
    }
}

#[test]
fn administrator_sees_the_usage_of_each_customer() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), &rules());
    admitted(&gateway, ACME, 4);
    let (status, usage) = gateway.admin_get("/api/v1/usage?key=acme");
    let usage: serde_json::Value = serde_json::from_str(&usage).expect("JSON");
    assert_eq!((status, &usage[0]["used"], &usage[0]["limit"]), (200, &4.into(), &5.into()));
    assert_eq!(gateway.admin_get("/api/v1/usage?key=nobody").0, 404);
    let state: serde_json::Value = serde_json::from_str(&gateway.admin_get("/api/v1/state").1).expect("JSON");
    let budget = &state["budgets"][0];
    let shown = ["name", "keys", "replaced", "used"].map(|name| budget[name].clone());
    assert_eq!(serde_json::json!(shown), serde_json::json!(["customer", 1, 0, 4]));
    assert_eq!(budget["top"], serde_json::json!([{ "key": "acme", "used": 4, "limit": 5 }]));
    let admin = gateway.admin_address().to_string();
    let shown = run(&["usage", "--admin", &admin], b"");
    assert_eq!(shown.code, 0, "{}", shown.errors);
    let lines: Vec<Vec<&str>> = shown.output.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[1][..5], ["acme", "pro", "customer", "4", "5"]);
    let status = run(&["status", "--admin", &admin], b"");
    assert!(status.output.contains("  1 key has used 4 units, max_keys: 100,000\n"), "{}", status.output);
    assert_eq!(lines[2][..3], ["late", "(invalid)", "pro"]);
    let csv = run(&["usage", "--csv", "--key", "trial", "--admin", &admin], b"");
    assert!(csv.output.lines().nth(1).is_some_and(|line| line.starts_with("trial,free,true,customer,2,0,2,")));
}

#[test]
fn limit_of_a_key_is_explained_and_usage_of_budgets_cannot_be_set() {
    let origin = Origin::plain();
    let own = rules().replace("{ name: acme, class: pro,", "{ name: acme, class: pro, limits: { customer: 2 },");
    let gateway = TestGateway::with_rules(origin.address(), &own);
    assert_eq!(admitted(&gateway, ACME, 4), 2);
    let admin = gateway.admin_address().to_string();
    let set = run(&["quota", "set", "customer", "0", "--admin", &admin], b"");
    assert!(set.code != 0 && set.errors.contains("has a budget for each key"), "{}", set.errors);

    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("gate.yaml");
    std::fs::write(&file, format!("origin: http://127.0.0.1:1\n{own}")).expect("the directory is writable");
    let explain = |key: &str, used: &str| {
        let field = format!("Authorization: Bearer {key}");
        let config = file.display().to_string();
        let arguments = ["explain", "--config", &config, "--ip", "192.0.2.1", "--user-agent", "curl/8", "-H", &field];
        let shown = run(&[&arguments[..], &["--used", used, "http://a.example/v1"]].concat(), b"");
        assert_eq!(shown.code, 0, "{}", shown.errors);
        shown.output
    };
    // 100% is of the limit of the key, and each amount is at most the largest limit, 5.
    for (key, used, refused) in [
        (ACME, "1", false),
        (ACME, "2", true),
        (ACME, "50%", false),
        (ACME, "100%", true),
        (TRIAL, "1", false),
        ("unknown", "2", false),
        ("unknown", "3", true),
        ("unknown", "5", true),
        ("unknown", "100%", true),
    ] {
        let output = explain(key, &format!("customer={used}"));
        assert_eq!(output.contains("429"), refused, "{key} {used}: {output}");
    }
}

#[test]
fn budgets_and_shares_outlive_a_restart_and_end_with_their_window() {
    let origin = Origin::plain();
    let with_share = "quotas: { api: { limit: 100000, window: { fixed: 1h }, per_client: 10 } }\n\
                      routes: [{ match: /**, cost: { api: 1 } }]\n";
    for (rules, limit) in [(rules(), 5), (with_share.to_owned(), 10)] {
        let mut gateway = TestGateway::with_rules(origin.address(), &format!("ledger: file\n{rules}"));
        assert_eq!(admitted(&gateway, ACME, 3), 3);
        gateway.restart();
        assert_eq!(admitted(&gateway, ACME, 20), limit - 3);
        gateway.clock.advance(Duration::from_secs(3600));
        assert_eq!(admitted(&gateway, ACME, 20), limit, "a new window");
    }
}

#[test]
fn usage_of_ended_windows_is_kept_by_month_and_outlives_a_restart() {
    let origin = Origin::plain();
    let rules = rules().replace("  all: { limit: 1000, window: { fixed: 1h } }\n", "").replace("all: 1, ", "");
    let mut gateway = TestGateway::with_rules(origin.address(), &format!("ledger: file\n{rules}"));
    assert_eq!(
        [admitted(&gateway, ACME, 3), admitted(&gateway, TRIAL, 1), admitted(&gateway, "unknown", 1)],
        [3, 1, 1]
    );
    let history = |gateway: &TestGateway, query: &str| -> serde_json::Value {
        serde_json::from_str(&gateway.admin_get(&format!("/api/v1/usage/history{query}")).1).expect("JSON")
    };
    let count = |gateway: &TestGateway| history(gateway, "").as_array().map_or(0, Vec::len);
    assert_eq!(count(&gateway), 0, "the window has not ended");
    // No request comes in the new window, and the minute for what is in flight has passed.
    gateway.clock.advance(Duration::from_secs(3600 + 61));
    wait_until("the records of the window", || count(&gateway) == 2);
    gateway.restart();
    admitted(&gateway, ACME, 2);
    gateway.clock.advance(Duration::from_secs(3600));
    wait_until("the record of the next window", || count(&gateway) == 3);
    let of_acme = history(&gateway, "?key=acme");
    let values = |index: usize| ["key", "class", "quota", "used", "limit"].map(|name| of_acme[index][name].clone());
    assert_eq!(serde_json::json!(values(0)), serde_json::json!(["acme", "pro", "customer", 3, 5]));
    assert_eq!(values(1)[3], 2);
    assert_eq!(of_acme[0]["window_end"], of_acme[1]["window_start"]);
    let month = of_acme[0]["window_start"].as_str().expect("a time")[..7].to_owned();
    assert_eq!(history(&gateway, &format!("?key=acme&month={month}")), of_acme);
    assert_eq!(gateway.admin_get("/api/v1/usage/history?month=../../etc").0, 422);
    let admin = gateway.admin_address().to_string();
    let shown = run(&["usage", "--month", &month, "--key", "acme", "--admin", &admin], b"");
    let lines: Vec<Vec<&str>> = shown.output.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[1], ["acme", "pro", "customer", "2", "5"], "{}", shown.errors);
    let csv = run(&["usage", "--month", "--csv", "--admin", &admin], b"");
    assert_eq!(csv.output.lines().count(), 1 + 3, "{}", csv.errors);
}

#[test]
fn usage_is_recorded_whole_after_a_cut_write_and_a_longer_window() {
    let origin = Origin::plain();
    let rules = rules().replace("  all: { limit: 1000, window: { fixed: 1h } }\n", "").replace("all: 1, ", "");
    let mut gateway = TestGateway::with_rules(origin.address(), &format!("ledger: file\n{rules}"));
    let records = |gateway: &TestGateway| -> Vec<serde_json::Value> {
        serde_json::from_str(&gateway.admin_get("/api/v1/usage/history").1).expect("JSON")
    };
    assert_eq!([admitted(&gateway, ACME, 3), admitted(&gateway, TRIAL, 1)], [3, 1]);
    gateway.clock.advance(Duration::from_secs(3600 + 61));
    wait_until("the records of the hour", || records(&gateway).len() == 2);
    let whole = records(&gateway);
    // What a full disk and a kill have left.
    let file =
        gateway.state_dir().join(format!("usage.{}.csv", &whole[0]["window_start"].as_str().expect("a time")[..7]));
    let text = std::fs::read_to_string(&file).expect("the table");
    for kept in [text.len() - 1, text.len() - 30, 40, 5] {
        std::fs::write(&file, &text[..kept]).expect("the table is writable");
        gateway.restart();
        wait_until("the rest of the records", || records(&gateway) == whole);
    }
    let longer = rules.replace("window: { fixed: 1h }", "window: { fixed: 24h }");
    gateway.reload(origin.address(), &format!("ledger: file\n{longer}")).expect("valid rules");
    assert_eq!(admitted(&gateway, ACME, 2), 2);
    gateway.clock.advance(Duration::from_secs(24 * 3600));
    wait_until("the record of the day", || records(&gateway).len() == 3);
}

#[test]
fn a_customer_reads_its_own_usage_and_nobody_reads_that_of_others() {
    let origin = Origin::plain();
    let nokey = "classes:\n  - { name: nokey, block: true, when: { path: /v1/** } }\n";
    for rules in [rules(), rules().replace("classes:\n", nokey)] {
        let gateway = TestGateway::with_rules(origin.address(), &format!("headers: {{ usage: true }}\n{rules}"));
        let before = origin.received_requests().len();
        let usage = |field: &str| gateway.connect().get("/.well-known/usage", field);
        admitted(&gateway, ACME, 7);
        let bearer = format!("Authorization: Bearer {ACME}\r\n");
        let read = usage(&bearer);
        assert_eq!(
            (read.status, read.field("content-type"), read.field("cache-control")),
            (200, "application/json", "no-store")
        );
        let budget = &read.json()["budgets"][0];
        let is_blocked = gateway.connect().get("/v1/chat", &bearer).json()["reason"] == "blocked";
        let used = if is_blocked { 0 } else { 5 };
        let shown = ["quota", "limit", "used", "remaining"].map(|name| budget[name].clone());
        assert_eq!(serde_json::json!(shown), serde_json::json!(["customer", 5, used, 5 - used]));
        assert!(budget["window_end"].as_str().is_some_and(|end| end.ends_with('Z')));
        assert_eq!(usage(&format!("X-Api-Key: {TRIAL}\r\n")).json()["budgets"][0]["used"], 0);
        for field in ["", "Authorization: Bearer key-of-late\r\n", "Authorization: Bearer acme\r\n", "X-Api-Key: \r\n"]
        {
            let refused = usage(field);
            assert_eq!((refused.status, refused.field("www-authenticate")), (401, "Bearer realm=\"api\""), "{field}");
            assert!(!refused.text().contains("acme"), "{field}");
        }
        // However often it is read, with a spent budget, too: it costs nothing, and the origin gets none of it.
        assert!((0..50).all(|_| usage(&bearer).status == 200));
        assert_eq!(usage(&bearer).json()["budgets"][0]["used"], used);
        // Other methods have one answer, also for a customer whose budget is spent, and for one that is blocked.
        for key in [TRIAL, ACME, "unknown"] {
            let post = format!(
                "POST /.well-known/usage HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nX-Api-Key: {key}\r\n\r\n{{}}"
            );
            let not_allowed = gateway.connect().send(post).read_response();
            assert_eq!((not_allowed.status, not_allowed.field("allow")), (405, "GET, HEAD"), "{key}");
            assert_eq!(not_allowed.field("ratelimit"), "", "nothing is charged");
        }
        let received = origin.received_requests().len() - before;
        assert_eq!(received, used, "the origin gets what is admitted");
    }
    let gateway = TestGateway::with_rules(origin.address(), &rules());
    let before = origin.received_requests().len();
    gateway.connect().get("/.well-known/usage", &format!("Authorization: Bearer {ACME}\r\n"));
    assert_eq!(origin.received_requests().len(), before + 1, "a page of the origin, unless the gateway serves it");
}

#[test]
fn customers_are_named_by_a_header_or_a_cookie_where_the_application_checks_it() {
    let origin = Origin::plain();
    for (per, field) in [("{ header: X-Customer }", "X-Customer: "), ("{ cookie: customer }", "Cookie: a=b; customer=")]
    {
        let rules = format!(
            "clients: {{ address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }}\n\
             limits: {{ max_credentials_per_address: 4 }}\n\
             quotas: {{ customer: {{ per: {per}, limit: 3, window: {{ fixed: 1h }}, max_keys: 50 }} }}\n\
             routes: [{{ match: /**, cost: {{ customer: 1 }} }}]\n"
        );
        let mut gateway = TestGateway::with_rules(origin.address(), &format!("ledger: file\n{rules}"));
        let admitted = |gateway: &TestGateway, client: &str, customer: &str, count: usize| {
            let fields = format!("X-Forwarded-For: {client}\r\n{field}{customer}\r\n");
            (0..count).filter(|_| gateway.connect().get("/", &fields).status == 200).count()
        };
        assert_eq!(admitted(&gateway, "192.0.2.1", "a", 2), 2, "{per}");
        gateway.restart();
        let elsewhere = admitted(&gateway, "198.51.100.7", "a", 5);
        assert_eq!(elsewhere, 1, "{per}: the same customer from elsewhere, after a restart");
        // Made-up customers of one address: four have budgets, all others share that of the address.
        let made_up = (0..200).filter(|number| admitted(&gateway, "203.0.113.9", &format!("made-up-{number}"), 1) == 1);
        assert_eq!(made_up.count(), 4 + 3, "{per}");
        assert_eq!(admitted(&gateway, "192.0.2.1", "b", 5), 3, "{per}: others have their budgets");
        assert_eq!(admitted(&gateway, "192.0.2.1", "a", 1), 0, "{per}: a spent budget does not come back");
    }
}

#[test]
fn keys_of_a_file_are_read_again_when_it_changes() {
    let origin = Origin::plain();
    let dir = tempfile::tempdir().expect("temporary directory");
    let keys = dir.path().join("keys.yaml");
    let file =
        |entries: &str| std::fs::write(&keys, format!("api_keys:\n{entries}")).expect("the directory is writable");
    let acme = format!("  - {{ name: acme, class: pro, sha256: {ACME_HASH} }}\n");
    let trial = format!("  - {{ name: trial, class: pro, sha256: {TRIAL_HASH} }}\n");
    file(&acme);
    let rules = format!(
        "api_keys: {{ file: {} }}\nclasses: [{{ name: pro, when: {{ api_key: own }} }}, {{ name: nokey, block: true }}]\n",
        keys.display()
    );
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    assert_eq!([ACME, TRIAL].map(|key| get(&gateway, key).status), [200, 429]);
    file(&(acme + &trial));
    gateway.reload_files();
    assert_eq!(get(&gateway, TRIAL).status, 200);
    file("  - { name: broken }\n");
    gateway.reload_files();
    assert_eq!(gateway.metric("tidegate_config_last_reload_successful"), 0.0);
    assert_eq!([ACME, TRIAL].map(|key| get(&gateway, key).status), [200, 200], "the keys stay as they were");
    file(&trial);
    gateway.reload_files();
    assert_eq!([ACME, TRIAL].map(|key| get(&gateway, key).status), [429, 200]);
}

#[test]
fn change_of_the_keys_applies_whatever_waits_in_the_configuration() {
    let origin = Origin::plain();
    let dir = tempfile::tempdir().expect("temporary directory");
    let keys = dir.path().join("keys.yaml");
    let file =
        |entries: &str| std::fs::write(&keys, format!("api_keys:\n{entries}")).expect("the directory is writable");
    let acme = format!("  - {{ name: acme, class: pro, sha256: {ACME_HASH} }}\n");
    let trial = format!("  - {{ name: trial, class: pro, sha256: {TRIAL_HASH} }}\n");
    file(&format!("{acme}{trial}"));
    let page = dir.path().join("429.html");
    std::fs::write(&page, "wait").expect("the directory is writable");
    let rules = format!(
        "error_pages: {{ 429: {} }}\napi_keys: {{ file: {} }}\n\
         classes: [{{ name: pro, when: {{ api_key: own }} }}, {{ name: nokey, block: true }}]\n",
        page.display(),
        keys.display()
    );
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let statuses = || [ACME, TRIAL, "unlisted"].map(|key| get(&gateway, key).status);
    assert_eq!(statuses(), [200, 200, 429]);
    gateway.write(origin.address(), &format!("{rules}broken: ["));
    file(&acme);
    gateway.reload_files();
    assert_eq!(statuses(), [200, 429, 429], "a revoked key, while the configuration is invalid");
    gateway.write(origin.address(), &rules.replace("block: true", "block: false"));
    file(&format!("{acme}{trial}"));
    gateway.reload_files();
    assert_eq!(statuses(), [200, 200, 429], "an edit of the configuration waits for a reload");
    // The error of another file delays a change of the keys, and does not lose it.
    std::fs::remove_file(&page).expect("the page exists");
    file(&acme);
    gateway.reload_files();
    assert_eq!(statuses(), [200, 200, 429]);
    std::fs::write(&page, "wait").expect("the directory is writable");
    gateway.clock.advance(Duration::from_secs(60));
    gateway.reload_files();
    assert_eq!(statuses(), [200, 429, 429]);
}

#[test]
fn customer_with_a_new_key_has_no_new_budget() {
    let origin = Origin::plain();
    let mut gateway = TestGateway::with_rules(origin.address(), &format!("ledger: file\n{}", rules()));
    assert_eq!(admitted(&gateway, ACME, 4), 4);
    let with_new_key = rules().replace(ACME_HASH, "HASH").replace(TRIAL_HASH, ACME_HASH).replace("HASH", TRIAL_HASH);
    gateway.write(origin.address(), &format!("ledger: file\n{with_new_key}"));
    gateway.restart();
    assert_eq!(admitted(&gateway, TRIAL, 5), 1, "the key of acme now");
    gateway.restart();
    assert_eq!([admitted(&gateway, TRIAL, 5), admitted(&gateway, ACME, 5)], [0, 2]);
}

/// Sends a request with a key. Returns its status; `None` if the gateway is killed before.
fn status(address: SocketAddr, key: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).ok()?;
    let request = format!("GET /v1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).ok()?;
    std::str::from_utf8(response.get(9..12)?).ok()?.parse().ok()
}

/// Returns the seconds after which a response says that units of customers come back.
fn back_after(response: &Response) -> u64 {
    let (_, after) = response.field("ratelimit").split_once("\"customer\";r=0;t=").expect("a spent budget");
    after.split(',').next().and_then(|seconds| seconds.parse().ok()).expect("seconds")
}

#[test]
fn budget_that_slides_or_begins_with_its_first_charge_outlives_a_restart() {
    let origin = Origin::plain();
    let hour = Duration::from_secs(3600);
    for (window, most) in [("sliding: 1h", 3900), ("first_use: 1h", 3600)] {
        let rules = rules().replace("free: 2 }, window: { fixed: 1h }", &format!("free: 2 }}, window: {{ {window} }}"));
        let mut gateway =
            TestGateway::with_rules(origin.address(), &format!("headers: {{ usage: true }}\nledger: file\n{rules}"));
        assert_eq!(admitted(&gateway, ACME, 3), 3);
        gateway.clock.advance(hour / 2);
        assert_eq!([admitted(&gateway, ACME, 4), admitted(&gateway, TRIAL, 4)], [2, 2], "{window}");
        gateway.restart();
        let refused = get(&gateway, ACME);
        assert_eq!((refused.status, refused.json()["reason"].as_str()), (429, Some("quota")), "{window}");
        let wait = back_after(&refused);
        assert!((most - 1800 - 310..=most - 1800).contains(&wait), "{window}: {wait}");
        let own = gateway.connect().get("/.well-known/usage", &format!("Authorization: Bearer {ACME}\r\n"));
        assert_eq!(own.json()["budgets"][0]["used"], 5, "{window}");
        gateway.clock.advance(Duration::from_secs(wait - 60));
        assert_eq!(admitted(&gateway, ACME, 1), 0, "{window}: not before it says");
        gateway.clock.advance(Duration::from_secs(60));
        let (of_acme, of_trial) = if window.starts_with("sliding") { (3, 0) } else { (5, 0) };
        assert_eq!([admitted(&gateway, ACME, 9), admitted(&gateway, TRIAL, 9)], [of_acme, of_trial], "{window}");
        gateway.clock.advance(hour / 2 + Duration::from_secs(300));
        assert_eq!(admitted(&gateway, TRIAL, 9), 2, "{window}: each customer has its own time");
    }
}

#[test]
fn history_of_budgets_has_parts_of_a_sliding_window_and_windows_of_customers() {
    let origin = Origin::plain();
    for (window, length) in [("sliding: 12h", 3600), ("first_use: 1h", 3600)] {
        let rules = rules().replace("free: 2 }, window: { fixed: 1h }", &format!("free: 2 }}, window: {{ {window} }}"));
        let gateway = TestGateway::with_rules(origin.address(), &format!("ledger: file\n{rules}"));
        assert_eq!([admitted(&gateway, ACME, 3), admitted(&gateway, TRIAL, 1)], [3, 1]);
        let records = || -> Vec<serde_json::Value> {
            serde_json::from_str(&gateway.admin_get("/api/v1/usage/history").1).expect("JSON")
        };
        assert!(records().is_empty(), "{window}");
        gateway.clock.advance(Duration::from_secs(2 * length + 61));
        wait_until("the records", || records().len() == 2);
        let used: Vec<_> = records().iter().map(|record| record["used"].clone()).collect();
        assert_eq!(used, [3, 1], "{window}");
    }
}

#[test]
fn client_has_a_share_of_a_sliding_window() {
    let origin = Origin::plain();
    let rules = "ledger: file\nquotas: { api: { limit: 100000, window: { sliding: 1h }, per_client: 10 } }\n\
                 routes: [{ match: /**, cost: { api: 1 } }]\n";
    let mut gateway = TestGateway::with_rules(origin.address(), rules);
    assert_eq!(admitted(&gateway, ACME, 4), 4);
    gateway.clock.advance(Duration::from_secs(1800));
    gateway.restart();
    assert_eq!(admitted(&gateway, ACME, 20), 6);
    let refused = get(&gateway, ACME);
    assert_eq!((refused.status, refused.json()["reason"].as_str()), (429, Some("client_share")));
    gateway.clock.advance(Duration::from_secs(1800 + 300));
    assert_eq!(admitted(&gateway, ACME, 20), 4, "what was used first has expired");
}

/// Customers that ask all the time, through kills, get no unit more than their budgets, and few less.
#[test]
fn kills_give_no_customer_more_than_its_budget() {
    ["fixed", "sliding", "first_use"].into_iter().for_each(kills_keep_budgets_of);
}

fn kills_keep_budgets_of(window: &str) {
    const LIMIT: usize = 100;
    const CLIENTS_OF_EACH: usize = 2;
    const KILLS: usize = 4;
    let origin = Origin::plain();
    let served = || origin.received_requests().len();
    let state = tempfile::tempdir().expect("temporary directory");
    let rules = format!(
        "api_keys: [{{ name: acme, class: pro, sha256: {ACME_HASH} }}, {{ name: trial, class: pro, sha256: {TRIAL_HASH} }}]\n\
         quotas: {{ customer: {{ per: api_key, limit: {LIMIT}, window: {{ {window}: 87600h }} }} }}\n\
         classes: [{{ name: pro, when: {{ api_key: own }} }}]\n\
         routes: [{{ match: /**, cost: {{ customer: 1 }} }}]\n"
    );
    for round in 0..=KILLS {
        let gateway = RunningGateway::start(state.path(), origin.address(), &rules);
        let clients: Vec<_> = [ACME, TRIAL]
            .into_iter()
            .cycle()
            .take(2 * CLIENTS_OF_EACH)
            .map(|key| {
                let address = gateway.address;
                std::thread::spawn(move || while status(address, key) == Some(200) {})
            })
            .collect();
        if round < KILLS {
            let target = (round + 1) * 2 * LIMIT / (KILLS + 2);
            wait_until("requests of this round", || served() >= target);
            gateway.program.signal("KILL");
        }
        clients.into_iter().for_each(|client| client.join().expect("the client ends"));
        gateway.program.kill();
    }
    for key in [ACME, TRIAL] {
        let fields = |request: &ReceivedRequest| request.head.contains(key);
        let count = origin.received_requests().iter().filter(|request| fields(request)).count();
        assert!(count <= LIMIT, "{window}: {count} of {LIMIT}");
        let in_flight = KILLS * CLIENTS_OF_EACH;
        assert!(count + in_flight >= LIMIT, "{count} of {LIMIT}: a kill loses at most what was in flight");
    }
}

/// A budget of 100 tokens, and of 100,000 for customers of the class `pro`.
const TOKENS: &str = "
api_keys: [{ name: acme, class: pro, sha256: ACME_HASH }]
quotas:
  tokens: { per: api_key, limit: 100, limits: { pro: 100000 }, window: { fixed: 1h }, cost_json: usage.total_tokens }
  zone: { limit: 7, window: { fixed: 1h } }
classes: [{ name: pro, when: { api_key: own } }]
routes:
  - { match: /stated, cost: { tokens: { json: max_tokens, default: 10 } } }
  - { match: /**, cost: { tokens: 50 } }
";

#[test]
fn customer_above_the_usual_limit_states_and_pays_what_a_call_costs() {
    let origin = Origin::with_script(|_, connection| {
        connection.reply("200 OK", "Content-Type: application/json\r\n", br#"{"usage":{"total_tokens":40000}}"#);
    });
    let gateway = TestGateway::with_rules(origin.address(), &TOKENS.replace("ACME_HASH", ACME_HASH));
    let used = || {
        let (_, usage) = gateway.admin_get("/api/v1/usage?key=acme");
        let usage: serde_json::Value = serde_json::from_str(&usage).expect("JSON");
        usage[0]["used"].as_f64().expect("units")
    };
    assert_eq!(get(&gateway, ACME).status, 200);
    wait_until("the cost of the body", || used() == 40_000.0);
    let stated = |tokens: u32| {
        let body = format!("{{\"max_tokens\":{tokens}}}");
        let head = format!(
            "POST /stated HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {ACME}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        gateway.connect().send(head + &body).read_response().status
    };
    assert_eq!(stated(70_000), 429, "more than is left");
    assert_eq!(stated(60_000), 200);
    wait_until("the cost of the body", || used() == 80_000.0);
}

#[test]
fn budget_is_explained_with_its_own_units() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("gate.yaml");
    let rules = TOKENS.replace("ACME_HASH", ACME_HASH);
    std::fs::write(&file, format!("origin: http://127.0.0.1:1\n{rules}")).expect("file is writable");
    let outcome = run(&["explain", "/v1/chat", "--ip", "192.0.2.1", "--config", &file.display().to_string()], b"");
    assert_eq!(outcome.code, 0, "{}", outcome.errors);
    assert!(outcome.output.contains("tokens: 100 remaining, 50 requested"), "{}", outcome.output);
}

#[test]
fn classes_that_count_as_one_client_each_have_a_budget_each() {
    let class = |name: &str| {
        format!("{{ name: {name}, when: {{ header: X-{name} }}, bucket: {{ rate: 1000/s, burst: 1000, key: class }} }}")
    };
    let (origin, classes) = (Origin::plain(), format!("classes: [{}, {}]\n", class("one"), class("two")));
    for quota in ["per: client, limit: 3", "limit: 1000, per_client: 3, pacing: off"] {
        let rules = format!(
            "quotas: {{ customer: {{ {quota}, window: {{ fixed: 1h }} }} }}\n{classes}\
             routes: [{{ match: /**, cost: {{ customer: 1 }} }}]\n"
        );
        let gateway = TestGateway::with_rules(origin.address(), &rules);
        let admitted = |name: &str| {
            let served = (0..5).filter(|_| gateway.connect().get("/", &format!("X-{name}: 1\r\n")).status == 200);
            served.count()
        };
        assert_eq!([admitted("one"), admitted("two")], [3, 3], "{quota}");
    }
}
