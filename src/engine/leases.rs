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
        let mut asks = Vec::new();
        for account in self.all_accounts() {
            let mut book = account.lock_at(now);
            book.prefetch_next_window();
            let taken = book.current.taken();
            book.pace.update(taken, now);
            push_lease_requests(account.name(), &mut book, &mut asks);
            book.shortfall = Units::ZERO;
            // A high learned cost decays within a minute or two; otherwise one outlier would keep leases large forever.
            book.max_cost = book
                .configured_max_cost
                .max(book.max_cost.saturating_sub(Units::from_milli(book.max_cost.milli().div_ceil(32))));
        }
        asks
    }

    /// Applies the leases that a ledger returned for the requests.
    pub fn apply_leases(&self, asks: &[LeaseRequest], leases: &[Lease], now: Timestamp) {
        let accounts = self.all_accounts();
        for (ask, lease) in asks.iter().zip(leases) {
            let Some(account) = accounts.iter().find(|account| account.name() == ask.quota) else { continue };
            let mut book = account.lock();
            book.apply_lease(ask, lease);
            drop(book);
            // If the window has ended, advance to the next one.
            drop(account.lock_at(now));
        }
    }

    /// Returns the corrections, manual or from an origin report, that the ledger has not received, each with the total
    /// that the window shall count.
    pub fn pending_corrections(&self, now: Timestamp) -> Vec<(LeaseRequest, Units)> {
        let accounts = self.all_accounts();
        let correction = |account: &Arc<QuotaCounter>| {
            let mut book = account.lock_at(now);
            if !std::mem::take(&mut book.corrected) {
                return None;
            }
            let used = book.current.taken_total();
            let (current, back) = (book.current, book.window.lookback());
            Some((lease_request(account.name(), &book, &current, back, current.held, Units::ZERO), used))
        };
        accounts.iter().filter_map(correction).collect()
    }

    /// Requeues a correction that the ledger could not accept.
    pub fn requeue_correction(&self, correction: &LeaseRequest) {
        if let Some(account) = self.all_accounts().iter().find(|account| account.name() == correction.quota) {
            let mut book = account.lock();
            book.corrected |= book.current.id == correction.window.id;
        }
    }

    /// Makes the fallback units available, because the ledger is unavailable.
    pub fn enable_fallback(&self) {
        for account in self.all_accounts() {
            let mut book = account.lock();
            let current = &mut book.current;
            current.held = current.held.saturating_add(std::mem::take(&mut current.fallback));
        }
    }

    pub(super) fn all_accounts(&self) -> Vec<Arc<QuotaCounter>> {
        self.accounts.lock().clone()
    }
}

fn push_lease_requests(quota: &str, book: &mut QuotaState, asks: &mut Vec<LeaseRequest>) {
    let back = book.window.lookback();
    let ahead = book.next_id();
    let (mut current, mut others) = (book.current, std::mem::take(&mut book.past_windows));
    // Return units first: they are then available for the requests that follow.
    for tally in others.iter_mut().filter(|tally| !tally.spent && ahead != Some(tally.id)) {
        let held = tally.held;
        // Units are taken only from the current window.
        tally.held = tally.taken();
        if tally.last_reported != (tally.taken(), tally.held) || held > tally.held || !tally.owed.is_zero() {
            let wanted = tally.taken().saturating_add(tally.owed);
            asks.push(LeaseRequest { wanted, ..lease_request(quota, book, tally, back, held, tally.owed) });
            tally.last_reported = (tally.taken(), tally.held);
        }
    }
    let spending_now = spend_profile(book, &current);
    let size = spending_now.size();
    if !current.spent {
        let enough = current.taken().saturating_add(current.owed).saturating_add(size.lease);
        // A lease of more than twice the current need dates from a busier time.
        let lavish = enough.saturating_add(size.lease) < current.held;
        let wanted = if lavish { enough } else { enough.max(current.held) };
        let held = current.held;
        current.held = held.min(wanted);
        let soon = size.urgent.saturating_add(current.owed);
        let expects = book.expected_demand(&current);
        asks.push(LeaseRequest {
            wanted,
            held,
            expected_demand: expects,
            ..lease_request(quota, book, &current, back, held, soon)
        });
        current.last_reported = (current.taken(), current.held);
    }
    // The next sub-window of a sliding window takes from the units left in this one, so do not prefetch if few are
    // left.
    let is_scarce = back > 0 && spending_now.left.milli() / PREFETCH_MIN_LEASES < size.lease.milli();
    if let Some(next) = others.iter_mut().find(|tally| ahead == Some(tally.id) && !tally.spent) {
        let (size, held) = (spend_profile(book, next).size(), next.held);
        let wanted = if is_scarce { next.taken() } else { held.max(next.taken().saturating_add(size.lease)) };
        next.held = held.min(wanted);
        if wanted > next.taken() || held > next.held {
            let expects = book.expected_demand(next);
            asks.push(LeaseRequest {
                wanted,
                expected_demand: expects,
                ..lease_request(quota, book, next, back, held, size.urgent)
            });
        }
    }
    book.current = current;
    book.past_windows = others;
}

