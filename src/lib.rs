//! Tidegate: a reverse proxy for sites whose origin lives on a quota.

pub mod calendar;
pub mod engine;
pub mod policy;
