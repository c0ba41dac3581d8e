//! Tidegate: a reverse proxy for sites whose origin lives on a quota.

pub mod agents;
pub mod cli;
pub mod clock;
pub mod demo;
pub mod engine;
pub mod ledger;
pub mod policy;
pub mod verify;
