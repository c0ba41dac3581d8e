//! A first YAML for a site that nobody has described yet: from its log, with a reason for every value.
//!
//! [`Findings`](findings::Findings) is what a log holds, in memory that does not grow with it; a [`proposal`] writes down what
//! follows from it, and a [`rehearsal`] replays that on the same log, so that its limit is what it charges itself. Nothing
//! here decides about anybody: the classes, the routes and the limit are for a person to look at.

mod bots;
mod days;
mod findings;
mod logs;
mod own_calls;
mod pattern;
mod proposal;
mod rehearsal;
mod routes;
mod tally;
mod tree;

#[cfg(test)]
mod tests;

pub use findings::Nothing;
pub use logs::{Logs, Unkept};
pub use proposal::proposed;
pub use rehearsal::Untried;
