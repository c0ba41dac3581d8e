//! What must not be done with signatures: use one twice, or have us check wrong ones all day.

use crate::policy::Timestamp;
use foldhash::fast::RandomState;
use std::collections::HashSet;
use std::time::Duration;

/// Nonces of one generation, of which there are two: 2.4 MB when both are full.
const NONCES: usize = 65_536;

/// The signatures that were used, as far as they say that they are for one use.
///
/// Only those that verify are remembered, so strangers cannot fill it. When it is full the older half is forgotten: those
/// signatures are then as good as ones without a nonce until they expire. The other way, to believe nobody new, would let
/// one busy agent take the proof from all others.
#[derive(Debug, Default)]
pub(super) struct NonceCache {
    young: HashSet<u64, RandomState>,
    old: HashSet<u64, RandomState>,
}

impl NonceCache {
    /// True the first time that `nonce` comes.
    pub(super) fn is_new(&mut self, nonce: u64) -> bool {
        if self.old.contains(&nonce) || !self.young.insert(nonce) {
            return false;
        }
        if self.young.len() >= NONCES {
            self.old = std::mem::take(&mut self.young);
        }
        true
    }
}

/// Wrong signatures that a client is allowed in a window: checking one takes longer than all else about a request.
const MAX_FAILURES: u8 = 8;
const WINDOW: Duration = Duration::from_secs(60);

/// Clients that are looked after at once; two that meet in a place are told apart, and the later one has it.
const MAX_TRACKED_CLIENTS: usize = 4096;

/// Who has sent wrong signatures lately.
#[derive(Debug)]
pub(super) struct FailureLimiter(Box<[Place]>);

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    client: u64,
    since: Timestamp,
    count: u8,
}

impl Default for FailureLimiter {
    fn default() -> Self {
        Self(vec![Place::default(); MAX_TRACKED_CLIENTS].into())
    }
}

impl FailureLimiter {
    /// True where `client` has had its share.
    pub(super) fn is_limited(&self, client: u64, uptime: Timestamp) -> bool {
        let place = &self.0[client as usize % MAX_TRACKED_CLIENTS];
        place.client == client && place.count >= MAX_FAILURES && uptime.saturating_duration_since(place.since) < WINDOW
    }

    /// Counts one more.
    pub(super) fn record_failure(&mut self, client: u64, uptime: Timestamp) {
        let place = &mut self.0[client as usize % MAX_TRACKED_CLIENTS];
        if place.client != client || uptime.saturating_duration_since(place.since) >= WINDOW {
            *place = Place { client, since: uptime, count: 0 };
        }
        place.count = place.count.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_new_once() {
        let mut nonces = NonceCache::default();
        assert!(nonces.is_new(1));
        assert!(!nonces.is_new(1));
        assert!(nonces.is_new(2));
    }

    #[test]
    fn the_last_nonces_are_remembered_and_memory_is_bounded() {
        let mut nonces = NonceCache::default();
        for nonce in 0..10 * NONCES as u64 {
            assert!(nonces.is_new(nonce));
            let last = nonce.saturating_sub(NONCES as u64 - 1);
            assert!(!nonces.is_new(last), "{last} of {nonce}");
        }
        assert!(nonces.young.len() + nonces.old.len() <= 2 * NONCES);
        assert!(nonces.young.capacity() + nonces.old.capacity() <= 4 * NONCES);
    }

    #[test]
    fn a_client_with_too_many_wrong_signatures_is_not_listened_to_for_a_while() {
        let mut wrong = FailureLimiter::default();
        let start = Timestamp::from_seconds(1000);
        for _ in 0..MAX_FAILURES {
            assert!(!wrong.is_limited(7, start));
            wrong.record_failure(7, start);
        }
        assert!(wrong.is_limited(7, start));
        assert!(!wrong.is_limited(8, start), "another client");
        assert!(!wrong.is_limited(7 + MAX_TRACKED_CLIENTS as u64, start), "another client in the same place");
        assert!(!wrong.is_limited(7, start + WINDOW));
        wrong.record_failure(7, start + WINDOW);
        assert!(!wrong.is_limited(7, start + WINDOW));
    }
}
