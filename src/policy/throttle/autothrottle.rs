//! AutoThrottle, as Scrapy has it: the delay between requests follows the origin's latency, so that about as many
//! requests as wished are under way.
//!
//! It falls half-way at each answer and rises at once: an origin that has grown slow is not asked twice.

use super::Outcome;
use std::time::Duration;

/// How the delay follows the latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Autothrottle {
    /// How many requests it aims to have under way.
    pub target_concurrency: u32,
    /// The delay before anything is known.
    pub start_delay: Duration,
    /// The longest delay.
    pub max_delay: Duration,
}

impl Autothrottle {
    /// Returns the delay to begin with, where `least` is the scope's own.
    pub fn start(&self, least: Duration) -> Duration {
        self.within(self.start_delay, least)
    }

    /// Returns the delay after an answer that came while it was `delay`.
    ///
    /// An answer that is not good may raise it, never lower it.
    pub fn next(&self, delay: Duration, outcome: &Outcome, least: Duration) -> Duration {
        let target = outcome.latency / self.target_concurrency.max(1);
        let mean = (delay / 2).saturating_add(target / 2);
        let next = self.within(mean.max(target), least);
        if outcome.is_good() { next } else { next.max(self.within(delay, least)) }
    }

    fn within(&self, delay: Duration, least: Duration) -> Duration {
        delay.min(self.max_delay).max(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AUTO: Autothrottle =
        Autothrottle { target_concurrency: 2, start_delay: Duration::from_secs(5), max_delay: Duration::from_secs(60) };

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn answer(status: u16, latency: Duration) -> Outcome {
        Outcome { status: Some(status), latency, asked_for: None }
    }

    #[test]
    fn the_delay_follows_the_algorithm_number_by_number() {
        let mut delay = AUTO.start(ms(100));
        assert_eq!(delay, ms(5000));
        for (status, latency_ms, delay_ms, why) in [
            (200, 2000, 3000, "half-way from 5 s to 1 s"),
            (200, 2000, 2000, "and again"),
            (200, 8000, 4000, "a larger target is taken at once"),
            (500, 10, 4000, "a quick error does not lower it"),
            (404, 2000, 4000, "nor does any answer that is not good"),
            (503, 20_000, 10_000, "a slow error raises it"),
            (304, 0, 5000, "nothing new is a good answer"),
            (200, 400_000, 60_000, "up to the longest"),
            (200, 0, 30_000, "and down"),
        ] {
            delay = AUTO.next(delay, &answer(status, ms(latency_ms)), ms(100));
            assert_eq!(delay, ms(delay_ms), "{why}");
        }
        for _ in 0..20 {
            delay = AUTO.next(delay, &answer(200, ms(0)), ms(100));
        }
        assert_eq!(delay, ms(100), "never below the scope's own delay");
        let broke_off = Outcome { status: None, latency: ms(30_000), asked_for: None };
        assert_eq!(AUTO.next(delay, &broke_off, ms(100)), ms(15_000), "a timeout is a slow answer");
    }

    proptest! {
        #[test]
        fn a_steady_latency_ends_in_its_target(latency_ms in 1u64..100_000, start_ms in 0u64..60_000) {
            let target = (ms(latency_ms) / 2).clamp(ms(100), ms(60_000));
            let mut delay = ms(start_ms);
            for _ in 0..64 {
                delay = AUTO.next(delay, &answer(200, ms(latency_ms)), ms(100));
                prop_assert!(delay >= target, "it comes from above");
            }
            prop_assert!(delay - target <= Duration::from_nanos(2));
        }

        #[test]
        fn what_is_not_good_never_lowers_it(status in 400u16..600, latency_ms in 0u64..100_000, delay_ms in 100u64..60_000) {
            prop_assert!(AUTO.next(ms(delay_ms), &answer(status, ms(latency_ms)), ms(100)) >= ms(delay_ms));
        }
    }
}
