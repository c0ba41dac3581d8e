//! Token bucket of one client.
//!
//! Refills in batches, as Atlassian documents it: `fill` tokens every `interval`, up to `capacity`. Or smooth (GCRA):
//! one token every `interval / fill`, up to `capacity`.

use super::Timestamp;
use std::time::Duration;

/// Refill settings of a class's buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Maximum number of tokens; at least 1.
    pub capacity: u32,
    /// Tokens added per interval.
    pub fill: u32,
    /// Refill interval; never zero.
    pub interval: Duration,
    /// True to add tokens one by one over the interval, false to add them all at its end.
    pub smooth: bool,
    /// True if free requests take no token: a page may load any number of images.
    pub costed_only: bool,
}

/// State of one bucket. The default is a full bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketState {
    /// Number of used tokens.
    pub used_tokens: u32,
    /// Start of the current refill interval.
    pub refilled_at: Timestamp,
}

/// The bucket is empty; the next token is added at this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmptyUntil(pub Timestamp);

impl Bucket {
    /// Takes one token. Returns the time of the next token if the bucket is empty.
    pub fn take(&self, level: BucketState, now: Timestamp) -> Result<BucketState, EmptyUntil> {
        let level = self.refilled(level, now);
        if level.used_tokens >= self.capacity {
            return Err(EmptyUntil(level.refilled_at + self.refill_step()));
        }
        Ok(BucketState { used_tokens: level.used_tokens + 1, ..level })
    }

    /// Returns the number of tokens available at `now`.
    pub fn remaining(&self, level: BucketState, now: Timestamp) -> u32 {
        self.capacity.saturating_sub(self.refilled(level, now).used_tokens)
    }

    /// Returns the time at which the next token is added; `now` if the bucket is full.
    pub fn next_token_at(&self, level: BucketState, now: Timestamp) -> Timestamp {
        let level = self.refilled(level, now);
        if level.used_tokens == 0 { now } else { level.refilled_at + self.refill_step() }
    }

    /// Returns the time at which an unused bucket is full again and may be evicted.
    pub fn full_at(&self, level: BucketState) -> Timestamp {
        level.refilled_at + self.refill_step() * level.used_tokens.div_ceil(self.batch())
    }

    fn refilled(&self, level: BucketState, now: Timestamp) -> BucketState {
        if level.used_tokens == 0 {
            return BucketState { used_tokens: 0, refilled_at: now };
        }
        // A reload may have reduced the capacity.
        let level = BucketState { used_tokens: level.used_tokens.min(self.capacity), ..level };
        let step = u64::try_from(self.refill_step().as_nanos()).unwrap_or(u64::MAX).max(1);
        let elapsed = now.0.saturating_sub(level.refilled_at.0);
        if elapsed < step {
            return level;
        }
        let steps = elapsed / step;
        match u32::try_from(steps.saturating_mul(self.batch().into())) {
            Ok(tokens) if tokens < level.used_tokens => BucketState {
                used_tokens: level.used_tokens - tokens,
                refilled_at: Timestamp(level.refilled_at.0 + steps * step),
            },
            _ => BucketState { used_tokens: 0, refilled_at: now },
        }
    }

    fn refill_step(&self) -> Duration {
        if self.smooth { self.interval / self.fill.max(1) } else { self.interval }
    }

