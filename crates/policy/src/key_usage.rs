//! Units of a window that each key has used, in bounded memory.
//!
//! A new key takes the place of one with little usage once the table is full, and begins with the highest usage that any such
//! key had (Metwally et al., "Efficient computation of frequent and top-k elements in data streams", 2005). So the usage of no
//! key is counted too low, and made-up keys use up the units of other clients only as far as they cost units themselves: no key
//! with a request in flight is replaced, because what such requests reserve may cost nothing in the end.

use super::Timestamp;
use super::identity::{ClientKey, KeyOwner};
use super::replaced_windows::ReplacedWindows;
use super::units::Units;
pub use key_windows::{KeyWindows, PARTS};
use std::collections::HashMap;
use std::ops::Range;
use table::{Opening, Table};

mod key_windows;
mod table;

/// Usage by key in the latest windows of a quota, one more than count at one time, so that a clock that ran ahead and is set back
/// finds the earlier one unchanged. A new window starts without usage.
///
/// What counts at a moment is a [`KeyWindows::moment`]. Usage is also counted by network, because one client may have many
/// addresses in it.
#[derive(Clone, Debug, Default)]
pub struct KeyUsage {
    windows: KeyWindows,
    tables: Vec<Option<Table>>,
    max_keys: usize,
    /// Windows that a change of the configuration has replaced.
    replaced: ReplacedWindows,
    /// Earlier windows than this one were counted before the last such change, and are forgotten.
    first_window: u64,
}

/// Usage of one key in a window, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyEntry {
    /// The key.
    pub key: ClientKey,
    /// Settled plus reserved units.
    pub used: Units,
}

/// Place of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Number of the table of its window, below [`KeyWindows::tables`].
    pub table: u8,
    /// Number of the entry in the table.
    pub slot: u32,
}

/// An entry that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedEntry {
    /// Place of the entry.
    pub place: Place,
    /// Id of the window: of a sliding one, the start of the part; of one that the key has opened, its start.
    pub window: u64,
    /// The entry.
    pub entry: KeyEntry,
    /// Usage of the key before the change; `None` if the entry is new.
    pub earlier: Option<Units>,
    /// Usage of a key without an entry, at most.
    pub floor: Units,
}

/// Number of clients whose limits the clients of one network have together.
pub const CLIENTS_OF_NETWORK: u64 = 8;

impl KeyUsage {
    /// Creates the usage of at most `max_keys` keys in each window or part of one.
    pub fn new(windows: KeyWindows, max_keys: usize) -> Self {
        let tables = vec![None; windows.tables()];
        Self { windows, tables, max_keys: max_keys.clamp(1, u32::MAX as usize), ..Self::default() }
    }

    /// Restores the usage from the entries that were stored. Of each table, entries of earlier windows than the latest are
    /// not used any more. All keys stay, also more than `max_keys`.
    pub fn restore(windows: KeyWindows, max_keys: usize, stored: &[ChangedEntry]) -> Self {
        let mut latest = HashMap::<u8, u64>::new();
        for record in stored {
            let window = latest.entry(record.place.table).or_default();
            *window = windows.table(record.window).max(*window);
        }
        let mut usage = Self::new(windows, max_keys);
        for &ChangedEntry { place, window, entry, floor, .. } in stored {
            let (id, start) = (windows.table(window), windows.open_by_key().then_some(window));
            if latest.get(&place.table) == Some(&id)
                && let Some(table) = usage.begin(id)
            {
                let (table, max_keys) = (&mut usage.tables[table], usage.max_keys);
                let table = table.get_or_insert_default();
                table.floor = table.floor.max(floor);
                table.restore(entry, start, max_keys);
            }
        }
        usage
    }

    /// Returns the windows of the keys.
    pub fn windows(&self) -> KeyWindows {
        self.windows
    }

    /// Sets the maximum number of keys. Keys that are already counted stay.
    pub fn set_max_keys(&mut self, max_keys: usize) {
        self.max_keys = max_keys.clamp(1, u32::MAX as usize);
    }

