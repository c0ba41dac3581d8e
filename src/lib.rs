//! Tidegate: a reverse proxy for sites whose origin is metered by a quota.

pub mod admin;
pub mod cli;
pub mod demo;
pub mod gateway;
pub mod service;
pub mod telemetry;
