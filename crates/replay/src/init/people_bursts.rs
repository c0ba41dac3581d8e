//! Burst of the bucket of people: how many pages they open at once.

use foldhash::fast::FixedState;
use std::collections::HashMap;
use tidegate_policy::Timestamp;
use tidegate_policy::identity::ClientKey;

/// Pages per second that the bucket of people refills: more than a person reads.
pub(super) const PAGES_PER_SECOND: f64 = 1.0;

/// Bounds of the proposed burst. An undetected bot must not raise it for all clients.
const MIN_BURST: f64 = 20.0;
const MAX_BURST: f64 = 300.0;

/// Maximum number of people that are counted.
const MAX_PEOPLE: usize = 1_000_000;

/// Tokens that each person takes at once from a bucket that is large enough.
#[derive(Debug, Default)]
pub(super) struct PeopleBursts(HashMap<ClientKey, BucketUse, FixedState>);

#[derive(Clone, Copy, Debug)]
struct BucketUse {
    taken: f64,
    max_taken: f64,
    at: Timestamp,
}

/// Burst that all but one of a thousand people stay below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeopleBurst {
    /// Proposed burst, in pages.
    pub(super) pages: u64,
    /// Burst that was needed, in pages.
    pub(super) needed: u64,
    /// Number of people.
    pub(super) people: u64,
}

impl PeopleBursts {
    /// Records a page of a person.
    pub(super) fn add(&mut self, client: ClientKey, now: Timestamp) {
        if self.0.len() >= MAX_PEOPLE && !self.0.contains_key(&client) {
            return;
        }
        let bucket = self.0.entry(client).or_insert(BucketUse { taken: 0.0, max_taken: 0.0, at: now });
        let refilled = now.saturating_duration_since(bucket.at).as_secs_f64() * PAGES_PER_SECOND;
        bucket.taken = (bucket.taken - refilled).max(0.0) + 1.0;
        bucket.max_taken = bucket.max_taken.max(bucket.taken);
        bucket.at = now;
    }

    /// Returns the burst; `None` if there were no people.
    pub(super) fn burst(&self) -> Option<PeopleBurst> {
        let mut bursts: Vec<f64> = self.0.values().map(|bucket| bucket.max_taken).collect();
        bursts.sort_by(|one, other| other.total_cmp(one));
        let needed = *bursts.get(bursts.len() / 1000)?;
        // Rounded up to tens.
        let pages = (needed.clamp(MIN_BURST, MAX_BURST) / 10.0).ceil() * 10.0;
        Some(PeopleBurst { pages: pages as u64, needed: needed.ceil() as u64, people: bursts.len() as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const NOON: Timestamp = Timestamp::from_seconds(1_800_000_000);

    #[test]
    fn burst_is_what_all_but_one_of_a_thousand_people_need() {
        let mut bursts = PeopleBursts::default();
        assert_eq!(bursts.burst(), None);
        for person in 0..1999 {
            for page in 0..24 {
                bursts.add(ClientKey::from_u64(person), NOON + Duration::from_millis(500 * page));
            }
        }
        // 24 pages in 11.5 seconds, of which 11.5 are refilled.
        assert_eq!(bursts.burst(), Some(PeopleBurst { pages: 20, needed: 13, people: 1999 }));
        (0..5000).for_each(|_| bursts.add(ClientKey::from_u64(5000), NOON));
        assert_eq!(bursts.burst().map(|burst| burst.needed), Some(13), "two of 2,000 may exceed it");
        for person in [5001, 5002] {
            (0..44).for_each(|_| bursts.add(ClientKey::from_u64(person), NOON));
        }
        assert_eq!(bursts.burst(), Some(PeopleBurst { pages: 50, needed: 44, people: 2002 }));
        let mut attacked = PeopleBursts::default();
        (0..5000).for_each(|_| attacked.add(ClientKey::from_u64(1), NOON));
        assert_eq!(attacked.burst().map(|burst| burst.pages), Some(300));
    }
}
