//! Explanations of live refusals: the gateway names the step and the line of the YAML file, and the changes that would
//! admit the request do admit it.

use crate::support::client::{Client, Response};
use crate::support::gateway::{NOON, TestGateway};
use crate::support::origin::Origin;
use crate::support::paced_site::RULES as PACED;
use crate::support::program::{Program, run};
use crate::support::redis::RedisServer;
use crate::support::wait::{wait_for, wait_until};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use tidegate_engine::clock::Clock;
use tidegate_policy::Timestamp;

const GOOGLEBOT: &str = "User-Agent: Googlebot/2.1\r\n";
const CURL: &str = "User-Agent: curl/8.0\r\n";

#[test]
fn tier_refusal_explains_usage_and_class_remedies() {
    let gateway = TestGateway::with_rules(Origin::plain().address(), RULES);
    gateway.set_used("api", 30);
    let explanation = RefusalExplanation::from_response(&gateway, &assert_refused(&gateway, CURL, "tier"));
    assert_eq!(explanation.deciding_rule("tier"), "quotas.api.tiers.bot[0]");
    let max_used = explanation.remedy_numbers("used")["used_at_most"]["api"].as_f64().expect("a number");
    assert_eq!(max_used, 19.0, "a tier ends below its threshold (hysteresis)");
    gateway.set_used("api", 20);
    assert_refused(&gateway, CURL, "tier");
    gateway.set_used("api", 19);
    assert_admitted(&gateway, CURL);

    gateway.set_used("api", 30);
    assert_refused(&gateway, CURL, "tier");
    assert!(
        explanation.remedy_numbers("class")["classes"].as_array().expect("classes").contains(&"person".into()),
        "{explanation:?}"
    );
    assert_admitted(&gateway, "");
    gateway.clock.set(explanation.retry_time());
    assert_admitted(&gateway, CURL);
}

#[test]
fn partial_shed_refusal_explains_the_next_admission() {
    let gateway = TestGateway::with_rules(Origin::plain().address(), RULES);
    gateway.set_used("api", 60);
    let fetcher = "User-Agent: FeedFetcher/1.0\r\n";
    assert_admitted(&gateway, fetcher);
    let explanation = RefusalExplanation::from_response(&gateway, &assert_refused(&gateway, fetcher, "tier"));
    assert_eq!(explanation.deciding_rule("tier"), "quotas.api.tiers.feed.steps[0]");
    assert_eq!(explanation.remedy_numbers("position")["admit_share"], 0.5);
    assert_admitted(&gateway, fetcher);
    assert_refused(&gateway, fetcher, "tier");
    gateway
        .set_used("api", explanation.remedy_numbers("used")["used_at_most"]["api"].as_f64().expect("a number") as u32);
    (0..3).for_each(|_| assert_admitted(&gateway, fetcher));
}

#[test]
fn quota_refusal_explains_cost_and_time_remedies() {
    let gateway = TestGateway::with_rules(Origin::plain().address(), RULES);
    gateway.set_used("api", 98);
    let refused = gateway.connect().get("/dear", "");
    assert_eq!(refused.json()["reason"], "quota");
    let explanation = RefusalExplanation::from_response(&gateway, &refused);
    assert_eq!(explanation.deciding_rule("quota"), "quotas.api.limit");
    assert_eq!(
        (&explanation.remedy_numbers("cost")["cost_at_most"], explanation.single_outcome()["status"].as_u64()),
        (&2.0.into(), Some(429))
    );
    assert_eq!(explanation.single_outcome()["retry_after_s"].to_string(), refused.field("retry-after"));
    assert_admitted(&gateway, "");
    gateway
        .set_used("api", explanation.remedy_numbers("used")["used_at_most"]["api"].as_f64().expect("a number") as u32);
    assert_eq!(gateway.connect().get("/dear", "").status, 200);
    gateway.set_used("api", 98);
    assert_eq!(gateway.connect().get("/dear", "").status, 429);
    gateway.clock.set(explanation.retry_time());
    assert_eq!(gateway.connect().get("/dear", "").status, 200);
}

