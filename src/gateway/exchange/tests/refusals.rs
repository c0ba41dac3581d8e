//! Refusals: their status, their fields, their form, and what they cost.

use super::QUOTA;
use super::site::{BOT, CLIENT, OTHER_CLIENT, START, Site};
use std::time::Duration;
use tidegate_policy::network::IpPrefix;
use tidegate_policy::switches::{Maintenance, Switch, SwitchEffect, SwitchTarget, Switches};

/// A bucket of two requests, one more every ten seconds.
const BUCKET: &str = "
headers: { retry_after_spread: 0% }
classes: [{ name: all, bucket: { capacity: 2, fill: 1, interval: 10s } }]
routes: [{ match: '/**', redirect: 'https://other.example/' }]
";

/// One slot, and no queue.
const ONE_SLOT: &str = "
quotas: { api: { limit: 10, window: { fixed: 60s } } }
classes: [{ name: all }]
scopes: { default: { concurrency: 1, queue: { max_wait: 0s } } }
routes: [{ match: '/**', cost: { api: 1 } }]
";

#[test]
fn exhausted_quota_refuses_until_the_window_ends() {
    let site = Site::new(QUOTA);
    site.spend("GET /item/1", 10);
    site.advance(15);
    let answer = site.send("GET /item/1", &[]);
    assert_eq!((answer.status, answer.field("retry-after")), (429, "45"));
    assert_eq!(answer.json()["reason"], "quota");
    site.advance(45);
    assert_eq!(site.journal("GET /item/1", &[]).verdict.refusal(), None);
}

#[test]
fn expensive_request_is_refused_while_a_cheap_one_is_admitted() {
    let site = Site::new(QUOTA);
    site.spend("GET /item/1", 7);
    assert_eq!(site.send("GET /search", &[]).json()["violated-policies"][0], "api");
    assert!(site.journal("GET /item/1", &[]).verdict.refusal().is_none());
}

#[test]
fn refusal_costs_nothing_and_is_logged_once() {
    let site = Site::new(QUOTA);
    let answer = site.send("GET /item/1", &[BOT]);
    assert_eq!((answer.logged("verdict"), answer.logged("reason")), ("refused".into(), "tier".into()));
    assert_eq!((answer.logged("status"), answer.logged("class")), (429.into(), "bot".into()));
    assert_eq!(answer.logged("bytes"), answer.body.len());
    assert_eq!(answer.logged("retry_after_s"), answer.field("retry-after").parse::<u64>().expect("seconds"));
    assert_eq!((site.used(), site.telemetry.recent_decisions().len()), (0.0, 1));
}

#[test]
fn refusal_names_its_decision() {
    let answer = Site::new(QUOTA).send("GET /item/1", &[BOT]);
    let id = answer.field("x-tidegate-decision");
    assert_eq!(answer.logged("id"), id);
    assert_eq!(answer.json()["instance"], format!("urn:tidegate:decision:{id}"));
}

#[test]
fn refusal_announces_the_policies_of_the_class() {
    let answer = Site::new(QUOTA).send("GET /item/1", &[BOT]);
    assert!(answer.field("ratelimit").starts_with("\"api\";r=0"), "{answer:?}");
    assert!(answer.field("ratelimit-policy").starts_with("\"api\";q=10"), "{answer:?}");
    assert_eq!((answer.field("cache-control"), answer.field("content-type")), ("no-store", "application/problem+json"));
}

#[test]
fn browser_gets_a_refusal_it_can_show() {
    let site = Site::new(QUOTA);
    site.spend("GET /item/1", 10);
    let answer = site.send("GET /item/1", &[("accept", "text/html,*/*;q=0.8")]);
    assert_eq!((answer.status, answer.field("content-type")), (429, "text/html; charset=utf-8"));
    assert!(answer.body.contains("Please try again in 60 seconds."), "{}", answer.body);
    assert!(answer.body.contains(answer.field("x-tidegate-decision")), "{}", answer.body);
    assert_eq!(answer.field("cache-control"), "no-store");
    for accept in ["", "*/*", "application/json", "text/html;q=0.1, application/json"] {
        let answer = site.send("GET /item/1", &[("accept", accept)]);
        assert_eq!(answer.field("content-type"), "application/problem+json", "{accept:?}");
    }
}

