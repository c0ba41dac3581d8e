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
use tidegate::clock::Clock;
use tidegate::policy::Timestamp;

const GOOGLEBOT: &str = "User-Agent: Googlebot/2.1\r\n";
const CURL: &str = "User-Agent: curl/8.0\r\n";

#[test]
fn tier_refusal_explains_usage_and_class_remedies() {
    let gate = TestGateway::with_rules(Origin::plain().address(), RULES);
    gate.set_used("api", 30);
    let why = RefusalExplanation::from_response(&gate, &assert_refused(&gate, CURL, "tier"));
    assert_eq!(why.deciding_rule("tier"), "quotas.api.tiers.bot[0]");
    let most = why.remedy_numbers("used")["used_at_most"]["api"].as_f64().expect("a number");
    assert_eq!(most, 19.0, "a tier ends below its threshold (hysteresis)");
    gate.set_used("api", 20);
    assert_refused(&gate, CURL, "tier");
    gate.set_used("api", 19);
    assert_admitted(&gate, CURL);

    gate.set_used("api", 30);
    assert_refused(&gate, CURL, "tier");
    assert!(why.remedy_numbers("class")["classes"].as_array().expect("classes").contains(&"person".into()), "{why:?}");
    assert_admitted(&gate, "");
    gate.clock.set(why.retry_time());
    assert_admitted(&gate, CURL);
}

#[test]
fn partial_shed_refusal_explains_the_next_admission() {
    let gate = TestGateway::with_rules(Origin::plain().address(), RULES);
    gate.set_used("api", 60);
    let fetcher = "User-Agent: FeedFetcher/1.0\r\n";
    assert_admitted(&gate, fetcher);
    let why = RefusalExplanation::from_response(&gate, &assert_refused(&gate, fetcher, "tier"));
    assert_eq!(why.deciding_rule("tier"), "quotas.api.tiers.feed.steps[0]");
    assert_eq!(why.remedy_numbers("turn")["let_through"], 0.5);
    assert_admitted(&gate, fetcher);
    assert_refused(&gate, fetcher, "tier");
    gate.set_used("api", why.remedy_numbers("used")["used_at_most"]["api"].as_f64().expect("a number") as u32);
    (0..3).for_each(|_| assert_admitted(&gate, fetcher));
}

#[test]
fn quota_refusal_explains_cost_and_time_remedies() {
    let gate = TestGateway::with_rules(Origin::plain().address(), RULES);
    gate.set_used("api", 98);
    let dear = gate.connect().get("/dear", "");
    assert_eq!(dear.json()["reason"], "quota");
    let why = RefusalExplanation::from_response(&gate, &dear);
    assert_eq!(why.deciding_rule("quota"), "quotas.api.limit");
    assert_eq!(
        (&why.remedy_numbers("cost")["cost_at_most"], why.single_outcome()["status"].as_u64()),
        (&2.0.into(), Some(429))
    );
    assert_eq!(why.single_outcome()["retry_after_s"].to_string(), dear.field("retry-after"));
    assert_admitted(&gate, "");
    gate.set_used("api", why.remedy_numbers("used")["used_at_most"]["api"].as_f64().expect("a number") as u32);
    assert_eq!(gate.connect().get("/dear", "").status, 200);
    gate.set_used("api", 98);
    assert_eq!(gate.connect().get("/dear", "").status, 429);
    gate.clock.set(why.retry_time());
    assert_eq!(gate.connect().get("/dear", "").status, 200);
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
    let gate = TestGateway::with_clock(Origin::plain().address(), &rules, Clock::system());
    let is_served = || gate.connect().get("/page", "").status == 200;
    wait_until("a new ledger to grant leases, which takes three seconds", is_served);
    redis.set_frozen(true);
    let lost = wait_for("the leased units to be used, which are never all", || {
        Some(gate.connect().get("/page", "")).filter(|answer| answer.status != 200)
    });
    let why = RefusalExplanation::from_response(&gate, &lost);
    assert_eq!(why.deciding_rule("quota"), "quotas.api.limit");
    let step = why.find_step("quota");
    assert!(step["numbers"]["left"].as_f64() >= Some(1.0), "units are left, but not leased: {step}");
    assert!(step["message"].as_str().is_some_and(|says| says.contains("the ledger has not leased enough")), "{step}");
    let remedies = why.0["remedies"].as_array().expect("remedies");
    let says: Vec<&Value> = remedies.iter().map(|remedy| &remedy["message"]).collect();
    assert_eq!(says, ["a retry once the ledger has leased more"]);
    assert_refused(&gate, "", "ledger");
    redis.set_frozen(false);
    wait_until("the server to resume with its data", is_served);
}

