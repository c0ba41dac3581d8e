//! Who holds what of which window: the arithmetic that the ledgers in memory and in a file share.
//!
//! Pure: no time but what is handed in, no disk. A model can be held against it.

use super::store::{Lease, LeaseRequest, WindowKey};
use crate::policy::window::{EvictedWindows, Span};
use crate::policy::{Timestamp, Units};
use std::collections::BTreeMap;
use std::time::Duration;

/// Quotas, their windows, and what each holder has of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseTable {
    pub(super) quotas: BTreeMap<String, QuotaWindows>,
}

/// The windows of one quota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct QuotaWindows {
    pub(super) windows: BTreeMap<u64, LeasedWindow>,
    pub(super) forgotten: EvictedWindows,
}

/// One window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LeasedWindow {
    /// When it is; `None` for one that its first use has not opened yet.
    pub(super) span: Option<Span>,
    pub(super) holdings: BTreeMap<Holder, Holding>,
}

/// Who holds something: a gate in one of its lives, or one of the two below.
pub type Holder = u64;

/// Gates and lives that are no more.
pub const PREVIOUS_INCARNATIONS: Holder = 0;
/// The operator's correction.
const MANUAL_CORRECTION: Holder = u64::MAX;

/// What somebody holds of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// May be taken, and counts as taken until it is given back.
    pub held: Units,
    /// Is known to be taken.
    pub taken: Units,
}

/// So many windows of a quota are remembered beside those that weigh on the newest.
const MAX_PAST_WINDOWS: usize = 8;

impl LeaseTable {
    /// Gives `who` what it asks for, as far as there is room, and says how things stand.
    pub fn lease(&mut self, who: Holder, ask: &LeaseRequest, now: Timestamp) -> Lease {
        let series = self.quotas.entry(ask.quota.clone()).or_default();
        if series.is_evicted(&ask.window) {
            return evicted_lease(ask);
        }
        let (elsewhere, taken_elsewhere) = series.held_by_others(who, &ask.window, now);
        let window = series.windows.entry(ask.window.id).or_default();
        window.merge_span(ask.window.span);
        let is_over = ask.window.span.is_none() && window.span.is_some_and(|span| span.end <= now);
        let room = if is_over { Units::ZERO } else { ask.limit.saturating_sub(elsewhere) };
        let held = if ask.wanted < ask.held { ask.wanted } else { ask.wanted.min(room).max(ask.held) };
        let held = held.max(ask.taken);
        window.holdings.insert(who, Holding { held, taken: ask.taken });
        let span = window.span;
        Lease { held, held_by_others: elsewhere, taken_by_others: taken_elsewhere, span, ..Lease::default() }
    }

    /// Forgets the oldest windows that nothing in `asks` needs, which is all that a gate asks for at once: what is of no
    /// weight for a window that it gives back may weigh on the one that it spends.
    pub fn evict_old(&mut self, asks: &[LeaseRequest]) {
        for of_quota in asks.chunk_by(|one, next| one.quota == next.quota) {
            if let Some(series) = self.quotas.get_mut(&of_quota[0].quota) {
                series.evict_old(of_quota);
            }
        }
    }

    /// Notes that `who` has taken what it says, and is no more.
    pub fn close(&mut self, who: Holder, ask: &LeaseRequest) {
        let series = self.quotas.entry(ask.quota.clone()).or_default();
        if !series.is_evicted(&ask.window) {
            let window = series.windows.entry(ask.window.id).or_default();
            window.merge_span(ask.window.span);
            window.holdings.remove(&who);
            window.add_to_earlier(ask.taken);
        }
    }

