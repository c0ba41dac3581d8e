//! `tidegate plan` with the real program: a policy of a few lines that is valid, and what it keeps.

use crate::support::program::{ExitOutcome, run};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

#[test]
fn policy_has_twelve_lines_and_passes_check() {
    let site = DemoSite::new();
    let [first, second] = [(); 2].map(|()| run(&["plan", &site.log()], b""));
    assert_eq!((first.code, first.errors.as_str()), (0, ""));
    assert_eq!(first.output, second.output, "the same log gives the same policy");
    let lines = first.output.lines().filter(|line| !line.starts_with('#')).count();
    assert!((4..=12).contains(&lines), "{}", first.output);
    fs::write(site.path("tidegate.yaml"), &first.output).expect("file is writable");
    let checked = run(&["check", &site.path("tidegate.yaml")], b"");
    assert_eq!((checked.code, checked.errors.as_str()), (0, ""));
    assert!(checked.output.contains("quotas.pages.pacing: { mode: learned"), "{}", checked.output);
}

#[test]
fn promise_on_the_days_of_the_demo() {
    let site = DemoSite::new();
    let busiest = promise(&["plan", "--json", "-", &site.log()]);
    assert!(busiest["search_admitted"].as_f64() >= Some(0.99), "{busiest}");
    assert_eq!((&busiest["people_refused"], &busiest["spent_without"]), (&0.0.into(), &Value::Null), "{busiest}");
    // About half of what is asked for.
    let half = promise(&["plan", "--json", "-", "--limit", "6000", &site.log()]);
    assert!(half["search_admitted"].as_f64() >= Some(0.92), "{half}");
    assert!(half["people_refused"].as_f64() <= Some(0.001) && half["left_over"].as_f64() <= Some(0.01), "{half}");
    assert!(half["spent_without"].is_string() && half["overrun"] == 0.0, "{half}");
}

#[test]
fn promise_on_real_logs() {
    let Some(shared) = crate::support::shared_data() else { return };
    for (name, search) in [("semicomplete-2015", Some(0.99)), ("wordpress-2022", None)] {
        let log = shared.join(format!("data/logs/{name}.combined.log.gz"));
        let promise = promise(&["plan", "--json", "-", log.to_str().expect("a path as text")]);
        assert!(promise["search_admitted"].as_f64() >= search, "{name}: {promise}");
        assert!(promise["people_refused"].as_f64() <= Some(0.001), "{name}: {promise}");
    }
}

#[test]
fn page_begins_with_the_promise() {
    let site = DemoSite::new();
    let planned = run(&["plan", "--limit", "6000", "--html", &site.path("plan.html"), &site.log()], b"");
    assert_eq!((planned.code, planned.errors.as_str()), (0, ""));
    let page = fs::read_to_string(site.path("plan.html")).expect("the page was written");
    let sentences: Vec<&str> = planned.output.lines().filter_map(|line| line.strip_prefix("#   ")).collect();
    assert!(sentences.len() >= 5, "{}", planned.output);
    for sentence in sentences {
        let escaped = sentence.replace('\'', "&#39;");
        assert!(page.contains(&format!("<li>{escaped}</li>")), "{sentence}");
    }
}

#[test]
fn invalid_arguments_and_logs_are_errors_that_say_what_would_do() {
    let site = DemoSite::new();
    let log = site.log();
    fs::write(site.path("garbage.log"), "no log\n").expect("file is writable");
    for (arguments, error) in [
        (vec!["plan", "--origin", "localhost", &log], "--origin: origin.url: "),
        (vec!["plan", "--zone", "Mars", &log], "use an IANA name such as America/Los_Angeles"),
        (vec!["plan", "--limit", "0", &log], "0 is not in 1..=1000000000000"),
        (vec!["plan", "--json", &log, &log], "is read as a log; name another file"),
        (vec!["plan", &site.path("garbage.log")], "no requests found in 1 lines; first invalid line"),
        (vec!["plan", &site.path("absent.log")], "absent.log"),
    ] {
        let outcome = run(&arguments, b"");
        assert_eq!((outcome.code, outcome.output.as_str()), (2, ""), "{arguments:?}");
        assert!(outcome.errors.contains(error), "{arguments:?}: {}", outcome.errors);
    }
    assert!(fs::metadata(&log).expect("the log").len() > 1000, "the log is as before");
}

/// Two simulated days of a shop.
struct DemoSite(TempDir);

impl DemoSite {
    fn new() -> Self {
        let site = Self(tempfile::tempdir().expect("temporary directory"));
        let written = run(&["demo", "--log", &site.log(), "--days", "2"], b"");
        assert_eq!(written.code, 0, "{}", written.errors);
        site
    }

    fn log(&self) -> String {
        self.path("access.log")
    }

    fn path(&self, name: &str) -> String {
        let path: PathBuf = self.0.path().join(name);
        path.to_str().expect("a path as text").to_owned()
    }
}

fn promise(arguments: &[&str]) -> Value {
    let ExitOutcome { code, output, errors } = run(arguments, b"");
    assert_eq!((code, errors.as_str()), (0, ""), "{arguments:?}");
    serde_json::from_str(&output).expect("JSON")
}
