//! The explanation of a log line has the same outcome as a replay of that log, for every refusal reason.

use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::program::{ExitOutcome, run, run_in};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::time::Duration;
use tempfile::TempDir;
use tidegate::demo::{day, log};

#[test]
fn explanation_of_log_line_matches_replay() {
    for (policy, days, reasons) in
        [(TIERS, 1, &["tier", "bucket", "quota"][..]), (EVEN, 1, &["pacing"]), (LEARNED, 3, &["pacing"])]
    {
        let fixture = ExplainLogFixture::with_policy(policy, days);
        let verdicts = fixture.verdicts(&[]);
        let mut by_reason: BTreeMap<&str, usize> = BTreeMap::new();
        let sampled = verdicts.iter().enumerate().filter(|(index, verdict)| {
            let count = by_reason.entry(verdict["reason"].as_str().unwrap_or_default()).or_default();
            *count += 1;
            // The first few lines of each reason, then a sample.
            *count < 3 || index % 797 == 0
        });
        let sampled: Vec<&Value> = sampled.map(|(_, verdict)| verdict).collect();
        let found_reasons: BTreeSet<&str> = sampled.iter().filter_map(|verdict| verdict["reason"].as_str()).collect();
        assert!(
            reasons.iter().all(|reason| found_reasons.contains(reason)),
            "{reasons:?} are not all in {found_reasons:?}"
        );
        for verdict in sampled {
            let line = verdict["line"].as_u64().expect("a number");
            let explanation = fixture.explain_json(&format!("{}:{line}", fixture.log), &[]);
            assert_eq!(explained_outcome(&explanation), verdict_outcome(verdict), "line {line}: {explanation:#}");
            let class = explanation["steps"].as_array().and_then(|steps| steps[1]["numbers"]["class"].as_str());
            assert_eq!(class, verdict["class"].as_str(), "line {line}");
        }
    }
}

#[test]
fn explanation_names_the_simulated_response() {
    let policy = format!(
        "{ORIGIN}cache: {{}}\nquotas: {{ api: {{ limit: 2, window: {{ fixed: 1h }} }} }}\n\
         routes: [{{ match: \"/item/*\", cost: {{ api: 1 }} }}]\n"
    );
    let fixture = ExplainLogFixture::with_policy(&policy, 0);
    let line = |(time, item): (&str, u32)| {
        format!(
            "192.0.2.1 - - [07/Jun/2024:{time} +0000] \"GET /item/{item} HTTP/1.1\" 200 5 \"-\" \"Firefox/140.0\"\n"
        )
    };
    let text: String = [("00:00:00", 1), ("00:00:30", 1), ("00:05:00", 2), ("00:10:00", 1)].map(line).concat();
    let fixture = ExplainLogFixture { log: fixture.write_file("small.log", &text), ..fixture };
    let options = ["--max-age", "1m"];
    let verdicts = fixture.verdicts(&options);
    for (result, beginning) in [
        ("miss", "in the simulated cache, no stored response could answer"),
        ("hit", "in the simulated cache, a fresh response answers"),
        ("stale", "in the simulated cache, a stale response is sent in place of the refusal"),
    ] {
        let verdict = verdicts.iter().find(|verdict| verdict["cache"] == result);
        let verdict = verdict.unwrap_or_else(|| panic!("no line with the result {result}"));
        let explanation = fixture.explain_json(&format!("{}:{}", fixture.log, verdict["line"]), &options);
        let steps = explanation["steps"].as_array().expect("a list");
        let step = steps.iter().find(|step| step["step"] == "cache").and_then(|step| step["message"].as_str());
        assert!(step.is_some_and(|step| step.starts_with(beginning)), "{result}: {explanation:#}");
        assert_eq!(explained_outcome(&explanation), verdict_outcome(verdict), "{result}: {explanation:#}");
    }
}

#[test]
fn explanation_of_own_log_matches_decision() {
    let common = "headers: { retry_after_spread: 50% }\nclients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }";
    let policy = format!("{common}{EVEN}");
    let gateway = TestGateway::with_rules(Origin::plain().address(), &policy.replace(ORIGIN, ""));
    let mut client = gateway.connect();
    for number in 0..60 {
        let agent = if number % 7 == 0 { "" } else { "User-Agent: curl/8.0\r\n" };
        client.get("/item/1", &format!("{agent}X-Forwarded-For: 192.0.2.{}\r\n", number % 5));
        gateway.clock.advance(Duration::from_secs(number * 3));
    }
    let log_text = gateway.read_log_text();
    let fixture = ExplainLogFixture::with_policy(&policy, 1);
    let log = fixture.write_file("own.log", &log_text);
    let mut reasons = BTreeSet::new();
    for (index, line) in log_text.lines().enumerate() {
        let decision: Value = serde_json::from_str(line).expect("JSON");
        let explanation = fixture.explain_json(&format!("{log}:{}", index + 1), &[]);
        assert_eq!(explained_outcome(&explanation), verdict_outcome(&decision), "{decision}: {explanation:#}");
        assert_eq!(explanation["responses"][0]["status"], decision["status"]);
        reasons.insert(decision["reason"].to_string());
    }
    assert_eq!(reasons.into_iter().collect::<Vec<_>>(), ["\"pacing\"", "null"]);
}

