//! Integration tests over loopback, with real components and complete files: one binary, one module per subject.
//!
//! `cargo test --test integration explain_refusals::` runs one module.

mod support;

mod abandoned_requests;
mod address_lists;
mod architecture;
mod bot_detection;
mod bucket_keys;
mod cli_admin;
mod client_retry_strategies;
mod client_share;
mod config;
mod crawl_policy;
mod crawler_verification;
mod demo;
mod docs;
mod explain;
mod explain_log;
mod explain_refusals;
mod fuzz_corpus;
mod golden;
mod grafana;
mod hosts;
mod html_report;
mod init;
mod ledger;
mod limits;
mod live_vs_replay;
mod load;
mod log_formats;
mod multi_instance;
mod multi_instance_pacing;
mod nginx;
mod operations;
mod origin_failures;
mod pacing_live;
mod pacing_simulation;
mod proxy;
mod quota_sync;
mod real_clients;
mod redis;
mod reference;
mod replay;
mod responses;
mod robots;
mod robots_fetch;
mod robots_rewrite;
mod scopes;
mod signatures;
mod throttle;
mod tune;
mod tutorial;
mod user_agents;
