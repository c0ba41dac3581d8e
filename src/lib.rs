//! Tidegate: a reverse proxy for sites whose origin lives on a quota.

pub mod demo;
pub mod policy;
