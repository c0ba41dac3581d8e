//! `tidegate tune`: tiers that meet a goal, on logs for which the best result is known.

use crate::support::program::{ExitOutcome, run, run_in};
use serde_json::Value;
use std::fs;
use tempfile::TempDir;

#[test]
fn best_share_is_found_changing_only_tiers() {
    let fixture = TuneFixture::with_rules(&rules_with_tier_at("90%"));
    let report = fixture.met_goal_report("person refused <= 0, search admitted >= 60 %");
    assert_eq!(report["tiers"][0]["present"], json_list(&["90%:100%"]));
    assert_eq!(term_values(&report, "present"), [30.0, 90.0]);
    assert_eq!(
        term_values(&report, "found"),
        [0.0, 60.0],
        "with one more unit, a human request would be refused in the evening"
    );
    let patch = report["patch"].as_str().expect("patch is a string");
    let changed: Vec<&str> = patch.lines().filter(|line| line.starts_with(['-', '+'])).skip(2).collect();
    let [old, new] = changed[..] else { panic!("{patch}") };
    assert_eq!(old, "-      search: [{ above: 90%, shed: 100% }]   # as last year");
    assert!(new.starts_with("+      search: [{ above: ") && new.ends_with("% }]   # by tidegate tune"), "{patch}");
}

#[test]
fn written_config_passes_check_and_matches_report() {
    let fixture = TuneFixture::with_rules(&rules_with_tier_at("90%"));
    let goal = "person refused <= 0, search admitted >= 60 %";
    let outcome = fixture.tune(&["--goal", goal, "--output", &fixture.path("new.yaml")]);
    assert_eq!((outcome.code, &*outcome.errors), (0, ""));
    assert_eq!(fixture.read("tidegate.yaml"), rules_with_tier_at("90%"), "the input file is not modified");
    let checked = run(&["check", &fixture.path("new.yaml")], b"");
    assert_eq!((checked.code, &*checked.errors), (0, ""));
    let replayed = run(
        &[
            "replay",
            "--config",
            &fixture.path("new.yaml"),
            "--json",
            &fixture.path("report.json"),
            &fixture.path("access.log"),
        ],
        b"",
    );
    assert_eq!(replayed.code, 0, "{}", replayed.errors);
    let replayed: Value = serde_json::from_str(&fixture.read("report.json")).expect("JSON");
    let classes = &replayed["policies"][0]["classes"];
    assert_eq!((&classes[0]["costly_admitted"], &classes[1]["refused"]), (&60.into(), &serde_json::json!({})));
}

#[test]
fn search_counts_with_the_cache_of_the_file() {
    let cached = format!("cache: {{}}\n{}", rules_with_tier_at("90%"));
    let fixture = TuneFixture::with_rules(&cached);
    // All of the morning again, which the cache answers.
    let evening = |minute: u32| log_line(7, 13 * 60 + minute * 6, &format!("/{minute}"), HUMAN);
    fs::write(fixture.path("access.log"), morning_log(7, 100) + &(0..100).map(evening).collect::<String>())
        .expect("file is writable");
    let goal = "person refused <= 0";
    let outcome = fixture.tune(&["--json", "--goal", goal, "--max-age", "1d"]);
    assert_eq!((outcome.code, &*outcome.errors), (0, ""), "{}", outcome.output);
    let report: Value = serde_json::from_str(&outcome.output).expect("JSON");
    assert_eq!((&report["cache"]["hits"], &report["patch"]), (&90.into(), &"".into()), "{report}");
    let (_, page) = (fixture.tune(&["--goal", goal]).code, fixture.tune(&["--goal", goal, "--max-age", "1d"]).output);
    assert!(one_line(&page).contains("cache: answered 90 of"), "{page}");
    assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
    fs::write(fixture.path("tidegate.yaml"), rules_with_tier_at("90%")).expect("file is writable");
    let report = serde_json::from_str::<Value>(&fixture.tune(&["--json", "--goal", goal]).output).expect("JSON");
    assert!(report["cache"].is_null() && report["terms"][0]["present"].as_f64() > Some(50.0), "{report}");
}

#[test]
fn inputs_are_never_overwritten() {
    let fixture = TuneFixture::with_rules(&rules_with_tier_at("90%"));
    let goal = ["--goal", "person refused <= 0"];
    for (name, expected) in [("access.log", "is read as a log"), ("tidegate.yaml", "is read as --config")] {
        let before = fixture.read(name);
        let outcome = fixture.tune(&[&goal[..], &["--output", &fixture.path(name)]].concat());
        assert_eq!(outcome.code, 2, "{}", outcome.errors);
        assert!(outcome.errors.contains(&format!("--output: {} {expected}", fixture.path(name))), "{}", outcome.errors);
        assert_eq!(fixture.read(name), before);
    }
    let outcome = fixture.tune(&[&goal[..], &["--output", "-", "--json"]].concat());
    assert!(outcome.errors.contains("--output: - is the output of --json"), "{}", outcome.errors);
    let outcome = fixture.tune(&[&goal[..], &["--output", "-"]].concat());
    assert_eq!((outcome.code, &*outcome.errors), (0, ""));
    assert!(outcome.output.starts_with("origin: ") && !outcome.output.contains("Goal"), "{}", outcome.output);
}

