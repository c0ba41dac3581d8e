//! A first YAML for a site that nobody has described yet: from its log, with a reason for every value.
//!
//! [`Findings`](findings::Findings) is what a log holds, in memory that does not grow with it; a [`generate`] writes down what
//! follows from it, and a [`dry_run`] replays that on the same log, so that its limit is what it charges itself. Nothing
//! here decides about anybody: the classes, the routes and the limit are for a person to look at.

mod bots;
mod time_range;
mod analysis;
mod logs;
mod self_requests;
mod pattern;
mod generate;
mod dry_run;
mod routes;
mod request_rate;
mod path_tree;

#[cfg(test)]
mod tests;

pub use analysis::InitError;
pub use logs::{Logs, LogBufferError};
pub use generate::generate_config;
pub use dry_run::DryRunError;
