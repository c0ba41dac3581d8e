use crate::log::{LogSource, MergedLog};
use crate::report::{CacheReport, PolicyReport};
use crate::{Assumptions, Policy, Replay};
use proptest::prelude::*;
use std::collections::HashMap;
use std::fmt::Write;
use std::io::Cursor;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tidegate_config as config;
use tidegate_crawlers::user_agents::UserAgentMatcher;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_policy::Units;

/// A logged request.
#[derive(Clone, Copy, Debug)]
struct Logged {
    second: u64,
    method: &'static str,
    page: u8,
    status: u16,
    bytes: u64,
}

const QUOTA: &str = "quotas: { api: { limit: 1000000, window: { fixed: 24h } } }";
const ROUTES: &str = "routes: [{ match: \"/private/*\", cost: { api: 1 } }, { match: \"/**\", cost: { api: 2 } }]";
const ROUTES_WITH_TTL: &str = "routes: [{ match: \"/private/*\", cost: { api: 1 }, cache: off }, \
    { match: \"/**\", cost: { api: 2 }, cache: { ttl: 10m } }]";

const fn get(second: u64, page: u8) -> Logged {
    Logged { second, method: "GET", page, status: 200, bytes: 1000 }
}

fn log(requests: &[Logged]) -> String {
    requests.iter().fold(String::new(), |mut log, Logged { second, method, page, status, bytes }| {
        line(&mut log, *second, method, &format!("/page/{page}"), *status, *bytes);
        log
    })
}

fn line(log: &mut String, second: u64, method: &str, target: &str, status: u16, bytes: u64) {
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let time = format!("07/Jun/2024:{hour:02}:{minute:02}:{second:02} +0000");
    let agent = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
    let _ = writeln!(log, "192.0.2.1 - - [{time}] \"{method} {target} HTTP/1.1\" {status} {bytes} \"-\" \"{agent}\"");
}

/// Built once, because it takes most of the time of a short replay.
static OPERATORS: LazyLock<Arc<OperatorTable>> = LazyLock::new(|| Arc::new(OperatorTable::builtin()));
static USER_AGENTS: LazyLock<Arc<UserAgentMatcher>> =
    LazyLock::new(|| Arc::new(UserAgentMatcher::builtin(OPERATORS.product_tokens())));

fn policy(yaml: &str) -> Policy {
    let names: Vec<&str> = OPERATORS.names().collect();
    let yaml = format!("origin: {{ url: \"http://127.0.0.1:3000\" }}\nbot_detection: {{ enabled: false }}\n{yaml}");
    let settings = config::load(Path::new("a.yaml"), &yaml, &[], &[], &names).expect("valid configuration");
    let (operators, user_agents) = (Arc::clone(&OPERATORS), Arc::clone(&USER_AGENTS));
    Policy {
        name: "a.yaml".into(),
        settings,
        operators,
        user_agents,
        lists: Arc::default(),
        network_databases: Arc::default(),
    }
}

fn replay(yaml: &str, log: &str, max_age: Option<Duration>) -> PolicyReport {
    let window = Duration::from_secs(60);
    let source = LogSource::new("a.log".into(), Box::new(Cursor::new(log.as_bytes().to_vec())));
    let replay = Replay {
        files: vec!["a.log".into()],
        lines: MergedLog::new(vec![source], window),
        reorder_window: window,
        assumptions: Assumptions { max_age, ..Assumptions::default() },
    };
    let report = replay.run(policy(yaml), None, None, &mut |_| ()).expect("the log has requests");
    report.policies.into_iter().next().expect("one policy")
}

fn cache_report(yaml: &str, requests: &[Logged], max_age: Option<u64>) -> CacheReport {
    let report = replay(yaml, &log(requests), max_age.map(Duration::from_secs));
    report.cache.expect("the configuration has a cache")
}

fn hits(yaml: &str, requests: &[Logged], max_age: Option<u64>) -> u64 {
    cache_report(yaml, requests, max_age).hits
}

