//! Budgets of keys that several instances share: the units of each key that this instance has leased from their ledger.
//!
//! A request of a key is charged to its lease in memory. The first one of a key waits for a lease. Further leases are requested in
//! advance, and units of a key that is not used any more are returned within two seconds. Leases of many keys are exchanged in one call.
//!
//! Keys are leased in one table for each window of the quota, part of a sliding window, or span in which windows of keys begin, as
//! [`KeyWindows`] says. The ledger knows what counts in a table from earlier ones.

use super::Timestamp;
use super::identity::ClientKey;
use super::key_usage::{KeyEntry, KeyWindows};
use super::replaced_windows::ReplacedWindows;
use super::units::Units;
use super::window::Span;
pub use call::{Beyond, KeyGrant, KeyLeaseCall, KeyLeaseRow, KeyOperation, KeyReply, MAX_ROWS};
use lease::{KeyLease, KeyState, spent};
use report::Report;
use std::collections::BTreeMap;
use table::LeaseTable;

mod call;
mod lease;
mod report;
mod table;

/// Leases of the keys of one quota, in its latest windows.
#[derive(Debug)]
pub struct KeyLeases {
    windows: KeyWindows,
    /// Latest first.
    tables: Vec<LeaseTable>,
    max_keys: usize,
    /// Windows that a change of the configuration has replaced.
    replaced: ReplacedWindows,
    /// Report to a ledger that has lost leases, until it has received all.
    report: Option<Report>,
}

/// Units of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyBalance {
    /// Units settled and reserved by all instances, as far as this one is informed.
    pub taken: Units,
    /// Units that all instances may take before this one needs a larger lease.
    pub leased: Units,
}

/// Number of budgets that the keys beyond the maximum share.
const SHARED_BUDGETS: u64 = 1024;

/// Returns the key whose budget `key` shares when there are too many.
pub fn shared_key(key: ClientKey) -> ClientKey {
    ClientKey::of_shared_budget(crate::hash::mix(key.to_u64()) % SHARED_BUDGETS)
}

impl KeyLeases {
    /// Creates the leases of at most `max_keys` keys in each window.
    pub fn new(windows: KeyWindows, max_keys: usize) -> Self {
        Self {
            windows,
            tables: Vec::new(),
            max_keys: max_keys.max(1),
            replaced: ReplacedWindows::default(),
            report: None,
        }
    }

    /// Returns the windows of the keys.
    pub fn windows(&self) -> KeyWindows {
        self.windows
    }

    /// Sets the maximum number of keys. Keys that are already counted stay.
    pub fn set_max_keys(&mut self, max_keys: usize) {
        self.max_keys = max_keys.max(1);
    }

    /// Counts what this instance has used in the window `before` of the quota, or in what counts at `now` of other windows, in the
    /// window `after` of `windows` from now on. The next calls report it to the ledger.
    pub fn redefine(&mut self, before: u64, windows: KeyWindows, after: Span, now: Timestamp) {
        let earlier = self.windows;
        let counts = |table: &LeaseTable| match earlier {
            KeyWindows::OfQuota => table.window.start.0 == before,
            _ => earlier.counts_at(table.window.start.0, now.0),
        };
        let mut counting = std::mem::take(&mut self.tables).into_iter().filter(counts);
        let ids = match earlier {
            KeyWindows::OfQuota => before..=before,
            _ => 0..=earlier.table(now.0),
        };
        if let Some(latest) = counting.next() {
            let mut table = latest.redefined(after, now);
            for lease in counting.flat_map(|table| table.leases).filter(|lease| !lease.has_ended(now)) {
                table.add_used(&lease);
            }
            self.tables.push(table);
        }
        (self.windows, self.report) = (windows, None);
        self.replaced.add(ids, after.start.0);
    }

