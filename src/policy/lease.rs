//! How much of a window a gate holds on to, so that it never has to ask for a single request.
//!
//! A gate leases units ahead of what it spends. What it holds when it dies may be lost, so a lease is never larger than
//! it must be: about a second of spending, and less and less as the limit nears.

use super::units::Units;
use super::window::Span;

/// Which window of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowKey {
    /// Its start in nanoseconds; for a window that opens at its first use, its ordinal.
    pub id: u64,
    /// When it is; `None` for one that opens at its first use and has not been opened yet.
    pub span: Option<Span>,
    /// So many spans of the same length before it weigh on it, too (sliding), else 0. Those after it weigh as well where
    /// they are known already, having been asked for ahead: it stands among what weighs on them.
    pub back: u32,
}

/// What a gate says of one window, and what it would like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The quota, by name.
    pub quota: String,
    /// Units that were bought for the window.
    pub limit: Units,
    /// Which window.
    pub window: WindowKey,
    /// Settled and reserved by this gate.
    pub taken: Units,
    /// Its lease so far.
    pub held: Units,
    /// What it would like to hold: more, or less to give back; never less than `taken`.
    pub wanted: Units,
    /// What it needs at once, on top of `taken`: a tenth of a second of spending, or a few of the dearest requests. A
    /// ledger that can tell small steps cheaply need not hand out more.
    pub soon: Units,
}

/// What a gate may take of one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// What this gate may take in all.
    pub held: Units,
    /// What is leased to others: other gates, earlier lives, earlier sub-windows, corrections by hand.
    pub elsewhere: Units,
    /// How much of that is known to be taken.
    pub taken_elsewhere: Units,
    /// What may be taken on top when the ledger cannot be reached any more.
    pub share: Units,
    /// When the window is, where the ledger knows better than the gate that asked.
    pub span: Option<Span>,
    /// Units newly known to be lost to a crash.
    pub lost: Units,
}