#[test]
fn pacing_refusal_explains_plan_and_class_remedies() {
    let gate = TestGateway::with_rules(Origin::plain().address(), PACED);
    (0..5).for_each(|_| assert_admitted(&gate, CURL));
    let why = RefusalExplanation::from_response(&gate, &assert_refused(&gate, CURL, "pacing"));
    assert_eq!(why.deciding_rule("pacing"), "quotas.api.pacing");
    assert_eq!(
        (&why.find_step("tier")["finding"], &why.find_step("quota")["finding"]),
        (&"passed".into(), &"passed".into())
    );
    let numbers = &why.find_step("pacing")["numbers"];
    assert_eq!((&numbers["mode"], &numbers["burst"], &numbers["planned"]), (&"even".into(), &5.0.into(), &50.0.into()));
    assert_eq!((&numbers["purse"], &numbers["share"], &numbers["aside"]), (&0.0.into(), &1.0.into(), &0.0.into()));
    assert_eq!(why.remedy_numbers("class")["classes"], serde_json::json!(["person", "other"]));
    // The plan changes in the meantime: it includes the five admitted requests.
    gate.clock.set(why.retry_time() + Duration::from_secs(60));
    assert_admitted(&gate, CURL);
    assert_refused(&gate, CURL, "pacing");
    assert_admitted(&gate, "");
}

#[test]
fn hypothetical_request_has_no_pacing_verdict() {
    let folder = tempfile::tempdir().expect("temporary directory");
    let file = folder.path().join("tidegate.yaml");
    std::fs::write(&file, format!("origin: {{ url: http://127.0.0.1:1 }}\n{PACED}")).expect("file is writable");
    let config = file.display().to_string();
    let ended =
        run(&["explain", "/page", "--user-agent", "curl/8.0", "--ip", "192.0.2.1", "--json", "--config", &config], b"");
    assert_eq!(ended.code, 0, "{}", ended.errors);
    let why = RefusalExplanation(serde_json::from_str(&ended.output).expect("output is JSON"));
    let step = why.find_step("pacing");
    assert_eq!((&step["finding"], &step["rule"]["path"]), (&"depends".into(), &"quotas.api.pacing".into()));
    assert!(step["message"].as_str().is_some_and(|says| says.contains("only a running gateway")), "{step}");
}

#[test]
fn bucket_refusal_explains_the_refill_time() {
    let gate = TestGateway::with_rules(Origin::plain().address(), RULES);
    (0..3).for_each(|_| assert_admitted(&gate, CURL));
    gate.clock.advance(Duration::from_millis(4200));
    let why = RefusalExplanation::from_response(&gate, &assert_refused(&gate, CURL, "bucket"));
    assert_eq!(why.deciding_rule("bucket"), "classes[3].bucket");
    assert_eq!(why.find_step("tier")["finding"], "skipped");
    let late = why.retry_time().saturating_duration_since(NOON + Duration::from_secs(10));
    assert!(late <= Duration::from_secs(1), "log times have a resolution of a second: {late:?}");
    gate.clock.set(why.retry_time());
    assert_admitted(&gate, CURL);
}

#[test]
fn block_refusal_explains_the_required_proof() {
    let gate = TestGateway::with_rules(Origin::plain().address(), RULES);
    let impostor = format!("{GOOGLEBOT}X-Forwarded-For: 192.0.2.1\r\n");
    let why = RefusalExplanation::from_response(&gate, &assert_refused(&gate, &impostor, "blocked"));
    assert_eq!(why.deciding_rule("block"), "classes[1].block");
    assert_eq!(why.remedy_numbers("proof")["operator"], "googlebot");
    let told = why.find_step("class")["evidence"].to_string();
    assert!(told.contains("192.0.2.1 is in none of the ranges that googlebot publishes"), "{told}");
    assert_admitted(&gate, &format!("{GOOGLEBOT}X-Forwarded-For: 66.249.66.1\r\n"));
}

