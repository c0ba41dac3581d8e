//! Access logs: from bytes to requests in the order of time.
//!
//! [`Line`] is one line, in whatever format it was written; [`Files`] opens the files, `-` and compressed ones too, and
//! [`Merged`] gives out the lines of all of them in time order. What a line cannot say is listed in [`Facts`], never guessed; what is not a
//! line of a log is counted by [`Broken`] and passed over.

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

pub use line_error::Broken;
pub use missing::{Fact, Facts};
pub use line::{Asked, Asker, Line, east};
pub use merged::{Counts, Merged, Next, Place};
pub use native::{Account, Own};
pub use source::{Files, Numbered, Source, Unreadable};
