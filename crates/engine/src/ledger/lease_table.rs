//! Leases by quota, window and holder: the arithmetic of the file ledger, and of the ledger in memory that tests use.
//!
//! Pure: time is a parameter and there is no I/O, so that a model can verify it.

use super::store::{Lease, LeaseRequest, WindowKey};
use std::collections::BTreeMap;
use std::time::Duration;
use tidegate_policy::window::{EvictedWindows, Span};
use tidegate_policy::{Timestamp, Units};

/// Leases of all quotas, by window and holder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseTable {
    pub(super) quotas: BTreeMap<String, QuotaWindows>,
}

/// Windows of one quota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct QuotaWindows {
    pub(super) windows: BTreeMap<u64, LeasedWindow>,
    pub(super) evicted: EvictedWindows,
}

/// Leases of one window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LeasedWindow {
    /// Span of the window; `None` for a first-use window that is not open yet.
    pub(super) span: Option<Span>,
    pub(super) holdings: BTreeMap<Holder, Holding>,
}

/// Holder of units: an incarnation of an instance, or one of the two constants below.
pub type Holder = u64;

/// Holder of the usage of retired instances and incarnations.
pub const PREVIOUS_INCARNATIONS: Holder = 0;
/// Holder of the administrator's correction.
const MANUAL_CORRECTION: Holder = u64::MAX;

/// Units of one holder in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Units that may be taken. They count as taken until they are returned.
    pub held: Units,
    /// Units known to be taken.
    pub taken: Units,
}

/// Maximum number of stored windows per quota besides those that overlap the newest.
const MAX_PAST_WINDOWS: usize = 8;

impl LeaseTable {
    /// Grants the request of a holder as far as units are available. Returns the lease.
    pub fn lease(&mut self, holder: Holder, request: &LeaseRequest, now: Timestamp) -> Lease {
        let quota = self.quotas.entry(request.quota.clone()).or_default();
        if quota.is_evicted(&request.window) {
            return evicted_lease(request);
        }
        let (held_by_others, taken_by_others) = quota.held_by_others(holder, &request.window, now);
        let window = quota.windows.entry(request.window.id).or_default();
        window.merge_span(request.window.span);
        let has_ended = request.window.span.is_none() && window.span.is_some_and(|span| span.end <= now);
        let available = if has_ended { Units::ZERO } else { request.limit.saturating_sub(held_by_others) };
        let held = if request.wanted < request.held {
            request.wanted
        } else {
            request.wanted.min(available).max(request.held)
        };
        let held = held.max(request.taken);
        window.holdings.insert(holder, Holding { held, taken: request.taken });
        let span = window.span;
        Lease { held, held_by_others, taken_by_others, span, ..Lease::default() }
    }

    /// Evicts the oldest windows that no request needs. `requests` must contain all requests of an instance: a window
    /// that does not overlap a returned one may overlap the one in use.
    pub fn evict_old(&mut self, requests: &[LeaseRequest]) {
        for quota_requests in requests.chunk_by(|one, next| one.quota == next.quota) {
            if let Some(quota) = self.quotas.get_mut(&quota_requests[0].quota) {
                quota.evict_old(quota_requests);
            }
        }
    }

    /// Records the final usage of a holder and retires it.
    pub fn close(&mut self, holder: Holder, request: &LeaseRequest) {
        let quota = self.quotas.entry(request.quota.clone()).or_default();
        if !quota.is_evicted(&request.window) {
            let window = quota.windows.entry(request.window.id).or_default();
            window.merge_span(request.window.span);
            window.holdings.remove(&holder);
            window.add_to_previous(request.taken);
        }
    }

