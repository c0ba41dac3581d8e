//! Bot detection by behavior: scrapers that hide are detected, people are not suspected.

use crate::support::classifier_harness::ClassifierHarness;
use crate::support::client::Client;
use crate::support::combined_log::{self, RecordedRequest};
use crate::support::day_trace;
use crate::support::gateway::{NOON, TestGateway};
use crate::support::load::LoadRequest;
use crate::support::origin::Origin;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tidegate_policy::class::Evidence;
use tidegate_policy::{ClientKind, Timestamp};

#[test]
fn synthetic_day_scrapers_are_suspected_and_humans_not() {
    for seed in 1..=4 {
        let mut harness = ClassifierHarness::with_rules(SHOP_RULES);
        let mut cases = DetectionResults::default();
        for (at, request, label, actor) in day_trace::labeled_day(seed, 1.0) {
            let line = RecordedRequest { at: NOON + at, status: 200, http10: false, request };
            let kind = harness.classify_line_at_host(&line, "shop.example").kind;
            cases.add(&line, label.name(), actor, kind);
        }
        cases.print_summary(&format!("synthetic day, seed {seed}"));
        cases.assert_detection_rates();
    }
}

#[test]
fn labeled_day_scrapers_are_suspected_and_humans_not() {
    let Some(shared) = crate::support::shared_data() else { return };
    let pool = r#"{"humans": {"nat_share": 0.5, "nat_ips": 2, "power_users": 20, "noua": 8}, "bots": {"scraper-pool": {"n": 0}},
        "add": [{"name": "rented", "cls": "suspected_bot", "ips": "198.19.100.0/24 198.19.101.0/24 198.19.102.0/24",
        "uas": ["Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/125.0.0.0 Safari/537.36"],
        "nip": 30, "n": 900, "robots": 0, "shape": "BURSTY", "paths": "mixed"}]}"#;
    let dir = tempfile::tempdir().expect("temporary directory");
    let profile = dir.path().join("profile.json");
    std::fs::write(&profile, pool).expect("file is writable");
    let profile = profile.to_string_lossy().into_owned();
    for options in [
        &["--seed", "1"][..],
        &["--seed", "7", "--scale", "0.3"],
        &["--seed", "23", "--scenario", "crowd"],
        &["--seed", "5", "--days", "2", "--scenario", "surge,crawl-delay"],
        &["--seed", "9", "--profile", &profile],
    ] {
        let (log, labels) = synthetic_day(&shared, dir.path(), options);
        let mut harness = ClassifierHarness::with_rules(SHOP_RULES);
        let mut cases = DetectionResults::default();
        let lines = log.lines().zip(labels.lines());
        for (line, label) in lines.filter_map(|(line, label)| Some((combined_log::parse_line(line)?, label))) {
            let fields: Vec<&str> = label.split('\t').collect();
            let kind = harness.classify_line(&line).kind;
            cases.add(&line, fields[1], fields[2], kind);
        }
        cases.print_summary(&options.join(" "));
        cases.assert_detection_rates();
    }
}

#[test]
fn scrapers_are_suspected_for_any_url_pattern() {
    for pause in [200, 300, 1200].map(Duration::from_millis) {
        for (name, target) in [
            ("items", (|number| format!("/item/{}", 1001 + number)) as fn(u32) -> String),
            ("queries", |number| format!("/item?page={number}")),
            ("scattered items", |number| format!("/item/{}", number.wrapping_mul(2_654_435_761))),
        ] {
            let mut simulation = BrowsingSimulation::with_human_baseline();
            let at = (0..50).find(|&number| {
                simulation.classify_chrome_request(SCRAPER_ADDRESS, &target(number), None, 200, pause)
                    == ClientKind::SuspectedBot
            });
            assert!(at.is_some(), "{name} every {pause:?}");
        }
    }
    let mut simulation = BrowsingSimulation::with_human_baseline();
    let mut probes = (0..50).map(|number| {
        simulation.classify_chrome_request(
            SCRAPER_ADDRESS,
            &format!("/missing/{number}"),
            None,
            404,
            Duration::from_millis(300),
        )
    });
    assert!(probes.any(|kind| kind == ClientKind::SuspectedBot));
}

