//! What was taken of one window, and what of it this gate may take.

use crate::policy::Units;
use crate::policy::lease::WindowKey;
use crate::policy::window::Span;

/// One window of one quota.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct WindowUsage {
    /// Its start in nanoseconds; the ordinal of one that opens at its first use.
    pub(in crate::engine) id: u64,
    /// When it is; all of time while it has not been opened.
    pub(in crate::engine) span: Span,
    pub(in crate::engine) opened: bool,
    /// It opens at its first use: its id is an ordinal.
    pub(in crate::engine) first_use: bool,
    /// Nobody remembers what was taken of it: it counts as spent.
    pub(in crate::engine) spent: bool,
    pub(in crate::engine) settled: Units,
    pub(in crate::engine) reserved: Units,
    /// What the origin spent beyond what was held; settled as soon as the ledger hands it out.
    pub(in crate::engine) owed: Units,
    /// What this gate may take in all.
    pub(in crate::engine) held: Units,
    /// What others hold, and what earlier windows weigh.
    pub(in crate::engine) held_by_others: Units,
    /// How much of that is known to be taken.
    pub(in crate::engine) taken_by_others: Units,
    /// Both are what they were a window ago, until the ledger has said how much of it is over.
    pub(in crate::engine) estimated: bool,
    /// What gates hold that have gone.
    pub(in crate::engine) held_by_dead: Units,
    /// What other gates expect to be asked for until it ends, once the ledger has told.
    pub(in crate::engine) expected_by_others: Option<Units>,
    /// What may be taken on top once the ledger is lost.
    pub(in crate::engine) fallback: Units,
    /// Once more than this is taken, more is asked for.
    pub(in crate::engine) refill_below: Units,
    /// What the ledger was last told is taken, and held.
    pub(in crate::engine) last_reported: (Units, Units),
}

impl WindowUsage {
    /// A window of which nothing is taken, and nothing held.
    pub(in crate::engine) fn new(id: u64, span: Span) -> Self {
        Self {
            id,
            span,
            opened: true,
            first_use: false,
            spent: false,
            settled: Units::ZERO,
            reserved: Units::ZERO,
            owed: Units::ZERO,
            held: Units::ZERO,
            held_by_others: Units::ZERO,
            taken_by_others: Units::ZERO,
            estimated: false,
            held_by_dead: Units::ZERO,
            expected_by_others: None,
            fallback: Units::ZERO,
            refill_below: Units::ZERO,
            last_reported: (Units::ZERO, Units::ZERO),
        }
    }

    /// The same, counted as spent.
    pub(in crate::engine) fn spent(self, limit: Units) -> Self {
        let held_by_others = limit.saturating_sub(self.taken());
        Self {
            spent: true,
            held: Units::ZERO,
            held_by_others,
            taken_by_others: held_by_others,
            refill_below: Units::MAX,
            ..self
        }
    }

    /// Settled and reserved by this gate.
    pub(in crate::engine) fn taken(&self) -> Units {
        self.settled.saturating_add(self.reserved)
    }

    /// Settled and reserved by all gates, as far as is known.
    pub(in crate::engine) fn taken_total(&self) -> Units {
        self.taken().saturating_add(self.taken_by_others)
    }

    pub(in crate::engine) fn known_span(&self) -> Option<Span> {
        self.opened.then_some(self.span)
    }

    pub(in crate::engine) fn key(&self, back: u32) -> WindowKey {
        WindowKey { id: self.id, span: self.known_span(), lookback: back }
    }
}
