//! Units of a window that each key has used, in bounded memory.
//!
//! A new key takes the place of one with little usage once the table is full, and begins with the highest usage that any such
//! key had (Metwally et al., "Efficient computation of frequent and top-k elements in data streams", 2005). So the usage of no
//! key is counted too low, and made-up keys use up the units of other clients only as far as they cost units themselves: no key
//! with a request in flight is replaced, because what such requests reserve may cost nothing in the end.

use super::identity::{ClientKey, KeyOwner};
use super::replaced_windows::ReplacedWindows;
use super::units::Units;
use std::collections::HashMap;

/// Usage by key in the two latest windows of a quota, so that a clock that ran ahead and is set back finds the earlier one
/// unchanged. A new window starts without usage.
///
/// Usage is also counted by network, because one client may have many addresses in it.
#[derive(Clone, Debug, Default)]
pub struct KeyUsage {
    tables: [Option<Table>; TABLES],
    max_keys: usize,
    /// Windows that a change of the configuration has replaced.
    replaced: ReplacedWindows,
    /// Earlier windows than this one were counted before the last such change, and are forgotten.
    first_window: u64,
}

/// Usage by key in one window.
#[derive(Clone, Debug, Default)]
struct Table {
    window: u64,
    entries: Vec<KeyEntry>,
    /// Units reserved by requests in flight, by entry.
    reserved: Vec<Units>,
    slots: HashMap<ClientKey, u32>,
    /// Usage of a key without an entry, at most.
    floor: Units,
    /// By [`ClientKey::network`]; at most as many as keys.
    used_by_network: HashMap<u64, Units>,
    /// Number of keys that took the place of others.
    replaced: u32,
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
    /// Number of the table of its window, below [`TABLES`].
    pub table: u8,
    /// Number of the entry in the table.
    pub slot: u32,
}

/// An entry that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedEntry {
    /// Place of the entry.
    pub place: Place,
    /// Id of the window.
    pub window: u64,
    /// The entry.
    pub entry: KeyEntry,
    /// Usage of a key without an entry, at most.
    pub floor: Units,
}

/// Number of windows that are counted.
pub const TABLES: usize = 2;

/// Number of clients whose limits the clients of one network have together.
pub const CLIENTS_OF_NETWORK: u64 = 8;

/// Number of entries among which the one with the least usage makes room for a new key.
const CANDIDATES: u32 = 32;

/// Odd number close to the golden ratio of 2^32: multiples of it are spread evenly over the table.
const STRIDE: u32 = 0x9e37_79b1;

impl KeyUsage {
    /// Creates the usage of at most `max_keys` keys in each window.
    pub fn new(max_keys: usize) -> Self {
        Self { max_keys: max_keys.clamp(1, u32::MAX as usize), ..Self::default() }
    }

    /// Restores the usage from the entries that were stored. Of each table, entries of earlier windows than the latest are
    /// not used any more. All keys stay, also more than `max_keys`.
    pub fn restore(max_keys: usize, stored: &[ChangedEntry]) -> Self {
        let mut latest = [0; TABLES];
        for record in stored {
            let window = &mut latest[usize::from(record.place.table) % TABLES];
            *window = record.window.max(*window);
        }
        let mut usage = Self::new(max_keys);
        for &ChangedEntry { place, window, entry, floor } in stored {
            if latest[usize::from(place.table) % TABLES] == window
                && let Some(table) = usage.begin(window)
            {
                let (table, max_keys) = (&mut usage.tables[table], usage.max_keys);
                let table = table.get_or_insert_default();
                table.floor = table.floor.max(floor);
                table.restore(entry, max_keys);
            }
        }
        usage
    }

    /// Sets the maximum number of keys. Keys that are already counted stay.
    pub fn set_max_keys(&mut self, max_keys: usize) {
        self.max_keys = max_keys.clamp(1, u32::MAX as usize);
    }

    /// Returns the number of keys with usage in a window.
    pub fn len(&self, window: u64) -> usize {
        self.table(window).map_or(0, |table| table.entries.len())
    }

    /// Returns the number of keys that took the place of others in a window.
    pub fn replaced(&self, window: u64) -> u32 {
        self.table(window).map_or(0, |table| table.replaced)
    }