    /// Returns the number of entries of the table with most entries.
    pub fn slots(&self) -> usize {
        self.tables.iter().flatten().map(|table| table.entries.len()).max().unwrap_or_default()
    }

    /// Returns the number of keys that took the place of others in what counts at a moment.
    pub fn replaced(&self, moment: u64) -> u32 {
        self.in_reach(moment).map(|table| table.replaced).fold(0, u32::wrapping_add)
    }

    /// Returns the id of the latest window with usage; 0 without usage.
    pub fn latest_window(&self) -> u64 {
        self.tables.iter().flatten().map(|table| table.window).max().unwrap_or_default()
    }

    /// Returns true if usage that counts at a moment may have made room for that of later ones. The keys may have used their
    /// limits.
    pub fn is_forgotten(&self, moment: u64) -> bool {
        let table = self.windows.table(moment);
        table < self.first_window || self.is_evicted(*self.windows.reach(table).start())
    }

    /// Returns true if the table `id` may have made room for later ones.
    fn is_evicted(&self, id: u64) -> bool {
        self.tables.iter().all(|table| table.as_ref().is_some_and(|table| id < table.window))
    }

    /// Counts what counts at the moment `before` at the moment `after` of other windows from now on, because the configuration has
    /// changed. What requests in flight reserved before is settled then.
    pub fn redefine(&mut self, before: u64, windows: KeyWindows, after: u64) {
        let replaced = match self.windows {
            KeyWindows::OfQuota => before..=before,
            _ => *self.windows.reach(self.windows.table(before)).start()..=before,
        };
        let table = match self.windows {
            KeyWindows::OfQuota => {
                self.tables.iter_mut().find_map(|table| table.take_if(|table| table.window == before))
            }
            _ => Some(self.merged(before)).filter(|table| !table.entries.is_empty()),
        };
        let (id, start) = (windows.table(after), windows.open_by_key().then_some(after));
        self.windows = windows;
        self.tables = vec![None; windows.tables()];
        self.tables[0] = table.map(|table| table.moved(id, start));
        self.first_window = id;
        self.replaced.add(replaced, start.unwrap_or(id));
    }

    /// Returns one table with the usage that counts at a moment.
    fn merged(&self, moment: u64) -> Table {
        let floor = match self.windows {
            KeyWindows::FirstUse { .. } => self.in_reach(moment).map(|table| table.floor).max().unwrap_or_default(),
            _ => sum(self.in_reach(moment).map(|table| table.floor)),
        };
        let mut merged = Table::default();
        merged.floor = floor;
        for key in self.keys(moment, 0..self.slots()) {
            let counts = |table: &&Table| match table.slot(key) {
                Some(slot) => self.counts(table.start(slot), moment),
                None => true,
            };
            // What was reserved in an ended window is settled in this one, too.
            let ended = sum(self.in_reach(moment).filter(|table| !counts(table)).map(|table| table.reserved(key)));
            let used = self.counted(moment, key).saturating_add(ended);
            merged.restore(KeyEntry { key, used }, None, self.max_keys);
            if let Some(slot) = merged.slot(key) {
                merged.reserve(slot, sum(self.in_reach(moment).map(|table| table.reserved(key))));
            }
        }
        merged
    }

    /// Iterates over all entries, in the order of their places.
    pub fn records(&self) -> impl Iterator<Item = ChangedEntry> {
        let tables = self.tables.len() as u8;
        let places = (0..self.slots() as u32).flat_map(move |slot| (0..tables).map(move |table| Place { table, slot }));
        places.filter_map(|place| self.record(place))
    }

    /// Returns the entry at a place; `None` if it has none.
    pub fn record(&self, place: Place) -> Option<ChangedEntry> {
        self.tables.get(usize::from(place.table))?.as_ref()?.record(place)
    }

    /// Iterates over the keys with usage that counts at a moment, each once: those whose entries have a number in `slots`, which is
    /// below [`Self::slots`].
    pub fn entries(&self, moment: u64, slots: Range<usize>) -> impl Iterator<Item = KeyEntry> {
        let entry = move |key| KeyEntry { key, used: self.counted(moment, key) };
        self.keys(moment, slots)
            .filter(move |key| !self.windows.open_by_key() || self.open(moment, *key).is_some())
            .map(entry)
    }

