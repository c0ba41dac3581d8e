//! Summary line of the ledger.

use crate::settings::{Ledger, LedgerFailureMode, Redis};
use std::path::Path;

pub(super) fn ledger(ledger: &Ledger, state_dir: &Path) -> String {
    match ledger {
        Ledger::File => format!("ledger: file in {}", state_dir.display()),
        Ledger::Memory => "ledger: memory, reset by a restart".into(),
        Ledger::Redis(redis) => redis_summary(redis),
    }
}

fn redis_summary(redis: &Redis) -> String {
    let failure_mode = match redis.failure_mode {
        LedgerFailureMode::Refuse => "refuse",
        LedgerFailureMode::Fallback => "fallback",
    };
    let tls = if redis.tls.is_some() { ", TLS" } else { "" };
    format!("ledger: redis at {}{tls}, prefix {}, failure mode {failure_mode}", redis.address, redis.prefix)
}
