//! Which tiers meet a goal: many policies are tried on one log, each through a whole [`Simulator`](crate::replay::Simulator).
//!
//! A [`Goal`] says what is wanted, a [`SearchSpace`] what may be changed, a [`Search`] which of all that to try. Every candidate is
//! a text: the file with other values in it (a [`ConfigEditor`]), read as `check` reads it. So what is shown is what the
//! file that is written does, to the last request. Same log, same file, same goal: same bytes.

mod candidate;
mod chart;
mod config_editor;
mod diff;
mod feasibility;
mod goal;
mod in_memory_log;
mod measure;
mod pacing;
mod pareto;
mod rank;
pub mod report;
mod search;
mod space;
pub mod summary;
mod tiers;
mod tuner;

pub use candidate::Candidate;
pub use config_editor::ConfigEditor;
pub use goal::{Goal, GoalContext, GoalError};
pub use in_memory_log::InMemoryLog;
pub use search::Search;
pub use space::SearchSpace;
pub use tuner::{TuneError, TuneResult, Tuner};
