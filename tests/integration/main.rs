//! Integration tests over loopback, with real components and complete files: one binary, one module per subject.
//!
//! `cargo test --test integration refusals::` runs one module.

mod support;

mod agents;
mod agreement;
mod answers;
mod architecture;
mod behaviour;
mod calibration;
mod clients;
mod commands;
mod config;
mod crawl_policy;
mod crawlers;
mod demo;
mod docs;
mod explain;
mod explain_log;
mod fuzz_corpus;
mod grafana;
mod init;
mod keys;
mod ledger;
mod limits;
mod lists;
mod logs;
mod nginx;
mod operating;
mod paced;
mod pacing;
mod proxy;
mod redis;
mod reference;
mod refusals;
mod replay;
mod report;
mod robots;
mod robots_text;
mod scopes;
mod several_gates;
mod several_paced_gates;
mod signatures;
mod strategies;
mod throttle;
mod traffic;
mod troubled_origin;
mod tune;
mod tutorial;
