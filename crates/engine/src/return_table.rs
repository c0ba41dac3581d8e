//! Clients that were asked to come back: none of them is asked twice in a minute, so that a browser without cookies does
//! not reload for ever.

use std::sync::atomic::{AtomicU64, Ordering};

/// Table of the clients that were asked to come back last, of fixed size. A client that loses its place to another one may
/// be asked once more.
pub struct ReturnTable(Box<[AtomicU64]>);

/// Number of places. 64 KiB hold those of a busy minute.
const PLACES: usize = 8192;

/// Time for which a client is not asked again, in seconds.
const INTERVAL_S: u32 = 60;

impl Default for ReturnTable {
    fn default() -> Self {
        Self((0..PLACES).map(|_| AtomicU64::default()).collect())
    }
}

impl ReturnTable {
    /// Returns true if the client with this hash, keyed per process, may be asked to come back, and remembers that it was.
    pub fn admit(&self, client: u64, now_s: u32) -> bool {
        let place = &self.0[client as usize % PLACES];
        let tag = client >> 32;
        let asked = place.load(Ordering::Relaxed);
        let was_asked = asked >> 32 == tag && now_s.wrapping_sub(asked as u32) < INTERVAL_S;
        if !was_asked {
            place.store(tag << 32 | u64::from(now_s), Ordering::Relaxed);
        }
        !was_asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_asked_once_a_minute() {
        let table = ReturnTable::default();
        let (client, neighbor) = (0x1234_5678_0000_0001, 0x1234_5678_0000_0002);
        assert!(table.admit(client, 1000));
        assert!(!table.admit(client, 1002));
        assert!(!table.admit(client, 1059), "a repeated request does not extend the time");
        assert!(table.admit(neighbor, 1002));
        assert!(table.admit(client, 1060));
    }
}