    /// Returns the id of the latest window with usage; 0 without usage.
    pub fn latest_window(&self) -> u64 {
        self.tables.iter().flatten().map(|table| table.window).max().unwrap_or_default()
    }

    /// Returns true if the usage of a window may have made room for that of later ones. Its keys may have used their limits.
    pub fn is_forgotten(&self, window: u64) -> bool {
        let is_later = |table: &Option<Table>| table.as_ref().is_some_and(|table| window < table.window);
        window < self.first_window || self.tables.iter().all(is_later)
    }

    /// Counts the usage of the window `before` in the window `after` from now on, because the quota has other windows. What
    /// requests in flight reserved in the one is settled in the other.
    pub fn redefine(&mut self, before: u64, after: u64) {
        let table = self.tables.iter_mut().find_map(|table| table.take_if(|table| table.window == before));
        self.tables = [table.map(|table| Table { window: after, ..table }), None];
        self.first_window = after;
        self.replaced.add(before, after);
    }

    /// Iterates over all entries, in the order of their places.
    pub fn records(&self) -> impl Iterator<Item = ChangedEntry> {
        let slots = self.tables.iter().flatten().map(|table| table.entries.len()).max().unwrap_or_default();
        let places = (0..slots as u32).flat_map(|slot| (0..TABLES as u8).map(move |table| Place { table, slot }));
        places.filter_map(|place| self.record(place))
    }

    /// Returns the entry at a place; `None` if it has none.
    pub fn record(&self, place: Place) -> Option<ChangedEntry> {
        self.tables[usize::from(place.table)].as_ref()?.record(place)
    }

    /// Returns the units that a key has used in a window, including reserved ones; [`Units::MAX`] of a key without a place, while
    /// the requests of all others are in flight.
    pub fn used(&self, window: u64, key: ClientKey) -> Units {
        self.table(window).map_or(Units::ZERO, |table| table.used(key, self.max_keys))
    }

    /// Returns the units of `limit` that a client has used in a window, including reserved ones: its own, or what its
    /// network has used beyond the limits of [`CLIENTS_OF_NETWORK`] less one.
    pub fn used_by_client(&self, window: u64, client: ClientKey, limit: Units) -> Units {
        let Some(table) = self.table(window) else { return Units::ZERO };
        let of_network = network(client).and_then(|network| table.used_by_network.get(&network));
        let of_others = Units::from_milli(limit.milli().saturating_mul(CLIENTS_OF_NETWORK - 1));
        table.used(client, self.max_keys).max(of_network.map_or(Units::ZERO, |used| used.saturating_sub(of_others)))
    }

    /// Returns the units that the network of a client has used in a window; those of the client if it has no network.
    pub fn used_by_network(&self, window: u64, client: ClientKey) -> Units {
        self.used_by_client(window, client, Units::ZERO)
    }

    /// Adds units reserved at a decision. They count in a later window if that of the decision is forgotten.
    pub fn reserve(&mut self, window: u64, key: ClientKey, units: Units) -> ChangedEntry {
        let index = self.begin(window).unwrap_or_else(|| self.earliest());
        let changed = self.add(index, key, units);
        let table = self.tables[index].get_or_insert_default();
        let reserved = &mut table.reserved[changed.place.slot as usize];
        *reserved = reserved.saturating_add(units);
        changed
    }

    /// Adds units charged without a reservation. Changes nothing if the window is forgotten.
    pub fn charge(&mut self, window: u64, key: ClientKey, units: Units) -> Option<ChangedEntry> {
        let index = self.begin(self.replaced.current(window))?;
        Some(self.add(index, key, units))
    }