    /// Counts `used` as taken in total of the request's window and what overlaps it. Replaces all usage except that of
    /// live instances.
    pub fn correct(&mut self, holder: Holder, request: &LeaseRequest, used: Units, now: Timestamp) {
        let quota = self.quotas.entry(request.quota.clone()).or_default();
        let key = with_current_span(&request.window, now);
        // The administrator's value also covers evicted windows.
        quota.evicted = EvictedWindows::default();
        for (&id, window) in &mut quota.windows {
            if id == key.id || key.overlaps(id, window.span) {
                window.holdings.retain(|&other, _| other != PREVIOUS_INCARNATIONS && other != MANUAL_CORRECTION);
            }
        }
        let window = quota.windows.entry(key.id).or_default();
        window.merge_span(request.window.span);
        window.holdings.insert(holder, Holding { held: request.held.max(request.taken), taken: request.taken });
        let (_, live) = quota.held_by_others(holder, &request.window, now);
        let manual = used.saturating_sub(request.taken).saturating_sub(live);
        let window = quota.windows.entry(key.id).or_default();
        window.holdings.insert(MANUAL_CORRECTION, Holding { held: manual, taken: manual });
    }

    /// Returns the current lease of a holder, without a change.
    pub fn status(&self, holder: Holder, request: &LeaseRequest, now: Timestamp) -> Lease {
        let empty = QuotaWindows::default();
        let quota = self.quotas.get(&request.quota).unwrap_or(&empty);
        if quota.is_evicted(&request.window) {
            return evicted_lease(request);
        }
        let (held_by_others, taken_by_others) = quota.held_by_others(holder, &request.window, now);
        let window = quota.windows.get(&request.window.id);
        let held = self.holding(holder, &request.quota, request.window.id).held;
        Lease { held, held_by_others, taken_by_others, span: window.and_then(|window| window.span), ..Lease::default() }
    }

    /// Returns true if the window is stored.
    pub fn contains(&self, quota: &str, window: u64) -> bool {
        self.quotas.get(quota).is_some_and(|quota| quota.windows.contains_key(&window))
    }

    /// Returns the units of a holder in a window.
    pub fn holding(&self, holder: Holder, quota: &str, window: u64) -> Holding {
        let window = self.quotas.get(quota).and_then(|quota| quota.windows.get(&window));
        window.and_then(|window| window.holdings.get(&holder)).copied().unwrap_or_default()
    }

    /// Returns the span of the window, if it is known.
    pub fn span(&self, quota: &str, window: u64) -> Option<Span> {
        self.quotas.get(quota)?.windows.get(&window)?.span
    }

    /// Sets the units of a holder in a stored window.
    pub(super) fn put(&mut self, holder: Holder, quota: &str, window: u64, holding: Holding) {
        if let Some(window) = self.quotas.get_mut(quota).and_then(|quota| quota.windows.get_mut(&window)) {
            window.holdings.insert(holder, holding);
        }
    }

    /// Retires a holder that has crashed. `count_taken` returns how many of its units count as taken.
    ///
    /// A first-use window that is not known to be open counts as opened now if units may have been taken of it.
    pub fn retire_holder(
        &mut self,
        holder: Holder,
        now: Timestamp,
        mut count_taken: impl FnMut(&str, u64, Holding) -> Units,
    ) {
        for (name, quota) in &mut self.quotas {
            for (&id, window) in &mut quota.windows {
                let Some(holding) = window.holdings.remove(&holder) else { continue };
                let taken = count_taken(name, id, holding);
                window.add_to_previous(taken);
                if !taken.is_zero() {
                    window.span = window.span.or(Some(Span { start: now, end: Timestamp(u64::MAX) }));
                }
            }
            quota.renumber();
        }
    }
}

impl QuotaWindows {
    /// Returns the held and the taken units of all other holders, including those of overlapping windows.
    fn held_by_others(&self, holder: Holder, key: &WindowKey, now: Timestamp) -> (Units, Units) {
        let key = with_current_span(key, now);
        let mut sum = (Units::ZERO, Units::ZERO);
        for (&id, window) in &self.windows {
            let overlaps = key.overlaps(id, window.span);
            for (&other, holding) in &window.holdings {
                if overlaps || (id == key.id && other != holder) {
                    sum = (sum.0.saturating_add(holding.held), sum.1.saturating_add(holding.taken));
                }
            }
        }
        sum
    }

