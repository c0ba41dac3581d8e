//! `tidegate init`: generates an initial configuration from access logs.

use super::log_args::LogFormatArgs;
use super::{CommandError, print};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tidegate_crawlers::user_agents::UserAgentMatcher;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_replay::init::{InitError, Logs, generate_config};

/// Generates and prints the configuration. Returns exit code 2 if the logs are unreadable or contain no requests.
pub fn run(logs: &[PathBuf], format: &LogFormatArgs) -> ExitCode {
    let operators = Arc::new(OperatorTable::builtin());
    let agents = Arc::new(UserAgentMatcher::builtin(operators.product_tokens()));
    let input = Logs::from_paths(logs, &format.options()).map_err(InitError::from);
    let yaml = input.and_then(|logs| generate_config(&logs, &agents, &operators));
    match yaml {
        Ok(yaml) => print(&yaml),
        Err(error) => command_error(error, logs).report(),
    }
}

/// Returns the error of a command that reads `logs`.
pub(super) fn command_error(error: InitError, logs: &[PathBuf]) -> CommandError {
    match error {
        InitError::NoRequest { .. } | InitError::NotInOrder { .. } => {
            let names: Vec<String> = logs.iter().map(|log| log.display().to_string()).collect();
            CommandError::Usage(format!("{}: {error}", names.join(", ")))
        }
        InitError::DryRun(error) => CommandError::Failed(error.to_string()),
        InitError::Replay(error) => error.into(),
        InitError::Unreadable(_) | InitError::Buffer(_) => CommandError::Usage(error.to_string()),
    }
}
