//! Live decisions against replayed ones: the replay of a gateway's log yields the same verdict, reason and class per
//! line.

use crate::support::client::Client;
use crate::support::day_trace;
use crate::support::gateway::TestGateway;
use crate::support::load::{self, LoadRequest};
use crate::support::origin::{Origin, signal};
use crate::support::wait::wait_until;
use serde_json::Value;
use std::io::Cursor;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tidegate::service::crawlers;
use tidegate_config as config;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_engine::clock::Clock;
use tidegate_policy::Units;
use tidegate_policy::address_lists::AddressLists;
use tidegate_replay::log::{LogSource, MergedLog};
use tidegate_replay::report::PolicyReport;
use tidegate_replay::{Assumptions, Policy, Replay};

#[test]
fn replay_of_synthetic_day_matches_live_decisions() {
    let requests = day_trace::generate_day(7, 0.1);
    let request_count = requests.len() as u64;
    let gateway = TestGateway::with_clock(caching_origin().address(), &rules(request_count / 12), Clock::system());
    load::send_all(gateway.address(), &requests, || ());
    let report = assert_replay_matches(gateway, request_count);
    for (class, reason) in [("engine", "tier"), ("bot", "tier"), ("person", "quota"), ("busy", "bucket")] {
        let class = report.classes.iter().find(|entry| entry.name == class).expect("a class of the rules");
        assert!(class.refused.contains_key(reason), "no request of {} was refused by {reason}: {class:?}", class.name);
    }
}

#[test]
fn replay_exempts_what_the_gateway_exempts() {
    const REQUESTS: u32 = 480;
    let origin = Origin::with_cors();
    let gateway = TestGateway::with_rules(origin.address(), &rules(20));
    let preflight = "OPTIONS /item/1 HTTP/1.1\r\nOrigin: https://app.example\r\nAccess-Control-Request-Method: GET\r\n";
    let mut refused = [0; 4];
    for number in 0..REQUESTS {
        let kind = number as usize % refused.len();
        let head = [
            preflight,
            "OPTIONS /item/1 HTTP/1.1\r\n",
            "GET /.well-known/acme-challenge/abc HTTP/1.1\r\n",
            "GET /item/1 HTTP/1.1\r\n",
        ][kind];
        let response = gateway.connect().send(format!("{head}Host: a\r\nUser-Agent: Firefox\r\n\r\n")).read_response();
        refused[kind] += u32::from(response.status == 429);
        gateway.clock.advance(Duration::from_millis(1));
    }
    assert!(refused[0] > 0 && refused[2] > 0 && refused[0] < 20 && refused[1] > 50 && refused[3] > 50, "{refused:?}");
    assert_replay_matches(gateway, REQUESTS.into());
}

#[test]
fn replay_reserves_what_bodies_stated() {
    let origin = Origin::with_script(|request, connection| {
        let body = connection.read_body(request);
        let body = format!("{{\"usage\":{{\"total_tokens\":{}}}}}", body.len());
        connection.reply("200 OK", "Content-Type: application/json\r\n", body.as_bytes());
    });
    let rules = rules(6000)
        .replace("cost_header: X-API-Cost", "cost_json: usage.total_tokens")
        .replace("cost: { api: 4 }", "cost: { api: { json: max_tokens, per_byte: 0.5, default: 30 } }");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    assert_replays_posts(gateway, |number| match number % 4 {
        0 => format!("{{\"max_tokens\":{}}}", number * number % 97),
        1 => "{\"max_tokens\":4000}".to_owned(),
        2 => "{}".to_owned(),
        _ => "no JSON".to_owned(),
    });
}

