//! Responses to clients, following the contract: status, headers, body and `Retry-After` of admitted and refused
//! requests.

use crate::support::client::{Client, Response};
use crate::support::fields::{Item, parse_list};
use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, signal};
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::time::Duration;
use tidegate_engine::clock::Clock;
use tidegate_policy::Timestamp;

#[test]
fn admitted_response_announces_remaining_units() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), QUOTA_OF_THREE);
    let response = gateway.connect().get("/page", "");
    assert_eq!((response.status, response.text().as_str()), (200, "hello"));
    assert_eq!(policies(&response), [item("api", &[("q", 3), ("w", 3600)])]);
    assert_eq!(limits(&response), [item("api", &[("r", 2), ("t", 3600)])]);
    for name in ["x-tidegate-decision", "cache-control", "retry-after", "x-tidegate-class"] {
        assert_eq!(response.field(name), "", "{name}");
    }
}

#[test]
fn free_route_without_bucket_announces_no_limits() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), QUOTA_OF_THREE);
    let response = gateway.connect().get("/free", "");
    assert_eq!((response.field("ratelimit"), response.field("ratelimit-policy")), ("", ""));
}

#[test]
fn exhausted_quota_admits_after_announced_reset() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), QUOTA_OF_THREE);
    let mut client = gateway.connect();
    let left: Vec<u64> = (0..3).map(|_| limits(&client.get("/page", ""))[0].parameter("r")).collect();
    assert_eq!(left, [2, 1, 0]);
    let refused = client.get("/page", "");
    assert_eq!(refused.status, 429);
    assert_eq!(limits(&refused), [item("api", &[("r", 0), ("t", 3600)])]);
    assert_eq!(policies(&refused), [item("api", &[("q", 3), ("w", 3600)])]);
    let wait = retry_after(&refused);
    assert!((3600..=4320).contains(&wait), "{wait}: not before the hour is over, at most 20 % later");
    assert_eq!(origin.received_requests().len(), 3);

    gateway.clock.advance(Duration::from_secs(3599));
    client = gateway.connect();
    let refused = client.get("/page", "");
    assert_eq!((refused.status, limits(&refused)), (429, vec![item("api", &[("r", 0), ("t", 1)])]));
    assert!((1..=2).contains(&retry_after(&refused)));
    gateway.clock.advance(Duration::from_secs(1));
    let response = client.get("/page", "");
    assert_eq!((response.status, limits(&response)), (200, vec![item("api", &[("r", 2), ("t", 3600)])]));
}

#[test]
fn every_refusal_reason_has_its_problem_type() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), REASONS);
    gateway.set_used("api", 50);
    let cases = [
        ("/page", "tier", "shed", "quota-exceeded", "api"),
        ("/page", "bucket", "limited", "quota-exceeded", "limited"),
        ("/page", "blocked", "blocked", "abnormal-usage-detected", "blocked"),
        ("/dear", "quota", "person", "quota-exceeded", "api"),
    ];
    for (path, reason, class, kind, violated) in cases {
        let fields = format!("User-Agent: {class}\r\n");
        if reason == "bucket" {
            assert_eq!(gateway.connect().get(path, &fields).status, 200, "the bucket holds one");
        }
        let response = gateway.connect().get(path, &fields);
        assert_eq!(response.status, 429, "{reason}");
        assert_eq!(response.field("content-type"), "application/problem+json");
        assert_eq!(response.field("cache-control"), "no-store");
        assert!(retry_after(&response) >= 1);
        let id = decision_id(&response);
        let problem = response.json();
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
        assert_decision_reason(&gateway, &id, reason);
    }
}

#[test]
fn retry_after_is_never_before_limit_reset() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), REASONS);
    gateway.set_used("api", 50);
    for class in ["shed", "limited", "blocked", "person"] {
        for _ in 0..20 {
            let response = gateway.connect().get("/dear", &format!("User-Agent: {class}\r\n"));
            if response.status != 429 {
                continue;
            }
            let violated = response.json()["violated-policies"].clone();
            for limit in limits(&response) {
                let is_violated = violated.as_array().is_some_and(|names| names.contains(&json!(limit.name)));
                if is_violated {
                    let (remaining, reset) = (limit.parameter("r"), limit.parameter("t"));
                    assert_eq!(remaining, 0, "{class}");
                    assert!(retry_after(&response) >= reset, "{class}: {} before {reset}", retry_after(&response));
                }
            }
        }
    }
}

