//! Units of a window that each client has used, in bounded memory.

use super::identity::ClientKey;
use super::units::Units;
use std::collections::HashMap;

/// Usage by client in the current window of a quota. A new window starts without usage.
///
/// A new client never evicts another, so that no client can reset its usage with made-up ones. Clients beyond the
/// maximum count as one client.
#[derive(Clone, Debug, Default)]
pub struct ClientUsage {
    window: u64,
    used: HashMap<ClientKey, Units>,
    used_by_others: Units,
    max_clients: usize,
}

impl ClientUsage {
    /// Creates the usage of at most `max_clients` clients.
    pub fn new(max_clients: usize) -> Self {
        Self { max_clients, ..Self::default() }
    }

    /// Returns the units that a client has used in a window, including reserved ones.
    pub fn used(&self, window: u64, client: ClientKey) -> Units {
        match self.used.get(&client) {
            _ if self.window != window => Units::ZERO,
            Some(used) => *used,
            None if self.used.len() < self.max_clients => Units::ZERO,
            None => self.used_by_others,
        }
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
    }

    /// Replaces reserved units of a client by the units charged. Changes nothing if the window has ended.
    pub fn settle(&mut self, window: u64, client: ClientKey, reserved: Units, charged: Units) {
        if self.window == window {
            let used = self.used.get_mut(&client).unwrap_or(&mut self.used_by_others);
            *used = used.saturating_sub(reserved).saturating_add(charged);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn units(whole: u64) -> Units {
        Units::from_whole(whole)
    }

    fn client(number: u64) -> ClientKey {
        ClientKey::from_u64(number)
    }

    #[test]
    fn usage_is_of_one_client_and_one_window() {
        let mut usage = ClientUsage::new(8);
        usage.reserve(1, client(1), units(3));
        usage.reserve(1, client(1), units(2));
        usage.reserve(1, client(2), units(7));
        assert_eq!([1, 2, 3].map(|number| usage.used(1, client(number))), [units(5), units(7), Units::ZERO]);
        assert_eq!(usage.used(2, client(1)), Units::ZERO, "another window");
        usage.settle(1, client(1), units(3), units(1));
        assert_eq!(usage.used(1, client(1)), units(3));
        usage.reserve(1, client(3), units(4));
        assert_eq!([2, 3].map(|number| usage.used(1, client(number))), [units(7), units(4)]);

        usage.reserve(2, client(2), units(1));
        assert_eq!([1, 2].map(|number| usage.used(2, client(number))), [Units::ZERO, units(1)]);
        usage.settle(1, client(2), units(7), Units::ZERO);
        assert_eq!(usage.used(2, client(2)), units(1), "the window has ended");
        usage.reserve(1, client(2), units(7));
        assert_eq!(usage.used(2, client(2)), units(1), "the window has ended");
    }

    #[test]
    fn clients_beyond_the_maximum_share_one_usage() {
        let mut usage = ClientUsage::new(2);
        for number in 1..=4 {
            usage.reserve(1, client(number), units(number));
        }
        let used = [1, 2, 3, 4, 5].map(|number| usage.used(1, client(number)));
        assert_eq!(used, [units(1), units(2), units(7), units(7), units(7)]);
        usage.settle(1, client(4), units(4), units(1));
        assert_eq!([3, 1].map(|number| usage.used(1, client(number))), [units(4), units(1)]);
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
                prop_assert_eq!(usage.used(9, client(number as u64)), units(expected));
            }
        }
    }
}
