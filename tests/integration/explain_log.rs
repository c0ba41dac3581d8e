//! The explanation of a log line has the same outcome as a replay of that log, for every refusal reason.

use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::program::{ExitOutcome, run};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::time::Duration;
use tempfile::TempDir;
use tidegate::demo::{log, traffic};

#[test]
fn explanation_of_log_line_matches_replay() {
    for (policy, days, reasons) in
        [(TIERS, 1, &["tier", "bucket", "quota"][..]), (EVEN, 1, &["pacing"]), (LEARNED, 3, &["pacing"])]
    {
        let desk = ExplainLogFixture::with_policy(policy, days);
        let verdicts = desk.verdicts(&[]);
        let mut by_reason: BTreeMap<&str, usize> = BTreeMap::new();
        let sampled = verdicts.iter().enumerate().filter(|(place, verdict)| {
            let seen = by_reason.entry(verdict["reason"].as_str().unwrap_or_default()).or_default();
            *seen += 1;
            // The first few lines of each reason, then a sample.
            *seen < 3 || place % 797 == 0
        });
        let sampled: Vec<&Value> = sampled.map(|(_, verdict)| verdict).collect();
        let found: BTreeSet<&str> = sampled.iter().filter_map(|verdict| verdict["reason"].as_str()).collect();
        assert!(reasons.iter().all(|reason| found.contains(reason)), "{reasons:?} are not all in {found:?}");
        for verdict in sampled {
            let line = verdict["line"].as_u64().expect("a number");
            let explained = desk.explain_json(&format!("{}:{line}", desk.log), &[]);
            assert_eq!(explained_outcome(&explained), verdict_outcome(verdict), "line {line}: {explained:#}");
            let class = explained["steps"].as_array().and_then(|steps| steps[1]["numbers"]["class"].as_str());
            assert_eq!(class, verdict["class"].as_str(), "line {line}");
        }
    }
}

#[test]
fn explanation_of_own_log_matches_decision() {
    let beside = "headers: { retry_after_spread: 50% }\nclients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }";
    let policy = format!("{beside}{EVEN}");
    let gate = TestGateway::with_rules(Origin::plain().address(), &policy.replace(ORIGIN, ""));
    let mut client = gate.connect();
    for number in 0..60 {
        let agent = if number % 7 == 0 { "" } else { "User-Agent: curl/8.0\r\n" };
        client.get("/item/1", &format!("{agent}X-Forwarded-For: 192.0.2.{}\r\n", number % 5));
        gate.clock.advance(Duration::from_secs(number * 3));
    }
    let own = gate.read_log_text();
    let desk = ExplainLogFixture::with_policy(&policy, 1);
    let log = desk.write_file("own.log", &own);
    let mut reasons = BTreeSet::new();
    for (place, line) in own.lines().enumerate() {
        let decided: Value = serde_json::from_str(line).expect("JSON");
        let explained = desk.explain_json(&format!("{log}:{}", place + 1), &[]);
        assert_eq!(explained_outcome(&explained), verdict_outcome(&decided), "{decided}: {explained:#}");
        assert_eq!(explained["responses"][0]["status"], decided["status"]);
        reasons.insert(decided["reason"].to_string());
    }
    assert_eq!(reasons.into_iter().collect::<Vec<_>>(), ["\"pacing\"", "null"]);
}

#[test]
fn reset_time_is_shown_in_quota_zone() {
    let desk = ExplainLogFixture::with_policy(TIERS, 1);
    let verdicts = desk.verdicts(&[]);
    let refused = verdicts.iter().find(|verdict| verdict["reason"] == "tier").expect("log has tier refusals");
    let page = desk.explain_page(&format!("{}:{}", desk.log, refused["line"]));
    assert!(page.contains("a retry once the quota is renewed, at 4 Sep 00:00 America/Los_Angeles"), "{page}");
}

#[test]
fn explanation_uses_replay_assumptions() {
    let desk = ExplainLogFixture::with_policy(TIERS, 1);
    for taken in [&["--retry-model", "obey"][..], &["--actual-cost", "/search=1.5", "--cache-ttl", "1h"]] {
        // An obedient client retries refused requests: its first response is explained.
        let mut told = BTreeSet::new();
        let verdicts = desk.verdicts(taken);
        let first: Vec<&Value> = verdicts.iter().filter(|verdict| told.insert(verdict["line"].as_u64())).collect();
        for verdict in first.iter().step_by(first.len() / 5) {
            let place = format!("{}:{}", desk.log, verdict["line"]);
            assert_eq!(
                explained_outcome(&desk.explain_json(&place, taken)),
                verdict_outcome(verdict),
                "{taken:?}: {verdict}"
            );
        }
    }
}

