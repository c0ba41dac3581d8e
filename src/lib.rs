//! Tidegate: a reverse proxy for sites whose origin lives on a quota.

pub mod admin;
pub mod user_agents;
pub mod calendar;
pub mod rng;
pub mod cli;
pub mod clock;
pub mod config;
pub mod demo;
pub mod engine;
pub mod explain;
pub mod bounded_file;
pub mod gateway;
pub mod http1;
pub mod init;
pub mod demand_store;
pub mod ledger;
pub mod address_list_files;
pub mod policy;
pub mod replay;
pub mod robots;
pub mod service;
pub mod telemetry;
pub mod terminal;
pub mod tune;
pub mod verify;
