//! `tidegate learn`: the first day of a gateway that has learned from logs is like a later one.
//!
//! `cargo test --release --test integration learn::measured -- --nocapture --test-threads 1` prints the table of
//! docs/PACING.md.

use crate::support::pacing_harness::{
    self, BotTreatment, ClientLabel, DAY, DayMetrics, PacingPolicy, SyntheticWeek, TraceRequest, measure_day,
    trace_from_labels,
};
use crate::support::program::{ExitOutcome, Program, run_in};
use crate::support::shared_data;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_engine::LearnedDemand;
use tidegate_engine::demand_store::DemandStore;

/// Demand, as a multiple of the quota.
const DEMANDS: [f64; 3] = [1.2, 2.0, 5.0];
const LOS_ANGELES: &str = "America/Los_Angeles";
const HOUR: u64 = 3600;

// --- measured days ------------------------------------------------------------------------------------------------

#[test]
fn measured_first_day_after_learning_is_like_the_tenth() {
    for seed in 1..=3 {
        assert_first_day(&format!("bundled {seed}"), &SyntheticWeek::generate_days(seed, 10, &[]), LOS_ANGELES);
    }
}

#[test]
fn measured_first_day_of_the_shared_generator() {
    let Some(shared) = shared_data() else { return };
    let requests = trace_from_labels(&shared.join("tools/synth_day.py"), 1, "baseline");
    assert_first_day("external 1", &requests, LOS_ANGELES);
}

/// Measures the last whole day of `requests` for a gateway that starts with it, with and without learning from the days before,
/// and for one that has run all days.
fn assert_first_day(name: &str, requests: &[TraceRequest], zone: &str) {
    let end = start_of_day(requests[requests.len() - 1].at + HOUR, zone);
    let requests = &requests[..requests.partition_point(|request| request.at < end)];
    let (start, days) = (start_of_day(end - 1, zone), (end - requests[0].at).div_ceil(DAY));
    let earlier = requests.partition_point(|request| request.at < start);
    for demand in DEMANDS {
        let limit = (requests.len() as f64 / days as f64 / demand) as u64;
        let learned = learn_trace(&requests[..earlier], zone, limit);
        let measure =
            |first: usize, learned: &[LearnedDemand]| measure_day(&requests[first..], start, zone, limit, learned);
        let (without, with, tenth) = (measure(earlier, &[]), measure(earlier, &learned), measure(0, &[]));
        let each = |render: &dyn Fn(&DayMetrics) -> String| [&without, &with, &tenth].map(render).join("/");
        println!(
            "| {name} | {demand}x | {} | {} | {} |",
            each(&|day| day.human_refusals.to_string()),
            each(&|day| format!("{:.1}", day.unused * 100.0)),
            each(&|day| format!("{:.2}", day.evenness)),
        );
        assert_eq!((with.human_refusals, tenth.human_refusals), (0, 0), "{name}, {demand} times");
        assert!(with.evenness >= tenth.evenness - 0.1, "{name}, {demand} times: {} is uneven", with.evenness);
        assert!(with.evenness >= 0.65, "{name}, {demand} times: {} is uneven", with.evenness);
        assert!(with.evenness >= without.evenness + 0.2, "{name}, {demand} times: {} needs none", without.evenness);
        assert!(with.unused <= 0.01, "{name}, {demand} times: {} unused", with.unused);
    }
}

/// Returns the first second of the day that contains `at`.
fn start_of_day(at: u64, zone: &str) -> u64 {
    let time = jiff::Timestamp::from_second(at.cast_signed()).expect("a valid time");
    let day = time.in_tz(zone).and_then(|time| time.start_of_day()).expect("a known zone");
    day.timestamp().as_second().unsigned_abs()
}

/// Writes the requests as an access log, and returns the demand that `tidegate learn` stores.
fn learn_trace(requests: &[TraceRequest], zone: &str, limit: u64) -> Vec<LearnedDemand> {
    let policy = (PacingPolicy::Learned, BotTreatment::Paced);
    let rules = pacing_harness::rules_text(policy, &format!("calendar: day, zone: {zone}"), limit);
    let fixture = LearnFixture::new(&format!("{rules}bot_detection: {{ enabled: false }}\n"));
    let mut log = String::new();
    for (number, request) in requests.iter().enumerate() {
        let (client, agent) = match request.label {
            ClientLabel::Person => (format!("10.{}.{}.1", number / 256 % 256, number % 256), FIREFOX),
            ClientLabel::Search => ("66.249.66.1".to_owned(), GOOGLEBOT),
            ClientLabel::Bot => ("192.0.2.1".to_owned(), "curl/8.0"),
        };
        log_line(&mut log, request.at, &client, &format!("/{number}"), "-", agent);
    }
    fixture.write("access.log", &log);
    let outcome = fixture.learn(&["access.log"]);
    assert_eq!(outcome.code, 0, "{}", outcome.errors);
    DemandStore::new(&fixture.dir.path().join("state"), OperatorTable::builtin_names()).read().expect("a valid file")
}