#[test]
fn browsers_behind_one_nat_address_are_not_suspected() {
    for clients in [30, 50] {
        let mut simulation = BrowsingSimulation::with_human_baseline();
        let mut classify = |target: &str, from, pause| {
            let kind = simulation.classify_chrome_request(NAT_ADDRESS, target, from, 200, Duration::from_millis(pause));
            assert_eq!(kind, ClientKind::Human, "{target} of {clients}");
        };
        (0..clients).for_each(|client| classify(&format!("/item/lesson?pupil={client}"), None, 20));
        (0..clients)
            .for_each(|_| ["/s.css", "/a.js"].iter().for_each(|asset| classify(asset, Some("/item/lesson"), 40)));
        (0..clients).for_each(|client| classify(&format!("/item/{client}"), Some("/item/lesson"), 100));
    }
}

/// Prints the suspected clients of real logs and asserts that they are few. Real logs have no certain labels.
#[test]
fn in_real_logs_few_browsers_are_suspected() {
    let Some(shared) = crate::support::shared_data() else { return };
    for name in ["semicomplete-2015", "wordpress-2022"] {
        let log = read_gzip(&shared.join(format!("data/logs/{name}.combined.log.gz")));
        let mut harness = ClassifierHarness::with_rules(ALL_COSTED);
        let mut browsers: BTreeMap<(IpAddr, String), (u32, Vec<&str>)> = BTreeMap::new();
        for line in log.lines().filter_map(combined_log::parse_line) {
            let classification = harness.classify_line(&line);
            if !matches!(classification.kind, ClientKind::Human | ClientKind::SuspectedBot) {
                continue;
            }
            let (requests, reasons) = browsers.entry((line.request.client, line.request.user_agent)).or_default();
            *requests += 1;
            let signals = classification.evidence.iter().flatten().filter_map(|evidence| match evidence {
                Evidence::Behavior(signal) => Some(signal.name()),
                _ => None,
            });
            reasons.extend(
                signals
                    .filter(|_| classification.kind == ClientKind::SuspectedBot && reasons.is_empty())
                    .collect::<Vec<_>>(),
            );
        }
        let suspected: Vec<_> = browsers.iter().filter(|(_, (_, reasons))| !reasons.is_empty()).collect();
        println!("{name}: {} of {} browsers suspected", suspected.len(), browsers.len());
        suspected
            .iter()
            .for_each(|((client, agent), (requests, reasons))| println!("  {client} {requests} {reasons:?} {agent}"));
        assert!(suspected.len() * 20 <= browsers.len());
        let humans =
            weak_labels(&shared, name).into_iter().filter(|(_, label)| label == "human").map(|(client, _)| client);
        let misclassified: Vec<String> =
            humans.filter(|human| suspected.iter().any(|((client, _), _)| client.to_string() == *human)).collect();
        assert!(misclassified.is_empty(), "{misclassified:?}");
    }
}

