//! robots.txt: the origin's own text with what the gate asks of crawlers written in, kept for when the origin cannot
//! be asked, and how crawlers keep to it.
//!
//! [`merged`] writes the wishes in. A [`Shelf`] keeps the text of each site and makes an [`Edition`] of it, once for each
//! set of wishes. [`Conduct`] counts. Who fetches and who answers is the gateway's.

mod asked;
mod conduct;
mod edition;
mod errand;
mod freshness;
mod merge;
mod own;
mod page;
mod shelf;
mod text;

pub use asked::Wishes;
pub use conduct::Conduct;
pub use edition::{Edition, Original};
pub use errand::{Errand, Turn};
pub use freshness::fresh_for;
pub use merge::merged;
pub use own::{Own, read as read_own};
pub use shelf::{Asker, Found, Handout, LARGEST, Shelf};
