//! Lease requests of a quota, and the leases that a ledger returns.

use super::QuotaState;
use super::window_usage::WindowUsage;
use crate::Timestamp;
use crate::lease::{IDLE_SHARE, Lease, LeaseRequest, MIN_REQUESTS_HELD, SpendProfile, WindowKey};
use crate::units::Units;
use crate::window::Span;
use std::time::Duration;

/// Time before the end of a window at which the next one is requested.
const PREFETCH_LEAD: Duration = Duration::from_secs(5);

/// Number of leases that must be left of a sliding window to prefetch its next sub-window.
const PREFETCH_MIN_LEASES: u64 = 4;

/// Returns the cost of a recent request for which leases are sized after one more refresh. A high learned cost decays within a minute
/// or two; otherwise one outlier would keep leases large forever. One for which [`MIN_REQUESTS_HELD`] requests would hold more than an
/// idle quota does, which a client may just state, decays within seconds: a crash loses what is held.
fn decayed_cost(cost: Units, limit: Units) -> Units {
    let of_idle = Units::from_milli(limit.milli() / IDLE_SHARE / MIN_REQUESTS_HELD);
    let loss = if cost > of_idle { cost.milli().div_ceil(2) } else { cost.milli().div_ceil(32) };
    cost.saturating_sub(Units::from_milli(loss))
}

impl QuotaState {
    /// Requests a refill if the lease runs low; called after units were taken. Returns true once until the lease is
    /// updated.
    pub fn request_refill_if_low(&mut self) -> bool {
        self.current.taken() > self.current.refill_below && self.request_refill()
    }

    /// Requests a refill because the lease cannot cover `cost`. Returns true once until the lease is updated.
    pub fn request_refill_for(&mut self, cost: Units) -> bool {
        self.max_cost = self.max_cost.max(cost);
        self.add_shortfall(cost)
    }

    pub(super) fn add_shortfall(&mut self, units: Units) -> bool {
        self.shortfall = self.shortfall.saturating_add(units);
        self.request_refill()
    }

    fn request_refill(&mut self) -> bool {
        std::mem::replace(&mut self.current.refill_below, Units::MAX) < Units::MAX
    }

    /// Adds the lease requests of the quota to `requests`. Units that a request returns are not taken from now on. A
    /// refresh takes `refresh_time`.
    pub fn request_leases(
        &mut self,
        quota: &str,
        requests: &mut Vec<LeaseRequest>,
        now: Timestamp,
        refresh_time: Duration,
    ) {
        self.prefetch_next_window();
        self.spend_rate.update(self.current.taken(), now);
        self.push_lease_requests(quota, requests, refresh_time);
        self.shortfall = Units::ZERO;
        self.max_cost = self.configured_max_cost.max(decayed_cost(self.max_cost, self.limit));
    }

    /// Takes the correction, manual or from an origin report, that the ledger has not received, with the total that
    /// the window shall count.
    pub fn take_pending_correction(&mut self, quota: &str) -> Option<(LeaseRequest, Units)> {
        if !std::mem::take(&mut self.has_pending_correction) {
            return None;
        }
        let request = self.lease_request(quota, &self.current, self.current.held, Units::ZERO);
        Some((request, self.current.taken_total()))
    }

    /// Requeues a correction of the window `id` that the ledger could not accept.
    pub fn requeue_correction(&mut self, id: u64) {
        self.has_pending_correction |= self.current.id == id;
    }

    /// Makes the fallback units available, because the ledger is unavailable.
    pub fn enable_fallback(&mut self) {
        let current = &mut self.current;
        current.held = current.held.saturating_add(std::mem::take(&mut current.fallback));
    }

    fn push_lease_requests(&mut self, quota: &str, requests: &mut Vec<LeaseRequest>, refresh_time: Duration) {
        let next_id = self.next_id();
        let (mut current, mut past_windows) = (self.current, std::mem::take(&mut self.past_windows));
        // Return units first: they are then available for the requests that follow.
        for window in past_windows.iter_mut().filter(|window| !window.is_spent && next_id != Some(window.id)) {
            let held = window.held;
            // Units are taken only from the current window.
            window.held = window.taken();
            if window.last_reported != (window.taken(), window.held) || held > window.held || !window.owed.is_zero() {
                let wanted = window.taken().saturating_add(window.owed);
                requests.push(LeaseRequest { wanted, ..self.lease_request(quota, window, held, window.owed) });
                window.last_reported = (window.taken(), window.held);
            }
        }
        let profile = self.spend_profile(&current, refresh_time);
        let size = profile.size();
        if !current.is_spent {
            let needed = current.taken().saturating_add(current.owed).saturating_add(size.lease);
            // A lease of more than twice the current need dates from a busier time.
            let is_oversized = needed.saturating_add(size.lease) < current.held;
            let wanted = if is_oversized { needed } else { needed.max(current.held) };
            let held = current.held;
            current.held = held.min(wanted);
            let urgent = size.urgent.saturating_add(current.owed);
            let expected_demand = self.expected_demand(&current);
            requests.push(LeaseRequest {
                wanted,
                expected_demand,
                ..self.lease_request(quota, &current, held, urgent)
            });
            current.last_reported = (current.taken(), current.held);
        }
        // The next sub-window of a sliding window takes from the units left in this one, so do not prefetch if few are
        // left.
        let is_scarce = self.window.is_sliding() && profile.left.milli() / PREFETCH_MIN_LEASES < size.lease.milli();
        if let Some(next) = past_windows.iter_mut().find(|window| next_id == Some(window.id) && !window.is_spent) {
            let (size, held) = (self.spend_profile(next, refresh_time).size(), next.held);
            let wanted = if is_scarce { next.taken() } else { held.max(next.taken().saturating_add(size.lease)) };
            next.held = held.min(wanted);
            if wanted > next.taken() || held > next.held {
                let expected_demand = self.expected_demand(next);
                requests.push(LeaseRequest {
                    wanted,
                    expected_demand,
                    ..self.lease_request(quota, next, held, size.urgent)
                });
            }
        }
        self.current = current;
        self.past_windows = past_windows;
    }

    fn spend_profile(&self, window: &WindowUsage, refresh_time: Duration) -> SpendProfile {
        SpendProfile {
            limit: self.limit,
            left: self.limit.saturating_sub(window.held_by_others).saturating_sub(window.taken()),
            length: self.window.nominal_length(),
            per_second: self.spend_rate.per_second,
            max_cost: self.max_cost,
            shortfall: self.shortfall,
            refresh_time,
        }
    }

    fn lease_request(&self, quota: &str, window: &WindowUsage, held: Units, urgent: Units) -> LeaseRequest {
        LeaseRequest {
            quota: quota.to_owned(),
            limit: self.limit,
            window: window.key(self.window.lookback()),
            taken: window.taken(),
            held,
            wanted: held.max(window.taken()),
            urgent,
            expected_demand: Units::ZERO,
        }
    }

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
    fn next_span(&self) -> Option<Span> {
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

    /// Applies the lease that a ledger returned for `request`.
    pub fn apply_lease(&mut self, request: &LeaseRequest, lease: &Lease) {
        let length = self.window.first_use_length();
        let limit = self.limit;
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