#[test]
fn suspected_scraper_is_refused_with_logged_signals() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), HONEYPOT_RULES);
    let mut client = gateway.connect();
    let statuses = ["/item/1", "/item/2", "/never", "/item/3"].map(|path| page_status(&mut client, path, SCRIPT));
    assert_eq!(statuses, [200, 200, 200, 429]);
    // A browser user sends from the same address, with the same user agent and all headers that belong to it.
    let browser = format!(
        "{SCRIPT}\r\nAccept: text/html\r\nAccept-Encoding: br\r\nAccept-Language: ja\r\nSec-Fetch-Mode: navigate\r\nSec-CH-UA: \"Chromium\""
    );
    let human_agent = browser.replace("Chrome/125", "Chrome/126");
    assert!((0..8).all(|page| page_status(&mut client, &format!("/item/{page}"), &human_agent) == 200));
    let suspected: f64 = gateway
        .metrics()
        .iter()
        .filter(|(name, _)| name.starts_with("tidegate_suspected_bot_requests_total"))
        .map(|(_, count)| count)
        .sum();
    assert!(suspected > 0.0);
    assert_eq!(gateway.metric("tidegate_bot_detection_clients"), 2.0);
    drop(client);
    let log = gateway.read_log();
    let last = log.iter().rfind(|line| line["status"] == 429).expect("one request was refused");
    assert_eq!((&last["kind"], &last["class"], &last["tls"]), (&"suspected_bot".into(), &"bot".into(), &true.into()));
    let evidence: Vec<&str> =
        last["evidence"].as_array().expect("a list").iter().filter_map(|entry| entry.as_str()).collect();
    assert_eq!(evidence[0], "user_agent_no_match");
    assert!(evidence.contains(&"behavior:no_fetch_metadata"), "{evidence:?}");
    assert_eq!(evidence.last(), Some(&"behavior:honeypot"));
    let human_line = log.last().expect("last line is the browser user's");
    assert_eq!(human_line["kind"], "human");
    assert_eq!(human_line["headers_seen"].as_array().map(Vec::len), Some(7), "{human_line}");
}

#[test]
fn bare_name_of_a_browser_over_tls_is_refused_at_once() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), HONEYPOT_RULES);
    let mut client = gateway.connect();
    let fields = "Accept: text/html\r\nAccept-Encoding: gzip\r\nAccept-Language: en";
    let own = "Upgrade-Insecure-Requests: 1\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Site: none\r\n\
               Sec-CH-UA: \"Chromium\";v=\"125\", \"Not A(Brand\";v=\"8\"";
    assert_eq!(page_status(&mut client, "/item/1", &format!("{CHROME}\r\n{fields}")), 429);
    let other = CHROME.replace("Windows NT 10.0", "Windows NT 11.0");
    assert_eq!(page_status(&mut client, "/item/2", &format!("{other}\r\n{fields}\r\n{own}")), 200);
    drop(client);
    let log = gateway.read_log();
    let signals = |line: &Value| line["evidence"].as_array().expect("a list").last().cloned();
    assert_eq!(signals(&log[0]), Some("behavior:browser_name_only".into()), "{}", log[0]);
    let values = (&log[1]["fetch_mode"], &log[1]["fetch_site"], &log[1]["hints_major"]);
    assert_eq!(values, (&"navigate".into(), &"none".into(), &125.into()), "{}", log[1]);
}

#[test]
fn garbage_signature_fields_do_not_hide_scrapers() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), HONEYPOT_RULES);
    let mut client = gateway.connect();
    let garbage = format!("{SCRIPT}\r\nSignature-Agent: garbage\r\nSignature-Input: garbage\r\nSignature: garbage");
    let statuses = ["/item/1", "/item/2", "/never", "/item/3"].map(|path| page_status(&mut client, path, &garbage));
    assert_eq!(statuses, [200, 200, 200, 429]);
    drop(client);
    let line = gateway.read_log().pop().expect("log has one line");
    assert_eq!(
        (&line["kind"], &line["evidence"][1]),
        (&"suspected_bot".into(), &"signature_malformed".into()),
        "{line}"
    );
}

#[test]
fn disabled_bot_detection_keeps_no_profiles() {
    let origin = Origin::plain();
    let gateway =
        TestGateway::with_rules(origin.address(), &format!("{HONEYPOT_RULES}\nbot_detection: {{ enabled: false }}"));
    let mut client = gateway.connect();
    assert!((0..20).all(|page| page_status(&mut client, &format!("/item/{page}"), SCRIPT) == 200));
    assert_eq!(gateway.metric("tidegate_bot_detection_clients"), 0.0);
    drop(client);
    assert!(gateway.read_log().iter().all(|line| line["kind"] == "human" && line["tls"].is_null()));
}

