//! `tidegate init`: a first YAML from a log.

use super::{failed, print, wrong};
use crate::agents::Agents;
use crate::init::{Findings, Nothing};
use crate::replay::log::Files;
use crate::verify::Operators;
use std::path::PathBuf;
use std::process::ExitCode;

/// Prints what the logs lead to. Exit code 2 where there is no request in them.
pub fn run(logs: &[PathBuf]) -> ExitCode {
    let names: Vec<String> = logs.iter().map(|log| log.display().to_string()).collect();
    let operators = Operators::builtin();
    let agents = Agents::builtin(operators.tokens());
    let findings = Files::open(logs).map_err(Nothing::from).and_then(|files| Findings::of(files, &agents, &operators));
    match findings {
        Ok(findings) => print(&findings.yaml(&names)),
        Err(nothing @ Nothing::NoRequest { .. }) => wrong(&format!("{}: {nothing}", names.join(", "))),
        Err(Nothing::Unreadable(error)) => failed(&error),
    }
}