#[test]
fn unmet_goal_reports_nearest_policy_by_term_order() {
    let fixture = TuneFixture::with_rules(&rules_with_tier_at("90%"));
    for (goal, expected) in [
        ("person refused <= 0, search admitted >= 80 %", [0.0, 60.0]),
        ("search admitted >= 80 %, person refused <= 0", [80.0, 20.0]),
    ] {
        let outcome = fixture.tune(&["--json", "--goal", goal]);
        assert_eq!(outcome.code, 1, "{}", outcome.errors);
        let report: Value = serde_json::from_str(&outcome.output).expect("JSON");
        assert_eq!((&report["met"], term_values(&report, "found")), (&false.into(), expected.to_vec()), "{report:#}");
        assert_eq!(term_values(&report, "short_by"), [0.0, 20.0]);
    }
    let output = fixture.tune(&["--goal", "person refused <= 0, search admitted >= 80 %"]).output;
    let verdict = "policies tried meets the goal; --max-trials NUMBER tries more. The nearest policy has these values";
    assert!(output.contains("missed by 20.0 %") && one_line(&output).contains(verdict), "{output}");
}

#[test]
fn impossible_goal_is_reported_with_best_value() {
    let fixture = TuneFixture::with_rules(&rules_with_tier_at("90%").replace("limit: 100", "limit: 30"));
    let (code, page) = fixture.page("person refused <= 0, search admitted >= 5 %", "12");
    insta::assert_snapshot!(page);
    assert_eq!(code, 1);
}

#[test]
fn full_shedding_is_found_with_little_effort() {
    let fixture = TuneFixture::with_rules(&rules_with_tier_at("90%").replace("limit: 100", "limit: 40"));
    let outcome = fixture.tune(&["--max-trials", "3", "--json", "--goal", "person refused <= 0"]);
    assert_eq!(outcome.code, 0, "{}", outcome.output);
    let report: Value = serde_json::from_str(&outcome.output).expect("JSON");
    assert_eq!(report["tiers"][0]["found"], json_list(&["0%:100%"]));
}

#[test]
fn another_trade_off_point_can_be_picked() {
    let fixture = TuneFixture::with_rules(&rules_with_tier_at("90%"));
    let goal = ["--goal", "person refused <= 0, search admitted >= 60 %", "--json"];
    let points = fixture.met_goal_report("person refused <= 0, search admitted >= 60 %")["trade_off"]["points"].clone();
    let last = points.as_array().expect("a list").last().expect("one point").clone();
    let number = last["number"].to_string();
    let outcome = fixture.tune(&[&goal[..], &["--select", &number, "--output", &fixture.path("new.yaml")]].concat());
    assert_eq!((outcome.code, &*outcome.errors), (0, ""));
    let report: Value = serde_json::from_str(&outcome.output).expect("JSON");
    assert_eq!((&report["picked"], &report["tiers"][0]["found"]), (&last["number"], &last["tiers"]["search"]));
    assert_eq!(
        term_values(&report, "found"),
        [last["x"].as_f64().expect("a number"), last["y"].as_f64().expect("a number")]
    );
    let checked = run(&["check", &fixture.path("new.yaml")], b"");
    assert_eq!((checked.code, &*checked.errors), (0, ""));
    let outcome = fixture.tune(&[&goal[..], &["--select", "1000"]].concat());
    assert_eq!(outcome.code, 2);
    assert!(outcome.errors.contains("--select: no point 1000; points are numbered from 1 to "), "{}", outcome.errors);
}

#[test]
fn already_met_goal_changes_nothing() {
    let fixture = TuneFixture::with_rules(&rules_with_tier_at("60%"));
    let goal = "person refused <= 0, search admitted >= 60 %";
    assert_eq!(fixture.met_goal_report(goal)["patch"], "");
    let output = fixture.tune(&["--goal", goal, "--output", &fixture.path("new.yaml")]).output;
    assert!(output.contains("The file already meets the goal."), "{output}");
    assert_eq!(fixture.read("new.yaml"), rules_with_tier_at("60%"));
}

