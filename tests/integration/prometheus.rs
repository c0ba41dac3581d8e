//! The metrics, the alert rules and the dashboard in the programs that read them: Prometheus scrapes a live gateway,
//! Alertmanager receives its alerts, and Grafana's types describe the dashboard. `./test` installs them.

use crate::support::crawlers::InstalledClients;
use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, OriginConnection};
use crate::support::prometheus::{Alertmanager, Prometheus, promtool};
use crate::support::tls::Certificates;
use crate::support::wait::{pass_real_time, wait_for, wait_until};
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tidegate_engine::clock::Clock;

const DASHBOARD: &str = include_str!("../../grafana/tidegate.json");
const ALERTS: &str = include_str!("../../grafana/alerts.yaml");
const ALERT_TESTS: &str = include_str!("../../grafana/alerts_test.yaml");

#[test]
fn promtool_accepts_rules_and_metrics() {
    assert_promtool_passes(&["check", "rules", "alerts.yaml"], "");
    let site = BusySite::start();
    site.send_round();
    let (status, metrics) = site.gateway.admin_get("/metrics");
    assert_eq!(status, 200);
    assert_promtool_passes(&["check", "metrics"], &metrics);
    let misnamed = metrics.replace("tidegate_requests_total", "tidegate_requests");
    assert!(!promtool(&grafana_dir(), &["check", "metrics"], &misnamed).status.success(), "the check can fail");
}

#[test]
fn alerts_pass_their_unit_tests() {
    assert_promtool_passes(&["test", "rules", "alerts_test.yaml"], "");
}

#[test]
fn unit_tests_notice_a_changed_rule() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let rules = ALERTS.replace("> 0.01)", "> 0.1)");
    assert_ne!(rules, ALERTS);
    let first_tests: Vec<&str> = ALERT_TESTS.split_inclusive("  - name: ").take(3).collect();
    std::fs::write(dir.path().join("alerts.yaml"), rules).expect("file is writable");
    std::fs::write(dir.path().join("alerts_test.yaml"), first_tests.concat() + "end").expect("file is writable");
    let output = promtool(dir.path(), &["test", "rules", "alerts_test.yaml"], "");
    let report = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && report.contains("alertname: TidegateHumansRefused"), "{report}");
}

#[test]
fn every_alert_has_a_firing_and_a_silent_unit_test() {
    let alerts: Value = serde_saphyr::from_str(ALERTS).expect("the rules are YAML");
    let tests: Value = serde_saphyr::from_str(ALERT_TESTS).expect("the tests are YAML");
    let cases: Vec<&Value> = list(&tests["tests"]).iter().flat_map(|test| list(&test["alert_rule_test"])).collect();
    for alert in list(&alerts["groups"][0]["rules"]).iter().map(|rule| &rule["alert"]) {
        let (firing, silent): (Vec<&Value>, Vec<&Value>) =
            cases.iter().filter(|case| case["alertname"] == *alert).partition(|case| case.get("exp_alerts").is_some());
        assert!(
            !firing.is_empty() && !silent.is_empty(),
            "{alert} fires and is silent in {}",
            "grafana/alerts_test.yaml"
        );
        for case in firing {
            let expected = list(&case["exp_alerts"]);
            assert!(!expected.is_empty(), "{alert}: no alert at {}", case["eval_time"]);
            assert!(expected.iter().all(|alert| alert["exp_annotations"]["summary"].is_string()), "{case}");
        }
    }
}

#[test]
fn every_query_of_the_dashboard_returns_data() {
    let site = BusySite::start();
    let prometheus = Prometheus::scraping(site.gateway.admin_address(), "site", ALERTS, None);
    site.serve_until(|| {
        let instances = || prometheus.get("query", &[("query", "tidegate_build_info")]);
        wait_until("the first scrape", || !list(&instances()["result"]).is_empty());
        site.reload();
        site.break_lists();
        wait_for_data(&prometheus);
    });
    assert_variable_lists_instance(&prometheus, &site.gateway);
    assert_rules_are_evaluated(&prometheus);
}

#[test]
fn failed_reload_reaches_the_alertmanager() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), "");
    let alertmanager = Alertmanager::start();
    let rules = Regex::new(r"(?m)^        for: \w+$").expect("a pattern").replace_all(ALERTS, "        for: 1s");
    let address = gateway.admin_address();
    let _prometheus = Prometheus::scraping(address, "site", &rules, Some(&alertmanager));
    assert!(gateway.reload(origin.address(), "routes: 7").is_err());
    let find_alert = || {
        let is_reload = |alert: &Value| alert["labels"]["alertname"] == "TidegateReloadFailed";
        alertmanager.alerts().into_iter().find(is_reload)
    };
    let alert = wait_for("the alertmanager to have the alert", find_alert);
    assert_eq!(
        alert["annotations"]["summary"],
        format!("{address} runs with an old configuration: its last reload failed")
    );
    assert_eq!((&alert["status"]["state"], &alert["labels"]["severity"]), (&"active".into(), &"warning".into()));
    gateway.reload(origin.address(), "").expect("valid rules");
    wait_until("the alert to be resolved", || find_alert().is_none());
}

