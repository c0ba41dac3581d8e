//! ADMIN_API.md, from the tables beside the router and the types that the admin listener serves.

use super::markdown::{paragraph, table};
use super::schema_fields::{Field, fields_of};
use super::{assert_current, matches_form};
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::wait::wait_until;
use regex::Regex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tidegate::admin::endpoints::{COMMON_ERRORS, ENDPOINTS};
use tidegate::admin::fields::{DocumentField, EXPLANATION_FIELDS, PROBLEM_FIELDS};
use tidegate::admin::{CacheDocument, CorrectionResponse, QuotaDocument, StateDocument, UsageDocument};
use tidegate_access_log::fields::LOG_FIELDS;

#[test]
fn admin_document_is_current() {
    let mut text = INTRODUCTION.to_owned();
    for endpoint in ENDPOINTS {
        text += &format!("### `{} {}`\n\n{}\n", endpoint.method, endpoint.path, paragraph("", "", endpoint.response));
        let errors = endpoint.errors.iter().map(|(status, cause)| paragraph("- ", "  ", &format!("{status}: {cause}")));
        let errors = errors.collect::<String>();
        text += &if errors.is_empty() { errors } else { format!("{errors}\n") };
    }
    let errors = COMMON_ERRORS.iter().map(|(status, cause)| [status.to_string(), (*cause).to_owned()]);
    text += &format!("## Errors\n\n{ERRORS}{}", table(["Status", "Cause"], errors));
    for (heading, introduction, fields) in [
        ("Problem document", "An error has these fields.\n\n", written(PROBLEM_FIELDS)),
        ("State", "", state_fields()),
        ("Quotas", "Each quota has these fields.\n\n", fields_of::<QuotaDocument>("")),
        ("Corrections", "", fields_of::<CorrectionResponse>("")),
        ("Usage", "", fields_of::<UsageDocument>("")),
        ("Cache", "", fields_of::<CacheDocument>("")),
        ("Explanation", "", written(EXPLANATION_FIELDS)),
    ] {
        let rows = fields.into_iter().map(|field| [format!("`{}`", field.path), field.form, field.meaning]);
        text += &format!("## {heading}\n\n{introduction}{}", table(["Field", "Type", "Meaning"], rows));
    }
    assert_current("ADMIN_API.md", "Admin API", &format!("{}\n", text.trim_end()));
}

#[test]
fn endpoints_are_the_routes_of_the_router() {
    let source = concat!(include_str!("../../../src/admin/mod.rs"), include_str!("../../../src/admin/page.rs"));
    let method = Regex::new(r"\b(get|put|post|delete)\(").expect("valid pattern");
    let mut routes: Vec<(String, String)> = source
        .lines()
        .filter_map(|line| line.trim().strip_prefix(".route(\"")?.split_once("\", "))
        .flat_map(|(path, handlers)| {
            method.captures_iter(handlers).map(|found| (found[1].to_uppercase(), path.to_owned()))
        })
        .collect();
    let mut endpoints: Vec<(String, String)> =
        ENDPOINTS.iter().map(|endpoint| (endpoint.method.to_owned(), endpoint.path.to_owned())).collect();
    routes.sort();
    endpoints.sort();
    assert_eq!(endpoints, routes);
}

