//! Answers from stored responses: when one is sent, in which form, and what it saves.

use super::site::{Answer, BOT, CLIENT, OTHER_CLIENT, Site};
use crate::gateway::exchange::cache_trip::CopyReason;
use crate::gateway::exchange::evaluate::evaluate;
use crate::gateway::exchange::invalidate::invalidate_page;
use crate::gateway::exchange::lookup::{CacheRole, cache_role, copy_fetched_by_others};
use crate::gateway::message::site::Site as OfSite;
use serde_json::json;
use std::time::Duration;
use tidegate_http_cache::ForwardReason;
use tidegate_policy::Reason;
use tidegate_policy::network::IpPrefix;
use tidegate_policy::switches::{Switch, SwitchEffect, SwitchTarget, Switches};

/// Pages of one unit in a cache, of which bots get none from the origin.
const CACHED: &str = "
headers: { retry_after_spread: 0% }
cache: { disk: off, refresh: off, stale_when_refused: 1h, stale_if_error: 10m }
quotas: { api: { limit: 10, window: { fixed: 60s }, tiers: { bot: [{ above: 0%, shed: 100% }] } } }
classes: [{ name: bot, when: { kind: declared_bot } }, { name: person }]
routes: [{ match: '/item/*', cost: { api: 1 } }, { match: '/private', cache: off }, { match: '/**' }]
";

const ETAG: (&str, &str) = ("etag", "\"v1\"");
const MINUTE: (&str, &str) = ("cache-control", "max-age=60");
const HTML: (&str, &str) = ("content-type", "text/html");

/// A site that has stored a page for a minute.
fn with_copy() -> Site {
    let site = Site::new(CACHED);
    site.store("GET /item/1", &[], &[MINUTE, ETAG, HTML], "0123456789");
    site
}

fn cache_status(answer: &Answer) -> &str {
    answer.field("cache-status").strip_prefix("tidegate; ").expect("the name of the cache")
}

#[test]
fn fresh_copy_is_sent_without_origin_and_units() {
    let site = with_copy();
    site.advance(20);
    let answer = site.send("GET /item/1", &[]);
    assert_eq!((answer.status, answer.body.as_str()), (200, "0123456789"));
    assert_eq!((answer.field("age"), cache_status(&answer)), ("20", "hit; ttl=40"));
    assert_eq!((answer.logged("cache"), answer.logged("charged"), site.used()), ("hit".into(), json!({}), 0.0));
    assert_eq!(site.telemetry.saved_units()[0].2.as_f64(), 1.0);
}

#[test]
fn tiers_and_quotas_do_not_refuse_a_copy() {
    let site = with_copy();
    assert_eq!(site.send("GET /item/1", &[BOT]).logged("cache"), "hit");
    site.spend("GET /item/2", 10);
    assert_eq!(site.send("GET /item/1", &[]).status, 200);
    assert_eq!(site.send("GET /item/2", &[]).status, 429);
}

#[test]
fn block_holds_for_a_copy() {
    let site = with_copy();
    let target = SwitchTarget::Network(IpPrefix::new(CLIENT.into(), 32).expect("a network"));
    site.switch(Switches::new(None, [(target, Switch { effect: SwitchEffect::Block, until: None })]));
    assert_eq!(site.send("GET /item/1", &[]).logged("reason"), "blocked");
}

#[test]
fn stale_copy_takes_the_place_of_a_refusal_for_a_time() {
    let site = with_copy();
    site.advance(60 + 3599);
    let answer = site.send("GET /item/1", &[BOT]);
    assert_eq!((answer.status, cache_status(&answer)), (200, "hit; ttl=-3599; detail=refused"));
    assert_eq!((answer.logged("verdict"), answer.logged("cache")), ("refused".into(), "stale".into()));
    assert_eq!(site.telemetry.saved_units().len(), 0, "a refused request would have cost nothing");
    site.advance(1);
    assert_eq!(site.send("GET /item/1", &[BOT]).status, 429);
}

