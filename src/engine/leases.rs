//! Exchange of lease requests and leases between quota counters and a ledger.
//!
//! No request waits for this exchange. One thread collects the requests of all quotas ([`Engine::lease_requests`]),
//! sends them to the ledger, and applies the leases ([`Engine::apply_leases`]).

use super::Engine;
use super::quota::{QuotaCounter, QuotaState};
use crate::engine::quota::window_usage::WindowUsage;
use crate::policy::lease::{Lease, LeaseRequest, SpendProfile, WindowKey};
use crate::policy::{Timestamp, Units};
use std::sync::Arc;
use std::time::Duration;

/// Source of the units.
#[derive(Clone, Default)]
pub enum LeaseMode {
    /// Each window belongs to this instance and is dropped when it ends: the count exists only in memory.
    #[default]
    Local,
    /// Units are leased from a ledger. The function is called when a lease runs low; it must not block.
    Leased(Arc<dyn Fn() + Send + Sync>),
}

/// Time before the end of a window at which the next one is requested.
const PREFETCH_LEAD: Duration = Duration::from_secs(5);

/// Number of leases that must be left of a sliding window to prefetch its next sub-window.
const PREFETCH_MIN_LEASES: u64 = 4;

impl LeaseMode {
    pub(super) fn wake_refresher(&self) {
        if let Self::Leased(wake) = self {
            wake();
        }
    }
}

impl Engine {
    /// Returns the lease requests of all quotas. Units that a request returns are not taken from now on.
    pub fn lease_requests(&self, now: Timestamp) -> Vec<LeaseRequest> {
        let mut requests = Vec::new();
        for counter in self.all_counters() {
            let mut state = counter.lock_at(now);
            state.prefetch_next_window();
            let taken = state.current.taken();
            state.spend_rate.update(taken, now);
            push_lease_requests(counter.name(), &mut state, &mut requests);
            state.shortfall = Units::ZERO;
            // A high learned cost decays within a minute or two; otherwise one outlier would keep leases large forever.
            state.max_cost = state
                .configured_max_cost
                .max(state.max_cost.saturating_sub(Units::from_milli(state.max_cost.milli().div_ceil(32))));
        }
        requests
    }

    /// Applies the leases that a ledger returned for the requests.
    pub fn apply_leases(&self, requests: &[LeaseRequest], leases: &[Lease], now: Timestamp) {
        let counters = self.all_counters();
        for (request, lease) in requests.iter().zip(leases) {
            let Some(counter) = counters.iter().find(|counter| counter.name() == request.quota) else { continue };
            let mut state = counter.lock();
            state.apply_lease(request, lease);
            drop(state);
            // If the window has ended, advance to the next one.
            drop(counter.lock_at(now));
        }
    }

    /// Returns the corrections, manual or from an origin report, that the ledger has not received, each with the total
    /// that the window shall count.
    pub fn pending_corrections(&self, now: Timestamp) -> Vec<(LeaseRequest, Units)> {
        let counters = self.all_counters();
        let correction = |counter: &Arc<QuotaCounter>| {
            let mut state = counter.lock_at(now);
            if !std::mem::take(&mut state.has_pending_correction) {
                return None;
            }
            let used = state.current.taken_total();
            let (current, lookback) = (state.current, state.window.lookback());
            Some((lease_request(counter.name(), &state, &current, lookback, current.held, Units::ZERO), used))
        };
        counters.iter().filter_map(correction).collect()
    }

    /// Requeues a correction that the ledger could not accept.
    pub fn requeue_correction(&self, correction: &LeaseRequest) {
        if let Some(counter) = self.all_counters().iter().find(|counter| counter.name() == correction.quota) {
            let mut state = counter.lock();
            state.has_pending_correction |= state.current.id == correction.window.id;
        }
    }

    /// Makes the fallback units available, because the ledger is unavailable.
    pub fn enable_fallback(&self) {
        for counter in self.all_counters() {
            let mut state = counter.lock();
            let current = &mut state.current;
            current.held = current.held.saturating_add(std::mem::take(&mut current.fallback));
        }
    }

    pub(super) fn all_counters(&self) -> Vec<Arc<QuotaCounter>> {
        self.quotas.lock().clone()
    }
}