#[test]
fn replay_charges_budgets_of_keys_what_bodies_reported() {
    const REQUESTS: usize = 300;
    let origin = Origin::with_script(|request, connection| {
        let units = request.target.len();
        let body = format!("{{\"usage\":{{\"total_tokens\":{units}}}}}");
        connection.reply("200 OK", "Content-Type: application/json\r\n", body.as_bytes());
    });
    // The keys are `test` and `trial`; addresses without one pay, too.
    let rules = "
workers: 1
api_keys:
  - { name: acme, class: pro, sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 }
  - { name: trial, class: free, sha256: 79891e980747ffbd21e690297394efe764fa56d7e37750f800879fbb2d34571a, limits: { customer: 300 } }
quotas:
  customer:
    { per: api_key, limit: 100, limits: { pro: 600 }, window: { fixed: 1h }, cost_json: usage.total_tokens }
classes: [{ name: pro, when: { api_key: own } }, { name: free, when: { api_key: own } }, { name: other }]
routes: [{ match: /**, cost: { customer: 5 } }]
";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let keys = ["Authorization: Bearer test\r\n", "X-Api-Key: trial\r\n", ""];
    let mut refused = [0; 3];
    for number in 0..REQUESTS {
        let key = number % keys.len();
        let target = format!("/{}", "x".repeat(number * number % 37));
        refused[key] += usize::from(gateway.connect().get(&target, keys[key]).status == 429);
        gateway.clock.advance(Duration::from_secs(20));
    }
    assert!(0 < refused[0] && refused[0] < refused[1] && refused[1] < refused[2] && refused[2] < 100, "{refused:?}");
    assert_replay_matches_uncorrected(gateway, REQUESTS as u64);
}

#[test]
fn replay_finds_the_routes_of_bodies() {
    let origin = Origin::with_script(|request, connection| {
        connection.read_body(request);
        connection.reply("200 OK", "", b"page");
    });
    let tools = "routes:\n  - { match: /search, json: { method: tools/call, tool: search }, cost: { api: 6 } }\n  \
                 - { match: /search, json: { method: ping } }\n";
    let gateway = TestGateway::with_rules(origin.address(), &rules(400).replace("routes:\n", tools));
    let bodies = [
        "{\"method\":\"tools/call\",\"tool\":\"search\"}",
        "{\"method\":\"tools/call\",\"tool\":\"list\"}",
        "{\"method\":\"ping\"}",
        "{\"method\":\"ping\",\"method\":\"tools/call\"}",
        "[]",
    ];
    assert_replays_posts(gateway, |number| bodies[number % bodies.len()].to_owned());
}

/// Posts 400 bodies, some of which are refused, and asserts that replay agrees.
#[track_caller]
fn assert_replays_posts(gateway: TestGateway, body: impl Fn(usize) -> String) {
    const REQUESTS: usize = 400;
    let mut refused = 0;
    for number in 0..REQUESTS {
        let (body, user_agent) = (body(number), ["Firefox", "Bot/1.0", "Googlebot"][number % 3]);
        let head = "POST /search HTTP/1.1\r\nHost: a\r\nUser-Agent: ";
        let message = format!("{head}{user_agent}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        refused += usize::from(gateway.connect().send(message).read_response().status == 429);
        gateway.clock.advance(Duration::from_millis(1));
    }
    assert!(refused > 20 && refused < REQUESTS - 20, "{refused} of {REQUESTS} were refused");
    assert_replay_matches(gateway, REQUESTS as u64);
}

#[test]
fn replay_finds_the_routes_of_fields() {
    const REQUESTS: usize = 400;
    let by_field = "routes:\n  - { match: /search, header: { x-depth: full }, cost: { api: 6 } }\n  \
                    - { match: /search, cookie: { plan: 'free*' } }\n";
    let gateway = TestGateway::with_rules(caching_origin().address(), &rules(400).replace("routes:\n", by_field));
    let fields = [
        "X-Depth: full\r\n",
        "X-Depth: brief\r\n",
        "Cookie: plan=freemium\r\n",
        "X-Depth: brief\r\nX-Depth: full\r\n",
        "X_Depth: full\r\nCookie: plan=free; plan=paid\r\n",
        "",
    ];
    let mut refused = 0;
    for number in 0..REQUESTS {
        let user_agent = ["Firefox", "Bot/1.0", "Googlebot", "Bot/2.0", "Chrome"][number % 5];
        let fields = format!("User-Agent: {user_agent}\r\n{}", fields[number % fields.len()]);
        refused += usize::from(gateway.connect().get("/search", &fields).status == 429);
        gateway.clock.advance(Duration::from_millis(1));
    }
    assert!(refused > 20 && refused < REQUESTS - 20, "{refused} of {REQUESTS} were refused");
    assert_replay_matches(gateway, REQUESTS as u64);
}

#[test]
fn replay_follows_the_copies_of_the_log() {
    const REQUESTS: u32 = 600;
    let origin = Origin::with_script(|request, connection| {
        let lifetime = if request.target.ends_with('1') { "max-age=5" } else { "max-age=3600" };
        connection.reply("200 OK", &format!("Cache-Control: {lifetime}\r\nETag: \"1\"\r\n"), b"page");
    });
    let gateway = TestGateway::with_rules(origin.address(), &format!("cache: {{}}\n{}", rules(60)));
    for number in 0..REQUESTS {
        let user_agent = ["User-Agent: Bot/1.0\r\n", "User-Agent: Googlebot\r\n", "User-Agent: Firefox\r\n"];
        let page = number * 7 % 80;
        gateway.connect().get(&format!("/item/{page}"), user_agent[number as usize % 3]);
        gateway.clock.advance(Duration::from_millis(90));
    }
    for result in ["hit", "stale"] {
        let count = gateway.metric(&format!("tidegate_cache_requests_total{{result=\"{result}\"}}"));
        assert!(count > 10.0, "{count} requests with the result {result}");
    }
    assert_replay_matches(gateway, REQUESTS.into());
}

#[test]
fn replay_follows_refreshes_with_surplus_units() {
    let origin =
        Origin::with_script(|_, connection| connection.reply("200 OK", "Cache-Control: max-age=600\r\n", b"page"));
    let paced = rules(200).replace("window: { fixed: 24h }", "window: { calendar: day, zone: UTC }\n    pacing: even");
    // One worker, which writes its lines in the order of time: the clock jumps.
    let paced = paced.replace("workers: 2", "workers: 1");
    let rules = format!("cache: {{ disk: off }}\nbot_detection: {{ enabled: false }}\n{paced}");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let user_agents = ["User-Agent: Bot/1.0\r\n", "User-Agent: Googlebot\r\n", "User-Agent: Firefox\r\n"];
    let mut requests = 0;
    let mut get = |page: usize| {
        gateway.connect().get(&format!("/item/{page}"), user_agents[page % 3]);
        requests += 1;
    };
    (0..60).for_each(|number| get(number % 20));
    // The last eighth of the day begins at 21:00.
    for _ in 0..6 {
        gateway.clock.advance(Duration::from_secs(6000));
        (0..10).for_each(&mut get);
    }
    let is_refreshed = |name: &str| name.starts_with("tidegate_cache_refreshed_units_total");
    wait_until("refreshes", || gateway.metrics().iter().any(|(name, units)| is_refreshed(name) && *units > 0.0));
    (0..20).for_each(&mut get);
    let (yaml, text) = (gateway.yaml(), gateway.read_log_text());
    let refreshes = text.lines().filter(|line| line.contains("\"fill\":\"refresh\"")).count() as u64;
    let agreement = replay(&yaml, text).agreement.expect("log written by the gateway");
    assert_eq!((agreement.different, agreement.same), (0, requests + refreshes), "{agreement:?}");
}

#[test]
fn simulated_cache_answers_what_a_live_one_does() {
    const REQUESTS: u64 = 600;
    let origin =
        Origin::with_script(|_, connection| connection.reply("200 OK", "Cache-Control: max-age=60\r\n", b"page"));
    let rules = format!("bot_detection: {{ enabled: false }}\ncache: {{ stale_when_refused: 5m }}\n{}", rules(150));
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    for number in 0..REQUESTS {
        let user_agent = ["User-Agent: Bot/1.0\r\n", "User-Agent: Firefox\r\n"][number as usize % 2];
        let (page, campaign) = (number * number % 97 % 40, number % 3);
        let target = format!("/item/{page}?utm_campaign={campaign}");
        gateway.connect().get(&target, user_agent);
        gateway.clock.advance(Duration::from_secs(1));
    }
    let metric = |result: &str| gateway.metric(&format!("tidegate_cache_requests_total{{result=\"{result}\"}}"));
    let [hits, misses, stale] = ["hit", "miss", "stale"].map(metric);
    let metrics = gateway.metrics();
    let saved = metrics.iter().filter(|(name, _)| name.starts_with("tidegate_quota_saved_total"));
    let saved: f64 = saved.map(|(_, units)| units).sum();
    assert!(hits > 100.0 && misses > 100.0 && stale > 20.0, "{hits} hits, {misses} misses, {stale} stale");
    let (yaml, lines) = (gateway.yaml(), gateway.read_log());
    let mut by_time: Vec<(&str, String)> =
        lines.iter().map(|line| (line["time"].as_str().expect("a time"), combined_line(line))).collect();
    by_time.sort();
    let log: String = by_time.into_iter().map(|(_, line)| line).collect();
    let assumptions =
        Assumptions { max_age: Some(Duration::from_secs(60)), latency: Duration::ZERO, ..Assumptions::default() };
    let report = replay_with(&yaml, log, assumptions);
    let refused = lines.iter().filter(|line| line["verdict"] == "refused").count() as u64;
    assert_eq!((report.requests, report.refused), (REQUESTS, refused));
    let cache = report.cache.expect("the configuration has a cache");
    let counts = [cache.hits, cache.misses, cache.replaced_refusals].map(|count| count as f64);
    assert_eq!((counts, cache.saved["api"].as_f64()), ([hits, misses, stale], saved));
}

#[test]
fn cache_is_simulated_on_the_log_of_a_gateway_without_one() {
    // One worker, which writes its lines in the order of time: the clock is ahead of what the other one has flushed.
    let rules = rules(20).replace("workers: 2", "workers: 1");
    let gateway = TestGateway::with_rules(caching_origin().address(), &rules);
    for number in 0..100 {
        gateway.connect().get(&format!("/item/{}", number % 10), FIREFOX);
        gateway.clock.advance(Duration::from_secs(1));
    }
    let (yaml, log) = (gateway.yaml(), gateway.read_log_text());
    let without = replay(&yaml, log.clone());
    assert!(without.refused > 0 && without.cache.is_none());
    let assumptions = Assumptions { max_age: Some(Duration::from_secs(3600)), ..Assumptions::default() };
    let with = replay_with(&format!("cache: {{}}\n{yaml}"), log, assumptions);
    let cache = with.cache.as_ref().expect("the configuration has a cache");
    assert_eq!((with.refused, cache.hits, cache.misses), (0, 90, 10), "each page is fetched once");
    // What the log charged for the first request of each page, not what it used in the end.
    let used = |report: &PolicyReport| report.quotas[0].windows[0].used.as_f64();
    assert!(used(&with) <= 10.0 && used(&without) > used(&with), "{} and {}", used(&with), used(&without));
}

#[test]
fn replay_orders_same_instant_requests_by_sequence() {
    let requests = day_trace::generate_day(8, 0.05);
    let request_count = requests.len() as u64;
    let gateway = TestGateway::with_rules(caching_origin().address(), &rules(request_count / 4));
    load::send_all(gateway.address(), &requests, || ());
    assert_replay_matches(gateway, request_count);
}

#[test]
fn replay_rolls_windows_over_as_live() {
    let requests = day_trace::generate_day(9, 0.05);
    let request_count = requests.len() as u64;
    let gateway = TestGateway::with_rules(
        caching_origin().address(),
        &rules(request_count / 40).replace("fixed: 24h", "fixed: 10s"),
    );
    load::send_all(gateway.address(), &requests, || gateway.clock.advance(Duration::from_millis(137)));
    let report = assert_replay_matches(gateway, request_count);
    assert!(report.quotas[0].windows_in_all > 3, "{:?}", report.quotas[0].windows);
}

#[test]
fn replay_refuses_clients_beyond_their_share_as_live() {
    let requests = day_trace::generate_day(13, 0.05);
    let request_count = requests.len() as u64;
    let rules = rules(request_count).replace("    cost_header", "    per_client: 9\n    cost_header");
    let gateway = TestGateway::with_clock(caching_origin().address(), &rules, Clock::system());
    load::send_all(gateway.address(), &requests, || ());
    let report = assert_replay_matches(gateway, request_count);
    assert!(report.classes.iter().any(|class| class.refused.contains_key("client_share")), "{:?}", report.classes);
}

#[test]
fn replay_charges_costs_that_free_routes_reported() {
    let rules = "
quotas: { api: { limit: 100, window: { fixed: 24h }, cost_header: X-API-Cost } }
routes: [{ match: \"/item/*\", cost: { api: 1 } }]
";
    let origin = Origin::with_script(|_, connection| connection.reply("200 OK", "X-API-Cost: 3\r\n", b"page"));
    let gateway = TestGateway::with_clock(origin.address(), rules, Clock::system());
    let statuses = (0..60).map(|number| {
        let path = if number % 3 == 0 { "/item" } else { "/free" };
        gateway.connect().get(&format!("{path}/{number}"), "").status
    });
    let refused = statuses.filter(|status| *status == 429).count();
    assert!(refused > 0, "the free requests have used no units of the quota");
    let report = assert_replay_matches_uncorrected(gateway, 60);
    assert_eq!(report.quotas[0].windows[0].used, Units::from_whole(100));
}

#[test]
fn replay_refuses_paths_whose_cost_was_learned_as_live() {
    let rules = "
workers: 2
bot_detection: { enabled: false }
quotas: { api: { limit: 60, window: { fixed: 24h }, cost_header: X-API-Cost, per_client: 90%, tiers: { bot: [ { above: 50%, shed: 50% } ] } } }
classes: [ { name: bot, when: { kind: declared_bot } }, { name: person } ]
routes: [ { match: \"/item/*\", cost: { api: 1 } } ]
";
    let origin = Origin::with_script(|request, connection| {
        let fields = if request.target.starts_with("/search") { "X-API-Cost: 3\r\n" } else { "" };
        connection.reply("200 OK", fields, b"page");
    });
    let gateway = TestGateway::with_clock(origin.address(), rules, Clock::system());
    let requests = (0..400).map(|number| {
        let path = ["/item/1", "/search?s=a", "/about", "/search/deep"][number % 4];
        let user_agent = ["User-Agent: Bot/1.0\r\n", "User-Agent: Firefox\r\n"][number / 4 % 2];
        let client = format!("X-Forwarded-For: 192.0.2.{}\r\n", number % 11);
        (path, format!("{user_agent}{client}"))
    });
    let requests: Vec<_> = requests.collect();
    std::thread::scope(|scope| {
        for part in requests.chunks(100) {
            let gateway = &gateway;
            scope.spawn(move || part.iter().for_each(|(path, fields)| drop(gateway.connect().get(path, fields))));
        }
    });
    let report = assert_replay_matches(gateway, 400);
    for (class, reason) in [("bot", "tier"), ("person", "quota")] {
        let class = report.classes.iter().find(|entry| entry.name == class).expect("a class");
        assert!(class.refused.contains_key(reason), "{class:?}");
    }
}

#[test]
fn replay_settles_requests_of_other_proxies() {
    const REQUESTS: u32 = 400;
    let rules = format!("forward_auth: {{ listen: \"127.0.0.1:0\", settle_after: 5s }}\n{}", rules(300));
    let gateway = TestGateway::with_rules(caching_origin().address(), &rules);
    let mut proxy = Client::connect(gateway.forward_auth_address());
    for number in 0..REQUESTS {
        let user_agent = ["Bot/1.0", "Googlebot", "GPTBot/1.0", "Mozilla/5.0 Firefox/128.0"][number as usize % 4];
        let page = ["/item/1", "/search", "/free"][number as usize % 3];
        let fields = format!("X-Forwarded-Method: GET\r\nX-Forwarded-Uri: {page}\r\nUser-Agent: {user_agent}\r\n");
        let response = proxy.get("/", &fields);
        if response.status == 200 && page != "/free" && number % 5 < 2 {
            let (decision, cost) = (response.field("x-tidegate-decision"), number % 5 * 7);
            let body = format!("{{\"decision\": \"{decision}\", \"cost\": {{\"api\": {cost}}}}}");
            proxy.send(format!("POST /settle HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
            assert_eq!(proxy.read_response().status, 200);
        }
        gateway.clock.advance(Duration::from_millis(90));
    }
    assert_replay_matches(gateway, REQUESTS.into());
}

#[test]
fn replay_rebuilds_pacing_plans() {
    let requests = day_trace::generate_day(11, 0.05);
    let request_count = requests.len() as u64;
    let config =
        rules(request_count / 40).replace("window: { fixed: 24h }", "window: { fixed: 10s }\n    pacing: learned");
    let gateway = TestGateway::with_rules(caching_origin().address(), &config);
    load::send_all(gateway.address(), &requests, || gateway.clock.advance(Duration::from_millis(137)));
    let report = assert_replay_matches(gateway, request_count);
    assert!(report.classes.iter().any(|class| class.refused.contains_key("pacing")), "{:?}", report.classes);
}

#[test]
fn replay_matches_paced_short_windows_with_varied_costs() {
    for (pacing, window) in [("learned", "fixed: 4s"), ("even", "fixed: 4s"), ("learned", "first_use: 3s")] {
        let requests = day_trace::generate_day(12, 0.05);
        let request_count = requests.len() as u64;
        let gateway = TestGateway::with_rules(
            origin_with_varied_costs().address(),
            &paced_rules(request_count / 40, pacing, window),
        );
        load::send_all(gateway.address(), &requests, || {
            gateway.clock.advance(BURST_INTERVAL);
            // Reading the state must not change the counters.
            gateway.state();
        });
        let report = assert_replay_matches_uncorrected(gateway, request_count);
        assert!(report.quotas[0].windows_in_all > 2, "{:?}", report.quotas[0].windows);
        for reason in ["pacing", "quota"] {
            let has_refusals = report.classes.iter().any(|class| class.refused.contains_key(reason));
            assert!(
                has_refusals,
                "no request was refused by {reason} under {pacing} and {window}: {:?}",
                report.classes
            );
        }
    }
}

#[test]
fn replay_matches_budgets_whose_windows_slide_or_begin_with_a_charge() {
    for window in ["sliding: 4s", "first_use: 3s"] {
        let requests = day_trace::generate_day(14, 0.05);
        let request_count = requests.len() as u64;
        let rules = rules(request_count / 40).replace("window: { fixed: 24h }", &format!("window: {{ {window} }}"));
        let (quota, rest) = rules.split_once("    tiers:\n").expect("the rules have tiers");
        let (_, rest) = rest.split_once("classes:\n").expect("the rules have classes");
        let rules = format!("ledger: file\n{quota}    per: class\nclasses:\n{rest}");
        let gateway = TestGateway::with_rules(origin_with_varied_costs().address(), &rules);
        load::send_all(gateway.address(), &requests, || gateway.clock.advance(BURST_INTERVAL));
        let report = assert_replay_matches_uncorrected(gateway, request_count);
        let is_refused = report.classes.iter().any(|class| class.refused.contains_key("quota"));
        let is_admitted = report.classes.iter().any(|class| class.admitted > 0);
        assert!(is_refused && is_admitted, "{window}: {:?}", report.classes);
    }
}

#[test]
fn reload_of_unchanged_config_keeps_pacing_plans() {
    let requests = day_trace::generate_day(13, 0.05);
    let request_count = requests.len() as u64;
    let (origin, bursts) = (origin_with_varied_costs(), AtomicU64::new(0));
    let rules = paced_rules(request_count / 20, "learned", "fixed: 1h");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    load::send_all(gateway.address(), &requests, || {
        gateway.clock.advance(BURST_INTERVAL);
        if bursts.fetch_add(1, Ordering::Relaxed).is_multiple_of(20) {
            gateway.reload(origin.address(), &rules).expect("rules did not change");
        }
    });
    let report = assert_replay_matches_uncorrected(gateway, request_count);
    assert!(report.classes.iter().any(|class| class.refused.contains_key("pacing")), "{:?}", report.classes);
}

#[test]
fn replay_releases_reservations_of_throttled_requests() {
    let requests = day_trace::generate_day(15, 0.05);
    let request_count = requests.len() as u64;
    let rules = format!(
        "scopes: {{ default: {{ concurrency: 2, queue: {{ max_wait: 0s }} }} }}\n{}",
        paced_rules(request_count / 10, "even", "fixed: 1h")
    );
    let gateway = TestGateway::with_rules(origin_with_varied_costs().address(), &rules);
    load::send_all(gateway.address(), &requests, || gateway.clock.advance(BURST_INTERVAL));
    let report = assert_replay_matches_uncorrected(gateway, request_count);
    for reason in ["throttle", "pacing"] {
        let has_refusals = report.classes.iter().any(|class| class.refused.contains_key(reason));
        assert!(has_refusals, "no request was refused by {reason}: {:?}", report.classes);
    }
}

#[test]
fn replay_separates_overrun_from_used_units() {
    let requests = day_trace::generate_day(14, 0.02);
    let request_count = requests.len() as u64;
    // More than the load can use. One client uses the remainder, so that its last page costs more than is left.
    let limit = 4 * request_count;
    let gateway = TestGateway::with_rules(
        origin_with_varied_costs().address(),
        &format!("ledger: file\nbot_detection: {{ enabled: false }}\n{}", rules(limit)),
    );
    load::send_all(gateway.address(), &requests, || gateway.clock.advance(BURST_INTERVAL));
    wait_until("all requests to be settled", || gateway.counters().1 == 0.0);
    let mut client = gateway.connect();
    let mut take = |item: &str| {
        // The ledger renews leases once per interval of the gateway's clock.
        let attempts = (1..).find(|_| {
            gateway.clock.advance(BURST_INTERVAL);
            client.get(item, FIREFOX).status == 200
        });
        attempts.expect("the quota is not used up")
    };
    let (left, cheap_item) = (|| limit as f64 - gateway.counters().0, item_with_cost(None));
    let mut sent = request_count;
    // Units that the load used beyond its lease are reported with a later lease request: send the last pages one by
    // one.
    sent += (50..left() as u64).map(|_| take(&cheap_item)).sum::<u64>();
    while left() >= 2.0 {
        sent += take(&cheap_item);
    }
    sent += take(&item_with_cost(Some("3.2")));
    // What is not leased yet counts once the ledger has responded.
    let used = || gateway.state()["quotas"][0]["used"].as_f64();
    wait_until("the cost of the last page to be settled", || used() == Some(limit as f64));
    let quota = &gateway.state()["quotas"][0];
    let (used, overrun) = (quota["used"].as_f64(), quota["overrun"].as_f64());
    let report = assert_replay_matches_uncorrected(gateway, sent);
    let window = &report.quotas[0].windows[0];
    assert_eq!((Some(window.used.as_f64()), Some(window.overrun.as_f64())), (used, overrun));
    assert!(!window.overrun.is_zero() && window.used == Units::from_whole(limit), "{window:?} {:?}", report.classes);
}

#[test]
fn replay_keeps_api_key_classes() {
    let rules = "
workers: 2
quotas: { api: { limit: 40, window: { fixed: 24h } } }
classes:
  - { name: partner, when: { api_key: { header: X-Api-Key, value: sesame-opens } }, bucket: { capacity: 5, fill: 5, interval: 1h, key: { header: X-Api-Key } } }
  - { name: person, bucket: { capacity: 10, fill: 10, interval: 1h } }
routes: [ { match: \"/**\", cost: { api: 1 } } ]";
    let gateway = TestGateway::with_clock(Origin::plain().address(), rules, Clock::system());
    for number in 0..60 {
        let key = if number % 3 == 0 { "X-Api-Key: sesame-opens\r\n" } else { "" };
        gateway.connect().get("/page", &format!("X-Forwarded-For: 192.0.2.{}\r\n{key}", number % 7));
    }
    let report = assert_replay_matches(gateway, 60);
    assert_eq!((report.classes[0].requests, report.classes[0].admitted), (20, 5));
}

#[test]
fn replay_keeps_sessions_conditions_and_costs_of_bodies() {
    let rules = "
workers: 2
sessions: on
quotas:
  tokens: { limit: 3000, window: { fixed: 24h }, cost_json: usage.total_tokens, tiers: { stranger: [{ above: 20%, shed: 50% }, { above: 60%, shed: 100% }] } }
classes:
  - { name: partner, when: { header: { X-Partner: 'acme*' } } }
  - { name: search, when: { purpose: search } }
  - { name: stranger, when: { session: none } }
  - { name: person }
routes: [ { match: \"/**\", cost: { tokens: 20 } } ]";
    let origin = Origin::with_script(|request, connection| {
        let number = request.target.len() * 7 % 60;
        let body = format!("{{\"usage\":{{\"total_tokens\":{number}}}}}");
        let content_type = if request.target.ends_with('7') { "application/json" } else { "text/html" };
        connection.reply("200 OK", &format!("Content-Type: {content_type}\r\n"), body.as_bytes());
    });
    let gateway = TestGateway::with_clock(origin.address(), rules, Clock::system());
    let mut cookie = String::new();
    for number in 0..200 {
        let (fields, path) = match number % 5 {
            0 => ("X-Partner: Acme-1\r\n".to_owned(), format!("/{}7", "a".repeat(number % 11))),
            1 => ("User-Agent: Googlebot/2.1\r\n".to_owned(), format!("/page/{number}")),
            2 => (format!("Accept: text/html\r\n{cookie}"), format!("/{}7", "b".repeat(number % 13))),
            _ => ("Accept: text/html\r\n".to_owned(), format!("/item/{number}")),
        };
        let client = if number % 5 == 2 { 1 } else { number % 7 };
        let response = gateway.connect().get(&path, &format!("X-Forwarded-For: 192.0.2.{client}\r\n{fields}"));
        if let Some(value) = response.field("set-cookie").split(';').next().filter(|value| !value.is_empty()) {
            cookie = format!("Cookie: {value}\r\n");
        }
    }
    let report = assert_replay_matches(gateway, 200);
    let requests: Vec<u64> = report.classes.iter().map(|class| class.requests).collect();
    assert!(requests.iter().take(4).all(|requests| *requests >= 38), "{requests:?}");
    assert!(report.classes[2].admitted < report.classes[2].requests, "some strangers were refused");
}

#[test]
fn replay_uses_verification_results_from_log() {
    let rules = rules(1000);
    let gateway = TestGateway::with_rules(caching_origin().address(), &rules);
    let requests: Vec<LoadRequest> = day_trace::generate_day(10, 0.02);
    load::send_all(gateway.address(), &requests, || ());
    let (yaml, log) = (gateway.yaml(), gateway.read_log_text());
    // The proof recorded in the log decides, not today's address lists.
    let log = log.replace("address_verified:googlebot", "dns_verified:googlebot");
    let report = replay(&yaml, log);
    let agreement = report.agreement.expect("log written by the gateway");
    assert_eq!((agreement.different, agreement.same), (0, requests.len() as u64), "{agreement:?}");
}

#[test]
fn private_addresses_are_no_impostors_in_replay() {
    let gateway = TestGateway::with_rules(caching_origin().address(), &rules(1000));
    for address in ["127.0.0.1", "10.0.0.7", "100.64.0.1", "fd00::1"] {
        let fields = format!("User-Agent: Googlebot/2.1\r\nX-Forwarded-For: {address}\r\n");
        gateway.connect().get("/item/1", &fields);
    }
    let report = assert_replay_matches(gateway, 4);
    let bots = report.classes.iter().find(|class| class.name == "bot").expect("a class");
    assert_eq!(bots.requests, 4);
}

#[test]
fn replay_charges_upstream_retries() {
    let (arrival_sender, arrival) = signal();
    let (release, release_receiver) = signal();
    let has_closed = AtomicBool::new(false);
    let origin = Origin::with_script(move |request, connection| {
        if request.target == "/twice" {
            if !has_closed.swap(true, Ordering::SeqCst) {
                return connection.close();
            }
            arrival_sender.notify();
            release_receiver.wait();
        }
        connection.reply("200 OK", "", b"page");
    });
    let gateway = TestGateway::with_rules(origin.address(), FIVE_PAGES);
    let mut client = gateway.connect();
    assert_eq!(client.get("/page", "").status, 200);
    client.send("GET /twice HTTP/1.1\r\nHost: a\r\n\r\n");
    arrival.wait();
    assert_eq!(gateway.counters(), (2.0, 1.0), "the first attempt stays charged");
    assert_eq!(statuses(&gateway, 3), [200, 200, 429]);
    release.notify();
    assert_eq!(client.read_response().status, 200);
    let report = assert_replay_matches_uncorrected(gateway, 5);
    assert_eq!(report.quotas[0].windows[0].used, Units::from_whole(5));
}

#[test]
fn replay_applies_manual_corrections() {
    let gateway = TestGateway::with_rules(Origin::plain().address(), FIVE_PAGES);
    assert_eq!(statuses(&gateway, 2), [200, 200]);
    gateway.set_used("api", 4);
    assert_eq!(statuses(&gateway, 2), [200, 429]);
    gateway.set_used("api", 1);
    assert_eq!(statuses(&gateway, 5), [200, 200, 200, 200, 429]);
    let report = assert_replay_matches(gateway, 9);
    assert_eq!(report.agreement.map(|agreement| agreement.corrections), Some(2));
}

#[test]
fn replay_applies_switches() {
    let gateway = TestGateway::with_rules(Origin::plain().address(), FIVE_PAGES);
    assert_eq!(statuses(&gateway, 1), [200]);
    let switch = |target: &str, effect: &str| {
        let body = format!(r#"{{"target": "{target}", "effect": "{effect}", "for_s": 60, "why": "a test"}}"#);
        assert_eq!(gateway.admin_request("POST", "/api/v1/switches", &body).0, 200);
    };
    switch("127.0.0.1", "block");
    assert_eq!(statuses(&gateway, 2), [429, 429]);
    switch("127.0.0.1", "allow");
    assert_eq!(statuses(&gateway, 5), [200, 200, 200, 200, 429]);
    switch("maintenance", "maintenance");
    assert_eq!(statuses(&gateway, 1), [503]);
    assert_replay_matches(gateway, 9);
}

#[test]
fn replay_applies_origin_sync() {
    let origin =
        Origin::with_script(|_, connection| connection.reply("200 OK", "X-RateLimit-Remaining: 1\r\n", b"page"));
    let rules =
        FIVE_PAGES.replace("fixed: 24h }", "fixed: 24h }, sync_from: { remaining_header: X-RateLimit-Remaining }");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    assert_eq!(statuses(&gateway, 3), [200, 200, 429]);
    let report = assert_replay_matches(gateway, 3);
    assert_eq!(report.agreement.map(|agreement| agreement.corrections), Some(1));
}

#[test]
fn lost_log_lines_keep_other_decisions() {
    let gateway = TestGateway::with_rules(Origin::plain().address(), FIVE_PAGES);
    assert_eq!(statuses(&gateway, 7), [200, 200, 200, 200, 200, 429, 429]);
    let (yaml, log) = (gateway.yaml(), gateway.read_log_text());
    let remaining_log: String = log
        .lines()
        .enumerate()
        .filter(|(index, _)| !(2..4).contains(index))
        .map(|(_, line)| format!("{line}\n"))
        .collect();
    let agreement = replay(&yaml, remaining_log).agreement.expect("log written by the gateway");
    assert_eq!((agreement.same, agreement.different, agreement.corrections), (5, 0, 1));
}

#[test]
fn replay_follows_gateway_restarts() {
    for pacing in ["off", "learned"] {
        let requests = day_trace::generate_day(12, 0.04);
        let request_count = requests.len() as u64;
        let rules = rules(request_count / 8)
            .replace("window: { fixed: 24h }", &format!("window: {{ fixed: 24h }}\n    pacing: {pacing}"));
        let mut gateway = TestGateway::with_rules(caching_origin().address(), &format!("ledger: file\n{rules}"));
        for batch in requests.chunks(requests.len().div_ceil(3)) {
            load::send_all(gateway.address(), batch, || gateway.clock.advance(Duration::from_millis(137)));
            gateway.restart();
        }
        let report = assert_replay_matches(gateway, request_count);
        assert_eq!(report.agreement.map(|agreement| agreement.restarts), Some(2), "{pacing}");
    }
}

#[test]
fn replay_charges_equivalent_targets_as_live() {
    let rules = "
workers: 1
quotas: { api: { limit: 20, window: { fixed: 24h } } }
routes:
  - { match: /free }
  - { match: /search, method: GET, cost: { api: 4 } }
  - { match: /list, query: [page], cost: { api: 2 } }";
    let gateway = TestGateway::with_rules(Origin::plain().address(), rules);
    let targets = ["/SEARCH", "/search/", "/se%61rch", "//Search", "/list?%70age=2", "/list?p+age", "/FREE", "/free"];
    for target in targets.iter().cycle().take(16) {
        gateway.connect().get(target, "");
    }
    let report = assert_replay_matches_uncorrected(gateway, 16);
    assert_eq!(report.quotas[0].windows[0].used, Units::from_whole(20), "{:?}", report.classes);
}

#[test]
fn replay_decides_exempt_paths_by_method() {
    const PATHS: [&str; 4] = ["/robots.txt", "/x/../robots.txt", "/.well-known/crawl-policy", "/page"];
    const METHODS: [&str; 4] = ["GET", "HEAD", "POST", "DELETE"];
    let rules = "
workers: 1
crawl_policy: on
quotas: { api: { limit: 5, window: { fixed: 24h } } }
classes:
  - { name: bad, when: { user_agent: BadBot }, block: true, refuse_with: 401 }
  - { name: rest }
routes: [ { match: /**, cost: { api: 1 } } ]";
    let gateway = TestGateway::with_rules(caching_origin().address(), rules);
    for agent in ["Mozilla/5.0", "BadBot/1.0"] {
        for (method, path) in METHODS.iter().flat_map(|method| PATHS.map(|path| (method, path))) {
            let head = format!("{method} {path} HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\n");
            let mut client = gateway.connect();
            client.send(format!("{head}Connection: close\r\nContent-Length: 0\r\n\r\n"));
            client.read_rest();
        }
    }
    // Another method than GET and HEAD of the crawl policy is rejected before the rules decide.
    let report = assert_replay_matches_uncorrected(gateway, 28);
    let refused = |class: usize, reason: &str| report.classes[class].refused.get(reason).copied();
    assert_eq!((refused(0, "blocked"), report.classes[0].admitted), (Some(8), 6));
    assert!(refused(1, "quota").is_some(), "{:?}", report.classes);
}

/// Replays a gateway's log under the same rules and asserts that every decision is the same.
fn assert_replay_matches(gateway: TestGateway, lines: u64) -> PolicyReport {
    let (yaml, log) = (gateway.yaml(), gateway.read_log_text());
    let report = replay(&yaml, log.clone());
    let agreement = report.agreement.clone().expect("log written by the gateway");
    let other = agreement.first_different.map(|position| log.lines().nth(position.line as usize - 1));
    assert_eq!((agreement.different, agreement.same), (0, lines), "{agreement:?}: {other:?}");
    report
}

/// Like [`assert_replay_matches`], but also asserts that no correction of the counters was taken from the log.
fn assert_replay_matches_uncorrected(gateway: TestGateway, lines: u64) -> PolicyReport {
    let report = assert_replay_matches(gateway, lines);
    assert_eq!(report.agreement.as_ref().map(|agreement| agreement.corrections), Some(0));
    report
}

fn replay(yaml: &str, log: String) -> PolicyReport {
    replay_with(yaml, log, Assumptions::default())
}

fn replay_with(yaml: &str, log: String, assumptions: Assumptions) -> PolicyReport {
    let builtin = OperatorTable::builtin();
    let names: Vec<&str> = builtin.names().collect();
    let settings =
        config::load(Path::new("gate.yaml"), yaml, &[], &[], &names).unwrap_or_else(|errors| panic!("{errors}"));
    let operators = crawlers::without_dns(&settings);
    let policy = Policy::new("gate.yaml".into(), settings, operators, AddressLists::default());
    let window = Duration::from_secs(60);
    let source = LogSource::new("access.log".into(), Box::new(Cursor::new(log.into_bytes())));
    let replay = Replay {
        files: vec!["access.log".into()],
        lines: MergedLog::new(vec![source], window),
        reorder_window: window,
        assumptions,
    };
    let report = replay.run(policy, None, None, &mut |_| ()).expect("log is in memory");
    assert_eq!(report.log.late, 0);
    report.policies.into_iter().next().expect("one policy")
}

/// Returns a line of the gateway's log as another server would have written it in front of the same origin.
fn combined_line(line: &Value) -> String {
    let text = |name: &str| line[name].as_str().unwrap_or_default();
    let time: jiff::Timestamp = text("time").parse().expect("a time");
    let time = time.strftime("%d/%b/%Y:%H:%M:%S +0000");
    let (client, path, query, agent) = (text("client"), text("path"), text("query"), text("user_agent"));
    format!("{client} - - [{time}] \"GET {path}?{query} HTTP/1.1\" 200 4 \"-\" \"{agent}\"\n")
}

/// Requests `count` pages one after the other and returns the statuses.
fn statuses(gateway: &TestGateway, count: usize) -> Vec<u16> {
    let mut client = gateway.connect();
    (0..count).map(|_| client.get("/page", "").status).collect()
}

const FIVE_PAGES: &str = "
workers: 1
quotas: { api: { limit: 5, window: { fixed: 24h } } }
routes: [ { match: /**, cost: { api: 1 } } ]";

/// Returns an origin that serves every third page from its own cache, without a charge.
fn caching_origin() -> Origin {
    Origin::with_script(|request, connection| {
        let is_cached = request.target.bytes().map(u32::from).sum::<u32>().is_multiple_of(3);
        let cost_field = if is_cached { "X-API-Cost: 0\r\n" } else { "" };
        match request.method.as_str() {
            "HEAD" => drop(connection.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n{cost_field}\r\n"))),
            _ => connection.reply("200 OK", cost_field, b"page"),
        }
    })
}

/// Returns an origin that charges more for some pages and less for others.
fn origin_with_varied_costs() -> Origin {
    Origin::with_script(|request, connection| {
        let cost_field = actual_cost(&request.target).map_or(String::new(), |cost| format!("X-API-Cost: {cost}\r\n"));
        match request.method.as_str() {
            "HEAD" => drop(connection.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n{cost_field}\r\n"))),
            _ => connection.reply("200 OK", &cost_field, b"page"),
        }
    })
}

/// Returns the cost that the origin reports for `target`, if any.
fn actual_cost(target: &str) -> Option<&'static str> {
    let kind = target.bytes().map(u32::from).sum::<u32>() % 5;
    [Some("0"), Some("0.75"), Some("3.2"), None, None][kind as usize]
}

fn item_with_cost(cost: Option<&str>) -> String {
    (0..)
        .map(|number| format!("/item/{number}"))
        .find(|item| actual_cost(item) == cost)
        .expect("one item in five has this cost")
}

const FIREFOX: &str = "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n";

/// Returns rules with a pacing plan and a ledger that grants leases of varying size.
fn paced_rules(limit: u64, pacing: &str, window: &str) -> String {
    let settings = format!("window: {{ {window} }}\n    pacing: {pacing}");
    format!("ledger: file\n{}", rules(limit).replace("window: { fixed: 24h }", &settings))
}

fn rules(limit: u64) -> String {
    format!(
        r#"
workers: 2
limits: {{ keep_alive_timeout: 1h, first_byte_timeout: 1h, header_timeout: 1h, response_write_timeout: 1h }}
quotas:
  api:
    limit: {limit}
    window: {{ fixed: 24h }}
    cost_header: X-API-Cost
    tiers:
      engine: [ {{ above: 10%, shed: 33% }}, {{ above: 60%, shed: 75% }} ]
      impostor: [ {{ above: 0%, shed: 100% }} ]
      bot: [ {{ above: 0%, shed: 60% }}, {{ above: 50%, shed: 100% }} ]
classes:
  - {{ name: engine, when: {{ operator: [googlebot, bingbot, applebot] }} }}
  - {{ name: impostor, when: {{ kind: impostor }} }}
  - {{ name: busy, when: {{ user_agent: [GPTBot, Bytespider] }}, bucket: {{ capacity: 4, fill: 2, interval: 1s }} }}
  - {{ name: bot, when: {{ kind: [verified_bot, declared_bot, suspected_bot] }} }}
  - {{ name: person, when: {{ kind: human }} }}
routes:
  - {{ match: "/item/*", cost: {{ api: 1 }} }}
  - {{ match: "/category/*", cost: {{ api: 1 }} }}
  - {{ match: "/search", cost: {{ api: 4 }} }}
"#
    )
}

/// Not a whole number of microseconds, unlike the times in the log.
const BURST_INTERVAL: Duration = Duration::from_nanos(53_000_217);