    /// Returns true if the usage of the window or of one that overlaps it was evicted.
    fn is_evicted(&self, key: &WindowKey) -> bool {
        let is_stored = self.windows.contains_key(&key.id);
        match key.span {
            Some(span) if is_ordinal(key.id, Some(span)) => false,
            Some(span) => self.evicted.overlaps(span, key.lookback) || (!is_stored && self.evicted.covers(span)),
            None => !is_stored && self.windows.iter().any(|(&id, window)| is_ordinal(id, window.span) && id > key.id),
        }
    }

    /// Evicts the oldest windows beyond a maximum. Keeps one window more than those that overlap the requests, because
    /// it may be prefetched.
    fn evict_old(&mut self, requests: &[LeaseRequest]) {
        let newest = self.windows.values().filter_map(|window| window.span).max_by_key(|span| span.start);
        let Some(newest) = newest else { return };
        let needed = |request: &LeaseRequest, id: u64, span: Option<Span>| {
            let lookback = if request.window.lookback == 0 { 0 } else { request.window.lookback + 1 };
            let spans = [request.window.span.unwrap_or(newest), newest];
            let mut keys = spans.map(|span| WindowKey { id: u64::MAX, span: Some(span), lookback }).into_iter();
            id == request.window.id || keys.any(|key| key.overlaps(id, span))
        };
        while self.windows.len() > MAX_PAST_WINDOWS {
            let idle = |(id, window): &(&u64, &LeasedWindow)| {
                window.span.is_some_and(|span| span != newest)
                    && !requests.iter().any(|request| needed(request, **id, window.span))
            };
            let oldest = self.windows.iter().filter(idle).min_by_key(|(_, window)| window.span.map(|span| span.start));
            let Some((&id, window)) = oldest else { return };
            if let Some(span) = window.span.filter(|&span| !is_ordinal(id, Some(span))) {
                self.evicted.evict(span);
            }
            self.windows.remove(&id);
        }
    }

    /// Renumbers first-use windows from 0, so that an instance that starts finds the current one.
    fn renumber(&mut self) {
        let (first_use, timed): (Vec<_>, Vec<_>) = std::mem::take(&mut self.windows)
            .into_iter()
            .filter(|(_, window)| window.span.is_some())
            .partition(|(id, window)| is_ordinal(*id, window.span));
        self.windows.extend(timed);
        self.windows.extend((0..).zip(first_use).map(|(ordinal, (_, window))| (ordinal, window)));
    }
}

impl LeasedWindow {
    fn add_to_previous(&mut self, taken: Units) {
        let earlier = self.holdings.entry(PREVIOUS_INCARNATIONS).or_default();
        earlier.taken = earlier.taken.saturating_add(taken);
        earlier.held = earlier.taken;
    }

    /// Merges the span that an instance reports. Windows with one id are identical, whatever the clocks of the
    /// instances: the earliest start counts.
    fn merge_span(&mut self, reported: Option<Span>) {
        self.span = match (self.span, reported) {
            (None, span) | (span, None) => span,
            (Some(stored), Some(reported)) if reported.start <= stored.start => Some(reported),
            (Some(stored), Some(reported)) => Some(Span { start: stored.start, end: stored.start + reported.length() }),
        };
    }
}

/// Returns the lease of an evicted window: fully used, and ended if it is a first-use window.
fn evicted_lease(request: &LeaseRequest) -> Lease {
    let unavailable = request.limit.saturating_sub(request.taken);
    let ended = Span { start: Timestamp(0), end: Timestamp(0) };
    let span = request.window.span.is_none().then_some(ended);
    Lease { held: request.taken, held_by_others: unavailable, taken_by_others: unavailable, span, ..Lease::default() }
}

/// Returns the key with a span: a window that is not open yet would open now.
fn with_current_span(key: &WindowKey, now: Timestamp) -> WindowKey {
    let span = key.span.unwrap_or(Span { start: now, end: now + Duration::from_nanos(1) });
    WindowKey { span: Some(span), ..*key }
}

/// Returns true if the id is an ordinal. Ids of other windows are their start.
fn is_ordinal(id: u64, span: Option<Span>) -> bool {
    span.is_none_or(|span| span.start.0 != id)
}

#[cfg(test)]
mod tests;