#[test]
fn every_endpoint_responds() {
    let (gateway, ids) = busy_gateway();
    // Sessions and event streams, which last, are tested with the page.
    let lasting = |path: &str| matches!(path, "/api/v1/session" | "/api/v1/events");
    for endpoint in ENDPOINTS.iter().filter(|endpoint| !lasting(endpoint.path)) {
        let path = endpoint
            .path
            .replace("{file}", "page.js")
            .replace("{name}", "api")
            .replace("{id}", &ids[0])
            .replace("{target}", "192.0.2.0%2F24");
        let path = match (endpoint.method, endpoint.path) {
            ("DELETE", "/api/v1/cache") => format!("{path}?tag=none"),
            _ => path,
        };
        let body = match (endpoint.method, endpoint.path) {
            ("PUT", _) => "{\"used\": \"1.5\", \"by\": \"ann\"}",
            ("POST", "/api/v1/switches") => SWITCH,
            ("POST", "/api/v1/cache/warm") => WARM,
            _ => "",
        };
        let (status, response) = gateway.admin_request(endpoint.method, &path, body);
        assert_eq!(status, 200, "{} {path}: {response}", endpoint.method);
        let other = if endpoint.method == "PUT" { "POST" } else { "PUT" };
        assert_eq!(gateway.admin_request(other, &path, "").0, 405, "{path}");
    }
    let mut problems = Vec::new();
    for (method, path, body, status) in [
        ("GET", "/api/v1/quotas/none", "", 404),
        ("PUT", "/api/v1/quotas/none/used", "{\"used\": 1}", 404),
        ("PUT", "/api/v1/quotas/api/used", "{\"used\": -1}", 422),
        ("POST", "/api/v1/quotas/none/reset", "", 404),
        ("POST", "/api/v1/quotas/api/reset", "[]", 422),
        ("GET", "/api/v1/decisions/1", "", 400),
        ("GET", "/api/v1/decisions/0000000000000000", "", 404),
        ("GET", "/api/v1/decisions/1/explanation", "", 400),
        ("GET", "/api/v1/decisions/0000000000000000/explanation", "", 404),
        ("GET", "/elsewhere", "", 404),
    ] {
        let (actual, response) = gateway.admin_request(method, path, body);
        assert_eq!(actual, status, "{method} {path}: {response}");
        problems.push(serde_json::from_str(&response).expect("a problem document"));
    }
    assert_documented("problem", &written(PROBLEM_FIELDS), &problems, |_| false);
}

#[test]
fn fields_of_responses_are_the_documented_ones() {
    let (gateway, ids) = busy_gateway();
    let mut state = gateway.state();
    let mut quotas = state["quotas"].as_array().expect("a list").clone();
    let listed: Value = serde_json::from_str(&gateway.admin_get("/api/v1/quotas").1).expect("JSON");
    quotas.extend(listed.as_array().expect("a list").iter().cloned());
    state["quotas"] = json!([{}]);
    let failing = Origin::with_script(|_, connection| connection.close());
    let failing_gateway = TestGateway::with_rules(failing.address(), "");
    assert_eq!(failing_gateway.connect().get("/", "").status, 502);
    let costing_origin = Origin::with_script(|_, connection| connection.reply("200 OK", "X-API-Cost: 2\r\n", b"page"));
    let quota = "quotas: { api: { limit: 10, window: { fixed: 24h }, cost_header: X-API-Cost } }";
    let costing_gateway = TestGateway::with_rules(costing_origin.address(), quota);
    assert_eq!(costing_gateway.connect().get("/search", "").status, 200);
    let mut costing_state = costing_gateway.state();
    costing_state["quotas"] = json!([{}]);
    let promising_gateway =
        TestGateway::with_rules(costing_origin.address(), &format!("{quota}\npromise: {{ left_over: 1% }}"));
    wait_until("the first window", || !promising_gateway.state()["promise"].is_null());
    promising_gateway.clock.advance(Duration::from_secs(24 * 3600));
    wait_until("the second window", || !promising_gateway.state()["promise"]["last"].is_null());
    let mut promising_state = promising_gateway.state();
    promising_state["quotas"] = json!([{}]);
    let several = format!(
        "origins: {{ a: 'http://{0}', b: 'http://{0}' }}\nroutes: [{{ match: '/**', origin: b }}]",
        failing.address()
    );
    let several_gateway = TestGateway::with_rules(failing.address(), &several);
    assert_eq!(several_gateway.connect().get("/", "").status, 502);
    let budget =
        "quotas: { q: { per: class, limit: 10, window: { fixed: 1h } } }\nroutes: [{ match: /**, cost: { q: 1 } }]";
    let budget_gateway = TestGateway::with_rules(costing_origin.address(), budget);
    assert_eq!(budget_gateway.connect().get("/", "").status, 200);
    let mut states = vec![state, failing_gateway.state(), costing_state, promising_state, several_gateway.state()];
    states.push(budget_gateway.state());
    assert_documented("state", &state_fields(), &states, |_| false);
    assert_documented("quota", &fields_of::<QuotaDocument>(""), &quotas, |_| false);
    let (_, correction) = gateway.admin_request("POST", "/api/v1/quotas/api/reset", "{\"by\": \"ann\"}");
    let corrections = [serde_json::from_str(&correction).expect("JSON")];
    assert_documented("correction", &fields_of::<CorrectionResponse>(""), &corrections, |_| false);
    let cache: Value = serde_json::from_str(&gateway.admin_get("/api/v1/cache").1).expect("JSON");
    assert_documented("cache", &fields_of::<CacheDocument>(""), &[cache], |_| false);
    let mut explanations = Vec::new();
    for id in &ids {
        let decision: Value =
            serde_json::from_str(&gateway.admin_get(&format!("/api/v1/decisions/{id}")).1).expect("JSON");
        let is_known = |name: &String| LOG_FIELDS.iter().any(|field| field.name == name);
        assert!(decision.as_object().is_some_and(|line| line.keys().all(is_known)), "{decision}");
        let explanation = gateway.admin_get(&format!("/api/v1/decisions/{id}/explanation")).1;
        explanations.push(serde_json::from_str(&explanation).expect("JSON"));
    }
    // Which inputs and changes an explanation has depends on the request.
    assert_documented("explanation", &written(EXPLANATION_FIELDS), &explanations, |path| path.contains(".numbers."));
}