// --- what is learned ----------------------------------------------------------------------------------------------

#[test]
fn learned_demand_is_that_of_whole_hours_by_quota_and_class() {
    let fixture = LearnFixture::new(RULES);
    // From half past midnight, for a day and a half; the log ends in the middle of an hour.
    let log: String = (30..36 * 60 + 30).fold(String::new(), |mut log, minute| {
        log_line(&mut log, MIDNIGHT + minute * 60, "192.0.2.1", "/page", "-", FIREFOX);
        if minute % 6 == 0 {
            log_line(&mut log, MIDNIGHT + minute * 60 + 1, "66.249.66.1", "/page", "-", GOOGLEBOT);
        }
        log
    });
    fixture.write("access.log", &log);
    let outcome = fixture.learn(&["--json", "access.log"]);
    assert_eq!(outcome.code, 0, "{}", outcome.errors);
    let report: Value = serde_json::from_str(&outcome.output).expect("JSON");
    let [api, other, unpaced] = [0, 1, 2].map(|index| &report["quotas"][index]);
    assert_eq!((&api["hours"], &api["hours_of_day"], &api["missing_hours"]), (&36.into(), &24.into(), &0.into()));
    let demand = |class: usize| api["classes"][class]["by_hour"].as_array().expect("hours").clone();
    assert!(demand(0).iter().all(|units| *units == 10.0), "search: {:?}", demand(0));
    assert!(demand(2).iter().all(|units| *units == 60.0), "half of the first hour counts twice: {:?}", demand(2));
    assert_eq!(api["classes"][2]["units_per_day"], 1440.0);
    assert_eq!((&other["pacing"], &other["classes"]), (&"learned".into(), &json!([])), "not in the log");
    assert_eq!((&unpaced["pacing"], &unpaced["classes"]), (&Value::Null, &json!([])));
    let path = fixture.dir.path().canonicalize().expect("it exists").join("state/demand.json");
    assert_eq!(report["written"], json!([path]));

    let stored = fixture.stored_demand();
    assert!(stored.iter().all(|learned| learned.quota == "api"));
    let search = stored.iter().find(|learned| learned.class == "search").expect("a class");
    // The 7th of June 2024 was a Friday: hours 96 to 119.
    let known: Vec<usize> = (0..168).filter(|hour| search.week[*hour].weeks > 0.0).collect();
    assert_eq!(known, (96..96 + 36).collect::<Vec<_>>());
    assert!(known.iter().all(|hour| search.week[*hour].weeks == 1.0 && search.week[*hour].units == 10.0));
}

#[test]
fn refused_requests_and_order_of_files_do_not_change_the_demand() {
    let lines = |hours: std::ops::Range<u64>, status: u16| {
        hours.flat_map(|hour| (0..30).map(move |number| (hour, number))).fold(
            String::new(),
            |mut log, (hour, number)| {
                let at = MIDNIGHT + hour * 3600 + number * 119;
                log_line(&mut log, at, "66.249.66.1", "/page", "-", GOOGLEBOT);
                log.replace(" 200 ", &format!(" {status} "))
            },
        )
    };
    let learned = |files: &[(&str, String)]| {
        // A limit that refuses most requests: demand is what clients ask for.
        let fixture = LearnFixture::new(&RULES.replace("limit: 10000", "limit: 100"));
        files.iter().for_each(|(name, text)| fixture.write(name, text));
        let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
        assert_eq!(fixture.learn(&names).code, 0);
        fixture.stored_demand()
    };
    let served = learned(&[("a.log", lines(0..24, 200) + &lines(24..49, 200))]);
    assert_eq!(served[0].week[96].units, 30.0);
    assert_eq!(served, learned(&[("a.log", lines(0..24, 429) + &lines(24..49, 429))]), "refused by another limit");
    assert_eq!(served, learned(&[("b.log", lines(24..49, 200)), ("a.log", lines(0..24, 200))]), "files in any order");
}

