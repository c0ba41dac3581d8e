//! Cache of parsed user agents: a few thousand strings are most of a day's traffic.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use super::UserAgentMatcher;
use tidegate_policy::Claim;
use tidegate_policy::bot_detection::BrowserTraits;

/// Claims and browsers of recent user agents, for one worker.
///
/// Each user agent has one slot and replaces the entry before, so the cache does not grow. A flood of invented user
/// agents costs other clients at most another match. An entry holds only a hash of 64 bits with a per-process key, so
/// two user agents are confused about once in 10^16 lookups.
#[derive(Debug)]
pub struct ClaimCache {
    hasher: RandomState,
    slots: Box<[(u64, Claim, BrowserTraits)]>,
}

impl ClaimCache {
    /// Returns an empty cache. `hasher` holds the key of this process.
    pub fn new(hasher: RandomState) -> ClaimCache {
        ClaimCache { hasher, slots: vec![(0, Claim::NoUserAgent, BrowserTraits::default()); SLOTS].into_boxed_slice() }
    }

    /// Returns the results of [`UserAgentMatcher::claim`] and [`UserAgentMatcher::browser_traits`], from the cache if
    /// possible.
    pub fn claim(&mut self, agents: &UserAgentMatcher, user_agent: &[u8]) -> (Claim, BrowserTraits) {
        // Never zero, which marks an empty slot.
        let hash = self.hasher.hash_one(user_agent) | 1;
        let slot = &mut self.slots[(hash >> 32) as usize % SLOTS];
        if slot.0 != hash {
            *slot = (hash, agents.claim(user_agent), UserAgentMatcher::browser_traits(user_agent));
        }
        (slot.1, slot.2)
    }
}

/// Number of slots, a power of two. 4,096 slots of 24 bytes fit a core's second-level cache.
const SLOTS: usize = 4096;
