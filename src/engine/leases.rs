//! Between the accounts and a ledger: what is asked for, and what has been handed out.
//!
//! No request waits for this. One thread asks every account what it would like ([`Engine::lease_requests`]), has the ledger answer,
//! and hands the answers back ([`Engine::leases`]).

use super::Engine;
use super::quota::{QuotaCounter, QuotaState};
use crate::engine::quota::window_usage::WindowUsage;
use crate::policy::lease::{Lease, LeaseRequest, SpendProfile, WindowKey};
use crate::policy::{Timestamp, Units};
use std::sync::Arc;
use std::time::Duration;

/// Where units come from.
#[derive(Clone, Default)]
pub enum LeaseMode {
    /// Every window is this gate's own, and forgotten when it ends: the count is kept in memory alone.
    #[default]
    Local,
    /// From a ledger, in parts. The function is called when an account runs low; it must not wait.
    Leased(Arc<dyn Fn() + Send + Sync>),
}

/// The next window is asked for this long before the present one ends.
const PREFETCH_LEAD: Duration = Duration::from_secs(5);

/// So many leases must be left of a sliding window for its next part to be asked for ahead.
const PREFETCH_MIN_LEASES: u64 = 4;

impl LeaseMode {
    pub(super) fn wake_refresher(&self) {
        if let Self::Leased(wake) = self {
            wake();
        }
    }
}

impl Engine {
    /// What every account would like to hold. What it would give back it does not take any more from here on.
    pub fn lease_requests(&self, now: Timestamp) -> Vec<LeaseRequest> {
        let mut asks = Vec::new();
        for account in self.all_accounts() {
            let mut book = account.lock_at(now);
            book.prefetch_next_window();
            let taken = book.current.taken();
            book.pace.update(taken, now);
            push_lease_requests(account.name(), &mut book, &mut asks);
            book.shortfall = Units::ZERO;
            // What is learned to be dear is forgotten in a minute or two, or else one slip would make leases large for ever.
            book.max_cost = book
                .configured_max_cost
                .max(book.max_cost.saturating_sub(Units::from_milli(book.max_cost.milli().div_ceil(32))));
        }
        asks
    }

    /// Hands out what a ledger has answered to `asks`.
    pub fn apply_leases(&self, asks: &[LeaseRequest], leases: &[Lease], now: Timestamp) {
        let accounts = self.all_accounts();
        for (ask, lease) in asks.iter().zip(leases) {
            let Some(account) = accounts.iter().find(|account| account.name() == ask.quota) else { continue };
            let mut book = account.lock();
            book.apply_lease(ask, lease);
            drop(book);
            // A window that turned out to be over is followed by the next.
            drop(account.lock_at(now));
        }
    }

    /// What has been corrected, by hand or by the origin's word, and the ledger does not know yet; with what the window is
    /// to count in all.
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

    /// Keeps a correction that the ledger could not take.
    pub fn requeue_correction(&self, correction: &LeaseRequest) {
        if let Some(account) = self.all_accounts().iter().find(|account| account.name() == correction.quota) {
            let mut book = account.lock();
            book.corrected |= book.current.id == correction.window.id;
        }
    }

    /// The ledger is lost: what was promised for that case may be taken now.
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
    // What is given back first is there for what is asked for next.
    for tally in others.iter_mut().filter(|tally| !tally.spent && ahead != Some(tally.id)) {
        let held = tally.held;
        // Nothing is taken of another window than the present one.
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
        // Twice of what it would ask for now is an old lease, of busier times.
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
    // Of a sliding window the next part takes from what this one has left: not when that is little.
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
    /// Opens the books of the next window when the present one is about to end.
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

    /// The window after this one, where the time opens it and it is near.
    fn next_span(&self) -> Option<crate::policy::window::Span> {
        let span = self.current.span;
        let near = span.end.saturating_duration_since(self.latest_seen) <= PREFETCH_LEAD.min(span.length() / 2);
        (self.window.first_use_length().is_none() && near).then(|| self.window.span(span.end))
    }

    /// What weighs on the window `key` and was taken after the ledger was told.
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
        // What it gave back with this ask was gone already; what it took since is within what it held.
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
        // Once everything is handed out there is nothing to ask for.
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
