//! Where quota counters take their units from: this instance alone, or a ledger.

use std::sync::Arc;

/// Source of the units.
#[derive(Clone, Default)]
pub enum LeaseMode {
    /// Each window belongs to this instance and is dropped when it ends: the count exists only in memory.
    #[default]
    Local,
    /// Units are leased from a ledger. The function is called when a lease runs low; it must not block.
    Leased(Arc<dyn Fn() + Send + Sync>),
    /// Units are leased from a ledger that several instances share, also those of the budgets of keys.
    Shared(Arc<dyn Fn() + Send + Sync>),
}

impl LeaseMode {
    pub(super) fn wake_refresher(&self) {
        if let Self::Leased(wake) | Self::Shared(wake) = self {
            wake();
        }
    }
}
