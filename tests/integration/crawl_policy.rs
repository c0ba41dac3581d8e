//! The public crawl policy at `/.well-known/crawl-policy`, if enabled.

use crate::support::client::Response;
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use serde_json::{Value, json};
use std::time::Duration;

const PATH: &str = "/.well-known/crawl-policy";
const SCRAPER: &str = "User-Agent: SomeBot/1.0 (+https://bot.example)\r\n";
const BROWSER: &str = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";

const RULES: &str = "
classes:
  - { name: partner-acme, when: { api_key: { header: X-Api-Key, value: sesame } } }
  - { name: neighbours, when: { address: 203.0.113.0/24 } }
  - { name: search, when: { operator: [googlebot, bingbot] }, crawl_delay: { bingbot: 30s } }
  - { name: crawler, when: { kind: verified_bot }, crawl_delay: 10s, bucket: { capacity: 60, fill: 10, interval: 10s } }
  - { name: bot, when: { kind: declared_bot }, crawl_delay: 20s, block: true }
  - { name: person, when: { kind: human } }
quotas:
  api:
    limit: 2000
    window: { fixed: 24h }
    tiers: { search: [{ above: 50%, shed: 50% }, { above: 90%, shed: 100% }] }
  tried: { limit: 5, window: { fixed: 24h }, enforce: false }
