//! What an instance and the ledger of the budgets tell each other.

use crate::Timestamp;
use crate::identity::ClientKey;
use crate::key_usage::KeyWindows;
use crate::units::Units;
use crate::window::Span;
use std::time::Duration;

/// Maximum number of keys in one call.
pub const MAX_ROWS: usize = 500;

/// Call to the ledger for keys of one window of a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLeaseCall {
    /// Name of the quota.
    pub quota: String,
    /// What the ledger is to do.
    pub operation: KeyOperation,
    /// Time of the call.
    pub now: Timestamp,
    /// Windows of the keys.
    pub windows: KeyWindows,
    /// The window of the quota, part of a sliding window, or span in which windows of keys begin.
    pub window: Span,
    /// Ids of the windows that count in it, and in which the ledger has recorded leases of this instance.
    pub leased: Vec<u64>,
    /// Maximum number of keys that are counted apart.
    pub max_keys: usize,
    /// The keys.
    pub rows: Vec<KeyLeaseRow>,
    /// True if further rows wait for the reply to this call.
    pub has_more: bool,
}

/// Operation on budgets of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOperation {
    /// Leases units, and returns others.
    Lease,
    /// Reports leases that the ledger has lost.
    Report {
        /// The loss, as the ledger names it.
        loss: u64,
        /// True if no calls of the report follow.
        is_last: bool,
    },
    /// Returns all units that are not used, at a clean shutdown.
    Close,
}

/// Reply to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyReply {
    /// A lease for each row.
    Granted(Vec<KeyGrant>),
    /// The ledger has lost leases: nothing was done, and this instance is to report its own.
    ReportRequested {
        /// The loss, as the ledger names it. Another one makes what was reported before void.
        loss: u64,
    },
    /// The window is over or has not begun, by the clock of the ledger.
    NotOpen,
}

/// Request for a lease of one key, or report of its usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLeaseRow {
    /// The key.
    pub key: ClientKey,
    /// Units that the ledger has recorded as held, by its last reply; `None` without one.
    pub acknowledged: Option<Units>,
    /// Limit of the key.
    pub limit: Units,
    /// Settled plus reserved units of this instance.
    pub taken: Units,
    /// Units that this instance may use in total until the reply.
    pub held: Units,
    /// Units that it needs in total at least; `held` if it lacks none.
    pub needed: Units,
    /// Units that it requests in total.
    pub wanted: Units,
    /// Time until the end of the window that the key has opened; zero without one.
    pub remaining: Duration,
}

/// Lease of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyGrant {
    /// The key is counted.
    Counted {
        /// Units that this instance may use in total.
        held: Units,
        /// Units settled and reserved by other instances.
        taken_by_others: Units,
        /// Units that this instance has used and does not know of.
        forgotten: Units,
        /// What counts beyond the window of the call.
        beyond: Beyond,
    },
    /// The window has as many keys as are counted apart: the key shares the budget of [`shared_key`](super::shared_key).
    Shared,
    /// The window that the key had opened has ended by the clock of the ledger. Nothing was done.
    Ended,
}

/// What a ledger knows of a key beyond the window of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// The window is one of the quota: usage in earlier ones counts no more.
    Nothing,
    /// The window is a part of a sliding one.
    Earlier {
        /// Units settled and reserved by all instances in the earlier parts.
        taken: Units,
        /// Number of parts, the earliest first, that must expire before the key has what it needs; with that, those with any usage.
        expiring: u8,
    },
    /// The key opens its own window.
    Own {
        /// Time from the call to the end of its window; zero without one.
        remaining: Duration,
        /// True if it has begun in the span before that of the call, and is counted there.
        is_earlier: bool,
    },
}
