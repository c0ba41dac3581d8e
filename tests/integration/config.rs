//! Shipped and contractual configuration files load unchanged.

use crate::support::mmdb::{MmdbValue, database};
use crate::support::program::run;
use crate::support::tls::Certificates;
use std::path::Path;
use std::sync::Arc;
use tidegate_config as config;
use tidegate_config::settings::{RateLimitDraft, Sessions};
use tidegate_crawlers::verify::OperatorTable;
use tidegate_policy::budget::BudgetKey;

fn settings(file: &Path) -> config::Settings {
    let operators = OperatorTable::builtin();
    let names: Vec<&str> = operators.names().collect();
    config::read(file, &[], &[], &names).unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn contract_config_equals_shipped_config_except_limits_of_clients() {
    let Some(shared) = crate::support::shared_data() else { return };
    let contract = settings(&shared.join("contract/tidegate.yaml"));
    assert_eq!(contract.warnings, [""; 0]);
    let mut shipped = settings(&Path::new(env!("CARGO_MANIFEST_DIR")).join("config/tidegate.yaml"));
    let rules = Arc::make_mut(&mut shipped.rules);
    let person_class = rules.classes.iter_mut().find(|class| class.name == "person").expect("a class");
    assert!(person_class.bucket.take().is_some_and(|bucket| bucket.costed_only));
    assert!(rules.quotas[0].client_limit.take().is_some());
    assert_eq!(format!("{contract:#?}"), format!("{shipped:#?}"));
}

#[test]
fn contract_of_the_edge_loads() {
    let Some(shared) = crate::support::shared_data() else { return };
    let dir = tempfile::tempdir().expect("temporary directory");
    let (file, tls) = (dir.path().join("edge.yaml"), dir.path().join("tls"));
    std::fs::copy(shared.join("contract/edge.yaml"), &file).expect("contract exists");
    std::fs::create_dir(&tls).expect("directory is writable");
    let certificates = Certificates::new();
    certificates.issue("site", &["example.com"]);
    for (from, to) in [("ca.pem", "origin-ca.pem"), ("site.pem", "site.pem"), ("site.key", "site.key")] {
        std::fs::copy(certificates.path(from), tls.join(to)).expect("file is readable");
    }
    let outcome = run(&["check", &file.display().to_string()], b"");
    assert_eq!((outcome.code, outcome.errors.as_str()), (0, ""), "{}", outcome.output);
    let text = std::fs::read_to_string(&file).expect("contract is there");
    let settings = config::load(&file, &text, &[], &[], &[]).unwrap_or_else(|errors| panic!("{errors}"));
    let listen = settings.listen.clone();
    assert_eq!(listen.iter().map(|listener| listener.redirect.is_some()).collect::<Vec<_>>(), [true, false, false]);
    assert_eq!(listen.iter().map(|listener| listener.tls.is_some()).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(listen.iter().map(|listener| listener.proxy_protocol).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!(settings.origin_urls(), "https://127.0.0.1:3443, https://127.0.0.1:3444");
}

#[test]
fn contract_of_the_first_policy_loads() {
    let Some(shared) = crate::support::shared_data() else { return };
    let file = shared.join("contract/policy.yaml");
    let whole = settings(&file);
    assert_eq!((whole.webhooks.len(), whole.rules.quotas.len(), whole.rules.classes.len()), (2, 1, 5));
    let text = std::fs::read_to_string(&file).expect("contract is there");
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).take(2).collect();
    let first = config::load(Path::new("two.yaml"), &lines.join("\n"), &[], &[], &OperatorTable::builtin_names());
    let first = first.unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(format!("{:?}", first.rules), format!("{:?}", whole.rules));
}

#[test]
fn contract_of_several_origins_loads() {
    let Some(shared) = crate::support::shared_data() else { return };
    let settings = settings(&shared.join("contract/door.yaml"));
    assert_eq!(
        settings.origin_urls(),
        "shop (http://127.0.0.1:3000), api (http://127.0.0.1:3001, http://127.0.0.1:3002)"
    );
    assert_eq!(settings.headers.ratelimit, RateLimitDraft::Draft12);
    assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
}

#[test]
fn contract_of_costs_in_bodies_and_budgets_loads() {
    let Some(shared) = crate::support::shared_data() else { return };
    let file = shared.join("contract/meter.yaml");
    let outcome = run(&["check", &file.display().to_string()], b"");
    assert_eq!(outcome.code, 0, "{}{}", outcome.output, outcome.errors);
    let rules = settings(&file).rules;
    assert_eq!((rules.quotas.len(), rules.classes.len(), rules.routes.len()), (3, 3, 3));
    let budget = rules.quotas[2].budget.as_ref().expect("a budget for each key");
    let mut limits: Vec<u64> = budget.class_limits.values().map(|limit| limit.floor()).collect();
    limits.sort_unstable();
    assert_eq!((budget.per, limits, budget.max_keys), (BudgetKey::Customer, vec![10_000, 500_000], 100_000));
}

#[test]
fn contract_of_strangers_loads() {
    let Some(shared) = crate::support::shared_data() else { return };
    let dir = tempfile::tempdir().expect("temporary directory");
    let value = || MmdbValue::Map(vec![("autonomous_system_number", MmdbValue::Number(64_496))]);
    let mut text = std::fs::read_to_string(shared.join("contract/strangers.yaml")).expect("contract exists");
    for name in ["asn.mmdb", "country.mmdb"] {
        let path = dir.path().join(name);
        std::fs::write(&path, database(vec![([192, 0, 2, 0].into(), 24, value())])).expect("directory is writable");
        text = text.replace(&format!("./{name}"), &path.display().to_string());
    }
    let file = dir.path().join("strangers.yaml");
    std::fs::write(&file, &text).expect("directory is writable");
    let outcome = run(&["check", &file.display().to_string()], b"");
    assert_eq!((outcome.code, outcome.errors.as_str()), (0, ""), "{}", outcome.output);
    let whole = settings(&file);
    let Sessions { cookie, enforce, .. } = whole.sessions.expect("sessions are on");
    assert_eq!((cookie.as_str(), enforce, whole.rules.classes.len()), ("__Host-tidegate", true, 10));
}

/// The twin of [`contract_of_the_first_policy_loads`] without further data.
#[test]
fn two_lines_with_notifications_and_a_combined_log_load() {
    let two = "origin: http://127.0.0.1:3000\nquotas: { api: { limit: 10000, cost_header: X-API-Cost } }\n";
    let rest = "notify:\n  - { webhook: \"https://chat.example/hook\", format: slack, on: [quota_95, origin_down] }\n  \
                - { webhook: \"https://ops.example/\", summary: daily }\n\
                log: { access: { path: ./access.log, format: combined } }\n";
    let load = |text: &str| {
        let loaded = config::load(Path::new("first.yaml"), text, &[], &[], &OperatorTable::builtin_names());
        loaded.unwrap_or_else(|errors| panic!("{errors}"))
    };
    let (first, whole) = (load(two), load(&format!("{two}{rest}")));
    assert_eq!(format!("{:?}", first.rules), format!("{:?}", whole.rules));
    let events: Vec<usize> = whole.webhooks.iter().map(|webhook| webhook.events.len()).collect();
    assert_eq!((events, first.webhooks.len()), (vec![2, 10], 0));
}

#[test]
fn config_errors_are_listed_with_locations() {
    let text = "origin:\n  url: http://a\n  port: 80\nlisten: here\n";
    let result =
        config::load(Path::new("dir/gate.yaml"), text, &[], &[], &[]).map(|_| ()).map_err(|errors| errors.to_string());
    let expected = "dir/gate.yaml:3:3: origin.port: unknown key \"port\"; known here: url, urls, ca, server_name, certificate, key, verify, http2, proxy_protocol, health, connect_timeout, response_timeout, idle_timeout, max_connections, aborts_on_disconnect, only_if_cached\n\
                    dir/gate.yaml:4:9: listen: found \"here\", needs an address and port; write it like 127.0.0.1:8080 or \"[::1]:8080\"";
    assert_eq!(result, Err(expected.to_owned()));
}
