//! A ledger in memory, for several instances in one process. A restart starts a new count.

use super::lease_table::{Holder, LeaseTable};
use super::store::{Lease, LeaseRequest, Store, StoreError};
use crate::policy::{Timestamp, Units};
use parking_lot::Mutex;
use std::future::Future;
use std::future::ready;
use std::sync::Arc;

/// Access of one instance to a shared lease table. Leases all available units at once.
#[derive(Clone)]
pub struct MemoryStore {
    table: Arc<Mutex<LeaseTable>>,
    gate: Holder,
}

impl MemoryStore {
    /// Creates the store of one instance, numbered from 1, on a shared table.
    pub fn new(table: Arc<Mutex<LeaseTable>>, gate: Holder) -> Self {
        Self { table, gate }
    }
}

impl Store for MemoryStore {
    fn lease(&mut self, asks: &[LeaseRequest], now: Timestamp) -> impl Future<Output = Result<Vec<Lease>, StoreError>> {
        let mut table = self.table.lock();
        let leases = asks.iter().map(|ask| table.lease(self.gate, ask, now)).collect();
        table.evict_old(asks);
        ready(Ok(leases))
    }

    fn close(&mut self, asks: &[LeaseRequest], _: Timestamp) -> impl Future<Output = Result<(), StoreError>> {
        let mut table = self.table.lock();
        asks.iter().for_each(|ask| table.close(self.gate, ask));
        ready(Ok(()))
    }

    fn correct(
        &mut self,
        ask: &LeaseRequest,
        used: Units,
        now: Timestamp,
    ) -> impl Future<Output = Result<(), StoreError>> {
        self.table.lock().correct(self.gate, ask, used, now);
        ready(Ok(()))
    }
}
