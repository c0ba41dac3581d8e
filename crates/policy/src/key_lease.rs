//! Budgets of keys that several instances share: the units of each key that this instance has leased from their ledger.
//!
//! A request of a key is charged to its lease in memory. The first one of a key waits for a lease. Further leases are requested in
//! advance, and units of a key that is not used any more are returned after [`IDLE_TICKS`]. Leases of many keys are exchanged in
//! one call.
//!
//! Keys are leased in one table for each window of the quota, part of a sliding window, or span in which windows of keys begin, as
//! [`KeyWindows`] says. The ledger knows what counts in a table from earlier ones.

use super::Timestamp;
use super::identity::{ClientKey, KeyOwner};
use super::key_usage::{KeyEntry, KeyWindows};
use super::replaced_windows::ReplacedWindows;
use super::units::Units;
use super::window::Span;
use hashbrown::HashTable;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::num::NonZero;
use std::time::Duration;

/// Leases of the keys of one quota, in its latest windows.
#[derive(Debug)]
pub struct KeyLeases {
    windows: KeyWindows,
    /// Latest first.
    tables: Vec<LeaseTable>,
    max_keys: usize,
    /// Windows that a change of the configuration has replaced.
    replaced: ReplacedWindows,
}

/// Leases of one window.
#[derive(Debug)]
struct LeaseTable {
    window: Span,
    leases: Vec<KeyLease>,
    /// Number of the entry of each key, by the hash of the key. A table with the keys in it would take three times as much.
    slots: HashTable<u32>,
    hasher: RandomState,
    /// Number of entries of shared budgets. They are beyond the maximum of keys, and stay.
    shared_budgets: usize,
    /// Entries of keys that share budgets, oldest first. They hold nothing, and make room for others.
    sharing: VecDeque<u32>,
    /// Entries for the next calls.
    queue: Vec<u32>,
    /// Entries whose units may have to be returned.
    active: Vec<u32>,
    tick: u32,
    /// True if the ledger has recorded leases.
    has_leases: bool,
    /// Entry at which the search for one to evict continues.
    next_candidate: u32,
}

/// Lease of one key.
#[derive(Clone, Copy, Debug)]
struct KeyLease {
    key: ClientKey,
    /// Settled plus reserved units of this instance.
    used: Units,
    /// Units that this instance may use in total.
    held: Units,
    /// Held units that the ledger has recorded, at least.
    acknowledged: Units,
    /// Units settled and reserved by other instances, as of the last reply.
    taken_by_others: Units,
    /// Units settled and reserved by all instances in the earlier parts of a sliding window, as of the last reply.
    taken_before: Units,
    /// End of the window that the key has opened, in nanoseconds since 1970; `None` if it has opened none.
    ends_at: Option<NonZero<u64>>,
    /// Limit of the key, as of its last request.
    limit: Units,
    /// Units that a request lacked; 0 if none did.
    lacking: Units,
    /// Milli-units used in this tick and in the one before, at most [`u32::MAX`] each.
    spent: [u32; 2],
    /// Tick of the last use.
    used_at: u32,
    /// Milli-units for which `expiring` holds, at most [`u32::MAX`].
    renewed_for: u32,
    /// Number of parts of a sliding window that must expire before the key has such units, as of the last reply.
    expiring: u8,
    state: KeyState,
    is_queued: bool,
    is_active: bool,
    /// True if the last reply did not grant what a request lacked.
    is_starved: bool,
    /// True if the ledger knows the used units.
    is_reported: bool,
}

/// What the ledger knows of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyState {
    /// This instance has received no reply about it.
    Unknown,
    /// It is counted.
    Counted,
    /// It is counted together with others, because there are too many keys.
    Shared,
}

/// Units of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyBalance {
    /// Units settled and reserved by all instances, as far as this one is informed.
    pub taken: Units,
    /// Units that all instances may take before this one needs a larger lease.
    pub leased: Units,
}

/// Call to the ledger for keys of one window of a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLeaseCall {
    /// Name of the quota.
    pub quota: String,
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
    /// The window has as many keys as are counted apart: the key shares the budget of [`shared_key`].
    Shared,
    /// The window that the key had opened has ended by the clock of the ledger. Nothing was done.
    Ended,
}

