//! Changes of the state by costs and counts: reservations, their settlement and release, reports of the origin, and
//! corrections.

use super::QuotaState;
use crate::Timestamp;
use crate::ids::StableClassId;
use crate::quota_sync::{self, LocalCount, OriginQuotaEvent, OriginReport};
use crate::units::Units;
use crate::window::EvictedWindows;

/// Divisor of the limit: a drift that changes by more than this part of the limit is reported.
const DRIFT_REPORT_DIVISOR: u64 = 100;

/// Result of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// Sequence number of the settlement, among decisions and settlements of the quota.
    pub sequence: u64,
    /// Units that the origin spent beyond the limit, counted in no window.
    pub overrun: Units,
    /// True if a larger lease has to be requested.
    pub needs_refill: bool,
}

impl QuotaState {
    /// Reserves `cost`. The first charge opens a first-use window.
    pub fn reserve(&mut self, cost: Units) {
        if !cost.is_zero() {
            self.open_on_first_use(self.latest_time);
        }
        self.current.reserved = self.current.reserved.saturating_add(cost);
    }

    /// Returns true if the lease covers `cost`.
    pub fn covers(&self, cost: Units) -> bool {
        self.taken().saturating_add(cost) <= self.leased()
    }

    /// Charges the reservation of `expected` in the window `id`, and reserves the same units again in the current
    /// window, for a retry. Returns the sequence number of the charge.
    pub fn reserve_retry(&mut self, id: u64, class: StableClassId, expected: Units) -> u64 {
        if let Some(first) = self.window_mut(id) {
            first.reserved = first.reserved.saturating_sub(expected);
            first.settled = first.settled.saturating_add(expected);
        }
        self.note_late_charge(id, expected);
        let usage = self.class_mut(class);
        usage.charged = usage.charged.saturating_add(expected);
        self.reserve(expected);
        self.next_sequence()
    }

    /// Replaces a reservation of `expected`, made in the window `id`, by `actual`.
    ///
    /// Charges that window, even if it has ended since. Units that the origin spent beyond the limit are counted as
    /// overrun, outside of all windows, so that the settled units stay within the limit.
    pub fn settle(&mut self, id: u64, class: StableClassId, expected: Units, actual: Units) -> Settlement {
        let sequence = self.next_sequence();
        let usage = self.class_mut(class);
        usage.charged = usage.charged.saturating_add(actual);
        if let Some(pacer) = &mut self.pacer {
            pacer.class(usize::from(class)).demand.record_cost(expected, actual);
        }
        self.note_late_charge(id, actual.saturating_sub(expected));
        let (overrun, needs_refill) = self.charge_window(id, expected, actual);
        Settlement { sequence, overrun, needs_refill }
    }

    /// Charges the window `id` for what another process has charged it beyond reservations, after this one has taken the
    /// leases over.
    pub fn charge_late(&mut self, id: u64, units: Units) -> bool {
        self.charge_window(id, Units::ZERO, units).1
    }

    /// Lets another process have the leases: what is settled beyond its reservation from now on is for
    /// [`Self::take_late_charges`].
    pub fn begin_late_charges(&mut self) {
        self.late_charges.get_or_insert_default();
    }

    /// Notes `units` beyond a reservation, once another process has the leases.
    fn note_late_charge(&mut self, id: u64, units: Units) {
        if let Some(late) = &mut self.late_charges {
            let sum = late.entry(id).or_default();
            *sum = sum.saturating_add(units);
        }
    }

    /// Returns the units beyond reservations since the last call, by window.
    pub fn take_late_charges(&mut self) -> Vec<(u64, Units)> {
        let late = self.late_charges.as_mut().map(std::mem::take).unwrap_or_default();
        late.into_iter().filter(|(_, units)| !units.is_zero()).collect()
    }

    /// Replaces `expected` by `actual` in the window `id`. Returns the overrun, and true if a larger lease has to be
    /// requested.
    fn charge_window(&mut self, id: u64, expected: Units, actual: Units) -> (Units, bool) {
        let (limit, enforce, leased) = (self.limit, self.enforce, self.is_leased);
        if self.current.id == id && !actual.is_zero() {
            self.open_on_first_use(self.latest_time);
        }
        let Some(window) = self.window_mut(id) else { return (Units::ZERO, false) };
        window.reserved = window.reserved.saturating_sub(expected);
        let available = if enforce {
            window.held.min(limit).saturating_sub(window.taken()).saturating_sub(window.owed)
        } else {
            Units::MAX
        };
        window.settled = window.settled.saturating_add(actual.min(available));
        let excess = actual.saturating_sub(available);
        // The limit may have room that the lease lacks; the ledger decides.
        let remaining =
            if leased { limit.saturating_sub(window.taken_total()).saturating_sub(window.owed) } else { Units::ZERO };
        window.owed = window.owed.saturating_add(excess.min(remaining));
        let overrun = excess.saturating_sub(remaining);
        self.overrun = self.overrun.saturating_add(overrun);
        let is_short = !excess.is_zero() && self.add_shortfall(excess);
        self.mark_changed(id);
        (overrun, self.request_refill_if_low() || is_short)
    }

