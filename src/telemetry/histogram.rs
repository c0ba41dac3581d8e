//! Duration histogram with fixed buckets: two additions per sample, no allocation, no drain.

use std::time::Duration;

/// Durations, counted by size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Samples by the first bound they do not exceed; the last entry counts samples beyond all bounds.
    counts: [u64; BOUNDS.len() + 1],
    sum_ns: u64,
}

/// Upper bounds, in nanoseconds and as Prometheus label. Dense from 0.5 ms, the range of refusals and cached responses,
/// to 10 s, when most people have given up.
pub(super) const BOUNDS: [(u64, &str); 15] = [
    (500_000, "0.0005"),
    (1_000_000, "0.001"),
    (2_500_000, "0.0025"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (25_000_000, "0.025"),
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (250_000_000, "0.25"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1"),
    (2_500_000_000, "2.5"),
    (5_000_000_000, "5"),
    (10_000_000_000, "10"),
    (30_000_000_000, "30"),
];

/// A duration and its bucket, for several histograms.
#[derive(Clone, Copy, Debug)]
pub(super) struct BucketedDuration {
    bucket: usize,
    nanoseconds: u64,
}

impl BucketedDuration {
    pub(super) fn new(duration: Duration) -> Self {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.iter().position(|&(bound, _)| nanoseconds <= bound).unwrap_or(BOUNDS.len());
        Self { bucket, nanoseconds }
    }
}

impl Histogram {
    /// Counts one sample.
    pub fn record(&mut self, duration: Duration) {
        self.add(BucketedDuration::new(duration));
    }

    /// Counts a sample whose bucket is known.
    pub(super) fn add(&mut self, BucketedDuration { bucket, nanoseconds }: BucketedDuration) {
        self.counts[bucket] += 1;
        self.sum_ns = self.sum_ns.saturating_add(nanoseconds);
    }

    /// Adds the samples of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// Returns the number of samples up to each bound, smallest bound first; the last entry is the number of all
    /// samples.
    pub fn cumulative(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let bounds = BOUNDS.iter().map(|&(_, label)| label).chain(["+Inf"]);
        bounds.zip(self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        }))
    }

    /// Returns the duration that a `share` of the samples does not exceed, estimated within its bucket; `None` without a
    /// sample. Beyond all bounds it is the last one.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let wanted = share * self.count() as f64;
        let (mut below, mut low) = (0.0, 0.0);
        for (count, (bound, _)) in self.counts.iter().zip(BOUNDS) {
            let (count, high) = (*count as f64, bound as f64);
            if count > 0.0 && below + count >= wanted {
                let nanoseconds = low + (high - low) * ((wanted - below) / count).clamp(0.0, 1.0);
                return Some(Duration::from_nanos(nanoseconds as u64));
            }
            (below, low) = (below + count, high);
        }
        (self.count() > 0).then(|| Duration::from_nanos(BOUNDS[BOUNDS.len() - 1].0))
    }

    /// Returns the number of samples in each bucket, with its upper bound; the last bucket has none.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> + '_ {
        let bounds = BOUNDS.iter().map(|&(bound, _)| Some(Duration::from_nanos(bound))).chain([None]);
        bounds.zip(self.counts)
    }

    /// Returns the number of samples.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all samples, in seconds.
    pub fn sum_seconds(&self) -> f64 {
        Duration::from_nanos(self.sum_ns).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bounds_ascend_and_match_their_labels() {
        assert!(BOUNDS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (nanoseconds, label) in BOUNDS {
            assert_eq!(label.parse(), Ok(nanoseconds as f64 / 1e9));
        }
    }

    #[test]
    fn a_sample_on_a_bound_belongs_below_it() {
        let mut histogram = Histogram::default();
        histogram.record(Duration::from_millis(1));
        histogram.record(Duration::from_nanos(1_000_001));
        histogram.record(Duration::from_secs(3600));
        let counts: Vec<u64> = histogram.cumulative().map(|(_, count)| count).collect();
        assert_eq!(counts[..3], [0, 1, 2]);
        assert_eq!((counts[14], counts[15], histogram.count()), (2, 3, 3));
    }

    #[test]
    fn quantile_is_estimated_within_its_bucket() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        (0..100).for_each(|_| histogram.record(Duration::from_millis(30)));
        assert_eq!(histogram.quantile(0.5), Some(Duration::from_micros(37_500)), "halfway from 25 to 50 ms");
        assert_eq!(histogram.quantile(1.0), Some(Duration::from_millis(50)));
        (0..100).for_each(|_| histogram.record(Duration::from_secs(3600)));
        assert_eq!(histogram.quantile(0.95), Some(Duration::from_secs(30)), "no bound is known beyond the last");
        assert_eq!(histogram.buckets().map(|(_, count)| count).sum::<u64>(), histogram.count());
    }

    proptest! {
        #[test]
        fn merged_histograms_equal_a_single_one(samples in proptest::collection::vec((any::<u32>(), any::<bool>()), 0..50)) {
            let (mut one, mut other, mut all) = (Histogram::default(), Histogram::default(), Histogram::default());
            for (micros, left) in samples {
                let duration = Duration::from_micros(u64::from(micros));
                if left { one.record(duration) } else { other.record(duration) }
                all.record(duration);
            }
            one.merge(&other);
            prop_assert_eq!(one, all);
        }
    }
}