#[test]
fn stale_copy_takes_the_place_of_a_failure_for_a_time() {
    let site = with_copy();
    site.advance(60 + 599);
    let answer = site.send("GET /item/1", &[]);
    assert_eq!((answer.status, cache_status(&answer)), (200, "hit; ttl=-599; detail=error"));
    assert_eq!((answer.logged("verdict"), answer.logged("charged")), ("admitted".into(), json!({"api": 0})));
    site.advance(1);
    assert_eq!(site.send("GET /item/1", &[]).status, 502);
}

#[test]
fn head_and_range_of_a_stale_copy_take_the_place_of_a_failure() {
    let site = with_copy();
    site.advance(61);
    let head = site.send("HEAD /item/1", &[]);
    assert_eq!((head.status, head.field("content-length"), head.body.as_str()), (200, "10", ""));
    let range = site.send("GET /item/1", &[("range", "bytes=2-4")]);
    assert_eq!((range.status, range.body.as_str(), cache_status(&range)), (206, "234", "hit; ttl=-1; detail=error"));
}

#[test]
fn copy_that_must_be_revalidated_is_never_sent_stale() {
    let site = Site::new(CACHED);
    site.store("GET /item/1", &[], &[("cache-control", "max-age=60, must-revalidate"), ETAG], "page");
    site.advance(61);
    assert_eq!(site.send("GET /item/1", &[]).status, 502);
    assert_eq!(site.send("GET /item/1", &[BOT]).status, 429);
}

#[test]
fn validator_of_the_client_gets_304_with_the_fields_of_one() {
    let site = with_copy();
    for (name, value, status) in [
        ("if-none-match", "\"v1\"", 304),
        ("if-none-match", "W/\"v1\", \"v0\"", 304),
        ("if-none-match", "*", 304),
        ("if-none-match", "\"v2\"", 200),
    ] {
        let answer = site.send("GET /item/1", &[(name, value)]);
        assert_eq!(answer.status, status, "{value}");
        let (content_type, body) = if status == 304 { ("", "") } else { ("text/html", "0123456789") };
        assert_eq!((answer.field("content-type"), answer.body.as_str()), (content_type, body), "{value}");
        assert_eq!((answer.field("etag"), answer.logged("status")), ("\"v1\"", status.into()));
    }
}

#[test]
fn head_gets_the_length_of_the_copy_and_no_body() {
    let answer = with_copy().send("HEAD /item/1", &[]);
    assert_eq!((answer.status, answer.body.as_str(), answer.field("content-length")), (200, "", "10"));
    assert_eq!((answer.logged("cache"), answer.logged("bytes")), ("hit".into(), 0.into()));
}

#[test]
fn range_of_a_copy_is_a_part_of_it() {
    let site = with_copy();
    for (range, status, content_range, body) in [
        ("bytes=2-4", 206, "bytes 2-4/10", "234"),
        ("bytes=8-", 206, "bytes 8-9/10", "89"),
        ("bytes=-3", 206, "bytes 7-9/10", "789"),
        ("bytes=10-", 416, "bytes */10", ""),
        ("bytes=0-1,3-4", 200, "", "0123456789"),
        ("items=1-2", 200, "", "0123456789"),
    ] {
        let answer = site.send("GET /item/1", &[("range", range)]);
        assert_eq!((answer.status, answer.field("content-range")), (status, content_range), "{range}");
        assert_eq!(answer.body, body, "{range}");
    }
    let changed = site.send("GET /item/1", &[("range", "bytes=2-4"), ("if-range", "\"v0\"")]);
    assert_eq!((changed.status, changed.body.len()), (200, 10));
    assert_eq!(site.send("GET /item/1", &[("range", "bytes=2-4"), ("if-range", "\"v1\"")]).status, 206);
}

#[test]
fn range_of_a_missing_page_is_not_fetched_for_the_cache() {
    let role = Site::new(CACHED).cache_role("GET /item/1", &[("range", "bytes=0-1")]);
    assert!(matches!(role, CacheRole::Bypass(ForwardReason::UriMiss, None)));
}

