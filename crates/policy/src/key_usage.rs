//! Units of a window that each key has used, in bounded memory.
//!
//! A new key takes the place of one with little usage once the table is full, and begins with the highest usage that any such
//! key had (Metwally et al., "Efficient computation of frequent and top-k elements in data streams", 2005). So the usage of no
//! key is counted too low, and made-up keys use up the units of other clients only as far as they cost units themselves.

use super::identity::{ClientKey, KeyOwner};
use super::units::Units;
use std::collections::HashMap;

/// Usage by key in the current window of a quota. A new window starts without usage.
///
/// Usage is also counted by network, because one client may have many addresses in it.
#[derive(Clone, Debug, Default)]
pub struct KeyUsage {
    window: u64,
    entries: Vec<KeyEntry>,
    slots: HashMap<ClientKey, u32>,
    /// Usage of a key without an entry, at most.
    floor: Units,
    /// By [`ClientKey::network`]; at most as many as keys.
    used_by_network: HashMap<u64, Units>,
    max_keys: usize,
    /// Number of keys that took the place of others in this window.
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

/// An entry that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedEntry {
    /// Place of the entry in the table.
    pub slot: u32,
    /// Id of the window.
    pub window: u64,
    /// The entry.
    pub entry: KeyEntry,
    /// Usage of a key without an entry, at most.
    pub floor: Units,
}

/// Number of clients whose limits the clients of one network have together.
pub const CLIENTS_OF_NETWORK: u64 = 8;

/// Number of entries among which the one with the least usage makes room for a new key.
const CANDIDATES: u32 = 32;

/// Odd number close to the golden ratio of 2^32: multiples of it are spread evenly over the table.
const STRIDE: u32 = 0x9e37_79b1;

impl KeyUsage {
    /// Creates the usage of at most `max_keys` keys.
    pub fn new(max_keys: usize) -> Self {
        Self { max_keys: max_keys.clamp(1, u32::MAX as usize), ..Self::default() }
    }

