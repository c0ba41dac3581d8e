//! Counts open connections per client address, if the settings limit them. IPv6 addresses are grouped by prefix, like
//! clients: the owner of a prefix has billions of addresses.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroUsize;
use std::sync::Arc;
use tidegate_policy::identity::ClientKey;

/// Open connections by address. The number of entries is at most the number of connections. Clones share them.
#[derive(Clone, Default)]
pub(in crate::gateway) struct ConnectionCounts(Arc<Mutex<HashMap<ClientKey, usize, foldhash::fast::RandomState>>>);

/// A connection counted for an address, until dropped.
#[must_use]
pub(in crate::gateway) struct AddressGuard {
    counts: ConnectionCounts,
    address: ClientKey,
}

impl ConnectionCounts {
    /// Counts a connection from `address`; `None` if the address has `max` already.
    pub(in crate::gateway) fn try_add(&self, address: ClientKey, max: NonZeroUsize) -> Option<AddressGuard> {
        let mut open = self.0.lock();
        let count = open.get(&address).copied().unwrap_or(0);
        if count >= max.get() {
            return None;
        }
        open.insert(address, count + 1);
        Some(AddressGuard { counts: self.clone(), address })
    }
}

impl Drop for AddressGuard {
    fn drop(&mut self) {
        if let Entry::Occupied(mut open) = self.counts.0.lock().entry(self.address) {
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
        let [first, second, third] = [(); 3].map(|()| counts.try_add(key, two));
        assert!(first.is_some() && second.is_some() && third.is_none());
        drop(first);
        let again = counts.try_add(key, two);
        assert!(again.is_some());
        drop((second, again));
        assert!(counts.0.lock().is_empty());
    }
}
