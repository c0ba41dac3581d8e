//! A first YAML for a site that nobody has described yet: from its log, with a reason for every value.
//!
//! [`Findings`] is what a log holds, in memory that does not grow with it; [`yaml`](Findings::yaml) writes down what follows
//! from it. Nothing here decides about anybody: the classes, the routes and the limit are for a person to look at.

mod bots;
mod days;
mod findings;
mod pattern;
mod proposal;
mod routes;
mod tally;
mod tree;

#[cfg(test)]
mod tests;

pub use findings::{Findings, Nothing};
