//! Which tiers meet a goal: many policies are tried on one log, each through a whole [`Trial`](crate::replay::Trial).
//!
//! A [`Goal`] says what is wanted, a [`Space`] what may be changed, a [`Search`] which of all that to try. Every candidate is
//! a text: the file with other values in it (a [`Manuscript`]), read as `check` reads it. So what is shown is what the
//! file that is written does, to the last request. Same log, same file, same goal: same bytes.

mod feasibility;
mod chart;
mod candidate;
mod pareto;
mod goal;
mod tiers;
mod config_editor;
mod measure;
mod pacing;
mod rank;
mod in_memory_log;
pub mod report;
mod search;
mod space;
pub mod summary;
mod tuner;
mod diff;

pub use candidate::Draft;
pub use goal::{Goal, Known, WrongTerm};
pub use config_editor::Manuscript;
pub use in_memory_log::Recording;
pub use search::Search;
pub use space::Space;
pub use tuner::{Failed, Tuned, Tuning};