#[test]
fn dashboard_has_the_types_of_grafana() {
    let changes = [
        ("", ""),
        ("\"type\": \"timeseries\"", "\"type\": \"timeserie\""),
        ("\"showPoints\"", "\"showPoint\""),
        ("\"graphMode\": \"none\"", "\"graphMode\": \"many\""),
        ("\"unit\": \"short\"", "\"units\": \"short\""),
        ("\"schemaVersion\": 39", "\"schemaVersion\": \"39\""),
        ("\"refId\": \"A\",", ""),
    ];
    let dashboards = changes.map(|(valid, invalid)| {
        assert!(DASHBOARD.contains(valid), "{valid}");
        DASHBOARD.replacen(valid, invalid, 1)
    });
    let errors = check_dashboards(&dashboards);
    let is_named = |number: usize| errors.lines().any(|error| error.starts_with(&format!("{number}.json:")));
    assert!(!is_named(0), "the dashboard has other types than Grafana:\n{errors}");
    for (number, (_, invalid)) in changes.iter().enumerate().skip(1) {
        assert!(is_named(number), "{invalid} is not detected:\n{errors}");
    }
}

/// A gateway under traffic in all its parts: admitted, refused and queued requests of people, crawlers and bots.
struct BusySite {
    gateway: TestGateway,
    files: TempDir,
    certificates: Certificates,
    _origin: Origin,
}

impl BusySite {
    fn start() -> Self {
        let files = tempfile::tempdir().expect("temporary directory");
        for name in ["hosting.txt", "acme.txt"] {
            std::fs::write(files.path().join(name), "192.0.2.0/24\n").expect("file is writable");
        }
        let origin = Origin::with_script(respond);
        let certificates = Certificates::new();
        let pair = certificates.issue("site", &["example.com"]);
        let rules = RULES.replace("FILES", &files.path().display().to_string()).replace("PAIR", &pair);
        let gateway = TestGateway::with_clock(origin.address(), &rules, Clock::system());
        Self { gateway, files, certificates, _origin: origin }
    }

    /// Sends one request of each kind.
    fn send_round(&self) {
        let mut client = self.gateway.connect();
        for (path, fields) in ROUND {
            client.get(path, fields);
        }
        self.certificates.connect(self.gateway.addresses()[1], "example.com").get("/item/1", "");
    }

    /// Sends rounds of requests while `check` runs.
    fn serve_until(&self, check: impl FnOnce()) {
        /// Ends the traffic when it is dropped, also by a panic.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let stop = Stop(&is_over);
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    self.send_round();
                    pass_real_time(ROUND_INTERVAL);
                }
            });
            check();
            drop(stop);
        });
    }

    /// Reloads the configuration until the time of the last reload changes, which has whole seconds.
    fn reload(&self) {
        let reload_time = || self.gateway.metric("tidegate_config_last_reload_success_timestamp_seconds");
        let first = reload_time();
        wait_until("a reload in another second", || {
            let (status, response) = self.gateway.admin_request("POST", "/api/v1/reload", "");
            assert_eq!(status, 200, "{response}");
            reload_time() > first
        });
    }

    /// Makes the files of networks invalid. The gateway keeps the previous versions.
    fn break_lists(&self) {
        for name in ["hosting.txt", "acme.txt"] {
            std::fs::write(self.files.path().join(name), "no network\n").expect("file is writable");
        }
        self.gateway.reload_files();
    }
}

/// Responds with the costs, overloads and counts that the dashboard shows.
fn respond(request: &crate::support::origin::ReceivedRequest, connection: &mut OriginConnection) {
    match request.target.as_str() {
        "/fragile" => connection.reply("503 Service Unavailable", "", b"overloaded"),
        "/unexpected" => connection.reply("200 OK", "X-API-Cost: 2\r\n", b"page"),
        _ => connection.reply("200 OK", "", b"page"),
    }
}

/// A query of the dashboard.
struct Query {
    panel: String,
    expression: String,
    legend: String,
    is_instant: bool,
}