#[test]
fn reset_time_is_shown_in_quota_zone() {
    let fixture = ExplainLogFixture::with_policy(TIERS, 1);
    let verdicts = fixture.verdicts(&[]);
    let refused = verdicts.iter().find(|verdict| verdict["reason"] == "tier").expect("log has tier refusals");
    let page = fixture.page(&["--log", &format!("access.log:{}", refused["line"])]);
    assert!(page.contains("a retry once the quota is renewed, at 4 Sep 00:00 America/Los_Angeles\n"), "{page}");
}

#[test]
fn explanation_uses_replay_assumptions() {
    let fixture = ExplainLogFixture::with_policy(TIERS, 1);
    for options in [&["--retry-model", "obey"][..], &["--actual-cost", "/search=1.5", "--cache-ttl", "1h"]] {
        // An obedient client retries refused requests: its first response is explained.
        let mut seen_lines = BTreeSet::new();
        let verdicts = fixture.verdicts(options);
        let first: Vec<&Value> =
            verdicts.iter().filter(|verdict| seen_lines.insert(verdict["line"].as_u64())).collect();
        for verdict in first.iter().step_by(first.len() / 5) {
            let location = format!("{}:{}", fixture.log, verdict["line"]);
            assert_eq!(
                explained_outcome(&fixture.explain_json(&location, options)),
                verdict_outcome(verdict),
                "{options:?}: {verdict}"
            );
        }
    }
}

#[test]
fn pacing_refusal_shows_plan_numbers_and_remedies() {
    let fixture = ExplainLogFixture::with_policy(EVEN, 1);
    let verdicts = fixture.verdicts(&[]);
    let refused = verdicts.iter().filter(|verdict| verdict["reason"] == "pacing" && verdict["cost"]["api"] == 1.0);
    let limit_explanation = |verdict: &Value| {
        let location = format!("{}:{}", fixture.log, verdict["line"]);
        Some((fixture.explain_json(&location, &[]), location))
            .filter(|(explanation, _)| explanation.to_string().contains("\"change\":\"limit\""))
    };
    // A larger limit does not always admit the request: other clients of the class would have used the units.
    let (explanation, location) =
        refused.step_by(10).find_map(limit_explanation).expect("a larger limit admits one request");
    let pacing = find_step(&explanation, "pacing");
    let numbers = &pacing["numbers"];
    assert_eq!((&pacing["finding"], &numbers["admit_share"]), (&json!("refused"), &json!(1.0)));
    assert!(numbers["tokens"].as_f64().is_some_and(|tokens| tokens < 1.0), "{pacing}");
    assert!(numbers["refill_per_hour"].as_f64().is_some_and(|rate| rate > 0.0), "{pacing}");
    let (_, line) = location.rsplit_once(':').expect("a line number");
    insta::assert_snapshot!(fixture.page(&["--log", &format!("access.log:{line}")]));

    // The proposed changes do admit the request.
    let remedies = explanation["remedies"].as_array().expect("a list");
    let remedy =
        |change: &str| remedies.iter().find(|remedy| remedy["change"] == change).map(|entry| &entry["numbers"]);
    assert!(remedy("class").is_some_and(|class| class["classes"].to_string().contains("person")), "{explanation:#}");
    assert!(remedy("time").is_some(), "{explanation:#}");
    let limit = remedy("limit").expect("explanation proposes a larger limit")["limit"].to_string();
    let larger_config = fixture.write_file("larger.yaml", &EVEN.replace("limit: 300", &format!("limit: {limit}")));
    assert_eq!(fixture.explain_json(&location, &["--config", &larger_config])["responses"][0]["verdict"], "admitted");
}