    /// Replaces reserved units of a key by the units charged. Changes nothing if the window is forgotten.
    pub fn settle(&mut self, window: u64, key: ClientKey, reserved: Units, charged: Units) -> Option<ChangedEntry> {
        let window = self.replaced.current(window);
        let index = self.tables.iter().position(|table| table.as_ref().is_some_and(|table| table.window == window))?;
        let table = self.tables[index].as_mut()?;
        let settle = |used: &mut Units| *used = used.saturating_sub(reserved).saturating_add(charged);
        match table.slots.get(&key) {
            Some(&slot) => {
                let in_flight = &mut table.reserved[slot as usize];
                *in_flight = in_flight.saturating_sub(reserved);
                if reserved == charged {
                    return None;
                }
                settle(&mut table.entries[slot as usize].used);
                if let Some(used) = network(key).and_then(|network| table.used_by_network.get_mut(&network)) {
                    settle(used);
                }
                self.record(Place { table: index as u8, slot })
            }
            // Its place was given away after all, together with the reservation.
            None if charged > reserved => Some(self.add(index, key, charged.saturating_sub(reserved))),
            None => None,
        }
    }

    /// Returns the table that counts a window: of a forgotten one, the earliest.
    fn table(&self, window: u64) -> Option<&Table> {
        let mut tables = self.tables.iter().flatten();
        match self.is_forgotten(window) {
            true => tables.min_by_key(|table| table.window),
            false => tables.find(|table| table.window == window),
        }
    }

    /// Begins to count `window`, if it is not counted yet, in place of the earliest one. Returns the number of its table;
    /// `None` if it is forgotten.
    fn begin(&mut self, window: u64) -> Option<usize> {
        let counts = |table: &Option<Table>| table.as_ref().is_some_and(|table| table.window == window);
        if let Some(index) = self.tables.iter().position(counts) {
            return Some(index);
        }
        if self.is_forgotten(window) {
            return None;
        }
        let index = self.tables.iter().position(Option::is_none).unwrap_or_else(|| self.earliest());
        self.tables[index].get_or_insert_default().restart(window);
        Some(index)
    }

    /// Returns the number of the table of the earliest window.
    fn earliest(&self) -> usize {
        let window = |index: &usize| self.tables[*index].as_ref().map_or(u64::MAX, |table| table.window);
        (0..TABLES).min_by_key(window).unwrap_or_default()
    }

    fn add(&mut self, index: usize, key: ClientKey, units: Units) -> ChangedEntry {
        let table = self.tables[index].get_or_insert_default();
        let slot = table.add(key, units, self.max_keys);
        table.changed(Place { table: index as u8, slot })
    }
}

impl Table {
    /// Begins to count another window.
    fn restart(&mut self, window: u64) {
        self.window = window;
        self.entries.clear();
        self.reserved.clear();
        self.slots.clear();
        self.used_by_network.clear();
        (self.floor, self.replaced) = (Units::ZERO, 0);
    }

    fn used(&self, key: ClientKey, max_keys: usize) -> Units {
        match self.slots.get(&key) {
            Some(&slot) => self.entries[slot as usize].used,
            None if self.entries.len() < max_keys || self.replaceable(key).is_some() => self.floor,
            None => Units::MAX,
        }
    }

    /// Adds a stored entry. Of two entries of a key, as a power cut may leave, the larger one counts.
    fn restore(&mut self, stored: KeyEntry, max_networks: usize) {
        let slot = match self.slots.get(&stored.key) {
            Some(&slot) => slot,
            None => self.push(KeyEntry { used: Units::ZERO, ..stored }),
        };
        let missing = stored.used.saturating_sub(self.entries[slot as usize].used);
        self.count(slot, missing, max_networks);
    }

    /// Adds units to the usage of a key. Returns the number of its entry.
    fn add(&mut self, key: ClientKey, units: Units, max_keys: usize) -> u32 {
        let slot = match self.slots.get(&key) {
            Some(&slot) => slot,
            // Once a key was replaced, a new one may be the same, also after the maximum was raised.
            None if self.entries.len() < max_keys => self.push(KeyEntry { key, used: self.floor }),
            None => self.replace_by(key),
        };
        self.count(slot, units, max_keys);
        slot
    }

    /// Adds an entry. Returns its number.
    fn push(&mut self, entry: KeyEntry) -> u32 {
        let slot = self.entries.len() as u32;
        self.entries.push(entry);
        self.reserved.push(Units::ZERO);
        self.slots.insert(entry.key, slot);
        slot
    }