#[test]
fn refused_head_request_has_headers_without_body() {
    let origin = Origin::plain();
    let gateway = exhausted_gateway(&origin);
    let mut client = gateway.connect();
    client.send("HEAD /page HTTP/1.1\r\nHost: a\r\n\r\n");
    let response = client.response_to("HEAD");
    assert_eq!((response.status, response.field("content-type")), (429, "application/problem+json"));
    assert!(retry_after(&response) >= 1);
    assert_eq!(client.get("/free", "").text(), "hello", "no body byte precedes the next response");
    let statuses = crate::support::http2_statuses(gateway.address(), |request| {
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
    let gateway = TestGateway::with_rules(origin.address(), rules);
    for class in ["blocked", "shed", "limited", "person", "limited", "limited"] {
        gateway.connect().get("/page", &format!("User-Agent: {class}\r\n"));
    }
    assert_eq!(gateway.counters(), (2.0, 0.0), "the quota is used up");
    for class in ["blocked", "shed", "limited", "person"] {
        let fields = format!("User-Agent: {class}\r\n");
        assert_eq!(gateway.connect().get("/page", &fields).status, 429, "{class}");
        assert_eq!(gateway.connect().get("/robots.txt", &fields).status, 200, "{class}");
        assert_eq!(gateway.connect().get("/./a/../robots.txt", &fields).status, 200, "{class}, by another spelling");
    }
    assert_eq!(gateway.counters(), (2.0, 0.0));
}

#[test]
fn robots_txt_ignores_route_cost() {
    let (arrival_sender, arrival) = signal();
    let (release, release_receiver) = signal();
    let origin = Origin::with_script(move |_, connection| {
        arrival_sender.notify();
        release_receiver.wait();
        connection.reply("200 OK", "", b"");
    });
    let rules = "
quotas: { api: { limit: 10, window: { fixed: 24h } } }
routes: [ { match: /**, cost: { api: 2 } } ]";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    gateway.set_used("api", 9);
    let mut client = gateway.connect();
    client.send("GET /robots.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    arrival.wait();
    assert_eq!(gateway.counters(), (9.0, 0.0), "no charge while robots.txt is fetched");
    release.notify();
    assert_eq!(client.read_response().status, 200);
    assert_eq!(gateway.counters(), (9.0, 0.0));
    assert_eq!(gateway.metric("tidegate_quota_overrun_total{quota=\"api\"}"), 0.0, "the origin reported no overrun");
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
    let gateway = TestGateway::with_rules(origin.address(), rules);
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
        gateway.set_used("api", 0);
        let mut client = gateway.connect();
        client.send(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.head().status, 200, "{method} {target}");
        assert_eq!(gateway.counters(), (cost, 0.0), "{method} {target}");
        assert_eq!(origin.last_request().target, target, "the target is forwarded unchanged");
    }
}

#[test]
fn a_free_route_is_never_refused_for_quota() {
    let origin = Origin::plain();
    let gateway = exhausted_gateway(&origin);
    assert_eq!(gateway.connect().get("/page", "").status, 429);
    assert_eq!(gateway.connect().get("/free", "").status, 200);
}

#[test]
fn bucket_drains_and_refills_as_announced() {
    let origin = Origin::plain();
    let rules = "classes: [ { name: all, bucket: { capacity: 3, fill: 1, interval: 10s } } ]";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let mut client = gateway.connect();
    for left in [2, 1, 0] {
        let response = client.get("/", "");
        assert_eq!(policies(&response), [item("all", &[("q", 3), ("w", 30)])]);
        assert_eq!(limits(&response)[0].parameter("r"), left);
    }
    let refused = client.get("/", "");
    assert_eq!((refused.status, refused.json()["reason"].as_str()), (429, Some("bucket")));
    let wait = retry_after(&refused);
    assert!((10..=12).contains(&wait), "{wait}");
    gateway.clock.advance(Duration::from_secs(wait));
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
    let gateway = TestGateway::with_rules(origin.address(), rules);
    for (client, requests) in [(1, 4), (2, 2), (3, 2), (4, 1)] {
        for _ in 0..requests {
            gateway.connect().get("/", &format!("X-Forwarded-For: 192.0.2.{client}\r\n"));
        }
    }
    let limited = || {
        let state = gateway.state();
        let row = |client_state: &Value| {
            format!(
                "{} {} {} {}",
                client_state["key"], client_state["refused"], client_state["limited_by"], client_state["limited_for_s"]
            )
        };
        state["top_clients"].as_array().expect("a list").iter().map(row).collect::<Vec<_>>().join(", ").replace('"', "")
    };
    assert_eq!(limited(), "192.0.2.1 3 bucket 10, 192.0.2.2 2 blocked null, 192.0.2.3 1 bucket 10");
    gateway.clock.advance(Duration::from_secs(4));
    assert_eq!(limited(), "192.0.2.1 3 bucket 6, 192.0.2.2 2 blocked null, 192.0.2.3 1 bucket 6");
    gateway.clock.advance(Duration::from_secs(6));
    assert_eq!(limited(), "192.0.2.1 3 null null, 192.0.2.2 2 blocked null, 192.0.2.3 1 null null");
}

#[test]
fn legacy_atlassian_headers_match_bucket_state() {
    let origin = Origin::plain();
    let rules = "
classes: [ { name: all, bucket: { capacity: 2, fill: 1, interval: 10s } } ]
headers: { ratelimit: off, legacy: [atlassian] }";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let mut client = gateway.connect();
    let first = client.get("/", "");
    assert_eq!(atlassian_headers(&first), ["2", "1", "10", "1"]);
    assert_eq!(first.field("retry-after"), "0", "tokens are left");
    let second = client.get("/", "");
    assert_eq!((atlassian_headers(&second), second.field("retry-after")), (["2", "0", "10", "1"], "10"));
    let refused = client.get("/", "");
    assert_eq!((refused.status, atlassian_headers(&refused)), (429, ["2", "0", "10", "1"]));
    assert!(retry_after(&refused) >= 10);
    for response in [first, second, refused] {
        assert_eq!(
            (response.field("ratelimit"), response.field("ratelimit-policy")),
            ("", ""),
            "standard headers are off"
        );
    }
}

#[test]
fn next_draft_names_what_is_available_and_counted_by_client() {
    let rules = format!("{QUOTA_OF_THREE}\nheaders: {{ ratelimit: draft-12 }}");
    let rules = rules.replace("limit: 3,", "limit: 3, per_client: 2,");
    let gateway = TestGateway::with_rules(Origin::plain().address(), &rules);
    let mut client = gateway.connect();
    let first = client.get("/page", "");
    assert_eq!(policies(&first), [item("api", &[("q", 3), ("w", 3600)]), item("api/client", &[("q", 2), ("w", 3600)])]);
    assert_eq!(
        parse_list(first.field("ratelimit")),
        [item("api", &[("a", 2), ("w", 3600)]), item("api/client", &[("a", 1), ("w", 3600)])]
    );
    assert_eq!(first.field("ratelimit-partition"), "\"api/client\";client_id");
    client.get("/page", "");
    let refused = client.get("/page", "");
    assert_eq!((refused.status, refused.json()["reason"].as_str()), (429, Some("client_share")));
    let limits = parse_list(refused.field("ratelimit"));
    assert_eq!((limits[1].parameter("a"), limits.iter().all(|limit| limit.has_only(&["a", "w"]))), (0, true));
    assert!(retry_after(&refused) >= limits[1].parameter("w"));
    assert_eq!(client.get("/free", "").field("ratelimit-partition"), "");
}

#[test]
fn github_and_draft_headers_show_most_restrictive_policy() {
    let origin = Origin::plain();
    let rules = "
quotas: { api: { limit: 10, window: { fixed: 1h } } }
classes: [ { name: all, bucket: { capacity: 3, fill: 1, interval: 10s } } ]
routes: [ { match: /dear, cost: { api: 5 } } ]
headers: { legacy: [github, draft-03] }";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let mut client = gateway.connect();
    let mut limits_of = |path: &str| {
        let response = client.get(path, "");
        let github = ["limit", "remaining", "used", "reset", "resource"].map(|name| {
            let text = response.field(&format!("x-ratelimit-{name}"));
            text.parse().map_or_else(
                |_| text.to_owned(),
                |reset: u64| match name {
                    "reset" => format!("+{}", reset - gateway.clock.now().seconds()),
                    _ => text.to_owned(),
                },
            )
        });
        let draft = ["limit", "remaining", "reset"].map(|name| response.field(&format!("ratelimit-{name}")).to_owned());
        (response.status, github.join(" "), draft.join(" "))
    };
    let expected = |status, github: &str, draft: &str| (status, github.to_owned(), draft.to_owned());
    assert_eq!(
        limits_of("/dear"),
        expected(200, "10 5 5 +3600 api", "10 5 3600"),
        "units for one such request are left"
    );
    assert_eq!(limits_of("/free"), expected(200, "3 1 2 +20 all", "3 1 20"));
    assert_eq!(
        limits_of("/free"),
        expected(200, "3 0 3 +10 all", "3 0 10"),
        "reset is the time of the next token, not of a full bucket"
    );
    assert_eq!(limits_of("/free"), expected(429, "3 0 3 +10 all", "3 0 10"));
    gateway.clock.advance(Duration::from_secs(30));
    assert_eq!(limits_of("/dear"), expected(200, "10 0 10 +3570 api", "10 0 3570"));
    assert_eq!(
        limits_of("/dear"),
        expected(429, "10 0 10 +3570 api", "10 0 3570"),
        "the quota refuses while the bucket has two tokens"
    );
    assert_eq!(limits_of("/free"), expected(200, "3 1 2 +20 all", "3 1 20"));
    assert_eq!(
        limits_of("/robots.txt"),
        expected(200, "3 1 2 +20 all", "3 1 20"),
        "reported although robots.txt takes no token"
    );
}

#[test]
fn legacy_retry_after_keeps_origin_value() {
    let origin = Origin::with_script(|request, connection| match request.target.as_str() {
        "/busy" => connection.reply("503 Service Unavailable", "Retry-After: 120\r\n", b""),
        "/limited" => connection.reply("429 Too Many Requests", "", b""),
        _ => connection.reply("200 OK", "", b""),
    });
    let rules = "
classes: [ { name: all, bucket: { capacity: 9, fill: 1, interval: 10s } } ]
headers: { legacy: [atlassian] }";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let retry_after = |path| gateway.connect().get(path, "").field("retry-after").to_owned();
    assert_eq!(retry_after("/busy"), "120");
    assert_eq!(retry_after("/limited"), "", "no `Retry-After: 0` after a refusal by the origin");
    assert_eq!(retry_after("/"), "0");
}

#[test]
fn gateway_limit_headers_replace_origin_headers() {
    let origin = Origin::with_script(|_, connection| {
        let fields = "RateLimit-Policy: \"inner\";q=9\r\nRateLimit: \"inner\";r=8;t=7\r\nRateLimit: \"more\";r=1\r\n";
        connection.reply("200 OK", fields, b"");
    });
    let gateway = TestGateway::with_rules(origin.address(), QUOTA_OF_THREE);
    let response = gateway.connect().get("/page", "");
    assert_eq!(policies(&response), [item("api", &[("q", 3), ("w", 3600)])]);
    assert_eq!(limits(&response), [item("api", &[("r", 2), ("t", 3600)])]);
    assert_eq!(
        gateway.connect().get("/free", "").field("ratelimit"),
        "\"inner\";r=8;t=7, \"more\";r=1",
        "headers of the origin are not modified"
    );
}

#[test]
fn gateway_errors_carry_limit_headers() {
    let gateway = TestGateway::with_rules(
        Origin::unreachable(),
        &format!("{QUOTA_OF_THREE}\nheaders: {{ legacy: [atlassian] }}"),
    );
    let response = gateway.connect().get("/page", "");
    assert_eq!((response.status, response.field("cache-control")), (502, "no-store"));
    assert_eq!(policies(&response), [item("api", &[("q", 3), ("w", 3600)])]);
    assert_eq!(limits(&response)[0].name, "api");
    assert!(retry_after(&response) >= 1, "no `Retry-After: 0` from the legacy headers");
    let id = decision_id(&response);
    let (status, line) = gateway.admin_get(&format!("/api/v1/decisions/{id}"));
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
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let mut client = gateway.connect();
    client.get("/both", "");
    let response = client.get("/both", "");
    assert_eq!(
        policies(&response),
        [item("plenty", &[("q", 100), ("w", 3600)]), item("scarce", &[("q", 2), ("w", 86_400)])]
    );
    assert_eq!(
        limits(&response),
        [item("plenty", &[("r", 80), ("t", 3600)]), item("scarce", &[("r", 0), ("t", 43_200)])]
    );
    let refused = client.get("/both", "");
    assert_eq!(refused.json()["violated-policies"], json!(["scarce"]));
    assert_eq!(used_by_quota(&gateway), [20.0, 2.0], "the refused request charged neither quota");
    assert_eq!(client.get("/one", "").status, 200);
    assert_eq!(used_by_quota(&gateway), [21.0, 2.0]);
}

#[test]
fn concurrent_requests_never_exceed_quota_limit() {
    let origin = Origin::plain();
    let rules = "workers: 4
quotas: { api: { limit: 50, window: { fixed: 24h } } }
routes: [ { match: /**, cost: { api: 1 } } ]";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = gateway.connect();
                (0..50).for_each(|_| drop(client.get("/", "")));
            });
        }
    });
    assert_eq!(origin.received_requests().len(), 50);
    assert_eq!(gateway.counters(), (50.0, 0.0));
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
    for (name, rules, reason) in cases {
        let origin = Origin::plain();
        let gateway = TestGateway::with_rules(
            origin.address(),
            &format!("{rules}\nroutes: [ {{ match: /page, cost: {{ api: 1 }} }} ]"),
        );
        for _ in 0..3 {
            assert_eq!(gateway.connect().get("/page", "").status, 200, "{name}");
        }
        let shadow = gateway.metric(&format!("tidegate_shadow_refusals_total{{class=\"other\",reason=\"{reason}\"}}"));
        assert!(shadow >= 2.0, "{name}: {shadow}");
        assert_eq!(used_by_quota(&gateway), [3.0], "{name}");
        let is_shadowed = |line: &&Value| line["verdict"] == "admitted" && line["shadow_reason"] == reason;
        assert_eq!(gateway.read_log().iter().filter(is_shadowed).count() as f64, shadow, "{name}");
    }
}

#[test]
fn shadow_mode_is_not_announced() {
    const TWO_QUOTAS: &str = "quotas:\n  tried: { limit: 1, window: { fixed: 24h }, enforce: false }\n  \
                        bought: { limit: 9, window: { fixed: 24h } }\n\
                        routes: [ { match: /both, cost: { tried: 1, bought: 1 } }, { match: /page, cost: { tried: 1 } } ]\n\
                        headers: { legacy: [atlassian, github, draft-03] }";
    let gateway = TestGateway::with_rules(Origin::plain().address(), TWO_QUOTAS);
    let mut client = gateway.connect();
    for index in 0..3 {
        let response = client.get("/page", "");
        assert_eq!(response.status, 200);
        let prefixes = ["ratelimit", "retry-after", "x-ratelimit"];
        let header = response.fields.keys().find(|name| prefixes.iter().any(|start| name.starts_with(start)));
        assert_eq!(header, None, "request {index}");
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
        assert_eq!(gateway.metrics()[&format!("tidegate_quota_enforced{{quota=\"{quota}\"}}")], enforced);
    }
}

#[test]
fn shadow_class_announces_neither_bucket_nor_tiers() {
    let rules = "quotas: { api: { limit: 9, window: { fixed: 24h }, tiers: { other: [ { above: 0%, shed: 100% } ] } } }\n\
                 classes: [ { name: other, bucket: { capacity: 1, fill: 1, interval: 1h }, enforce: false } ]\n\
                 routes: [ { match: /page, cost: { api: 1 } } ]";
    let gateway = TestGateway::with_rules(Origin::plain().address(), rules);
    let mut client = gateway.connect();
    let mut ratelimit = |path| client.get(path, "").field("ratelimit").to_owned();
    assert_eq!((ratelimit("/page"), ratelimit("/free")), ("\"api\";r=8;t=43200".into(), String::new()));
    assert_eq!(ratelimit("/page"), "\"api\";r=7;t=43200");
}

#[test]
fn shipped_config_bounds_usage_of_one_address() {
    let gateway = TestGateway::with_rules(Origin::plain().address(), &shipped_rules());
    let program = format!("User-Agent: {FIREFOX}\r\nX-Forwarded-For: 192.0.2.9\r\n");
    let fields = format!("{program}Accept: text/html\r\nAccept-Encoding: gzip\r\nAccept-Language: en\r\n");
    let mut admitted = Vec::new();
    for second in 0..60 {
        let mut client = gateway.connect();
        let pages = (0..70).map(|page| format!("/item/{second}-{page}"));
        let statuses = pages.map(|page| client.get(&page, &fields).status);
        admitted.push(statuses.filter(|status| *status == 200).count());
        gateway.clock.advance(Duration::from_secs(1));
    }
    assert_eq!(admitted[0], 60, "the burst");
    let total = admitted.iter().sum::<usize>();
    assert!(total <= 60 + 60, "{admitted:?}");
    assert_eq!(gateway.counters(), (total as f64, 0.0));
    let asset = gateway.connect().get("/logo.png", &fields);
    assert_eq!(asset.status, 200, "free requests take no token");
    let neighbor = gateway.connect().get("/item/1", &fields.replace("192.0.2.9", "198.51.100.7"));
    assert_eq!(neighbor.status, 200);
    assert!(neighbor.field("ratelimit").contains("\"person\";r=59;"), "{}", neighbor.field("ratelimit"));

    // Without the headers of a browser, its speed shows that it is none.
    let fields = program.replace("192.0.2.9", "203.0.113.7");
    let mut client = gateway.connect();
    let admitted = (0..70).filter(|page| client.get(&format!("/item/fast-{page}"), &fields).status == 200).count();
    assert!(admitted < 60, "{admitted}");
    assert!(gateway.read_log().iter().any(|line| line["kind"] == "suspected_bot"));
}

#[test]
fn free_assets_take_no_bucket_tokens() {
    let gateway = TestGateway::with_rules(Origin::plain().address(), &shipped_rules());
    let mut client = gateway.connect();
    let fields = format!("User-Agent: {FIREFOX}\r\n");
    let is_full = |response: &Response| response.field("ratelimit").contains("\"person\";r=59;");
    assert!(is_full(&client.get("/item/1", &fields)));
    for number in 0..200 {
        let response = client.get(&format!("/picture/{number}.webp"), &fields);
        assert_eq!((response.status, response.field("ratelimit")), (200, ""), "no limit applies to a free route");
    }
}

#[test]
fn settled_cost_follows_origin_headers() {
    let origin = Origin::with_script(|request, connection| {
        let fields = match request.target.as_str() {
            "/dear" => "X-Cost: 2.25\r\n",
            "/nothing" => "X-Cost: 0\r\n",
            "/hit" => "Cache-Status: inner; hit\r\n",
            "/miss" => "Cache-Status: inner; fwd=uri-miss\r\n",
            "/old" => "Age: 30\r\n",
            "/junk" => "X-Cost: much\r\n",
            _ => "",
        };
        connection.reply("200 OK", fields, b"");
    });
    let rules = "
quotas: { api: { limit: 100, window: { fixed: 1h }, cost_header: X-Cost, free_when_cached: true } }
routes: [ { match: /**, cost: { api: 1 } } ]";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let mut client = gateway.connect();
    let mut before = 0.0;
    for (path, cost) in
        [("/dear", 2.25), ("/nothing", 0.0), ("/hit", 0.0), ("/miss", 1.0), ("/old", 0.0), ("/junk", 1.0), ("/", 1.0)]
    {
        assert_eq!(client.get(path, "").status, 200);
        let (used, reserved) = gateway.counters();
        assert_eq!((used - before, reserved), (cost, 0.0), "{path}");
        before = used;
    }
    let costs: Vec<_> = gateway.read_log().iter().map(|line| line["charged"]["api"].as_f64()).collect();
    assert_eq!(costs, [2.25, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0].map(Some));
}

#[test]
fn cost_beyond_remaining_quota_counts_as_overrun() {
    let origin = Origin::with_script(|_, connection| connection.reply("200 OK", "X-Cost: 50\r\n", b""));
    let rules = "
quotas: { api: { limit: 10, window: { fixed: 1h }, cost_header: X-Cost } }
routes: [ { match: /**, cost: { api: 1 } } ]";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    assert_eq!(gateway.connect().get("/", "").status, 200);
    assert_eq!(gateway.counters(), (10.0, 0.0));
    assert_eq!(gateway.metric("tidegate_quota_overrun_total{quota=\"api\"}"), 40.0);
    assert_eq!(gateway.connect().get("/", "").status, 429);
}

#[test]
fn calendar_window_starts_at_configured_local_time() {
    let origin = Origin::plain();
    let rules = "
quotas: { api: { limit: 1, window: { calendar: day, zone: America/Los_Angeles, at: \"03:00\" } } }
routes: [ { match: /**, cost: { api: 1 } } ]";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    // DST starts: on 2027-03-14, 02:00 PST becomes 03:00 PDT, 10:00 UTC.
    let three_am = 1_805_018_400;
    let set = |seconds| gateway.clock.set(Timestamp::from_seconds(seconds));
    set(three_am - 1);
    let mut client = gateway.connect();
    assert_eq!(limits(&client.get("/", "")), [item("api", &[("r", 0), ("t", 1)])]);
    assert_eq!(client.get("/", "").status, 429);
    set(three_am);
    let response = client.get("/", "");
    assert_eq!((response.status, policies(&response)), (200, vec![item("api", &[("q", 1), ("w", 86_400)])]));
    assert_eq!(limits(&response), [item("api", &[("r", 0), ("t", 86_400)])]);
    set(three_am - 60);
    assert_eq!(client.get("/", "").status, 429, "a clock that is set back reopens no window");
}

#[test]
fn tiers_have_hysteresis_below_their_threshold() {
    let origin = Origin::plain();
    let rules = "
quotas: { api: { limit: 100, window: { fixed: 24h }, tiers: { bot: [ { above: 50%, shed: 50% }, { above: 80%, shed: 100% } ] } } }
classes: [ { name: bot, when: { user_agent: robot } }, { name: person } ]
routes: [ { match: /page, cost: { api: 1 } } ]";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let mut client = gateway.connect();
    let mut refused =
        |count: usize| (0..count).filter(|_| client.get("/page", "User-Agent: robot\r\n").status == 429).count();
    let tier_state = || {
        let state = gateway.state();
        let bot = state["quotas"][0]["classes"]
            .as_array()
            .expect("a list")
            .iter()
            .find(|class| class["class"] == "bot")
            .cloned();
        bot.map(|bot| (bot["tier"].as_u64(), bot["shed"].as_f64()))
    };
    assert_eq!(refused(4), 0);
    gateway.set_used("api", 50);
    assert_eq!(refused(8), 4, "half of the requests are shed");
    assert_eq!(tier_state(), Some((Some(1), Some(0.5))));
    gateway.set_used("api", 48);
    assert_eq!(refused(2), 1, "just below its threshold the tier stays active");
    gateway.set_used("api", 40);
    assert_eq!(refused(4), 0, "5 % of the limit below its threshold the tier ends");
    gateway.set_used("api", 80);
    assert_eq!(refused(5), 5);
    assert_eq!(tier_state(), Some((Some(2), Some(1.0))));
    assert_eq!(gateway.metric("tidegate_tier_shed_ratio{quota=\"api\",class=\"bot\"}"), 1.0);
    assert_eq!(gateway.connect().get("/page", "").status, 200, "class person has no tiers");
    gateway.clock.advance(Duration::from_secs(86_400));
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
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let request = |address: &str, agent: &str| {
        let fields = format!("X-Forwarded-For: {address}\r\nUser-Agent: {agent}\r\n");
        gateway.connect().get("/", &fields)
    };
    assert_eq!(request("66.249.66.1", GOOGLEBOT).status, 200);
    let received = origin.last_request().fields;
    assert_eq!(
        (received["x-tidegate-class"].as_str(), received["x-tidegate-operator"].as_str()),
        ("search", "googlebot")
    );

    let refused = request("203.0.113.64", GOOGLEBOT);
    assert_eq!((refused.status, refused.json()["reason"].as_str()), (429, Some("blocked")));
    let line = parse_json(&gateway.admin_get(&format!("/api/v1/decisions/{}", decision_id(&refused))).1);
    assert_eq!((&line["kind"], &line["class"], &line["operator"]), (&json!("impostor"), &json!("liar"), &Value::Null));
    assert_eq!(line["client"], "203.0.113.64");

    for (agent, class) in
        [("GPTBot/1.0 (like nobody listed: FancyBot/1.0)", "liar"), ("curl/8.0", "bot"), (FIREFOX, "person")]
    {
        request("203.0.113.64", agent);
        if class != "liar" {
            let received = origin.last_request().fields;
            assert_eq!(received["x-tidegate-class"], class, "{agent}");
            assert!(!received.contains_key("x-tidegate-operator"));
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
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let google = |path: &str| {
        gateway.connect().get(path, &format!("X-Forwarded-For: 66.249.66.1\r\nUser-Agent: {GOOGLEBOT}\r\n")).status
    };
    assert_eq!([google("/1"), google("/2"), google("/3")], [200, 429, 429], "the guard admits one request");
    assert_eq!(gateway.connect().get("/", "User-Agent: curl/8.0\r\n").status, 429, "other classes have no guard");
    gateway.clock.advance(Duration::from_secs(600));
    assert_eq!([google("/4"), google("/3")], [200, 429], "the guard admits another request after ten minutes");
    assert_eq!(gateway.metric("tidegate_crawler_longest_refusal_seconds{operator=\"googlebot\"}"), 600.0);
    gateway.clock.advance(Duration::from_secs(3000));
    assert_eq!(
        [google("/5"), google("/2"), google("/3"), google("/6")],
        [200, 200, 200, 429],
        "pages refused for an hour are admitted"
    );
    assert_eq!(gateway.metric("tidegate_quota_guard_units_total{quota=\"api\",class=\"search\"}"), 5.0);
    assert_eq!(gateway.metric("tidegate_crawler_longest_refusal_seconds{operator=\"googlebot\"}"), 0.0);
    let log = gateway.read_log();
    // A log line is written when its request is complete, which may be after the next one has begun.
    let mut guarded: Vec<&str> =
        log.iter().filter(|line| line["guard_admitted"] == true).filter_map(|line| line["path"].as_str()).collect();
    guarded.sort_unstable();
    assert_eq!(guarded, ["/1", "/2", "/3", "/4", "/5"]);
}

#[test]
fn decisions_are_found_by_their_id_only() {
    let origin = Origin::plain();
    let gateway = exhausted_gateway(&origin);
    let mut client = gateway.connect();
    let ids: Vec<String> = (0..5).map(|_| decision_id(&client.get("/page", ""))).collect();
    assert!(ids.iter().enumerate().all(|(index, id)| !ids[..index].contains(id)), "{ids:?}");
    for id in &ids {
        assert_decision_reason(&gateway, id, "quota");
        assert_eq!(gateway.admin_get(&format!("/api/v1/decisions/{}", id.to_uppercase())).0, 200);
    }
    assert_eq!(gateway.admin_get("/api/v1/decisions/0000000000000000").0, 404);
    assert_eq!(gateway.admin_get("/api/v1/decisions/1").0, 400);
}

/// Returns a gateway whose pages cost units of a daily quota that is used up.
fn exhausted_gateway(origin: &Origin) -> TestGateway {
    let rules = "
quotas: { api: { limit: 10, window: { fixed: 24h } } }
routes: [ { match: /page, cost: { api: 1 } } ]";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    gateway.set_used("api", 10);
    gateway
}

fn policies(response: &Response) -> Vec<Item> {
    let policies = parse_list(response.field("ratelimit-policy"));
    policies.iter().for_each(|policy| assert!(policy.parameter("w") >= 1 && policy.has_only(&["q", "w"])));
    policies
}

fn limits(response: &Response) -> Vec<Item> {
    let limits = parse_list(response.field("ratelimit"));
    limits.iter().for_each(|limit| assert!(limit.has_only(&["r", "t"])));
    limits
}

fn item(name: &str, parameters: &[(&str, u64)]) -> Item {
    let parameters = parameters.iter().map(|&(key, number)| (key.to_owned(), number)).collect();
    Item { name: name.to_owned(), parameters }
}

/// Returns `Retry-After`, which must be whole seconds.
fn retry_after(response: &Response) -> u64 {
    let field = response.field("retry-after");
    assert!(!field.is_empty() && field.bytes().all(|digit| digit.is_ascii_digit()), "{field:?}");
    field.parse().expect("digits")
}

fn decision_id(response: &Response) -> String {
    let id = response.field("x-tidegate-decision");
    assert!(id.len() == 16 && id.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')), "{id:?}");
    id.to_owned()
}

fn assert_decision_reason(gateway: &TestGateway, id: &str, reason: &str) {
    let (status, line) = gateway.admin_get(&format!("/api/v1/decisions/{id}"));
    let line = parse_json(&line);
    assert_eq!((status, line["id"].as_str(), line["reason"].as_str()), (200, Some(id), Some(reason)));
}

fn atlassian_headers(response: &Response) -> [&str; 4] {
    ["limit", "remaining", "interval-seconds", "fillrate"].map(|name| {
        response.field(match name {
            "limit" => "x-ratelimit-limit",
            "remaining" => "x-ratelimit-remaining",
            "interval-seconds" => "x-ratelimit-interval-seconds",
            _ => "x-ratelimit-fillrate",
        })
    })
}

/// Returns the rules of the shipped file, without the sections that each test gateway sets itself.
fn shipped_rules() -> String {
    const SHIPPED_SECTIONS: [&str; 6] = ["clients:", "quotas:", "classes:", "routes:", "scopes:", "headers:"];
    let file = include_str!("../../config/tidegate.yaml").lines().filter(|line| !line.trim_start().starts_with('#'));
    let mut is_included = false;
    let included = file.filter(|line| {
        if !line.is_empty() && !line.starts_with(' ') {
            is_included = SHIPPED_SECTIONS.iter().any(|section| line.starts_with(section));
        }
        is_included
    });
    included.map(|line| format!("{line}\n")).collect()
}

fn used_by_quota(gateway: &TestGateway) -> Vec<f64> {
    let state = gateway.state();
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
    let gateway = TestGateway::with_clock(origin.address(), rules, Clock::system());
    let mut clients: Vec<_> = (0..80).map(|_| gateway.connect()).collect();
    for client in &mut clients {
        client.send("GET /page HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    let statuses: Vec<u16> = clients.iter_mut().map(|client| client.read_response().status).collect();
    assert_eq!(statuses, [200; 80], "800 of 10,000 units are requested at once");
    assert_eq!(gateway.metric("tidegate_requests_total{class=\"other\",verdict=\"refused\",reason=\"ledger\"}"), 0.0);
}

#[test]
fn sliding_window_headers_match_served_requests() {
    for ledger in ["memory", "file"] {
        let origin = Origin::plain();
        let rules = format!(
            "ledger: {ledger}\nquotas: {{ api: {{ limit: 20, window: {{ sliding: 20s }} }} }}\n\
             routes: [{{ match: /**, cost: {{ api: 1 }} }}]"
        );
        let gateway = TestGateway::with_rules(origin.address(), &rules);
        let mut client = gateway.connect();
        let mut served: Vec<u32> = Vec::new();
        // Two requests per second: twice the rate that the limit allows.
        for step in 0..120 {
            let response = client.get("/page", "");
            let (in_window, in_longer_window) = {
                let served_since = |steps: u32| served.iter().filter(|at| step - **at < steps).count() as u64;
                (served_since(40), served_since(41))
            };
            match response.status {
                200 => served.push(step),
                429 => assert_eq!(in_longer_window, 20, "{ledger}, step {step}: refused with units left"),
                other => panic!("{ledger}, step {step}: {other}: {}", response.text()),
            }
            let remaining: u64 = limits(&response)[0].parameter("r");
            let left = 20 - in_window - u64::from(response.status == 200);
            assert!(
                remaining <= left && remaining + 1 >= left.min(1),
                "{ledger}, step {step}: reported {remaining}, left {left}"
            );
            gateway.clock.advance(Duration::from_millis(500));
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
        let gateway = TestGateway::with_rules(origin.address(), &rules(ledger, "sliding: 20s"));
        let mut client = gateway.connect();
        for _ in 0..6 {
            assert_eq!(final_page_status(&mut client), 200, "{ledger}");
            gateway.clock.advance(Duration::from_secs(1));
        }
        for window in ["first_use: 20s", "fixed: 24h", "sliding: 24h", "calendar: day"] {
            gateway.reload(origin.address(), &rules(ledger, window)).expect("valid rules");
            assert_eq!(gateway.counters(), (6.0, 0.0), "{ledger}, {window}");
        }
        let served = (0..10).filter(|_| final_page_status(&mut client) == 200).count();
        assert_eq!(served, 4, "{ledger}");
    }
}

/// Returns the final status of a page, once the ledger has granted leases. A slow disk may delay a lease for longer
/// than a request waits.
fn final_page_status(client: &mut Client) -> u16 {
    wait_for("a lease from the ledger", || {
        let response = client.get("/page", "");
        (!response.text().contains("\"reason\":\"ledger\"")).then_some(response.status)
    })
}