#[test]
fn a_gateway_starts_with_what_was_learned() {
    let fixture = LearnFixture::new(&format!("{RULES}listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0 }}\n"));
    fixture.write("access.log", &browser_log(21 * 60));
    let outcome = fixture.learn(&["access.log"]);
    assert_eq!(outcome.code, 0, "{}", outcome.errors);
    assert!(outcome.output.contains("Pacing forecasts by hour from the first request on."), "{}", outcome.output);
    assert!(outcome.output.lines().all(|line| line.starts_with("written: ") || line.chars().count() <= 80));
    let baseline = fixture.read("state/baseline.json");
    assert_eq!(baseline["assets"]["present"], 20_000, "the least weight, as the log is that of another server");
    assert_eq!(baseline["links"], json!({ "present": 0, "absent": 0 }), "the log lacks hosts");

    let mut gateway = Program::start(&["serve", "--config", &fixture.path("tidegate.yaml")]);
    gateway.read_line();
    let outcome = fixture.learn(&["--replace", "access.log"]);
    assert_eq!((outcome.code, outcome.output.as_str()), (1, ""), "{}", outcome.errors);
    assert!(outcome.errors.contains("is in use by a running gateway") && outcome.errors.contains("; stop it"));
    gateway.signal("TERM");
    assert_eq!(gateway.wait_for_exit().code, 0);
    assert_eq!(fixture.learn(&["--replace", "access.log"]).code, 0);
}

#[test]
fn a_replay_begins_with_what_was_learned() {
    let rules = "
quotas: { api: { limit: 700, window: { calendar: day, zone: UTC }, pacing: { mode: learned, weights: { bot: 1 } } } }
classes:
  - { name: bot, when: { kind: declared_bot } }
  - { name: person }
routes: [{ match: '/**', cost: { api: 1 } }]
";
    let fixture = LearnFixture::new(rules);
    // Bots by day, people in the evening.
    let day = |day: u64| {
        (0..24 * 60).fold(String::new(), |mut log, minute| {
            let (client, agent) = match minute < 18 * 60 {
                true => ("203.0.113.7".to_owned(), "Scrapy/2.11 (+https://scrapy.org)"),
                false => (format!("198.51.100.{}", minute % 200), FIREFOX),
            };
            log_line(&mut log, day + minute * 60, &client, &format!("/page/{minute}"), "-", agent);
            log
        })
    };
    fixture.write("first.log", &day(MIDNIGHT));
    fixture.write("next.log", &day(MIDNIGHT + 24 * HOUR));
    assert_eq!(fixture.learn(&["first.log"]).code, 0);
    let learned = fs::read(fixture.path("state/demand.json")).expect("a file");
    let replay = |arguments: &[&str]| {
        let json = fixture.path("report.json");
        let outcome = run_in(fixture.dir.path(), &[&["replay", "--json", &json, "next.log"], arguments].concat());
        assert_eq!(outcome.code, 0, "{}", outcome.errors);
        let report = fixture.read("report.json");
        let classes = &report["policies"][0]["classes"];
        let admitted = [&classes[0], &classes[1]].map(|class| class["admitted"].as_u64().expect("a number"));
        (admitted, report["assumptions"]["learned"].clone())
    };
    let ([bots, people], is_learned) = replay(&[]);
    assert!(people < 300 && bots > 400, "the evening is a surprise: {bots} bots, {people} people");
    assert_eq!(is_learned, json!(false));
    let ([bots, people], is_learned) = replay(&["--learned", "state"]);
    assert_eq!(people, 360, "units are kept for the evening");
    assert!((300..=340).contains(&bots), "{bots} bots of 1,080");
    assert_eq!(is_learned, json!(true));
    assert_eq!(fs::read(fixture.path("state/demand.json")).expect("a file"), learned, "a replay changes no file");
}

#[test]
fn own_log_teaches_referers_and_its_samples_keep_their_weight() {
    let fixture = LearnFixture::new(RULES);
    let log: String = (0..60_u64).fold(String::new(), |mut log, client| {
        for (offset, path, referer) in [
            (0, "/a", None),
            (1, "/a.css", Some("https://example.com/a")),
            (9, "/b", Some("https://example.com/a")),
            (10, "/b.css", Some("https://example.com/a")),
        ] {
            log += &native_line(MIDNIGHT + client * 60 + offset, client, path, referer);
        }
        log
    });
    fixture.write("access.log", &log);
    let outcome = fixture.learn(&["access.log"]);
    assert_eq!(outcome.code, 0, "{}{}", outcome.output, outcome.errors);
    let links = &fixture.read("state/baseline.json")["links"];
    let present = links["present"].as_u64().unwrap_or_default();
    assert!((58_000..=60_000).contains(&present), "{links}");
}