#[test]
fn pacing_refusal_shows_plan_numbers_and_remedies() {
    let desk = ExplainLogFixture::with_policy(EVEN, 1);
    let verdicts = desk.verdicts(&[]);
    let refused = verdicts.iter().filter(|verdict| verdict["reason"] == "pacing" && verdict["cost"]["api"] == 1.0);
    let explained = |verdict: &Value| {
        let place = format!("{}:{}", desk.log, verdict["line"]);
        Some((desk.explain_json(&place, &[]), place))
            .filter(|(explained, _)| explained.to_string().contains("\"change\":\"limit\""))
    };
    // A larger limit does not always admit the request: other clients of the class would have used the units.
    let (explained, place) = refused.step_by(10).find_map(explained).expect("a larger limit admits one request");
    let pacing = find_step(&explained, "pacing");
    let numbers = &pacing["numbers"];
    assert_eq!((&pacing["finding"], &numbers["share"]), (&json!("refused"), &json!(1.0)));
    assert!(numbers["purse"].as_f64().is_some_and(|purse| purse < 1.0), "{pacing}");
    assert!(numbers["per_hour"].as_f64().is_some_and(|gains| gains > 0.0), "{pacing}");
    let page = desk.explain_page(&place);
    for told in
        ["is ahead of its plan: ", "are admitted while tokens last: its pacing bucket holds", "are earmarked for"]
    {
        assert!(page.contains(told), "no {told:?} in\n{page}");
    }
    assert!(!page.contains("only a running gateway or"), "{page}");

    // The proposed changes do admit the request.
    let remedies = explained["remedies"].as_array().expect("a list");
    let remedy =
        |change: &str| remedies.iter().find(|remedy| remedy["change"] == change).map(|found| &found["numbers"]);
    assert!(remedy("class").is_some_and(|class| class["classes"].to_string().contains("person")), "{explained:#}");
    assert!(remedy("time").is_some(), "{explained:#}");
    let limit = remedy("limit").expect("explanation proposes a larger limit")["limit"].to_string();
    let larger = desk.write_file("larger.yaml", &EVEN.replace("limit: 300", &format!("limit: {limit}")));
    assert_eq!(desk.explain_json(&place, &["--config", &larger])["responses"][0]["verdict"], "admitted");
}

#[test]
fn lines_are_found_in_later_compressed_files() {
    let desk = ExplainLogFixture::with_policy(EVEN, 1);
    let text = fs::read_to_string(&desk.log).expect("file was written");
    let half = text.lines().count() / 2;
    let part = |lines: &mut dyn Iterator<Item = &str>| lines.map(|line| format!("{line}\n")).collect::<String>();
    let earlier = desk.write_file("earlier.log", &part(&mut text.lines().take(half)));
    let later = desk.folder.path().join("later.log.gz");
    let mut packed = GzEncoder::new(fs::File::create(&later).expect("path is free"), Compression::fast());
    packed.write_all(part(&mut text.lines().skip(half)).as_bytes()).expect("file is writable");
    packed.finish().expect("file is writable");
    let verdicts = desk.verdicts(&[]);
    for place in [half, half + half / 2] {
        let line = format!("{}:{}", later.display(), place - half + 1);
        let explained = desk.explain_json(&line, &["--log", &earlier]);
        let alone = desk.explain_json(&format!("{}:{}", desk.log, place + 1), &[]);
        assert_eq!(explained["steps"], alone["steps"]);
        assert_eq!(explained_outcome(&explained), verdict_outcome(&verdicts[place]));
    }
}

#[test]
fn hypothetical_request_leaves_pacing_undecided() {
    let desk = ExplainLogFixture::with_policy(EVEN, 1);
    let asked = ["--ip", "192.0.2.1", "--user-agent", "curl/8.0", "http://shop.example/item/1"];
    let ended = desk.run(&asked);
    assert_eq!(ended.code, 0, "{}", ended.errors);
    let told = ended.output;
    assert!(told.contains("Depends on\n  - the units that the plan of api has for bot"), "{told}");
    assert!(told.contains("\nAdmitted") && told.contains("\nRefused with 429, reason pacing"), "{told}");
    assert!(
        told.contains("log (--log) has the units of its plan") && told.contains("the class person instead of bot"),
        "{told}"
    );
    assert!(!told.contains("retry-after:"), "retry-after is printed although it is unknown: {told}");
}

#[test]
fn inapplicable_explain_options_are_errors() {
    let desk = ExplainLogFixture::with_policy(EVEN, 1);
    let ended = desk.run(&["0123456789abcdef", "--used", "api=3", "--at", "12:00", "--latency", "1s"]);
    assert_eq!((ended.code, ended.output.as_str()), (2, ""));
    let told: Vec<&str> = ended.errors.lines().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(told, ["--used", "--at", "--actual-cost, --cache-ttl, --latency, --retry-model, --reorder-window"]);
    let ended = desk.run(&["/item/1", "--ip", "192.0.2.1", "--retry-model", "obey"]);
    assert!(ended.code == 2 && ended.errors.contains("add --log FILE:LINE"), "{}", ended.errors);
}