    /// Restores the usage from the entries that were stored. Entries of earlier windows than the latest are not used any more.
    pub fn restore(max_keys: usize, stored: impl IntoIterator<Item = ChangedEntry>) -> Self {
        let mut usage = Self::new(max_keys);
        for ChangedEntry { window, entry, floor, .. } in stored {
            if usage.begin(window) {
                usage.floor = usage.floor.max(floor);
                usage.add(entry.key, entry.used);
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
        if self.window == window { self.entries.len() } else { 0 }
    }

    /// Returns the id of the window that is counted.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Iterates over the entries of the window that is counted, in the order of their places.
    pub fn records(&self) -> impl Iterator<Item = ChangedEntry> {
        (0..self.entries.len() as u32).map(|slot| self.changed(slot))
    }

    /// Returns the entry at a place; `None` if it has none.
    pub fn record(&self, slot: u32) -> Option<ChangedEntry> {
        ((slot as usize) < self.entries.len()).then(|| self.changed(slot))
    }

    /// Returns the units that a key has used in a window, including reserved ones.
    pub fn used(&self, window: u64, key: ClientKey) -> Units {
        // A clock that was set back does not give back units of the later window.
        if self.window < window {
            return Units::ZERO;
        }
        self.slots.get(&key).map_or(self.absent_usage(), |&slot| self.entries[slot as usize].used)
    }

    /// Returns the units of `limit` that a client has used in a window, including reserved ones: its own, or what its
    /// network has used beyond the limits of [`CLIENTS_OF_NETWORK`] less one.
    pub fn used_by_client(&self, window: u64, client: ClientKey, limit: Units) -> Units {
        let own = self.used(window, client);
        if self.window < window {
            return own;
        }
        let of_network = network(client).and_then(|network| self.used_by_network.get(&network));
        let of_others = Units::from_milli(limit.milli().saturating_mul(CLIENTS_OF_NETWORK - 1));
        own.max(of_network.map_or(Units::ZERO, |used| used.saturating_sub(of_others)))
    }

    /// Returns the units that the network of a client has used in a window; those of the client if it has no network.
    pub fn used_by_network(&self, window: u64, client: ClientKey) -> Units {
        self.used_by_client(window, client, Units::ZERO)
    }

    /// Adds units reserved at a decision. If a later window was counted because the clock was set back, they count in that.
    pub fn reserve(&mut self, window: u64, key: ClientKey, units: Units) -> ChangedEntry {
        self.begin(window.max(self.window));
        self.add(key, units)
    }

    /// Adds units charged without a reservation. Changes nothing if the window has ended.
    pub fn charge(&mut self, window: u64, key: ClientKey, units: Units) -> Option<ChangedEntry> {
        self.begin(window).then(|| self.add(key, units))
    }

    /// Replaces reserved units of a key by the units charged. Changes nothing if the window has ended.
    pub fn settle(&mut self, window: u64, key: ClientKey, reserved: Units, charged: Units) -> Option<ChangedEntry> {
        if self.window != window || reserved == charged {
            return None;
        }
        let settle = |used: &mut Units| *used = used.saturating_sub(reserved).saturating_add(charged);
        match self.slots.get(&key) {
            Some(&slot) => {
                settle(&mut self.entries[slot as usize].used);
                if let Some(used) = network(key).and_then(|network| self.used_by_network.get_mut(&network)) {
                    settle(used);
                }
                Some(self.changed(slot))
            }
            // What its place in the table was given away with includes the reservation.
            None if charged > reserved => Some(self.add(key, charged.saturating_sub(reserved))),
            None => None,
        }
    }

    /// Begins to count `window`, unless a later one has begun. Returns true if it is the one that is counted.
    fn begin(&mut self, window: u64) -> bool {
        if window > self.window {
            self.window = window;
            self.entries.clear();
            self.slots.clear();
            self.used_by_network.clear();
            (self.floor, self.replaced) = (Units::ZERO, 0);
        }
        window == self.window
    }

    fn absent_usage(&self) -> Units {
        if self.entries.len() < self.max_keys { Units::ZERO } else { self.floor }
    }

    fn add(&mut self, key: ClientKey, units: Units) -> ChangedEntry {
        let slot = match self.slots.get(&key) {
            Some(&slot) => slot,
            None if self.entries.len() < self.max_keys => {
                self.entries.push(KeyEntry { key, used: Units::ZERO });
                self.slots.insert(key, self.entries.len() as u32 - 1);
                self.entries.len() as u32 - 1
            }
            None => self.replace_by(key),
        };
        let used = &mut self.entries[slot as usize].used;
        *used = used.saturating_add(units);
        if let Some(network) = network(key)
            && (self.used_by_network.len() < self.max_keys || self.used_by_network.contains_key(&network))
        {
            let used = self.used_by_network.entry(network).or_default();
            *used = used.saturating_add(units);
        }
        self.changed(slot)
    }

    /// Gives the place of the key with the least usage of some to `key`. Returns the place.
    fn replace_by(&mut self, key: ClientKey) -> u32 {
        let count = self.entries.len() as u64;
        let candidates = (0..CANDIDATES).map(|number| {
            let hash = self.replaced.wrapping_mul(CANDIDATES).wrapping_add(number).wrapping_mul(STRIDE);
            ((u64::from(hash) * count) >> 32) as u32
        });
        let slot = candidates.min_by_key(|&slot| self.entries[slot as usize].used).unwrap_or_default();
        self.replaced = self.replaced.wrapping_add(1);
        let replaced = self.entries[slot as usize];
        self.floor = self.floor.max(replaced.used);
        self.slots.remove(&replaced.key);
        self.slots.insert(key, slot);
        self.entries[slot as usize] = KeyEntry { key, used: self.floor };
        slot
    }

    fn changed(&self, slot: u32) -> ChangedEntry {
        ChangedEntry { slot, window: self.window, entry: self.entries[slot as usize], floor: self.floor }
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
        assert_eq!(usage.settle(1, client(2), units(7), Units::ZERO), None, "the window has ended");
        assert_eq!(usage.charge(1, client(2), units(7)), None, "the window has ended");
        assert_eq!((usage.used(2, client(2)), usage.len(2), usage.len(3)), (units(1), 1, 0));
    }

    #[test]
    fn clock_that_is_set_back_gives_no_units_back() {
        let mut usage = KeyUsage::new(8);
        usage.reserve(2, client(1), units(5));
        assert_eq!(usage.used(1, client(1)), units(5));
        usage.reserve(1, client(1), units(2));
        assert_eq!(usage.used(2, client(1)), units(7));
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
            assert!(usage.entries.len() <= 1000 && usage.slots.len() <= 1000);
        }
        // Each made-up key replaces another one, whose usage it inherits: about 125 units for each of the 800 entries.
        let begins_with = usage.used(1, key(999_999_999));
        assert!(begins_with < units(200), "{begins_with}");
        for number in 0..CUSTOMERS {
            assert_eq!(usage.used(1, key(number)), units(500));
        }
    }

    #[test]
    fn usage_is_restored_from_its_changes() {
        let mut usage = KeyUsage::new(40);
        let mut stored = HashMap::new();
        let key = ClientKey::from_credential;
        for number in 0..100 {
            let changed = usage.reserve(7, key(number % 60), units(number % 5));
            stored.insert(changed.slot, changed);
        }
        stored.insert(40, ChangedEntry { slot: 40, window: 6, ..stored[&0] });
        let restored = KeyUsage::restore(40, stored.into_values());
        for number in 0..60 {
            assert_eq!(restored.used(7, key(number)), usage.used(7, key(number)), "{number}");
        }
        assert_eq!(restored.window(), 7);
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
                prop_assert!(usage.entries.len() <= max_keys);
            }
        }
    }
}