#[test]
fn refused_head_request_gets_the_length_and_no_body() {
    let site = Site::new(QUOTA);
    let [get, head] = ["GET /item/1", "HEAD /item/1"].map(|line| site.send(line, &[BOT]));
    assert_eq!((head.status, head.body.as_str()), (429, ""));
    assert_eq!(head.field("content-length"), get.body.len().to_string());
    assert_eq!(head.logged("bytes"), 0);
}

#[test]
fn empty_bucket_refuses_until_the_next_token() {
    let site = Site::new(BUCKET);
    let statuses = [(); 3].map(|()| site.send("GET /", &[]).status);
    assert_eq!(statuses, [301, 301, 429]);
    site.advance(4);
    let answer = site.send("GET /", &[]);
    assert_eq!((answer.logged("reason"), answer.field("retry-after")), ("bucket".into(), "6"));
    site.advance(6);
    assert_eq!(site.send("GET /", &[]).status, 301);
}

#[test]
fn bucket_of_one_client_leaves_another_its_own() {
    let mut site = Site::new(BUCKET);
    assert_eq!([(); 3].map(|()| site.send("GET /", &[]).status), [301, 301, 429]);
    site.peer = OTHER_CLIENT.into();
    assert_eq!(site.send("GET /", &[]).status, 301);
}

#[test]
fn blocked_class_is_refused_in_the_name_of_its_class() {
    let site = Site::new(
        "classes: [{ name: scraper, block: true }]\nroutes: [{ match: '/**', redirect: 'https://other.example/' }]\n",
    );
    let answer = site.send("GET /", &[]);
    assert_eq!((answer.status, answer.logged("reason")), (429, "blocked".into()));
    assert_eq!(answer.json()["violated-policies"][0], "scraper");
}

#[test]
fn blocked_class_is_refused_with_its_status() {
    const SPACE: &str = "headers: { legacy: [atlassian] }\nquotas: { api: { limit: 10, window: { fixed: 60s } } }\n\
                         routes: [{ match: '/**', cost: { api: 1 } }]\n";
    for (refuse_with, title, challenge, retry_after) in [
        (401, "Unauthorized", "Bearer realm=\"api\"", false),
        (403, "Forbidden", "", false),
        (429, "Request not satisfied due to detection of abnormal request pattern", "", true),
    ] {
        let rules = format!("classes: [{{ name: nokey, block: true, refuse_with: {refuse_with} }}]\n{SPACE}");
        let site = Site::new(&rules);
        let answer = site.send("GET /item/1", &[]);
        assert_eq!((answer.status, answer.logged("status")), (refuse_with, refuse_with.into()));
        assert_eq!((answer.logged("verdict"), answer.logged("reason")), ("refused".into(), "blocked".into()));
        assert_eq!(
            (answer.json()["title"].as_str(), answer.json()["status"].as_u64()),
            (Some(title), Some(refuse_with.into()))
        );
        assert_eq!((answer.json()["reason"].as_str(), answer.field("cache-control")), (Some("blocked"), "no-store"));
        assert_eq!(answer.field("www-authenticate"), challenge, "{refuse_with}");
        assert_eq!(!answer.field("retry-after").is_empty(), retry_after, "{refuse_with}");
        assert_eq!(!answer.logged("retry_after_s").is_null(), retry_after, "{refuse_with}");
        assert_eq!(site.used(), 0.0);
    }
}

