//! Counts open connections per client address, if the settings limit them. IPv6 addresses are grouped by prefix, like
//! clients: the owner of a prefix has billions of addresses.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroUsize;
use tidegate_policy::identity::ClientKey;

/// Open connections by address. The number of entries is at most the number of connections.
#[derive(Default)]
pub(super) struct ConnectionCounts(Mutex<HashMap<ClientKey, usize, foldhash::fast::RandomState>>);

impl ConnectionCounts {
    /// Counts a connection from `address`. Returns false, without counting it, if the address has `max` already.
    pub(super) fn try_acquire(&self, address: ClientKey, max: NonZeroUsize) -> bool {
        let mut open = self.0.lock();
        let count = open.get(&address).copied().unwrap_or(0);
        if count >= max.get() {
            return false;
        }
        open.insert(address, count + 1);
        true
    }

    /// Releases a counted connection.
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
    use tidegate_policy::identity::ProxyTrust;

    #[test]
    fn disconnected_address_leaves_no_entry() {
        let counts = ConnectionCounts::default();
        let key = ProxyTrust::default().key([192, 0, 2, 1].into());
        let two = NonZeroUsize::new(2).expect("nonzero");
        assert_eq!([0; 3].map(|_| counts.try_acquire(key, two)), [true, true, false]);
        counts.release(key);
        assert!(counts.try_acquire(key, two));
        counts.release(key);
        counts.release(key);
        assert!(counts.0.lock().is_empty());
    }
}
