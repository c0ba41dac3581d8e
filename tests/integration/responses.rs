//! Responses to clients, following the contract: status, headers, body and `Retry-After` of admitted and refused
//! requests.

use crate::support::client::{Client, Response};
use crate::support::fields::{Item, parse_list};
use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, signal};
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::time::Duration;
use tidegate::clock::Clock;
use tidegate::policy::Timestamp;

#[test]
fn admitted_response_announces_remaining_units() {
    let origin = Origin::plain();
    let gate = TestGateway::with_rules(origin.address(), QUOTA_OF_THREE);
    let answer = gate.connect().get("/page", "");
    assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
    assert_eq!(policies(&answer), [item("api", &[("q", 3), ("w", 3600)])]);
    assert_eq!(limits(&answer), [item("api", &[("r", 2), ("t", 3600)])]);
    for absent in ["x-tidegate-decision", "cache-control", "retry-after", "x-tidegate-class"] {
        assert_eq!(answer.field(absent), "", "{absent}");
    }
}

#[test]
fn free_route_without_bucket_announces_no_limits() {
    let origin = Origin::plain();
    let gate = TestGateway::with_rules(origin.address(), QUOTA_OF_THREE);
    let answer = gate.connect().get("/free", "");
    assert_eq!((answer.field("ratelimit"), answer.field("ratelimit-policy")), ("", ""));
}

#[test]
fn exhausted_quota_admits_after_announced_reset() {
    let origin = Origin::plain();
    let gate = TestGateway::with_rules(origin.address(), QUOTA_OF_THREE);
    let mut client = gate.connect();
    let left: Vec<u64> = (0..3).map(|_| limits(&client.get("/page", ""))[0].parameter("r")).collect();
    assert_eq!(left, [2, 1, 0]);
    let refused = client.get("/page", "");
    assert_eq!(refused.status, 429);
    assert_eq!(limits(&refused), [item("api", &[("r", 0), ("t", 3600)])]);
    assert_eq!(policies(&refused), [item("api", &[("q", 3), ("w", 3600)])]);
    let wait = retry_after(&refused);
    assert!((3600..=4320).contains(&wait), "{wait}: not before the hour is over, at most 20 % later");
    assert_eq!(origin.received_requests().len(), 3);

    gate.clock.advance(Duration::from_secs(3599));
    let refused = client.get("/page", "");
    assert_eq!((refused.status, limits(&refused)), (429, vec![item("api", &[("r", 0), ("t", 1)])]));
    assert!((1..=2).contains(&retry_after(&refused)));
    gate.clock.advance(Duration::from_secs(1));
    let answer = client.get("/page", "");
    assert_eq!((answer.status, limits(&answer)), (200, vec![item("api", &[("r", 2), ("t", 3600)])]));
}

#[test]
fn every_refusal_reason_has_its_problem_type() {
    let origin = Origin::plain();
    let gate = TestGateway::with_rules(origin.address(), REASONS);
    gate.set_used("api", 50);
    let cases = [
        ("/page", "tier", "shed", "quota-exceeded", "api"),
        ("/page", "bucket", "limited", "quota-exceeded", "limited"),
        ("/page", "blocked", "blocked", "abnormal-usage-detected", "blocked"),
        ("/dear", "quota", "person", "quota-exceeded", "api"),
    ];
    for (path, reason, class, kind, violated) in cases {
        let fields = format!("User-Agent: {class}\r\n");
        if reason == "bucket" {
            assert_eq!(gate.connect().get(path, &fields).status, 200, "the bucket holds one");
        }
        let answer = gate.connect().get(path, &fields);
        assert_eq!(answer.status, 429, "{reason}");
        assert_eq!(answer.field("content-type"), "application/problem+json");
        assert_eq!(answer.field("cache-control"), "no-store");
        assert!(retry_after(&answer) >= 1);
        let id = decision_id(&answer);
        let problem = answer.json();
        let title = match kind {
            "quota-exceeded" => "Request cannot be satisfied as assigned quota has been exceeded",
            _ => "Request not satisfied due to detection of abnormal request pattern",
        };
        let expected = json!({
            "type": format!("https://iana.org/assignments/http-problem-types#{kind}"),
            "title": title,
            "status": 429,
            "detail": problem["detail"],
            "instance": format!("urn:tidegate:decision:{id}"),
            "reason": reason,
            "violated-policies": [violated],
        });
        assert_eq!(problem, expected, "{reason}");
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
        assert_decision_reason(&gate, &id, reason);
    }
}

#[test]
fn retry_after_is_never_before_limit_reset() {
    let origin = Origin::plain();
    let gate = TestGateway::with_rules(origin.address(), REASONS);
    gate.set_used("api", 50);
    for class in ["shed", "limited", "blocked", "person"] {
        for _ in 0..20 {
            let answer = gate.connect().get("/dear", &format!("User-Agent: {class}\r\n"));
            if answer.status != 429 {
                continue;
            }
            let violated = answer.json()["violated-policies"].clone();
            for limit in limits(&answer) {
                let said_no = violated.as_array().is_some_and(|names| names.contains(&json!(limit.name)));
                if said_no {
                    let (remaining, reset) = (limit.parameter("r"), limit.parameter("t"));
                    assert_eq!(remaining, 0, "{class}");
                    assert!(retry_after(&answer) >= reset, "{class}: {} before {reset}", retry_after(&answer));
                }
            }
        }
    }
}

#[test]
fn retry_after_spread_stays_within_configured_bounds() {
    let origin = Origin::plain();
    let gate = exhausted_gateway(&origin, "headers: { retry_after_spread: 50% }");
    let mut client = gate.connect();
    let waits: Vec<u64> = (0..60).map(|_| retry_after(&client.get("/page", ""))).collect();
    // The day has twelve hours left. The jitter is half of at most an hour.
    let (least, most) = (waits.iter().min().copied(), waits.iter().max().copied());
    assert!(least >= Some(43_200) && most <= Some(43_200 + 1800), "{waits:?}");
    assert!(most > least.map(|least| least + 600), "Retry-After has no jitter: {waits:?}");
    let level = exhausted_gateway(&origin, "headers: { retry_after_spread: 0% }");
    let mut client = level.connect();
    assert!((0..10).all(|_| retry_after(&client.get("/page", "")) == 43_200));
}

