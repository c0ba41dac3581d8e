//! Report of all leases to a ledger that has lost them, in calls of bounded size.

use super::call::{KeyLeaseCall, KeyLeaseRow, KeyOperation};
use super::table::LeaseTable;
use crate::Timestamp;
use crate::key_usage::KeyWindows;
use crate::window::Span;

/// Progress of a report. A row is reported again until its reply has arrived: reporting it twice records it once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    /// The loss, as the ledger names it.
    pub(super) loss: u64,
    /// Window of the call to which the ledger has replied that it has lost leases.
    window: Span,
    /// Id of the window, and the entry in its table, from which on nothing was reported.
    next: (u64, u32),
}

impl Report {
    pub(super) fn new(loss: u64, window: Span) -> Self {
        Self { loss, window, next: (0, 0) }
    }

    /// Returns true if no window is left in which a lease that was lost counts.
    pub(super) fn is_over(&self, windows: KeyWindows, now: Timestamp) -> bool {
        windows.counts_until(self.window) <= now
    }

    /// Returns the operation of the next call, with its window and rows. The last one has no rows.
    pub(super) fn next_call(
        &self,
        tables: &mut [LeaseTable],
        windows: KeyWindows,
        now: Timestamp,
        max_rows: usize,
    ) -> (KeyOperation, Span, Vec<KeyLeaseRow>) {
        let (loss, (first_id, first_slot)) = (self.loss, self.next);
        let is_left = |table: &&mut LeaseTable| table.counts(windows, now) && table.window.start.0 >= first_id;
        let mut left: Vec<&mut LeaseTable> = tables.iter_mut().filter(is_left).collect();
        // A window that begins meanwhile is the last one.
        left.sort_by_key(|table| table.window.start);
        for table in left {
            let first = if table.has_id(first_id) { first_slot } else { 0 };
            let rows = table.report_rows(first, now, max_rows);
            if !rows.is_empty() {
                return (KeyOperation::Report { loss, is_last: false }, table.window, rows);
            }
        }
        (KeyOperation::Report { loss, is_last: true }, self.window, Vec::new())
    }

    /// Continues after the rows of a call that the ledger has executed.
    pub(super) fn advance(&mut self, call: &KeyLeaseCall, table: &LeaseTable) {
        if let Some(slot) = call.rows.last().and_then(|row| table.find(row.key)) {
            self.next = (call.window.start.0, slot + 1);
        }
    }

    /// Continues with the next window.
    pub(super) fn skip(&mut self, window: Span) {
        self.next = (window.start.0 + 1, 0);
    }
}
