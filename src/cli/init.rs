//! `tidegate init`: generates an initial configuration from access logs.

use super::{failed, print, print_errors};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tidegate_crawlers::user_agents::UserAgentMatcher;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_replay::init::{InitError, Logs, generate_config};

/// Generates and prints the configuration. Returns exit code 2 if the logs are unreadable or contain no requests.
pub fn run(logs: &[PathBuf]) -> ExitCode {
    let operators = Arc::new(OperatorTable::builtin());
    let agents = Arc::new(UserAgentMatcher::builtin(operators.product_tokens()));
    let names: Vec<String> = logs.iter().map(|log| log.display().to_string()).collect();
    let yaml =
        Logs::from_paths(logs).map_err(InitError::from).and_then(|logs| generate_config(&logs, &agents, &operators));
    match yaml {
        Ok(yaml) => print(&yaml),
        Err(error @ InitError::NoRequest { .. }) => print_errors(&format!("{}: {error}", names.join(", "))),
        Err(InitError::DryRun(error)) => failed(&error),
        Err(error) => print_errors(&error),
    }
}