/// What a ledger knows of a key beyond the window of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// All keys begin anew in the window.
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

/// Maximum number of keys in one call.
pub const MAX_ROWS: usize = 500;

/// Number of ticks without use, of one second, after which units are returned.
const IDLE_TICKS: u32 = 1;

/// Number of requests that a lease is for, at least, unless the limit is near.
const MIN_REQUESTS: u64 = 4;

/// Divisor of the limit that is the maximum of a lease, unless one request needs more.
const MAX_SHARE_OF_LIMIT: u64 = 64;

/// Number of entries of which one may be evicted.
const CANDIDATES: u32 = 32;

/// Number of budgets that the keys beyond the maximum share.
const SHARED_BUDGETS: u64 = 1024;

/// Returns the key whose budget `key` shares when there are too many.
pub fn shared_key(key: ClientKey) -> ClientKey {
    ClientKey::of_shared_budget(crate::hash::mix(key.to_u64()) % SHARED_BUDGETS)
}

/// Returns milli-units as they are counted to size a lease.
fn spent(units: Units) -> u32 {
    u32::try_from(units.milli()).unwrap_or(u32::MAX)
}

impl KeyLeases {
    /// Creates the leases of at most `max_keys` keys in each window.
    pub fn new(windows: KeyWindows, max_keys: usize) -> Self {
        Self { windows, tables: Vec::new(), max_keys: max_keys.max(1), replaced: ReplacedWindows::default() }
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
    /// window `after` of `windows` from now on. The ledger is told by the next calls.
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
        self.windows = windows;
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
            leased: lease.held.saturating_add(lease.taken_by_others).saturating_add(lease.taken_before),
        });
        if !self.windows.slides() {
            return balance;
        }
        if lease.is_none_or(|lease| lease.state != KeyState::Counted) {
            let before = self.tables.iter().filter(|table| self.windows.earlier_tables(window).any(|id| table.is(id)));
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
        let left = lease.held.saturating_sub(lease.used);
        let granted = lease.held.saturating_add(lease.taken_by_others).saturating_add(lease.taken_before);
        let is_low = left.milli() < lease.size().milli() / 2 && granted < limit;
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
        let Some(index) = self.tables.iter().position(|table| table.is(window)) else { return false };
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
        let Some(table) = self.tables.iter_mut().find(|table| table.is(window)) else { return false };
        match table.slot(key) {
            Some(slot) => {
                let lease = &mut table.leases[slot as usize];
                lease.used = lease.used.saturating_sub(reserved).saturating_add(charged);
                lease.is_reported &= reserved == charged;
                lease.spent[0] = lease.spent[0].saturating_sub(spent(reserved)).saturating_add(spent(charged));
                table.activate(slot);
                table.exceeds(slot) && table.enqueue(slot)
            }
            // Another key has its place. The ledger knows of what was reserved.
            None => table.slot_or_insert(key, max_keys).is_some_and(|slot| {
                table.use_units(slot, charged.saturating_sub(reserved));
                table.exceeds(slot) && table.enqueue(slot)
            }),
        }
    }

    /// Returns the next calls for windows that count at `now`, of which `window` is the current one. With `is_tick`, which is to be
    /// set once a second, units that are not used are returned, and there is at least one call: the ledger knows who is running.
    pub fn calls(&mut self, quota: &str, window: Span, now: Timestamp, is_tick: bool) -> Vec<KeyLeaseCall> {
        self.begin(window);
        let (windows, max_keys) = (self.windows, self.max_keys);
        let with_leases: Vec<u64> =
            self.tables.iter().filter(|table| table.has_leases).map(|table| table.window.start.0).collect();
        let mut calls = Vec::new();
        for table in self.tables.iter_mut().filter(|table| table.counts(windows, now)) {
            if is_tick {
                table.advance_tick(windows, now);
            }
            let queue = std::mem::take(&mut table.queue);
            let rows: Vec<KeyLeaseRow> = queue.into_iter().filter_map(|slot| table.row(slot, windows, now)).collect();
            let id = table.window.start.0;
            let leased =
                with_leases.iter().copied().filter(|earlier| *earlier <= id && windows.counts_at(*earlier, id));
            let call = KeyLeaseCall {
                quota: quota.to_owned(),
                now,
                windows,
                window: table.window,
                leased: leased.collect(),
                max_keys,
                rows: Vec::new(),
            };
            calls.extend(rows.chunks(MAX_ROWS).map(|rows| KeyLeaseCall { rows: rows.to_vec(), ..call.clone() }));
            if is_tick && rows.is_empty() && table.window.contains(now) {
                calls.push(call);
            }
        }
        calls
    }

    /// Returns calls that report all that this instance holds for a ledger that has lost it: in the window of the quota, or in all that
    /// counts at `now` of other windows.
    pub fn report(&mut self, quota: &str, window: Span, now: Timestamp) -> Vec<KeyLeaseCall> {
        let windows = self.windows;
        let is_lost = |table: &LeaseTable| match windows {
            KeyWindows::OfQuota => table.window == window,
            _ => table.counts(windows, now),
        };
        self.report_of(quota, now, is_lost)
    }

    /// Returns calls that return all that is not used, which is not held any more.
    pub fn last_report(&mut self, quota: &str, now: Timestamp) -> Vec<KeyLeaseCall> {
        for lease in self.tables.iter_mut().flat_map(|table| &mut table.leases) {
            lease.held = lease.used;
        }
        let mut calls = self.report_of(quota, now, |_| true);
        // The ledger waits no more for an instance that ends.
        if let Some(table) = self.tables.first().filter(|_| calls.is_empty()) {
            calls.push(self.call(quota, table.window, &[], now));
        }
        calls
    }

    fn call(&self, quota: &str, window: Span, rows: &[KeyLeaseRow], now: Timestamp) -> KeyLeaseCall {
        let (windows, max_keys) = (self.windows, self.max_keys);
        KeyLeaseCall {
            quota: quota.to_owned(),
            now,
            windows,
            window,
            leased: Vec::new(),
            max_keys,
            rows: rows.to_vec(),
        }
    }

    fn report_of(&self, quota: &str, now: Timestamp, is_lost: impl Fn(&LeaseTable) -> bool) -> Vec<KeyLeaseCall> {
        let row = |lease: &KeyLease| {
            let held = lease.held.max(lease.used);
            let acknowledged = Some(lease.acknowledged);
            KeyLeaseRow { acknowledged, ..lease.row(held, held, held, now) }
        };
        let is_known = |row: &KeyLeaseRow| !row.held.is_zero() || row.acknowledged > Some(Units::ZERO);
        let calls = |table: &LeaseTable| {
            let counted = table.leases.iter().filter(|lease| lease.state == KeyState::Counted && !lease.has_ended(now));
            let rows: Vec<KeyLeaseRow> = counted.map(row).filter(is_known).collect();
            rows.chunks(MAX_ROWS).map(|rows| self.call(quota, table.window, rows, now)).collect::<Vec<_>>()
        };
        self.tables.iter().filter(|table| is_lost(table)).flat_map(calls).collect()
    }

    /// Applies the leases of a call, in the order of its rows. Returns false if a key still lacks units that may come soon.
    pub fn apply(&mut self, call: &KeyLeaseCall, grants: &[KeyGrant]) -> bool {
        let is_of_call = |table: &LeaseTable| table.window == call.window && self.windows == call.windows;
        let Some(index) = self.tables.iter().position(is_of_call) else { return true };
        let mut is_satisfied = true;
        for (row, grant) in call.rows.iter().zip(grants) {
            let Some(slot) = self.tables[index].find(row.key) else { continue };
            match *grant {
                KeyGrant::Shared => self.share(index, slot, call, row),
                KeyGrant::Ended => {
                    self.tables[index].leases[slot as usize].ends_at = NonZero::new(call.now.0);
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

    /// Queues the rows of a call that the ledger has not executed, or not for certain.
    pub fn requeue(&mut self, call: &KeyLeaseCall) {
        let Some(table) = self.tables.iter_mut().find(|table| table.window == call.window) else { return };
        for row in &call.rows {
            if let Some(slot) = table.find(row.key) {
                let lease = &mut table.leases[slot as usize];
                lease.lacking = lease.lacking.max(row.needed.saturating_sub(row.held));
                // The ledger may have received the call.
                lease.acknowledged = lease.acknowledged.min(row.held);
                lease.is_starved = true;
                table.enqueue(slot);
            }
        }
    }

    /// Returns the lease that pays for a key at `now`, if it has one.
    fn lease(&self, window: u64, key: ClientKey, now: Timestamp) -> Option<&KeyLease> {
        let current = || {
            let index = self.tables.iter().position(|table| table.is(window))?;
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
        let current = self.tables.iter().find(|table| table.is(window));
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

impl LeaseTable {
    fn new(window: Span) -> Self {
        Self {
            window,
            leases: Vec::new(),
            slots: HashTable::new(),
            hasher: RandomState::new(),
            shared_budgets: 0,
            sharing: VecDeque::new(),
            queue: Vec::new(),
            active: Vec::new(),
            tick: 0,
            has_leases: false,
            next_candidate: 0,
        }
    }

    /// Returns true if this is the table of the window `id`.
    fn is(&self, id: u64) -> bool {
        self.window.start.0 == id
    }

    /// Returns true if usage in the window counts at `now`.
    fn counts(&self, windows: KeyWindows, now: Timestamp) -> bool {
        self.window.start <= now && now < windows.counts_until(self.window)
    }

    /// Returns the table of a window that replaces this one, and of which the ledger knows nothing.
    fn redefined(self, window: Span, now: Timestamp) -> Self {
        let mut table = Self { window, has_leases: false, queue: Vec::new(), ..self };
        for slot in 0..table.leases.len() as u32 {
            let lease = &mut table.leases[slot as usize];
            let used = if lease.has_ended(now) { Units::ZERO } else { lease.used };
            let state = if lease.state == KeyState::Counted { KeyState::Unknown } else { lease.state };
            let KeyLease { key, limit, is_active, .. } = *lease;
            let is_reported = used.is_zero();
            *lease =
                KeyLease { used, held: used, limit, state, is_active, is_reported, ..KeyLease::new(key, table.tick) };
            if !used.is_zero() {
                table.enqueue(slot);
            }
        }
        table
    }

    /// Adds what a key has used in another window that counts.
    fn add_used(&mut self, lease: &KeyLease) {
        if lease.used.is_zero() {
            return;
        }
        if let Some(slot) = self.slot_or_insert(lease.key, usize::MAX) {
            self.use_units(slot, lease.used);
            let added = &mut self.leases[slot as usize];
            (added.held, added.limit) = (added.used, lease.limit.max(added.limit));
            self.enqueue(slot);
        }
    }

    /// Returns the entry of a key.
    fn find(&self, key: ClientKey) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        self.slots.find(hash, |slot| self.leases[*slot as usize].key == key).copied()
    }

    /// Returns the entry that pays for a key.
    fn slot(&self, key: ClientKey) -> Option<u32> {
        let slot = self.find(key)?;
        match self.leases[slot as usize].state {
            KeyState::Shared => self.find(shared_key(key)),
            KeyState::Unknown | KeyState::Counted => Some(slot),
        }
    }

    /// Returns the entry that pays for a key; a new one if there is room.
    fn slot_or_insert(&mut self, key: ClientKey, max_keys: usize) -> Option<u32> {
        let state = self.find(key).map(|slot| self.leases[slot as usize].state);
        let key = if state == Some(KeyState::Shared) { shared_key(key) } else { key };
        if let Some(slot) = self.find(key) {
            return Some(slot);
        }
        let is_shared = key.owner() == KeyOwner::SharedBudget;
        let lease = KeyLease::new(key, self.tick);
        self.shared_budgets += usize::from(is_shared);
        let slot = if is_shared || self.leases.len() - self.shared_budgets < max_keys {
            self.leases.push(lease);
            self.leases.len() as u32 - 1
        } else {
            let slot = self.evictable()?;
            let hash = self.hasher.hash_one(self.leases[slot as usize].key);
            if let Ok(entry) = self.slots.find_entry(hash, |it| *it == slot) {
                entry.remove();
            }
            self.leases[slot as usize] = lease;
            slot
        };
        let (leases, hasher) = (&self.leases, &self.hasher);
        self.slots.insert_unique(hasher.hash_one(key), slot, |slot| hasher.hash_one(leases[*slot as usize].key));
        Some(slot)
    }

    /// Returns an entry that makes room for another key: one that holds nothing, or one of which the ledger knows all, and that was
    /// not used lately.
    fn evictable(&mut self) -> Option<u32> {
        if let Some(slot) = self.sharing.pop_front() {
            return Some(slot);
        }
        let count = self.leases.len() as u32;
        let first = self.next_candidate;
        self.next_candidate = (first + CANDIDATES) % count;
        let is_idle = |slot: &u32| {
            let lease = &self.leases[*slot as usize];
            let is_complete = lease.held == lease.used && lease.is_reported && !lease.is_queued;
            let is_idle = !lease.is_active && self.tick.wrapping_sub(lease.used_at) >= IDLE_TICKS;
            is_complete && is_idle && lease.key.owner() != KeyOwner::SharedBudget
        };
        (first..first + CANDIDATES.min(count)).map(|slot| slot % count).find(is_idle)
    }

    fn use_units(&mut self, slot: u32, units: Units) {
        let tick = self.tick;
        let lease = &mut self.leases[slot as usize];
        lease.used = lease.used.saturating_add(units);
        lease.is_reported &= units.is_zero();
        lease.advance_to(tick);
        lease.spent[0] = lease.spent[0].saturating_add(spent(units));
        self.activate(slot);
    }

    /// Returns true if more was used than is held, which others must know.
    fn exceeds(&self, slot: u32) -> bool {
        let lease = &self.leases[slot as usize];
        lease.used > lease.held
    }

    fn enqueue(&mut self, slot: u32) -> bool {
        let is_new = !std::mem::replace(&mut self.leases[slot as usize].is_queued, true);
        if is_new {
            self.queue.push(slot);
        }
        is_new
    }

    fn activate(&mut self, slot: u32) {
        if !std::mem::replace(&mut self.leases[slot as usize].is_active, true) {
            self.active.push(slot);
        }
    }

    /// Returns true if the key of an entry was not used for some ticks.
    fn is_idle(&self, slot: u32) -> bool {
        self.tick.wrapping_sub(self.leases[slot as usize].used_at) > IDLE_TICKS
    }

    /// Returns the row of the next call; `None` if the window of the key has ended. Units that it returns are not used from now on:
    /// those of an idle key, those of a part that has ended, and those that do not suffice for a request.
    fn row(&mut self, slot: u32, windows: KeyWindows, now: Timestamp) -> Option<KeyLeaseRow> {
        let is_over = self.is_over(windows, now);
        let is_idle = self.is_idle(slot) || is_over;
        let lease = &mut self.leases[slot as usize];
        lease.is_queued = false;
        if lease.has_ended(now) {
            return None;
        }
        if is_over {
            lease.lacking = Units::ZERO;
        }
        let (size, lacking, used) = (lease.size(), std::mem::take(&mut lease.lacking), lease.used);
        let returns = is_idle && lacking.is_zero();
        if returns || !lacking.is_zero() {
            lease.held = lease.held.min(used);
        }
        let held = lease.held.max(used);
        let wanted = if returns { used } else { held.max(used.saturating_add(size)) };
        let needed = held.max(used.saturating_add(lacking));
        Some(lease.row(held, needed, wanted, now))
    }

    /// Returns true if the window is a part of a sliding one that has ended: no units are taken in it any more.
    fn is_over(&self, windows: KeyWindows, now: Timestamp) -> bool {
        windows.slides() && self.window.end <= now
    }

    /// Begins the next tick: queues what is to be reported or returned.
    fn advance_tick(&mut self, windows: KeyWindows, now: Timestamp) {
        self.tick = self.tick.wrapping_add(1);
        let is_over = self.is_over(windows, now);
        for slot in std::mem::take(&mut self.active) {
            let is_idle = self.is_idle(slot) || is_over;
            let lease = &mut self.leases[slot as usize];
            let (has_units, is_reported) = (lease.held > lease.used, lease.is_reported);
            lease.is_active = has_units && !is_idle;
            if lease.is_active {
                self.active.push(slot);
            }
            if (has_units && is_idle) || !is_reported {
                self.enqueue(slot);
            }
        }
    }
}

impl KeyLease {
    fn new(key: ClientKey, tick: u32) -> Self {
        Self {
            key,
            used: Units::ZERO,
            held: Units::ZERO,
            acknowledged: Units::ZERO,
            taken_by_others: Units::ZERO,
            taken_before: Units::ZERO,
            ends_at: None,
            limit: Units::ZERO,
            lacking: Units::ZERO,
            spent: [0; 2],
            used_at: tick,
            renewed_for: 0,
            expiring: 0,
            state: KeyState::Unknown,
            is_queued: false,
            is_active: false,
            is_starved: false,
            is_reported: true,
        }
    }

    /// Begins anew. Returns the lease before.
    fn take(&mut self) -> Self {
        let Self { key, used_at, is_queued, is_active, .. } = *self;
        std::mem::replace(self, Self { is_queued, is_active, ..Self::new(key, used_at) })
    }

    /// Returns the units of the key that count, as far as this instance is informed.
    const fn taken(&self) -> Units {
        self.taken_in_window().saturating_add(self.taken_before)
    }

    /// Returns the units that all instances have used in the window, as far as this one is informed.
    const fn taken_in_window(&self) -> Units {
        self.used.saturating_add(self.taken_by_others)
    }

    /// Returns true if the window that the key had opened has ended.
    fn has_ended(&self, now: Timestamp) -> bool {
        self.ends_at().is_some_and(|ends_at| ends_at <= now)
    }

    fn ends_at(&self) -> Option<Timestamp> {
        self.ends_at.map(|ends_at| Timestamp(ends_at.get()))
    }

    fn row(&self, held: Units, needed: Units, wanted: Units, now: Timestamp) -> KeyLeaseRow {
        KeyLeaseRow {
            key: self.key,
            acknowledged: Some(self.acknowledged).filter(|_| self.state != KeyState::Unknown),
            limit: self.limit,
            taken: self.used,
            held,
            needed,
            wanted,
            remaining: self.ends_at().map_or(Duration::ZERO, |ends_at| ends_at.saturating_duration_since(now)),
        }
    }

    /// Applies what counts beyond the window of a call at `now`, for which `lacking` units were requested.
    fn apply_beyond(&mut self, beyond: Beyond, lacking: Units, now: Timestamp) {
        match beyond {
            Beyond::Nothing => {}
            Beyond::Earlier { taken, expiring } => {
                self.taken_before = taken;
                if self.renewed_for == 0 || !lacking.is_zero() {
                    (self.expiring, self.renewed_for) = (expiring, spent(lacking));
                }
            }
            Beyond::Own { remaining: Duration::ZERO, .. } => self.ends_at = None,
            Beyond::Own { remaining, .. } => self.ends_at = NonZero::new((now + remaining).0),
        }
    }

    fn advance_to(&mut self, tick: u32) {
        match tick.wrapping_sub(self.used_at) {
            0 => {}
            1 => self.spent = [0, self.spent[0]],
            _ => self.spent = [0; 2],
        }
        self.used_at = tick;
    }

    /// Returns the units that are to be leased beyond the used ones: about one second of use, or some requests.
    fn size(&self) -> Units {
        let of_requests = self.lacking.milli().saturating_mul(MIN_REQUESTS);
        let size = u64::from(self.spent[0].max(self.spent[1])).max(of_requests);
        Units::from_milli(size.min(self.limit.milli() / MAX_SHARE_OF_LIMIT).max(self.lacking.milli()))
    }
}

#[cfg(test)]
mod tests;
