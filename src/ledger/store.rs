//! What every ledger does: it hands out parts of a window and remembers them beyond the life of a gate.

pub use crate::policy::lease::{Lease, LeaseRequest, WindowKey};
use crate::policy::{Timestamp, Units};
use std::future::Future;
use std::io;
use std::time::Duration;

/// A ledger. Asked by the keeper alone, on a thread of its own: it may wait, no request ever waits for it.
///
/// The sum of what it has handed out of a window, to all gates and all their lives, never exceeds the limit; what a
/// gate says it has taken already is recorded even where it does.
pub trait Store: Send + 'static {
    /// Answers every ask with what may be taken now, in their order. What is handed out is remembered before it is.
    fn lease(&mut self, asks: &[LeaseRequest], now: Timestamp) -> impl Future<Output = Result<Vec<Lease>, StoreError>>;

    /// What an operator should know of it, though it answers.
    fn last_error(&self) -> Option<String> {
        None
    }

    /// A clean stop: nothing is held any more but what is taken.
    fn close(&mut self, asks: &[LeaseRequest], now: Timestamp) -> impl Future<Output = Result<(), StoreError>>;

    /// Corrects by hand: the window of `ask`, with all that weighs on it, counts `used` as taken in all, whoever took it;
    /// what gates have reserved stays. `ask.taken` is already what this gate counts after the correction.
    fn correct(
        &mut self,
        ask: &LeaseRequest,
        used: Units,
        now: Timestamp,
    ) -> impl Future<Output = Result<(), StoreError>> {
        let _ = (used, now);
        let told = format!("{}: this ledger takes no corrections by hand", ask.quota);
        std::future::ready(Err(StoreError::Refused(told)))
    }
}

/// Why a ledger could not answer. What had been handed out before may still be spent.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be written.
    #[error("cannot write {what}: {source}")]
    Write {
        /// What was to be written.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// It cannot be reached.
    #[error("cannot reach {0}")]
    Unreachable(String),
    /// It does not do that.
    #[error("{0}")]
    Refused(String),
    /// The clocks of this gate and of a shared ledger disagree about which window it is; the ledger's counts.
    #[error("{server}: the clock of this gate is {} {}, so nothing is leased of {quota}; set it (NTP)",
        apart.as_secs_f64(), if *ahead { "s ahead of the server's" } else { "s behind the server's" })]
    Clock {
        /// Whose clock counts.
        server: String,
        /// The first quota of which nothing can be leased for it.
        quota: String,
        /// True when it is the gate's clock that is ahead.
        ahead: bool,
        /// How far they are apart.
        apart: Duration,
    },
}
