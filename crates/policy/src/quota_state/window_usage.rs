//! Usage of one window, and the units of it that this instance may take.

use crate::Timestamp;
use crate::lease::WindowKey;
use crate::units::Units;
use crate::window::Span;

/// Usage of one window of one quota.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowUsage {
    /// Start of the window in nanoseconds; for a first-use window, its ordinal.
    pub(super) id: u64,
    /// Span of the window; all of time until the window is opened.
    pub(super) span: Span,
    pub(super) is_open: bool,
    /// True for a first-use window, whose id is an ordinal.
    pub(super) is_first_use: bool,
    /// True if the usage of the window was evicted, so that it counts as fully used.
    pub(super) is_spent: bool,
    pub(super) settled: Units,
    pub(super) reserved: Units,
    /// Units that the origin spent beyond `held`. Settled as soon as the ledger leases them.
    pub(super) owed: Units,
    /// Units that this instance may take in total.
    pub(super) held: Units,
    /// Units held by other instances, and usage of earlier windows that overlap this one.
    pub(super) held_by_others: Units,
    /// Part of `held_by_others` that is known to be taken.
    pub(super) taken_by_others: Units,
    /// True if both values come from the previous window, until the ledger reports how much of it has expired.
    pub(super) is_estimated: bool,
    /// Units held by instances that have exited.
    pub(super) held_by_dead: Units,
    /// Forecast demand of other instances until the end of the window, once the ledger has reported it.
    pub(super) expected_by_others: Option<Units>,
    /// Additional units that may be taken once the ledger is unavailable.
    pub(super) fallback: Units,
    /// Taken units above which a refill is requested.
    pub(super) refill_below: Units,
    /// Taken and held units last reported to the ledger.
    pub(super) last_reported: (Units, Units),
}

impl WindowUsage {
    /// Creates a window without taken or held units.
    pub(super) fn new(id: u64, span: Span) -> Self {
        Self {
            id,
            span,
            is_open: true,
            is_first_use: false,
            is_spent: false,
            settled: Units::ZERO,
            reserved: Units::ZERO,
            owed: Units::ZERO,
            held: Units::ZERO,
            held_by_others: Units::ZERO,
            taken_by_others: Units::ZERO,
            is_estimated: false,
            held_by_dead: Units::ZERO,
            expected_by_others: None,
            fallback: Units::ZERO,
            refill_below: Units::ZERO,
            last_reported: (Units::ZERO, Units::ZERO),
        }
    }

    /// Creates a first-use window that its next charge opens.
    pub(super) fn placeholder(ordinal: u64) -> Self {
        let all_time = Span { start: Timestamp(0), end: Timestamp(u64::MAX) };
        Self { is_open: false, is_first_use: true, ..Self::new(ordinal, all_time) }
    }

    /// Returns this window, counted as fully used.
    pub(super) fn into_spent(self, limit: Units) -> Self {
        let taken_by_others = limit.saturating_sub(self.taken());
        Self { is_spent: true, held: Units::ZERO, taken_by_others, refill_below: Units::MAX, ..self }
    }

    /// Returns the units settled and reserved by this instance.
    pub(super) fn taken(&self) -> Units {
        self.settled.saturating_add(self.reserved)
    }

    /// Returns the units settled and reserved by all instances, as far as this instance is informed.
    pub(super) fn taken_total(&self) -> Units {
        self.taken().saturating_add(self.taken_by_others)
    }

    pub(super) fn known_span(&self) -> Option<Span> {
        self.is_open.then_some(self.span)
    }

    pub(super) fn key(&self, lookback: u32) -> WindowKey {
        WindowKey { id: self.id, span: self.known_span(), lookback }
    }
}
