//! Bound of what the clients of one network teach.

use crate::Timestamp;

/// Numbers of lessons that the networks have given today: from each a few are taken, so that one client with any number of
/// addresses, browsers and sessions does not decide what is normal behavior of people.
///
/// Networks with the same slot share its lessons. With more networks than slots, fewer lessons are taken from each.
#[derive(Clone, Debug)]
pub struct Teachers {
    day: u64,
    lessons: Box<[u8]>,
}

/// Number of slots, a power of two.
const SLOTS: usize = 4096;

/// Lessons that one network gives a day: enough for a site whose people are all in one to be known.
const LESSONS: u8 = 5;

impl Default for Teachers {
    fn default() -> Self {
        Self { day: 0, lessons: vec![0; SLOTS].into() }
    }
}

impl Teachers {
    /// Returns true if one more lesson is taken from a network, known by a hash.
    pub fn accepts(&mut self, network: u64, now: Timestamp) -> bool {
        let day = now.seconds() / (24 * 60 * 60);
        if day != self.day {
            self.day = day;
            self.lessons.fill(0);
        }
        let given = &mut self.lessons[network as usize % SLOTS];
        let is_accepted = *given < LESSONS;
        *given += u8::from(is_accepted);
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
        /// In any order of requests, a network gives a few lessons a day, and takes none from those with another slot.
        #[test]
        fn a_network_teaches_a_few_times_a_day(requests in prop::collection::vec((0_u64..40, 0_u64..4000), 0..400)) {
            let (mut teachers, mut now) = (Teachers::default(), Timestamp::from_seconds(1_800_000_000));
            let mut given = HashMap::<(u64, u64), u8>::new();
            for (network, pause) in requests {
                now += Duration::from_secs(pause);
                let given = given.entry((network, now.seconds() / 86_400)).or_default();
                prop_assert_eq!(teachers.accepts(network, now), *given < LESSONS);
                *given = (*given + 1).min(LESSONS);
            }
        }
    }
}
