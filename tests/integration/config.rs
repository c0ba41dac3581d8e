//! Shipped and contractual configuration files load unchanged.

use std::path::Path;
use std::sync::Arc;
use tidegate_config as config;
use tidegate_crawlers::verify::OperatorTable;

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
    let text = std::fs::read_to_string(shared.join("contract/edge.yaml")).expect("contract exists");
    let (before, origin) = text.split_once("\norigin:").expect("contract has an origin");
    let (_, after) = origin.split_once("\nclients:").expect("contract has clients");
    let text = format!("{before}\norigin: {{ url: \"http://127.0.0.1:3000\" }}\nclients:{after}");
    let settings = config::load(Path::new("edge.yaml"), &text, &[], &[], &[]);
    let listen = settings.unwrap_or_else(|errors| panic!("{errors}")).listen;
    assert_eq!(listen.iter().map(|listener| listener.redirect.is_some()).collect::<Vec<_>>(), [true, false, false]);
    assert_eq!(listen.iter().map(|listener| listener.tls.is_some()).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(listen.iter().map(|listener| listener.proxy_protocol).collect::<Vec<_>>(), [false, false, true]);
}

#[test]
fn config_errors_are_listed_with_locations() {
    let text = "origin:\n  url: http://a\n  port: 80\nlisten: here\n";
    let result =
        config::load(Path::new("dir/gate.yaml"), text, &[], &[], &[]).map(|_| ()).map_err(|errors| errors.to_string());
    let expected = "dir/gate.yaml:3:3: origin.port: unknown key \"port\"; known here: url, connect_timeout, response_timeout, idle_timeout, max_connections, aborts_on_disconnect, only_if_cached\n\
                    dir/gate.yaml:4:9: listen: found \"here\", needs an address and port; write it like 127.0.0.1:8080 or \"[::1]:8080\"";
    assert_eq!(result, Err(expected.to_owned()));
}