    /// Iterates over the keys, each with its window and the units that all instances have used in it, as far as this one is informed.
    pub fn entries(&self) -> impl Iterator<Item = (u64, KeyEntry)> {
        let length = self.windows.spacing();
        self.tables.iter().flat_map(move |table| {
            table.leases.iter().map(move |lease| {
                let own_start = lease.ends_at().map(|ends_at| ends_at.0.saturating_sub(length));
                let entry = KeyEntry { key: lease.key, used: lease.taken_in_window() };
                (own_start.unwrap_or(table.window.start.0), entry)
            })
        })
    }

    /// Calls `visit` with each key whose usage counts at `now` in the window `window`, as far as this instance is informed.
    pub fn visit_current(&self, window: u64, now: Timestamp, mut visit: impl FnMut(KeyEntry)) {
        let counting = || self.tables.iter().filter(|table| self.windows.counts_at(table.window.start.0, window));
        let leases = counting().flat_map(|table| &table.leases).filter(|lease| !lease.has_ended(now));
        if !self.windows.slides() {
            return leases.for_each(|lease| visit(KeyEntry { key: lease.key, used: lease.taken() }));
        }
        let mut used = BTreeMap::<ClientKey, Units>::new();
        for lease in leases {
            let used = used.entry(lease.key).or_default();
            *used = used.saturating_add(lease.taken_in_window());
        }
        // The ledger has told what counts of earlier parts.
        let counted = counting().filter(|table| table.window.start.0 == window).flat_map(|table| &table.leases);
        used.extend(counted.filter(|lease| lease.state == KeyState::Counted).map(|lease| (lease.key, lease.taken())));
        used.into_iter().for_each(|(key, used)| visit(KeyEntry { key, used }));
    }

    /// Returns the end of the windows that keys have open at `now`; of a sliding window, the time at which the earliest usage expires.
    /// `None` if nothing counts.
    pub fn renewal_of_all(&self, now: Timestamp) -> Option<Timestamp> {
        if self.windows.open_by_key() {
            let leases = self.tables.iter().flat_map(|table| &table.leases);
            return leases.filter_map(KeyLease::ends_at).filter(|end| *end > now).max();
        }
        let is_used = |table: &&LeaseTable| table.leases.iter().any(|lease| !lease.taken_in_window().is_zero());
        let counting = self.tables.iter().filter(|table| self.windows.counts_at(table.window.start.0, now.0));
        Some(self.windows.expiry(counting.filter(is_used).map(|table| table.window.start.0).min()?))
    }

    /// Returns the units of a key, which may use `limit`, for a request of `cost`. Those of a key without a lease are unknown: none may
    /// be taken.
    pub fn balance(&self, window: u64, key: ClientKey, limit: Units, cost: Units, now: Timestamp) -> KeyBalance {
        let lease = self.lease(window, key, now);
        let mut balance = lease.map_or(KeyBalance { taken: Units::ZERO, leased: Units::ZERO }, |lease| KeyBalance {
            taken: lease.taken(),
            leased: lease.granted(),
        });
        if !self.windows.slides() {
            return balance;
        }
        if lease.is_none_or(|lease| lease.state != KeyState::Counted) {
            let before =
                self.tables.iter().filter(|table| self.windows.earlier_tables(window).any(|id| table.has_id(id)));
            let taken = before.filter_map(|table| Some(table.leases[table.slot(key)? as usize].taken_in_window()));
            balance.taken = taken.fold(balance.taken, Units::saturating_add);
        }
        // When the key can pay is known for smaller costs only: ask the ledger once more.
        let is_known = lease.is_some_and(|lease| lease.renewed_for >= spent(cost));
        if balance.taken.saturating_add(cost) > limit && !is_known && !cost.is_zero() {
            balance = KeyBalance { taken: limit.saturating_sub(cost), leased: Units::ZERO };
        }
        balance
    }