impl Query {
    /// Returns all queries: of panels, and of annotations.
    fn all() -> Vec<Self> {
        let dashboard: Value = serde_json::from_str(DASHBOARD).expect("the dashboard is JSON");
        let of_panel = |panel: &Value| {
            let targets = panel["targets"].as_array().cloned().unwrap_or_default();
            targets.into_iter().map(|target| Self::new(&panel["title"], &target)).collect::<Vec<_>>()
        };
        let of_panels = list(&dashboard["panels"]).iter().flat_map(of_panel);
        let annotations = list(&dashboard["annotations"]["list"]).iter();
        of_panels.chain(annotations.map(|annotation| Self::new(&annotation["name"], annotation))).collect()
    }

    fn new(panel: &Value, target: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let expression =
            VARIABLES.iter().fold(text(&target["expr"]), |query, (name, value)| query.replace(name, value));
        assert!(!expression.is_empty() && !expression.contains('$'), "{panel}: {expression}");
        let is_instant = target["instant"] == true;
        Self { panel: text(panel), expression, legend: text(&target["legendFormat"]), is_instant }
    }

    /// Returns the series with a value that can be shown, as Grafana requests them. Panics if the query is refused.
    fn series(&self, prometheus: &Prometheus) -> Vec<Value> {
        let data = if self.is_instant {
            prometheus.get("query", &[("query", &self.expression)])
        } else {
            let now = Clock::system().now().seconds();
            let [start, end] = [now - 60, now].map(|seconds| seconds.to_string());
            let range = [("query", self.expression.as_str()), ("start", &start), ("end", &end), ("step", "1")];
            prometheus.get("query_range", &range)
        };
        list(&data["result"]).iter().filter(|series| has_number(series)).cloned().collect()
    }

    /// Asserts that each series has the labels that the legend shows.
    fn check_legend(&self, series: &[Value]) {
        for label in self.legend.split("{{").skip(1).filter_map(|rest| rest.split_once("}}")).map(|(label, _)| label) {
            for series in series {
                let is_named = series["metric"][label].as_str().is_some_and(|value| !value.is_empty());
                assert!(is_named, "{}: no {label} in {series} for {}", self.panel, self.expression);
            }
        }
    }
}

fn has_number(series: &Value) -> bool {
    let samples = series["values"].as_array().cloned().unwrap_or_else(|| vec![series["value"].clone()]);
    samples.iter().any(|sample| sample[1].as_str().is_some_and(|value| value.parse::<f64>().is_ok_and(f64::is_finite)))
}

/// Waits until each query of the dashboard returns data.
fn wait_for_data(prometheus: &Prometheus) {
    let queries = Query::all();
    assert!(queries.len() > 60, "{} queries", queries.len());
    for query in &queries {
        let description = format!("data of {}: {}", query.panel, query.expression);
        let series = wait_for(&description, || Some(query.series(prometheus)).filter(|series| !series.is_empty()));
        query.check_legend(&series);
    }
}

/// Asserts that the variable of the dashboard offers the scraped gateway.
fn assert_variable_lists_instance(prometheus: &Prometheus, gateway: &TestGateway) {
    assert!(DASHBOARD.contains("\"label_values(tidegate_build_info, instance)\""));
    let instances = prometheus.get("label/instance/values", &[("match[]", "tidegate_build_info")]);
    assert_eq!(instances, Value::from(vec![gateway.admin_address().to_string()]));
}

/// Waits until each rule is evaluated, and asserts that none has failed.
fn assert_rules_are_evaluated(prometheus: &Prometheus) {
    let health = || {
        let rules = prometheus.get("rules", &[]);
        let rules = list(&rules["groups"][0]["rules"]).iter();
        rules.map(|rule| (rule["name"].to_string(), rule["health"].to_string())).collect::<BTreeMap<_, _>>()
    };
    wait_until("all rules to be evaluated", || health().values().all(|health| health != "\"unknown\""));
    assert!(health().len() == 20 && health().values().all(|health| health == "\"ok\""), "{:?}", health());
}

/// Checks dashboards against Grafana's types. Returns the errors, each with the number and the line of its dashboard.
fn check_dashboards(dashboards: &[String]) -> String {
    let dir = tempfile::tempdir().expect("temporary directory");
    let write = |(number, text): (usize, &String)| {
        let file = dir.path().join(format!("{number}.json"));
        std::fs::write(&file, text).expect("file is writable");
        file
    };
    let files: Vec<PathBuf> = dashboards.iter().enumerate().map(write).collect();
    let output = InstalledClients::locate().dashboard_check(&files).output().expect("Node.js starts");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.success(), output.stdout.is_empty(), "{}", output.status);
    String::from_utf8(output.stdout).expect("errors are UTF-8")
}

#[track_caller]
fn assert_promtool_passes(arguments: &[&str], input: &str) {
    let output = promtool(&grafana_dir(), arguments, input);
    let report = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {arguments:?}:\n{report}");
}

