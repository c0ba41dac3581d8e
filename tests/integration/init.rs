//! `tidegate init` with the real program: the configuration that it proposes for a log is valid.

use crate::support::program::{ExitOutcome, run};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use tidegate::demo::day;

#[test]
fn proposed_config_passes_check() {
    let ExitOutcome { code, output: yaml, errors } = run(&["init", "-"], synthetic_log().as_bytes());
    assert_eq!((code, errors.as_str()), (0, ""));
    let summary = check_output(&yaml);
    for expected in ["/item/*: 1 of pages", "/category/*: 1 of pages", "/search: 1 of pages", "bingbot or googlebot"] {
        assert!(summary.contains(expected), "{expected}\n{yaml}\n{summary}");
    }
}

#[test]
fn proposed_limit_covers_synthetic_log_with_free_assets() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let log = dir.path().join("day.log.gz");
    let mut encoder = GzEncoder::new(std::fs::File::create(&log).expect("file can be created"), Compression::fast());
    encoder.write_all(synthetic_log().as_bytes()).expect("file is writable");
    encoder.finish().expect("file is writable");
    let log = log.to_str().expect("a path as text");
    let [first, second] = [(); 2].map(|()| run(&["init", log], b""));
    assert_eq!((first.code, first.errors.as_str()), (0, ""));
    assert_eq!(first.output, second.output);
    check_output(&first.output);
    assert_limit_sufficient_and_assets_free(&first.output, log);
}

#[test]
fn proposals_for_real_logs_pass_check() {
    let Some(shared) = crate::support::shared_data() else { return };
    for name in ["semicomplete-2015", "wordpress-2022"] {
        let log = shared.join(format!("data/logs/{name}.combined.log.gz"));
        let log = log.to_str().expect("a path as text");
        let [first, second] = [(); 2].map(|()| run(&["init", log], b""));
        assert_eq!((first.code, first.errors.as_str()), (0, ""), "{name}");
        assert_eq!(first.output, second.output, "{name}");
        check_output(&first.output);
        assert_limit_sufficient_and_assets_free(&first.output, log);
    }
}

#[test]
fn proposal_counts_like_the_replay_of_it() {
    assert_counts_like_replay(&synthetic_log());
    let malformed = (0..7).map(|second| {
        format!("198.51.100.7 - - [07/Jun/2024:00:00:0{second} +0000] \"\\x16\\x03\" 400 0 \"-\" \"-\"\n")
    });
    assert_counts_like_replay(&(malformed.collect::<String>() + &synthetic_log()));
    let Some(shared) = crate::support::shared_data() else { return };
    for name in ["semicomplete-2015", "wordpress-2022"] {
        let log = std::fs::File::open(shared.join(format!("data/logs/{name}.combined.log.gz"))).expect("readable");
        assert_counts_like_replay(&std::io::read_to_string(GzDecoder::new(log)).expect("text"));
    }
}

#[test]
fn proposed_cache_loads_and_saves_what_its_comment_says() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("a path as text").to_owned();
    std::fs::write(path("access.log"), synthetic_log()).expect("file is writable");
    let yaml = run(&["init", &path("access.log")], b"").output;
    let comment = yaml.split_whitespace().filter(|word| *word != "#").collect::<Vec<_>>().join(" ");
    let (_, figures) = comment.split_once("stay fresh for 10m, 1h, 1d would have answered ").expect("figures");
    let shares: Vec<f64> = figures
        .split(", ")
        .take(3)
        .map(|share| share.split('%').next().expect("text").parse().expect("a share"))
        .collect();
    assert!(yaml.contains("\n# cache: {}\n") && shares.is_sorted() && shares[2] > 0.0, "{shares:?}\n{yaml}");
    std::fs::write(path("tidegate.yaml"), yaml.replace("\n# cache: {}\n", "\ncache: {}\n")).expect("file is writable");
    for (share, max_age) in shares.iter().zip(["10m", "1h", "1d"]) {
        let arguments = ["replay", "--config", &path("tidegate.yaml"), "--max-age", max_age, "--json", "-"];
        let outcome = run(&[&arguments[..], &[&path("access.log")]].concat(), b"");
        assert_eq!((outcome.code, outcome.errors.as_str()), (0, ""));
        let report: Value = serde_json::from_str(&outcome.output).expect("JSON");
        let policy = &report["policies"][0];
        let saved = policy["cache"]["saved"]["pages"].as_f64().unwrap_or(0.0);
        let windows = policy["quotas"][0]["windows"].as_array().expect("a list");
        let used: f64 = windows.iter().filter_map(|window| window["used"].as_f64()).sum();
        let saved_share = 100.0 * saved / (saved + used);
        assert!((saved_share - share).abs() < 0.5, "{saved_share} with {max_age}, the comment says {share}");
    }
}

