//! A ledger that lives and dies with the process, for several gates in it: whoever restarts it starts a new count.

use super::lease_table::{Holder, LeaseTable};
use super::store::{Lease, LeaseRequest, Store, StoreError};
use crate::policy::{Timestamp, Units};
use parking_lot::Mutex;
use std::future::Future;
use std::future::ready;
use std::sync::Arc;

/// One gate's access to a table that gates share. Hands out at once whatever there is.
#[derive(Clone)]
pub struct MemoryStore {
    table: Arc<Mutex<LeaseTable>>,
    gate: Holder,
}

impl MemoryStore {
    /// The gate of that number, from 1 on, at `table`.
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