fn cached() -> String {
    format!("cache: {{}}\n{QUOTA}\n{ROUTES}")
}

fn charged(report: &PolicyReport) -> Units {
    report.quotas[0].windows.iter().map(|window| window.used).sum()
}

#[test]
fn copies_are_fresh_for_the_lifetime_of_the_origin_else_of_the_route() {
    let requests = [get(0, 1), get(599, 1), get(600, 1), get(1199, 1)];
    let with_ttl = format!("cache: {{}}\n{QUOTA}\n{ROUTES_WITH_TTL}");
    assert_eq!(hits(&cached(), &requests, Some(600)), 2);
    assert_eq!(hits(&with_ttl, &requests, None), 2);
    assert_eq!(hits(&with_ttl, &requests, Some(1)), 0, "the origin overrides the route");
    assert_eq!(hits(&cached(), &requests, None), 0, "nothing says that a copy is fresh");
}

#[test]
fn crowd_is_answered_from_copies_and_one_network_is_none() {
    let crowded = format!("cache: {{ crowd_max_age: 60s }}\n{QUOTA}\n{ROUTES}");
    let hits_of = |yaml: &str, networks: u64| {
        let text: String = (0..200)
            .map(|second| log(&[get(second, 1)]).replace("192.0.2.1", &format!("203.0.{}.1", second % networks)))
            .collect();
        replay(yaml, &text, None).cache.expect("a cache").hits
    };
    assert!((170..185).contains(&hits_of(&crowded, 200)), "{}", hits_of(&crowded, 200));
    assert_eq!([hits_of(&cached(), 200), hits_of(&crowded, 1)], [0, 0]);
}

#[test]
fn the_key_is_that_of_the_gateway() {
    let mut text = String::new();
    for (second, target) in ["/page?a=1&utm_source=x", "/page?a=1", "/PAGE/../page?a=1&gclid=2"].iter().enumerate() {
        line(&mut text, second as u64, "GET", target, 200, 10);
    }
    for (second, target) in ["/page", "/page?utm_source=x", "/page?", "/page?a=2"].iter().enumerate() {
        line(&mut text, 10 + second as u64, "GET", target, 200, 10);
    }
    let cache = replay(&cached(), &text, Some(Duration::from_secs(600))).cache.expect("a cache");
    assert_eq!((cache.hits, cache.misses), (4, 3));
    let by_parameter = format!(
        "cache: {{}}\n{QUOTA}\nroutes: [{{ match: \"/**\", cost: {{ api: 1 }}, cache: {{ key: {{ query: [b] }} }} }}]"
    );
    let cache = replay(&by_parameter, &text, Some(Duration::from_secs(600))).cache.expect("a cache");
    assert_eq!((cache.hits, cache.misses), (6, 1));
}

#[test]
fn routes_without_a_cache_and_exempt_paths_take_no_part() {
    let mut text = String::new();
    for second in 0..3 {
        line(&mut text, second, "GET", "/private/a", 200, 10);
        line(&mut text, second, "GET", "/robots.txt", 200, 10);
    }
    let yaml = format!("cache: {{}}\n{QUOTA}\n{ROUTES_WITH_TTL}");
    let cache = replay(&yaml, &text, None).cache.expect("a cache");
    assert_eq!((cache.requests, cache.hits), (0, 0));
    assert!(replay(&format!("{QUOTA}\n{ROUTES}"), &text, None).cache.is_none());
}

#[test]
fn methods_and_statuses_count_as_in_the_gateway() {
    let with = |status| [Logged { status, ..get(0, 1) }, get(1, 1)];
    let stored = [200, 203, 204, 301, 304, 404, 410, 501].map(|status| hits(&cached(), &with(status), Some(60)));
    assert_eq!(stored, [1; 8]);
    let not_stored = [206, 302, 403, 429, 499, 500, 503].map(|status| hits(&cached(), &with(status), Some(60)));
    assert_eq!(not_stored, [0; 7]);
    let by_method = |method| hits(&cached(), &[Logged { method, ..get(0, 1) }, get(1, 1)], Some(60));
    assert_eq!(["HEAD", "POST", "OPTIONS"].map(by_method), [0; 3]);
    let range = Logged { status: 206, ..get(1, 1) };
    let head = Logged { method: "HEAD", ..get(2, 1) };
    assert_eq!(hits(&cached(), &[get(0, 1), range, head], Some(60)), 2, "parts of a whole copy");
}