#[test]
fn client_that_wants_only_a_copy_gets_one_or_504() {
    let site = with_copy();
    let only = [("cache-control", "only-if-cached")];
    assert_eq!(site.send("GET /item/1", &only).status, 200);
    let answer = site.send("GET /item/2", &only);
    assert_eq!((answer.status, answer.field("retry-after"), site.used()), (504, "", 0.0));
    site.spend("GET /item/2", 10);
    assert_eq!(site.send("GET /item/2", &only).status, 504, "free, so that no quota refuses it");
}

#[test]
fn people_reload_a_page_and_bots_do_not() {
    let site = with_copy();
    let reload = ("cache-control", "no-cache");
    let role = site.cache_role("GET /item/1", &[reload]);
    let CacheRole::Fetch(fetch) = role else { panic!("no fetch") };
    assert_eq!(fetch.reason, ForwardReason::Request);
    assert!(matches!(site.cache_role("GET /item/1", &[BOT, reload]), CacheRole::Copy(..)));
}

#[test]
fn copy_may_be_older_than_its_lifetime_only_for_clients_that_say_so() {
    let site = with_copy();
    site.advance(70);
    let answer = |max_stale: &str| site.send("GET /item/1", &[("cache-control", max_stale)]);
    assert_eq!(cache_status(&answer("max-stale=10")), "hit; ttl=-10");
    assert_eq!(cache_status(&answer("max-stale=9")), "hit; ttl=-10; detail=error");
}

#[test]
fn copies_are_selected_by_the_fields_that_vary_names() {
    let site = Site::new(CACHED);
    let vary = ("vary", "Accept-Language");
    site.store("GET /item/1", &[], &[MINUTE, vary], "of no language");
    for language in ["de", "fr"] {
        site.store("GET /item/1", &[("accept-language", language)], &[MINUTE, vary], language);
    }
    for language in ["de", "fr"] {
        assert_eq!(site.send("GET /item/1", &[("accept-language", language)]).body, language);
    }
    assert_eq!(site.send("GET /item/1", &[]).body, "of no language");
    let CacheRole::Fetch(fetch) = site.cache_role("GET /item/1", &[("accept-language", "it")]) else {
        panic!("a copy")
    };
    assert_eq!(fetch.reason, ForwardReason::VaryMiss);
}

#[test]
fn query_selects_a_copy_but_for_parameters_of_campaigns() {
    let site = Site::new(CACHED);
    site.store("GET /item/1?a=1", &[], &[MINUTE], "page");
    for (line, is_copy) in [
        ("GET /item/1?a=1", true),
        ("GET /item/1?utm_source=x&a=1", true),
        ("GET /item/1?a=2", false),
        ("GET /item/1", false),
    ] {
        assert_eq!(matches!(site.cache_role(line, &[]), CacheRole::Copy(..)), is_copy, "{line}");
    }
    let https = site.cache_role("GET /item/1?a=1", &[("host", "other.example")]);
    assert!(matches!(https, CacheRole::Fetch(_)), "another host");
}

#[test]
fn copy_is_not_for_a_client_with_credentials_unless_it_is_public() {
    let site = with_copy();
    site.store("GET /item/2", &[], &[("cache-control", "public, max-age=60")], "page");
    for (field, path, is_copy) in [
        (("authorization", "Basic eA=="), "/item/1", false),
        (("cookie", "session=1"), "/item/1", false),
        (("cookie", "; "), "/item/1", true),
        (("authorization", "Basic eA=="), "/item/2", true),
        (("cookie", "session=1"), "/item/2", true),
    ] {
        let role = site.cache_role(&format!("GET {path}"), &[field]);
        assert_eq!(matches!(role, CacheRole::Copy(..)), is_copy, "{field:?} {path}");
    }
}

