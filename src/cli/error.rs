//! Errors of commands: their output on standard error and their exit codes, common to all commands.

use super::config_file::ConfigNotFoundError;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use tidegate_replay::ReplayError;

/// Error of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// The arguments or a named file are invalid (exit code 2). One line per error, each with its location.
    Usage(String),
    /// The operation failed (exit code 1).
    Failed(String),
    /// The reader closed the pipe (exit code 0).
    BrokenPipe,
}

impl CommandError {
    /// Prints the error on standard error and returns its exit code.
    pub fn report(&self) -> ExitCode {
        match self {
            Self::Usage(errors) => print_errors(errors),
            Self::Failed(error) => failed(error),
            Self::BrokenPipe => ExitCode::SUCCESS,
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) | Self::Failed(message) => out.write_str(message),
            Self::BrokenPipe => out.write_str("the reader closed the pipe"),
        }
    }
}

impl From<ConfigNotFoundError> for CommandError {
    fn from(error: ConfigNotFoundError) -> Self {
        Self::Usage(format!("{error} with --config FILE"))
    }
}

impl From<ReplayError> for CommandError {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::NoRequests { .. } | ReplayError::Unreadable(_) => Self::Usage(error.to_string()),
            ReplayError::Verdicts(error) if error.kind() == io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            ReplayError::Verdicts(_) => Self::Failed(error.to_string()),
        }
    }
}

pub(super) fn failed(error: &dyn std::fmt::Display) -> ExitCode {
    print_line(&format_args!("tidegate: {error}"));
    ExitCode::from(1)
}

pub(super) fn print_errors(errors: &dyn std::fmt::Display) -> ExitCode {
    print_line(errors);
    ExitCode::from(2)
}

/// Prints a line on standard error; ignores a closed pipe.
fn print_line(message: &dyn std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{message}");
}