#[test]
fn writes_and_other_responses_remove_copies_and_failures_do_not() {
    let after = |between: Logged| hits(&cached(), &[get(0, 1), between, get(2, 1)], Some(60));
    let write = Logged { method: "POST", ..get(1, 1) };
    assert_eq!(after(write), 0);
    assert_eq!(after(Logged { status: 303, ..write }), 0);
    assert_eq!(after(Logged { status: 422, ..write }), 1, "the write failed");
    assert_eq!(after(Logged { page: 2, ..write }), 1);
    // A stale copy is replaced by what is not stored, and kept over a failure.
    let instead = |status| {
        let yaml = format!("cache: {{}}\nquotas: {{ api: {{ limit: 4, window: {{ fixed: 24h }} }} }}\n{ROUTES}");
        let requests = [get(0, 1), Logged { status, ..get(100, 1) }, get(200, 1)];
        cache_report(&yaml, &requests, Some(60)).replaced_refusals
    };
    assert_eq!([302, 403].map(instead), [0; 2]);
    assert_eq!([429, 500].map(instead), [1; 2]);
}

#[test]
fn refusals_are_answered_by_copies_within_their_time() {
    let yaml = |stale: &str, bucket: &str| {
        format!(
            "cache: {{ stale_when_refused: {stale} }}\nclasses: [{{ name: all{bucket} }}]\n\
             quotas: {{ api: {{ limit: 2, window: {{ fixed: 24h }} }} }}\n{ROUTES}"
        )
    };
    let requests = [get(0, 1), get(100, 1), get(200, 1), get(300, 2)];
    let cache = cache_report(&yaml("1h", ""), &requests, Some(50));
    assert_eq!((cache.replaced_refusals, cache.hits, cache.requests), (2, 0, 1));
    assert!(cache.saved.is_empty(), "a refused request would have cost nothing");
    assert_eq!(cache_report(&yaml("100s", ""), &requests, Some(50)).replaced_refusals, 1);
    assert_eq!(cache_report(&yaml("0s", ""), &requests, Some(50)).replaced_refusals, 0);
    // A bucket holds for copies, too.
    let bucket = ", bucket: { capacity: 1, fill: 1, interval: 24h }";
    let report = replay(&yaml("1h", bucket), &log(&requests), Some(Duration::from_secs(1000)));
    assert_eq!(report.classes[0].refused.get("bucket"), Some(&3));
    assert_eq!(report.cache.map(|cache| (cache.hits, cache.replaced_refusals)), Some((0, 0)));
}

#[test]
fn fresh_copies_ask_neither_tier_nor_quota() {
    let yaml = format!("cache: {{}}\nquotas: {{ api: {{ limit: 2, window: {{ fixed: 24h }} }} }}\n{ROUTES}");
    let requests: Vec<Logged> = (0..50).map(|second| get(second, 1)).collect();
    let report = replay(&yaml, &log(&requests), Some(Duration::from_secs(3600)));
    assert_eq!((report.admitted, report.refused, charged(&report)), (50, 0, Units::from_whole(2)));
    let cache = report.cache.expect("a cache");
    assert_eq!(cache.saved, [("api".to_owned(), Units::from_whole(98))].into());
    assert_eq!((cache.classes.len(), &cache.classes[0].saved), (1, &cache.saved));
}

