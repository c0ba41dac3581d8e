//! Usage by key in one window of a quota, or in one part of a sliding window.

use super::{ChangedEntry, KeyEntry, Place, network};
use crate::identity::ClientKey;
use crate::units::Units;
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Usage by key in one window or part.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) window: u64,
    pub(super) entries: Vec<KeyEntry>,
    /// Start of the window of each entry, if keys open windows of their own; otherwise empty.
    starts: Vec<u64>,
    /// Units reserved by requests in flight, by entry.
    reserved: Vec<Units>,
    slots: HashMap<ClientKey, u32, RandomState>,
    /// Usage of a key without an entry, at most.
    pub(super) floor: Units,
    /// By [`ClientKey::network`]; at most as many as keys.
    pub(super) used_by_network: HashMap<u64, Units, RandomState>,
    /// Number of keys that took the place of others.
    pub(super) replaced: u32,
}

/// What a new entry begins with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    /// Start of its window, if keys open windows of their own.
    pub(super) start: Option<u64>,
    /// Usage, at least.
    pub(super) used: Units,
}

/// Number of entries among which the one with the least usage makes room for a new key.
const CANDIDATES: u32 = 32;

/// Odd number close to the golden ratio of 2^32: multiples of it are spread evenly over the table.
const STRIDE: u32 = 0x9e37_79b1;

impl Opening {
    /// Entry in a window or part that is the same for all keys.
    pub(super) const SHARED: Self = Self { start: None, used: Units::ZERO };
}

impl Table {
    /// Begins to count another window.
    pub(super) fn restart(&mut self, window: u64) {
        self.window = window;
        self.entries.clear();
        self.starts.clear();
        self.reserved.clear();
        self.slots.clear();
        self.used_by_network.clear();
        (self.floor, self.replaced) = (Units::ZERO, 0);
    }

    /// Counts the usage in the window `window` from now on. The windows of all keys begin at `start`, if they have their own.
    pub(super) fn moved(self, window: u64, start: Option<u64>) -> Self {
        let starts = start.map_or_else(Vec::new, |start| vec![start; self.entries.len()]);
        Self { window, starts, ..self }
    }

    /// Returns the number of the entry of a key.
    pub(super) fn slot(&self, key: ClientKey) -> Option<u32> {
        self.slots.get(&key).copied()
    }

    /// Returns the start of the window of an entry: its own, or that of all.
    pub(super) fn start(&self, slot: u32) -> u64 {
        self.starts.get(slot as usize).copied().unwrap_or(self.window)
    }

    /// Returns the units that a key has used, at most; [`Units::MAX`] of one without a place, while the requests of all others are
    /// in flight.
    pub(super) fn used(&self, key: ClientKey, max_keys: usize) -> Units {
        match self.slot(key) {
            None if self.entries.len() >= max_keys && self.replaceable(key).is_none() => Units::MAX,
            _ => self.counted(key),
        }
    }

    /// Returns the units that a key has used, at most, whether or not it may use more.
    pub(super) fn counted(&self, key: ClientKey) -> Units {
        self.slot(key).map_or(self.floor, |slot| self.used_at(slot))
    }

    /// Returns the units that requests of a key in flight have reserved.
    pub(super) fn reserved(&self, key: ClientKey) -> Units {
        self.slot(key).map_or(Units::ZERO, |slot| self.reserved[slot as usize])
    }

    /// Adds a stored entry. Of two entries of a key, as a power cut may leave, the larger one counts.
    pub(super) fn restore(&mut self, stored: KeyEntry, start: Option<u64>, max_networks: usize) {
        let slot = match self.slot(stored.key) {
            Some(slot) => slot,
            None => self.push(KeyEntry { used: Units::ZERO, ..stored }, start),
        };
        let missing = stored.used.saturating_sub(self.entries[slot as usize].used);
        self.count(slot, missing, max_networks);
    }

    /// Adds units to the usage of a key. Returns the number of its entry, and its usage before, unless the entry is new.
    pub(super) fn add(
        &mut self,
        key: ClientKey,
        units: Units,
        opening: Opening,
        max_keys: usize,
    ) -> (u32, Option<Units>) {
        let known = self.slot(key);
        let earlier = known.map(|slot| self.used_at(slot));
        let slot = match known {
            Some(slot) => slot,
            // Once a key was replaced, a new one may be the same, also after the maximum was raised.
            None if self.entries.len() < max_keys => {
                self.push(KeyEntry { key, used: self.floor.max(opening.used) }, opening.start)
            }
            None => self.replace_by(key, opening),
        };
        self.count(slot, units, max_keys);
        (slot, earlier)
    }

    /// Adds reserved units, which are counted already, to an entry.
    pub(super) fn reserve(&mut self, slot: u32, units: Units) {
        let reserved = &mut self.reserved[slot as usize];
        *reserved = reserved.saturating_add(units);
    }

    /// Replaces reserved units of an entry by the units charged. Returns its usage before, if that has changed.
    pub(super) fn settle(&mut self, slot: u32, reserved: Units, charged: Units) -> Option<Units> {
        let in_flight = &mut self.reserved[slot as usize];
        *in_flight = in_flight.saturating_sub(reserved);
        if reserved == charged {
            return None;
        }
        let settle = |used: &mut Units| *used = used.saturating_sub(reserved).saturating_add(charged);
        let entry = &mut self.entries[slot as usize];
        let earlier = entry.used;
        settle(&mut entry.used);
        if let Some(used) = network(entry.key).and_then(|network| self.used_by_network.get_mut(&network)) {
            settle(used);
        }
        Some(earlier)
    }

    /// Adds an entry. Returns its number.
    fn push(&mut self, entry: KeyEntry, start: Option<u64>) -> u32 {
        let slot = self.entries.len() as u32;
        self.entries.push(entry);
        self.starts.extend(start);
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
    fn replace_by(&mut self, key: ClientKey, opening: Opening) -> u32 {
        let slot = self.replaceable(key).or_else(|| self.candidates(key).min_by_key(|&slot| self.used_at(slot)));
        let slot = slot.unwrap_or_default();
        self.replaced = self.replaced.wrapping_add(1);
        let replaced = self.entries[slot as usize];
        self.floor = self.floor.max(replaced.used);
        self.slots.remove(&replaced.key);
        self.slots.insert(key, slot);
        self.entries[slot as usize] = KeyEntry { key, used: self.floor.max(opening.used) };
        self.reserved[slot as usize] = Units::ZERO;
        if let Some((of_entry, start)) = self.starts.get_mut(slot as usize).zip(opening.start) {
            *of_entry = start;
        }
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

    /// Returns the entry at a place; `None` if it has none.
    pub(super) fn record(&self, place: Place) -> Option<ChangedEntry> {
        ((place.slot as usize) < self.entries.len()).then(|| self.changed(place, None))
    }

    /// Returns the entry at a place, whose usage was `earlier` before.
    pub(super) fn changed(&self, place: Place, earlier: Option<Units>) -> ChangedEntry {
        let entry = self.entries[place.slot as usize];
        ChangedEntry { place, window: self.start(place.slot), entry, earlier, floor: self.floor }
    }
}
