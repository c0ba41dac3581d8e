//! Usage of one window, and the units of it that this instance may take.

use crate::policy::Units;
use crate::policy::lease::WindowKey;
use crate::policy::window::Span;

/// Usage of one window of one quota.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct WindowUsage {
    /// Start of the window in nanoseconds; for a first-use window, its ordinal.
    pub(in crate::engine) id: u64,
    /// Span of the window; all of time until the window is opened.
    pub(in crate::engine) span: Span,
    pub(in crate::engine) is_open: bool,
    /// True for a first-use window, whose id is an ordinal.
    pub(in crate::engine) is_first_use: bool,
    /// True if the usage of the window was evicted, so that it counts as fully used.
    pub(in crate::engine) is_spent: bool,
    pub(in crate::engine) settled: Units,
    pub(in crate::engine) reserved: Units,
    /// Units that the origin spent beyond `held`. Settled as soon as the ledger leases them.
    pub(in crate::engine) owed: Units,
    /// Units that this instance may take in total.
    pub(in crate::engine) held: Units,
    /// Units held by other instances, and usage of earlier windows that overlap this one.
    pub(in crate::engine) held_by_others: Units,
    /// Part of `held_by_others` that is known to be taken.
    pub(in crate::engine) taken_by_others: Units,
    /// True if both values come from the previous window, until the ledger reports how much of it has expired.
    pub(in crate::engine) is_estimated: bool,
    /// Units held by instances that have exited.
    pub(in crate::engine) held_by_dead: Units,
    /// Forecast demand of other instances until the end of the window, once the ledger has reported it.
    pub(in crate::engine) expected_by_others: Option<Units>,
    /// Additional units that may be taken once the ledger is unavailable.
    pub(in crate::engine) fallback: Units,
    /// Taken units above which a refill is requested.
    pub(in crate::engine) refill_below: Units,
    /// Taken and held units last reported to the ledger.
    pub(in crate::engine) last_reported: (Units, Units),
}

impl WindowUsage {
    /// Creates a window without taken or held units.
    pub(in crate::engine) fn new(id: u64, span: Span) -> Self {
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

    /// Returns this window, counted as fully used.
    pub(in crate::engine) fn into_spent(self, limit: Units) -> Self {
        let held_by_others = limit.saturating_sub(self.taken());
        Self {
            is_spent: true,
            held: Units::ZERO,
            held_by_others,
            taken_by_others: held_by_others,
            refill_below: Units::MAX,
            ..self
        }
    }

    /// Returns the units settled and reserved by this instance.
    pub(in crate::engine) fn taken(&self) -> Units {
        self.settled.saturating_add(self.reserved)
    }

    /// Returns the units settled and reserved by all instances, as far as this instance is informed.
    pub(in crate::engine) fn taken_total(&self) -> Units {
        self.taken().saturating_add(self.taken_by_others)
    }

    pub(in crate::engine) fn known_span(&self) -> Option<Span> {
        self.is_open.then_some(self.span)
    }

    pub(in crate::engine) fn key(&self, lookback: u32) -> WindowKey {
        WindowKey { id: self.id, span: self.known_span(), lookback }
    }
}
