//! Switches of administrators: block, allow and maintenance, over restarts and reloads, with several gateways.

use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::redis::RedisServer;
use crate::support::wait::wait_until;
use serde_json::{Value, json};
use std::time::Duration;
use tidegate_engine::clock::Clock;

const RULES: &str = "headers: { retry_after_spread: 0% }\n\
                     quotas: { api: { limit: 5, window: { fixed: 7d }, tiers: { robot: [ { above: 0%, shed: 100% } ] } } }\n\
                     classes: [ { name: robot, when: { kind: [declared_bot, impostor] } }, { name: person } ]\n\
                     routes: [ { match: '/page/*', cost: { api: 1 } } ]\n";
const GPTBOT: &str = "User-Agent: GPTBot/1.0\r\n";
const CURL: &str = "User-Agent: curl/8.0\r\n";

#[test]
fn switches_apply_at_once_survive_restarts_and_end() {
    let origin = Origin::plain();
    let mut gateway = TestGateway::with_rules(origin.address(), RULES);
    assert_eq!(status(&gateway, "/free", "", "192.0.2.7"), 200);
    let set = switch(&gateway, &json!({ "target": "192.0.2.7", "effect": "block", "for_s": 90, "why": "scrapes" }));
    assert_eq!((&set["target"], &set["until"]), (&json!("192.0.2.7/32"), &json!("2027-01-15T12:01:30Z")), "{set}");

    let response = get(&gateway, "/free", "", "192.0.2.7");
    assert_eq!((response.status, response.field("retry-after")), (429, "90"));
    assert_eq!(status(&gateway, "/robots.txt", "", "192.0.2.7"), 200, "robots.txt is never refused");
    assert_eq!(status(&gateway, "/free", "", "192.0.2.8"), 200);
    gateway.restart();
    assert_eq!(status(&gateway, "/free", "", "192.0.2.7"), 429);
    gateway.reload(origin.address(), &format!("{RULES}# another file\n")).expect("reloaded");
    assert_eq!(status(&gateway, "/free", "", "192.0.2.7"), 429);
    gateway.clock.advance(Duration::from_secs(90));
    assert_eq!(status(&gateway, "/free", "", "192.0.2.7"), 200, "the switch is over");
    assert_eq!(switches(&gateway), json!([]));

    switch(&gateway, &json!({ "target": "192.0.2.0/24", "effect": "block", "for_s": 3600, "why": "scrapes" }));
    assert_eq!(status(&gateway, "/free", "", "192.0.2.7"), 429);
    end(&gateway, "192.0.2.0%2F24");
    assert_eq!(status(&gateway, "/free", "", "192.0.2.7"), 200);
    gateway.restart();
    assert_eq!(status(&gateway, "/free", "", "192.0.2.7"), 200, "an ended switch does not come back");
}

#[test]
fn allowed_class_passes_its_tier_but_not_the_limit() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    assert_eq!(status(&gateway, "/page/1", "", "192.0.2.9"), 200);
    assert_eq!(status(&gateway, "/page/1", CURL, "192.0.2.1"), 429);
    switch(&gateway, &json!({ "target": "robot", "effect": "allow", "for_s": 3600, "why": "a campaign" }));
    for page in 2..6 {
        assert_eq!(status(&gateway, &format!("/page/{page}"), CURL, "192.0.2.1"), 200);
    }
    assert_eq!(status(&gateway, "/page/6", CURL, "192.0.2.1"), 429);
    assert_eq!(origin.received_requests().len(), 5, "never more units than bought");
    let log = gateway.read_log_text();
    let mut verdicts: Vec<[Value; 2]> =
        log.lines().map(parse).map(|line| [line["switch"].clone(), line["reason"].clone()]).collect();
    verdicts.sort_by_key(|verdict| json!(verdict).to_string());
    let allowed = [json!("allow"), Value::Null];
    let refused = [[json!("allow"), json!("quota")], [Value::Null, json!("tier")], [Value::Null, Value::Null]];
    let expected: Vec<_> = refused[..1].iter().chain([&allowed; 4]).chain(&refused[1..]).cloned().collect();
    assert_eq!(verdicts, expected);
}

#[test]
fn operator_switch_blocks_claims_and_allows_only_proven_crawlers() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    assert_eq!(status(&gateway, "/page/1", "", "192.0.2.9"), 200);
    switch(&gateway, &json!({ "target": "gptbot", "effect": "allow", "for_s": 60, "why": "a test" }));
    assert_eq!(status(&gateway, "/page/1", GPTBOT, "192.0.2.1"), 429, "whoever claims to be it is not allowed");
    switch(&gateway, &json!({ "target": "operator:gptbot", "effect": "block", "for_s": 60, "why": "a test" }));
    assert_eq!(status(&gateway, "/free", GPTBOT, "192.0.2.1"), 429);
    assert_eq!(status(&gateway, "/free", CURL, "192.0.2.1"), 200);
}

