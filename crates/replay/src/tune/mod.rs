//! Searches for tiers and pacing that meet a goal. Replays the log through a [`Simulator`](crate::Simulator)
//! for each candidate.
//!
//! A [`Goal`] defines the target, a [`SearchSpace`] the values that may change, a [`Search`] the candidates to try.
//! Each candidate is the text of a file, edited by a [`ConfigEditor`] and loaded like any configuration. Therefore the
//! written file behaves exactly as shown. The same log, file and goal give the same bytes.

mod candidate;
mod changes;
mod chart;
mod config_editor;
mod error;
mod feasibility;
mod goal;
mod in_memory_log;
mod measure;
mod pacing;
mod pareto;
mod rank;
pub mod report;
mod run;
mod search;
mod space;
pub mod summary;
mod tiers;
mod tuner;

pub use candidate::Candidate;
pub use config_editor::ConfigEditor;
pub use error::TuneError;
pub use goal::{Goal, GoalContext, GoalError, Unmeasured};
pub use in_memory_log::InMemoryLog;
pub use run::TuneResult;
pub use search::Search;
pub use space::SearchSpace;
pub use tuner::Tuner;