#[test]
fn backoff_refusal_explains_the_retry_time() {
    let origin = Origin::with_script(|request, wire| match request.target.as_str() {
        "/broken" => wire.reply("503 Service Unavailable", "", b""),
        _ => wire.reply("200 OK", "", b"hello"),
    });
    let gate = TestGateway::with_rules(origin.address(), RULES);
    assert_eq!(gate.connect().get("/broken", "").status, 503);
    let why = RefusalExplanation::from_response(&gate, &assert_refused(&gate, "", "backoff"));
    assert_eq!(why.deciding_rule("throttle"), "scopes.default.backoff");
    assert_eq!(
        (&why.find_step("quota")["finding"], why.single_outcome()["status"].as_u64()),
        (&"passed".into(), Some(503))
    );
    gate.clock.advance(why.retry_time().saturating_duration_since(NOON));
    assert_admitted(&gate, "");
}

#[test]
fn backoff_start_is_logged() {
    let origin = Origin::with_script(|_, wire| wire.reply("503 Service Unavailable", "", b""));
    let folder = tempfile::tempdir().expect("temporary directory");
    let file = folder.path().join("tidegate.yaml");
    let beside = format!(
        "listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0 }}\norigin: {{ url: http://{} }}",
        origin.address()
    );
    std::fs::write(
        &file,
        format!(
            "{beside}\nledger: memory\nverify: {{ dns: off, refresh_interval: off }}\nlog: {{ access: off }}\n{RULES}"
        ),
    )
    .expect("file is writable");
    let mut gate = Program::start(&["--config", &file.display().to_string()]);
    let ready = gate.read_line();
    let address = ready
        .split("http://")
        .nth(1)
        .and_then(|rest| rest.split([' ', ',']).next())
        .expect("ready line has an address");
    let mut client = Client::connect(address.parse().expect("an address"));
    assert_eq!(client.get("/broken", "").status, 503);
    gate.wait_for_error("Origin overloaded: scope default backs off for 10s");
}

#[test]
fn throttle_refusal_explains_the_full_scope() {
    let (origin, asked, go_on) = Origin::with_held_responses("/slow");
    let gate = TestGateway::with_rules(origin.address(), RULES);
    let mut first = gate.connect();
    first.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    asked.wait();
    let second = gate.connect().get("/slow", "");
    assert_eq!(second.json()["reason"], "throttle");
    let why = RefusalExplanation::from_response(&gate, &second);
    assert_eq!(why.deciding_rule("throttle"), "scopes.narrow");
    assert!(
        why.find_step("throttle")["message"].as_str().expect("says is a string").starts_with("narrow had no free slot"),
        "{why:?}"
    );
    go_on.notify();
    assert_eq!(first.read_response().status, 200);
    gate.clock.advance(why.retry_time().saturating_duration_since(NOON));
    assert_eq!(gate.connect().get("/slow?again", "").status, 200);
}

#[test]
fn admitted_request_is_explained_from_log() {
    let gate = TestGateway::with_rules(Origin::plain().address(), RULES);
    gate.connect().get("/page", CURL);
    let state = gate.state();
    assert_eq!(state["quotas"][0]["used"], 1);
    let own = gate.read_log_text();
    let line: Value = serde_json::from_str(&own).expect("log has one line");
    let folder = tempfile::tempdir().expect("temporary directory");
    let (yaml, log) = (folder.path().join("tidegate.yaml"), folder.path().join("access.log"));
    std::fs::write(&yaml, format!("origin: {{ url: \"http://127.0.0.1:3000\" }}\n{RULES}")).expect("file is writable");
    let combined = "192.0.2.1 - - [21/Nov/2026:12:00:00 +0000] \"GET /page HTTP/1.1\" 200 5 \"-\" \"curl/8.0\"";
    std::fs::write(&log, format!("{own}{combined}\n")).expect("file is writable");

    let own = explain_line(&yaml, &log, 1, &[]);
    assert_eq!(
        (&own.single_outcome()["verdict"], own.single_outcome()["status"].as_u64()),
        (&"admitted".into(), Some(200))
    );
    assert_eq!(own.find_step("tier")["numbers"]["used"], 0.0, "usage before the charge of this request");
    assert_eq!(own.0["request"]["decision"], line["id"]);
    assert!(own.0["remedies"].as_array().is_some_and(Vec::is_empty));

    let other = explain_line(&yaml, &log, 2, &["--used", "api=50%"]);
    assert_eq!(other.single_outcome()["reason"], "tier");
    assert_eq!(other.find_step("tier")["numbers"]["used"], 50.0);
    let notes = other.0["notes"].to_string();
    assert!(notes.contains("the logged status is 200") && notes.contains("headers"), "{notes}");
}

