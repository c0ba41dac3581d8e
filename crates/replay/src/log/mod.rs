//! Access logs: parses bytes to requests in the order of time.
//!
//! [`LogFiles`] opens files, compressed files and standard input. [`MergedLog`] returns the lines of all files in the
//! order of time. [`LogLine`] is one parsed line. [`formats`] has the formats of other servers. Fields that a line lacks are listed in
//! [`MissingFields`] and never guessed. Invalid lines are counted by [`LineError`] and skipped.

mod address;
mod combined;
mod compression;
mod file_format;
mod format;
mod formats;
mod front_fields;
mod layout;
mod line;
mod line_error;
mod merged;
mod missing;
mod native;
mod normalized;
mod options;
mod proxies;
mod quoted;
mod read_ahead;
mod source;
mod timestamp;

#[cfg(test)]
mod tests;

pub use file_format::with_line;
pub use format::line_utc_offset;
pub use line::{LogLine, LoggedClient, RequestLine};
pub use line_error::LineError;
pub use merged::{ClientNotes, LineCounts, LinePosition, MergedLog, OrderedLine};
pub use missing::{LogField, MissingFields};
pub use options::{LogFieldName, LogFormat, LogOptions};
pub use read_ahead::ProgressCallback;
pub use source::{LogFiles, LogReadError, LogSource, NumberedLine};