fn find_step<'a>(explained: &'a Value, name: &str) -> &'a Value {
    let steps = explained["steps"].as_array().expect("a list");
    steps.iter().find(|step| step["step"] == name).expect("every explanation has this step")
}

/// Returns verdict, reason and `Retry-After` of the only possible outcome.
fn explained_outcome(explained: &Value) -> [Value; 3] {
    assert_eq!(explained["responses"].as_array().map(Vec::len), Some(1), "{explained:#}");
    verdict_outcome(&explained["responses"][0])
}

fn verdict_outcome(verdict: &Value) -> [Value; 3] {
    ["verdict", "reason", "retry_after_s"].map(|member| verdict[member].clone())
}

/// A policy, and the log of some synthetic days.
struct ExplainLogFixture {
    folder: TempDir,
    yaml: String,
    log: String,
}

impl ExplainLogFixture {
    fn with_policy(policy: &str, days: u64) -> Self {
        let folder = tempfile::tempdir().expect("temporary directory");
        let desk = Self { folder, yaml: String::new(), log: String::new() };
        let lines = |number| log::lines(number, &traffic::generate(1 + number, 0.02)).collect::<String>();
        let (yaml, log) = (
            desk.write_file("tidegate.yaml", policy),
            desk.write_file("access.log", &(0..days).map(lines).collect::<String>()),
        );
        Self { yaml, log, ..desk }
    }

    fn write_file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, text).expect("file is writable");
        path.display().to_string()
    }

    fn verdicts(&self, taken: &[&str]) -> Vec<Value> {
        let file = self.folder.path().join("verdicts.jsonl").display().to_string();
        let ended = run(&[&["replay", "--config", &self.yaml, "--verdicts", &file, &self.log], taken].concat(), b"");
        assert_eq!(ended.code, 0, "{}", ended.errors);
        let text = fs::read_to_string(file).expect("file was written");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    fn run(&self, arguments: &[&str]) -> ExitOutcome {
        let named = if arguments.contains(&"--config") { &[][..] } else { &["--config", &self.yaml] };
        run(&[&["explain"], named, arguments].concat(), b"")
    }

    fn explain_json(&self, line: &str, more: &[&str]) -> Value {
        let before = more.iter().position(|option| *option == "--log").map_or(&[][..], |_| more);
        let after = if before.is_empty() { more } else { &[][..] };
        let ended = self.run(&[before, &["--json", "--log", line], after].concat());
        assert_eq!(ended.code, 0, "{}", ended.errors);
        serde_json::from_str(&ended.output).expect("JSON")
    }

    fn explain_page(&self, line: &str) -> String {
        let ended = self.run(&["--log", line]);
        assert_eq!(ended.code, 0, "{}", ended.errors);
        ended.output.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

const ORIGIN: &str = "origin: { url: \"http://127.0.0.1:3000\" }\n";

const TIERS: &str = r#"
origin: { url: "http://127.0.0.1:3000" }
quotas:
  api:
    limit: 300
    window: { calendar: day, zone: America/Los_Angeles }
    tiers: { bot: [ { above: 20%, shed: 40% }, { above: 60%, shed: 75% }, { above: 90%, shed: 100% } ] }
classes:
  - { name: bot, when: { kind: [verified_bot, declared_bot, suspected_bot] }, bucket: { capacity: 2, fill: 1, interval: 10m } }
  - { name: impostor, when: { kind: impostor } }
routes:
  - { match: "/search", cost: { api: 4 } }
  - { match: "/item/*", cost: { api: 1 } }
"#;

const EVEN: &str = r#"
origin: { url: "http://127.0.0.1:3000" }
quotas:
  api:
    limit: 300
    window: { calendar: day, zone: UTC }
    pacing: { mode: even, weights: { bot: 1 } }
classes:
  - { name: person, when: { kind: human } }
  - { name: bot }
routes:
  - { match: "/search", cost: { api: 4 } }
  - { match: "/item/*", cost: { api: 1 } }
"#;

const LEARNED: &str = r#"
origin: { url: "http://127.0.0.1:3000" }
quotas:
  api:
    limit: 400
    window: { calendar: day, zone: UTC }
    pacing: { mode: learned, burst: 2%, weights: { search: 3, bot: 1 } }
    tiers: { bot: [ { above: 80%, shed: 100% } ] }
classes:
  - { name: person, when: { kind: human } }
  - { name: search, when: { kind: verified_bot } }
  - { name: bot }
routes:
  - { match: "/search", cost: { api: 4 } }
  - { match: "/item/*", cost: { api: 1 } }
"#;