    /// Iterates over the keys with an entry in any table that may count at a moment, each once, by the number of the first one.
    fn keys(&self, moment: u64, slots: Range<usize>) -> impl Iterator<Item = ClientKey> {
        let tables: Vec<&Table> = self.in_reach(moment).collect();
        (0..tables.len()).flat_map(move |number| {
            let earlier: Vec<&Table> = tables[..number].to_vec();
            let is_first = move |key: &ClientKey| earlier.iter().all(|table| table.slot(*key).is_none());
            let table: &Table = tables[number];
            let entries = table.entries.iter().skip(slots.start).take(slots.len());
            entries.map(|entry| entry.key).filter(is_first)
        })
    }

    /// Returns the units that a key has used at a moment, including reserved ones; [`Units::MAX`] of a key without a place, while
    /// the requests of all others are in flight.
    pub fn used(&self, moment: u64, key: ClientKey) -> Units {
        self.used_of(moment, key, |table| table.used(key, self.max_keys))
    }

    /// Returns the units that a key has used at a moment, at most, whether or not it may use more.
    fn counted(&self, moment: u64, key: ClientKey) -> Units {
        self.used_of(moment, key, |table| table.counted(key))
    }

    /// Returns the units that a key has used at a moment. `in_current` returns those of the table to which more are added.
    fn used_of(&self, moment: u64, key: ClientKey, in_current: impl Fn(&Table) -> Units) -> Units {
        let current = self.window_or_earliest(moment);
        let used = |table: &Table| if table.window == current { in_current(table) } else { table.counted(key) };
        if !self.windows.open_by_key() {
            return sum(self.in_reach(moment).map(used));
        }
        match self.open(moment, key) {
            Some((table, slot)) => table.entries[slot as usize].used,
            None => self.used_before(moment, key).max(self.table(current).map_or(Units::ZERO, in_current)),
        }
    }

    /// Returns what a key without an open window may have used, because its entry may have been given to another one.
    fn used_before(&self, moment: u64, key: ClientKey) -> Units {
        let without = self.in_reach(moment).filter(|table| table.slot(key).is_none());
        without.map(|table| table.floor).max().unwrap_or_default()
    }

    /// Returns the entry of the window that a key has open at a moment. A clock set back to before the start of one finds it, too:
    /// it lasts longer, without additional units.
    fn open(&self, moment: u64, key: ClientKey) -> Option<(&Table, u32)> {
        let entries = self.in_reach(moment).filter_map(|table| Some((table, table.slot(key)?)));
        let counts = entries.filter(|(table, slot)| self.counts(table.start(*slot), moment));
        counts.min_by_key(|(table, slot)| moment < table.start(*slot))
    }

    /// Returns true if a window that a key has opened at `start` counts at a moment.
    fn counts(&self, start: u64, moment: u64) -> bool {
        !self.windows.open_by_key() || start.abs_diff(moment) < self.windows.spacing()
    }

    /// Returns the units of `limit` that a client has used at a moment, including reserved ones: its own, or what its
    /// network has used beyond the limits of [`CLIENTS_OF_NETWORK`] less one.
    pub fn used_by_client(&self, moment: u64, client: ClientKey, limit: Units) -> Units {
        self.used(moment, client).max(used_by_network(self.in_reach(moment), client, limit))
    }

    /// Returns the units that the network of a client has used in a window; those of the client if it has no network.
    pub fn used_by_network(&self, window: u64, client: ClientKey) -> Units {
        self.used_by_client(window, client, Units::ZERO)
    }

    /// Returns the time at which a key has used at most `goal`, if nothing more is charged to it; `None` for windows of the quota.
    pub fn renewal(&self, moment: u64, key: ClientKey, goal: Units) -> Option<Timestamp> {
        match self.windows {
            KeyWindows::OfQuota => None,
            KeyWindows::Sliding { .. } => {
                Some(self.expiry(moment, goal, |tables| sum(tables.iter().map(|table| table.counted(key)))))
            }
            KeyWindows::FirstUse { .. } => {
                let start = self.open(moment, key).map_or(moment, |(table, slot)| table.start(slot));
                Some(self.windows.span(start)?.end)
            }
        }
    }