#[test]
fn refusal_format_follows_accept_header() {
    let origin = Origin::plain();
    let gate = exhausted_gateway(&origin, "");
    let browser = gate.connect().get("/page", "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n");
    assert_eq!((browser.status, browser.field("content-type")), (429, "text/html; charset=utf-8"));
    assert!(browser.text().contains("Please try again in 1") && browser.text().contains(&decision_id(&browser)));
    assert_eq!(browser.field("cache-control"), "no-store");
    for accept in
        ["", "Accept: */*\r\n", "Accept: application/json\r\n", "Accept: text/html;q=0.1, application/json\r\n"]
    {
        assert_eq!(gate.connect().get("/page", accept).field("content-type"), "application/problem+json", "{accept:?}");
    }
}

#[test]
fn refused_head_request_has_headers_without_body() {
    let origin = Origin::plain();
    let gate = exhausted_gateway(&origin, "");
    let mut client = gate.connect();
    client.send("HEAD /page HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = client.response_to("HEAD");
    assert_eq!((answer.status, answer.field("content-type")), (429, "application/problem+json"));
    assert!(retry_after(&answer) >= 1);
    assert_eq!(client.get("/free", "").text(), "hello", "no body byte precedes the next response");
    let statuses = crate::support::http2_statuses(gate.address(), |request| {
        vec![request.method("HEAD").uri("http://a/page").body(()).expect("a request")]
    });
    assert_eq!(statuses, [429]);
}

#[test]
fn robots_txt_is_never_refused_nor_charged() {
    let origin = Origin::plain();
    let rules = "
quotas: { api: { limit: 2, window: { fixed: 1h }, tiers: { shed: [ { above: 0%, shed: 100% } ] } } }
classes:
  - { name: blocked, when: { user_agent: blocked }, block: true }
  - { name: shed, when: { user_agent: shed } }
  - { name: limited, when: { user_agent: limited }, bucket: { capacity: 1, fill: 1, interval: 1h } }
routes: [ { match: /**, cost: { api: 1 } } ]";
    let gate = TestGateway::with_rules(origin.address(), rules);
    for class in ["blocked", "shed", "limited", "person", "limited", "limited"] {
        gate.connect().get("/page", &format!("User-Agent: {class}\r\n"));
    }
    assert_eq!(gate.counters(), (2.0, 0.0), "the quota is used up");
    for class in ["blocked", "shed", "limited", "person"] {
        let fields = format!("User-Agent: {class}\r\n");
        assert_eq!(gate.connect().get("/page", &fields).status, 429, "{class}");
        assert_eq!(gate.connect().get("/robots.txt", &fields).status, 200, "{class}");
        assert_eq!(gate.connect().get("/./a/../robots.txt", &fields).status, 200, "{class}, by another spelling");
    }
    assert_eq!(gate.counters(), (2.0, 0.0));
}

#[test]
fn robots_txt_ignores_route_cost() {
    let (tell, asked) = signal();
    let (go_on, wait) = signal();
    let origin = Origin::with_script(move |_, wire| {
        tell.notify();
        wait.wait();
        wire.reply("200 OK", "", b"");
    });
    let rules = "
quotas: { api: { limit: 10, window: { fixed: 24h } } }
routes: [ { match: /**, cost: { api: 2 } } ]";
    let gate = TestGateway::with_rules(origin.address(), rules);
    gate.set_used("api", 9);
    let mut client = gate.connect();
    client.send("GET /robots.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    asked.wait();
    assert_eq!(gate.counters(), (9.0, 0.0), "no charge while robots.txt is fetched");
    go_on.notify();
    assert_eq!(client.read_response().status, 200);
    assert_eq!(gate.counters(), (9.0, 0.0));
    assert_eq!(gate.metric("tidegate_quota_overrun_total{quota=\"api\"}"), 0.0, "the origin reported no overrun");
}

#[test]
fn every_spelling_of_a_costed_page_is_charged() {
    let origin = Origin::plain();
    let rules = "
quotas: { api: { limit: 1000, window: { fixed: 24h } } }
routes:
  - { match: /free }
  - { match: /search, method: GET, cost: { api: 4 } }
  - { match: '/item/*', cost: { api: 1 } }
  - { match: /list, query: [page], cost: { api: 2 } }
  - { match: /exact, case: exact, trailing_slash: exact, cost: { api: 8 } }";
    let gate = TestGateway::with_rules(origin.address(), rules);
    for (method, target, cost) in [
        ("GET", "/SEARCH", 4.0),
        ("GET", "/search/", 4.0),
        ("GET", "/se%61rch/?x", 4.0),
        ("HEAD", "/search", 4.0),
        ("GET", "/Item/1", 1.0),
        ("GET", "/item/1/", 1.0),
        ("GET", "/item/", 0.0),
        ("GET", "/list?%70age=2", 2.0),
        ("GET", "/LIST/?p%61ge", 2.0),
        ("GET", "/list?q=page", 0.0),
        ("GET", "/exact", 8.0),
        ("GET", "/EXACT", 0.0),
        ("GET", "/exact/", 0.0),
        ("GET", "/free", 0.0),
    ] {
        gate.set_used("api", 0);
        let mut client = gate.connect();
        client.send(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.head().status, 200, "{method} {target}");
        assert_eq!(gate.counters(), (cost, 0.0), "{method} {target}");
        assert_eq!(origin.last_request().target, target, "the target is forwarded unchanged");
    }
}

#[test]
fn a_free_route_is_never_refused_for_quota() {
    let origin = Origin::plain();
    let gate = exhausted_gateway(&origin, "");
    assert_eq!(gate.connect().get("/page", "").status, 429);
    assert_eq!(gate.connect().get("/free", "").status, 200);
}

#[test]
fn bucket_drains_and_refills_as_announced() {
    let origin = Origin::plain();
    let rules = "classes: [ { name: all, bucket: { capacity: 3, fill: 1, interval: 10s } } ]";
    let gate = TestGateway::with_rules(origin.address(), rules);
    let mut client = gate.connect();
    for left in [2, 1, 0] {
        let answer = client.get("/", "");
        assert_eq!(policies(&answer), [item("all", &[("q", 3), ("w", 30)])]);
        assert_eq!(limits(&answer)[0].parameter("r"), left);
    }
    let refused = client.get("/", "");
    assert_eq!((refused.status, refused.json()["reason"].as_str()), (429, Some("bucket")));
    let wait = retry_after(&refused);
    assert!((10..=12).contains(&wait), "{wait}");
    gate.clock.advance(Duration::from_secs(wait));
    assert_eq!(client.get("/", "").status, 200, "a request after Retry-After is admitted");
    assert_eq!(client.get("/", "").status, 429, "only one request is admitted");
    assert_eq!(client.get("/", "X-Forwarded-For: 192.0.2.7\r\n").status, 200, "each client has its own bucket");
    assert_eq!(client.get("/", "X-Forwarded-For: 2001:db8::1\r\n").status, 200);
    let sibling = client.get("/", "X-Forwarded-For: 2001:db8::2\r\n");
    assert_eq!(limits(&sibling)[0].parameter("r"), 1, "addresses of one prefix share a bucket");
}

#[test]
fn state_lists_limited_clients_and_remaining_time() {
    let origin = Origin::plain();
    let rules = "
classes:
  - { name: unwanted, when: { address: 192.0.2.2 }, block: true, bucket: { rate: 1/s } }
  - { name: all, bucket: { capacity: 1, fill: 1, interval: 10s } }";
    let gate = TestGateway::with_rules(origin.address(), rules);
    for (client, requests) in [(1, 4), (2, 2), (3, 2), (4, 1)] {
        for _ in 0..requests {
            gate.connect().get("/", &format!("X-Forwarded-For: 192.0.2.{client}\r\n"));
        }
    }
    let limited = || {
        let state = gate.state();
        let row = |of: &Value| format!("{} {} {} {}", of["key"], of["refused"], of["limited_by"], of["limited_for_s"]);
        state["top_clients"].as_array().expect("a list").iter().map(row).collect::<Vec<_>>().join(", ").replace('"', "")
    };
    assert_eq!(limited(), "192.0.2.1 3 bucket 10, 192.0.2.2 2 blocked null, 192.0.2.3 1 bucket 10");
    gate.clock.advance(Duration::from_secs(4));
    assert_eq!(limited(), "192.0.2.1 3 bucket 6, 192.0.2.2 2 blocked null, 192.0.2.3 1 bucket 6");
    gate.clock.advance(Duration::from_secs(6));
    assert_eq!(limited(), "192.0.2.1 3 null null, 192.0.2.2 2 blocked null, 192.0.2.3 1 null null");
}

#[test]
fn legacy_atlassian_headers_match_bucket_state() {
    let origin = Origin::plain();
    let rules = "
classes: [ { name: all, bucket: { capacity: 2, fill: 1, interval: 10s } } ]
headers: { ratelimit: off, legacy: [atlassian] }";
    let gate = TestGateway::with_rules(origin.address(), rules);
    let mut client = gate.connect();
    let first = client.get("/", "");
    assert_eq!(atlassian_headers(&first), ["2", "1", "10", "1"]);
    assert_eq!(first.field("retry-after"), "0", "tokens are left");
    let second = client.get("/", "");
    assert_eq!((atlassian_headers(&second), second.field("retry-after")), (["2", "0", "10", "1"], "10"));
    let refused = client.get("/", "");
    assert_eq!((refused.status, atlassian_headers(&refused)), (429, ["2", "0", "10", "1"]));
    assert!(retry_after(&refused) >= 10);
    for answer in [first, second, refused] {
        assert_eq!((answer.field("ratelimit"), answer.field("ratelimit-policy")), ("", ""), "standard headers are off");
    }
}

#[test]
fn github_and_draft_headers_show_most_restrictive_policy() {
    let origin = Origin::plain();
    let rules = "
quotas: { api: { limit: 10, window: { fixed: 1h } } }
classes: [ { name: all, bucket: { capacity: 3, fill: 1, interval: 10s } } ]
routes: [ { match: /dear, cost: { api: 5 } } ]
headers: { legacy: [github, draft-03] }";
    let gate = TestGateway::with_rules(origin.address(), rules);
    let mut client = gate.connect();
    let mut told = |path: &str| {
        let answer = client.get(path, "");
        let github = ["limit", "remaining", "used", "reset", "resource"].map(|name| {
            let text = answer.field(&format!("x-ratelimit-{name}"));
            text.parse().map_or_else(
                |_| text.to_owned(),
                |moment: u64| match name {
                    "reset" => format!("+{}", moment - gate.clock.now().seconds()),
                    _ => text.to_owned(),
                },
            )
        });
        let draft = ["limit", "remaining", "reset"].map(|name| answer.field(&format!("ratelimit-{name}")).to_owned());
        (answer.status, github.join(" "), draft.join(" "))
    };
    let says = |status, github: &str, draft: &str| (status, github.to_owned(), draft.to_owned());
    assert_eq!(told("/dear"), says(200, "10 5 5 +3600 api", "10 5 3600"), "units for one such request are left");
    assert_eq!(told("/free"), says(200, "3 1 2 +20 all", "3 1 20"));
    assert_eq!(
        told("/free"),
        says(200, "3 0 3 +10 all", "3 0 10"),
        "reset is the time of the next token, not of a full bucket"
    );
    assert_eq!(told("/free"), says(429, "3 0 3 +10 all", "3 0 10"));
    gate.clock.advance(Duration::from_secs(30));
    assert_eq!(told("/dear"), says(200, "10 0 10 +3570 api", "10 0 3570"));
    assert_eq!(
        told("/dear"),
        says(429, "10 0 10 +3570 api", "10 0 3570"),
        "the quota refuses while the bucket has two tokens"
    );
    assert_eq!(told("/free"), says(200, "3 1 2 +20 all", "3 1 20"));
    assert_eq!(
        told("/robots.txt"),
        says(200, "3 1 2 +20 all", "3 1 20"),
        "reported although robots.txt takes no token"
    );
}

#[test]
fn legacy_retry_after_keeps_origin_value() {
    let origin = Origin::with_script(|request, wire| match request.target.as_str() {
        "/busy" => wire.reply("503 Service Unavailable", "Retry-After: 120\r\n", b""),
        "/limited" => wire.reply("429 Too Many Requests", "", b""),
        _ => wire.reply("200 OK", "", b""),
    });
    let rules = "
classes: [ { name: all, bucket: { capacity: 9, fill: 1, interval: 10s } } ]
headers: { legacy: [atlassian] }";
    let gate = TestGateway::with_rules(origin.address(), rules);
    let retry_after = |path| gate.connect().get(path, "").field("retry-after").to_owned();
    assert_eq!(retry_after("/busy"), "120");
    assert_eq!(retry_after("/limited"), "", "no `Retry-After: 0` after a refusal by the origin");
    assert_eq!(retry_after("/"), "0");
}

#[test]
fn gateway_limit_headers_replace_origin_headers() {
    let origin = Origin::with_script(|_, wire| {
        let fields = "RateLimit-Policy: \"inner\";q=9\r\nRateLimit: \"inner\";r=8;t=7\r\nRateLimit: \"more\";r=1\r\n";
        wire.reply("200 OK", fields, b"");
    });
    let gate = TestGateway::with_rules(origin.address(), QUOTA_OF_THREE);
    let answer = gate.connect().get("/page", "");
    assert_eq!(policies(&answer), [item("api", &[("q", 3), ("w", 3600)])]);
    assert_eq!(limits(&answer), [item("api", &[("r", 2), ("t", 3600)])]);
    assert_eq!(
        gate.connect().get("/free", "").field("ratelimit"),
        "\"inner\";r=8;t=7, \"more\";r=1",
        "headers of the origin are not modified"
    );
}

#[test]
fn gateway_errors_carry_limit_headers() {
    let gate = TestGateway::with_rules(
        Origin::unreachable(),
        &format!("{QUOTA_OF_THREE}\nheaders: {{ legacy: [atlassian] }}"),
    );
    let answer = gate.connect().get("/page", "");
    assert_eq!((answer.status, answer.field("cache-control")), (502, "no-store"));
    assert_eq!(policies(&answer), [item("api", &[("q", 3), ("w", 3600)])]);
    assert_eq!(limits(&answer)[0].name, "api");
    assert!(retry_after(&answer) >= 1, "no `Retry-After: 0` from the legacy headers");
    let id = decision_id(&answer);
    let (status, line) = gate.admin_get(&format!("/api/v1/decisions/{id}"));
    assert_eq!((status, parse_json(&line)["status"].as_u64()), (200, Some(502)));
}

#[test]
fn several_quotas_are_charged_atomically() {
    let origin = Origin::plain();
    let rules = "
quotas:
  plenty: { limit: 100, window: { fixed: 1h } }
  scarce: { limit: 2, window: { fixed: 24h } }
routes: [ { match: /both, cost: { plenty: 10, scarce: 1 } }, { match: /one, cost: { plenty: 1 } } ]";
    let gate = TestGateway::with_rules(origin.address(), rules);
    let mut client = gate.connect();
    client.get("/both", "");
    let answer = client.get("/both", "");
    assert_eq!(
        policies(&answer),
        [item("plenty", &[("q", 100), ("w", 3600)]), item("scarce", &[("q", 2), ("w", 86_400)])]
    );
    assert_eq!(
        limits(&answer),
        [item("plenty", &[("r", 80), ("t", 3600)]), item("scarce", &[("r", 0), ("t", 43_200)])]
    );
    let refused = client.get("/both", "");
    assert_eq!(refused.json()["violated-policies"], json!(["scarce"]));
    assert_eq!(used_by_quota(&gate), [20.0, 2.0], "the refused request charged neither quota");
    assert_eq!(client.get("/one", "").status, 200);
    assert_eq!(used_by_quota(&gate), [21.0, 2.0]);
}

#[test]
fn concurrent_requests_never_exceed_quota_limit() {
    let origin = Origin::plain();
    let rules = "workers: 4
quotas: { api: { limit: 50, window: { fixed: 24h } } }
routes: [ { match: /**, cost: { api: 1 } } ]";
    let gate = TestGateway::with_rules(origin.address(), rules);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = gate.connect();
                (0..50).for_each(|_| drop(client.get("/", "")));
            });
        }
    });
    assert_eq!(origin.received_requests().len(), 50);
    assert_eq!(gate.counters(), (50.0, 0.0));
}

#[test]
fn shadow_refusals_are_recorded_and_admitted() {
    let cases = [
        ("quota", "quotas: { api: { limit: 1, window: { fixed: 1h }, enforce: false } }", "quota"),
        (
            "tier list",
            "quotas: { api: { limit: 9, window: { fixed: 1h }, tiers: { other: { enforce: false, steps: [ { above: 0%, shed: 100% } ] } } } }",
            "tier",
        ),
        (
            "class",
            "quotas: { api: { limit: 9, window: { fixed: 1h } } }\nclasses: [ { name: other, block: true, enforce: false } ]",
            "blocked",
        ),
        (
            "bucket",
            "quotas: { api: { limit: 9, window: { fixed: 1h } } }\nclasses: [ { name: other, bucket: { capacity: 1, fill: 1, interval: 1h }, enforce: false } ]",
            "bucket",
        ),
    ];
    for (what, rules, reason) in cases {
        let origin = Origin::plain();
        let gate = TestGateway::with_rules(
            origin.address(),
            &format!("{rules}\nroutes: [ {{ match: /page, cost: {{ api: 1 }} }} ]"),
        );
        for _ in 0..3 {
            assert_eq!(gate.connect().get("/page", "").status, 200, "{what}");
        }
        let shadow = gate.metric(&format!("tidegate_shadow_refusals_total{{class=\"other\",reason=\"{reason}\"}}"));
        assert!(shadow >= 2.0, "{what}: {shadow}");
        assert_eq!(used_by_quota(&gate), [3.0], "{what}");
        let tried = |line: &&Value| line["verdict"] == "admitted" && line["shadow_reason"] == reason;
        assert_eq!(gate.read_log().iter().filter(tried).count() as f64, shadow, "{what}");
    }
}

#[test]
fn shadow_mode_is_not_announced() {
    const BOTH: &str = "quotas:\n  tried: { limit: 1, window: { fixed: 24h }, enforce: false }\n  \
                        bought: { limit: 9, window: { fixed: 24h } }\n\
                        routes: [ { match: /both, cost: { tried: 1, bought: 1 } }, { match: /page, cost: { tried: 1 } } ]\n\
                        headers: { legacy: [atlassian, github, draft-03] }";
    let gate = TestGateway::with_rules(Origin::plain().address(), BOTH);
    let mut client = gate.connect();
    for place in 0..3 {
        let answer = client.get("/page", "");
        assert_eq!(answer.status, 200);
        let announced = ["ratelimit", "retry-after", "x-ratelimit"];
        let announced = answer.fields.keys().find(|name| announced.iter().any(|start| name.starts_with(start)));
        assert_eq!(announced, None, "request {place}");
    }
    let both = client.get("/both", "");
    assert_eq!(
        (both.field("ratelimit-policy"), both.field("ratelimit")),
        ("\"bought\";q=9;w=86400", "\"bought\";r=8;t=43200")
    );
    assert_eq!((both.field("x-ratelimit-resource"), both.field("retry-after")), ("bought", "0"));
    (0..8).for_each(|_| assert_eq!(client.get("/both", "").status, 200));
    let refused = client.get("/both", "");
    assert_eq!((refused.status, &refused.json()["violated-policies"]), (429, &json!(["bought"])));
    for (quota, enforced) in [("tried", 0.0), ("bought", 1.0)] {
        assert_eq!(gate.metrics()[&format!("tidegate_quota_enforced{{quota=\"{quota}\"}}")], enforced);
    }
}

#[test]
fn shadow_class_announces_neither_bucket_nor_tiers() {
    let rules = "quotas: { api: { limit: 9, window: { fixed: 24h }, tiers: { other: [ { above: 0%, shed: 100% } ] } } }\n\
                 classes: [ { name: other, bucket: { capacity: 1, fill: 1, interval: 1h }, enforce: false } ]\n\
                 routes: [ { match: /page, cost: { api: 1 } } ]";
    let gate = TestGateway::with_rules(Origin::plain().address(), rules);
    let mut client = gate.connect();
    let mut announced = |path| client.get(path, "").field("ratelimit").to_owned();
    assert_eq!((announced("/page"), announced("/free")), ("\"api\";r=8;t=43200".into(), String::new()));
    assert_eq!(announced("/page"), "\"api\";r=7;t=43200");
}

#[test]
fn shipped_config_bounds_usage_of_one_address() {
    let gate = TestGateway::with_rules(Origin::plain().address(), &shipped_rules());
    let greedy = format!("User-Agent: {FIREFOX}\r\nX-Forwarded-For: 192.0.2.9\r\n");
    let mut admitted = Vec::new();
    for second in 0..60 {
        let mut client = gate.connect();
        let pages = (0..70).map(|page| format!("/item/{second}-{page}"));
        let answers = pages.map(|page| client.get(&page, &greedy).status);
        admitted.push(answers.filter(|status| *status == 200).count());
        gate.clock.advance(Duration::from_secs(1));
    }
    assert_eq!(admitted[0], 60, "the burst");
    let total = admitted.iter().sum::<usize>();
    assert!(total <= 60 + 60, "{admitted:?}");
    assert_eq!(gate.counters(), (total as f64, 0.0));
    let picture = gate.connect().get("/logo.png", &greedy);
    assert_eq!(picture.status, 200, "free requests take no token");
    let neighbor = gate.connect().get("/item/1", &greedy.replace("192.0.2.9", "198.51.100.7"));
    assert_eq!(neighbor.status, 200);
    assert!(neighbor.field("ratelimit").contains("\"person\";r=59;"), "{}", neighbor.field("ratelimit"));
}

#[test]
fn free_assets_take_no_bucket_tokens() {
    let gate = TestGateway::with_rules(Origin::plain().address(), &shipped_rules());
    let mut client = gate.connect();
    let person = format!("User-Agent: {FIREFOX}\r\n");
    let has_most = |answer: &Response| answer.field("ratelimit").contains("\"person\";r=59;");
    assert!(has_most(&client.get("/item/1", &person)));
    for picture in 0..200 {
        let answer = client.get(&format!("/picture/{picture}.webp"), &person);
        assert_eq!((answer.status, answer.field("ratelimit")), (200, ""), "no limit applies to a free route");
    }
}

#[test]
fn settled_cost_follows_origin_headers() {
    let origin = Origin::with_script(|request, wire| {
        let fields = match request.target.as_str() {
            "/dear" => "X-Cost: 2.25\r\n",
            "/nothing" => "X-Cost: 0\r\n",
            "/hit" => "Cache-Status: inner; hit\r\n",
            "/miss" => "Cache-Status: inner; fwd=uri-miss\r\n",
            "/old" => "Age: 30\r\n",
            "/junk" => "X-Cost: much\r\n",
            _ => "",
        };
        wire.reply("200 OK", fields, b"");
    });
    let rules = "
quotas: { api: { limit: 100, window: { fixed: 1h }, cost_header: X-Cost, free_when_cached: true } }
routes: [ { match: /**, cost: { api: 1 } } ]";
    let gate = TestGateway::with_rules(origin.address(), rules);
    let mut client = gate.connect();
    let mut before = 0.0;
    for (path, cost) in
        [("/dear", 2.25), ("/nothing", 0.0), ("/hit", 0.0), ("/miss", 1.0), ("/old", 0.0), ("/junk", 1.0), ("/", 1.0)]
    {
        assert_eq!(client.get(path, "").status, 200);
        let (used, reserved) = gate.counters();
        assert_eq!((used - before, reserved), (cost, 0.0), "{path}");
        before = used;
    }
    let costs: Vec<_> = gate.read_log().iter().map(|line| line["charged"]["api"].as_f64()).collect();
    assert_eq!(costs, [2.25, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0].map(Some));
}

#[test]
fn cost_beyond_remaining_quota_counts_as_overrun() {
    let origin = Origin::with_script(|_, wire| wire.reply("200 OK", "X-Cost: 50\r\n", b""));
    let rules = "
quotas: { api: { limit: 10, window: { fixed: 1h }, cost_header: X-Cost } }
routes: [ { match: /**, cost: { api: 1 } } ]";
    let gate = TestGateway::with_rules(origin.address(), rules);
    assert_eq!(gate.connect().get("/", "").status, 200);
    assert_eq!(gate.counters(), (10.0, 0.0));
    assert_eq!(gate.metric("tidegate_quota_overrun_total{quota=\"api\"}"), 40.0);
    assert_eq!(gate.connect().get("/", "").status, 429);
}

#[test]
fn calendar_window_starts_at_configured_local_time() {
    let origin = Origin::plain();
    let rules = "
quotas: { api: { limit: 1, window: { calendar: day, zone: America/Los_Angeles, at: \"03:00\" } } }
routes: [ { match: /**, cost: { api: 1 } } ]";
    let gate = TestGateway::with_rules(origin.address(), rules);
    // DST starts: on 2027-03-14, 02:00 PST becomes 03:00 PDT, 10:00 UTC.
    let three = 1_805_018_400;
    let set = |seconds| gate.clock.set(Timestamp::from_seconds(seconds));
    set(three - 1);
    let mut client = gate.connect();
    assert_eq!(limits(&client.get("/", "")), [item("api", &[("r", 0), ("t", 1)])]);
    assert_eq!(client.get("/", "").status, 429);
    set(three);
    let answer = client.get("/", "");
    assert_eq!((answer.status, policies(&answer)), (200, vec![item("api", &[("q", 1), ("w", 86_400)])]));
    assert_eq!(limits(&answer), [item("api", &[("r", 0), ("t", 86_400)])]);
    set(three - 60);
    assert_eq!(client.get("/", "").status, 429, "a clock that is set back reopens no window");
}

#[test]
fn tiers_have_hysteresis_below_their_threshold() {
    let origin = Origin::plain();
    let rules = "
quotas: { api: { limit: 100, window: { fixed: 24h }, tiers: { bot: [ { above: 50%, shed: 50% }, { above: 80%, shed: 100% } ] } } }
classes: [ { name: bot, when: { user_agent: robot } }, { name: person } ]
routes: [ { match: /page, cost: { api: 1 } } ]";
    let gate = TestGateway::with_rules(origin.address(), rules);
    let mut client = gate.connect();
    let mut refused =
        |count: usize| (0..count).filter(|_| client.get("/page", "User-Agent: robot\r\n").status == 429).count();
    let standing = || {
        let state = gate.state();
        let bot =
            state["quotas"][0]["classes"].as_array().expect("a list").iter().find(|of| of["class"] == "bot").cloned();
        bot.map(|bot| (bot["tier"].as_u64(), bot["shed"].as_f64()))
    };
    assert_eq!(refused(4), 0);
    gate.set_used("api", 50);
    assert_eq!(refused(8), 4, "half of the requests are shed");
    assert_eq!(standing(), Some((Some(1), Some(0.5))));
    gate.set_used("api", 48);
    assert_eq!(refused(2), 1, "just below its threshold the tier stays active");
    gate.set_used("api", 40);
    assert_eq!(refused(4), 0, "5 % of the limit below its threshold the tier ends");
    gate.set_used("api", 80);
    assert_eq!(refused(5), 5);
    assert_eq!(standing(), Some((Some(2), Some(1.0))));
    assert_eq!(gate.metric("tidegate_tier_shed_ratio{quota=\"api\",class=\"bot\"}"), 1.0);
    assert_eq!(gate.connect().get("/page", "").status, 200, "class person has no tiers");
    gate.clock.advance(Duration::from_secs(86_400));
    assert_eq!(refused(4), 0, "a new window starts without tiers");
}

#[test]
fn crawler_class_requires_verification() {
    let origin = Origin::plain();
    let rules = "
classes:
  - { name: search, when: { operator: googlebot } }
  - { name: liar, when: { kind: impostor }, block: true }
  - { name: bot, when: { kind: [declared_bot, verified_bot] } }
  - { name: person, when: { kind: human } }";
    let gate = TestGateway::with_rules(origin.address(), rules);
    let ask = |address: &str, agent: &str| {
        let fields = format!("X-Forwarded-For: {address}\r\nUser-Agent: {agent}\r\n");
        gate.connect().get("/", &fields)
    };
    assert_eq!(ask("66.249.66.1", GOOGLEBOT).status, 200);
    let seen = origin.last_request().fields;
    assert_eq!((seen["x-tidegate-class"].as_str(), seen["x-tidegate-operator"].as_str()), ("search", "googlebot"));

    let refused = ask("203.0.113.64", GOOGLEBOT);
    assert_eq!((refused.status, refused.json()["reason"].as_str()), (429, Some("blocked")));
    let line = parse_json(&gate.admin_get(&format!("/api/v1/decisions/{}", decision_id(&refused))).1);
    assert_eq!((&line["kind"], &line["class"], &line["operator"]), (&json!("impostor"), &json!("liar"), &Value::Null));
    assert_eq!(line["client"], "203.0.113.64");

    for (agent, class) in
        [("GPTBot/1.0 (like nobody listed: FancyBot/1.0)", "liar"), ("curl/8.0", "bot"), (FIREFOX, "person")]
    {
        ask("203.0.113.64", agent);
        if class != "liar" {
            let seen = origin.last_request().fields;
            assert_eq!(seen["x-tidegate-class"], class, "{agent}");
            assert!(!seen.contains_key("x-tidegate-operator"));
        }
    }
}

#[test]
fn crawler_guard_bounds_refusals_of_verified_crawlers() {
    let origin = Origin::plain();
    let rules = "
quotas: { api: { limit: 1000, window: { fixed: 24h }, tiers: { search: [ { above: 0%, shed: 100% } ], bot: [ { above: 0%, shed: 100% } ] } } }
classes:
  - { name: search, when: { operator: googlebot }, crawler_guard: { admit_interval: 10m, max_refused_for: 1h } }
  - { name: bot, when: { kind: [declared_bot, verified_bot] } }
routes: [ { match: \"/**\", cost: { api: 1 } } ]";
    let gate = TestGateway::with_rules(origin.address(), rules);
    let google = |path: &str| {
        gate.connect().get(path, &format!("X-Forwarded-For: 66.249.66.1\r\nUser-Agent: {GOOGLEBOT}\r\n")).status
    };
    assert_eq!([google("/1"), google("/2"), google("/3")], [200, 429, 429], "the guard admits one request");
    assert_eq!(gate.connect().get("/", "User-Agent: curl/8.0\r\n").status, 429, "other classes have no guard");
    gate.clock.advance(Duration::from_secs(600));
    assert_eq!([google("/4"), google("/3")], [200, 429], "the guard admits another request after ten minutes");
    assert_eq!(gate.metric("tidegate_crawler_longest_refusal_seconds{operator=\"googlebot\"}"), 600.0);
    gate.clock.advance(Duration::from_secs(3000));
    assert_eq!(
        [google("/5"), google("/2"), google("/3"), google("/6")],
        [200, 200, 200, 429],
        "pages refused for an hour are admitted"
    );
    assert_eq!(gate.metric("tidegate_quota_guard_units_total{quota=\"api\",class=\"search\"}"), 5.0);
    assert_eq!(gate.metric("tidegate_crawler_longest_refusal_seconds{operator=\"googlebot\"}"), 0.0);
    let log = gate.read_log();
    // A log line is written when its request is complete, which may be after the next one has begun.
    let mut guarded: Vec<&str> =
        log.iter().filter(|line| line["guard_admitted"] == true).filter_map(|line| line["path"].as_str()).collect();
    guarded.sort_unstable();
    assert_eq!(guarded, ["/1", "/2", "/3", "/4", "/5"]);
}

#[test]
fn decisions_are_found_by_their_id_only() {
    let origin = Origin::plain();
    let gate = exhausted_gateway(&origin, "");
    let mut client = gate.connect();
    let ids: Vec<String> = (0..5).map(|_| decision_id(&client.get("/page", ""))).collect();
    assert!(ids.iter().enumerate().all(|(place, id)| !ids[..place].contains(id)), "{ids:?}");
    for id in &ids {
        assert_decision_reason(&gate, id, "quota");
        assert_eq!(gate.admin_get(&format!("/api/v1/decisions/{}", id.to_uppercase())).0, 200);
    }
    assert_eq!(gate.admin_get("/api/v1/decisions/0000000000000000").0, 404);
    assert_eq!(gate.admin_get("/api/v1/decisions/1").0, 400);
}

/// Returns a gateway whose pages cost units of a daily quota that is used up.
fn exhausted_gateway(origin: &Origin, more: &str) -> TestGateway {
    let rules = "
quotas: { api: { limit: 10, window: { fixed: 24h } } }
routes: [ { match: /page, cost: { api: 1 } } ]";
    let gate = TestGateway::with_rules(origin.address(), &format!("{rules}\n{more}"));
    gate.set_used("api", 10);
    gate
}

fn policies(answer: &Response) -> Vec<Item> {
    let policies = parse_list(answer.field("ratelimit-policy"));
    policies.iter().for_each(|policy| assert!(policy.parameter("w") >= 1 && policy.has_only(&["q", "w"])));
    policies
}

fn limits(answer: &Response) -> Vec<Item> {
    let limits = parse_list(answer.field("ratelimit"));
    limits.iter().for_each(|limit| assert!(limit.has_only(&["r", "t"])));
    limits
}

fn item(name: &str, parameters: &[(&str, u64)]) -> Item {
    let parameters = parameters.iter().map(|&(key, number)| (key.to_owned(), number)).collect();
    Item { name: name.to_owned(), parameters }
}

/// Returns `Retry-After`, which must be whole seconds.
fn retry_after(answer: &Response) -> u64 {
    let field = answer.field("retry-after");
    assert!(!field.is_empty() && field.bytes().all(|digit| digit.is_ascii_digit()), "{field:?}");
    field.parse().expect("digits")
}

fn decision_id(answer: &Response) -> String {
    let id = answer.field("x-tidegate-decision");
    assert!(id.len() == 16 && id.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')), "{id:?}");
    id.to_owned()
}

fn assert_decision_reason(gate: &TestGateway, id: &str, reason: &str) {
    let (status, line) = gate.admin_get(&format!("/api/v1/decisions/{id}"));
    let line = parse_json(&line);
    assert_eq!((status, line["id"].as_str(), line["reason"].as_str()), (200, Some(id), Some(reason)));
}

fn atlassian_headers(answer: &Response) -> [&str; 4] {
    ["limit", "remaining", "interval-seconds", "fillrate"].map(|name| {
        answer.field(match name {
            "limit" => "x-ratelimit-limit",
            "remaining" => "x-ratelimit-remaining",
            "interval-seconds" => "x-ratelimit-interval-seconds",
            _ => "x-ratelimit-fillrate",
        })
    })
}

/// Returns the rules of the shipped file, without the sections that each test gateway sets itself.
fn shipped_rules() -> String {
    const KEPT: [&str; 6] = ["clients:", "quotas:", "classes:", "routes:", "scopes:", "headers:"];
    let file = include_str!("../../config/tidegate.yaml").lines().filter(|line| !line.starts_with('#'));
    let mut is_kept = false;
    let kept = file.filter(|line| {
        if !line.is_empty() && !line.starts_with(' ') {
            is_kept = KEPT.iter().any(|section| line.starts_with(section));
        }
        is_kept
    });
    kept.map(|line| format!("{line}\n")).collect()
}

fn used_by_quota(gate: &TestGateway) -> Vec<f64> {
    let state = gate.state();
    state["quotas"].as_array().expect("a list").iter().filter_map(|quota| quota["used"].as_f64()).collect()
}

fn parse_json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

const GOOGLEBOT: &str = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)";
const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0";

const QUOTA_OF_THREE: &str = "
quotas: { api: { limit: 3, window: { fixed: 1h } } }
routes: [ { match: /page, cost: { api: 1 } } ]";

/// A class for each refusal reason. `/dear` costs the whole quota of 100 units.
const REASONS: &str = "
quotas: { api: { limit: 100, window: { fixed: 1h }, tiers: { shed: [ { above: 0%, shed: 100% } ] } } }
classes:
  - { name: shed, when: { user_agent: shed } }
  - { name: limited, when: { user_agent: limited }, bucket: { capacity: 1, fill: 1, interval: 1m } }
  - { name: blocked, when: { user_agent: blocked }, block: true }
  - { name: person }
routes: [ { match: /page, cost: { api: 1 } }, { match: /dear, cost: { api: 100 } } ]";

#[test]
fn burst_beyond_the_lease_is_admitted() {
    let origin = Origin::plain();
    let rules = "
ledger: file
quotas: { api: { limit: 10000, window: { fixed: 24h } } }
routes: [{ match: /**, cost: { api: 10 } }]
";
    let gate = TestGateway::with_clock(origin.address(), rules, Clock::system());
    let mut clients: Vec<_> = (0..80).map(|_| gate.connect()).collect();
    for client in &mut clients {
        client.send("GET /page HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    let statuses: Vec<u16> = clients.iter_mut().map(|client| client.read_response().status).collect();
    assert_eq!(statuses, [200; 80], "800 of 10,000 units are requested at once");
    assert_eq!(gate.metric("tidegate_requests_total{class=\"other\",verdict=\"refused\",reason=\"ledger\"}"), 0.0);
}

#[test]
fn sliding_window_headers_match_served_requests() {
    for ledger in ["memory", "file"] {
        let origin = Origin::plain();
        let rules = format!(
            "ledger: {ledger}\nquotas: {{ api: {{ limit: 20, window: {{ sliding: 20s }} }} }}\n\
             routes: [{{ match: /**, cost: {{ api: 1 }} }}]"
        );
        let gate = TestGateway::with_rules(origin.address(), &rules);
        let mut client = gate.connect();
        let mut served: Vec<u32> = Vec::new();
        // Two requests per second: twice the rate that the limit allows.
        for step in 0..120 {
            let answer = client.get("/page", "");
            let (of_last_20_s, of_a_part_more) = {
                let since = |steps: u32| served.iter().filter(|at| step - **at < steps).count() as u64;
                (since(40), since(41))
            };
            match answer.status {
                200 => served.push(step),
                429 => assert_eq!(of_a_part_more, 20, "{ledger}, step {step}: refused with units left"),
                other => panic!("{ledger}, step {step}: {other}: {}", answer.text()),
            }
            let told: u64 = limits(&answer)[0].parameter("r");
            let left = 20 - of_last_20_s - u64::from(answer.status == 200);
            assert!(told <= left && told + 1 >= left.min(1), "{ledger}, step {step}: reported {told}, left {left}");
            gate.clock.advance(Duration::from_millis(500));
        }
        assert!(served.len() >= 58, "{ledger}: {} requests admitted in a minute", served.len());
    }
}

#[test]
fn window_redefinition_keeps_used_units() {
    let rules = |ledger: &str, window: &str| {
        format!(
            "ledger: {ledger}\nquotas: {{ api: {{ limit: 10, window: {{ {window} }} }} }}\n\
             routes: [{{ match: /**, cost: {{ api: 1 }} }}]"
        )
    };
    for ledger in ["memory", "file"] {
        let origin = Origin::plain();
        let gate = TestGateway::with_rules(origin.address(), &rules(ledger, "sliding: 20s"));
        let mut client = gate.connect();
        for _ in 0..6 {
            assert_eq!(final_page_status(&mut client), 200, "{ledger}");
            gate.clock.advance(Duration::from_secs(1));
        }
        for window in ["first_use: 20s", "fixed: 24h", "sliding: 24h", "calendar: day"] {
            gate.reload(origin.address(), &rules(ledger, window)).expect("valid rules");
            assert_eq!(gate.counters(), (6.0, 0.0), "{ledger}, {window}");
        }
        let served = (0..10).filter(|_| final_page_status(&mut client) == 200).count();
        assert_eq!(served, 4, "{ledger}");
    }
}

/// Returns the final status of a page, once the ledger has granted leases. A slow disk may delay a lease for longer
/// than a request waits.
fn final_page_status(client: &mut Client) -> u16 {
    wait_for("a lease from the ledger", || {
        let answer = client.get("/page", "");
        (!answer.text().contains("\"reason\":\"ledger\"")).then_some(answer.status)
    })
}
