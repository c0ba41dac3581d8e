//! Between the accounts and a ledger: what is asked for, and what has been handed out.
//!
//! No request waits for this. One thread asks every account what it would like ([`Engine::asks`]), has the ledger answer,
//! and hands the answers back ([`Engine::leases`]).

use super::Engine;
use super::quota::{QuotaCounter, QuotaState};
use crate::engine::quota::window_usage::WindowUsage;
use crate::policy::lease::{LeaseRequest, Lease, SpendProfile, WindowKey};
use crate::policy::{Timestamp, Units};
use std::sync::Arc;
use std::time::Duration;

/// Where units come from.
#[derive(Clone, Default)]
pub enum LeaseMode {
    /// Every window is this gate's own, and forgotten when it ends: the count is kept in memory alone.
    #[default]
    Whole,
    /// From a ledger, in parts. The function is called when an account runs low; it must not wait.
    Leased(Arc<dyn Fn() + Send + Sync>),
}

/// The next window is asked for this long before the present one ends.
const AHEAD: Duration = Duration::from_secs(5);

/// So many leases must be left of a sliding window for its next part to be asked for ahead.
const SCARCE: u64 = 4;

impl LeaseMode {
    pub(super) fn wake(&self) {
        if let Self::Leased(wake) = self {
            wake();
        }
    }
}

impl Engine {
    /// What every account would like to hold. What it would give back it does not take any more from here on.
    pub fn asks(&self, now: Timestamp) -> Vec<LeaseRequest> {
        let mut asks = Vec::new();
        for account in self.all_accounts() {
            let mut book = account.at(now);
            book.ask_ahead();
            let taken = book.current.taken();
            book.pace.look(taken, now);
            ask_for_all(account.name(), &mut book, &mut asks);
            book.short = Units::ZERO;
            // What is learned to be dear is forgotten in a minute or two, or else one slip would make leases large for ever.
            book.dearest =
                book.dearest_usually.max(book.dearest.minus(Units::from_milli(book.dearest.milli().div_ceil(32))));
        }
        asks
    }

    /// Hands out what a ledger has answered to `asks`.
    pub fn supply(&self, asks: &[LeaseRequest], leases: &[Lease], now: Timestamp) {
        let accounts = self.all_accounts();
        for (ask, lease) in asks.iter().zip(leases) {
            let Some(account) = accounts.iter().find(|account| account.name() == ask.quota) else { continue };
            let mut book = account.as_it_is();
            book.receive(ask, lease);
            drop(book);
            // A window that turned out to be over is followed by the next.
            drop(account.at(now));
        }
    }

    /// What has been corrected, by hand or by the origin's word, and the ledger does not know yet; with what the window is
    /// to count in all.
    pub fn corrections(&self, now: Timestamp) -> Vec<(LeaseRequest, Units)> {
        let accounts = self.all_accounts();
        let correction = |account: &Arc<QuotaCounter>| {
            let mut book = account.at(now);
            if !std::mem::take(&mut book.corrected) {
                return None;
            }
            let used = book.current.taken_by_all();
            let (current, back) = (book.current, book.window.back());
            Some((ask(account.name(), &book, &current, back, current.held, Units::ZERO), used))
        };
        accounts.iter().filter_map(correction).collect()
    }

    /// Keeps a correction that the ledger could not take.
    pub fn put_back(&self, correction: &LeaseRequest) {
        if let Some(account) = self.all_accounts().iter().find(|account| account.name() == correction.quota) {
            let mut book = account.as_it_is();
            book.corrected |= book.current.id == correction.window.id;
        }
    }

    /// The ledger is lost: what was promised for that case may be taken now.
    pub fn cut_off(&self) {
        for account in self.all_accounts() {
            let mut book = account.as_it_is();
            let current = &mut book.current;
            current.held = current.held.plus(std::mem::take(&mut current.share));
        }
    }

    pub(super) fn all_accounts(&self) -> Vec<Arc<QuotaCounter>> {
        self.accounts.lock().clone()
    }
}