    /// Adds units to an entry, and to its network.
    fn count(&mut self, slot: u32, units: Units, max_networks: usize) {
        let entry = &mut self.entries[slot as usize];
        entry.used = entry.used.saturating_add(units);
        if let Some(network) = network(entry.key)
            && (self.used_by_network.len() < max_networks || self.used_by_network.contains_key(&network))
        {
            let used = self.used_by_network.entry(network).or_default();
            *used = used.saturating_add(units);
        }
    }

    /// Gives the place of another key to `key`. Returns the number of its entry.
    fn replace_by(&mut self, key: ClientKey) -> u32 {
        let slot = self.replaceable(key).or_else(|| self.candidates(key).min_by_key(|&slot| self.used_at(slot)));
        let slot = slot.unwrap_or_default();
        self.replaced = self.replaced.wrapping_add(1);
        let replaced = self.entries[slot as usize];
        self.floor = self.floor.max(replaced.used);
        self.slots.remove(&replaced.key);
        self.slots.insert(key, slot);
        self.entries[slot as usize] = KeyEntry { key, used: self.floor };
        self.reserved[slot as usize] = Units::ZERO;
        slot
    }

    /// Returns the entry with the least usage of some without requests in flight, whose place `key` may take; `None` if none of
    /// them is without.
    fn replaceable(&self, key: ClientKey) -> Option<u32> {
        let is_idle = |slot: &u32| self.reserved[*slot as usize].is_zero();
        self.candidates(key).filter(is_idle).min_by_key(|&slot| self.used_at(slot))
    }

    /// Iterates over some entries, spread evenly: others for each key, so that one client cannot keep all of them in use.
    fn candidates(&self, key: ClientKey) -> impl Iterator<Item = u32> {
        let count = self.entries.len() as u64;
        let of_key = (key.to_u64().wrapping_mul(u64::from(STRIDE)) >> 32) as u32;
        let start = self.replaced.wrapping_mul(CANDIDATES).wrapping_add(of_key);
        (0..CANDIDATES).map(move |number| {
            let hash = start.wrapping_add(number).wrapping_mul(STRIDE);
            ((u64::from(hash) * count) >> 32) as u32
        })
    }

    fn used_at(&self, slot: u32) -> Units {
        self.entries[slot as usize].used
    }

    fn record(&self, place: Place) -> Option<ChangedEntry> {
        ((place.slot as usize) < self.entries.len()).then(|| self.changed(place))
    }

    fn changed(&self, place: Place) -> ChangedEntry {
        let entry = self.entries[place.slot as usize];
        ChangedEntry { place, window: self.window, entry, floor: self.floor }
    }
}