#[test]
fn ledger_refusal_explains_the_missing_lease() {
    let redis = RedisServer::start(&[]);
    let rules = format!(
        "ledger: {{ redis: {{ url: 'redis://127.0.0.1:{}', failure_mode: refuse }} }}\n\
         quotas: {{ api: {{ limit: 1000, window: {{ fixed: 7d }} }} }}\n\
         routes: [{{ match: /page, cost: {{ api: 1 }} }}]",
        redis.port
    );
    let gateway = TestGateway::with_clock(Origin::plain().address(), &rules, Clock::system());
    let is_served = || gateway.connect().get("/page", "").status == 200;
    wait_until("a new ledger to grant leases, which takes three seconds", is_served);
    redis.set_frozen(true);
    let refused = wait_for("the leased units to be used, which are never all", || {
        Some(gateway.connect().get("/page", "")).filter(|response| response.status != 200)
    });
    let explanation = RefusalExplanation::from_response(&gateway, &refused);
    assert_eq!(explanation.deciding_rule("quota"), "quotas.api.limit");
    let step = explanation.find_step("quota");
    assert!(step["numbers"]["remaining"].as_f64() >= Some(1.0), "units are left, but not leased: {step}");
    assert!(
        step["message"].as_str().is_some_and(|message| message.contains("the ledger has not leased enough")),
        "{step}"
    );
    let remedies = explanation.0["remedies"].as_array().expect("remedies");
    let messages: Vec<&Value> = remedies.iter().map(|remedy| &remedy["message"]).collect();
    assert_eq!(messages, ["a retry once the ledger has leased more"]);
    assert_refused(&gateway, "", "ledger");
    redis.set_frozen(false);
    wait_until("the server to resume with its data", is_served);
}

#[test]
fn pacing_refusal_explains_plan_and_class_remedies() {
    let gateway = TestGateway::with_rules(Origin::plain().address(), PACED);
    (0..5).for_each(|_| assert_admitted(&gateway, CURL));
    let explanation = RefusalExplanation::from_response(&gateway, &assert_refused(&gateway, CURL, "pacing"));
    assert_eq!(explanation.deciding_rule("pacing"), "quotas.api.pacing");
    assert_eq!(
        (&explanation.find_step("tier")["finding"], &explanation.find_step("quota")["finding"]),
        (&"passed".into(), &"passed".into())
    );
    let numbers = &explanation.find_step("pacing")["numbers"];
    assert_eq!((&numbers["mode"], &numbers["burst"], &numbers["planned"]), (&"even".into(), &5.0.into(), &50.0.into()));
    assert_eq!(
        (&numbers["tokens"], &numbers["admit_share"], &numbers["earmarked"]),
        (&0.0.into(), &0.833_333.into(), &0.0.into()),
        "five of six requests were admitted"
    );
    assert_eq!(explanation.remedy_numbers("class")["classes"], serde_json::json!(["person", "other"]));
    // The plan changes in the meantime: it includes the five admitted requests.
    gateway.clock.set(explanation.retry_time() + Duration::from_secs(60));
    assert_admitted(&gateway, CURL);
    assert_refused(&gateway, CURL, "pacing");
    assert_admitted(&gateway, "");
}

#[test]
fn hypothetical_request_has_no_pacing_verdict() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("tidegate.yaml");
    std::fs::write(&file, format!("origin: {{ url: http://127.0.0.1:1 }}\n{PACED}")).expect("file is writable");
    let config = file.display().to_string();
    let outcome =
        run(&["explain", "/page", "--user-agent", "curl/8.0", "--ip", "192.0.2.1", "--json", "--config", &config], b"");
    assert_eq!(outcome.code, 0, "{}", outcome.errors);
    let explanation = RefusalExplanation(serde_json::from_str(&outcome.output).expect("output is JSON"));
    let step = explanation.find_step("pacing");
    assert_eq!((&step["finding"], &step["rule"]["path"]), (&"depends".into(), &"quotas.api.pacing".into()));
    assert!(step["message"].as_str().is_some_and(|message| message.contains("only a running gateway")), "{step}");
}

