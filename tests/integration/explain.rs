//! Explanations of decisions: the explained outcome is the live outcome, and the changes that would admit a request do
//! admit it.

use crate::support::gateway::{NOON, TestGateway};
use crate::support::origin::Origin;
use jiff::tz::TimeZone;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::Path;
use tidegate::cli::explain::render;
use tidegate::cli::status::View;
use tidegate_config::{self as config, Settings};
use tidegate_crawlers::network_databases::NetworkDatabases;
use tidegate_crawlers::user_agents::UserAgentMatcher;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_policy::Units;
use tidegate_policy::address_lists::AddressLists;
use tidegate_replay::explain::{
    AssumedUsage, ChangeKind, Environment, Explanation, HypotheticalRequest, Stage, StepResult, Verdict, explain,
};
use tidegate_replay::terminal::ColorMode;

/// For every usage of every quota, the explained outcome of a hypothetical request is the outcome at a live gateway.
#[test]
fn explanation_matches_gateway_decision() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let fixture = ExplainFixture::new(RULES);
    let strategy = (0..AGENTS.len(), 0..PATHS.len(), 0u32..=100, 0u32..=50, 0u8..200);
    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) });
    let result = runner.run(&strategy, |(agent, path, api, search, host)| {
        let (agent, path) = (AGENTS[agent], PATHS[path]);
        let client = agent.address.map_or_else(|| format!("192.0.2.{host}"), str::to_owned);
        let send_request = || {
            let fields = format!("X-Forwarded-For: {client}\r\nUser-Agent: {}\r\n", agent.name);
            gateway.connect().get(path, &fields)
        };
        // Tiers have hysteresis: all start below the first threshold.
        let set_used = |used: &[(&str, u32)]| used.iter().for_each(|&(quota, used)| gateway.set_used(quota, used));
        set_used(&[("api", 0), ("search", 0)]);
        send_request();
        let used = [("api", api), ("search", search), ("counted", 1)];
        set_used(&used);
        let explanation = fixture.explain(agent.name, &client, path, &used);
        let response = send_request();
        let outcomes: Vec<(Value, Value)> =
            explanation.responses.iter().map(|response| (json!(response.verdict), json!(response.reason))).collect();
        let actual = match response.status {
            200 => (json!("admitted"), Value::Null),
            _ => (json!("refused"), response.json()["reason"].clone()),
        };
        prop_assert!(outcomes.contains(&actual), "{actual:?} is not one of {outcomes:?}: {explanation:#?}");
        if let [single] = explanation.responses.as_slice() {
            prop_assert_eq!(
                quota_policies(single.headers.get("ratelimit")),
                quota_policies(response.fields.get("ratelimit"))
            );
            let retry_after = single.retry_after_s.map(|wait| wait.to_string());
            prop_assert_eq!(retry_after.as_ref(), response.fields.get("retry-after"));
        }
        // The proposed change of usage admits the request.
        if let Some(remedy) = explanation.remedies.iter().find(|remedy| remedy.change == ChangeKind::Used) {
            let max_used = |name: &str| remedy.numbers["used_at_most"][name].as_f64().map(|units| units as u32);
            let reduced = used.map(|(name, used)| (name, max_used(name).unwrap_or(used)));
            let explanation = fixture.explain(agent.name, &client, path, &reduced);
            prop_assert!(
                explanation.responses.iter().all(|response| response.verdict == Verdict::Admitted),
                "{explanation:#?}"
            );
        }
        let refused = explanation.steps.iter().any(|step| step.finding == StepResult::Refused);
        let depends = explanation.steps.iter().any(|step| step.finding == StepResult::Depends);
        prop_assert_eq!(outcomes.iter().any(|(verdict, _)| verdict == "refused"), refused || depends);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn steps_name_deciding_rules_and_remedies() {
    let fixture = ExplainFixture::new(RULES);
    let explanation = fixture.explain(GOOGLE.name, "66.249.66.1", "/item/1", &[("api", 97)]);
    let tier = find_step(&explanation, Stage::Tier);
    assert_eq!(tier.finding, StepResult::Depends, "the guard admits some requests");
    let rule = tier.rule.as_ref().expect("a tier decided");
    assert_eq!(rule.path, "quotas.api.tiers.search[1]");
    assert_eq!(
        rule.at.as_deref().map(|at| at.rsplit_once(':').expect("a column").0),
        Some(&*rule_location("above: 90%"))
    );
    assert_eq!(find_remedy(&explanation, ChangeKind::Used)["used_at_most"]["api"], 59.0);

    let impostor = fixture.explain(GOOGLE.name, "192.0.2.1", "/item/1", &[]);
    let class = find_step(&impostor, Stage::Class);
    assert!(class.evidence.iter().any(|entry| entry.contains("192.0.2.1 is in none of the ranges")), "{class:?}");
    assert_eq!(class.rule.as_ref().map(|rule| rule.path.as_str()), Some("classes[1]"));
    assert_eq!(find_step(&impostor, Stage::Block).finding, StepResult::Refused);
    assert_eq!(find_step(&impostor, Stage::Bucket).finding, StepResult::Skipped);
    assert_eq!((impostor.responses[0].status, impostor.responses[0].retry_after_s), (Some(429), Some(3600)));
    assert_eq!(find_remedy(&impostor, ChangeKind::Proof)["operator"], "googlebot");
    let shadowed = fixture.explain("BadBot/1.0", "192.0.2.1", "/item/1", &[]);
    assert_eq!(find_step(&shadowed, Stage::Block).finding, StepResult::Shadow);
    assert_eq!(shadowed.responses[0].shadow.as_deref(), Some("blocked"));

    let exhausted = fixture.explain(PERSON.name, "192.0.2.1", "/both", &[("search", 48)]);
    assert!(find_step(&exhausted, Stage::Identity).rule.as_ref().expect("a setting").at.is_some());
    let refused: Vec<&str> = exhausted
        .steps
        .iter()
        .filter(|step| step.finding == StepResult::Refused)
        .map(|step| step.quota.as_deref().expect("step has a quota"))
        .collect();
    assert_eq!(refused, ["search"]);
    assert_eq!(find_remedy(&exhausted, ChangeKind::Used)["used_at_most"], json!({"search": 46.0}));
    assert_eq!(find_remedy(&exhausted, ChangeKind::Time)["at"], "2027-01-16T00:00:00Z");
}

#[test]
fn unset_settings_are_reported_as_defaults() {
    let fixture = ExplainFixture::new("routes: [ { match: /item/* } ]");
    let explanation = fixture.explain(PERSON.name, "192.0.2.1", "/item/1", &[]);
    let rule = |stage| find_step(&explanation, stage).rule.as_ref().expect("a setting").to_string();
    assert!(rule(Stage::Route).ends_with(": routes[0]") && rule(Stage::Route).starts_with("tidegate.yaml:"));
    assert_eq!(rule(Stage::Class), "by default: classes[4]");
    assert_eq!(rule(Stage::Identity), "by default: clients.address_from");
    assert!(explanation.remedies.is_empty());
}

/// Returns the `RateLimit` items of the quotas. The bucket is omitted: earlier requests have taken tokens.
fn quota_policies(field: Option<&String>) -> Vec<&str> {
    let policies = field.map_or("", String::as_str).split(", ");
    policies.filter(|policy| !policy.starts_with("\"bot\"")).collect()
}

#[test]
fn page_fits_terminal_with_long_names() {
    let long_name = "a".repeat(64);
    let rules = RULES.replace("api", &long_name).replace("bot:", &format!("{}:", "b".repeat(64)));
    let rules = rules.replace("name: bot", &format!("name: {}", "b".repeat(64)));
    let fixture = ExplainFixture::new(&rules);
    let wide_agent = format!("{} curl/8.0 \u{1b}[31m", "x".repeat(500));
    for (agent, path, used) in [
        (wide_agent.replace('\u{1b}', "?").as_str(), "/both?q=a", 100),
        (GOOGLE.name, "/item/1", 70),
        (PERSON.name, &format!("/{}", "y/".repeat(120)), 0),
    ] {
        let explanation = fixture.explain(agent, "66.249.66.1", path, &[(&long_name, used)]);
        for width in [60, 80, 120] {
            let view = View { width, color: ColorMode::Plain, zone: TimeZone::UTC };
            let page = render(&explanation, &view);
            let wide_lines: Vec<&str> = page.lines().filter(|line| line.chars().count() > width).collect();
            assert!(wide_lines.is_empty(), "{wide_lines:#?}");
        }
        let colored = render(&explanation, &View { width: 80, color: ColorMode::Color, zone: TimeZone::UTC });
        assert!(colored.contains("\u{1b}["));
    }
}

#[test]
fn page_shows_a_complete_refusal() {
    let explanation = ExplainFixture::new(RULES).explain("curl/8.0", "192.0.2.1", "/item/1", &[("api", 40)]);
    let page = render(&explanation, &View { width: 80, color: ColorMode::Plain, zone: TimeZone::UTC });
    insta::assert_snapshot!(page);
}

#[test]
fn only_reading_robots_txt_is_exempt() {
    let fixture =
        ExplainFixture::new("scopes: { default: { concurrency: 1 } }\nclasses: [ { name: all, block: true } ]");
    let explain_robots = |method| fixture.explain_method(method, PERSON.name, "192.0.2.1", "/x/../robots.txt", &[]);
    for method in [http::Method::GET, http::Method::HEAD] {
        assert_eq!(find_step(&explain_robots(method), Stage::Exempt).finding, StepResult::Passed);
    }
    let deleted = explain_robots(http::Method::DELETE);
    assert_eq!(find_step(&deleted, Stage::Block).finding, StepResult::Refused);
    assert_eq!(deleted.responses[0].status, Some(429));
    let unblocked = ExplainFixture::new("scopes: { default: { concurrency: 1 } }");
    let throttle_finding = |method| {
        find_step(&unblocked.explain_method(method, PERSON.name, "192.0.2.1", "/robots.txt", &[]), Stage::Throttle)
            .finding
    };
    assert_eq!(
        (throttle_finding(http::Method::GET), throttle_finding(http::Method::POST)),
        (StepResult::Passed, StepResult::Unknown)
    );
}

fn find_step(explanation: &Explanation, stage: Stage) -> &tidegate_replay::explain::Step {
    explanation.steps.iter().find(|step| step.step == stage).expect("every explanation has this step")
}

fn find_remedy(explanation: &Explanation, change: ChangeKind) -> &serde_json::Map<String, Value> {
    let matching = explanation.remedies.iter().find(|remedy| remedy.change == change);
    &matching.unwrap_or_else(|| panic!("no {change:?} in {explanation:#?}")).numbers
}

/// Returns `tidegate.yaml:LINE` of the rule that contains `text`.
fn rule_location(text: &str) -> String {
    let index = RULES.lines().position(|line| line.contains(text)).expect("rules contain the text");
    format!("tidegate.yaml:{}", index + 2)
}

/// Settings and state of a gateway.
struct ExplainFixture {
    settings: Settings,
    operators: OperatorTable,
    agents: UserAgentMatcher,
    lists: AddressLists,
}

impl ExplainFixture {
    fn new(rules: &str) -> Self {
        let operators = OperatorTable::builtin();
        let names: Vec<&str> = operators.names().collect();
        let text = format!("origin: {{ url: \"http://127.0.0.1:3000\" }}\n{rules}");
        let settings = config::load(Path::new("tidegate.yaml"), &text, &[], &[], &names);
        let settings = settings.unwrap_or_else(|errors| panic!("{errors}"));
        let agents = UserAgentMatcher::builtin(operators.product_tokens());
        Self { settings, operators, agents, lists: AddressLists::default() }
    }

    fn explain(&self, agent: &str, client: &str, path: &str, used: &[(&str, u32)]) -> Explanation {
        self.explain_method(http::Method::GET, agent, client, path, used)
    }

    fn explain_method(
        &self,
        method: http::Method,
        agent: &str,
        client: &str,
        path: &str,
        used: &[(&str, u32)],
    ) -> Explanation {
        let environment = Environment {
            settings: &self.settings,
            operators: &self.operators,
            user_agents: &self.agents,
            lists: &self.lists,
            network_databases: &NetworkDatabases::default(),
        };
        let mut sent = http::HeaderMap::new();
        sent.insert(http::header::USER_AGENT, agent.parse().expect("a header"));
        let request = HypotheticalRequest {
            peer: client.parse::<IpAddr>().expect("an address"),
            method,
            url: format!("http://example.com{path}").parse().expect("a URL"),
            headers: sent,
            at: NOON,
            used: used
                .iter()
                .map(|&(name, used)| (name.to_owned(), AssumedUsage::Units(Units::from_whole(used.into()))))
                .collect(),
        };
        explain(&request.into_input(environment).expect("valid path"))
    }
}

/// User agent and address of a client.
#[derive(Clone, Copy)]
struct AgentCase {
    name: &'static str,
    /// Address from which the requests are sent.
    address: Option<&'static str>,
}

const GOOGLE: AgentCase = AgentCase {
    name: "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    address: Some("66.249.66.1"),
};
const PERSON: AgentCase = AgentCase {
    name: "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36",
    address: None,
};
const AGENTS: [AgentCase; 5] = [
    GOOGLE,
    AgentCase { address: None, ..GOOGLE },
    PERSON,
    AgentCase { name: "curl/8.0", address: None },
    AgentCase { name: "BadBot/1.0", address: None },
];

const PATHS: [&str; 6] = ["/item/1", "/search?q=a", "/both", "/shadow", "/free", "/robots.txt"];

const RULES: &str = r#"
clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }
headers: { retry_after_spread: 0% }
bot_detection: { enabled: false }
user_agent_rules: [ { match: BadBot, kind: declared_bot } ]
quotas:
  api:
    limit: 100
    window: { calendar: day, zone: UTC }
    tiers:
      search:
        - { above: 60%, shed: 50% }
        - { above: 90%, shed: 100% }
      bot: [ { above: 25%, shed: 100% } ]
  search:
    limit: 50
    window: { calendar: day, zone: UTC }
    tiers:
      bot: { enforce: false, steps: [ { above: 10, shed: 100% } ] }
  counted: { limit: 1, window: { fixed: 24h }, enforce: false }
classes:
  - { name: search, when: { operator: googlebot } }
  - { name: impostor, when: { kind: impostor }, block: true }
  - { name: bad, when: { user_agent: BadBot }, block: true, enforce: false }
  - { name: bot, when: { kind: [verified_bot, declared_bot, suspected_bot] }, bucket: { capacity: 600, fill: 10, interval: 10s } }
routes:
  - { match: "/item/*", cost: { api: 1 } }
  - { match: "/search", cost: { search: 4 } }
  - { match: "/both", cost: { api: 1.5, search: 3.25 } }
  - { match: "/shadow", cost: { counted: 1 } }
"#;

#[test]
fn request_for_another_host_is_not_explained() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("gate.yaml");
    std::fs::write(&file, "origin: { url: 'http://127.0.0.1:1' }\nhosts: [example.com, '*.shop.example']\n")
        .expect("file is writable");
    let explain = |url: &str| {
        let arguments = ["explain", url, "--ip", "192.0.2.1", "--config"];
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = command.args(arguments).arg(&file).output().expect("program was built");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for url in ["https://EXAMPLE.com./a", "http://a.shop.example:8080/a", "/a"] {
        assert_eq!(explain(url).0, Some(0), "{url}");
    }
    let (code, error) = explain("https://other.example/a");
    assert_eq!(code, Some(2));
    assert!(error.contains("other.example is none of hosts, so the gateway answers 421"), "{error}");
}
