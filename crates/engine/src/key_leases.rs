//! Exchange of leases of keys between quota counters and a ledger that several instances share.

use super::Engine;
use super::quota::QuotaCounter;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidegate_policy::Timestamp;
use tidegate_policy::key_lease::{KeyLeaseCall, KeyLeases, KeyReply, MAX_ROWS};

impl Engine {
    /// Leases no budgets of keys from now on, or leases them again.
    pub fn hold_key_leases(&self, holds: bool) {
        self.holds_key_leases.store(holds, Ordering::Relaxed);
    }

    /// Returns true if no budgets of keys are leased.
    pub fn holds_key_leases(&self) -> bool {
        self.holds_key_leases.load(Ordering::Relaxed)
    }

    /// Returns the next calls for keys of all quotas that need a lease, of bounded size for each. With `is_tick`, which is to be
    /// set once a second, also those that report usage and return units.
    pub(crate) fn key_lease_calls(&self, now: Timestamp, is_tick: bool) -> Vec<KeyLeaseCall> {
        if self.holds_key_leases() {
            return Vec::new();
        }
        let calls = |counter: &Arc<QuotaCounter>| {
            let window = counter.has_key_leases().then(|| counter.lock_at(now).effective_span())?;
            counter.with_key_leases(|leases| {
                let window = leases.windows().table_span(window, now);
                leases.calls(counter.name(), window, now, is_tick, MAX_ROWS)
            })
        };
        self.all_counters().iter().filter_map(calls).flatten().collect()
    }

    /// Applies the reply to a call. Returns false if a key still lacks units that may come soon.
    pub(crate) fn apply_key_leases(&self, call: &KeyLeaseCall, reply: &KeyReply) -> bool {
        self.with_key_leases(&call.quota, |leases| leases.apply(call, reply)).unwrap_or(true)
    }

    /// Queues the keys of a call that the ledger has not executed.
    pub(crate) fn requeue_key_leases(&self, call: &KeyLeaseCall) {
        self.with_key_leases(&call.quota, |leases| leases.requeue(call));
    }

    /// Returns calls that return all units of keys that are not used. No units may be taken afterwards.
    pub(crate) fn last_report_of_keys(&self, now: Timestamp) -> Vec<KeyLeaseCall> {
        let calls =
            |counter: &Arc<QuotaCounter>| counter.with_key_leases(|leases| leases.last_report(counter.name(), now));
        self.all_counters().iter().filter_map(calls).flatten().collect()
    }

    fn with_key_leases<T>(&self, quota: &str, change: impl FnOnce(&mut KeyLeases) -> T) -> Option<T> {
        self.all_counters().iter().find(|it| it.name() == quota && it.has_budgets())?.with_key_leases(change)
    }
}
