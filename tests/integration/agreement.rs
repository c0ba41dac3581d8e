//! What a live gate decided, its own log replayed decides again: the same verdict, reason and class, line by line.

use crate::support::crowd::{self, Visit};
use crate::support::day;
use crate::support::gate::Gate;
use crate::support::origin::{Origin, signal};
use crate::support::wait::wait_until;
use std::io::Cursor;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tidegate::clock::Clock;
use tidegate::config;
use tidegate::policy::address_lists::AddressLists;
use tidegate::replay::log::{LogSource, MergedLog};
use tidegate::replay::report::PolicyReport;
use tidegate::replay::{Assumptions, Policy, Replay};
use tidegate::service::crawlers;
use tidegate::verify::OperatorTable;

#[test]
fn a_made_up_day_through_many_connections_is_decided_again_as_it_was() {
    let visits = day::generated(7, 0.1);
    let asked = visits.len() as u64;
    let gate = Gate::with_clock(pays_for_most().address(), &rules(asked / 12), Clock::system());
    crowd::send(gate.address(), &visits, || ());
    let report = replayed(gate, asked);
    for (class, reason) in [("engine", "tier"), ("bot", "tier"), ("person", "quota"), ("busy", "bucket")] {
        let class = report.classes.iter().find(|known| known.name == class).expect("a class of the rules");
        assert!(class.refused.contains_key(reason), "nothing was refused to {} by {reason}: {class:?}", class.name);
    }
}

#[test]
fn a_clock_that_stands_still_leaves_the_order_of_admission() {
    let visits = day::generated(8, 0.05);
    let asked = visits.len() as u64;
    let gate = Gate::before(pays_for_most().address(), &rules(asked / 4));
    crowd::send(gate.address(), &visits, || ());
    replayed(gate, asked);
}

#[test]
fn a_window_that_ends_in_between_ends_for_the_replay_too() {
    let visits = day::generated(9, 0.05);
    let asked = visits.len() as u64;
    let gate = Gate::before(pays_for_most().address(), &rules(asked / 40).replace("fixed: 24h", "fixed: 10s"));
    crowd::send(gate.address(), &visits, || gate.clock.advance(Duration::from_millis(137)));
    let report = replayed(gate, asked);
    assert!(report.quotas[0].windows_in_all > 3, "{:?}", report.quotas[0].windows);
}

#[test]
fn a_plan_is_made_again_as_it_was() {
    let visits = day::generated(11, 0.05);
    let asked = visits.len() as u64;
    let paced = rules(asked / 40).replace("window: { fixed: 24h }", "window: { fixed: 10s }\n    pacing: learned");
    let gate = Gate::before(pays_for_most().address(), &paced);
    crowd::send(gate.address(), &visits, || gate.clock.advance(Duration::from_millis(137)));
    let report = replayed(gate, asked);
    assert!(report.classes.iter().any(|class| class.refused.contains_key("pacing")), "{:?}", report.classes);
}

#[test]
fn short_windows_with_plans_and_costs_of_all_sizes_are_decided_again_as_they_were() {
    for (pacing, window) in [("learned", "fixed: 4s"), ("even", "fixed: 4s"), ("learned", "first_use: 3s")] {
        let visits = day::generated(12, 0.05);
        let asked = visits.len() as u64;
        let gate = Gate::before(costs_of_all_sizes().address(), &paced(asked / 40, pacing, window));
        crowd::send(gate.address(), &visits, || {
            gate.clock.advance(BETWEEN_BURSTS);
            // To look at the books changes nothing.
            gate.state();
        });
        let report = replayed_by_itself(gate, asked);
        assert!(report.quotas[0].windows_in_all > 2, "{:?}", report.quotas[0].windows);
        for reason in ["pacing", "quota"] {
            let is_met = report.classes.iter().any(|class| class.refused.contains_key(reason));
            assert!(is_met, "nothing was refused by {reason} under {pacing} and {window}: {:?}", report.classes);
        }
    }
}

