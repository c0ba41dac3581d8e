//! Distribution of a count among people, in buckets that grow by a quarter of an octave.

use super::decay_factor;
use crate::Timestamp;
use std::time::Duration;

/// Decayed numbers of people by a count of theirs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Distribution {
    updated_at: Timestamp,
    buckets: [f32; BUCKETS],
}

/// Number of buckets: 0, then counts up to 2,896.
const BUCKETS: usize = 48;

/// Buckets by octave.
const STEPS: f32 = 4.0;

impl Default for Distribution {
    fn default() -> Self {
        Self { updated_at: Timestamp::default(), buckets: [0.0; BUCKETS] }
    }
}

impl Distribution {
    /// Records a person with `count`, and removes one with the count `earlier`, if any.
    pub(super) fn record(&mut self, earlier: Option<f32>, count: f32, now: Timestamp, half_life: Duration) {
        let factor = decay_factor(now.saturating_duration_since(self.updated_at), half_life);
        self.updated_at = self.updated_at.max(now);
        self.buckets.iter_mut().for_each(|people| *people *= factor);
        if let Some(earlier) = earlier {
            let people = &mut self.buckets[bucket(earlier)];
            *people = (*people - 1.0).max(0.0);
        }
        self.buckets[bucket(count)] += 1.0;
    }

    /// Returns the count that all but `share` of the people stay below, rounded up; `None` if `share` is not even one of them. A
    /// single one never decides it.
    pub(super) fn upper_bound(&self, share: f32) -> Option<f32> {
        let beyond = share * self.buckets.iter().sum::<f32>();
        if beyond < 1.0 {
            return None;
        }
        let mut people = 0.0;
        let index = self.buckets.iter().rposition(|bucket| {
            people += bucket;
            people > beyond
        });
        index.map(|index| (index as f32 / STEPS).exp2())
    }
}

/// Returns true if both counts are recorded alike.
pub(super) fn is_same_bucket(left: f32, right: f32) -> bool {
    bucket(left) == bucket(right)
}

fn bucket(count: f32) -> usize {
    match count < 1.0 {
        true => 0,
        false => (1 + (STEPS * count.log2()) as usize).min(BUCKETS - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn the_bound_is_what_nearly_all_people_stay_below() {
        let now = Timestamp::from_seconds(1_800_000_000);
        let mut pages = Distribution::default();
        assert_eq!(pages.upper_bound(0.01), None);
        (0..99).for_each(|_| pages.record(None, 10.0, now, DAY));
        assert_eq!(pages.upper_bound(0.01), None, "too few people");
        pages.record(None, 2000.0, now, DAY);
        let bound = pages.upper_bound(0.01).expect("enough people");
        assert!((10.0..13.0).contains(&bound), "one reader decides nothing: {bound}");
        (0..1900).for_each(|count| pages.record(Some(2000.0 + count as f32), 2001.0 + count as f32, now, DAY));
        assert_eq!(pages.upper_bound(0.01), Some(bound));
        pages.record(None, 500.0, now, DAY);
        let bound = pages.upper_bound(0.01).expect("enough people");
        assert!((500.0..600.0).contains(&bound), "two do: {bound}");
        pages.record(None, 0.0, now + DAY, DAY);
        assert_eq!(pages.upper_bound(0.01), None, "half of them are forgotten");
    }
}
