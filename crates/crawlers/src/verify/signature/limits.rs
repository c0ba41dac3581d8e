//! Limits against abuse of signatures: replays, and floods of invalid signatures.

use foldhash::fast::RandomState;
use std::collections::HashSet;
use std::time::Duration;
use tidegate_policy::Timestamp;

/// Number of nonces per generation. Two generations take 2.4 MB when full.
const NONCES_PER_GENERATION: usize = 65_536;

/// Cache of used nonces, for signatures that have one.
///
/// Only nonces of valid signatures are stored, so untrusted clients cannot fill it. When it is full, the older half is
/// evicted; those signatures are then as good as signatures without a nonce until they expire. The alternative, to
/// reject all new nonces, would let one busy agent block the verification of all others.
#[derive(Debug, Default)]
pub(super) struct NonceCache {
    current: HashSet<u64, RandomState>,
    previous: HashSet<u64, RandomState>,
}

impl NonceCache {
    /// Returns true for the first use of `nonce`.
    pub(super) fn is_new(&mut self, nonce: u64) -> bool {
        if self.previous.contains(&nonce) || !self.current.insert(nonce) {
            return false;
        }
        if self.current.len() >= NONCES_PER_GENERATION {
            self.previous = std::mem::take(&mut self.current);
        }
        true
    }
}

/// Number of invalid signatures per client and window. Verification takes longer than the rest of a request.
const MAX_FAILURES: u8 = 8;
const FAILURE_WINDOW: Duration = Duration::from_secs(60);

/// Number of slots for clients. A client replaces another one in its slot.
const MAX_TRACKED_CLIENTS: usize = 4096;

/// Limits failed verifications per client.
#[derive(Debug)]
pub(super) struct FailureLimiter(Box<[FailureSlot]>);

#[derive(Clone, Copy, Debug, Default)]
struct FailureSlot {
    client: u64,
    window_start: Timestamp,
    count: u8,
}

impl Default for FailureLimiter {
    fn default() -> Self {
        Self(vec![FailureSlot::default(); MAX_TRACKED_CLIENTS].into())
    }
}

impl FailureLimiter {
    /// Returns true if `client` has reached the limit.
    pub(super) fn is_limited(&self, client: u64, uptime: Timestamp) -> bool {
        let slot = &self.0[client as usize % MAX_TRACKED_CLIENTS];
        slot.client == client
            && slot.count >= MAX_FAILURES
            && uptime.saturating_duration_since(slot.window_start) < FAILURE_WINDOW
    }

    /// Counts a failed verification.
    pub(super) fn record_failure(&mut self, client: u64, uptime: Timestamp) {
        let slot = &mut self.0[client as usize % MAX_TRACKED_CLIENTS];
        if slot.client != client || uptime.saturating_duration_since(slot.window_start) >= FAILURE_WINDOW {
            *slot = FailureSlot { client, window_start: uptime, count: 0 };
        }
        slot.count = slot.count.saturating_add(1);
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
    fn recent_nonces_are_kept_in_bounded_memory() {
        let mut nonces = NonceCache::default();
        for nonce in 0..10 * NONCES_PER_GENERATION as u64 {
            assert!(nonces.is_new(nonce));
            let last = nonce.saturating_sub(NONCES_PER_GENERATION as u64 - 1);
            assert!(!nonces.is_new(last), "{last} of {nonce}");
        }
        assert!(nonces.current.len() + nonces.previous.len() <= 2 * NONCES_PER_GENERATION);
        assert!(nonces.current.capacity() + nonces.previous.capacity() <= 4 * NONCES_PER_GENERATION);
    }

    #[test]
    fn client_with_many_invalid_signatures_is_limited() {
        let mut limiter = FailureLimiter::default();
        let start = Timestamp::from_seconds(1000);
        for _ in 0..MAX_FAILURES {
            assert!(!limiter.is_limited(7, start));
            limiter.record_failure(7, start);
        }
        assert!(limiter.is_limited(7, start));
        assert!(!limiter.is_limited(8, start), "another client");
        assert!(!limiter.is_limited(7 + MAX_TRACKED_CLIENTS as u64, start), "another client in the same slot");
        assert!(!limiter.is_limited(7, start + FAILURE_WINDOW));
        limiter.record_failure(7, start + FAILURE_WINDOW);
        assert!(!limiter.is_limited(7, start + FAILURE_WINDOW));
    }
}