const SHOP_RULES: &str = "
quotas: { api: { limit: 1000000000, window: { fixed: 24h } } }
routes:
  - { match: /, cost: { api: 1 } }
  - { match: '/item/**', cost: { api: 1 } }
  - { match: '/category/**', cost: { api: 1 } }
  - { match: /search, cost: { api: 1 } }";

const ALL_COSTED: &str = "
quotas: { api: { limit: 1000000000, window: { fixed: 24h } } }
routes: [ { match: '/**', cost: { api: 1 } } ]";

const HONEYPOT_RULES: &str = "
workers: 1
quotas: { api: { limit: 1000, window: { fixed: 24h }, tiers: { bot: [ { above: 0%, shed: 100% } ] } } }
classes: [ { name: bot, when: { kind: suspected_bot } }, { name: person } ]
routes: [ { match: '/item/**', cost: { api: 1 } } ]
robots: { honeypot: /never }";

const SCRAPER_ADDRESS: &str = "198.51.100.7";
const NAT_ADDRESS: &str = "192.0.2.7";

/// Simulated site with a human baseline: page assets are loaded, and pages are reached through links.
struct BrowsingSimulation {
    harness: ClassifierHarness,
    now: Timestamp,
}

impl BrowsingSimulation {
    fn with_human_baseline() -> Self {
        let mut simulation = Self { harness: ClassifierHarness::with_rules(ALL_COSTED), now: NOON };
        for number in 1..=20 {
            let address = format!("203.0.{number}.1");
            for (target, from) in [("/a", None), ("/s.css", Some("/a")), ("/a.js", Some("/a")), ("/b", Some("/a"))] {
                simulation.classify_chrome_request(&address, target, from, 200, Duration::from_secs(3));
            }
        }
        simulation
    }

    /// Classifies a Chrome request of `client` to `target`, sent after `pause`.
    fn classify_chrome_request(
        &mut self,
        client: &str,
        target: &str,
        from: Option<&str>,
        status: u16,
        pause: Duration,
    ) -> ClientKind {
        self.now += pause;
        let request = LoadRequest {
            client: client.parse().expect("an address"),
            method: "GET".into(),
            target: target.into(),
            user_agent: SCRIPT.into(),
            referer: from.map(|page| format!("https://shop.example{page}")),
            kind: None,
        };
        let line = RecordedRequest { at: self.now, status, http10: false, request };
        self.harness.classify_line_at_host(&line, "shop.example").kind
    }
}

/// User agent of a browser.
const CHROME: &str =
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/125.0.0.0 Safari/537.36";

/// User agent of a script that imitates a browser by it, and by one more field.
const SCRIPT: &str = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/125.0.0.0 \
                      Safari/537.36\r\nUpgrade-Insecure-Requests: 1";

fn page_status(client: &mut Client, path: &str, user_agent_fields: &str) -> u16 {
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\n\
         User-Agent: {user_agent_fields}\r\n\r\n"
    );
    client.send(head).read_response().status
}

/// Returns the clients of a log and their weak labels.
fn weak_labels(shared: &Path, name: &str) -> Vec<(String, String)> {
    let labels = read_gzip(&shared.join(format!("data/logs/{name}.combined.weak-labels.tsv.gz")));
    let label = |line: &str| {
        let mut fields = line.split('\t').map(str::to_owned);
        Some((fields.next()?, fields.next()?))
    };
    labels.lines().filter_map(label).collect()
}

