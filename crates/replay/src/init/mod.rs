//! Generates an initial configuration from the access logs of a site, with a comment on every value.
//!
//! [`LogAnalysis`](analysis::LogAnalysis) reads a log in bounded memory; [`generate`] writes the configuration;
//! [`dry_run`] replays it on the same log, so that the limit equals the usage of that log. The result is a proposal: an
//! administrator has to review its classes, routes and limit.

mod analysis;
mod bots;
mod cache_savings;
mod dry_run;
mod error;
mod generate;
mod health_checks;
mod logs;
mod model_calls;
mod path_tree;
mod pattern;
mod people_bursts;
pub mod plan;
mod request_rate;
mod routes;
mod self_requests;
mod time_range;

#[cfg(test)]
mod tests;

pub use error::{DryRunError, InitError};
pub use generate::generate_config;
pub use logs::{LogBufferError, Logs};
