//! Interface of all ledgers: they lease units of windows, and record leases beyond the life of an instance.

use std::future::Future;
use std::io;
use std::time::Duration;
use tidegate_policy::key_lease::{KeyLeaseCall, KeyReply};
pub use tidegate_policy::lease::{Lease, LeaseRequest, WindowKey};
use tidegate_policy::{Timestamp, Units};

/// A ledger. Only the lease refresher calls it, on its own thread: a ledger may block it, but no worker.
///
/// The units leased of a window, to all instances and incarnations together, never exceed the limit. Usage that an
/// instance reports is recorded even above the limit.
pub trait Store: Send + 'static {
    /// Returns a lease for each request, in their order. A lease is recorded before it is returned.
    fn lease(
        &mut self,
        requests: &[LeaseRequest],
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<Lease>, StoreError>>;

    /// Returns a problem that the administrator should fix although the ledger responds; `None` if there is none.
    fn last_error(&self) -> Option<String> {
        None
    }

    /// Closes the ledger at a clean shutdown: only taken units remain held.
    fn close(&mut self, requests: &[LeaseRequest], now: Timestamp) -> impl Future<Output = Result<(), StoreError>>;

    /// Executes a call for budgets of keys. Only a ledger that several instances share receives them.
    fn lease_keys(
        &mut self,
        call: &KeyLeaseCall,
        now: Timestamp,
    ) -> impl Future<Output = Result<KeyReply, StoreError>> {
        let _ = (call, now);
        std::future::ready(Err(StoreError::Refused("this ledger is not shared".to_owned())))
    }

    /// Applies a manual correction. The window of the request, with all usage that overlaps it, counts `used` as taken
    /// in total; units reserved by instances stay. The `taken` units of the request already include the correction.
    fn correct(
        &mut self,
        request: &LeaseRequest,
        used: Units,
        now: Timestamp,
    ) -> impl Future<Output = Result<(), StoreError>> {
        let _ = (used, now);
        let message = format!("{}: this ledger does not support manual corrections", request.quota);
        std::future::ready(Err(StoreError::Refused(message)))
    }
}

/// Reason why a ledger returned no leases. Units leased earlier may still be spent.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The ledger cannot be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// File that cannot be written.
        path: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The ledger cannot be reached.
    #[error("cannot reach {0}")]
    Unreachable(String),
    /// The ledger does not perform the operation.
    #[error("{0}")]
    Refused(String),
    /// The clocks of this instance and of a shared ledger disagree about the current window. The ledger's clock counts.
    #[error("clock skew of {}{} s against {server}: no leases for {quota}; synchronize clocks (NTP)",
        if *is_ahead { "+" } else { "-" }, skew.as_secs_f64())]
    ClockSkew {
        /// Server whose clock counts.
        server: String,
        /// First quota without a lease for this reason.
        quota: String,
        /// True if the clock of this instance is ahead.
        is_ahead: bool,
        /// Difference of the clocks.
        skew: Duration,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::ready;

    /// A ledger that cannot be corrected.
    struct MinimalStore;

    impl Store for MinimalStore {
        fn lease(&mut self, _: &[LeaseRequest], _: Timestamp) -> impl Future<Output = Result<Vec<Lease>, StoreError>> {
            ready(Ok(Vec::new()))
        }

        fn close(&mut self, _: &[LeaseRequest], _: Timestamp) -> impl Future<Output = Result<(), StoreError>> {
            ready(Ok(()))
        }
    }

    #[test]
    fn store_has_no_error_unless_it_says_so() {
        assert_eq!(MinimalStore.last_error(), None);
    }
}
