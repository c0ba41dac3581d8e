//! Remembers what recent user agents claimed: a few thousand strings are most of a day's traffic.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use super::UserAgentMatcher;
use crate::policy::Claim;
use crate::policy::bot_detection::BrowserTraits;

/// The claims of user agents seen lately, and the browsers they name, for one worker.
///
/// Each user agent has one place, and the last to want it has it: nothing grows, and a flood of made-up user agents
/// costs others at most a second look. Only the hash is kept, 64 bits with a key that no client knows, so two user
/// agents are taken for one another about once in 10^16 looks.
#[derive(Debug)]
pub struct ClaimCache {
    hasher: RandomState,
    slots: Box<[(u64, Claim, BrowserTraits)]>,
}

impl ClaimCache {
    /// Returns an empty cache; `hasher` holds the key of this process.
    pub fn new(hasher: RandomState) -> ClaimCache {
        ClaimCache { hasher, slots: vec![(0, Claim::NoUserAgent, BrowserTraits::default()); SLOTS].into_boxed_slice() }
    }

    /// Returns what [`UserAgentMatcher::claim`] and [`UserAgentMatcher::browser`] would.
    pub fn claim(&mut self, agents: &UserAgentMatcher, user_agent: &[u8]) -> (Claim, BrowserTraits) {
        // Never zero, which marks an empty place.
        let hash = self.hasher.hash_one(user_agent) | 1;
        let place = &mut self.slots[(hash >> 32) as usize % SLOTS];
        if place.0 != hash {
            *place = (hash, agents.claim(user_agent), UserAgentMatcher::browser(user_agent));
        }
        (place.1, place.2)
    }
}

/// A power of two; 4,096 places of 24 bytes fit a core's second-level cache.
const SLOTS: usize = 4096;
