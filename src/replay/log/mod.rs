//! Access logs: from bytes to requests in the order of time.
//!
//! [`LogLine`] is one line, in whatever format it was written; [`LogFiles`] opens the files, `-` and compressed ones too, and
//! [`MergedLog`] gives out the lines of all of them in time order. What a line cannot say is listed in [`MissingFields`], never guessed; what is not a
//! line of a log is counted by [`LineError`] and passed over.

mod line_error;
mod combined;
mod missing;
mod line;
mod merged;
mod timestamp;
mod native;
mod quoted;
mod source;

#[cfg(test)]
mod tests;

pub use line_error::LineError;
pub use missing::{LogField, MissingFields};
pub use line::{RequestLine, LoggedClient, LogLine, east};
pub use merged::{Counts, MergedLog, OrderedLine, LinePosition};
pub use native::{QuotaFields, NativeFields};
pub use source::{LogFiles, Numbered, LogSource, LogReadError};
