//! Fixture of the tests: a policy, and inputs of explanations under it.

use super::{AssumedUsage, Environment, ExplainInput, HypotheticalRequest, Stage, Step, explain, input_from_log};
use crate::log::LogLine;
use http::{HeaderMap, Method, header};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use tidegate_config::{self as config, Settings};
use tidegate_crawlers::network_databases::NetworkDatabases;
use tidegate_crawlers::user_agents::UserAgentMatcher;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_engine::{Engine, LeaseMode, QuotaView};
use tidegate_policy::address_lists::AddressLists;
use tidegate_policy::{ClassId, RouteId, Timestamp, Units};

/// Time of all requests.
pub(super) const NOON: Timestamp = Timestamp::from_seconds(1_800_014_400);

/// Address that no operator publishes.
pub(super) const CLIENT: &str = "192.0.2.1";

/// Address that the operator of [`GOOGLEBOT`] publishes.
pub(super) const GOOGLEBOT_ADDRESS: &str = "66.249.66.1";

/// User agent of a declared bot.
pub(super) const CURL: &str = "curl/8.0";

/// User agent of a crawler that has to be verified.
pub(super) const GOOGLEBOT: &str = "Googlebot/2.1";

/// A policy with every rule except pacing.
pub(super) const RULES: &str = r#"
clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }
bot_detection: { enabled: false }
quotas:
  api:
    limit: 100
    window: { calendar: day, zone: UTC }
    tiers: { search: [ { above: 60%, shed: 50% } ], bot: [ { above: 25%, shed: 100% } ] }
classes:
  - { name: search, when: { operator: googlebot } }
  - { name: impostor, when: { kind: impostor }, block: true }
  - { name: bot, when: { kind: declared_bot }, bucket: { capacity: 3, fill: 1, interval: 10s } }
  - { name: person, when: { kind: human } }
scopes: { narrow: { concurrency: 1 } }
routes: [ { match: "/item/*", cost: { api: 1 }, scopes: narrow } ]
"#;

/// A policy, and the tables of a gateway that runs it.
pub(super) struct PolicyFixture {
    settings: Settings,
    operators: OperatorTable,
    user_agents: UserAgentMatcher,
    lists: AddressLists,
    network_databases: NetworkDatabases,
}

impl PolicyFixture {
    /// Creates a policy from the YAML text of its rules.
    pub(super) fn new(rules: &str) -> Self {
        let operators = OperatorTable::builtin();
        let names: Vec<&str> = operators.names().collect();
        let text = format!("origin: {{ url: \"http://127.0.0.1:3000\" }}\n{rules}");
        let settings = config::load(Path::new("tidegate.yaml"), &text, &[], &[], &names);
        let settings = settings.unwrap_or_else(|errors| panic!("{errors}"));
        let user_agents = UserAgentMatcher::builtin(operators.product_tokens());
        let (lists, network_databases) = (AddressLists::default(), NetworkDatabases::default());
        Self { settings, operators, user_agents, lists, network_databases }
    }

    pub(super) fn environment(&self) -> Environment<'_> {
        let Self { settings, operators, user_agents, lists, network_databases } = self;
        Environment { settings, user_agents, operators, lists, network_databases }
    }

    /// Returns the input of a hypothetical request that finds `used` units of the quota `api` used.
    pub(super) fn request(&self, user_agent: &str, client: &str, path: &str, used: u64) -> ExplainInput<'_> {
        let request = HypotheticalRequest {
            peer: client.parse().expect("an address"),
            method: Method::GET,
            url: path.parse().expect("a path"),
            headers: HeaderMap::from_iter([(header::USER_AGENT, user_agent.parse().expect("a header value"))]),
            at: NOON,
            used: vec![("api".to_owned(), AssumedUsage::Units(Units::from_whole(used)))],
        };
        request.into_input(self.environment()).expect("a valid path")
    }

    /// Returns the input of a logged request of curl for `/item/1`, with `fields` of its line replaced.
    pub(super) fn logged(&self, fields: &Value) -> ExplainInput<'_> {
        let mut line = json!({
            "time": "2027-01-15T12:00:00Z", "settled": "2027-01-15T12:00:00Z", "started_us": 0,
            "id": "3537bb795059eb1a", "client": CLIENT, "key": CLIENT, "method": "GET", "host": "example.com",
            "path": "/item/1", "query": null, "version": "1.1", "status": 200, "bytes": 0, "user_agent": CURL,
            "referer": "", "headers_seen": [], "tls": true, "http_10": false, "kind": "declared_bot", "class": "bot",
            "operator": null, "evidence": [], "route": "/item/*", "cost": {"api": 1}, "charged": {"api": 1},
            "verdict": "admitted", "reason": null, "shadow_reason": null, "retry_after_s": null, "tier": 0,
            "guard_admitted": false, "bot_score": null, "used": {"api": 1}, "seq": {}, "settle_seq": {},
            "bucket_seq": null, "scope": null, "scope_wait_ms": 0, "origin_ms": 1, "total_ms": 1, "cache": null
        });
        for (name, value) in fields.as_object().expect("an object") {
            line[name] = value.clone();
        }
        let text = line.to_string();
        let line = LogLine::read(text.as_bytes()).expect("a valid line").expect("a line");
        input_from_log(&line, self.environment()).expect("a decision")
    }

    /// Returns the quotas of a gateway that has admitted one request of each class on the first route.
    pub(super) fn quotas(&self) -> Vec<QuotaView> {
        let rules = &self.settings.rules;
        let admission = Engine::new(LeaseMode::Local, 1).admission(Arc::clone(rules), NOON);
        let client: IpAddr = CLIENT.parse().expect("an address");
        for index in 0..rules.classes.len() {
            admission.admit(rules.trust.key(client), ClassId::from_index(index), RouteId(0), "/item/1", NOON);
        }
        admission.quotas(NOON)
    }
}

/// Returns the first step of `stage` in the explanation of `input`.
pub(super) fn step(input: &ExplainInput<'_>, stage: Stage) -> Step {
    explain(input).steps.into_iter().find(|step| step.step == stage).expect("the explanation has the step")
}