fn push_lease_requests(quota: &str, state: &mut QuotaState, requests: &mut Vec<LeaseRequest>) {
    let lookback = state.window.lookback();
    let next_id = state.next_id();
    let (mut current, mut past_windows) = (state.current, std::mem::take(&mut state.past_windows));
    // Return units first: they are then available for the requests that follow.
    for window in past_windows.iter_mut().filter(|window| !window.is_spent && next_id != Some(window.id)) {
        let held = window.held;
        // Units are taken only from the current window.
        window.held = window.taken();
        if window.last_reported != (window.taken(), window.held) || held > window.held || !window.owed.is_zero() {
            let wanted = window.taken().saturating_add(window.owed);
            requests.push(LeaseRequest { wanted, ..lease_request(quota, state, window, lookback, held, window.owed) });
            window.last_reported = (window.taken(), window.held);
        }
    }
    let profile = spend_profile(state, &current);
    let size = profile.size();
    if !current.is_spent {
        let needed = current.taken().saturating_add(current.owed).saturating_add(size.lease);
        // A lease of more than twice the current need dates from a busier time.
        let is_oversized = needed.saturating_add(size.lease) < current.held;
        let wanted = if is_oversized { needed } else { needed.max(current.held) };
        let held = current.held;
        current.held = held.min(wanted);
        let urgent = size.urgent.saturating_add(current.owed);
        let expected_demand = state.expected_demand(&current);
        requests.push(LeaseRequest {
            wanted,
            held,
            expected_demand,
            ..lease_request(quota, state, &current, lookback, held, urgent)
        });
        current.last_reported = (current.taken(), current.held);
    }
    // The next sub-window of a sliding window takes from the units left in this one, so do not prefetch if few are
    // left.
    let is_scarce = lookback > 0 && profile.left.milli() / PREFETCH_MIN_LEASES < size.lease.milli();
    if let Some(next) = past_windows.iter_mut().find(|window| next_id == Some(window.id) && !window.is_spent) {
        let (size, held) = (spend_profile(state, next).size(), next.held);
        let wanted = if is_scarce { next.taken() } else { held.max(next.taken().saturating_add(size.lease)) };
        next.held = held.min(wanted);
        if wanted > next.taken() || held > next.held {
            let expected_demand = state.expected_demand(next);
            requests.push(LeaseRequest {
                wanted,
                expected_demand,
                ..lease_request(quota, state, next, lookback, held, size.urgent)
            });
        }
    }
    state.current = current;
    state.past_windows = past_windows;
}

fn spend_profile(state: &QuotaState, window: &WindowUsage) -> SpendProfile {
    SpendProfile {
        limit: state.limit(),
        left: state.limit().saturating_sub(window.held_by_others).saturating_sub(window.taken()),
        length: state.window.nominal_length(),
        per_second: state.spend_rate.per_second,
        max_cost: state.max_cost,
        shortfall: state.shortfall,
    }
}

fn lease_request(
    quota: &str,
    state: &QuotaState,
    window: &WindowUsage,
    lookback: u32,
    held: Units,
    urgent: Units,
) -> LeaseRequest {
    LeaseRequest {
        quota: quota.to_owned(),
        limit: state.limit(),
        window: window.key(lookback),
        taken: window.taken(),
        held,
        wanted: held.max(window.taken()),
        urgent,
        expected_demand: Units::ZERO,
    }
}

impl QuotaState {
    /// Creates the next window if the current one is about to end.
    fn prefetch_next_window(&mut self) {
        let Some(next) = self.next_span() else { return };
        let exists = self.past_windows.iter().any(|window| window.id == next.start.0);
        if !exists {
            let window = self.at_span(next);
            self.past_windows.push(window);
        }
    }

    fn next_id(&self) -> Option<u64> {
        self.next_span().map(|span| span.start.0)
    }

    /// Returns the span of the next window if it opens by time and soon, otherwise `None`.
    fn next_span(&self) -> Option<crate::policy::window::Span> {
        let span = self.current.span;
        let is_near_end = span.end.saturating_duration_since(self.latest_time) <= PREFETCH_LEAD.min(span.length() / 2);
        (self.window.first_use_length().is_none() && is_near_end).then(|| self.window.span(span.end))
    }

    /// Returns the units that overlap the window `key` and were taken after the last report to the ledger.
    fn unreported(&self, key: &WindowKey) -> Units {
        let windows = self.past_windows.iter().chain([&self.current]);
        let overlapping = windows.filter(|window| key.overlaps(window.id, window.known_span()));
        overlapping
            .fold(Units::ZERO, |sum, window| sum.saturating_add(window.taken().saturating_sub(window.last_reported.0)))
    }

    fn apply_lease(&mut self, request: &LeaseRequest, lease: &Lease) {
        let length = self.window.first_use_length();
        let limit = self.limit();
        self.lost = self.lost.saturating_add(lease.lost);
        let enforce = self.enforce;
        let (is_current, corrected) = (self.current.id == request.window.id, self.has_pending_correction);
        let unreported = self.unreported(&request.window);
        let Some(window) = self.window_mut(request.window.id) else { return };
        // Returned units are already deducted from `held`; units taken since are within it.
        window.held = lease.held.max(window.held);
        window.fallback = lease.fallback;
        window.held_by_others = lease.held_by_others;
        window.held_by_dead = lease.held_by_dead;
        window.expected_by_others = Some(lease.expected_by_others);
        if !(is_current && corrected) {
            window.taken_by_others = lease.taken_by_others.saturating_add(unreported);
            window.is_estimated = false;
        }
        if let (true, Some(span), Some(length)) = (window.is_first_use, lease.span, length) {
            let start = if window.is_open { window.span.start.min(span.start) } else { span.start };
            let end = if span.end < start + length { span.end } else { start + length };
            (window.span.start, window.span.end, window.is_open) = (start, end, true);
        }
        let covered = if enforce { window.owed.min(window.held.saturating_sub(window.taken())) } else { window.owed };
        window.settled = window.settled.saturating_add(covered);
        window.owed = window.owed.saturating_sub(covered);
        let half = Units::from_milli(window.held.saturating_sub(window.taken()).milli() / 2);
        // Once all units are leased, a request is useless.
        let fully_leased = window.held.saturating_add(window.held_by_others) >= limit;
        window.refill_below = if fully_leased { Units::MAX } else { window.held.saturating_sub(half) };
        let overrun = if fully_leased { std::mem::take(&mut window.owed) } else { Units::ZERO };
        self.overrun = self.overrun.saturating_add(overrun);
        let id = request.window.id;
        self.mark_changed(id);
        if is_current {
            self.sum_overlapping();
        }
    }
}