#[test]
fn bucket_refusal_explains_the_refill_time() {
    let gateway = TestGateway::with_rules(Origin::plain().address(), RULES);
    (0..3).for_each(|_| assert_admitted(&gateway, CURL));
    gateway.clock.advance(Duration::from_millis(4200));
    let explanation = RefusalExplanation::from_response(&gateway, &assert_refused(&gateway, CURL, "bucket"));
    assert_eq!(explanation.deciding_rule("bucket"), "classes[3].bucket");
    assert_eq!(explanation.find_step("tier")["finding"], "skipped");
    let delay = explanation.retry_time().saturating_duration_since(NOON + Duration::from_secs(10));
    assert!(delay <= Duration::from_secs(1), "log times have a resolution of a second: {delay:?}");
    gateway.clock.set(explanation.retry_time());
    assert_admitted(&gateway, CURL);
}

#[test]
fn refusal_with_another_status_is_explained_with_it() {
    let rules = "classes: [{ name: nokey, block: true, refuse_with: 401 }]";
    let gateway = TestGateway::with_rules(Origin::plain().address(), rules);
    let refused = gateway.connect().get("/page", "");
    assert_eq!((refused.status, refused.field("www-authenticate")), (401, "Bearer realm=\"api\""));
    let explanation = RefusalExplanation::from_response(&gateway, &refused);
    let block = explanation.find_step("block");
    assert_eq!(block["message"], "the class nokey is blocked, with status 401");
    let outcome = explanation.single_outcome();
    assert_eq!((&outcome["status"], &outcome["retry_after_s"]), (&401.into(), &Value::Null));
}

#[test]
fn block_refusal_explains_the_required_proof() {
    let gateway = TestGateway::with_rules(Origin::plain().address(), RULES);
    let impostor = format!("{GOOGLEBOT}X-Forwarded-For: 192.0.2.1\r\n");
    let explanation = RefusalExplanation::from_response(&gateway, &assert_refused(&gateway, &impostor, "blocked"));
    assert_eq!(explanation.deciding_rule("block"), "classes[1].block");
    assert_eq!(explanation.remedy_numbers("proof")["operator"], "googlebot");
    let evidence = explanation.find_step("class")["evidence"].to_string();
    assert!(evidence.contains("192.0.2.1 is in none of the ranges that googlebot publishes"), "{evidence}");
    assert_admitted(&gateway, &format!("{GOOGLEBOT}X-Forwarded-For: 66.249.66.1\r\n"));
}