    /// Returns the end of the window that a key has open at `now`, or opens then; of a sliding one, the time at which the key has the
    /// units that it lacked last, or more. `None` for windows of the quota.
    pub fn renewal(&self, window: u64, key: ClientKey, now: Timestamp) -> Option<Timestamp> {
        let lease = self.lease(window, key, now);
        match self.windows {
            KeyWindows::OfQuota => None,
            KeyWindows::FirstUse { length } => Some(lease.and_then(KeyLease::ends_at).unwrap_or(now + length)),
            KeyWindows::Sliding { .. } => {
                let last = lease.and_then(|lease| usize::from(lease.expiring).checked_sub(1));
                let expiring = last.and_then(|last| self.windows.earlier_tables(window).nth(last));
                Some(self.windows.expiry(expiring.unwrap_or(window)))
            }
        }
    }

    /// Requests a lease of a key that cannot pay `cost`. Returns true if the ledger is to be called at once: neither is one requested
    /// already, nor did the ledger lack the units just before.
    pub fn request(&mut self, window: Span, key: ClientKey, limit: Units, cost: Units, now: Timestamp) -> bool {
        let Some((table, slot)) = self.place(window, key, now) else { return false };
        let lease = &mut table.leases[slot as usize];
        lease.limit = limit;
        lease.lacking = lease.lacking.max(cost);
        let is_starved = lease.is_starved;
        table.enqueue(slot) && !is_starved
    }

    /// Adds units reserved at a decision. Returns the id of the window to settle, and true if the ledger is to be called.
    pub fn reserve(&mut self, window: Span, key: ClientKey, limit: Units, units: Units, now: Timestamp) -> (u64, bool) {
        let Some((table, slot)) = self.place(window, key, now) else { return (window.start.0, false) };
        table.use_units(slot, units);
        let lease = &mut table.leases[slot as usize];
        lease.limit = limit;
        lease.in_flight = lease.in_flight.saturating_add(1);
        let left = lease.held.saturating_sub(lease.used);
        let is_low = left.milli() < lease.size().milli() / 2 && lease.granted() < limit;
        (table.window.start.0, is_low && table.enqueue(slot))
    }

    /// Begins to count a window, if it is not counted yet.
    pub fn open(&mut self, window: Span) {
        self.begin(window);
    }

    /// Adds units charged without a reservation at a decision at `decided_at`, if the window is kept. Returns true if the ledger is to
    /// be called.
    pub fn charge(&mut self, window: u64, key: ClientKey, units: Units, decided_at: Timestamp) -> bool {
        let window = self.replaced.current(window);
        let Some(index) = self.tables.iter().position(|table| table.has_id(window)) else { return false };
        let open = self.open_place(window, key, decided_at);
        let Some((index, slot)) =
            open.or_else(|| self.tables[index].slot_or_insert(key, self.max_keys).map(|slot| (index, slot)))
        else {
            return false;
        };
        let table = &mut self.tables[index];
        table.use_units(slot, units);
        table.exceeds(slot) && table.enqueue(slot)
    }

    /// Replaces reserved units of a key by the units charged. Returns true if the ledger is to be called.
    pub fn settle(&mut self, window: u64, key: ClientKey, reserved: Units, charged: Units) -> bool {
        let (window, max_keys) = (self.replaced.current(window), self.max_keys);
        let Some(table) = self.tables.iter_mut().find(|table| table.has_id(window)) else { return false };
        match table.slot(key) {
            Some(slot) => {
                let lease = &mut table.leases[slot as usize];
                lease.used = lease.used.saturating_sub(reserved).saturating_add(charged);
                lease.is_reported &= reserved == charged;
                lease.spent[0] = lease.spent[0].saturating_sub(spent(reserved)).saturating_add(spent(charged));
                lease.end_request();
                table.activate(slot);
                table.exceeds(slot) && table.enqueue(slot)
            }
            // Another process had reserved, which the ledger knows.
            None => table.slot_or_insert(key, max_keys).is_some_and(|slot| {
                table.use_units(slot, charged.saturating_sub(reserved));
                table.exceeds(slot) && table.enqueue(slot)
            }),
        }
    }