#[test]
fn output_is_deterministic() {
    let fixture = TuneFixture::with_rules(&rules_with_tier_at("90%"));
    let goal = ["--goal", "person refused <= 0, search evenness >= 50 %, unused <= 10 %"];
    let tuned = || [fixture.tune(&goal).output, fixture.tune(&[&goal[..], &["--json"]].concat()).output];
    let first = tuned();
    assert!(first.iter().all(|output| !output.is_empty()));
    assert_eq!(first, tuned());
}

#[test]
fn trade_off_points_are_monotonic() {
    let fixture = TuneFixture::with_rules(&rules_with_tier_at("90%"));
    let report = fixture.met_goal_report("person refused <= 0, search admitted >= 60 %");
    let trade_off = &report["trade_off"];
    assert_eq!(
        (&trade_off["x"]["measure"], &trade_off["y"]["measure"]),
        (&"person refused".into(), &"search admitted".into())
    );
    let points = trade_off["points"].as_array().expect("a list");
    let values_of = |key: &str| points.iter().map(|point| point[key].as_f64().expect("a number")).collect::<Vec<_>>();
    assert!(
        values_of("x").is_sorted() && values_of("y").is_sorted(),
        "more served requests cost more refused ones: {points:?}"
    );
    assert!(points.len() >= 5, "{points:?}");
    for flag in ["present", "found"] {
        assert_eq!(points.iter().filter(|point| point[flag] == true).count(), 1, "{flag}: {points:?}");
    }
}

#[test]
fn the_page_fits_a_terminal() {
    let fixture = TuneFixture::with_rules(&rules_with_tier_at("90%"));
    let (code, page) = fixture.page("person refused <= 0, search admitted >= 60 %", "100");
    insta::assert_snapshot!(page);
    assert_eq!(code, 0);
    assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
}