#[test]
fn backoff_refusal_explains_the_retry_time() {
    let origin = Origin::with_script(|request, connection| match request.target.as_str() {
        "/broken" => connection.reply("503 Service Unavailable", "", b""),
        _ => connection.reply("200 OK", "", b"hello"),
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    assert_eq!(gateway.connect().get("/broken", "").status, 503);
    let explanation = RefusalExplanation::from_response(&gateway, &assert_refused(&gateway, "", "backoff"));
    assert_eq!(explanation.deciding_rule("throttle"), "scopes.default.backoff");
    assert_eq!(
        (&explanation.find_step("quota")["finding"], explanation.single_outcome()["status"].as_u64()),
        (&"passed".into(), Some(503))
    );
    gateway.clock.advance(explanation.retry_time().saturating_duration_since(NOON));
    assert_admitted(&gateway, "");
}

#[test]
fn backoff_start_is_logged() {
    let origin = Origin::with_script(|_, connection| connection.reply("503 Service Unavailable", "", b""));
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("tidegate.yaml");
    let settings = format!(
        "listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0 }}\norigin: {{ url: http://{} }}",
        origin.address()
    );
    std::fs::write(
        &file,
        format!(
            "{settings}\nledger: memory\nverify: {{ dns: off, refresh_interval: off }}\nlog: {{ access: off }}\n{RULES}"
        ),
    )
    .expect("file is writable");
    let mut gateway = Program::start(&["--config", &file.display().to_string()]);
    let ready = gateway.read_line();
    let address = ready
        .split("http://")
        .nth(1)
        .and_then(|rest| rest.split([' ', ',']).next())
        .expect("ready line has an address");
    let mut client = Client::connect(address.parse().expect("an address"));
    assert_eq!(client.get("/broken", "").status, 503);
    gateway.wait_for_error("Origin overloaded: scope default backs off for 10.0 s");
}

#[test]
fn throttle_refusal_explains_the_full_scope() {
    let (origin, arrival, release) = Origin::with_held_responses("/slow");
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut first = gateway.connect();
    first.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    arrival.wait();
    let second = gateway.connect().get("/slow", "");
    assert_eq!(second.json()["reason"], "throttle");
    let explanation = RefusalExplanation::from_response(&gateway, &second);
    assert_eq!(explanation.deciding_rule("throttle"), "scopes.narrow");
    assert!(
        explanation.find_step("throttle")["message"]
            .as_str()
            .expect("message is a string")
            .starts_with("narrow had no free slot"),
        "{explanation:?}"
    );
    release.notify();
    assert_eq!(first.read_response().status, 200);
    gateway.clock.advance(explanation.retry_time().saturating_duration_since(NOON));
    assert_eq!(gateway.connect().get("/slow?again", "").status, 200);
}

#[test]
fn admitted_request_is_explained_from_log() {
    let gateway = TestGateway::with_rules(Origin::plain().address(), RULES);
    gateway.connect().get("/page", CURL);
    let state = gateway.state();
    assert_eq!(state["quotas"][0]["used"], 1);
    let log_text = gateway.read_log_text();
    let line: Value = serde_json::from_str(&log_text).expect("log has one line");
    let dir = tempfile::tempdir().expect("temporary directory");
    let (yaml, log) = (dir.path().join("tidegate.yaml"), dir.path().join("access.log"));
    std::fs::write(&yaml, format!("origin: {{ url: \"http://127.0.0.1:3000\" }}\n{RULES}")).expect("file is writable");
    let combined = "192.0.2.1 - - [21/Nov/2026:12:00:00 +0000] \"GET /page HTTP/1.1\" 200 5 \"-\" \"curl/8.0\"";
    std::fs::write(&log, format!("{log_text}{combined}\n")).expect("file is writable");

    let explanation = explain_line(&yaml, &log, 1, &[]);
    assert_eq!(
        (&explanation.single_outcome()["verdict"], explanation.single_outcome()["status"].as_u64()),
        (&"admitted".into(), Some(200))
    );
    assert_eq!(explanation.find_step("tier")["numbers"]["used"], 0.0, "usage before the charge of this request");
    assert_eq!(explanation.0["request"]["decision"], line["id"]);
    assert!(explanation.0["remedies"].as_array().is_some_and(Vec::is_empty));

    let other = explain_line(&yaml, &log, 2, &["--used", "api=50%"]);
    assert_eq!(other.single_outcome()["reason"], "tier");
    assert_eq!(other.find_step("tier")["numbers"]["used"], 50.0);
    let notes = other.0["notes"].to_string();
    assert!(notes.contains("the logged status is 200") && notes.contains("headers"), "{notes}");
}

#[test]
fn explain_errors_name_their_cause() {
    let gateway = TestGateway::with_rules(Origin::plain().address(), RULES);
    let admin = gateway.admin_address().to_string();
    for (arguments, code, expected) in [
        (&["0123456789abcdef", "--admin", &admin][..], 2, "Decision not found: each worker keeps its last 1024"),
        (&["0123456789abcdef", "--admin", "127.0.0.1:1"], 1, "no gateway reachable at 127.0.0.1:1"),
        (&["0123456789abcde"], 2, "is not a URL, path or decision id"),
        (&[], 2, "no URL, path or decision id"),
        (&["--log", "access.log"], 2, "--log: \"access.log\" contains no line number"),
        (&["/page", "--ip", "1.1.1.1", "--config", "/nowhere.yaml"], 2, "/nowhere.yaml: cannot be read"),
    ] {
        let outcome = run(&[&["explain"], arguments].concat(), b"");
        assert_eq!((outcome.code, outcome.output.as_str()), (code, ""), "{arguments:?}");
        assert!(outcome.errors.contains(expected), "{arguments:?}: {}", outcome.errors);
    }
    assert_eq!(gateway.admin_get("/api/v1/decisions/0123456789abcdef/explanation").0, 404);
    assert_eq!(gateway.admin_get("/api/v1/decisions/me/explanation").0, 400);
}

fn assert_admitted(gateway: &TestGateway, fields: &str) {
    let response = gateway.connect().get("/page", fields);
    assert_eq!(response.status, 200, "{}", response.text());
}

fn assert_refused(gateway: &TestGateway, fields: &str, reason: &str) -> Response {
    let response = gateway.connect().get("/page", fields);
    assert_eq!(response.json()["reason"], reason, "{}", response.text());
    response
}

fn explain_line(yaml: &Path, log: &Path, number: u32, options: &[&str]) -> RefusalExplanation {
    let location = format!("{}:{number}", log.display());
    let config = yaml.display().to_string();
    let outcome = run(&[&["explain", "--json", "--config", &config, "--log", &location], options].concat(), b"");
    assert_eq!(outcome.code, 0, "{}", outcome.errors);
    RefusalExplanation(serde_json::from_str(&outcome.output).expect("output is JSON"))
}

/// An explanation from the admin API.
#[derive(Debug)]
struct RefusalExplanation(Value);

impl RefusalExplanation {
    /// Returns the explanation of a response.
    fn from_response(gateway: &TestGateway, response: &Response) -> Self {
        let id = response.field("x-tidegate-decision");
        let (status, body) = gateway.admin_get(&format!("/api/v1/decisions/{id}/explanation"));
        assert_eq!(status, 200, "{body}");
        let explanation = Self(serde_json::from_str(&body).expect("explanation is JSON"));
        assert_eq!(explanation.single_outcome()["reason"], response.json()["reason"]);
        assert_eq!(explanation.0["request"]["decision"], id);
        assert_eq!(explanation.0["notes"].as_array().map(Vec::len), Some(0), "{body}");
        explanation
    }

    fn single_outcome(&self) -> &Value {
        let responses = self.0["responses"].as_array().expect("responses");
        assert_eq!(responses.len(), 1, "more than one possible outcome: {self:?}");
        &responses[0]
    }

    fn find_step(&self, name: &str) -> &Value {
        let mut steps = self.0["steps"].as_array().expect("steps").iter();
        steps.find(|step| step["step"] == name).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    /// Returns the setting of the only step that refused. Asserts that this is step `name` and that the setting is in
    /// the file.
    fn deciding_rule(&self, name: &str) -> &str {
        let steps = self.0["steps"].as_array().expect("steps").iter();
        let refusing_steps: Vec<&Value> = steps.filter(|step| step["finding"] == "refused").collect();
        assert!(refusing_steps.len() == 1 && refusing_steps[0]["step"] == name, "{self:?}");
        let rule = &refusing_steps[0]["rule"];
        assert!(rule["at"].as_str().is_some_and(|at| at.contains("tidegate.yaml:")), "{self:?}");
        rule["path"].as_str().expect("a path")
    }

    fn remedy_numbers(&self, change: &str) -> &Value {
        let mut remedies = self.0["remedies"].as_array().expect("remedies").iter();
        let entry = remedies.find(|remedy| remedy["change"] == change);
        &entry.unwrap_or_else(|| panic!("no {change} in {self:?}"))["numbers"]
    }

    /// Returns the time at which a retry is admitted.
    fn retry_time(&self) -> Timestamp {
        let at: jiff::Timestamp =
            self.remedy_numbers("time")["at"].as_str().expect("a time").parse().expect("RFC 3339");
        Timestamp::from_seconds(at.as_second() as u64)
    }
}

const RULES: &str = r#"
headers: { retry_after_spread: 0% }
bot_detection: { enabled: false }
limits: { first_byte_timeout: 1s }
quotas:
  api:
    limit: 100
    window: { calendar: day, zone: UTC }
    tiers:
      bot: [ { above: 25%, shed: 100% } ]
      feed: { steps: [ { above: 50%, shed: 50% } ] }
classes:
  - { name: search, when: { operator: googlebot } }
  - { name: impostor, when: { kind: impostor }, block: true }
  - { name: feed, when: { user_agent: FeedFetcher } }
  - { name: bot, when: { kind: [verified_bot, declared_bot] }, bucket: { capacity: 3, fill: 1, interval: 10s } }
  - { name: person, when: { kind: human } }
scopes:
  default: { backoff: { min_delay: 10s, jitter: 0% } }
  narrow: { concurrency: 1, queue: { max_wait: 0s } }
routes:
  - { match: /slow, scopes: narrow }
  - { match: /broken }
  - { match: /dear, cost: { api: 5 } }
  - { match: /page, cost: { api: 1 } }
"#;