#[test]
fn where_customers_have_budgets_each_sees_its_own_and_nobody_what_remains_for_all() {
    let hash = "689febd264f8b977e29c0fdb75f839eb248ba07d1561b14f2b95f42756943245";
    let rules = format!(
        "headers: {{ ratelimit: draft-12, legacy: [github] }}
api_keys: [{{ name: acme, class: pro, sha256: {hash} }}]
quotas:
  all: {{ limit: 1000, window: {{ fixed: 1h }} }}
  customer: {{ per: api_key, limit: 3, window: {{ fixed: 1h }} }}
classes: [{{ name: pro, when: {{ api_key: own }} }}, {{ name: nokey, block: true, refuse_with: 401 }}]
routes: [{{ match: '/own', cost: {{ customer: 1 }} }}, {{ match: '/**', cost: {{ all: 1, customer: 1 }} }}]\n"
    );
    const NAMES: [&str; 4] = ["ratelimit-policy", "ratelimit-partition", "ratelimit", "x-ratelimit-limit"];
    let shown = |site: &Site, path: &str, key: &str| {
        let answer = site.send(&format!("GET {path}"), &[("authorization", &format!("Bearer {key}"))]);
        (answer.status, NAMES.map(|name| answer.field(name).to_owned()))
    };
    let site = Site::new(&rules);
    for key in ["", "unknown"] {
        for path in ["/v1/chat", "/own"] {
            assert_eq!(shown(&site, path, key), (401, NAMES.map(|_| String::new())), "{path} {key}");
        }
    }
    for path in ["/v1/chat", "/own"] {
        let (status, [policy, partition, limits, legacy]) = shown(&site, path, "key-of-acme");
        assert_eq!((status, policy.as_str(), legacy.as_str()), (502, "\"customer\";q=3;w=3600", "3"), "{path}");
        assert_eq!(partition, "\"customer\";client_id", "{path}");
        assert!(limits.starts_with("\"customer\";a=") && !limits.contains("all"), "{path}: {limits}");
    }
    // In shadow mode, requests of the class are charged to the budget of their address.
    let shadow = Site::new(&rules.replace("refuse_with: 401", "refuse_with: 401, enforce: false"));
    let (status, [policy, ..]) = shown(&shadow, "/own", "unknown");
    assert_eq!((status, policy.as_str()), (502, "\"customer\";q=3;w=3600"));
}

#[test]
fn an_administrator_blocks_with_429_whatever_the_class_has() {
    let mut site = Site::new("classes: [{ name: nokey, block: true, refuse_with: 401, enforce: false }]\n");
    site.peer = CLIENT.into();
    assert_eq!(site.journal("GET /", &[]).verdict.refusal(), None, "shadow mode");
    let target = SwitchTarget::Network(IpPrefix::new(CLIENT.into(), 32).expect("a network"));
    site.switch(Switches::new(None, [(target, Switch { effect: SwitchEffect::Block, until: None })]));
    let answer = site.send("GET /", &[]);
    assert_eq!((answer.status, answer.field("www-authenticate")), (429, ""));
}

#[test]
fn blocked_address_is_refused_and_no_policy_is_named() {
    let mut site = Site::new(BUCKET);
    let target = SwitchTarget::Network(IpPrefix::new(CLIENT.into(), 32).expect("a network"));
    let until = Some(START + Duration::from_secs(60));
    site.switch(Switches::new(None, [(target, Switch { effect: SwitchEffect::Block, until })]));
    let answer = site.send("GET /", &[]);
    assert_eq!((answer.status, answer.logged("switch")), (429, "block".into()));
    assert_eq!(answer.json()["violated-policies"].as_array().map(Vec::len), Some(0));
    site.peer = OTHER_CLIENT.into();
    assert_eq!(site.send("GET /", &[]).status, 301);
    site.peer = CLIENT.into();
    site.advance(60);
    assert_eq!(site.send("GET /", &[]).status, 301, "the block has ended");
}

#[test]
fn allowed_class_passes_its_tier_but_not_the_limit() {
    let site = Site::new(QUOTA);
    let class = site.worker.config().settings.rules.class_id("bot").expect("a class");
    let allow = Switch { effect: SwitchEffect::Allow, until: None };
    site.switch(Switches::new(None, [(SwitchTarget::Class(class), allow)]));
    assert!(site.journal("GET /item/1", &[BOT]).verdict.refusal().is_none());
    site.spend("GET /item/1", 10);
    assert_eq!(site.send("GET /item/1", &[BOT]).logged("reason"), "quota");
}

#[test]
fn maintenance_is_announced_to_all_but_the_listed_networks() {
    let mut site = Site::new(BUCKET);
    let except = vec![IpPrefix::new([198, 51, 100, 0].into(), 24).expect("a network")];
    let until = Some(START + Duration::from_secs(90));
    site.switch(Switches::new(Some(Maintenance { until, except }), []));
    let answer = site.send("GET /", &[]);
    assert_eq!((answer.status, answer.field("retry-after")), (503, "90"));
    assert_eq!(answer.logged("switch"), "maintenance");
    site.peer = [198, 51, 100, 7].into();
    assert_eq!(site.send("GET /", &[]).status, 301);
}

#[test]
fn page_of_another_origin_reads_a_refusal_without_credentials() {
    let site = Site::new(QUOTA);
    let answer = site.send("GET /item/1", &[BOT, ("origin", "https://other.example")]);
    assert_eq!(answer.field("access-control-allow-origin"), "https://other.example");
    assert!(answer.field("access-control-expose-headers").contains("Retry-After"));
    assert_eq!((answer.field("access-control-allow-credentials"), answer.field("vary")), ("", "Origin"));
    let answer = site.send("GET /item/1", &[BOT]);
    assert_eq!((answer.field("access-control-allow-origin"), answer.field("vary")), ("", ""));
}