#[test]
fn the_size_of_the_store_bounds_what_is_kept() {
    let small = format!("cache: {{ memory: 1MiB, disk: off }}\n{QUOTA}\n{ROUTES}");
    let round = |start: u64| (0..40).map(move |page| Logged { bytes: 100_000, ..get(start + u64::from(page), page) });
    let requests: Vec<Logged> = round(0).chain(round(100)).collect();
    let cache = cache_report(&small, &requests, Some(3600));
    let store = cache.store.expect("a simulated cache");
    assert_eq!((cache.hits, store.entries, store.evictions), (0, 10, 70));
    assert!(store.bytes <= 1 << 20, "{store:?}");
    assert_eq!(hits(&cached(), &requests, Some(3600)), 40, "the default size is larger");
    let large = [Logged { bytes: 200_000, ..get(0, 1) }, get(1, 1)];
    assert_eq!(hits(&small, &large, Some(3600)), 0, "larger than an eighth of the memory");
}

/// Requests at increasing times, for few pages.
fn requests() -> impl Strategy<Value = Vec<Logged>> {
    let methods = prop_oneof![8 => Just("GET"), 1 => Just("HEAD"), 1 => Just("POST")];
    let statuses = prop_oneof![8 => Just(200_u16), 1 => Just(304), 1 => Just(404), 1 => Just(302), 1 => Just(500)];
    let request = (0_u64..400, methods, 0_u8..12, statuses, 0_u64..300_000);
    proptest::collection::vec(request, 1..120).prop_map(|requests| {
        let mut second = 0;
        let logged = requests.into_iter().map(|(gap, method, page, status, bytes)| {
            second += gap;
            Logged { second, method, page, status, bytes }
        });
        logged.collect()
    })
}

/// Returns the hits of a cache that stores every page for `ttl` and forgets none.
fn unbounded_hits(requests: &[Logged], ttl: u64) -> u64 {
    let mut fetched = HashMap::new();
    let is_hit = |request: &&Logged| {
        let is_fresh = fetched.get(&request.page).is_some_and(|at| request.second - at < ttl);
        if !is_fresh {
            fetched.insert(request.page, request.second);
        }
        is_fresh
    };
    requests.iter().filter(is_hit).count() as u64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_cache_has_more_hits_than_one_that_keeps_all(requests in requests(), ttl in 0_u64..2000) {
        let small = format!("cache: {{ memory: 1MiB, disk: off }}\n{QUOTA}\n{ROUTES}");
        for yaml in [&small, &cached()] {
            prop_assert!(hits(yaml, &requests, Some(ttl)) <= unbounded_hits(&requests, ttl));
        }
        let pages: Vec<Logged> = requests.iter().map(|request| get(request.second, request.page)).collect();
        prop_assert_eq!(hits(&cached(), &pages, Some(ttl)), unbounded_hits(&pages, ttl));
    }

    #[test]
    fn nothing_is_fresh_without_a_lifetime(requests in requests()) {
        let cache = cache_report(&cached(), &requests, Some(0));
        prop_assert_eq!((cache.hits, cache.saved.is_empty()), (0, true));
    }

    #[test]
    fn charged_and_saved_units_are_those_charged_without_a_cache(requests in requests(), ttl in 0_u64..2000) {
        let text = log(&requests);
        let without = replay(&format!("{QUOTA}\n{ROUTES}"), &text, None);
        let with = replay(&cached(), &text, Some(Duration::from_secs(ttl)));
        prop_assert_eq!((with.refused, with.requests), (0, without.requests));
        let saved: Units = with.cache.iter().flat_map(|cache| cache.saved.values()).copied().sum();
        prop_assert_eq!(charged(&with).saturating_add(saved), charged(&without));
    }

    #[test]
    fn a_second_replay_gives_the_same_bytes(requests in requests(), ttl in 0_u64..2000) {
        let yaml = format!("cache: {{ memory: 1MiB }}\nquotas: {{ api: {{ limit: 60, window: {{ fixed: 1h }} }} }}\n{ROUTES}");
        let report = || serde_json::to_string(&replay(&yaml, &log(&requests), Some(Duration::from_secs(ttl))));
        prop_assert_eq!(report().expect("numbers and texts"), report().expect("numbers and texts"));
    }
}