    /// Charges the window of `decided_at` for a cost that was not expected at that time. A first-use window that is not
    /// open begins then. Returns the id of the window.
    pub fn settle_unexpected(
        &mut self,
        decided_at: Timestamp,
        class: StableClassId,
        actual: Units,
    ) -> (u64, Settlement) {
        let id = self.window_id_at(decided_at);
        if id == self.current.id && !actual.is_zero() {
            self.open_on_first_use(decided_at);
        }
        (id, self.settle(id, class, Units::ZERO, actual))
    }

    /// Releases a reservation of which nothing was spent.
    pub fn release(&mut self, id: u64, expected: Units) {
        if let Some(window) = self.window_mut(id) {
            window.reserved = window.reserved.saturating_sub(expected);
        }
        self.mark_changed(id);
    }

    /// Applies the usage of the window `id` that the origin reported. Returns an event to log, if there is one.
    pub fn sync_with_origin(&mut self, id: u64, report: OriginReport, now: Timestamp) -> Option<OriginQuotaEvent> {
        let has_fixed_end = !self.window.is_sliding();
        let span = if self.current.is_open { self.current.span } else { return None };
        let (limit, used, reserved) = (self.limit, self.used(), self.current.reserved);
        let length = self.window.nominal_length();
        let calibration =
            quota_sync::reconcile(report, LocalCount { limit, used, reserved, span, has_fixed_end, length }, now);
        let closed = calibration.closed_until.filter(|until| *until > self.closed_until);
        self.closed_until = closed.unwrap_or(self.closed_until);
        let closed = closed.map(|until| OriginQuotaEvent::Exhausted { until });
        if has_fixed_end && self.current.id != id {
            return closed;
        }
        if let Some(resets_at) = calibration.other_window {
            return Some(OriginQuotaEvent::OtherWindow { resets_at });
        }
        self.raise_taken_to(calibration.taken);
        self.drift = calibration.drift.unwrap_or(self.drift);
        let change = self.drift.abs_diff(self.last_reported_drift);
        let is_significant = closed.is_some() || change > limit.milli() / DRIFT_REPORT_DIVISOR;
        if is_significant {
            self.last_reported_drift = self.drift;
        }
        let milli = self.drift;
        closed.or_else(|| is_significant.then_some(OriginQuotaEvent::Drift { milli }))
    }

    /// Sets the settled units manually. Returns the previous and the new value.
    pub fn set_used(&mut self, used: Units) -> (Units, Units) {
        let before = self.used();
        let after = if self.enforce { used.min(self.limit.saturating_sub(self.current.reserved)) } else { used };
        self.replace_used(after);
        self.replan_now();
        (before, after)
    }

    /// Sets the taken units to `taken`, the value of a log. Returns true if the count changed.
    pub fn sync_used_from_log(&mut self, taken: Units) -> bool {
        let before = self.taken();
        if taken != before {
            self.replace_used(taken.saturating_sub(self.current.reserved));
        }
        // Usage decreases only by a manual correction, after which a gateway replans.
        if taken < before {
            self.replan_now();
        }
        taken != before
    }

    fn replace_used(&mut self, used: Units) {
        let lookback = self.window.lookback();
        let key = self.current.key(lookback);
        self.current.owed = Units::ZERO;
        self.closed_until = Timestamp::default();
        self.evicted_windows = EvictedWindows::default();
        // Also if the number is unchanged: the ledger may wait for the administrator's value.
        self.has_pending_correction = self.is_leased;
        if used >= self.current.taken_by_others {
            self.current.settled = used.saturating_sub(self.current.taken_by_others);
            return;
        }
        // The value is below the usage of others or of overlapping windows, so these are corrected, too.
        self.current.is_spent = false;
        self.current.settled = Units::ZERO;
        for window in self.past_windows.iter_mut().filter(|window| key.overlaps(window.id, window.known_span())) {
            window.settled = Units::ZERO;
        }
        match self.is_leased {
            true => self.current.taken_by_others = used,
            false => {
                self.sum_overlapping();
                self.current.settled = used.saturating_sub(self.current.taken_by_others);
            }
        }
    }

    /// Raises the units taken by all instances to at least `counted`.
    pub(super) fn raise_taken_to(&mut self, counted: Units) {
        let excess = counted.saturating_sub(self.taken());
        if excess.is_zero() {
            return;
        }
        match self.is_leased {
            // Count the units as taken by others: several instances receive the same report from the origin.
            true => {
                self.current.taken_by_others = self.current.taken_by_others.saturating_add(excess);
                self.has_pending_correction = true;
            }
            false => self.current.settled = self.current.settled.saturating_add(excess),
        }
    }
}