    /// Returns the time at which the windows that keys have opened have all ended, or the first units of a sliding one come back;
    /// `None` if nothing counts at a moment, and for windows of the quota.
    pub fn keys_renewal(&self, moment: u64) -> Option<Timestamp> {
        match self.windows {
            KeyWindows::OfQuota => None,
            KeyWindows::Sliding { .. } => {
                let is_used = |table: &&Table| table.entries.iter().any(|entry| !entry.used.is_zero());
                let earliest = self.in_reach(moment).filter(is_used).map(|table| table.window).min()?;
                Some(self.windows.expiry(earliest))
            }
            KeyWindows::FirstUse { .. } => {
                let slots = |table: &Table| 0..table.entries.len() as u32;
                let starts = self.in_reach(moment).flat_map(|table| slots(table).map(move |slot| table.start(slot)));
                Some(self.windows.span(starts.filter(|&start| self.counts(start, moment)).max()?)?.end)
            }
        }
    }

    /// Returns the time at which a client has used at most `goal` of `limit`, as [`Self::used_by_client`] counts it; `None` for
    /// windows of the quota.
    pub fn client_renewal(&self, moment: u64, client: ClientKey, limit: Units, goal: Units) -> Option<Timestamp> {
        let used = |tables: &[&Table]| {
            let own = sum(tables.iter().map(|table| table.counted(client)));
            own.max(used_by_network(tables.iter().copied(), client, limit))
        };
        matches!(self.windows, KeyWindows::Sliding { .. }).then(|| self.expiry(moment, goal, used))
    }

    /// Returns the time at which the parts of a sliding window that have not expired have `used` at most `goal`.
    fn expiry(&self, moment: u64, goal: Units, used: impl Fn(&[&Table]) -> Units) -> Timestamp {
        let mut tables: Vec<&Table> = self.in_reach(moment).collect();
        tables.sort_unstable_by_key(|table| table.window);
        let is_enough = |expired: &usize| used(&tables[*expired..]) <= goal;
        let expired = (1..=tables.len()).find(is_enough).filter(|_| !used(&tables).is_zero());
        self.windows.expiry(expired.map_or(self.windows.table(moment), |expired| tables[expired - 1].window))
    }

    /// Adds units reserved at a decision. They count in a later window if that of the decision is forgotten. The window of the
    /// result is the one to settle.
    pub fn reserve(&mut self, moment: u64, key: ClientKey, units: Units) -> ChangedEntry {
        let opening = self.opening(moment, key);
        let index = self.index(moment, key).unwrap_or_else(|| self.earliest());
        let changed = self.add(index, key, units, opening);
        if let Some(table) = &mut self.tables[index] {
            table.reserve(changed.place.slot, units);
        }
        changed
    }

    /// Adds units charged without a reservation. Changes nothing if the window is forgotten.
    pub fn charge(&mut self, moment: u64, key: ClientKey, units: Units) -> Option<ChangedEntry> {
        let moment = self.replaced.current(moment);
        let opening = self.opening(moment, key);
        let index = self.index(moment, key)?;
        Some(self.add(index, key, units, opening))
    }

    /// Replaces reserved units of a key in a window by the units charged. Changes nothing if the window is forgotten.
    pub fn settle(&mut self, window: u64, key: ClientKey, reserved: Units, charged: Units) -> Option<ChangedEntry> {
        let window = self.replaced.current(window);
        let index = self.position(self.windows.table(window))?;
        let opening = self.opening(window, key);
        let table = self.tables[index].as_mut()?;
        match table.slot(key) {
            // Another process has opened the window of the key at another time.
            Some(slot) if opening.start.is_some_and(|start| start != table.start(slot)) => match charged > reserved {
                true => self.charge(window, key, charged.saturating_sub(reserved)),
                false => None,
            },
            Some(slot) => {
                let earlier = table.settle(slot, reserved, charged)?;
                Some(table.changed(Place { table: index as u8, slot }, Some(earlier)))
            }
            // Its place was given away after all, together with the reservation.
            None if charged > reserved => Some(self.add(index, key, charged.saturating_sub(reserved), opening)),
            None => None,
        }
    }