    /// Counts `used` as taken in all of the window of `ask` and what weighs on it: what is no live gate's is replaced.
    pub fn correct(&mut self, who: Holder, ask: &LeaseRequest, used: Units, now: Timestamp) {
        let series = self.quotas.entry(ask.quota.clone()).or_default();
        let key = with_current_span(&ask.window, now);
        // The operator knows what nobody here remembers.
        series.forgotten = EvictedWindows::default();
        for (&id, window) in &mut series.windows {
            if id == key.id || key.overlaps(id, window.span) {
                window.holdings.retain(|&holder, _| holder != PREVIOUS_INCARNATIONS && holder != MANUAL_CORRECTION);
            }
        }
        let window = series.windows.entry(key.id).or_default();
        window.merge_span(ask.window.span);
        window.holdings.insert(who, Holding { held: ask.held.max(ask.taken), taken: ask.taken });
        let (_, live) = series.held_by_others(who, &ask.window, now);
        let by_hand = used.saturating_sub(ask.taken).saturating_sub(live);
        let window = series.windows.entry(key.id).or_default();
        window.holdings.insert(MANUAL_CORRECTION, Holding { held: by_hand, taken: by_hand });
    }

    /// How things stand for `who`, without a change.
    pub fn status(&self, who: Holder, ask: &LeaseRequest, now: Timestamp) -> Lease {
        let nothing = QuotaWindows::default();
        let series = self.quotas.get(&ask.quota).unwrap_or(&nothing);
        if series.is_evicted(&ask.window) {
            return evicted_lease(ask);
        }
        let (elsewhere, taken_elsewhere) = series.held_by_others(who, &ask.window, now);
        let window = series.windows.get(&ask.window.id);
        let held = self.holding(who, &ask.quota, ask.window.id).held;
        Lease {
            held,
            held_by_others: elsewhere,
            taken_by_others: taken_elsewhere,
            span: window.and_then(|window| window.span),
            ..Lease::default()
        }
    }

    /// True when the window is not forgotten.
    pub fn contains(&self, quota: &str, window: u64) -> bool {
        self.quotas.get(quota).is_some_and(|series| series.windows.contains_key(&window))
    }

    /// What `who` holds.
    pub fn holding(&self, who: Holder, quota: &str, window: u64) -> Holding {
        let window = self.quotas.get(quota).and_then(|series| series.windows.get(&window));
        window.and_then(|window| window.holdings.get(&who)).copied().unwrap_or_default()
    }

    /// When the window is, as far as is known.
    pub fn span(&self, quota: &str, window: u64) -> Option<Span> {
        self.quotas.get(quota)?.windows.get(&window)?.span
    }

    /// Sets what `who` holds of a window that is remembered.
    pub(super) fn put(&mut self, who: Holder, quota: &str, window: u64, holding: Holding) {
        if let Some(window) = self.quotas.get_mut(quota).and_then(|series| series.windows.get_mut(&window)) {
            window.holdings.insert(who, holding);
        }
    }

    /// Notes that `who` has died; `fate` says what counts as taken of what it held.
    ///
    /// A window that its first use had not opened as far as is known, and of which something may be taken, counts as
    /// opened now.
    pub fn retire_holder(&mut self, who: Holder, now: Timestamp, mut fate: impl FnMut(&str, u64, Holding) -> Units) {
        for (quota, series) in &mut self.quotas {
            for (&id, window) in &mut series.windows {
                let Some(held) = window.holdings.remove(&who) else { continue };
                let taken = fate(quota, id, held);
                window.add_to_earlier(taken);
                if !taken.is_zero() {
                    window.span = window.span.or(Some(Span { start: now, end: Timestamp(u64::MAX) }));
                }
            }
            series.renumber();
        }
    }
}

impl QuotaWindows {
    /// What everybody but `who` holds of the window, with all that other windows weigh on it.
    fn held_by_others(&self, who: Holder, key: &WindowKey, now: Timestamp) -> (Units, Units) {
        let key = with_current_span(key, now);
        let mut sum = (Units::ZERO, Units::ZERO);
        for (&id, window) in &self.windows {
            let weighs = key.overlaps(id, window.span);
            for (&holder, holding) in &window.holdings {
                if weighs || (id == key.id && holder != who) {
                    sum = (sum.0.saturating_add(holding.held), sum.1.saturating_add(holding.taken));
                }
            }
        }
        sum
    }

