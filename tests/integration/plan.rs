//! `tidegate plan` with the real program: a policy of a few lines that is valid, and what it keeps.

use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::program::{ExitOutcome, run};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// A model API with keys, `key-of-acme` and `key-of-trial`. The names of the quotas tell nothing of which is for each key.
const MODEL_API: &str = "
api_keys:
  - { name: acme, class: pro, sha256: 689febd264f8b977e29c0fdb75f839eb248ba07d1561b14f2b95f42756943245 }
  - { name: trial, class: pro, sha256: 3dfb31644d2f211cb9f95a142303b1b19c1ade944165d87fb9eb67b252496a44 }
quotas:
  units: { limit: 1000000, window: day, cost_json: usage.total_tokens }
  zz: { per: api_key, limit: 1000000, window: day, cost_json: usage.total_tokens }
classes: [{ name: pro, when: { api_key: own } }, { name: none, block: true, refuse_with: 401 }]
routes: [{ match: '/v1/**', cost: { units: 100, zz: 100 } }]
";

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

#[test]
fn tokens_of_a_model_api_are_those_that_its_log_charged_with_a_budget_for_each_key() {
    let site = DemoSite(tempfile::tempdir().expect("temporary directory"));
    let log = model_api_log();
    fs::write(site.log(), &log).expect("file is writable");
    let mut days = BTreeMap::<String, u64>::new();
    for line in log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")) {
        let day = line["time"].as_str().expect("a time")[..10].to_owned();
        *days.entry(day).or_default() += line["charged"]["units"].as_f64().unwrap_or_default() as u64;
    }
    let busiest = *days.values().max().expect("a day");

    let planned = run(&["plan", "--zone", "UTC", &site.log()], b"");
    assert_eq!((planned.code, planned.errors.as_str()), (0, ""));
    let yaml = planned.output;
    let lines: Vec<&str> = yaml.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(lines.len() <= 12, "{yaml}");
    for line in [
        "api_keys: []",
        "classes: [{ name: pro, when: { api_key: own } }, { name: nokey, block: true, refuse_with: 401 }]",
        "  - { match: /v1/chat/completions, method: POST, stream: true, cost: { units: &completions { json: [max_tokens, \
         max_completion_tokens], per_byte: 0.25, default: 500 }, zz: *completions } }",
        "  - { match: /v1/embeddings, method: POST, stream: true, cost: { units: &embeddings { per_byte: 0.25, default: 30 }, \
         zz: *embeddings } }",
        "#   calls: 0.0 % of them refused",
        "#   keys: 0 of 2 use up the budget of a day",
        "#   without a key: 2 requests get 401",
    ] {
        assert!(yaml.lines().any(|own| own == line), "{line}\n{yaml}");
    }
    fs::write(site.path("tidegate.yaml"), &yaml).expect("file is writable");
    let checked = run(&["check", &site.path("tidegate.yaml")], b"");
    assert_eq!((checked.code, checked.errors.as_str()), (0, ""));

    let replay = ["replay", "--json", "-", "--config", &site.path("tidegate.yaml"), &site.log()];
    let replayed = run(&replay, b"");
    assert_eq!((replayed.code, replayed.errors.as_str()), (0, ""));
    let policy = &serde_json::from_str::<Value>(&replayed.output).expect("JSON")["policies"][0];
    let (quota, budget) = (&policy["quotas"][0], &policy["budgets"][0]);
    let used = quota["windows"].as_array().expect("days").iter().map(|day| day["used"].as_f64()).max_by(f64_order);
    assert_eq!(used, Some(Some(busiest as f64)), "{quota}");
    let limit = quota["limit"].as_f64().expect("a number");
    assert!((busiest as f64..busiest as f64 * 1.1).contains(&limit), "{limit} {busiest}");
    let total = days.values().sum::<u64>() as f64;
    assert_eq!((&budget["used"], &budget["limited"], &budget["name"]), (&total.into(), &0.into(), &"zz".into()));
    // Nearly all is of one key: twice that is more than the limit.
    assert!(yaml.contains(&format!("  zz: {{ per: api_key, limit: {limit}, ")), "{yaml}");

    let half = (busiest / 2).to_string();
    let promise = promise(&["plan", "--zone", "UTC", "--json", "-", "--limit", &half, &site.log()]);
    assert!(promise["calls"]["refused"].as_f64() > Some(0.3), "{promise}");
    assert!(promise["spent_without"].is_string() && promise["overrun"] == 0.0, "{promise}");
}

fn f64_order(one: &Option<f64>, other: &Option<f64>) -> std::cmp::Ordering {
    one.unwrap_or_default().total_cmp(&other.unwrap_or_default())
}

/// Returns the log of a gateway before a model API, of 26 hours.
fn model_api_log() -> String {
    let origin = Origin::with_script(|request, connection| {
        connection.read_body(request);
        let tokens = if request.target == "/v1/embeddings" { 30 } else { 500 };
        let body = format!("{{\"usage\":{{\"total_tokens\":{tokens}}}}}");
        connection.reply("200 OK", "Content-Type: application/json\r\n", body.as_bytes());
    });
    let gateway = TestGateway::with_rules(origin.address(), MODEL_API);
    let call = |path: &str, key: &str| {
        let mut client = gateway.connect();
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: example.com\r\nAuthorization: Bearer {key}\r\nContent-Length: 2\r\n\r\n{{}}"
        ));
        client.read_response().status
    };
    for _ in 0..26 {
        for (path, key) in [
            ("/v1/chat/completions", "key-of-acme"),
            ("/v1/chat/completions", "key-of-acme"),
            ("/v1/embeddings", "key-of-trial"),
            ("/v1/chat/completions", "key-of-acme"),
        ] {
            assert_eq!(call(path, key), 200);
        }
        gateway.clock.advance(Duration::from_secs(3600));
    }
    assert_eq!([call("/v1/chat/completions", "key-of-nobody"), call("/v1/models", "")], [401, 401]);
    // Each worker writes its lines together.
    let log = gateway.read_log_text();
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    lines.join("\n") + "\n"
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