// --- errors -------------------------------------------------------------------------------------------------------

#[test]
fn stored_files_are_replaced_only_on_request_and_other_quotas_are_kept() {
    let fixture = LearnFixture::new(RULES);
    fixture.write("access.log", &browser_log(21 * 60));
    let hours: Vec<(u64, u32)> = vec![(3000, 2); 168];
    let entry = |quota: &str| json!({ "quota": quota, "class": "person", "hours": hours });
    let stored = json!({ "version": 1, "demand": [entry("api"), entry("other")] }).to_string();
    fs::create_dir(fixture.dir.path().join("state")).expect("directory is writable");
    fixture.write("state/demand.json", &stored);
    let outcome = fixture.learn(&["access.log"]);
    assert_eq!((outcome.code, outcome.output.as_str()), (2, ""));
    assert!(outcome.errors.contains("state/demand.json: already exists") && outcome.errors.contains("--replace"));
    assert_eq!(fs::read_to_string(fixture.path("state/demand.json")).expect("a file"), stored);
    assert!(!fixture.dir.path().join("state/baseline.json").exists());

    assert_eq!(fixture.learn(&["--replace", "access.log"]).code, 0);
    let demand = fixture.stored_demand();
    let person = |quota: &str| {
        let of_class = |learned: &&LearnedDemand| learned.quota == quota && learned.class == "person";
        demand.iter().find(of_class).expect("a class").week[96]
    };
    assert_eq!((person("other").units, person("other").weeks, person("api").weeks), (3.0, 2.0, 1.0));

    fixture.write("state/demand.json", "damaged");
    assert_eq!(fixture.learn(&["access.log"]).code, 2);
    assert_eq!(fixture.learn(&["--replace", "access.log"]).code, 0);
    assert!(!fixture.stored_demand().is_empty());
}

#[test]
fn a_log_that_teaches_nothing_writes_nothing() {
    let fixture = LearnFixture::new(RULES);
    let mut line = String::new();
    log_line(&mut line, MIDNIGHT, "192.0.2.1", "/page", "-", FIREFOX);
    for (text, code, message) in [
        (String::new(), 2, "no requests found in 0 lines"),
        ("\u{1b}[31m\0\u{ff}\n".repeat(50), 2, "no requests found in 50 lines"),
        (line, 0, "Nothing was written."),
    ] {
        fixture.write("access.log", &text);
        let outcome = fixture.learn(&["access.log"]);
        assert_eq!(outcome.code, code, "{text}: {}", outcome.errors);
        assert!((outcome.output + &outcome.errors).contains(message));
        assert!(!fixture.dir.path().join("state").exists(), "{text}");
    }
    fixture.write("tidegate.yaml", "origin: { url: http://127.0.0.1:1 }\nbot_detection: { enabled: false }\n");
    let outcome = fixture.learn(&["access.log"]);
    assert_eq!(outcome.code, 2);
    assert!(outcome.errors.contains("there is nothing to learn; write pacing: learned"), "{}", outcome.errors);
}

#[test]
fn one_client_teaches_no_more_than_it_would_live() {
    let fixture = LearnFixture::new(RULES);
    let mut log = browser_log(30 * 24 * 60);
    // One hour of a hundred times the usual demand, on the third of the same weekday.
    for number in 0..6000 {
        log_line(&mut log, MIDNIGHT + 14 * DAY + number * 3 / 5, "198.51.100.1", "/page", "-", FIREFOX);
    }
    fixture.write("access.log", &log);
    assert_eq!(fixture.learn(&["access.log"]).code, 0);
    let demand = fixture.stored_demand();
    let usual = demand.iter().find(|learned| learned.class == "person").expect("a class").week;
    assert!(usual[96].units < 2.0 * usual[97].units, "{} beside {}", usual[96].units, usual[97].units);
}

// --- fixture ------------------------------------------------------------------------------------------------------

/// A directory with a configuration file.
struct LearnFixture {
    dir: TempDir,
}