    /// True when nobody can tell what was taken of the window, or of what weighs on it.
    fn is_evicted(&self, key: &WindowKey) -> bool {
        let known = self.windows.contains_key(&key.id);
        match key.span {
            Some(span) if is_ordinal(key.id, Some(span)) => false,
            Some(span) => self.forgotten.overlaps(span, key.lookback) || (!known && self.forgotten.covers(span)),
            None => !known && self.windows.iter().any(|(&id, window)| is_ordinal(id, window.span) && id > key.id),
        }
    }

    /// Forgets the oldest windows beyond a few. One more than weighs on those asked for is kept: it may be asked for
    /// ahead.
    fn evict_old(&mut self, asks: &[LeaseRequest]) {
        let newest = self.windows.values().filter_map(|window| window.span).max_by_key(|span| span.start);
        let Some(newest) = newest else { return };
        let needed = |ask: &LeaseRequest, id: u64, span: Option<Span>| {
            let back = if ask.window.lookback == 0 { 0 } else { ask.window.lookback + 1 };
            let spans = [ask.window.span.unwrap_or(newest), newest];
            let mut keys = spans.map(|span| WindowKey { id: u64::MAX, span: Some(span), lookback: back }).into_iter();
            id == ask.window.id || keys.any(|key| key.overlaps(id, span))
        };
        while self.windows.len() > MAX_PAST_WINDOWS {
            let idle = |(id, window): &(&u64, &LeasedWindow)| {
                window.span.is_some_and(|span| span != newest) && !asks.iter().any(|ask| needed(ask, **id, window.span))
            };
            let oldest = self.windows.iter().filter(idle).min_by_key(|(_, window)| window.span.map(|span| span.start));
            let Some((&id, window)) = oldest else { return };
            if let Some(span) = window.span.filter(|&span| !is_ordinal(id, Some(span))) {
                self.forgotten.evict(span);
            }
            self.windows.remove(&id);
        }
    }

    /// Windows that open at their first use are counted from 0 again, so that a gate that starts finds the present one.
    fn renumber(&mut self) {
        let (by_use, by_time): (Vec<_>, Vec<_>) = std::mem::take(&mut self.windows)
            .into_iter()
            .filter(|(_, window)| window.span.is_some())
            .partition(|(id, window)| is_ordinal(*id, window.span));
        self.windows.extend(by_time);
        self.windows.extend((0..).zip(by_use).map(|(ordinal, (_, window))| (ordinal, window)));
    }
}

impl LeasedWindow {
    fn add_to_earlier(&mut self, taken: Units) {
        let earlier = self.holdings.entry(PREVIOUS_INCARNATIONS).or_default();
        earlier.taken = earlier.taken.saturating_add(taken);
        earlier.held = earlier.taken;
    }

    /// Windows of one id are one, whatever the gates' clocks say: the earliest beginning counts.
    fn merge_span(&mut self, told: Option<Span>) {
        self.span = match (self.span, told) {
            (None, span) | (span, None) => span,
            (Some(known), Some(told)) if told.start <= known.start => Some(told),
            (Some(known), Some(told)) => Some(Span { start: known.start, end: known.start + told.length() }),
        };
    }
}

/// A window that counts as spent, and as over where its first use would open it.
fn evicted_lease(ask: &LeaseRequest) -> Lease {
    let elsewhere = ask.limit.saturating_sub(ask.taken);
    let over = Span { start: Timestamp(0), end: Timestamp(0) };
    let span = ask.window.span.is_none().then_some(over);
    Lease { held: ask.taken, held_by_others: elsewhere, taken_by_others: elsewhere, span, ..Lease::default() }
}

/// A window that is not open yet would be now.
fn with_current_span(key: &WindowKey, now: Timestamp) -> WindowKey {
    let span = key.span.unwrap_or(Span { start: now, end: now + Duration::from_nanos(1) });
    WindowKey { span: Some(span), ..*key }
}

/// The others have their beginning for an id.
fn is_ordinal(id: u64, span: Option<Span>) -> bool {
    span.is_none_or(|span| span.start.0 != id)
}
