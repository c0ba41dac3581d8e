//! robots.txt: the origin's own text with what the gate asks of crawlers written in, kept for when the origin cannot
//! be asked, and how crawlers keep to it.
//!
//! [`merged`] writes the wishes in. A [`Shelf`] keeps the text of each site and makes an [`Edition`] of it, once for each
//! set of wishes. [`Conduct`] counts. Who fetches and who answers is the gateway's.

mod directives;
mod compliance;
mod document;
mod fetch_lock;
mod freshness;
mod merge;
mod override_file;
mod writer;
mod cache;
mod parser;

pub use directives::Wishes;
pub use compliance::Conduct;
pub use document::{Edition, Original};
pub use fetch_lock::{Errand, Turn};
pub use freshness::fresh_for;
pub use merge::merged;
pub use override_file::{Own, read as read_own};
pub use cache::{Asker, Found, Handout, LARGEST, Shelf};
