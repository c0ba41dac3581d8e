//! Errors of `init`.

use super::logs::LogBufferError;
use crate::ReplayError;
use crate::log::{LineCounts, LineError, LinePosition, LogReadError};

/// Error of `init`.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// A log is unreadable.
    #[error(transparent)]
    Unreadable(#[from] LogReadError),
    /// A log that can be read only once is too long.
    #[error(transparent)]
    Buffer(#[from] LogBufferError),
    /// The dry run failed.
    #[error(transparent)]
    DryRun(#[from] DryRunError),
    /// The replay under the proposed policy failed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The logs contain no requests.
    #[error("no requests found in {lines} lines{first}; expected an access log")]
    NoRequest {
        /// Number of lines.
        lines: u64,
        /// Location and error of the first invalid line.
        first: String,
    },
    /// The lines of the logs are not in the order of time.
    #[error(
        "{late} of {total} lines are over a minute late, so that no day of the log is whole; sort the log by time, or name its \
         files one by one, in any order"
    )]
    NotInOrder {
        /// Number of late lines.
        late: u64,
        /// Number of lines.
        total: u64,
    },
}

impl InitError {
    pub(super) fn no_request(counts: &LineCounts, names: &[String]) -> Self {
        let first = counts.invalid_lines.iter().min_by_key(|(_, (_, position))| *position);
        let describe = |(kind, (_, position)): (&LineError, &(u64, LinePosition))| {
            let name = names.get(position.file).map_or("", String::as_str);
            format!("; first invalid line {name}:{}: {}", position.number, kind.message())
        };
        Self::NoRequest { lines: counts.lines, first: first.map_or_else(String::new, describe) }
    }
}

/// Error of a dry run.
#[derive(Debug, thiserror::Error)]
pub enum DryRunError {
    /// A log is unreadable at the second reading.
    #[error(transparent)]
    Unreadable(#[from] LogReadError),
    /// The generated configuration is invalid, which is a bug.
    #[error("internal error: the generated configuration is invalid: {0}")]
    InvalidConfig(String),
}
