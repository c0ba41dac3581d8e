//! A ledger in memory, for several instances in one process. A restart starts a new count.

use parking_lot::Mutex;
use std::future::{Future, ready};
use std::sync::Arc;
use tidegate_engine::ledger::{Holder, Lease, LeaseRequest, LeaseTable, Store, StoreError};
use tidegate_policy::{Timestamp, Units};

/// Access of one instance to a shared lease table. Leases all available units at once.
#[derive(Clone)]
pub struct MemoryStore {
    table: Arc<Mutex<LeaseTable>>,
    holder: Holder,
}

impl MemoryStore {
    /// Creates the store of one instance, numbered from 1, on a shared table.
    pub fn new(table: Arc<Mutex<LeaseTable>>, holder: Holder) -> Self {
        Self { table, holder }
    }
}

impl Store for MemoryStore {
    fn lease(
        &mut self,
        requests: &[LeaseRequest],
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<Lease>, StoreError>> {
        let mut table = self.table.lock();
        let leases = requests.iter().map(|request| table.lease(self.holder, request, now)).collect();
        table.evict_old(requests);
        ready(Ok(leases))
    }

    fn close(&mut self, requests: &[LeaseRequest], _: Timestamp) -> impl Future<Output = Result<(), StoreError>> {
        let mut table = self.table.lock();
        requests.iter().for_each(|request| table.close(self.holder, request));
        ready(Ok(()))
    }

    fn correct(
        &mut self,
        request: &LeaseRequest,
        used: Units,
        now: Timestamp,
    ) -> impl Future<Output = Result<(), StoreError>> {
        self.table.lock().correct(self.holder, request, used, now);
        ready(Ok(()))
    }
}