#[test]
fn what_is_no_origin_is_not_repeated() {
    let site = Site::new(QUOTA);
    let long = "a".repeat(301);
    for origin in ["https://a.example, https://b.example", "https://a example", &long] {
        let answer = site.send("GET /item/1", &[BOT, ("origin", origin)]);
        assert_eq!(answer.field("access-control-allow-origin"), "", "{origin}");
    }
}

#[test]
fn site_chooses_which_pages_of_other_origins_read_its_refusals() {
    let refused = |rules: &str| {
        let answer = Site::new(rules).send("GET /item/1", &[BOT, ("origin", "https://other.example")]);
        assert_eq!(answer.status, 429);
        answer
    };
    let none = refused(&QUOTA.replace("retry_after_spread: 0%", "retry_after_spread: 0%, cors: false"));
    assert_eq!(none.field("access-control-allow-origin"), "");
    let set = "{ Access-Control-Allow-Origin: https://app.example, Access-Control-Allow-Credentials: \"true\" }";
    let one =
        refused(&QUOTA.replace("cost: { api: 1 }", &format!("cost: {{ api: 1 }}, response_headers: {{ set: {set} }}")));
    assert_eq!(one.field("access-control-allow-origin"), "https://app.example");
    assert_eq!(one.field("access-control-allow-credentials"), "true");
    assert!(one.field("access-control-expose-headers").contains("Retry-After"));
}

#[test]
fn retry_times_are_spread_upwards_within_the_ratio() {
    let site = Site::new(&QUOTA.replace("retry_after_spread: 0%", "retry_after_spread: 50%"));
    site.spend("GET /item/1", 10);
    let times: Vec<u64> =
        (0..20).map(|_| site.send("GET /item/1", &[]).field("retry-after").parse().expect("seconds")).collect();
    assert!(times.iter().all(|seconds| (60..=90).contains(seconds)), "{times:?}");
    let (min, max) = (times.iter().min().expect("times"), times.iter().max().expect("times"));
    assert!(max - min > 10, "{times:?}");
}

#[test]
fn rule_in_shadow_mode_is_recorded_and_refuses_nothing() {
    let site = Site::new(&QUOTA.replace("cost_header: X-API-Cost,", "enforce: false,"));
    let answer = site.send("GET /item/1", &[BOT]);
    assert_eq!((answer.logged("verdict"), answer.logged("shadow_reason")), ("admitted".into(), "tier".into()));
}

#[test]
fn request_without_a_slot_is_refused_and_releases_its_units() {
    let site = Site::new(ONE_SLOT);
    let first = site.journal("GET /", &[]);
    let slot = super::super::throttle::acquire_free_slots(&first).expect("a free slot");
    let answer = site.send("GET /", &[]);
    assert_eq!(
        (answer.status, answer.logged("reason"), answer.logged("scope")),
        (503, "throttle".into(), "default".into())
    );
    assert_eq!(answer.json()["violated-policies"].as_array().map(Vec::len), Some(0));
    assert_ne!(answer.field("retry-after"), "");
    drop((slot, first));
    assert_eq!(site.used(), 0.0);
    assert_eq!(site.send("GET /", &[]).status, 502, "the slot is free, and the origin down");
}

#[test]
fn preflight_passes_an_exhausted_quota() {
    let site = Site::new(QUOTA);
    site.spend("GET /item/1", 10);
    let fields = [("origin", "https://other.example"), ("access-control-request-method", "PUT")];
    let answer = site.send("OPTIONS /item/1", &fields);
    assert_eq!((answer.status, answer.logged("verdict")), (502, "admitted".into()));
    let with_cookie = [&fields[..], &[("cookie", "a=b")]].concat();
    assert_eq!(site.send("OPTIONS /item/1", &with_cookie).status, 429);
}

#[test]
fn request_that_never_reached_the_origin_costs_nothing() {
    let site = Site::new(QUOTA);
    let answer = site.send("GET /item/1", &[]);
    assert_eq!((answer.status, answer.field("retry-after")), (502, "5"));
    assert_eq!((answer.logged("verdict"), site.used()), ("admitted".into(), 0.0));
}