    /// Returns the next calls for windows that count at `now`, of which `window` is the current one: one for each, with at most
    /// `max_rows` rows. Each is to be applied or requeued before the next ones are made. With `is_tick`, which is to be set once a
    /// second, units that are not used are returned, and there is at least one call: the ledger knows who is running.
    ///
    /// While leases are reported to a ledger that has lost them, the calls are those of the report.
    pub fn calls(
        &mut self,
        quota: &str,
        window: Span,
        now: Timestamp,
        is_tick: bool,
        max_rows: usize,
    ) -> Vec<KeyLeaseCall> {
        self.begin(window);
        let windows = self.windows;
        if is_tick {
            let counting = self.tables.iter_mut().filter(|table| table.counts(windows, now));
            counting.for_each(|table| table.advance_tick(windows, now));
        }
        self.report = self.report.filter(|report| !report.is_over(windows, now));
        if let Some(report) = self.report {
            let (operation, window, rows) = report.next_call(&mut self.tables, windows, now, max_rows);
            return vec![KeyLeaseCall { has_more: true, ..self.call(quota, operation, window, rows, now) }];
        }
        // The ledger deletes those that do not count any more.
        let with_leases = self.tables.iter().filter(|table| table.has_leases && table.counts(windows, now));
        let with_leases: Vec<u64> = with_leases.map(|table| table.window.start.0).collect();
        let mut calls = Vec::new();
        for index in 0..self.tables.len() {
            let table = &mut self.tables[index];
            let (window, id) = (table.window, table.window.start.0);
            if !table.counts(windows, now) {
                continue;
            }
            let rows = table.rows(windows, now, max_rows);
            let has_more = !table.queue.is_empty();
            if !rows.is_empty() || (is_tick && window.contains(now)) {
                let is_earlier = |earlier: &u64| *earlier <= id && windows.counts_at(*earlier, id);
                let leased = with_leases.iter().copied().filter(is_earlier).collect();
                let call = self.call(quota, KeyOperation::Lease, window, rows, now);
                calls.push(KeyLeaseCall { leased, has_more, ..call });
            }
        }
        calls
    }

    /// Returns calls that return all that is not used, which is not held any more.
    pub fn last_report(&mut self, quota: &str, now: Timestamp) -> Vec<KeyLeaseCall> {
        let mut calls = Vec::new();
        for index in 0..self.tables.len() {
            let table = &mut self.tables[index];
            table.leases.iter_mut().for_each(|lease| lease.held = lease.used);
            let (window, rows) = (table.window, table.report_rows(0, now, usize::MAX));
            let call = |rows: &[KeyLeaseRow]| self.call(quota, KeyOperation::Close, window, rows.to_vec(), now);
            calls.extend(rows.chunks(MAX_ROWS).map(call));
        }
        // The ledger waits no more for an instance that ends.
        if let Some(table) = self.tables.first().filter(|_| calls.is_empty()) {
            calls.push(self.call(quota, KeyOperation::Close, table.window, Vec::new(), now));
        }
        calls
    }

    fn call(
        &self,
        quota: &str,
        operation: KeyOperation,
        window: Span,
        rows: Vec<KeyLeaseRow>,
        now: Timestamp,
    ) -> KeyLeaseCall {
        let (quota, windows, max_keys) = (quota.to_owned(), self.windows, self.max_keys);
        KeyLeaseCall { quota, operation, now, windows, window, leased: Vec::new(), max_keys, rows, has_more: false }
    }