/// Returns the fields of the state. Those of the quotas have a section of their own.
fn state_fields() -> Vec<Field> {
    fields_of::<StateDocument>("QuotaDocument")
}

fn written(fields: &[DocumentField]) -> Vec<Field> {
    fields.iter().map(Field::from).collect()
}

/// Asserts that the documents have exactly the fields of the table, each with its type. Fields for which
/// `may_be_absent` returns true need not occur.
#[track_caller]
fn assert_documented(name: &str, fields: &[Field], documents: &[Value], may_be_absent: fn(&str) -> bool) {
    let mut by_path = BTreeMap::new();
    documents.iter().for_each(|document| collect(fields, "", document, &mut by_path));
    let undocumented: Vec<&String> =
        by_path.keys().filter(|path| !fields.iter().any(|field| field.path == **path)).collect();
    assert!(undocumented.is_empty(), "{name}: fields without documentation: {undocumented:?}");
    for field in fields {
        let values = by_path.get(&field.path).map(Vec::as_slice).unwrap_or_default();
        assert!(!values.is_empty() || may_be_absent(&field.path), "{name}: no response has {}", field.path);
        for value in values {
            assert!(matches_form(&field.form, value), "{name}: {} is not {}: {value}", field.path, field.form);
        }
    }
}

/// Adds all fields below `value` to `by_path`, by path; those of an object like another by the path of the other. Keys of
/// maps by name are no fields.
fn collect(fields: &[Field], path: &str, value: &Value, by_path: &mut BTreeMap<String, Vec<Value>>) {
    let like = fields.iter().find(|field| field.object == path).and_then(|field| field.like.as_deref());
    let path = like.unwrap_or(path);
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(fields, &format!("{path}[]"), item, by_path)),
        Value::Object(entries) => {
            let is_map = fields.iter().any(|field| field.path == path && field.form.contains("object of "));
            for (key, value) in entries.iter().filter(|_| !is_map) {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                collect(fields, &path, value, by_path);
                by_path.entry(path).or_default().push(value.clone());
            }
        }
        _ => {}
    }
}

