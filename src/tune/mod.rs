//! Which tiers meet a goal: many policies are tried on one log, each through a whole [`Trial`](crate::replay::Trial).
//!
//! A [`Goal`] says what is wanted, a [`Space`] what may be changed, a [`Search`] which of all that to try. Every candidate is
//! a text: the file with other values in it (a [`Manuscript`]), read as `check` reads it. So what is shown is what the
//! file that is written does, to the last request. Same log, same file, same goal: same bytes.

mod bound;
mod chart;
mod draft;
mod front;
mod goal;
mod ladder;
mod manuscript;
mod measure;
mod pace;
mod rank;
mod recording;
pub mod report;
mod search;
mod space;
pub mod summary;
mod tuning;
mod unified;

pub use draft::Draft;
pub use goal::{Goal, Known, WrongTerm};
pub use manuscript::Manuscript;
pub use recording::Recording;
pub use search::Search;
pub use space::Space;
pub use tuning::{Failed, Tuned, Tuning};
