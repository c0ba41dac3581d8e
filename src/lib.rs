//! Tidegate: a reverse proxy for sites whose origin lives on a quota.

pub mod admin;
pub mod agents;
pub mod calendar;
pub mod chance;
pub mod cli;
pub mod clock;
pub mod config;
pub mod demo;
pub mod engine;
pub mod explain;
pub mod files;
pub mod gateway;
pub mod http1;
pub mod init;
pub mod learned;
pub mod ledger;
pub mod lists;
pub mod policy;
pub mod replay;
pub mod robots;
pub mod service;
pub mod telemetry;
pub mod terminal;
pub mod tune;
pub mod verify;