/// Compares the counts in the comments of a proposal with the report of its replay.
fn assert_counts_like_replay(log: &str) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("a path as text").to_owned();
    std::fs::write(path("access.log"), log).expect("file is writable");
    let ExitOutcome { output: yaml, .. } = run(&["init", &path("access.log")], b"");
    std::fs::write(path("proposed.yaml"), &yaml).expect("file is writable");
    let replayed =
        run(&["replay", "--config", &path("proposed.yaml"), "--json", &path("report.json"), &path("access.log")], b"");
    assert_eq!((replayed.code, replayed.errors.as_str()), (0, ""));
    let report: Value = serde_json::from_str(&read(&path("report.json"))).expect("JSON");
    let policy = &report["policies"][0];
    let digits = |text: &str| text.replace(',', "");
    let text = digits(&yaml);
    let requests = &report["log"]["requests"];
    assert!(text.contains(&format!("# {requests} requests from ")), "{requests}\n{yaml}");
    if let Some(invalid @ 2..) = report["log"]["non_requests"].as_u64() {
        assert!(text.contains(&format!(" {invalid} further requests are invalid.")), "{yaml}");
    }
    let classes = policy["classes"].as_array().expect("a list");
    let people = classes.iter().find(|class| class["name"] == "person").expect("a class");
    assert!(text.contains(&format!("# {} requests of the log come from people", people["requests"])), "{yaml}");
    let used = policy["quotas"][0]["windows"].as_array().expect("a list");
    let busiest = used.iter().filter_map(|window| window["used"].as_f64()).fold(0.0, f64::max);
    assert!(
        text.contains(&format!("# {busiest} on the ")) || text.contains(&format!("# {busiest} in about ")),
        "{yaml}"
    );
    let routes = policy["routes"].as_array().expect("a list");
    assert!(routes.len() > 2, "{policy}");
    for route in routes {
        let name = route["name"].as_str().expect("a pattern");
        let commented = text.lines().filter(|line| line.contains(&format!("match: \"{name}\"")));
        let sum: u64 = commented
            .filter_map(|line| line.split_once("of the units (")?.1.split(' ').next()?.parse::<u64>().ok())
            .sum();
        assert_eq!(Some(sum), requests_of(routes, name), "{name}: {yaml}");
    }
    let client = &policy["spenders"]["clients"][0];
    let most = format!("Most by clients: {} ({}) {}", client["name"], client["kind"], client["units_asked"]);
    let most = most.replace('"', "").replace('_', " ").trim_end_matches(".0").to_owned();
    assert!(text.contains(&most), "{most}: {yaml}");
}

/// Returns the requests of all routes with a pattern: two may differ in their query.
fn requests_of(routes: &[Value], name: &str) -> Option<u64> {
    routes.iter().filter(|route| route["name"] == name).map(|route| route["requests"].as_u64()).sum()
}

#[test]
fn log_that_is_not_in_order_is_recognized() {
    let log = synthetic_log();
    let (first, second) = log.split_at(log[..log.len() / 2].rfind('\n').expect("a line") + 1);
    let note = format!("# CHANGE: {} of the lines are over a minute late", first.lines().count());
    let yaml = run(&["init", "-"], (second.to_owned() + first).as_bytes()).output;
    assert!(yaml.replace(',', "").contains(&note), "{note}: {yaml}");
    assert!(!run(&["init", "-"], log.as_bytes()).output.contains("late"));
}