#[test]
fn fully_shed_class_stays_unless_goal_names_it() {
    let rules =
        rules_with_tier_at("90%").replace("      search: [", "      bot: [{ above: 0%, shed: 100% }]\n      search: [");
    let rules = rules.replace("classes:\n", "classes:\n  - { name: bot, when: { user_agent: [\"*wget*\"] } }\n");
    let fixture = TuneFixture::with_rules(&rules);
    let names = |goal: &str| {
        let report: Value = serde_json::from_str(&fixture.tune(&["--json", "--goal", goal]).output).expect("JSON");
        let classes = report["tiers"].as_array().expect("a list").clone();
        classes.iter().map(|class| class["class"].as_str().expect("class has a name").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("person refused <= 0"), ["search"]);
    assert_eq!(names("person refused <= 0, bot admitted >= 10 %"), ["bot", "search"]);
}

#[test]
fn unused_counts_only_fully_logged_windows() {
    let fixture = TuneFixture::with_rules(&rules_with_tier_at("90%"));
    let log = day_log(7) + &morning_log(8, 10);
    fixture.write("access.log", &log);
    let report = fixture.met_goal_report("unused <= 0 %");
    assert_eq!(term_values(&report, "present"), [0.0], "incomplete windows do not count");
    assert_eq!((&report["log"]["windows"], &report["log"]["windows_are_whole"]), (&1.into(), &true.into()));
    fixture.write("access.log", &morning_log(8, 10));
    let outcome = fixture.tune(&["--goal", "unused <= 0 %"]);
    assert_eq!(outcome.code, 1);
    assert!(outcome.output.contains("no window of api is completely in the log"), "{}", outcome.output);
}

#[test]
fn invalid_goals_and_files_give_hints() {
    let fixture = TuneFixture::with_rules(&rules_with_tier_at("90%"));
    fixture.write(
        "flat.yaml",
        &rules_with_tier_at("90%")
            .replace("    tiers:\n      search: [{ above: 90%, shed: 100% }]   # as last year\n", ""),
    );
    fixture.write("shadow.yaml", &rules_with_tier_at("90%").replace("limit: 100", "limit: 100\n    enforce: false"));
    let budget = "customer: { per: client, limit: 9 }";
    fixture.write("both.yaml", &rules_with_tier_at("90%").replace("quotas:\n", &format!("quotas:\n  {budget}\n")));
    let budgets = "origin: http://127.0.0.1:1\nroutes: [{ match: /**, cost: { customer: 1 } }]";
    fixture.write("budgets.yaml", &format!("{budgets}\nquotas: {{ {budget} }}\n"));
    for (arguments, expected) in [
        (
            vec!["--goal", "customer used <= 1 %", "--config", &fixture.path("both.yaml")],
            "customer has a budget for each key (`per`), and used is measured of all requests together",
        ),
        (
            vec!["--goal", "unused <= 1 %", "--quota", "customer", "--config", &fixture.path("both.yaml")],
            "--quota: customer has a budget for each key (`per`), without tiers and pacing; name one of the quotas api",
        ),
        (
            vec!["--goal", "unused <= 1 %", "--config", &fixture.path("budgets.yaml")],
            "no quota to tune: each has a budget for each key (`per`)",
        ),
        (
            vec!["--goal", "unused <= 1 %", "--config", &fixture.path("shadow.yaml")],
            "api refuses no request (`enforce: false`)",
        ),
        (vec!["--goal", "serch admitted >= 1 %"], "--goal:1: \"serch admitted >= 1 %\": unknown class \"serch\""),
        (vec!["--goal", "unused <= 1 %", "--quota", "apis"], "--quota: unknown quota \"apis\"; the quotas are api"),
        (vec!["--goal", "unused <= 1 %", "--config", &fixture.path("none.yaml")], "none.yaml: cannot be read"),
        (vec!["--goal", "unused <= 1 %", "--config", &fixture.path("flat.yaml")], "no class has tunable tiers in api"),
        (vec!["--goal", "unused <= 1 %", "--actual-cost", "/other=1"], "--actual-cost: unknown route \"/other\""),
        (vec![], "--goal <GOAL>"),
    ] {
        let outcome = fixture.tune(&arguments);
        assert_eq!(outcome.code, 2, "{arguments:?}: {}", outcome.errors);
        assert!(outcome.errors.contains(expected), "{arguments:?}: {}", outcome.errors);
    }
}

/// A temporary directory with a policy and the log of a day.
struct TuneFixture {
    dir: TempDir,
}

impl TuneFixture {
    fn with_rules(rules: &str) -> Self {
        let fixture = Self { dir: tempfile::tempdir().expect("temporary directory") };
        fixture.write("tidegate.yaml", rules);
        fixture.write("access.log", &day_log(7));
        fixture
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("file is writable");
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("file was written")
    }

    fn tune(&self, arguments: &[&str]) -> ExitOutcome {
        let (config, log) = (self.path("tidegate.yaml"), self.path("access.log"));
        let config = if arguments.contains(&"--config") { vec![] } else { vec!["--config", &*config] };
        let effort = if arguments.contains(&"--max-trials") { vec![] } else { vec!["--max-trials", "100"] };
        run(&[&["tune"], &effort[..], &config[..], arguments, &[&*log]].concat(), b"")
    }

    /// Returns the exit code and the page of a search.
    fn page(&self, goal: &str, max_trials: &str) -> (i32, String) {
        let arguments = ["tune", "--config", "tidegate.yaml", "--max-trials", max_trials, "--goal", goal, "access.log"];
        let outcome = run_in(self.dir.path(), &arguments);
        assert_eq!(outcome.errors, "");
        (outcome.code, outcome.output)
    }

    /// Returns the report of a goal that is met.
    fn met_goal_report(&self, goal: &str) -> Value {
        let outcome = self.tune(&["--json", "--goal", goal]);
        assert_eq!((outcome.code, &*outcome.errors), (0, ""), "{goal}: {}", outcome.output);
        serde_json::from_str(&outcome.output).expect("JSON")
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn term_values(report: &Value, key: &str) -> Vec<f64> {
    let terms = report["terms"].as_array().expect("a list");
    terms.iter().map(|term| term[key].as_f64().expect("a number")).collect()
}

fn json_list(items: &[&str]) -> Value {
    items.iter().copied().collect()
}

/// Returns the log of a day with a quota of 100 units: a crawler requests all of them until noon, then 40 humans
/// follow.
fn day_log(date: u32) -> String {
    let evening_line = |number: u32| log_line(date, 18 * 60 + number * 9, &format!("/{number}"), HUMAN);
    morning_log(date, 100) + &(0..40).map(evening_line).collect::<String>()
}

fn morning_log(date: u32, requests: u32) -> String {
    (0..requests).map(|page| log_line(date, page * 7, &format!("/{page}"), "curl/8.0")).collect()
}

fn log_line(date: u32, minute: u32, path: &str, agent: &str) -> String {
    let (hour, minute) = (minute / 60, minute % 60);
    format!(
        "192.0.2.1 - - [{date:02}/Jun/2024:{hour:02}:{minute:02}:00 +0000] \"GET {path} HTTP/1.1\" 200 512 \"-\" \"{agent}\"\n"
    )
}

const HUMAN: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";

fn rules_with_tier_at(threshold: &str) -> String {
    format!(
        r#"origin: {{ url: "http://127.0.0.1:1" }}
bot_detection: {{ enabled: false }}
quotas:
  api:
    limit: 100
    window: {{ calendar: day, zone: UTC, at: "00:00" }}
    tiers:
      search: [{{ above: {threshold}, shed: 100% }}]   # as last year
classes:
  - {{ name: search, when: {{ kind: [verified_bot, declared_bot] }} }}
  - {{ name: person, when: {{}} }}
routes: [ {{ match: "/**", cost: {{ api: 1 }} }} ]
"#
    )
}