fn spend_profile(book: &QuotaState, tally: &WindowUsage) -> SpendProfile {
    SpendProfile {
        limit: book.limit(),
        left: book.limit().saturating_sub(tally.held_by_others).saturating_sub(tally.taken()),
        length: book.window.nominal_length(),
        per_second: book.pace.per_second,
        max_cost: book.max_cost,
        shortfall: book.shortfall,
    }
}

fn lease_request(
    quota: &str,
    book: &QuotaState,
    tally: &WindowUsage,
    back: u32,
    held: Units,
    soon: Units,
) -> LeaseRequest {
    LeaseRequest {
        quota: quota.to_owned(),
        limit: book.limit(),
        window: tally.key(back),
        taken: tally.taken(),
        held,
        wanted: held.max(tally.taken()),
        urgent: soon,
        expected_demand: Units::ZERO,
    }
}

impl QuotaState {
    /// Creates the next window if the current one is about to end.
    fn prefetch_next_window(&mut self) {
        let Some(next) = self.next_span() else { return };
        let known = self.past_windows.iter().any(|tally| tally.id == next.start.0);
        if !known {
            let tally = self.at_span(next);
            self.past_windows.push(tally);
        }
    }

    fn next_id(&self) -> Option<u64> {
        self.next_span().map(|span| span.start.0)
    }

    /// Returns the span of the next window if it opens by time and soon, otherwise `None`.
    fn next_span(&self) -> Option<crate::policy::window::Span> {
        let span = self.current.span;
        let near = span.end.saturating_duration_since(self.latest_seen) <= PREFETCH_LEAD.min(span.length() / 2);
        (self.window.first_use_length().is_none() && near).then(|| self.window.span(span.end))
    }

    /// Returns the units that overlap the window `key` and were taken after the last report to the ledger.
    fn unreported(&self, key: &WindowKey) -> Units {
        let all = self.past_windows.iter().chain([&self.current]);
        let weighs = all.filter(|tally| key.overlaps(tally.id, tally.known_span()));
        weighs.fold(Units::ZERO, |sum, tally| sum.saturating_add(tally.taken().saturating_sub(tally.last_reported.0)))
    }

    fn apply_lease(&mut self, ask: &LeaseRequest, lease: &Lease) {
        let length = self.window.first_use_length();
        let limit = self.limit();
        self.lost = self.lost.saturating_add(lease.lost);
        let enforce = self.enforce;
        let (is_current, corrected) = (self.current.id == ask.window.id, self.corrected);
        let untold = self.unreported(&ask.window);
        let Some(tally) = self.tally(ask.window.id) else { return };
        // Returned units are already deducted from `held`; units taken since are within it.
        tally.held = lease.held.max(tally.held);
        tally.fallback = lease.fallback;
        tally.held_by_others = lease.held_by_others;
        tally.held_by_dead = lease.held_by_dead;
        tally.expected_by_others = Some(lease.expected_by_others);
        if !(is_current && corrected) {
            tally.taken_by_others = lease.taken_by_others.saturating_add(untold);
            tally.estimated = false;
        }
        if let (true, Some(span), Some(length)) = (tally.first_use, lease.span, length) {
            let start = if tally.opened { tally.span.start.min(span.start) } else { span.start };
            let end = if span.end < start + length { span.end } else { start + length };
            (tally.span.start, tally.span.end, tally.opened) = (start, end, true);
        }
        let paid = if enforce { tally.owed.min(tally.held.saturating_sub(tally.taken())) } else { tally.owed };
        tally.settled = tally.settled.saturating_add(paid);
        tally.owed = tally.owed.saturating_sub(paid);
        let half = Units::from_milli(tally.held.saturating_sub(tally.taken()).milli() / 2);
        // Once all units are leased, a request is useless.
        let all = tally.held.saturating_add(tally.held_by_others) >= limit;
        tally.refill_below = if all { Units::MAX } else { tally.held.saturating_sub(half) };
        let overrun = if all { std::mem::take(&mut tally.owed) } else { Units::ZERO };
        self.overrun = self.overrun.saturating_add(overrun);
        let id = ask.window.id;
        self.mark_changed(id);
        if is_current {
            self.sum_overlapping();
        }
    }
}