#[test]
fn log_of_a_proxy_is_recognized() {
    let proxied: String = synthetic_log()
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(_, rest)| format!("10.0.0.7 {rest}\n"))
        .collect();
    let note = "# CHANGE: nearly all requests came from 10.0.0.0/24, which looks like a proxy";
    let yaml = run(&["init", "-"], proxied.as_bytes()).output;
    assert!(yaml.contains(note), "{yaml}");
    check_output(&yaml);
    assert!(!run(&["init", "-"], synthetic_log().as_bytes()).output.contains("looks like a proxy"));
}

/// Replays the log of which the proposal was generated: the limit suffices, and assets are free.
fn assert_limit_sufficient_and_assets_free(yaml: &str, log: &str) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("a path as text").to_owned();
    std::fs::write(path("proposed.yaml"), yaml).expect("file is writable");
    let (config, report, verdicts) = (path("proposed.yaml"), path("report.json"), path("verdicts.jsonl"));
    let replayed = run(&["replay", "--config", &config, "--json", &report, "--verdicts", &verdicts, log], b"");
    assert_eq!((replayed.code, replayed.errors.as_str()), (0, ""));
    let report: Value = serde_json::from_str(&read(&report)).expect("JSON");
    let (policy, quota) = (&report["policies"][0], &report["policies"][0]["quotas"][0]);
    assert_eq!(policy["refused"], 0, "the proposal refuses no request");
    let limit = quota["limit"].as_f64().expect("a number");
    let used =
        quota["windows"].as_array().expect("a list").iter().map(|window| window["used"].as_f64().expect("a number"));
    let max_used = used.fold(0.0, f64::max);
    assert!(max_used <= limit && limit <= max_used * 1.1, "{max_used} of {limit}\n{yaml}");
    let costs = cost_by_extension(&verdicts, Path::new(log));
    for extension in ["css", "png", "jpg", "gif", "js", "ico", "woff2"] {
        assert_eq!(costs.get(extension).copied().unwrap_or(0.0), 0.0, ".{extension}\n{yaml}");
    }
}

/// Returns the charged cost by file extension.
fn cost_by_extension(verdicts: &str, log: &Path) -> BTreeMap<String, f64> {
    let lines = gzip_lines(log);
    let mut costs = BTreeMap::new();
    for verdict in read(verdicts).lines() {
        let verdict: Value = serde_json::from_str(verdict).expect("JSON");
        let line = lines[verdict["line"].as_u64().expect("a number") as usize - 1].as_str();
        let target = line.split('"').nth(1).and_then(|request| request.split(' ').nth(1)).unwrap_or_default();
        let path = target.split('?').next().unwrap_or_default();
        let extension =
            path.rsplit('/').next().and_then(|name| name.rsplit_once('.')).map_or("", |(_, extension)| extension);
        let cost = verdict["cost"].as_object().map_or(0.0, |cost| cost.values().filter_map(Value::as_f64).sum());
        *costs.entry(extension.to_ascii_lowercase()).or_default() += cost;
    }
    costs
}

fn gzip_lines(log: &Path) -> Vec<String> {
    let mut text = Vec::new();
    let file = std::fs::File::open(log).expect("file exists");
    std::io::Read::read_to_end(&mut flate2::read::MultiGzDecoder::new(file), &mut text).expect("complete gzip file");
    text.split(|byte| *byte == b'\n').map(|line| String::from_utf8_lossy(line).into_owned()).collect()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).expect("file was written")
}

#[test]
fn log_without_requests_is_an_error() {
    let ExitOutcome { code, output, errors } = run(&["init", "-"], b"hello\n");
    assert_eq!((code, output.as_str()), (2, ""));
    assert!(
        errors
            .starts_with("-: no requests found in 1 lines; first invalid line -:1: in no known format; --format takes"),
        "{errors}"
    );
    assert_eq!(run(&["init", "nowhere.log"], b"").code, 2);
    assert_eq!(run(&["init"], b"").code, 2);
}

/// Returns the output of `tidegate check` for the file.
fn check_output(yaml: &str) -> String {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("proposed.yaml");
    std::fs::write(&file, yaml).expect("file is writable");
    let ExitOutcome { code, output, errors } = run(&["check", file.to_str().expect("a path as text")], b"");
    assert_eq!((code, errors.as_str()), (0, ""), "{yaml}");
    output
}

fn synthetic_log() -> String {
    tidegate::demo::log::lines(1, &day::generate(1, 0.1)).collect()
}
