//! How many connections each address has open, where the settings set a bound. Addresses are told apart as clients are:
//! who owns an IPv6 prefix owns billions of addresses.

use crate::policy::identity::ClientKey;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroUsize;

/// Open connections by address. It never has more entries than there are connections.
#[derive(Default)]
pub(super) struct ConnectionCounts(Mutex<HashMap<ClientKey, usize, foldhash::fast::RandomState>>);

impl ConnectionCounts {
    /// Counts one more connection from `address`; false, and nothing counted, where it has `most` already.
    pub(super) fn try_acquire(&self, address: ClientKey, most: NonZeroUsize) -> bool {
        let mut open = self.0.lock();
        let count = open.get(&address).copied().unwrap_or(0);
        if count >= most.get() {
            return false;
        }
        open.insert(address, count + 1);
        true
    }

    /// Counts one that had entered out again.
    pub(super) fn release(&self, address: ClientKey) {
        if let Entry::Occupied(mut open) = self.0.lock().entry(address) {
            *open.get_mut() -= 1;
            if *open.get() == 0 {
                open.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::identity::ProxyTrust;

    #[test]
    fn an_address_that_has_left_leaves_nothing_behind() {
        let neighbours = ConnectionCounts::default();
        let key = ProxyTrust::default().key([192, 0, 2, 1].into());
        let two = NonZeroUsize::new(2).expect("two is not zero");
        assert_eq!([0; 3].map(|_| neighbours.try_acquire(key, two)), [true, true, false]);
        neighbours.release(key);
        assert!(neighbours.try_acquire(key, two));
        neighbours.release(key);
        neighbours.release(key);
        assert!(neighbours.0.lock().is_empty());
    }
}
