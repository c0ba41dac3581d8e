//! Tidegate: a reverse proxy for sites whose origin is metered by a quota.

pub mod access_log;
pub mod address_list_files;
pub mod admin;
pub mod calendar;
pub mod cli;
pub mod clock;
pub mod config;
pub mod demand_store;
pub mod demo;
pub mod engine;
pub mod explain;
pub mod files;
pub mod gateway;
pub mod http1;
pub mod init;
pub mod ledger;
pub mod policy;
pub mod rate_limit_headers;
pub mod replay;
pub mod robots;
pub mod service;
pub mod telemetry;
pub mod terminal;
pub mod tune;
pub mod user_agents;
pub mod verify;