impl LearnFixture {
    fn new(rules: &str) -> Self {
        let fixture = Self { dir: tempfile::tempdir().expect("temporary directory") };
        let (state, origin) = (fixture.path("state"), "origin: { url: 'http://127.0.0.1:1' }\n");
        let origin = if rules.contains("origin:") { "" } else { origin };
        let common = "verify: { dns: off, refresh_interval: off }\n";
        fixture.write("tidegate.yaml", &format!("state_dir: {state}\n{origin}{common}{rules}"));
        fixture
    }

    fn learn(&self, arguments: &[&str]) -> ExitOutcome {
        run_in(self.dir.path(), &[&["learn"], arguments].concat())
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.path().join(name), text).expect("directory is writable");
    }

    fn read(&self, name: &str) -> Value {
        let text = fs::read_to_string(Path::new(&self.path(name))).expect("a readable file");
        serde_json::from_str(&text).expect("JSON")
    }

    fn stored_demand(&self) -> Vec<LearnedDemand> {
        DemandStore::new(&self.dir.path().join("state"), OperatorTable::builtin_names()).read().expect("a valid file")
    }
}

/// Returns a line of the gateway's own log: the first of the golden log, for a page of a client.
fn native_line(at: u64, client: u64, path: &str, referer: Option<&str>) -> String {
    let log = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/golden/access.jsonl");
    let text = fs::read_to_string(log).expect("a readable file");
    let time = jiff::Timestamp::from_second(at.cast_signed()).expect("a valid time").strftime("%FT%T.000000Z");
    let referer = referer.map_or("null".to_owned(), |referer| format!("\"{referer}\""));
    let line = text.lines().next().expect("a line");
    // The order of the fields stays.
    let replaced = [
        ("\"ID\"", "\"0123456789abcdef\"".to_owned()),
        ("SEQUENCE", "1".to_owned()),
        ("x-api-key", "upgrade-insecure-requests".to_owned()),
        ("2027-01-15T12:00:00.000000Z", time.to_string()),
        ("2027-01-15T12:00:00.007250Z", time.to_string()),
        ("\"client\":\"127.0.0.1\"", format!("\"client\":\"198.51.{client}.100\"")),
        ("\"path\":\"/\"", format!("\"path\":\"{path}\"")),
        ("\"referer\":null", format!("\"referer\":{referer}")),
        ("Example.com:8080", "example.com".to_owned()),
    ];
    let line = replaced.iter().fold(line.to_owned(), |line, (from, to)| {
        assert!(line.contains(from), "{from} in {line}");
        line.replace(from, to)
    });
    line + "\n"
}

/// Returns a log of one visit per minute, each of two pages with their assets.
fn browser_log(minutes: u64) -> String {
    (0..minutes).fold(String::new(), |mut log, minute| {
        let (at, client) = (MIDNIGHT + minute * 60, format!("10.{}.{}.7", minute / 200 % 256, minute % 200));
        for (offset, path, referer) in [
            (0, "/a", "-"),
            (1, "/a.css", "https://example.com/a"),
            (9, "/b", "https://example.com/a"),
            (10, "/b.css", "https://example.com/a"),
        ] {
            log_line(&mut log, at + offset, &client, path, referer, FIREFOX);
        }
        log
    })
}

fn log_line(log: &mut String, at: u64, client: &str, path: &str, referer: &str, agent: &str) {
    let time =
        jiff::Timestamp::from_second(at.cast_signed()).expect("a valid time").strftime("%d/%b/%Y:%H:%M:%S +0000");
    let _ = writeln!(log, "{client} - - [{time}] \"GET {path} HTTP/1.1\" 200 512 \"{referer}\" \"{agent}\"");
}

/// Midnight UTC of a Friday, the 7th of June 2024.
const MIDNIGHT: u64 = 1_717_718_400;

const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";
const GOOGLEBOT: &str = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)";

const RULES: &str = "
quotas:
  api:
    limit: 10000
    window: { calendar: day, zone: UTC }
    pacing: learned
    tiers: { search: [ { above: 50%, shed: 50% } ] }
  other: { limit: 100, window: { calendar: day, zone: UTC }, pacing: learned, tiers: { search: [ { above: 50%, shed: 50% } ] } }
  unpaced: { limit: 100, window: { calendar: day, zone: UTC }, pacing: off }
classes:
  - { name: search, when: { operator: googlebot } }
  - { name: bot, when: { kind: [verified_bot, declared_bot, suspected_bot, impostor] } }
  - { name: person, when: { kind: human } }
routes:
  - { match: '/**/*.css' }
  - { match: '/other', cost: { other: 1, unpaced: 1 } }
  - { match: '/**', cost: { api: 1 } }
";