/// Returns a gateway with quotas, a pacing plan, partitions, crawlers, refused clients, a correction, a switch and a failed
/// reload, and the ids of some of its decisions.
pub(super) fn busy_gateway() -> (TestGateway, Vec<String>) {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut client = gateway.connect();
    let mut ids = Vec::new();
    let googlebot = "X-Forwarded-For: 66.249.66.1\r\nUser-Agent: Googlebot/2.1\r\n";
    for (path, fields, status) in [
        ("/page", "User-Agent: curl/8.0\r\n", 200),
        ("/page", googlebot, 200),
        ("/page", googlebot, 200),
        ("/robots.txt", googlebot, 200),
        ("/stored", googlebot, 200),
        ("/stored", googlebot, 200),
        ("/tenant?tenant=acme", "", 200),
        ("/tenant?tenant=acme", "", 503),
        ("/expensive", "", 200),
        ("/expensive", "", 429),
        ("/page", "User-Agent: BadBot/1.0\r\n", 429),
        ("/small", "User-Agent: small\r\n", 200),
        ("/small", "User-Agent: small\r\n", 429),
    ] {
        let response = client.get(path, fields);
        assert_eq!(response.status, status, "{path} {fields}: {}", response.text());
        ids.extend(response.fields.get("x-tidegate-decision").cloned());
    }
    while client.get("/page", "User-Agent: curl/8.0\r\n").status == 200 {}
    ids.push(client.get("/page", "User-Agent: curl/8.0\r\n").field("x-tidegate-decision").to_owned());
    gateway.set_used("api", 50);
    assert_eq!(gateway.admin_request("POST", "/api/v1/switches", SWITCH).0, 200);
    assert!(gateway.reload(origin.address(), "routes: 7").is_err());
    gateway.write(origin.address(), RULES);
    (gateway, ids)
}

const WARM: &str = r#"{"url": "http://example.com/stored", "class": "bot"}"#;
const SWITCH: &str = r#"{"target": "192.0.2.0/24", "effect": "block", "for_s": 3600, "why": "scrapes", "by": "ann"}"#;

const RULES: &str = "
cache: {}
headers: { retry_after_spread: 0% }
bot_detection: { enabled: false }
quotas:
  api:
    limit: 100
    window: { calendar: day, zone: UTC }
    pacing: even
    tiers: { bot: [ { above: 95%, shed: 100% } ] }
  dear: { limit: 10, window: { fixed: 24h } }
user_agent_rules: [ { match: small, kind: human } ]
classes:
  - { name: bad, when: { user_agent: BadBot }, block: true }
  - { name: small, when: { user_agent: small }, bucket: { rate: 1/h, burst: 1 } }
  - { name: search, when: { operator: googlebot }, crawl_delay: 10s }
  - { name: bot, when: { kind: [verified_bot, declared_bot] } }
scopes:
  default: { concurrency: 8 }
  tenant: { partition_by: { query: tenant }, delay: 60s }
routes:
  - { match: /stored, cost: { api: 1 }, cache: { ttl: 1h } }
  - { match: /page, cost: { api: 1 }, cache: off }
  - { match: /small, cost: { api: 1, dear: 1 }, cache: off }
  - { match: /expensive, cost: { dear: 9 }, cache: off }
  - { match: /tenant, scopes: [default, tenant], cache: off }
";

const INTRODUCTION: &str = "\
The gateway serves this API on `admin.listen`, by default 127.0.0.1:9090, apart from client traffic. The commands
`tidegate status`, `tidegate quota` and `tidegate explain ID` use it. Responses are JSON, except the metrics. Times are
RFC 3339 in UTC. Units are numbers to a thousandth. In the path of a field, `[]` stands for the items of a list.

With `admin.token`, every request except those for `/healthz` and `/readyz` needs `Authorization: Bearer TOKEN`. Without
a token, the listener accepts only requests whose `Host` is localhost, a loopback address or the listen address.

```sh
curl http://127.0.0.1:9090/api/v1/quotas
curl -X PUT -d '{\"used\": 40}' http://127.0.0.1:9090/api/v1/quotas/api/used
```

## Endpoints

";

const ERRORS: &str = "\
An error is a problem document (RFC 9457) of type `application/problem+json`. Besides the errors of single endpoints:

";
