//! Budgets of keys that several instances share: the units of each key that this instance has leased from their ledger.
//!
//! A request of a key is charged to its lease in memory. The first one of a key waits for a lease. Further leases are requested in
//! advance, and units of a key that is not used any more are returned after [`IDLE_TICKS`]. Leases of many keys are exchanged in
//! one call.

use super::identity::{ClientKey, KeyOwner};
use super::key_usage::KeyEntry;
use super::replaced_windows::ReplacedWindows;
use super::units::Units;
use super::window::Span;
use hashbrown::HashTable;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

/// Leases of the keys of one quota, in its two latest windows.
#[derive(Debug)]
pub struct KeyLeases {
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
    /// Limit of the key, as of its last request.
    limit: Units,
    /// Units that a request lacked; 0 if none did.
    lacking: Units,
    /// Milli-units used in this tick and in the one before, at most [`u32::MAX`] each.
    spent: [u32; 2],
    /// Tick of the last use.
    used_at: u32,
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
    /// True if the ledger has recorded leases of this instance in the window.
    pub has_leases: bool,
    /// The window.
    pub window: Span,
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
    },
    /// The window has as many keys as are counted apart: the key shares the budget of [`shared_key`].
    Shared,
}

/// Number of windows that are kept.
const TABLES: usize = 2;

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
    pub fn new(max_keys: usize) -> Self {
        Self { tables: Vec::new(), max_keys: max_keys.max(1), replaced: ReplacedWindows::default() }
    }

    /// Sets the maximum number of keys. Keys that are already counted stay.
    pub fn set_max_keys(&mut self, max_keys: usize) {
        self.max_keys = max_keys.max(1);
    }

    /// Counts what this instance has used in the window `before` in the window `after` from now on, because the quota has other
    /// windows. The ledger is told by the next calls.
    pub fn redefine(&mut self, before: u64, after: Span) {
        let table = self.tables.iter().position(|table| table.window.start.0 == before);
        let table = table.map(|index| self.tables.swap_remove(index).redefined(after));
        self.tables = table.into_iter().collect();
        self.replaced.add(before..=before, after.start.0);
    }

    /// Iterates over the keys, each with its window and the units that all instances have used, as far as this one is informed.
    pub fn entries(&self) -> impl Iterator<Item = (u64, KeyEntry)> {
        self.tables.iter().flat_map(|table| {
            let entry = |lease: &KeyLease| KeyEntry { key: lease.key, used: lease.taken() };
            table.leases.iter().map(move |lease| (table.window.start.0, entry(lease)))
        })
    }

    /// Returns the units of a key. Those of a key without a lease are unknown: none may be taken.
    pub fn balance(&self, window: u64, key: ClientKey) -> KeyBalance {
        let lease = self.table(window).and_then(|table| Some(table.leases[table.slot(key)? as usize]));
        let balance = |lease: KeyLease| KeyBalance {
            taken: lease.taken(),
            leased: lease.held.saturating_add(lease.taken_by_others),
        };
        lease.map_or(KeyBalance { taken: Units::ZERO, leased: Units::ZERO }, balance)
    }

    /// Requests a lease of a key that cannot pay `cost`. Returns true if the ledger is to be called at once: neither is one requested
    /// already, nor did the ledger lack the units just before.
    pub fn request(&mut self, window: Span, key: ClientKey, limit: Units, cost: Units) -> bool {
        let (table, max_keys) = self.begin(window);
        let Some(slot) = table.slot_or_insert(key, max_keys) else { return false };
        let lease = &mut table.leases[slot as usize];
        lease.limit = limit;
        lease.lacking = lease.lacking.max(cost);
        let is_starved = lease.is_starved;
        table.enqueue(slot) && !is_starved
    }

    /// Adds units reserved at a decision. Returns true if the ledger is to be called.
    pub fn reserve(&mut self, window: Span, key: ClientKey, limit: Units, units: Units) -> bool {
        let (table, max_keys) = self.begin(window);
        let Some(slot) = table.slot_or_insert(key, max_keys) else { return false };
        table.use_units(slot, units);
        let lease = &mut table.leases[slot as usize];
        lease.limit = limit;
        let left = lease.held.saturating_sub(lease.used);
        let is_low =
            left.milli() < lease.size().milli() / 2 && lease.held.saturating_add(lease.taken_by_others) < limit;
        is_low && table.enqueue(slot)
    }

    /// Begins to count a window, if it is not counted yet.
    pub fn open(&mut self, window: Span) {
        self.begin(window);
    }

    /// Adds units charged without a reservation, if the window is kept. Returns true if the ledger is to be called.
    pub fn charge(&mut self, window: u64, key: ClientKey, units: Units) -> bool {
        let (window, max_keys) = (self.replaced.current(window), self.max_keys);
        let Some(table) = self.tables.iter_mut().find(|table| table.window.start.0 == window) else { return false };
        let Some(slot) = table.slot_or_insert(key, max_keys) else { return false };
        table.use_units(slot, units);
        table.exceeds(slot) && table.enqueue(slot)
    }

    /// Replaces reserved units of a key by the units charged. Returns true if the ledger is to be called.
    pub fn settle(&mut self, window: u64, key: ClientKey, reserved: Units, charged: Units) -> bool {
        let window = self.replaced.current(window);
        let Some(table) = self.tables.iter_mut().find(|table| table.window.start.0 == window) else { return false };
        // Another key has its place. The ledger knows of what was reserved.
        let Some(slot) = table.slot(key) else { return self.charge(window, key, charged.saturating_sub(reserved)) };
        let lease = &mut table.leases[slot as usize];
        lease.used = lease.used.saturating_sub(reserved).saturating_add(charged);
        lease.is_reported &= reserved == charged;
        lease.spent[0] = lease.spent[0].saturating_sub(spent(reserved)).saturating_add(spent(charged));
        table.activate(slot);
        table.exceeds(slot) && table.enqueue(slot)
    }

    /// Returns the next calls for windows that contain `now`, of which `window` is the current one. With `is_tick`, which is to be
    /// set once a second, units that are not used are returned, and there is at least one call: the ledger knows who is running.
    pub fn calls(&mut self, quota: &str, window: Span, now: super::Timestamp, is_tick: bool) -> Vec<KeyLeaseCall> {
        self.begin(window);
        let max_keys = self.max_keys;
        let mut calls = Vec::new();
        for table in self.tables.iter_mut().filter(|table| table.window.contains(now)) {
            if is_tick {
                table.advance_tick();
            }
            let queue = std::mem::take(&mut table.queue);
            let rows: Vec<KeyLeaseRow> = queue.into_iter().map(|slot| table.row(slot)).collect();
            let has_leases = table.has_leases;
            let call = |rows: &[KeyLeaseRow]| KeyLeaseCall {
                quota: quota.to_owned(),
                has_leases,
                window: table.window,
                max_keys,
                rows: rows.to_vec(),
            };
            calls.extend(rows.chunks(MAX_ROWS).map(call));
            if is_tick && rows.is_empty() {
                calls.push(call(&[]));
            }
        }
        calls
    }

    /// Returns calls that report all that this instance holds in a window, for a ledger that has lost it. With `is_last`, nothing
    /// that is not used is held any more.
    pub fn report(&mut self, quota: &str, window: Span, is_last: bool) -> Vec<KeyLeaseCall> {
        let max_keys = self.max_keys;
        let Some(table) = self.tables.iter_mut().find(|table| table.window == window) else { return Vec::new() };
        let row = |lease: &mut KeyLease| {
            if is_last {
                lease.held = lease.used;
            }
            let KeyLease { key, limit, used: taken, .. } = *lease;
            let held = lease.held.max(taken);
            let acknowledged = Some(lease.acknowledged);
            KeyLeaseRow { key, acknowledged, limit, taken, held, needed: held, wanted: held }
        };
        let counted = table.leases.iter_mut().filter(|lease| lease.state == KeyState::Counted);
        let rows: Vec<KeyLeaseRow> = counted.map(row).filter(|row| !row.held.is_zero()).collect();
        let call = |rows: &[KeyLeaseRow]| KeyLeaseCall {
            quota: quota.to_owned(),
            has_leases: false,
            window,
            max_keys,
            rows: rows.to_vec(),
        };
        rows.chunks(MAX_ROWS).map(call).collect()
    }

    /// Returns the windows with leases.
    pub fn windows(&self) -> impl Iterator<Item = Span> {
        self.tables.iter().map(|table| table.window)
    }

    /// Applies the leases of a call, in the order of its rows. Returns false if a key still lacks units that may come soon.
    pub fn apply(&mut self, call: &KeyLeaseCall, grants: &[KeyGrant]) -> bool {
        let max_keys = self.max_keys;
        let Some(table) = self.tables.iter_mut().find(|table| table.window == call.window) else { return true };
        let mut is_satisfied = true;
        for (row, grant) in call.rows.iter().zip(grants) {
            let Some(slot) = table.find(row.key) else { continue };
            let lease = &mut table.leases[slot as usize];
            match *grant {
                KeyGrant::Shared => {
                    if lease.state != KeyState::Shared {
                        lease.state = KeyState::Shared;
                        table.sharing.push_back(slot);
                    }
                    // What was used before the reply counts for all that share the budget.
                    let used = std::mem::take(&mut table.leases[slot as usize].used);
                    if let Some(shared) = table.slot_or_insert(row.key, max_keys) {
                        table.use_units(shared, used);
                        table.leases[shared as usize].limit = row.limit;
                    }
                }
                KeyGrant::Counted { held, taken_by_others, forgotten } => {
                    lease.state = KeyState::Counted;
                    lease.is_reported = lease.used == row.taken;
                    lease.used = lease.used.saturating_add(forgotten);
                    (lease.held, lease.acknowledged, lease.taken_by_others) = (held, held, taken_by_others);
                    let is_spent = lease.used.saturating_add(taken_by_others) >= row.limit;
                    lease.is_starved = held < row.needed && !is_spent;
                    is_satisfied &= !lease.is_starved;
                    table.has_leases |= !held.is_zero();
                    table.activate(slot);
                }
            }
        }
        is_satisfied
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

    fn table(&self, window: u64) -> Option<&LeaseTable> {
        self.tables.iter().find(|table| table.window.start.0 == window)
    }

    /// Returns the table of a window, which begins without leases, and the maximum number of its keys.
    fn begin(&mut self, window: Span) -> (&mut LeaseTable, usize) {
        let index = self.tables.iter().position(|table| table.window.start == window.start).unwrap_or_else(|| {
            self.tables.truncate(TABLES - 1);
            self.tables.insert(0, LeaseTable::new(window));
            0
        });
        (&mut self.tables[index], self.max_keys)
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

    /// Returns the table of a window that replaces this one, and of which the ledger knows nothing.
    fn redefined(self, window: Span) -> Self {
        let mut table = Self { window, has_leases: false, queue: Vec::new(), ..self };
        for slot in 0..table.leases.len() as u32 {
            let lease = &mut table.leases[slot as usize];
            let is_used = !lease.used.is_zero();
            (lease.held, lease.acknowledged) = (lease.used, Units::ZERO);
            (lease.is_queued, lease.is_starved, lease.is_reported) = (false, false, !is_used);
            if lease.state == KeyState::Counted {
                lease.state = KeyState::Unknown;
            }
            if is_used {
                table.enqueue(slot);
            }
        }
        table
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
        let is_shared = state == Some(KeyState::Shared);
        let key = if is_shared { shared_key(key) } else { key };
        if let Some(slot) = self.find(key) {
            return Some(slot);
        }
        let lease = KeyLease {
            key,
            used: Units::ZERO,
            held: Units::ZERO,
            acknowledged: Units::ZERO,
            taken_by_others: Units::ZERO,
            limit: Units::ZERO,
            lacking: Units::ZERO,
            spent: [0; 2],
            used_at: self.tick,
            state: KeyState::Unknown,
            is_queued: false,
            is_active: false,
            is_starved: false,
            is_reported: true,
        };
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

    /// Returns the row of the next call. Units that it returns are not used from now on: those of an idle key, and those that do
    /// not suffice for a request.
    fn row(&mut self, slot: u32) -> KeyLeaseRow {
        let is_idle = self.is_idle(slot);
        let lease = &mut self.leases[slot as usize];
        lease.is_queued = false;
        let (size, lacking, used) = (lease.size(), std::mem::take(&mut lease.lacking), lease.used);
        let returns = is_idle && lacking.is_zero();
        if returns || !lacking.is_zero() {
            lease.held = lease.held.min(used);
        }
        let held = lease.held.max(used);
        let wanted = if returns { used } else { held.max(used.saturating_add(size)) };
        let needed = held.max(used.saturating_add(lacking));
        let acknowledged = Some(lease.acknowledged).filter(|_| lease.state != KeyState::Unknown);
        KeyLeaseRow { key: lease.key, acknowledged, limit: lease.limit, taken: used, held, needed, wanted }
    }

    /// Begins the next tick: queues what is to be reported or returned.
    fn advance_tick(&mut self) {
        self.tick = self.tick.wrapping_add(1);
        for slot in std::mem::take(&mut self.active) {
            let is_idle = self.is_idle(slot);
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
    /// Returns the units that all instances have used, as far as this one is informed.
    const fn taken(&self) -> Units {
        self.used.saturating_add(self.taken_by_others)
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