    fn batch(&self) -> u32 {
        if self.smooth { 1 } else { self.fill.max(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ATLASSIAN: Bucket =
        Bucket { capacity: 60, fill: 10, interval: Duration::from_secs(10), smooth: false, costed_only: false };

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_seconds(1_000_000 + seconds)
    }

    #[test]
    fn burst_of_sixty_then_ten_per_interval() {
        let mut level = BucketState::default();
        for _ in 0..60 {
            level = ATLASSIAN.take(level, at(0)).expect("bucket has 60 tokens");
        }
        assert_eq!(ATLASSIAN.take(level, at(0)), Err(EmptyUntil(at(10))));
        assert_eq!(ATLASSIAN.take(level, at(9)), Err(EmptyUntil(at(10))));
        assert_eq!((ATLASSIAN.next_token_at(level, at(9)), ATLASSIAN.next_token_at(level, at(11))), (at(10), at(20)));
        assert_eq!(ATLASSIAN.next_token_at(level, at(60)), at(60), "bucket is full again");
        assert_eq!(ATLASSIAN.remaining(level, at(10)), 10);
        assert_eq!(ATLASSIAN.remaining(level, at(3600)), 60);
        assert_eq!(ATLASSIAN.full_at(level), at(60));
    }

    #[test]
    fn shrunk_bucket_is_empty_at_most() {
        let small = Bucket { capacity: 2, fill: 1, interval: Duration::from_secs(1), smooth: true, costed_only: false };
        let level = BucketState { used_tokens: 50, refilled_at: at(0) };
        assert_eq!(small.take(level, at(0)), Err(EmptyUntil(at(1))));
        assert!(small.take(level, at(1)).is_ok(), "a request after the wait is admitted");
    }

    #[test]
    fn smooth_bucket_adds_its_tokens_evenly_over_the_interval() {
        let smooth = Bucket { smooth: true, ..ATLASSIAN };
        let level = BucketState { used_tokens: 60, refilled_at: at(0) };
        assert_eq!(smooth.take(level, at(0)), Err(EmptyUntil(at(1))));
        assert_eq!([1, 2, 59, 60].map(|seconds| smooth.remaining(level, at(seconds))), [1, 2, 59, 60]);
        assert_eq!(smooth.full_at(level), at(60));
    }

    #[test]
    fn interval_of_a_full_bucket_starts_with_the_next_token_taken() {
        let level = BucketState { used_tokens: 10, refilled_at: at(0) };
        let taken = ATLASSIAN.take(level, at(15)).expect("the bucket is full since 10 s");
        assert_eq!(ATLASSIAN.next_token_at(taken, at(15)), at(25));
    }

    proptest! {
        #[test]
        fn client_retrying_at_the_given_time_is_admitted(
            capacity in 1u32..50, fill in 1u32..50, interval_ms in 1u64..100_000, smooth: bool,
            pauses in proptest::collection::vec(0u64..20_000, 1..200),
        ) {
            let bucket = Bucket { capacity, fill, interval: Duration::from_millis(interval_ms), smooth, costed_only: false };
            let (mut level, mut now) = (BucketState::default(), at(0));
            for pause in pauses {
                now += Duration::from_millis(pause);
                level = match bucket.take(level, now) {
                    Ok(level) => level,
                    Err(EmptyUntil(refill_at)) => {
                        prop_assert!(refill_at > now);
                        prop_assert!(bucket.take(level, Timestamp(refill_at.0 - 1)).is_err());
                        now = refill_at;
                        bucket.take(level, now).expect("a token is due now")
                    }
                };
            }
        }

        #[test]
        fn grants_never_exceed_capacity_plus_refill(
            capacity in 1u32..20, fill in 1u32..20, interval_ms in 1u64..5_000, smooth: bool,
            pauses in proptest::collection::vec(0u64..2_000, 1..200),
        ) {
            let bucket = Bucket { capacity, fill, interval: Duration::from_millis(interval_ms), smooth, costed_only: false };
            let (mut level, mut now, mut granted) = (BucketState::default(), at(0), 0u128);
            for pause in pauses {
                now += Duration::from_millis(pause);
                if let Ok(next) = bucket.take(level, now) {
                    level = next;
                    granted += 1;
                }
                let elapsed = now.saturating_duration_since(at(0)).as_nanos();
                let refilled = if smooth { elapsed * u128::from(fill) / bucket.interval.as_nanos() + 1 } else { elapsed / bucket.interval.as_nanos() * u128::from(fill) };
                prop_assert!(granted <= u128::from(capacity) + refilled);
            }
        }
    }
}
