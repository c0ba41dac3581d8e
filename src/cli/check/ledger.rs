//! Where the count is kept.

use crate::config::settings::{Ledger, LedgerFailureMode, Redis};
use std::path::Path;

pub(super) fn ledger(ledger: &Ledger, state_dir: &Path) -> String {
    match ledger {
        Ledger::File => format!("ledger: in {}", state_dir.display()),
        Ledger::Memory => "ledger: in memory, a restart begins anew".into(),
        Ledger::Redis(redis) => redis_summary(redis),
    }
}

fn redis_summary(redis: &Redis) -> String {
    let lost = match redis.when_lost {
        LedgerFailureMode::Refuse => "refuses",
        LedgerFailureMode::Fallback => "spends its share",
    };
    let host = if redis.host.contains(':') { format!("[{}]", redis.host) } else { redis.host.clone() };
    format!("ledger: shared in redis at {host}:{} as {}; a gate that is cut off {lost}", redis.port, redis.prefix)
}
