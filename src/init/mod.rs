//! A first YAML for a site that nobody has described yet: from its log, with a reason for every value.
//!
//! [`Findings`](findings::Findings) is what a log holds, in memory that does not grow with it; a [`generate`] writes down what
//! follows from it, and a [`dry_run`] replays that on the same log, so that its limit is what it charges itself. Nothing
//! here decides about anybody: the classes, the routes and the limit are for a person to look at.

mod analysis;
mod bots;
mod dry_run;
mod generate;
mod logs;
mod path_tree;
mod pattern;
mod request_rate;
mod routes;
mod self_requests;
mod time_range;

#[cfg(test)]
mod tests;

pub use analysis::InitError;
pub use dry_run::DryRunError;
pub use generate::generate_config;
pub use logs::{LogBufferError, Logs};
