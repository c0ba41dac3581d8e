//! Limit of the samples that are taken from the clients of one network.

use crate::Timestamp;

/// Numbers of samples that were taken today, by network: a few from each, so that one client with any number of addresses,
/// browsers and sessions does not decide what is normal behavior of people.
///
/// Networks with the same slot share its samples. With more networks than slots, fewer samples are taken from each. The caller's
/// hash gives the networks of one holder few slots.
#[derive(Clone, Debug)]
pub struct SampleLimit {
    day: u64,
    taken: Box<[u8]>,
}

/// Number of slots, a power of two.
const SLOTS: usize = 4096;

/// Maximum number of samples from one network in a day: enough for a site whose people are all in one to be known.
const MAX_SAMPLES: u8 = 5;

impl Default for SampleLimit {
    fn default() -> Self {
        Self { day: 0, taken: vec![0; SLOTS].into() }
    }
}

impl SampleLimit {
    /// Returns true if one more sample is taken from a network, known by a hash, and counts it.
    pub fn accepts(&mut self, network: u64, now: Timestamp) -> bool {
        let day = now.seconds() / (24 * 60 * 60);
        if day != self.day {
            self.day = day;
            self.taken.fill(0);
        }
        let taken = &mut self.taken[network as usize % SLOTS];
        let is_accepted = *taken < MAX_SAMPLES;
        *taken += u8::from(is_accepted);
        is_accepted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::time::Duration;

    proptest! {
        /// In any order of requests, a few samples a day are taken from a network, and none less from those with another slot.
        #[test]
        fn a_few_samples_a_day_are_taken_from_a_network(requests in prop::collection::vec((0_u64..40, 0_u64..4000), 0..400)) {
            let (mut limit, mut now) = (SampleLimit::default(), Timestamp::from_seconds(1_800_000_000));
            let mut taken = HashMap::<(u64, u64), u8>::new();
            for (network, pause) in requests {
                now += Duration::from_secs(pause);
                let taken = taken.entry((network, now.seconds() / 86_400)).or_default();
                prop_assert_eq!(limit.accepts(network, now), *taken < MAX_SAMPLES);
                *taken = (*taken + 1).min(MAX_SAMPLES);
            }
        }
    }
}