#[test]
fn a_reload_of_the_same_file_leaves_every_plan_as_it_is() {
    let visits = day::generated(13, 0.05);
    let asked = visits.len() as u64;
    let (origin, bursts) = (costs_of_all_sizes(), AtomicU64::new(0));
    let rules = paced(asked / 20, "learned", "fixed: 1h");
    let gate = Gate::before(origin.address(), &rules);
    crowd::send(gate.address(), &visits, || {
        gate.clock.advance(BETWEEN_BURSTS);
        if bursts.fetch_add(1, Ordering::Relaxed).is_multiple_of(20) {
            gate.reload(origin.address(), &rules).expect("they are the same");
        }
    });
    let report = replayed_by_itself(gate, asked);
    assert!(report.classes.iter().any(|class| class.refused.contains_key("pacing")), "{:?}", report.classes);
}

#[test]
fn what_had_to_wait_for_the_origin_gave_back_what_it_had_set_aside() {
    let visits = day::generated(15, 0.05);
    let asked = visits.len() as u64;
    let rules = format!(
        "scopes: {{ default: {{ concurrency: 2, queue: {{ max_wait: 0s }} }} }}\n{}",
        paced(asked / 10, "even", "fixed: 1h")
    );
    let gate = Gate::before(costs_of_all_sizes().address(), &rules);
    crowd::send(gate.address(), &visits, || gate.clock.advance(BETWEEN_BURSTS));
    let report = replayed_by_itself(gate, asked);
    for reason in ["throttle", "pacing"] {
        let is_met = report.classes.iter().any(|class| class.refused.contains_key(reason));
        assert!(is_met, "nothing was refused by {reason}: {:?}", report.classes);
    }
}

#[test]
fn what_the_origin_charged_beyond_the_limit_is_told_apart_as_the_gate_does() {
    let visits = day::generated(14, 0.02);
    let asked = visits.len() as u64;
    // More than the crowd can take. One client takes what remains, so that its last page costs more than is left.
    let limit = 4 * asked;
    let gate = Gate::before(costs_of_all_sizes().address(), &format!("ledger: file\n{}", rules(limit)));
    crowd::send(gate.address(), &visits, || gate.clock.advance(BETWEEN_BURSTS));
    wait_until("every visit to be settled", || gate.books().1 == 0.0);
    let mut client = gate.connect();
    let mut take = |item: &str| {
        // The ledger leases so often by the gateway's clock.
        let tries = (1..).find(|_| {
            gate.clock.advance(BETWEEN_BURSTS);
            client.get(item, FIREFOX).status == 200
        });
        tries.expect("the quota is not used up")
    };
    let (left, cheap) = (|| limit as f64 - gate.books().0, item_that_costs(None));
    let mut sent = asked;
    // What the crowd cost beyond its lease is counted as used with one of the next leases: the last pages are counted singly.
    sent += (50..left() as u64).map(|_| take(&cheap)).sum::<u64>();
    while left() >= 2.0 {
        sent += take(&cheap);
    }
    sent += take(&item_that_costs(Some("3.2")));
    let quota = &gate.state()["quotas"][0];
    let (used, overrun) = (quota["used"].as_f64(), quota["overrun"].as_f64());
    let report = replayed_by_itself(gate, sent);
    let window = &report.quotas[0].windows[0];
    assert_eq!((Some(window.used), Some(window.overrun)), (used, overrun));
    assert!(window.overrun > 0.0 && window.used == limit as f64, "{window:?} {:?}", report.classes);
}

