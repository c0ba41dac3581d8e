//! Errors of a search.

use super::config_editor::EditError;
use crate as replay;
use tidegate_access_log::rfc3339;
use tidegate_policy::Timestamp;

/// Reason why a search has no result.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// The log cannot be read or contains no requests.
    #[error(transparent)]
    Replay(#[from] replay::ReplayError),
    /// The log does not fit in memory.
    #[error(
        "the log does not fit in memory (1 GiB): only the lines from {} to {} fit; use fewer days",
        rfc3339(*first),
        rfc3339(*last)
    )]
    TooLong {
        /// Time of the first line.
        first: Timestamp,
        /// Time of the last line that fits.
        last: Timestamp,
    },
    /// A value of the file cannot be edited.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The file is invalid.
    #[error("{0}")]
    InvalidConfig(String),
    /// No point of the trade-off has the selected number.
    #[error("--select: no point {picked}; {}", match points {
        0 => "there are no trade-offs".to_owned(),
        points => format!("points are numbered from 1 to {points}"),
    })]
    NoSuchPoint {
        /// Selected number.
        picked: usize,
        /// Number of points.
        points: usize,
    },
}
