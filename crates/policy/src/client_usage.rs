//! Units of a window that each client has used, in bounded memory.

use super::identity::{ClientKey, KeyOwner};
use super::units::Units;
use std::collections::HashMap;

/// Usage by client in the current window of a quota. A new window starts without usage.
///
/// A new client never evicts another, so that no client can reset its usage with made-up ones. Clients beyond the
/// maximum count as one client. Usage is also counted by network, because one client may have many addresses in it.
#[derive(Clone, Debug, Default)]
pub struct ClientUsage {
    window: u64,
    used: HashMap<ClientKey, Units>,
    used_by_others: Units,
    /// By [`ClientKey::network`]; at most as many as clients.
    used_by_network: HashMap<u64, Units>,
    max_clients: usize,
}

/// Number of clients whose limits the clients of one network have together.
pub const CLIENTS_OF_NETWORK: u64 = 8;

impl ClientUsage {
    /// Creates the usage of at most `max_clients` clients.
    pub fn new(max_clients: usize) -> Self {
        Self { max_clients, ..Self::default() }
    }

    /// Returns the units of `limit` that a client has used in a window, including reserved ones: its own, or what its
    /// network has used beyond the limits of [`CLIENTS_OF_NETWORK`] less one.
    pub fn used(&self, window: u64, client: ClientKey, limit: Units) -> Units {
        if self.window != window {
            return Units::ZERO;
        }
        let own = match self.used.get(&client) {
            Some(used) => *used,
            None if self.used.len() < self.max_clients => Units::ZERO,
            None => self.used_by_others,
        };
        let of_network = network(client).and_then(|network| self.used_by_network.get(&network));
        let of_others = Units::from_milli(limit.milli().saturating_mul(CLIENTS_OF_NETWORK - 1));
        own.max(of_network.map_or(Units::ZERO, |used| used.saturating_sub(of_others)))
    }

    /// Returns the units that the network of a client has used in a window; those of the client if it has no network.
    pub fn used_by_network(&self, window: u64, client: ClientKey) -> Units {
        self.used(window, client, Units::ZERO)
    }

    /// Adds units reserved for a client, or charged without a reservation. Changes nothing if a later window has begun.
    pub fn reserve(&mut self, window: u64, client: ClientKey, units: Units) {
        if window < self.window {
            return;
        }
        if self.window != window {
            *self = Self { window, ..Self::new(self.max_clients) };
        }
        let used = match self.used.contains_key(&client) || self.used.len() < self.max_clients {
            true => self.used.entry(client).or_default(),
            false => &mut self.used_by_others,
        };
        *used = used.saturating_add(units);
        let Some(network) = network(client) else { return };
        if self.used_by_network.len() < self.max_clients || self.used_by_network.contains_key(&network) {
            let used = self.used_by_network.entry(network).or_default();
            *used = used.saturating_add(units);
        }
    }

    /// Replaces reserved units of a client by the units charged. Changes nothing if the window has ended.
    pub fn settle(&mut self, window: u64, client: ClientKey, reserved: Units, charged: Units) {
        if self.window != window {
            return;
        }
        let settle = |used: &mut Units| *used = used.saturating_sub(reserved).saturating_add(charged);
        settle(self.used.get_mut(&client).unwrap_or(&mut self.used_by_others));
        if let Some(used) = network(client).and_then(|network| self.used_by_network.get_mut(&network)) {
            settle(used);
        }
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

    /// Limit that the usage of a network does not reach.
    const LIMIT: Units = units(1000);

    /// Returns a client in a network of its own.
    fn client(number: u64) -> ClientKey {
        ClientKey::from_u64(number << 8)
    }

    #[test]
    fn usage_is_of_one_client_and_one_window() {
        let mut usage = ClientUsage::new(8);
        usage.reserve(1, client(1), units(3));
        usage.reserve(1, client(1), units(2));
        usage.reserve(1, client(2), units(7));
        assert_eq!([1, 2, 3].map(|number| usage.used(1, client(number), LIMIT)), [units(5), units(7), Units::ZERO]);
        assert_eq!(usage.used(2, client(1), LIMIT), Units::ZERO, "another window");
        usage.settle(1, client(1), units(3), units(1));
        assert_eq!(usage.used(1, client(1), LIMIT), units(3));
        usage.reserve(1, client(3), units(4));
        assert_eq!([2, 3].map(|number| usage.used(1, client(number), LIMIT)), [units(7), units(4)]);

        usage.reserve(2, client(2), units(1));
        assert_eq!([1, 2].map(|number| usage.used(2, client(number), LIMIT)), [Units::ZERO, units(1)]);
        usage.settle(1, client(2), units(7), Units::ZERO);
        assert_eq!(usage.used(2, client(2), LIMIT), units(1), "the window has ended");
        usage.reserve(1, client(2), units(7));
        assert_eq!(usage.used(2, client(2), LIMIT), units(1), "the window has ended");
    }

    #[test]
    fn clients_beyond_the_maximum_share_one_usage() {
        let mut usage = ClientUsage::new(2);
        for number in 1..=4 {
            usage.reserve(1, client(number), units(number));
        }
        let used = [1, 2, 3, 4, 5].map(|number| usage.used(1, client(number), LIMIT));
        assert_eq!(used, [units(1), units(2), units(7), units(7), units(7)]);
        usage.settle(1, client(4), units(4), units(1));
        assert_eq!([3, 1].map(|number| usage.used(1, client(number), LIMIT)), [units(4), units(1)]);
    }

    #[test]
    fn clients_of_one_network_share_the_limits_of_eight() {
        let mut usage = ClientUsage::new(1000);
        let limit = units(10);
        let in_network = |number: u64| ClientKey::from_u64(7 << 8 | number);
        for number in 0..7 {
            usage.reserve(1, in_network(number), limit);
            usage.settle(1, in_network(number), limit, limit);
        }
        assert_eq!(usage.used(1, in_network(200), limit), Units::ZERO);
        usage.reserve(1, in_network(7), units(4));
        assert_eq!([7, 200].map(|number| usage.used(1, in_network(number), limit)), [units(4), units(4)]);
        usage.reserve(1, in_network(8), units(6));
        assert_eq!(usage.used(1, in_network(200), limit), limit, "nothing is left for further addresses");
        usage.settle(1, in_network(8), units(6), Units::ZERO);
        assert_eq!(usage.used(1, in_network(200), limit), units(4));
        assert_eq!(usage.used(1, client(3), limit), Units::ZERO, "another network");
        let credential = ClientKey::from_credential(1);
        (0..9).for_each(|_| usage.reserve(1, credential, limit));
        assert_eq!(usage.used(1, ClientKey::from_credential(2), limit), Units::ZERO, "a credential has no network");
    }

    proptest! {
        /// Each client has used what was reserved and charged for it, whatever the others do.
        #[test]
        fn usage_is_the_sum_of_a_clients_charges(
            requests in prop::collection::vec((0_u64..5, 0_u64..4, 0_u64..6), 0..60),
        ) {
            let (mut usage, mut expected) = (ClientUsage::new(5), [0_u64; 5]);
            for (number, reserved, charged) in requests {
                usage.reserve(9, client(number), units(reserved));
                usage.settle(9, client(number), units(reserved), units(charged));
                expected[number as usize] += charged;
            }
            for (number, expected) in expected.into_iter().enumerate() {
                prop_assert_eq!(usage.used(9, client(number as u64), LIMIT), units(expected));
            }
        }
    }
}