fn read_gzip(file: &Path) -> String {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(file).expect("readable log");
    flate2::read::MultiGzDecoder::new(file).read_to_end(&mut bytes).expect("complete gzip file");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Generates a synthetic day. Returns its log and its labels.
fn synthetic_day(shared: &Path, dir: &Path, options: &[&str]) -> (String, String) {
    let (log, labels) = (dir.join("day.log"), dir.join("day.tsv"));
    let tool = shared.join("tools/synth_day.py");
    let output =
        Command::new("python3").arg(&tool).args(options).arg("--out").arg(&log).arg("--labels").arg(&labels).output();
    assert!(
        output.is_ok_and(|output| output.status.success()),
        "python3 cannot run {}; run ./test to install it",
        tool.display()
    );
    let read = |path| std::fs::read_to_string(path).expect("file was just written");
    (read(log), read(labels))
}

/// Detection results of a day, by actor and client (address and user agent).
#[derive(Default)]
struct DetectionResults(BTreeMap<(String, String), BTreeMap<(IpAddr, String), ClientDetection>>);

#[derive(Default)]
struct ClientDetection {
    requests: u32,
    detected_after: Option<u32>,
    kinds: Vec<ClientKind>,
}

impl DetectionResults {
    fn add(&mut self, line: &RecordedRequest, label: &str, actor: &str, kind: ClientKind) {
        let cases = self.0.entry((label.to_owned(), actor.to_owned())).or_default();
        let case = cases.entry((line.request.client, line.request.user_agent.clone())).or_default();
        case.requests += 1;
        if kind == ClientKind::SuspectedBot {
            case.detected_after.get_or_insert(case.requests);
        }
        if !case.kinds.contains(&kind) {
            case.kinds.push(kind);
        }
    }

    fn with_label(&self, label: &str) -> impl Iterator<Item = (&str, &ClientDetection)> {
        let actors = self.0.iter().filter(move |((case_label, _), _)| case_label == label);
        actors.flat_map(|((_, actor), cases)| cases.values().map(move |case| (actor.as_str(), case)))
    }

    /// Returns scrapers with browser user agents that send enough requests for a profile. A scraper of three requests
    /// is detected at its third request at the earliest.
    fn scrapers(&self) -> impl Iterator<Item = &ClientDetection> {
        self.with_label("suspected_bot")
            .filter(|(_, case)| {
                case.requests > MAX_UNPROFILED_REQUESTS && !case.kinds.contains(&ClientKind::DeclaredBot)
            })
            .map(|(_, case)| case)
    }

    fn assert_detection_rates(&self) {
        let suspected: Vec<&str> = self
            .with_label("human")
            .filter(|(_, case)| case.detected_after.is_some())
            .map(|(actor, _)| actor)
            .collect();
        assert!(suspected.is_empty(), "people suspected: {suspected:?}");
        let (total, detected) = (self.scrapers().count(), self.scrapers().filter(|case| case.is_detected()).count());
        assert!(detected * 10 >= total * 9, "only {detected} of {total} scrapers detected");
        assert!(self.with_label("impostor").all(|(_, case)| case.kinds == [ClientKind::Impostor]));
    }

    fn print_summary(&self, day: &str) {
        let humans = self.with_label("human").count();
        let suspected = self.with_label("human").filter(|(_, case)| case.detected_after.is_some()).count();
        let (total, detected) = (self.scrapers().count(), self.scrapers().filter(|case| case.is_detected()).count());
        println!("{day}: {suspected} of {humans} people suspected, {detected} of {total} scrapers detected");
        for ((_, actor), cases) in self.0.iter().filter(|((label, _), _)| label == "suspected_bot") {
            let mut at: Vec<u32> = cases.values().filter_map(|case| case.detected_after).collect();
            at.sort_unstable();
            let (count, median, last) = (at.len(), at.get(at.len() / 2), at.last());
            println!(
                "  {actor}: {count} of all {} found, half by request {median:?}, the last by {last:?}",
                cases.len()
            );
        }
    }
}

impl ClientDetection {
    fn is_detected(&self) -> bool {
        self.detected_after.is_some_and(|request| request <= 50)
    }
}

/// Maximum number of requests of a client that has no profile.
const MAX_UNPROFILED_REQUESTS: u32 = 2;