routes:
  - { match: /**, cost: { api: 1 } }
";
const ENABLED: &str = "crawl_policy: { contact: \"mailto:bots@example.com\" }\n";

#[test]
fn crawl_policy_path_is_forwarded_unless_enabled() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    gateway.connect().get(PATH, "");
    assert_eq!(origin.last_request().target, PATH);
    gateway.reload(origin.address(), &format!("{RULES}crawl_policy: on\n")).expect("valid rules");
    assert_eq!(policy_json(&gateway)["contact"], Value::Null);
    assert_eq!(origin.received_requests().len(), 1);
}

#[test]
fn document_lists_operators_verification_and_class_limits() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), &enabled_rules());
    gateway.set_used("api", 1200);
    let policy = policy_json(&gateway);
    assert_eq!(policy["contact"], "mailto:bots@example.com");
    // Tests do not query DNS.
    let bingbot = find_named(&policy["operators"], "bingbot");
    let expected = json!({ "name": "bingbot", "crawlers": bingbot["crawlers"], "verified_by": ["addresses"],
        "class": "search", "crawl_delay_s": 30 });
    assert_eq!(*bingbot, expected);
    assert!(bingbot["crawlers"].as_array().expect("a list").contains(&json!("bingbot")), "{bingbot}");
    assert_eq!(find_named(&policy["operators"], "gptbot")["crawl_delay_s"], 10);
    assert_eq!(find_named(&policy["operators"], "pingdom")["verified_by"], json!([]));
    assert_eq!(policy["undeclared_or_unverified_bots"], json!({ "class": "bot", "crawl_delay_s": 20 }));
    assert_eq!(find_named(&policy["verification"], "names")["name"], "names");

    let search = find_named(&policy["classes"], "search");
    assert_eq!(search["operators"], json!(["googlebot", "bingbot"]));
    assert_eq!(search["crawl_delay_s"], Value::Null, "one of the two operators has no crawl delay");
    let tiers = json!([{ "above": 0.5, "refused_ratio": 0.5 }, { "above": 0.9, "refused_ratio": 1.0 }]);
    assert_eq!(
        search["quotas"],
        json!([{ "name": "api", "remaining": 0.3, "refused_ratio": 0.5, "tiers": tiers, "window_ends": "2027-01-16T00:00:00Z" }])
    );
    let crawler = find_named(&policy["classes"], "crawler");
    assert_eq!(
        crawler["bucket"],
        json!({ "shared_by": "client", "capacity": 60, "fill": 10, "interval_s": 10.0, "counts": "all" })
    );
    assert_eq!((&crawler["crawl_delay_s"], &crawler["blocked"]), (&json!(10), &json!(false)));
    assert_eq!(crawler["quotas"][0]["remaining"], 0.4);
    let bot = find_named(&policy["classes"], "bot");
    assert_eq!((&bot["blocked"], &bot["quotas"]), (&json!(true), &json!([])), "a blocked class reports no quotas");
}

#[test]
fn custom_operators_and_empty_classes_are_omitted() {
    let origin = Origin::plain();
    let rules = "crawl_policy: on\noperators: { acme: { product_tokens: AcmeBot }, signy: { signature_agents: https://signy.example },\n  \
                 googlebot: { product_tokens: [] } }\nclasses:\n  - { name: partner, when: { operator: [acme, signy] } }\n  \
                 - { name: search, when: { operator: [acme, googlebot] }, bucket: { rate: 1/s, burst: 5, key: operator } }\n  \
                 - { name: bot, when: { kind: [verified_bot, declared_bot, suspected_bot, impostor] } }\n  \
                 - { name: rest }";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let (policy, page) = (policy_json(&gateway), get_policy(&gateway, BROWSER).text());
    let names: Vec<&Value> = policy["classes"].as_array().expect("a list").iter().map(|class| &class["name"]).collect();
    assert_eq!(names, ["search", "bot"]);
    let search = find_named(&policy["classes"], "search");
    assert_eq!((&search["operators"], &search["bucket"]["shared_by"]), (&json!(["googlebot"]), &json!("operator")));
    assert!(page.contains("<li>Each operator's crawlers together: 5 requests"), "{page}");
    assert!(page.contains("<li><b>googlebot</b>: by") && !page.contains("()"), "{page}");
    for text in [policy.to_string(), page] {
        assert!(!text.contains("acme") && !text.contains("signy"), "{text}");
    }
}

#[test]
fn private_classes_are_omitted_and_units_are_optional() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), &enabled_rules());
    let page = gateway.connect().get(PATH, BROWSER).text();
    for text in [get_policy(&gateway, "").text(), page] {
        for secret in ["acme", "sesame", "neighbours", "203.0.113", "person", "tried", "2000", "units"] {
            assert!(!text.contains(secret), "{secret} is in\n{text}");
        }
    }
    let with_units = format!("{RULES}crawl_policy: {{ show_units: true }}\n");
    gateway.reload(origin.address(), &with_units).expect("valid rules");
    let quotas = find_named(&policy_json(&gateway)["classes"], "search")["quotas"].clone();
    assert_eq!(quotas[0]["units"], json!({ "limit": 2000.0, "remaining": 1800.0 }));
    assert!(get_policy(&gateway, BROWSER).text().contains("1800 of 2000 units left"));
}

#[test]
fn class_of_a_purpose_has_its_operators_only_and_classes_by_other_conditions_are_private() {
    let origin = Origin::plain();
    let rules = "crawl_policy: on\nclasses:\n  - { name: secret, when: { header: { x-partner: acme } } }\n  \
                 - { name: training, when: { purpose: training }, block: true }\n  \
                 - { name: rest }";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let (policy, page) = (policy_json(&gateway), get_policy(&gateway, BROWSER).text());
    let class_of = |operator| find_named(&policy["operators"], operator)["class"].clone();
    assert_eq!(["gptbot", "googlebot"].map(class_of), ["training", "rest"]);
    let names: Vec<&Value> = policy["classes"].as_array().expect("a list").iter().map(|class| &class["name"]).collect();
    assert_eq!(names, ["training", "rest"]);
    assert_eq!(find_named(&policy["classes"], "training")["purposes"], json!(["training"]));
    assert!(page.contains("Purposes: training"), "{page}");
}

#[test]
fn document_is_never_refused_nor_charged() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), &enabled_rules());
    gateway.set_used("api", 2000);
    assert_eq!(gateway.connect().get("/page", SCRAPER).status, 429);
    for _ in 0..100 {
        assert_eq!(get_policy(&gateway, SCRAPER).status, 200);
    }
    assert_eq!(get_policy(&gateway, "").json()["classes"][0]["quotas"][0]["refused_ratio"], 1.0);
    assert_eq!(gateway.connect().get("/.well-known//./crawl-policy?x=1", SCRAPER).status, 200);
    assert_eq!(gateway.counters(), (2000.0, 0.0));
    assert!(origin.received_requests().is_empty());
}

#[test]
fn browsers_receive_an_escaped_html_page() {
    let origin = Origin::plain();
    let contact = "crawl_policy: { contact: \"https://example.com/?a=1&b=<'>\" }\n";
    let rules = RULES.replace("when: { operator: [googlebot, bingbot] }", "when: { user_agent: \"<b>&\" }");
    let gateway = TestGateway::with_rules(origin.address(), &format!("{rules}{contact}"));
    let response = get_policy(&gateway, BROWSER);
    assert_eq!(response.field("content-type"), "text/html; charset=utf-8");
    let page = response.text();
    let link =
        "<a href=\"https://example.com/?a=1&amp;b=&lt;&#39;&gt;\">https://example.com/?a=1&amp;b=&lt;&#39;&gt;</a>";
    assert!(page.contains(link), "{page}");
    assert!(page.contains("<li>User agents: &lt;b&gt;&amp;</li>"), "{page}");
    assert!(page.contains("<li>Each client: 60 requests at once, then 10 every 10\u{a0}s</li>"), "{page}");
    assert!(page.contains("<h2>Class other</h2>\n<ul>\n<li>All other clients</li>\n"), "{page}");
    assert!(!page.contains("<ul>\n</ul>"), "{page}");
    assert!(page.contains("Blocked, except for robots.txt and this page"), "{page}");
}

#[test]
fn formats_are_cacheable_with_separate_etags() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), &enabled_rules());
    let (document, page) = (get_policy(&gateway, ""), get_policy(&gateway, BROWSER));
    assert_eq!(document.field("content-type"), "application/json");
    assert_eq!((document.field("cache-control"), document.field("vary")), ("max-age=300", "accept"));
    assert_ne!(document.field("etag"), page.field("etag"));
    let not_modified = get_policy(&gateway, &format!("If-None-Match: {}\r\n", document.field("etag")));
    assert_eq!((not_modified.status, not_modified.body.len()), (304, 0));

    gateway.set_used("api", 500);
    let cached = get_policy(&gateway, "");
    assert_eq!(cached.field("etag"), document.field("etag"), "the document is cached between requests");
    gateway.clock.advance(Duration::from_secs(10));
    let refreshed = get_policy(&gateway, "");
    assert_eq!(
        (refreshed.field("age"), &refreshed.json()["classes"][0]["quotas"][0]["remaining"]),
        ("0", &json!(0.65))
    );
}

#[test]
fn only_get_and_head_are_allowed() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), &enabled_rules());
    let mut client = gateway.connect();
    client.send(format!("HEAD {PATH} HTTP/1.1\r\nHost: a\r\n\r\n"));
    let head = client.head();
    let full = client.get(PATH, "");
    assert_eq!((head.status, head.field("content-length")), (200, &*full.body.len().to_string()));
    client.send(format!("PUT {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{{}}"));
    let refused = client.read_response();
    assert_eq!((refused.status, refused.field("allow")), (405, "GET, HEAD"));
    let uri = format!("http://a{PATH}");
    let statuses = crate::support::http2_statuses(gateway.address(), |_| {
        let request = |method| http::Request::builder().method(method).uri(&uri).body(()).expect("a request");
        vec![request("HEAD"), request("GET")]
    });
    assert_eq!(statuses, [200, 200]);
    assert!(origin.received_requests().is_empty());
}

fn enabled_rules() -> String {
    format!("{RULES}{ENABLED}")
}

fn get_policy(gateway: &TestGateway, fields: &str) -> Response {
    gateway.connect().get(PATH, fields)
}

fn policy_json(gateway: &TestGateway) -> Value {
    get_policy(gateway, "").json()
}

fn find_named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let item = list.as_array().and_then(|list| list.iter().find(|item| item["name"] == name));
    item.unwrap_or_else(|| panic!("no {name} in {list}"))
}
