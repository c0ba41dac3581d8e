//! Changes of a counter by costs and counts: settled and released reservations, reports of the origin, and corrections.

use super::QuotaCounter;
use crate::engine::StableClassId;
use crate::engine::cost_estimates::LearnedCost;
use crate::policy::quota_sync::{self, LocalCount, OriginReport};
use crate::policy::{Timestamp, Units};

/// Divisor of the limit: a drift that changes by more than this part of the limit is reported.
const DRIFT_REPORT_DIVISOR: u64 = 100;

/// Event to log, derived from the origin's quota headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginQuotaEvent {
    /// The origin reports the quota as exhausted; requests are refused until this time.
    Exhausted {
        /// Reset time reported by the origin.
        until: Timestamp,
    },
    /// The origin counts more units than the gateway; fewer if negative.
    Drift {
        /// Drift, in milli-units.
        milli: i64,
    },
}

impl QuotaCounter {
    /// Replaces a reservation of `expected`, made in the window `id`, by `actual`.
    ///
    /// Charges that window, even if it has ended since. Units that the origin spent beyond the limit are counted as
    /// overrun, outside of all windows, so that the settled units stay within the limit. Updates the cost estimate if
    /// the cost is `learned`. Returns the sequence number of the settlement, which is shared with decisions, and the
    /// overrun.
    pub(in crate::engine) fn settle(
        &self,
        id: u64,
        class: StableClassId,
        expected: Units,
        actual: Units,
        learned: Option<&LearnedCost>,
    ) -> (u64, Units) {
        let mut state = self.state.lock();
        state.sequence += 1;
        if let Some(learned) = learned {
            learned.record(actual);
        }
        state.class(class).charged = state.class(class).charged.saturating_add(actual);
        if let Some(pacer) = &mut state.pacer {
            pacer.class(usize::from(class)).demand.record_cost(expected, actual);
        }
        let (limit, enforce, leased) = (state.limit, state.enforce, state.is_leased);
        if state.current.id == id && !actual.is_zero() {
            state.open_on_first_use();
        }
        let sequence = state.sequence;
        let Some(window) = state.window_mut(id) else { return (sequence, Units::ZERO) };
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
        state.overrun = state.overrun.saturating_add(overrun);
        if !excess.is_zero() {
            self.add_shortfall(&mut state, excess);
        }
        state.mark_changed(id);
        self.request_refill_if_low(&mut state);
        (sequence, overrun)
    }

    /// Applies the usage of the window `id` that the origin reported. Returns an event to log, if there is one.
    pub(in crate::engine) fn sync_with_origin(
        &self,
        id: u64,
        report: OriginReport,
        now: Timestamp,
    ) -> Option<OriginQuotaEvent> {
        let mut state = self.lock_at(now);
        let has_fixed_end = !state.window.is_sliding();
        let span = if state.current.is_open { state.current.span } else { return None };
        let (limit, used, reserved) = (state.limit, state.used(), state.current.reserved);
        let length = state.window.nominal_length();
        let calibration =
            quota_sync::reconcile(report, LocalCount { limit, used, reserved, span, has_fixed_end, length }, now);
        let closed = calibration.closed_until.filter(|until| *until > state.closed_until);
        state.closed_until = closed.unwrap_or(state.closed_until);
        let closed = closed.map(|until| OriginQuotaEvent::Exhausted { until });
        if has_fixed_end && state.current.id != id {
            return closed;
        }
        state.raise_taken_to(calibration.taken);
        state.drift = calibration.drift.unwrap_or(state.drift);
        let change = state.drift.abs_diff(state.last_reported_drift);
        let is_significant = closed.is_some() || change > limit.milli() / DRIFT_REPORT_DIVISOR;
        if is_significant {
            state.last_reported_drift = state.drift;
        }
        let milli = state.drift;
        closed.or_else(|| is_significant.then_some(OriginQuotaEvent::Drift { milli }))
    }

    /// Releases a reservation of which nothing was spent.
    pub(in crate::engine) fn release(&self, id: u64, expected: Units) {
        let mut state = self.state.lock();
        if let Some(window) = state.window_mut(id) {
            window.reserved = window.reserved.saturating_sub(expected);
        }
        state.mark_changed(id);
    }

    /// Sets the settled units manually. Returns the previous and the new value.
    pub(in crate::engine) fn set_used(&self, used: Units, now: Timestamp) -> (Units, Units) {
        let mut state = self.lock_at(now);
        let before = state.used();
        let after = if state.enforce { used.min(state.limit.saturating_sub(state.current.reserved)) } else { used };
        state.set_used(after);
        state.replan_now();
        drop(state);
        self.lease_mode.wake_refresher();
        (before, after)
    }

    /// Sets the taken units to `taken`, the value of a log. Returns true if the count changed.
    pub(in crate::engine) fn sync_used_from_log(&self, taken: Units, now: Timestamp) -> bool {
        let mut state = self.lock_at(now);
        let before = state.taken();
        if taken != before {
            let reserved = state.current.reserved;
            state.set_used(taken.saturating_sub(reserved));
        }
        // Usage decreases only by a manual correction, after which a gateway replans.
        if taken < before {
            state.replan_now();
        }
        taken != before
    }
}