    /// Applies the reply to a call. Returns false if a key still lacks units that may come soon.
    pub fn apply(&mut self, call: &KeyLeaseCall, reply: &KeyReply) -> bool {
        let is_report = matches!(call.operation, KeyOperation::Report { .. });
        match reply {
            KeyReply::Granted(grants) => {
                if let (KeyOperation::Report { is_last, .. }, Some(report)) = (call.operation, &mut self.report) {
                    if let Some(table) = self.tables.iter().find(|table| table.window == call.window) {
                        report.advance(call, table);
                    }
                    self.report = self.report.filter(|_| !is_last);
                }
                return self.apply_grants(call, grants);
            }
            KeyReply::ReportRequested { loss } if self.report.is_none_or(|report| report.loss != *loss) => {
                self.report = Some(Report::new(*loss, call.window));
                let counting = self.tables.iter_mut().filter(|table| table.counts(self.windows, call.now));
                counting.for_each(LeaseTable::lose);
            }
            KeyReply::ReportRequested { .. } => {}
            // Nothing of it counts any more. Without rows, it was the last call: the ledger asks once more in an open window.
            KeyReply::NotOpen if is_report && call.rows.is_empty() => self.report = None,
            KeyReply::NotOpen if is_report => self.report.iter_mut().for_each(|report| report.skip(call.window)),
            KeyReply::NotOpen => {}
        }
        self.requeue(call);
        false
    }

    /// Applies the leases of a call, in the order of its rows. Returns false if a key still lacks units that may come soon.
    fn apply_grants(&mut self, call: &KeyLeaseCall, grants: &[KeyGrant]) -> bool {
        let is_of_call = |table: &LeaseTable| table.window == call.window && self.windows == call.windows;
        let Some(index) = self.tables.iter().position(is_of_call) else { return true };
        let mut is_satisfied = true;
        for (row, grant) in call.rows.iter().zip(grants) {
            let Some(slot) = self.tables[index].awaiting(row.key) else { continue };
            match *grant {
                KeyGrant::Shared => self.share(index, slot, call, row),
                KeyGrant::Ended => {
                    self.tables[index].leases[slot as usize].end_at(call.now);
                    is_satisfied = false;
                }
                KeyGrant::Counted { held, taken_by_others, forgotten, beyond } => {
                    let is_earlier = matches!(beyond, Beyond::Own { is_earlier: true, .. });
                    let place = if is_earlier { self.move_earlier(index, slot, call) } else { Some((index, slot)) };
                    let Some((index, slot)) = place else { continue };
                    let table = &mut self.tables[index];
                    let lease = &mut table.leases[slot as usize];
                    lease.state = KeyState::Counted;
                    lease.is_reported = lease.used == row.taken;
                    lease.used = lease.used.saturating_add(forgotten);
                    (lease.held, lease.acknowledged, lease.taken_by_others) = (held, held, taken_by_others);
                    lease.apply_beyond(beyond, row.needed.saturating_sub(row.held), call.now);
                    let is_spent = lease.taken() >= row.limit;
                    lease.is_starved = held < row.needed && !is_spent;
                    is_satisfied &= !lease.is_starved;
                    table.has_leases |= !held.is_zero();
                    table.activate(slot);
                }
            }
        }
        is_satisfied
    }

    /// Counts a key together with others from now on. What was used before the reply counts for all that share the budget.
    fn share(&mut self, index: usize, slot: u32, call: &KeyLeaseCall, row: &KeyLeaseRow) {
        let table = &mut self.tables[index];
        if table.leases[slot as usize].state != KeyState::Shared {
            table.leases[slot as usize].state = KeyState::Shared;
            table.sharing.push_back(slot);
        }
        let used = std::mem::take(&mut table.leases[slot as usize].used);
        if let Some((table, shared)) = self.place(call.window, row.key, call.now) {
            table.use_units(shared, used);
            table.leases[shared as usize].limit = row.limit;
        }
    }