/// Returns the network of a client that is known by its address.
fn network(client: ClientKey) -> Option<u64> {
    matches!(client.owner(), KeyOwner::V4(_) | KeyOwner::V6(_)).then(|| client.network())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn units(whole: u64) -> Units {
        Units::from_whole(whole)
    }

    /// Returns a client in a network of its own.
    fn client(number: u64) -> ClientKey {
        ClientKey::from_u64(number << 8)
    }

    #[test]
    fn usage_is_of_one_key_and_one_window() {
        let mut usage = KeyUsage::new(8);
        usage.reserve(1, client(1), units(3));
        usage.reserve(1, client(1), units(2));
        usage.reserve(1, client(2), units(7));
        assert_eq!([1, 2, 3].map(|number| usage.used(1, client(number))), [units(5), units(7), Units::ZERO]);
        assert_eq!(usage.used(2, client(1)), Units::ZERO, "another window");
        usage.settle(1, client(1), units(3), units(1));
        assert_eq!(usage.used(1, client(1)), units(3));

        usage.reserve(2, client(2), units(1));
        assert_eq!([1, 2].map(|number| usage.used(2, client(number))), [Units::ZERO, units(1)]);
        usage.settle(1, client(2), units(7), units(6));
        assert_eq!([1, 2].map(|window| usage.used(window, client(2))), [units(6), units(1)], "each in its window");
        assert_eq!([1, 2, 3].map(|window| usage.len(window)), [2, 1, 0]);

        usage.reserve(3, client(2), units(4));
        assert_eq!(usage.settle(1, client(2), units(6), Units::ZERO), None, "the window is forgotten");
        assert_eq!(usage.charge(1, client(2), units(7)), None, "the window is forgotten");
        assert_eq!([2, 3].map(|window| usage.used(window, client(2))), [units(1), units(4)]);
        assert_eq!([0, 1, 2, 4].map(|window| usage.is_forgotten(window)), [true, true, false, false]);
    }

    #[test]
    fn clock_that_is_set_back_finds_the_earlier_window() {
        let mut usage = KeyUsage::new(8);
        usage.reserve(1, client(1), units(5));
        usage.reserve(9, client(1), units(3));
        assert_eq!(usage.used(1, client(1)), units(5));
        usage.reserve(1, client(1), units(2));
        assert_eq!([1, 9].map(|window| usage.used(window, client(1))), [units(7), units(3)]);
        usage.reserve(5, client(1), units(1));
        assert!(usage.is_forgotten(1), "a third window");
        assert_eq!([5, 9].map(|window| usage.used(window, client(1))), [units(1), units(3)]);
    }

    #[test]
    fn usage_continues_in_other_windows() {
        let mut usage = KeyUsage::new(8);
        usage.reserve(20, client(1), units(2));
        usage.reserve(21, client(1), units(5));
        usage.redefine(21, 3);
        assert_eq!([3, 20, 21].map(|window| usage.used(window, client(1))), [units(5), Units::ZERO, Units::ZERO]);
        assert!(usage.is_forgotten(2) && !usage.is_forgotten(3), "a clock that is set back opens no window again");
        assert_eq!(usage.used(2, client(1)), units(5));
        usage.redefine(7, 8);
        assert_eq!(usage.records().count(), 0, "another window than the counted one");
    }

    #[test]
    fn request_in_flight_is_settled_in_the_window_that_replaced_its_own() {
        let mut usage = KeyUsage::new(8);
        usage.reserve(20, client(1), units(1));
        for (before, after, charged) in [(20, 3, 4), (3, 14, 6), (14, 20, 5), (20, 3, 9)] {
            let reserved = usage.used(before, client(1));
            usage.redefine(before, after);
            assert_eq!(usage.used(after, client(1)), reserved);
            usage.settle(before, client(1), reserved, units(charged));
            assert_eq!(usage.used(after, client(1)), units(charged), "{before} {after}");
            usage.charge(before, client(1), units(1));
            assert_eq!(usage.used(after, client(1)), units(charged + 1), "{before} {after}");
        }
        for window in [14, 20] {
            usage.charge(window, client(1), units(10));
        }
        assert_eq!(usage.used(3, client(1)), units(30), "requests of all windows before");
        for window in 30..60 {
            usage.redefine(if window == 30 { 3 } else { window - 1 }, window);
        }
        usage.charge(52, client(1), units(1));
        assert_eq!(usage.used(59, client(1)), units(31));
    }

    #[test]
    fn raised_maximum_forgets_no_replaced_key() {
        let mut usage = KeyUsage::new(4);
        (0..4).for_each(|number| _ = usage.reserve(1, client(number), units(9)));
        (4..8).for_each(|number| _ = usage.reserve(1, client(number), units(1)));
        usage.set_max_keys(100);
        let stored: Vec<_> = usage.records().collect();
        for mut usage in [usage, KeyUsage::restore(100, &stored)] {
            for number in 0..8 {
                assert!(usage.used(1, client(number)) >= units(9), "{number}");
                usage.reserve(1, client(number), units(1));
                assert!(usage.used(1, client(number)) >= units(10), "{number}");
            }
            assert_eq!((usage.len(1), usage.used(2, client(9))), (8, Units::ZERO), "a new window");
        }
    }

    #[test]
    fn lowered_maximum_changes_no_usage() {
        let mut usage = KeyUsage::new(100);
        (0..40).for_each(|number| _ = usage.reserve(1, client(number), units(1)));
        let mut stored: Vec<_> = usage.records().collect();
        let twice = ChangedEntry { entry: KeyEntry { key: client(7), used: units(3) }, ..stored[5] };
        stored.push(twice);
        let mut restored = KeyUsage::restore(3, &stored);
        let of_restored = |restored: &KeyUsage| {
            (0..40).filter(|number| *number != 7).all(|number| restored.used(1, client(number)) == units(1))
        };
        assert!(of_restored(&restored));
        assert_eq!([7, 50].map(|number| restored.used(1, client(number))), [units(3), Units::ZERO]);
        restored.reserve(1, client(50), units(1));
        assert_eq!(
            (restored.len(1), restored.used(1, client(50))),
            (40, units(2)),
            "it takes the place of another one"
        );
    }

    #[test]
    fn clients_of_one_network_share_the_limits_of_eight() {
        let mut usage = KeyUsage::new(1000);
        let limit = units(10);
        let in_network = |number: u64| ClientKey::from_u64(7 << 8 | number);
        (0..7).for_each(|number| _ = usage.reserve(1, in_network(number), limit));
        assert_eq!(usage.used_by_client(1, in_network(200), limit), Units::ZERO);
        usage.reserve(1, in_network(7), units(4));
        assert_eq!([7, 200].map(|number| usage.used_by_client(1, in_network(number), limit)), [units(4), units(4)]);
        usage.reserve(1, in_network(8), units(6));
        assert_eq!(usage.used_by_client(1, in_network(200), limit), limit, "nothing is left for further addresses");
        usage.settle(1, in_network(8), units(6), Units::ZERO);
        assert_eq!(usage.used_by_client(1, in_network(200), limit), units(4));
        assert_eq!(usage.used_by_client(1, client(3), limit), Units::ZERO, "another network");
        let credential = ClientKey::from_credential(1);
        (0..9).for_each(|_| _ = usage.reserve(1, credential, limit));
        let other = ClientKey::from_credential(2);
        assert_eq!(usage.used_by_client(1, other, limit), Units::ZERO, "a credential has no network");
    }

    #[test]
    fn made_up_keys_take_neither_the_usage_nor_the_units_of_others() {
        const CUSTOMERS: u64 = 200;
        let key = ClientKey::from_credential;
        let mut usage = KeyUsage::new(1000);
        (0..CUSTOMERS).for_each(|number| _ = usage.reserve(1, key(number), units(500)));
        for number in 0..100_000 {
            usage.reserve(1, key(1_000_000 + number), units(1));
            usage.settle(1, key(1_000_000 + number), units(1), units(1));
            assert!(usage.len(1) <= 1000);
        }
        // Each made-up key replaces another one, whose usage it inherits: about 125 units for each of the 800 entries.
        let begins_with = usage.used(1, key(999_999_999));
        assert!(begins_with < units(200), "{begins_with}");
        for number in 0..CUSTOMERS {
            assert_eq!(usage.used(1, key(number)), units(500));
        }
    }

    #[test]
    fn made_up_keys_that_cost_nothing_take_no_units_of_others() {
        let key = ClientKey::from_credential;
        let mut usage = KeyUsage::new(100);
        // The requests of 100 keys are in flight at once, each with much reserved, and cost nothing in the end.
        (0..100).for_each(|number| _ = usage.reserve(1, key(number), units(990)));
        assert_eq!(usage.used(1, key(1000)), Units::MAX, "no place is free");
        (0..100).for_each(|number| _ = usage.settle(1, key(number), units(990), Units::ZERO));
        for number in 1000..1200 {
            assert_eq!(usage.used(1, key(number)), Units::ZERO);
            usage.reserve(1, key(number), units(10));
            usage.settle(1, key(number), units(10), Units::ZERO);
        }
        // One request in flight keeps its place, whatever takes that of others.
        usage.reserve(1, key(1), units(7));
        let before = usage.used(1, key(1));
        (2000..9000).for_each(|number| {
            usage.reserve(1, key(number), units(1));
            usage.settle(1, key(number), units(1), units(1));
        });
        assert_eq!(usage.used(1, key(1)), before);
    }

    #[test]
    fn usage_is_restored_from_its_changes() {
        let mut usage = KeyUsage::new(40);
        let mut stored = HashMap::new();
        let key = ClientKey::from_credential;
        for number in 0..100 {
            let window = if number % 9 == 1 { 6 } else { 7 };
            let changed = usage.reserve(window, key(number % 60), units(number % 5));
            usage.settle(window, key(number % 60), units(number % 5), units(number % 5));
            stored.insert((changed.place.table, changed.place.slot), changed);
        }
        for (table, window) in [(0, 5), (1, 4)] {
            let place = Place { table, slot: 40 };
            stored.insert((table, 40), ChangedEntry { place, window, ..stored[&(0, 0)] });
        }
        let restored = KeyUsage::restore(40, &stored.into_values().collect::<Vec<_>>());
        for (window, number) in [6, 7].into_iter().flat_map(|window| (0..60).map(move |number| (window, number))) {
            assert_eq!(restored.used(window, key(number)), usage.used(window, key(number)), "{window} {number}");
        }
        assert_eq!(restored.latest_window(), 7);
    }

    proptest! {
        /// Each key has used what was reserved and charged for it, whatever the others do.
        #[test]
        fn usage_is_the_sum_of_a_keys_charges(
            requests in prop::collection::vec((0_u64..5, 0_u64..4, 0_u64..6), 0..60),
        ) {
            let (mut usage, mut expected) = (KeyUsage::new(5), [0_u64; 5]);
            for (number, reserved, charged) in requests {
                usage.reserve(9, client(number), units(reserved));
                usage.settle(9, client(number), units(reserved), units(charged));
                expected[number as usize] += charged;
            }
            for (number, expected) in expected.into_iter().enumerate() {
                prop_assert_eq!(usage.used(9, client(number as u64)), units(expected));
            }
        }

        /// However the clock is set, a key has in each window what it used there, unless the window is forgotten. So it is after a
        /// restart at any moment.
        #[test]
        fn clock_jumps_lose_no_usage(
            requests in prop::collection::vec((0_u64..4, 0_u64..3, 0_u64..4, 0_u64..6, any::<bool>()), 0..60),
        ) {
            let (mut usage, mut expected) = (KeyUsage::new(5), HashMap::<(u64, u64), u64>::new());
            let mut stored = HashMap::new();
            for (window, number, reserved, charged, restarts) in requests {
                if usage.is_forgotten(window) {
                    continue;
                }
                let changed = usage.reserve(window, client(number), units(reserved));
                stored.insert(changed.place, changed);
                if let Some(changed) = usage.settle(window, client(number), units(reserved), units(charged)) {
                    stored.insert(changed.place, changed);
                }
                *expected.entry((window, number)).or_default() += charged;
                if restarts {
                    let mut records: Vec<_> = stored.drain().map(|(_, record)| record).collect();
                    records.sort_by_key(|record| record.place);
                    usage = KeyUsage::restore(5, &records);
                    stored = usage.records().map(|record| (record.place, record)).collect();
                }
                for (&(window, number), &expected) in &expected {
                    if !usage.is_forgotten(window) {
                        prop_assert_eq!(usage.used(window, client(number)), units(expected), "{} {}", window, number);
                    }
                }
            }
        }

        /// A full table counts no key too low, also with reservations that are settled after their entry was given away.
        #[test]
        fn no_usage_is_counted_too_low(
            requests in prop::collection::vec((0_u64..12, 0_u64..4, 0_u64..6, 0_usize..4), 0..200), max_keys in 1_usize..8,
        ) {
            let (mut usage, mut expected) = (KeyUsage::new(max_keys), [0_u64; 12]);
            let mut open: Vec<(u64, u64, u64)> = Vec::new();
            for (number, reserved, charged, settled) in requests {
                usage.reserve(9, client(number), units(reserved));
                expected[number as usize] += reserved;
                open.push((number, reserved, charged));
                for (number, reserved, charged) in open.drain(..settled.min(open.len())) {
                    usage.settle(9, client(number), units(reserved), units(charged));
                    expected[number as usize] = expected[number as usize] + charged - reserved;
                }
                for (number, expected) in expected.iter().enumerate() {
                    prop_assert!(usage.used(9, client(number as u64)) >= units(*expected), "{number}");
                }
                prop_assert!(usage.len(9) <= max_keys);
            }
        }
    }
}
