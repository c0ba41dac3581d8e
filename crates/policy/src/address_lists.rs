//! Address lists: finds the configured lists that contain an address.

use super::ids::ListId;
use super::network::{IpPrefix, canonical};
use super::network_table::NetworkTable;
use std::net::IpAddr;

/// Set of address lists, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListSet(u64);

/// The networks of all address lists.
#[derive(Clone, Debug, Default)]
pub struct AddressLists {
    networks: NetworkTable<ListSet>,
    network_counts: Vec<usize>,
}

impl ListSet {
    /// Creates a set from list ids.
    pub fn from_ids(lists: impl IntoIterator<Item = ListId>) -> Self {
        Self(lists.into_iter().fold(0, |bits, list| bits | 1 << list.0))
    }

    /// Returns true if the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the first list that is in both sets, if any.
    pub fn first_common(self, other: Self) -> Option<ListId> {
        let common = self.0 & other.0;
        (common != 0).then(|| ListId(common.trailing_zeros() as u8))
    }
}

impl AddressLists {
    /// Maximum number of lists.
    pub const MAX_LISTS: usize = 64;

    /// Builds the table from the networks of all lists, in the order of their ids. Ignores lists beyond the 64th.
    pub fn new(lists: &[Vec<IpPrefix>]) -> Self {
        let networks = lists
            .iter()
            .zip((0..).map(ListId))
            .take(Self::MAX_LISTS)
            .flat_map(|(networks, list)| networks.iter().map(move |network| (network.bounds(), list)));
        Self {
            networks: NetworkTable::new(networks, |lists| ListSet::from_ids(lists.iter().copied())),
            network_counts: lists.iter().map(Vec::len).collect(),
        }
    }

    /// Returns the lists that contain `address`.
    pub fn lookup(&self, address: IpAddr) -> ListSet {
        self.networks.get(canonical(address)).copied().unwrap_or_default()
    }

    /// Returns the number of networks of each list.
    pub fn network_counts(&self) -> &[usize] {
        &self.network_counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn networks(text: &str) -> Vec<IpPrefix> {
        text.lines().map(|line| IpPrefix::parse(line).expect("a network")).collect()
    }

    fn lists_containing(lists: &AddressLists, address: &str) -> Vec<u8> {
        let matching = lists.lookup(address.parse().expect("valid address"));
        (0..64).filter(|&list| matching.first_common(ListSet::from_ids([ListId(list)])).is_some()).collect()
    }

    #[test]
    fn address_is_on_the_list_of_its_network() {
        let lists = AddressLists::new(&[networks(
            "192.0.2.0/24\n198.51.100.7\n2001:db8::/32\n10.1.2.3/8\n::ffff:203.0.113.0/120",
        )]);
        for inside in
            ["192.0.2.255", "198.51.100.7", "2001:db8:ffff::1", "10.255.0.1", "::ffff:192.0.2.1", "203.0.113.9"]
        {
            assert_eq!(lists_containing(&lists, inside), [0], "{inside}");
        }
        for outside in ["192.0.3.0", "198.51.100.8", "2001:db9::", "11.0.0.0", "::1"] {
            assert!(lists_containing(&lists, outside).is_empty(), "{outside}");
        }
        assert_eq!(lists.network_counts(), [5]);
    }

    #[test]
    fn address_can_be_on_several_lists() {
        let lists = AddressLists::new(&[
            networks("0.0.0.0/0\n::/0"),
            networks("10.0.0.0/8\n10.0.0.0/9\n10.0.0.0/8"),
            networks("10.0.0.0/16\n10.1.0.0/16\n255.255.255.255"),
        ]);
        assert_eq!(lists_containing(&lists, "10.1.2.3"), [0, 1, 2]);
        assert_eq!(lists_containing(&lists, "10.2.0.0"), [0, 1]);
        assert_eq!(lists_containing(&lists, "255.255.255.255"), [0, 2]);
        assert_eq!(lists_containing(&lists, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), [0]);
        assert_eq!(lists_containing(&lists, "0.0.0.0"), [0]);
        assert_eq!(lists_containing(&AddressLists::default(), "10.1.2.3"), [0u8; 0]);
    }

    proptest! {
        #[test]
        fn interval_table_agrees_with_the_networks(
            entries in proptest::collection::vec((any::<u32>(), 0..=32_u8, 0..3_usize), 0..60),
            addresses in proptest::collection::vec(any::<u32>(), 20),
        ) {
            let mut networks = vec![Vec::new(); 3];
            for &(address, length, list) in &entries {
                networks[list].extend(IpPrefix::new(IpAddr::V4(address.into()), length));
            }
            let lists = AddressLists::new(&networks);
            // Interval edges, where off-by-one errors would show.
            let edges = entries.iter().flat_map(|&(address, ..)| [address, address.wrapping_add(1), address.wrapping_sub(1)]);
            for address in addresses.iter().copied().chain(edges) {
                let address = IpAddr::V4(address.into());
                let expected = (0..3).filter(|&list: &usize| networks[list].iter().any(|network| network.contains(address)));
                prop_assert_eq!(lists.lookup(address), ListSet::from_ids(expected.map(ListId::from_index)));
            }
        }
    }
}
