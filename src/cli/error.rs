//! Why a command has no result, how that is told, and with which exit code: the same for all of them.

use super::config_file::ConfigNotFound;
use crate::replay::ReplayError;
use std::io::{self, Write};
use std::process::ExitCode;

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// What was asked for is wrong, or a file that was named: every mistake, a line each, which says where it is.
    Usage(String),
    /// It could not be done.
    Failed(String),
    /// Whoever read the result has left, which is no failure of ours.
    BrokenPipe,
}

impl CommandError {
    /// Says it on standard error.
    pub fn report(&self) -> ExitCode {
        match self {
            Self::Usage(mistakes) => print_errors(mistakes),
            Self::Failed(why) => failed(why),
            Self::BrokenPipe => ExitCode::SUCCESS,
        }
    }
}

impl From<ConfigNotFound> for CommandError {
    fn from(none: ConfigNotFound) -> Self {
        Self::Usage(format!("{none} with --config FILE"))
    }
}

impl From<ReplayError> for CommandError {
    fn from(failed: ReplayError) -> Self {
        match failed {
            ReplayError::NoRequests { .. } | ReplayError::Unreadable(_) => Self::Usage(failed.to_string()),
            ReplayError::Verdicts(error) if error.kind() == io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            ReplayError::Verdicts(_) => Self::Failed(failed.to_string()),
        }
    }
}

pub(super) fn failed(error: &dyn std::fmt::Display) -> ExitCode {
    print_line(&format_args!("tidegate: {error}"));
    ExitCode::from(1)
}

pub(super) fn print_errors(mistakes: &dyn std::fmt::Display) -> ExitCode {
    print_line(mistakes);
    ExitCode::from(2)
}

/// On standard error, to whoever still reads it.
fn print_line(words: &dyn std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{words}");
}