#[test]
fn lines_are_found_in_later_compressed_files() {
    let fixture = ExplainLogFixture::with_policy(EVEN, 1);
    let text = fs::read_to_string(&fixture.log).expect("file was written");
    let half = text.lines().count() / 2;
    let join_lines = |lines: &mut dyn Iterator<Item = &str>| lines.map(|line| format!("{line}\n")).collect::<String>();
    let earlier = fixture.write_file("earlier.log", &join_lines(&mut text.lines().take(half)));
    let later = fixture.dir.path().join("later.log.gz");
    let mut encoder = GzEncoder::new(fs::File::create(&later).expect("path is free"), Compression::fast());
    encoder.write_all(join_lines(&mut text.lines().skip(half)).as_bytes()).expect("file is writable");
    encoder.finish().expect("file is writable");
    let verdicts = fixture.verdicts(&[]);
    for index in [half, half + half / 2] {
        let line = format!("{}:{}", later.display(), index - half + 1);
        let explanation = fixture.explain_json(&line, &["--log", &earlier]);
        let single_file = fixture.explain_json(&format!("{}:{}", fixture.log, index + 1), &[]);
        assert_eq!(explanation["steps"], single_file["steps"]);
        assert_eq!(explained_outcome(&explanation), verdict_outcome(&verdicts[index]));
    }
}

#[test]
fn hypothetical_request_leaves_pacing_undecided() {
    let fixture = ExplainLogFixture::with_policy(EVEN, 1);
    let client = ["--ip", "192.0.2.1", "--user-agent", "curl/8.0", "--at", "2026-11-21T12:00:00Z"];
    // Without retry-after, which is unknown.
    insta::assert_snapshot!(fixture.page(&[&client[..], &["http://shop.example/item/1"]].concat()));
}

#[test]
fn inapplicable_explain_options_are_errors() {
    let fixture = ExplainLogFixture::with_policy(EVEN, 1);
    let outcome = fixture.run(&["0123456789abcdef", "--used", "api=3", "--at", "12:00", "--latency", "1s"]);
    assert_eq!((outcome.code, outcome.output.as_str()), (2, ""));
    let options: Vec<&str> = outcome.errors.lines().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(
        options,
        [
            "--used",
            "--at",
            "--actual-cost, --cache-ttl, --max-age, --latency, --retry-model, --reclassify, --learned, --reorder-window"
        ]
    );
    let outcome = fixture.run(&["/item/1", "--ip", "192.0.2.1", "--retry-model", "obey"]);
    assert!(outcome.code == 2 && outcome.errors.contains("add --log FILE:LINE"), "{}", outcome.errors);
}

fn find_step<'a>(explanation: &'a Value, name: &str) -> &'a Value {
    let steps = explanation["steps"].as_array().expect("a list");
    steps.iter().find(|step| step["step"] == name).expect("every explanation has this step")
}

/// Returns verdict, reason and `Retry-After` of the only possible outcome.
fn explained_outcome(explanation: &Value) -> [Value; 3] {
    assert_eq!(explanation["responses"].as_array().map(Vec::len), Some(1), "{explanation:#}");
    verdict_outcome(&explanation["responses"][0])
}

fn verdict_outcome(verdict: &Value) -> [Value; 3] {
    ["verdict", "reason", "retry_after_s"].map(|member| verdict[member].clone())
}

/// A policy, and the log of some synthetic days.
struct ExplainLogFixture {
    dir: TempDir,
    yaml: String,
    log: String,
}

impl ExplainLogFixture {
    fn with_policy(policy: &str, days: u64) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let fixture = Self { dir, yaml: String::new(), log: String::new() };
        let lines = |number| log::lines(number, &day::generate(1 + number, 0.02)).collect::<String>();
        let (yaml, log) = (
            fixture.write_file("tidegate.yaml", policy),
            fixture.write_file("access.log", &(0..days).map(lines).collect::<String>()),
        );
        Self { yaml, log, ..fixture }
    }

    fn write_file(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        fs::write(&path, text).expect("file is writable");
        path.display().to_string()
    }

    fn verdicts(&self, options: &[&str]) -> Vec<Value> {
        let file = self.dir.path().join("verdicts.jsonl").display().to_string();
        let outcome =
            run(&[&["replay", "--config", &self.yaml, "--verdicts", &file, &self.log], options].concat(), b"");
        assert_eq!(outcome.code, 0, "{}", outcome.errors);
        let text = fs::read_to_string(file).expect("file was written");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    fn run(&self, arguments: &[&str]) -> ExitOutcome {
        let config = if arguments.contains(&"--config") { &[][..] } else { &["--config", &self.yaml] };
        run(&[&["explain"], config, arguments].concat(), b"")
    }

    fn explain_json(&self, line: &str, options: &[&str]) -> Value {
        let before = options.iter().position(|option| *option == "--log").map_or(&[][..], |_| options);
        let after = if before.is_empty() { options } else { &[][..] };
        let outcome = self.run(&[before, &["--json", "--log", line], after].concat());
        assert_eq!(outcome.code, 0, "{}", outcome.errors);
        serde_json::from_str(&outcome.output).expect("JSON")
    }

    fn page(&self, arguments: &[&str]) -> String {
        let outcome = run_in(self.dir.path(), &[&["explain", "--config", "tidegate.yaml"], arguments].concat());
        assert_eq!((outcome.code, &*outcome.errors), (0, ""));
        outcome.output
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