#[test]
fn explain_errors_name_their_cause() {
    let gate = TestGateway::with_rules(Origin::plain().address(), RULES);
    let admin = gate.admin_address().to_string();
    for (arguments, code, told) in [
        (&["0123456789abcdef", "--admin", &admin][..], 2, "Decision not found: each worker keeps its last 1024"),
        (&["0123456789abcdef", "--admin", "127.0.0.1:1"], 1, "no gateway reachable at 127.0.0.1:1"),
        (&["0123456789abcde"], 2, "is not a URL, path or decision id"),
        (&[], 2, "no URL, path or decision id"),
        (&["--log", "access.log"], 2, "--log: \"access.log\" contains no line number"),
        (&["/page", "--ip", "1.1.1.1", "--config", "/nowhere.yaml"], 2, "/nowhere.yaml: cannot be read"),
    ] {
        let ended = run(&[&["explain"], arguments].concat(), b"");
        assert_eq!((ended.code, ended.output.as_str()), (code, ""), "{arguments:?}");
        assert!(ended.errors.contains(told), "{arguments:?}: {}", ended.errors);
    }
    assert_eq!(gate.admin_get("/api/v1/decisions/0123456789abcdef/explanation").0, 404);
    assert_eq!(gate.admin_get("/api/v1/decisions/me/explanation").0, 400);
}

fn assert_admitted(gate: &TestGateway, fields: &str) {
    let answer = gate.connect().get("/page", fields);
    assert_eq!(answer.status, 200, "{}", answer.text());
}

fn assert_refused(gate: &TestGateway, fields: &str, reason: &str) -> Response {
    let answer = gate.connect().get("/page", fields);
    assert_eq!(answer.json()["reason"], reason, "{}", answer.text());
    answer
}

fn explain_line(yaml: &Path, log: &Path, number: u32, more: &[&str]) -> RefusalExplanation {
    let place = format!("{}:{number}", log.display());
    let config = yaml.display().to_string();
    let ended = run(&[&["explain", "--json", "--config", &config, "--log", &place], more].concat(), b"");
    assert_eq!(ended.code, 0, "{}", ended.errors);
    RefusalExplanation(serde_json::from_str(&ended.output).expect("output is JSON"))
}

/// An explanation from the admin API.
#[derive(Debug)]
struct RefusalExplanation(Value);

impl RefusalExplanation {
    /// Returns the explanation of a response.
    fn from_response(gate: &TestGateway, answer: &Response) -> Self {
        let id = answer.field("x-tidegate-decision");
        let (status, told) = gate.admin_get(&format!("/api/v1/decisions/{id}/explanation"));
        assert_eq!(status, 200, "{told}");
        let why = Self(serde_json::from_str(&told).expect("explanation is JSON"));
        assert_eq!(why.single_outcome()["reason"], answer.json()["reason"]);
        assert_eq!(why.0["request"]["decision"], id);
        assert_eq!(why.0["notes"].as_array().map(Vec::len), Some(0), "{told}");
        why
    }

    fn single_outcome(&self) -> &Value {
        let answers = self.0["responses"].as_array().expect("answers");
        assert_eq!(answers.len(), 1, "more than one possible outcome: {self:?}");
        &answers[0]
    }

    fn find_step(&self, name: &str) -> &Value {
        let mut steps = self.0["steps"].as_array().expect("steps").iter();
        steps.find(|step| step["step"] == name).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    /// Returns the setting of the only step that refused. Asserts that this is step `name` and that the setting is in
    /// the file.
    fn deciding_rule(&self, name: &str) -> &str {
        let steps = self.0["steps"].as_array().expect("steps").iter();
        let refusing: Vec<&Value> = steps.filter(|step| step["finding"] == "refused").collect();
        assert!(refusing.len() == 1 && refusing[0]["step"] == name, "{self:?}");
        let rule = &refusing[0]["rule"];
        assert!(rule["at"].as_str().is_some_and(|at| at.contains("tidegate.yaml:")), "{self:?}");
        rule["path"].as_str().expect("a path")
    }

    fn remedy_numbers(&self, change: &str) -> &Value {
        let mut remedies = self.0["remedies"].as_array().expect("remedies").iter();
        let found = remedies.find(|remedy| remedy["change"] == change);
        &found.unwrap_or_else(|| panic!("no {change} in {self:?}"))["numbers"]
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