#[test]
fn maintenance_answers_503_except_for_listed_networks() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let except = ["192.0.2.0/24"];
    switch(&gateway, &json!({ "target": "maintenance", "effect": "maintenance", "for_s": 600, "except": except }));
    let response = get(&gateway, "/page/1", "Accept: text/html\r\n", "198.51.100.1");
    assert_eq!((response.status, response.field("retry-after")), (503, "600"));
    let page = response.text();
    assert!(page.contains("<html") && page.contains("maintenance"), "{page}");
    assert_eq!(status(&gateway, "/page/1", "", "192.0.2.1"), 200);
    assert_eq!(status(&gateway, "/robots.txt", "", "198.51.100.1"), 200, "a 503 would stop crawlers for days");
    assert_eq!(gateway.metric("tidegate_switches{effect=\"maintenance\"}"), 1.0);
    assert_eq!(gateway.metric("tidegate_switches{effect=\"block\"}"), 0.0);
    end(&gateway, "maintenance");
    assert_eq!(status(&gateway, "/page/1", "", "198.51.100.1"), 200);
    let open_end = switch(&gateway, &json!({ "target": "maintenance", "effect": "maintenance" }));
    assert_eq!(open_end["until"], Value::Null);
    assert_eq!(get(&gateway, "/", "", "198.51.100.1").field("retry-after"), "600");
}

#[test]
fn ambiguous_or_unknown_targets_are_rejected() {
    let origin = Origin::plain();
    let rules = RULES.replace("name: robot", "name: gptbot").replace("robot:", "gptbot:");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    for (target, error) in [
        ("gptbot", "target: gptbot is a class and an operator; write class:gptbot or operator:gptbot"),
        ("persn", "target: found \"persn\"; give an address"),
        ("class:persn", "target: found \"class:persn\"; give"),
        ("maintenance", "target: found \"maintenance\"; give"),
        ("0.0.0.0/0", "target: 0.0.0.0/0 has too many clients; give a network of at least /8, or a class"),
        ("2000::/3", "target: 2000::/3 has too many clients; give a network of at least /19, or a class"),
        ("192.0.2.0/33", "target: found"),
    ] {
        let body = json!({ "target": target, "effect": "block", "for_s": 60, "why": "a test" });
        let (status, response) = gateway.admin_request("POST", "/api/v1/switches", &body.to_string());
        let detail = parse(&response)["detail"].as_str().unwrap_or_default().to_owned();
        assert!(status == 422 && detail.starts_with(error), "{target}: {status} {detail}");
    }
    // Another gateway may have set it with other bounds.
    let (_, response) = gateway.admin_request("DELETE", "/api/v1/switches/0.0.0.0%2F0", "");
    assert!(response.contains("no switch of 0.0.0.0/0 is in effect"), "{response}");
    let (status, response) = gateway.admin_request("DELETE", "/api/v1/switches/gptbotx", "");
    assert_eq!(status, 422, "{response}");
    let set = switch(&gateway, &json!({ "target": "2001:db8::7", "effect": "block", "for_s": 60, "why": "a test" }));
    assert_eq!(set["target"], "2001:db8::/64", "the addresses of one client");
}

#[test]
fn gateways_with_one_ledger_share_switches() {
    let mut redis = RedisServer::start(&[]);
    let origin = Origin::plain();
    let ledger = format!("ledger: {{ redis: {{ url: 'redis://127.0.0.1:{}' }} }}\n", redis.port);
    let rules = format!("{ledger}{RULES}");
    let start = || TestGateway::with_clock(origin.address(), &rules, Clock::system());
    let gateways = [start(), start()];
    let block = json!({ "target": "192.0.2.7", "effect": "block", "for_s": 3600, "why": "scrapes" });
    switch(&gateways[0], &block);
    wait_until("the switch to reach the other gateway", || status(&gateways[1], "/free", "", "192.0.2.7") == 429);
    assert_eq!(switches(&gateways[1])[0]["why"], "scrapes");
    // A gateway that starts later has it, too, although the server has lost it.
    redis.cli(&["flushall"]);
    let late = start();
    wait_until("a switch that the server had lost", || status(&late, "/free", "", "192.0.2.7") == 429);
    // What no gateway wrote is ignored.
    let key = redis.cli(&["keys", "*:switches"]).trim().to_owned();
    for (field, value) in [("192.0.2.7/32", "damaged"), ("", "damaged"), ("192.0.2.8/32", "1 2 {")] {
        redis.cli(&["hset", &key, field, value]);
    }
    switch(&late, &json!({ "target": "192.0.2.9", "effect": "block", "for_s": 3600, "why": "scrapes" }));
    wait_until("a switch beside damaged ones", || status(&gateways[0], "/free", "", "192.0.2.9") == 429);
    // Changes during an outage are shared after it.
    redis.kill();
    end(&gateways[1], "192.0.2.7");
    assert_eq!(status(&gateways[1], "/free", "", "192.0.2.7"), 200);
    redis.restart();
    for gateway in [&gateways[0], &late] {
        wait_until("the end of the switch", || status(gateway, "/free", "", "192.0.2.7") == 200);
    }
}

fn get(gateway: &TestGateway, path: &str, fields: &str, address: &str) -> crate::support::client::Response {
    gateway.connect().get(path, &format!("{fields}X-Forwarded-For: {address}\r\n"))
}

fn status(gateway: &TestGateway, path: &str, fields: &str, address: &str) -> u16 {
    get(gateway, path, fields, address).status
}

fn switch(gateway: &TestGateway, body: &Value) -> Value {
    let (status, response) = gateway.admin_request("POST", "/api/v1/switches", &body.to_string());
    assert_eq!(status, 200, "{response}");
    parse(&response)
}

fn end(gateway: &TestGateway, target: &str) {
    let (status, response) = gateway.admin_request("DELETE", &format!("/api/v1/switches/{target}"), "");
    assert_eq!(status, 200, "{response}");
}

fn switches(gateway: &TestGateway) -> Value {
    parse(&gateway.admin_get("/api/v1/switches").1)["switches"].clone()
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}