    /// Returns what a new entry of a key begins with at a moment.
    fn opening(&self, moment: u64, key: ClientKey) -> Opening {
        match self.windows.open_by_key() {
            true => Opening { start: Some(moment), used: self.used_before(moment, key) },
            false => Opening::SHARED,
        }
    }

    /// Returns the number of the table that counts what a key uses at a moment; `None` if that is forgotten.
    fn index(&mut self, moment: u64, key: ClientKey) -> Option<usize> {
        let open = match self.windows.open_by_key() {
            true => self.open(moment, key).map(|(table, _)| table.window),
            false => None,
        };
        self.begin(open.unwrap_or_else(|| self.windows.table(moment)))
    }

    /// Iterates over the tables whose usage may count at a moment: of a forgotten one, at that of the earliest.
    fn in_reach(&self, moment: u64) -> impl Iterator<Item = &Table> {
        let reach = self.windows.reach(self.window_or_earliest(moment));
        self.tables.iter().flatten().filter(move |table| reach.contains(&table.window))
    }

    /// Returns the id of the table of a moment, or of the earliest table if that is forgotten.
    fn window_or_earliest(&self, moment: u64) -> u64 {
        let window = self.windows.table(moment);
        let earliest = || self.tables.iter().flatten().map(|table| table.window).min();
        if window < self.first_window || self.is_evicted(window) { earliest().unwrap_or(window) } else { window }
    }

    /// Begins to count the table `id`, if it is not counted yet, in place of the earliest one. Returns its number; `None` if it is
    /// forgotten.
    fn begin(&mut self, id: u64) -> Option<usize> {
        if let Some(index) = self.position(id) {
            return Some(index);
        }
        if id < self.first_window || self.is_evicted(id) {
            return None;
        }
        let index = self.tables.iter().position(Option::is_none).unwrap_or_else(|| self.earliest());
        self.tables[index].get_or_insert_default().restart(id);
        Some(index)
    }

    fn position(&self, id: u64) -> Option<usize> {
        self.tables.iter().position(|table| table.as_ref().is_some_and(|table| table.window == id))
    }

    fn table(&self, id: u64) -> Option<&Table> {
        self.tables.iter().flatten().find(|table| table.window == id)
    }

    /// Returns the number of the earliest table.
    fn earliest(&self) -> usize {
        let window = |index: &usize| self.tables[*index].as_ref().map_or(u64::MAX, |table| table.window);
        (0..self.tables.len()).min_by_key(window).unwrap_or_default()
    }

    fn add(&mut self, index: usize, key: ClientKey, units: Units, opening: Opening) -> ChangedEntry {
        let table = self.tables[index].get_or_insert_default();
        let (slot, earlier) = table.add(key, units, opening, self.max_keys);
        table.changed(Place { table: index as u8, slot }, earlier)
    }
}

/// Returns what the network of a client has used beyond the limits of [`CLIENTS_OF_NETWORK`] less one.
fn used_by_network<'a>(tables: impl Iterator<Item = &'a Table>, client: ClientKey, limit: Units) -> Units {
    let Some(network) = network(client) else { return Units::ZERO };
    let of_others = Units::from_milli(limit.milli().saturating_mul(CLIENTS_OF_NETWORK - 1));
    sum(tables.filter_map(|table| table.used_by_network.get(&network).copied())).saturating_sub(of_others)
}

fn sum(units: impl Iterator<Item = Units>) -> Units {
    units.fold(Units::ZERO, Units::saturating_add)
}

/// Returns the network of a client that is known by its address.
fn network(client: ClientKey) -> Option<u64> {
    matches!(client.owner(), KeyOwner::V4(_) | KeyOwner::V6(_)).then(|| client.network())
}

#[cfg(test)]
mod tests;