#[test]
fn writes_conditions_and_uncached_routes_pass_the_cache() {
    let site = with_copy();
    assert!(matches!(site.cache_role("POST /item/1", &[]), CacheRole::Bypass(ForwardReason::Method, None)));
    let condition = site.cache_role("GET /item/1", &[("if-match", "\"v1\"")]);
    assert!(matches!(condition, CacheRole::Bypass(ForwardReason::Bypass, None)));
    let upgrade = site.cache_role("GET /item/1", &[("connection", "upgrade"), ("upgrade", "websocket")]);
    assert!(matches!(upgrade, CacheRole::Bypass(ForwardReason::Bypass, None)));
    assert!(matches!(site.cache_role("GET /private", &[]), CacheRole::Unused));
}

#[test]
fn invalidated_copy_is_validated_before_it_is_used() {
    let site = with_copy();
    site.advance(1);
    let written = site.known("POST /item/1", &[]);
    let of_site = OfSite::from_head(&written.request.head, false);
    invalidate_page(&written, &of_site, "/item/1", None);
    let CacheRole::Fetch(fetch) = site.cache_role("GET /item/1", &[]) else { panic!("a copy") };
    assert_eq!((fetch.reason, fetch.copy.is_some()), (ForwardReason::Stale, true));
}

#[test]
fn stale_copy_is_sent_while_one_request_validates_it() {
    let site = Site::new(CACHED);
    site.store("GET /item/1", &[], &[("cache-control", "max-age=60, stale-while-revalidate=60")], "page");
    site.advance(61);
    let first = site.cache_role("GET /item/1", &[]);
    assert!(matches!(first, CacheRole::CopyAndFetch(..)));
    assert!(matches!(site.cache_role("GET /item/1", &[]), CacheRole::Copy(_, CopyReason::Reusable)));
    drop(first);
    let answer = site.send("GET /item/1", &[]);
    assert_eq!((answer.status, answer.body.as_str()), (200, "page"));
    site.advance(60);
    assert!(matches!(site.cache_role("GET /item/1", &[]), CacheRole::Fetch(_)), "too stale");
}

#[test]
fn fetch_is_prepared_for_all_clients_and_asks_for_a_validation() {
    let site = with_copy();
    site.advance(61);
    let journal = site.fetch("GET /item/1?utm_source=x", &[("accept-language", "de"), ("referer", "http://a/")]);
    let fields = &journal.known.request.head.fields;
    let field = |name| super::site::field(fields, name);
    assert_eq!((field("if-none-match"), field("accept-language"), field("referer")), ("\"v1\"", "", ""));
    assert!(field("user-agent").starts_with("tidegate/"), "{fields:?}");
    assert_eq!((field("host"), field("x-tidegate-class")), ("shop.example", ""));
    let client = journal.cache.client_fields(&journal.known.request);
    assert_eq!(super::site::field(client, "accept-language"), "de", "the log shows what the client sent");
}

#[test]
fn response_fetched_by_others_is_used_once_the_request_has_its_slots() {
    let site = Site::new(CACHED);
    let mut journal = site.fetch("GET /item/1", &[]);
    journal.cache.fetch.as_mut().expect("a fetch").hand_over();
    assert!(copy_fetched_by_others(&journal).is_none());
    site.store("GET /item/1", &[], &[MINUTE], "page");
    let (copy, reason) = copy_fetched_by_others(&journal).expect("a copy");
    assert_eq!((copy.body.len(), reason), (4, ForwardReason::UriMiss));
    site.advance(60);
    assert!(copy_fetched_by_others(&journal).is_none(), "stale");
}

