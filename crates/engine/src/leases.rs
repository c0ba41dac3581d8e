//! Exchange of lease requests and leases between quota counters and a ledger.
//!
//! No lock is held during this exchange. One thread collects the requests of all quotas ([`Engine::lease_requests`]),
//! sends them to the ledger, and applies the leases ([`Engine::apply_leases`]).

use super::Engine;
use super::quota::QuotaCounter;
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::lease::{Lease, LeaseRequest};
use tidegate_policy::{Timestamp, Units};

impl Engine {
    /// Returns the lease requests of all quotas. Units that a request returns are not taken from now on. A refresh takes
    /// `refresh_time`.
    pub fn lease_requests(&self, now: Timestamp, refresh_time: Duration) -> Vec<LeaseRequest> {
        let mut requests = Vec::new();
        for counter in self.leased_counters() {
            counter.lock_at(now).request_leases(counter.name(), &mut requests, now, refresh_time);
        }
        requests
    }

    /// Returns the last lease requests: another process has the leases from now on. What is charged beyond reservations
    /// afterwards is for [`Self::take_late_charges`].
    pub(super) fn last_lease_requests(&self, now: Timestamp) -> Vec<LeaseRequest> {
        let mut requests = Vec::new();
        for counter in self.leased_counters() {
            let mut state = counter.lock_at(now);
            state.request_leases(counter.name(), &mut requests, now, Duration::ZERO);
            state.begin_late_charges();
        }
        requests
    }

    /// Returns the units that were charged beyond reservations since the last call, once the ledger is closed: the quota,
    /// the window and the units.
    pub fn take_late_charges(&self) -> Vec<(String, u64, Units)> {
        let late = |counter: &Arc<QuotaCounter>| {
            let charges = counter.lock().take_late_charges();
            let name = counter.name().to_owned();
            charges.into_iter().map(move |(window, units)| (name.clone(), window, units)).collect::<Vec<_>>()
        };
        self.leased_counters().iter().flat_map(late).collect()
    }

    /// Charges what another process has charged beyond reservations after it gave the ledger to this one.
    pub fn charge_late(&self, quota: &str, window: u64, units: Units, now: Timestamp) {
        if let Some(counter) = self.leased_counters().iter().find(|counter| counter.name() == quota) {
            counter.charge_late(window, units, now);
        }
    }

    /// Applies the leases that a ledger returned for the requests.
    pub fn apply_leases(&self, requests: &[LeaseRequest], leases: &[Lease], now: Timestamp) {
        let counters = self.leased_counters();
        for (request, lease) in requests.iter().zip(leases) {
            let Some(counter) = counters.iter().find(|counter| counter.name() == request.quota) else { continue };
            counter.lock().apply_lease(request, lease);
            // If the window has ended, advance to the next one.
            drop(counter.lock_at(now));
        }
    }

    /// Returns the corrections, manual or from an origin report, that the ledger has not received, each with the total
    /// that the window shall count.
    pub fn pending_corrections(&self, now: Timestamp) -> Vec<(LeaseRequest, Units)> {
        let counters = self.leased_counters();
        counters.iter().filter_map(|counter| counter.lock_at(now).take_pending_correction(counter.name())).collect()
    }

    /// Requeues a correction that the ledger could not accept.
    pub fn requeue_correction(&self, correction: &LeaseRequest) {
        if let Some(counter) = self.leased_counters().iter().find(|counter| counter.name() == correction.quota) {
            counter.lock().requeue_correction(correction.window.id);
        }
    }

    /// Makes the fallback units available, because the ledger is unavailable.
    pub fn enable_fallback(&self) {
        for counter in self.leased_counters() {
            counter.lock().enable_fallback();
        }
    }

    fn leased_counters(&self) -> Vec<Arc<QuotaCounter>> {
        self.all_counters().into_iter().filter(|counter| counter.is_leased()).collect()
    }

    pub(super) fn all_counters(&self) -> Vec<Arc<QuotaCounter>> {
        self.quotas.lock().clone()
    }
}