#[test]
fn who_holds_a_key_is_known_by_it_again() {
    let rules = "
workers: 2
quotas: { api: { limit: 40, window: { fixed: 24h } } }
classes:
  - { name: partner, when: { key: { header: X-Api-Key, value: sesame-opens } }, bucket: { capacity: 5, fill: 5, interval: 1h, key: { header: X-Api-Key } } }
  - { name: person, bucket: { capacity: 10, fill: 10, interval: 1h } }
routes: [ { match: \"/**\", cost: { api: 1 } } ]";
    let gate = Gate::with_clock(Origin::plain().address(), rules, Clock::system());
    for number in 0..60 {
        let key = if number % 3 == 0 { "X-Api-Key: sesame-opens\r\n" } else { "" };
        gate.connect().get("/page", &format!("X-Forwarded-For: 192.0.2.{}\r\n{key}", number % 7));
    }
    let report = replayed(gate, 60);
    assert_eq!((report.classes[0].requests, report.classes[0].admitted), (20, 5));
}

#[test]
fn the_bots_are_told_by_what_was_proven_then() {
    let rules = rules(1000);
    let gate = Gate::before(pays_for_most().address(), &rules);
    let visits: Vec<Visit> = day::generated(10, 0.02);
    crowd::send(gate.address(), &visits, || ());
    let (yaml, log) = (gate.yaml(), gate.into_log_text());
    // Whatever the addresses say today.
    let log = log.replace("address_published:googlebot", "name_proven:googlebot");
    let report = replay(&yaml, log);
    let agreement = report.agreement.expect("the gate wrote it");
    assert_eq!((agreement.different, agreement.same), (0, visits.len() as u64), "{agreement:?}");
}

#[test]
fn private_addresses_disprove_nothing_in_a_replay_either() {
    let gate = Gate::before(pays_for_most().address(), &rules(1000));
    for address in ["127.0.0.1", "10.0.0.7", "100.64.0.1", "fd00::1"] {
        let fields = format!("User-Agent: Googlebot/2.1\r\nX-Forwarded-For: {address}\r\n");
        gate.connect().get("/item/1", &fields);
    }
    let report = replayed(gate, 4);
    let bots = report.classes.iter().find(|class| class.name == "bot").expect("a class");
    assert_eq!(bots.requests, 4);
}

#[test]
fn a_second_try_is_charged_again_here_too() {
    let (tell, asked) = signal();
    let (go_on, wait) = signal();
    let has_closed = AtomicBool::new(false);
    let origin = Origin::scripted(move |request, wire| {
        if request.target == "/twice" {
            if !has_closed.swap(true, Ordering::SeqCst) {
                return wire.close();
            }
            tell.tell();
            wait.wait();
        }
        wire.reply("200 OK", "", b"page");
    });
    let gate = Gate::before(origin.address(), FIVE_PAGES);
    let mut busy = gate.connect();
    assert_eq!(busy.get("/page", "").status, 200);
    busy.send("GET /twice HTTP/1.1\r\nHost: a\r\n\r\n");
    asked.wait();
    assert_eq!(gate.books(), (2.0, 1.0), "the first try stays charged");
    assert_eq!(statuses(&gate, 3), [200, 200, 429]);
    go_on.tell();
    assert_eq!(busy.answer().status, 200);
    let report = replayed_by_itself(gate, 5);
    assert_eq!(report.quotas[0].windows[0].used, 5.0);
}

#[test]
fn what_is_corrected_by_hand_is_corrected_here_too() {
    let gate = Gate::before(Origin::plain().address(), FIVE_PAGES);
    assert_eq!(statuses(&gate, 2), [200, 200]);
    gate.set_used("api", 4);
    assert_eq!(statuses(&gate, 2), [200, 429]);
    gate.set_used("api", 1);
    assert_eq!(statuses(&gate, 5), [200, 200, 200, 200, 429]);
    let report = replayed(gate, 9);
    assert_eq!(report.agreement.map(|agreement| agreement.corrections), Some(2));
}

#[test]
fn what_the_origin_has_counted_is_counted_here_too() {
    let origin = Origin::scripted(|_, wire| wire.reply("200 OK", "X-RateLimit-Remaining: 1\r\n", b"page"));
    let synced =
        FIVE_PAGES.replace("fixed: 24h }", "fixed: 24h }, sync_from: { remaining_header: X-RateLimit-Remaining }");
    let gate = Gate::before(origin.address(), &synced);
    assert_eq!(statuses(&gate, 3), [200, 200, 429]);
    let report = replayed(gate, 3);
    assert_eq!(report.agreement.map(|agreement| agreement.corrections), Some(1));
}

#[test]
fn lines_that_were_lost_leave_the_others_as_they_were() {
    let gate = Gate::before(Origin::plain().address(), FIVE_PAGES);
    assert_eq!(statuses(&gate, 7), [200, 200, 200, 200, 200, 429, 429]);
    let (yaml, log) = (gate.yaml(), gate.into_log_text());
    let without: String = log
        .lines()
        .enumerate()
        .filter(|(place, _)| !(2..4).contains(place))
        .map(|(_, line)| format!("{line}\n"))
        .collect();
    let agreement = replay(&yaml, without).agreement.expect("the gate wrote it");
    assert_eq!((agreement.same, agreement.different, agreement.corrections), (5, 0, 1));
}

#[test]
fn a_gate_that_was_started_anew_is_started_anew_here_too() {
    for pacing in ["off", "learned"] {
        let visits = day::generated(12, 0.04);
        let asked = visits.len() as u64;
        let rules = rules(asked / 8)
            .replace("window: { fixed: 24h }", &format!("window: {{ fixed: 24h }}\n    pacing: {pacing}"));
        let mut gate = Gate::before(pays_for_most().address(), &format!("ledger: file\n{rules}"));
        for part in visits.chunks(visits.len().div_ceil(3)) {
            crowd::send(gate.address(), part, || gate.clock.advance(Duration::from_millis(137)));
            gate.restart();
        }
        let report = replayed(gate, asked);
        assert_eq!(report.agreement.map(|agreement| agreement.restarts), Some(2), "{pacing}");
    }
}

#[test]
fn other_spellings_are_charged_again_as_they_were() {
    let rules = "
workers: 1
quotas: { api: { limit: 20, window: { fixed: 24h } } }
routes:
  - { match: /free }
  - { match: /search, method: GET, cost: { api: 4 } }
  - { match: /list, query: [page], cost: { api: 2 } }";
    let gate = Gate::before(Origin::plain().address(), rules);
    let targets = ["/SEARCH", "/search/", "/se%61rch", "//Search", "/list?%70age=2", "/list?p+age", "/FREE", "/free"];
    for target in targets.iter().cycle().take(16) {
        gate.connect().get(target, "");
    }
    let report = replayed_by_itself(gate, 16);
    assert_eq!(report.quotas[0].windows[0].used, 20.0, "{:?}", report.classes);
}

#[test]
fn exempt_paths_with_any_method_are_decided_again_as_they_were() {
    const PATHS: [&str; 4] = ["/robots.txt", "/x/../robots.txt", "/.well-known/crawl-policy", "/page"];
    const METHODS: [&str; 4] = ["GET", "HEAD", "POST", "DELETE"];
    let rules = "
workers: 1
crawl_policy: on
quotas: { api: { limit: 5, window: { fixed: 24h } } }
classes:
  - { name: bad, when: { user_agent: BadBot }, block: true }
  - { name: rest }
routes: [ { match: /**, cost: { api: 1 } } ]";
    let gate = Gate::before(pays_for_most().address(), rules);
    for agent in ["Mozilla/5.0", "BadBot/1.0"] {
        for (method, path) in METHODS.iter().flat_map(|method| PATHS.map(|path| (method, path))) {
            let head = format!("{method} {path} HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\n");
            let mut client = gate.connect();
            client.send(format!("{head}Connection: close\r\nContent-Length: 0\r\n\r\n"));
            client.rest();
        }
    }
    let report = replayed_by_itself(gate, 32);
    let refused = |class: usize, reason: &str| report.classes[class].refused.get(reason).copied();
    assert_eq!((refused(0, "blocked"), report.classes[0].admitted), (Some(10), 6));
    assert!(refused(1, "quota").is_some(), "{:?}", report.classes);
}

/// Replays what a gate has logged under its own rules, and finds all of it decided again as it was.
fn replayed(gate: Gate, lines: u64) -> PolicyReport {
    let (yaml, log) = (gate.yaml(), gate.into_log_text());
    let report = replay(&yaml, log.clone());
    let agreement = report.agreement.clone().expect("the gate wrote it");
    let other = agreement.first_different.map(|place| log.lines().nth(place.line as usize - 1));
    assert_eq!((agreement.different, agreement.same), (0, lines), "{agreement:?}: {other:?}");
    report
}

/// The same, and nothing of the books had to be taken from the log.
fn replayed_by_itself(gate: Gate, lines: u64) -> PolicyReport {
    let report = replayed(gate, lines);
    assert_eq!(report.agreement.as_ref().map(|agreement| agreement.corrections), Some(0));
    report
}

fn replay(yaml: &str, log: String) -> PolicyReport {
    let builtin = OperatorTable::builtin();
    let names: Vec<&str> = builtin.names().collect();
    let settings =
        config::load(Path::new("gate.yaml"), yaml, &[], &[], &names).unwrap_or_else(|wrong| panic!("{wrong}"));
    let operators = crawlers::without_dns(&settings);
    let policy = Policy::new("gate.yaml".into(), settings, operators, AddressLists::default());
    let window = Duration::from_secs(60);
    let source = LogSource::new("access.log".into(), Box::new(Cursor::new(log.into_bytes())));
    let replay = Replay {
        files: vec!["access.log".into()],
        lines: MergedLog::new(vec![source], window),
        window,
        assumptions: Assumptions::default(),
    };
    let report = replay.run(policy, None, None, &mut |_| ()).expect("it is in memory");
    assert_eq!(report.log.late, 0);
    report.policies.into_iter().next().expect("one policy")
}

/// Asks for so many pages, one after the other.
fn statuses(gate: &Gate, count: usize) -> Vec<u16> {
    let mut client = gate.connect();
    (0..count).map(|_| client.get("/page", "").status).collect()
}

const FIVE_PAGES: &str = "
workers: 1
quotas: { api: { limit: 5, window: { fixed: 24h } } }
routes: [ { match: /**, cost: { api: 1 } } ]";

/// An origin that has kept every third page.
fn pays_for_most() -> Origin {
    Origin::scripted(|request, wire| {
        let is_kept = request.target.bytes().map(u32::from).sum::<u32>().is_multiple_of(3);
        let said = if is_kept { "X-API-Cost: 0\r\n" } else { "" };
        match request.method.as_str() {
            "HEAD" => drop(wire.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n{said}\r\n"))),
            _ => wire.reply("200 OK", said, b"page"),
        }
    })
}

/// An origin that asks more for some pages, and less for others.
fn costs_of_all_sizes() -> Origin {
    Origin::scripted(|request, wire| {
        let said = actual_cost(&request.target).map_or(String::new(), |cost| format!("X-API-Cost: {cost}\r\n"));
        match request.method.as_str() {
            "HEAD" => drop(wire.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n{said}\r\n"))),
            _ => wire.reply("200 OK", &said, b"page"),
        }
    })
}

/// What that origin says that a page cost, if anything.
fn actual_cost(target: &str) -> Option<&'static str> {
    let kind = target.bytes().map(u32::from).sum::<u32>() % 5;
    [Some("0"), Some("0.75"), Some("3.2"), None, None][kind as usize]
}

fn item_that_costs(cost: Option<&str>) -> String {
    (0..).map(|number| format!("/item/{number}")).find(|item| actual_cost(item) == cost).expect("one of five")
}

const FIREFOX: &str = "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n";

/// The rules on a plan, with a ledger that hands out as it likes.
fn paced(limit: u64, pacing: &str, window: &str) -> String {
    let paced = format!("window: {{ {window} }}\n    pacing: {pacing}");
    format!("ledger: file\n{}", rules(limit).replace("window: { fixed: 24h }", &paced))
}

fn rules(limit: u64) -> String {
    format!(
        r#"
workers: 2
limits: {{ keep_alive_timeout: 1h, first_byte_timeout: 1h, head_timeout: 1h, response_write_timeout: 1h }}
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

/// No whole number of microseconds, as the log has them.
const BETWEEN_BURSTS: Duration = Duration::from_nanos(53_000_217);
