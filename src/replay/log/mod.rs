//! Access logs: from bytes to requests in the order of time.
//!
//! [`LogLine`] is one line, in whatever format it was written; [`LogFiles`] opens the files, `-` and compressed ones too, and
//! [`MergedLog`] gives out the lines of all of them in time order. What a line cannot say is listed in [`MissingFields`], never guessed; what is not a
//! line of a log is counted by [`LineError`] and passed over.

mod combined;
mod line;
mod line_error;
mod merged;
mod missing;
mod native;
mod quoted;
mod source;
mod timestamp;

#[cfg(test)]
mod tests;

pub use line::{LogLine, LoggedClient, RequestLine, east};
pub use line_error::LineError;
pub use merged::{Counts, LinePosition, MergedLog, OrderedLine};
pub use missing::{LogField, MissingFields};
pub use native::{NativeFields, QuotaFields};
pub use source::{LogFiles, LogReadError, LogSource, Numbered};