#[test]
fn response_fetched_by_others_is_the_one_of_the_address_of_the_client() {
    let mut site = Site::new(&CACHED.replace("cost: { api: 1 }", "cache: { key: { headers: [x-forwarded-for] } }"));
    let forged = ("x-forwarded-for", "192.0.2.2");
    let known = site.known("GET /item/1", &[forged]);
    let mut now = site.clock.now();
    let role = site.run(cache_role(&known, &mut now));
    let mut journal = site.run(evaluate(known, &role, now));
    let CacheRole::Fetch(fetch) = role else { panic!("a copy") };
    journal.cache.begin_fetch(fetch);
    journal.cache.fetch.as_mut().expect("a fetch").hand_over();
    site.peer = OTHER_CLIENT.into();
    site.store("GET /item/1", &[], &[MINUTE], "page of the other");
    assert!(copy_fetched_by_others(&journal).is_none(), "the address that a client claims selects nothing");
    site.peer = CLIENT.into();
    site.store("GET /item/1", &[forged], &[MINUTE], "own page");
    let (copy, _) = copy_fetched_by_others(&journal).expect("a copy");
    assert_eq!(copy.body.len(), 8);
}

#[test]
fn forged_address_selects_no_copy() {
    let key = "cache: { key: { headers: [x-real-ip] } }";
    for (header, route, vary) in [("X-Real-IP", key, ""), ("CF-Connecting-IP", "cache: {}", "CF-Connecting-IP")] {
        let from = format!("clients: {{ address_from: {{ header: {header} }}, trusted_proxies: [192.0.2.2/32] }}");
        let mut site = Site::new(&format!("{from}{}", CACHED.replace("cost: { api: 1 }", route)));
        let address = (header, "198.51.100.7");
        let gets_page = |site: &Site| {
            let role = site.cache_role("GET /item/1", &[address]);
            matches!(role, CacheRole::Copy(copy, _) if copy.body.len() == "page of 7".len() as u64)
        };
        site.peer = OTHER_CLIENT.into();
        // The first response names the field, which the origin is sent from then on.
        site.store("GET /item/1", &[(header, "198.51.100.8")], &[MINUTE, ("vary", vary)], "page");
        site.store("GET /item/1", &[address], &[MINUTE, ("vary", vary)], "page of 7");
        assert!(gets_page(&site), "{header} of the proxy");
        site.peer = CLIENT.into();
        assert!(!gets_page(&site), "{header} of a client");
    }
}

#[test]
fn fields_that_the_gateway_writes_select_the_copies_that_were_fetched_with_them() {
    let key = "cache: { key: { headers: [x-forwarded-host, x-forwarded-proto, forwarded, x-forwarded-for] } }";
    let site = Site::new(&CACHED.replace("cost: { api: 1 }", key));
    let forged = [("x-forwarded-host", "evil.example"), ("x-forwarded-proto", "https"), ("forwarded", "for=_x")];
    site.store("GET /item/1", &[], &[MINUTE], "page");
    assert!(matches!(site.cache_role("GET /item/1", &[]), CacheRole::Copy(..)));
    assert!(matches!(site.cache_role("GET /item/1", &forged), CacheRole::Copy(..)));
}

#[test]
fn copy_replaces_refusals_of_rules_that_protect_units_only() {
    let site = with_copy();
    let role = site.cache_role("GET /item/1", &[]);
    let limit = Duration::from_secs(60);
    for reason in Reason::ALL {
        let is_replaced = role.replacement(reason, limit, site.clock.now()).is_some();
        assert_eq!(is_replaced, reason.allows_copy(), "{reason:?}");
    }
    assert!(!Reason::Bucket.allows_copy() && !Reason::Blocked.allows_copy());
}

#[test]
fn pages_from_the_cache_count_for_bot_detection() {
    let site = Site::new(CACHED);
    let hour = ("cache-control", "max-age=3600");
    let pages: Vec<String> = (0..60).map(|page| format!("GET /item/{page}")).collect();
    pages.iter().for_each(|page| site.store(page, &[], &[hour, HTML], "page"));
    let scores: Vec<_> = pages.iter().map(|page| site.send(page, &[]).logged("bot_score").as_u64()).collect();
    assert_eq!(site.used(), 0.0);
    assert!(scores[59] > Some(0), "pages without their assets: {scores:?}");
}