fn ask_for_all(quota: &str, book: &mut QuotaState, asks: &mut Vec<LeaseRequest>) {
    let back = book.window.back();
    let ahead = book.next_id();
    let (mut current, mut others) = (book.current, std::mem::take(&mut book.others));
    // What is given back first is there for what is asked for next.
    for tally in others.iter_mut().filter(|tally| !tally.spent && ahead != Some(tally.id)) {
        let held = tally.held;
        // Nothing is taken of another window than the present one.
        tally.held = tally.taken();
        if tally.told != (tally.taken(), tally.held) || held > tally.held || !tally.owed.is_zero() {
            let wanted = tally.taken().plus(tally.owed);
            asks.push(LeaseRequest { wanted, ..ask(quota, book, tally, back, held, tally.owed) });
            tally.told = (tally.taken(), tally.held);
        }
    }
    let spending_now = spending(book, &current);
    let size = spending_now.size();
    if !current.spent {
        let enough = current.taken().plus(current.owed).plus(size.lease);
        // Twice of what it would ask for now is an old lease, of busier times.
        let lavish = enough.plus(size.lease) < current.held;
        let wanted = if lavish { enough } else { enough.max(current.held) };
        let held = current.held;
        current.held = held.min(wanted);
        let soon = size.soon.plus(current.owed);
        let expects = book.expects(&current);
        asks.push(LeaseRequest { wanted, held, expects, ..ask(quota, book, &current, back, held, soon) });
        current.told = (current.taken(), current.held);
    }
    // Of a sliding window the next part takes from what this one has left: not when that is little.
    let is_scarce = back > 0 && spending_now.left.milli() / SCARCE < size.lease.milli();
    if let Some(next) = others.iter_mut().find(|tally| ahead == Some(tally.id) && !tally.spent) {
        let (size, held) = (spending(book, next).size(), next.held);
        let wanted = if is_scarce { next.taken() } else { held.max(next.taken().plus(size.lease)) };
        next.held = held.min(wanted);
        if wanted > next.taken() || held > next.held {
            let expects = book.expects(next);
            asks.push(LeaseRequest { wanted, expects, ..ask(quota, book, next, back, held, size.soon) });
        }
    }
    book.current = current;
    book.others = others;
}

fn spending(book: &QuotaState, tally: &WindowUsage) -> SpendProfile {
    SpendProfile {
        limit: book.limit(),
        left: book.limit().minus(tally.elsewhere).minus(tally.taken()),
        length: book.window.usual_length(),
        per_second: book.pace.per_second,
        dearest: book.dearest,
        short: book.short,
    }
}

fn ask(quota: &str, book: &QuotaState, tally: &WindowUsage, back: u32, held: Units, soon: Units) -> LeaseRequest {
    LeaseRequest {
        quota: quota.to_owned(),
        limit: book.limit(),
        window: tally.key(back),
        taken: tally.taken(),
        held,
        wanted: held.max(tally.taken()),
        soon,
        expects: Units::ZERO,
    }
}

impl QuotaState {
    /// Opens the books of the next window when the present one is about to end.
    fn ask_ahead(&mut self) {
        let Some(next) = self.next_span() else { return };
        let known = self.others.iter().any(|tally| tally.id == next.start.0);
        if !known {
            let tally = self.at_span(next);
            self.others.push(tally);
        }
    }

    fn next_id(&self) -> Option<u64> {
        self.next_span().map(|span| span.start.0)
    }

    /// The window after this one, where the time opens it and it is near.
    fn next_span(&self) -> Option<crate::policy::window::Span> {
        let span = self.current.span;
        let near = span.end.since(self.latest) <= AHEAD.min(span.length() / 2);
        (self.window.opened_by_use().is_none() && near).then(|| self.window.span(span.end))
    }

    /// What weighs on the window `key` and was taken after the ledger was told.
    fn untold(&self, key: &WindowKey) -> Units {
        let all = self.others.iter().chain([&self.current]);
        let weighs = all.filter(|tally| key.is_weighed_on_by(tally.id, tally.known_span()));
        weighs.fold(Units::ZERO, |sum, tally| sum.plus(tally.taken().minus(tally.told.0)))
    }

    fn receive(&mut self, ask: &LeaseRequest, lease: &Lease) {
        let length = self.window.opened_by_use();
        let limit = self.limit();
        self.lost = self.lost.plus(lease.lost);
        let enforce = self.enforce;
        let (is_current, corrected) = (self.current.id == ask.window.id, self.corrected);
        let untold = self.untold(&ask.window);
        let Some(tally) = self.tally(ask.window.id) else { return };
        // What it gave back with this ask was gone already; what it took since is within what it held.
        tally.held = lease.held.max(tally.held);
        tally.share = lease.share;
        tally.elsewhere = lease.elsewhere;
        tally.withheld = lease.withheld;
        tally.expected_elsewhere = Some(lease.expected_elsewhere);
        if !(is_current && corrected) {
            tally.taken_elsewhere = lease.taken_elsewhere.plus(untold);
            tally.estimated = false;
        }
        if let (true, Some(span), Some(length)) = (tally.by_use, lease.span, length) {
            let start = if tally.opened { tally.span.start.min(span.start) } else { span.start };
            let end = if span.end < start + length { span.end } else { start + length };
            (tally.span.start, tally.span.end, tally.opened) = (start, end, true);
        }
        let paid = if enforce { tally.owed.min(tally.held.minus(tally.taken())) } else { tally.owed };
        tally.settled = tally.settled.plus(paid);
        tally.owed = tally.owed.minus(paid);
        let half = Units::from_milli(tally.held.minus(tally.taken()).milli() / 2);
        // Once everything is handed out there is nothing to ask for.
        let all = tally.held.plus(tally.elsewhere) >= limit;
        tally.low = if all { Units::MAX } else { tally.held.minus(half) };
        let overrun = if all { std::mem::take(&mut tally.owed) } else { Units::ZERO };
        self.overrun = self.overrun.plus(overrun);
        let id = ask.window.id;
        self.changed(id);
        if is_current {
            self.weigh();
        }
    }
}
