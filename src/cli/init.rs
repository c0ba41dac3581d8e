//! `tidegate init`: a first YAML from a log.

use super::{failed, print, wrong};
use crate::user_agents::Agents;
use crate::init::{Logs, Nothing, proposed};
use crate::verify::Operators;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Prints what the logs lead to. Exit code 2 where they cannot be read, or there is no request in them.
pub fn run(logs: &[PathBuf]) -> ExitCode {
    let operators = Arc::new(Operators::builtin());
    let agents = Arc::new(Agents::builtin(operators.tokens()));
    let names: Vec<String> = logs.iter().map(|log| log.display().to_string()).collect();
    let yaml = Logs::of(logs).map_err(Nothing::from).and_then(|logs| proposed(&logs, &agents, &operators));
    match yaml {
        Ok(yaml) => print(&yaml),
        Err(nothing @ Nothing::NoRequest { .. }) => wrong(&format!("{}: {nothing}", names.join(", "))),
        Err(Nothing::Untried(untried)) => failed(&untried),
        Err(nothing) => wrong(&nothing),
    }
}