    /// Moves a key to the span before that of a call, in which its window has begun. Returns its place; `None` without room.
    fn move_earlier(&mut self, index: usize, slot: u32, call: &KeyLeaseCall) -> Option<(usize, u32)> {
        let table = &mut self.tables[index];
        let lease = table.leases[slot as usize].take();
        // Nothing is left to be said of it here.
        if std::mem::take(&mut table.leases[slot as usize].is_queued) {
            table.queue.retain(|queued| *queued != slot);
        }
        let start = Timestamp(call.window.start.0.saturating_sub(self.windows.spacing()));
        let window = Span { start, end: call.window.start };
        let index = self.tables.iter().position(|table| table.window.start == window.start).unwrap_or_else(|| {
            self.tables.truncate(self.windows.tables() - 1);
            self.tables.push(LeaseTable::new(window));
            self.tables.len() - 1
        });
        let table = &mut self.tables[index];
        let slot = table.slot_or_insert(lease.key, self.max_keys)?;
        if table.leases[slot as usize].has_ended(call.now) {
            table.leases[slot as usize].take();
        }
        table.use_units(slot, lease.used);
        let moved = &mut table.leases[slot as usize];
        (moved.limit, moved.lacking) = (lease.limit, moved.lacking.max(lease.lacking));
        if !moved.lacking.is_zero() {
            table.enqueue(slot);
        }
        Some((index, slot))
    }

    /// Queues the rows of a call that the ledger has not executed, or not for certain. Those of a report are reported again.
    pub fn requeue(&mut self, call: &KeyLeaseCall) {
        let Some(table) = self.tables.iter_mut().find(|table| table.window == call.window) else { return };
        for row in &call.rows {
            let Some(slot) = table.awaiting(row.key) else { continue };
            let lease = &mut table.leases[slot as usize];
            // The ledger may have received the call.
            lease.acknowledged = lease.acknowledged.min(row.held);
            if call.operation == KeyOperation::Lease {
                lease.lacking = lease.lacking.max(row.needed.saturating_sub(row.held));
                lease.is_starved = true;
                table.enqueue(slot);
            }
        }
    }

    /// Returns the lease that pays for a key at `now`, if it has one.
    fn lease(&self, window: u64, key: ClientKey, now: Timestamp) -> Option<&KeyLease> {
        let current = || {
            let index = self.tables.iter().position(|table| table.has_id(window))?;
            Some((index, self.tables[index].slot(key)?))
        };
        let (index, slot) = self.open_place(window, key, now).or_else(current)?;
        Some(&self.tables[index].leases[slot as usize]).filter(|lease| !lease.has_ended(now))
    }

    /// Returns the place of the lease that pays for a key at `now`; a new one if there is room.
    fn place(&mut self, window: Span, key: ClientKey, now: Timestamp) -> Option<(&mut LeaseTable, u32)> {
        let current = self.begin(window);
        let (index, slot) = match self.open_place(window.start.0, key, now) {
            Some(place) => place,
            None => (current, self.tables[current].slot_or_insert(key, self.max_keys)?),
        };
        let table = &mut self.tables[index];
        if table.leases[slot as usize].has_ended(now) {
            table.leases[slot as usize].take();
        }
        Some((table, slot))
    }

    /// Returns the place of the window that a key has opened, and that has not ended at `now`.
    fn open_place(&self, window: u64, key: ClientKey, now: Timestamp) -> Option<(usize, u32)> {
        if !self.windows.open_by_key() {
            return None;
        }
        let current = self.tables.iter().find(|table| table.has_id(window));
        let is_shared = |table: &LeaseTable| Some(table.leases[table.find(key)? as usize].state == KeyState::Shared);
        let key = if current.and_then(is_shared) == Some(true) { shared_key(key) } else { key };
        let places = self.tables.iter().enumerate().filter_map(|(index, table)| Some((index, table.slot(key)?)));
        let is_open = |(index, slot): &(usize, u32)| {
            self.tables[*index].leases[*slot as usize].ends_at().is_some_and(|ends_at| now < ends_at)
        };
        places.into_iter().find(is_open)
    }

    /// Returns the number of the table of a window, which begins without leases.
    fn begin(&mut self, window: Span) -> usize {
        self.tables.iter().position(|table| table.window.start == window.start).unwrap_or_else(|| {
            self.tables.truncate(self.windows.tables() - 1);
            self.tables.insert(0, LeaseTable::new(window));
            0
        })
    }
}

#[cfg(test)]
mod tests;
