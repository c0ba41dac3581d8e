//! Tidegate: a reverse proxy for sites whose origin lives on a quota.

pub mod clock;
pub mod demo;
pub mod engine;
pub mod ledger;
pub mod policy;