fn grafana_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("grafana")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("not a list: {value}"))
}

/// Values of the dashboard's variables as Grafana replaces them.
const VARIABLES: [(&str, &str); 3] = [("$instance", ".*"), ("$__rate_interval", "10s"), ("$__range", "1h")];

const ROUND: [(&str, &str); 18] = [
    ("/item/1", FIREFOX),
    ("/item/2", FIREFOX),
    ("/free", FIREFOX),
    ("/stored", FIREFOX),
    ("/unexpected", FIREFOX),
    ("/shadow", FIREFOX),
    ("/unreported", FIREFOX),
    ("/paced", "User-Agent: curl/8.0\r\n"),
    ("/paced", "User-Agent: curl/8.0\r\n"),
    ("/item/3", "User-Agent: curl/8.0\r\n"),
    ("/robots.txt", GOOGLEBOT),
    ("/item/4", GOOGLEBOT),
    ("/item/5", GOOGLEBOT),
    ("/item/5", GOOGLEBOT),
    ("/item/6", "X-Forwarded-For: 192.0.2.7\r\nUser-Agent: AcmeBot/1.0\r\n"),
    ("/fragile", FIREFOX),
    ("/tenant?tenant=acme", FIREFOX),
    ("/missing", "User-Agent: BadBot/1.0\r\n"),
];

/// Pause between two rounds, which leaves the processor to the servers.
const ROUND_INTERVAL: Duration = Duration::from_millis(20);

const FIREFOX: &str = "X-Forwarded-For: 198.51.100.7\r\n\
                       User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n";
const GOOGLEBOT: &str = "X-Forwarded-For: 66.249.66.1\r\nUser-Agent: Mozilla/5.0 (compatible; Googlebot/2.1)\r\n";

const RULES: &str = "
workers: 1
listen:
- 127.0.0.1:0
- { address: '127.0.0.1:0', tls: { PAIR } }
- { address: '127.0.0.1:0', tls: { acme: { domains: [acme.example], directory: 'https://127.0.0.1:1/' } } }
cache: {}
forward_auth: { listen: \"127.0.0.1:0\" }
clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }
address_lists: { hosting: { file: FILES/hosting.txt } }
operators: { acme: { product_tokens: AcmeBot, ranges: FILES/acme.txt, exhaustive: ranges } }
quotas:
  a_moment: { limit: 1, window: { fixed: 5s } }
  api:
    limit: 1000000
    window: { calendar: day, zone: UTC }
    cost_header: X-API-Cost
    tiers: { search: [ { above: 0%, shed: 100% } ], bot: [ { above: 0%, shed: 50% } ] }
  paced: { limit: 1000, window: { calendar: day, zone: UTC }, pacing: even, tiers: { bot: [ { above: 95%, shed: 100% } ] } }
  tried: { limit: 1, window: { fixed: 24h }, enforce: false }
  unreported: { limit: 1000000, window: { calendar: day, zone: UTC }, cost_json: usage.total_tokens }
  customer: { per: api_key, limit: 1000000, window: { calendar: day, zone: UTC }, metrics_by_key: true }
api_keys: [{ name: acme, class: partner, sha256: 689febd264f8b977e29c0fdb75f839eb248ba07d1561b14f2b95f42756943245 }]
promise: { people_refused: 100% }
traces: { endpoint: 'http://127.0.0.1:1', sample: 100% }
classes:
  - { name: partner, when: { api_key: own } }
  - { name: bad, when: { user_agent: BadBot }, block: true }
  - { name: search, when: { operator: [googlebot, acme] }, crawl_delay: 10s }
  - { name: bot, when: { kind: [verified_bot, declared_bot, suspected_bot, impostor] } }
  - { name: person, when: { kind: human }, bucket: { rate: 20/s, burst: 20 } }
scopes:
  default: { concurrency: 8 }
  fragile: { concurrency: 4, delay: 10ms, backoff: { min_delay: 1s, jitter: 0%, min_clients: 1 } }
  tenant: { partition_by: { query: tenant }, concurrency: 4 }
routes:
  - { match: \"/item/*\", cost: { api: 1 }, cache: off }
  - { match: /stored, cost: { api: 1 }, cache: { ttl: 1h } }
  - { match: /paced, cost: { paced: 1 }, cache: off }
  - { match: /shadow, cost: { tried: 1 }, cache: off }
  - { match: /unreported, cost: { unreported: 1, customer: 1 }, cache: off }
  - { match: /fragile, scopes: fragile, cache: off }
  - { match: /tenant, scopes: [default, tenant], cache: off }
  - { match: /**, cache: off }
";
