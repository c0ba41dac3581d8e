//! AutoThrottle, as Scrapy has it: the delay between requests follows the origin's latency, so that about as many
//! requests as wished are under way.
//!
//! It falls half-way at each answer and rises at once: an origin that has grown slow is not asked twice.

use super::OriginOutcome;
use std::cmp::Ordering;
use std::time::Duration;

/// How the delay follows the latency.
#[derive(Clone, Debug, PartialEq)]
pub struct Autothrottle {
    /// How many requests it aims to have under way; half of one is as much pause as work.
    pub target_concurrency: f64,
    /// The delay before anything is known.
    pub start_delay: Duration,
    /// The longest delay.
    pub max_delay: Duration,
    /// The statuses of answers whose latency is a reason to go faster. Errors are often answered sooner than anything else.
    pub success_statuses: Vec<u16>,
    /// Whether each adjustment is told.
    pub log_adjustments: bool,
}

/// What one answer did to the delay, for whoever watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adjustment {
    /// What the origin did.
    pub outcome: OriginOutcome,
    /// The delay before.
    pub old: Duration,
    /// The delay from now on.
    pub new: Duration,
    /// Why it is so.
    pub reason: &'static str,
}

impl Autothrottle {
    /// Returns the delay to begin with, where `least` is the scope's own.
    pub fn start(&self, least: Duration) -> Duration {
        self.clamp(self.start_delay, least)
    }

    /// Returns the delay after an answer that came while it was `delay`.
    ///
    /// An answer that is not good may raise it, never lower it; one that does not tell of the origin's load leaves it.
    pub fn next(&self, delay: Duration, outcome: &OriginOutcome, least: Duration) -> Duration {
        if !outcome.measured {
            return delay;
        }
        let target = outcome.latency.as_secs_f64() / self.target_concurrency;
        let target = Duration::try_from_secs_f64(target).unwrap_or(Duration::MAX);
        let mean = (delay / 2).saturating_add(target / 2);
        let next = self.clamp(mean.max(target), least);
        if self.is_success(outcome) { next } else { next.max(self.clamp(delay, least)) }
    }

    /// Returns what is to be told of a step from `old` to `new`, if anybody watches.
    pub fn adjustment(&self, old: Duration, new: Duration, outcome: &OriginOutcome) -> Option<Adjustment> {
        if !self.log_adjustments {
            return None;
        }
        let reason = match new.cmp(&old) {
            _ if !outcome.measured => "the answer does not count: cached at the origin, or its route is left out",
            Ordering::Greater => "slower at once: it took longer than the delay allows for",
            Ordering::Less => "faster, half-way to latency / target_concurrency",
            Ordering::Equal if !self.is_success(outcome) => "an answer that is not good never lowers it",
            Ordering::Equal => "as it was: on target, or at a bound",
        };
        Some(Adjustment { outcome: *outcome, old, new, reason })
    }

    fn is_success(&self, outcome: &OriginOutcome) -> bool {
        outcome.status.is_some_and(|status| self.success_statuses.contains(&status))
    }

    /// Returns `delay`, no shorter than `least` and no longer than the longest.
    pub(super) fn clamp(&self, delay: Duration, least: Duration) -> Duration {
        delay.min(self.max_delay).max(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn auto() -> Autothrottle {
        Autothrottle {
            target_concurrency: 2.0,
            start_delay: Duration::from_secs(5),
            max_delay: Duration::from_secs(60),
            success_statuses: vec![200, 304],
            log_adjustments: false,
        }
    }

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn answer(status: u16, latency: Duration) -> OriginOutcome {
        OriginOutcome { status: Some(status), latency, measured: true, retry_after: None }
    }

    #[test]
    fn the_delay_follows_the_algorithm_number_by_number() {
        let mut delay = auto().start(ms(100));
        assert_eq!(delay, ms(5000));
        for (status, latency_ms, delay_ms, reason) in [
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
            delay = auto().next(delay, &answer(status, ms(latency_ms)), ms(100));
            assert_eq!(delay, ms(delay_ms), "{reason}");
        }
        for _ in 0..20 {
            delay = auto().next(delay, &answer(200, ms(0)), ms(100));
        }
        assert_eq!(delay, ms(100), "never below the scope's own delay");
        let broke_off = OriginOutcome { status: None, latency: ms(30_000), measured: true, retry_after: None };
        assert_eq!(auto().next(delay, &broke_off, ms(100)), ms(15_000), "a timeout is a slow answer");
    }

    #[test]
    fn half_of_one_at_once_is_as_much_pause_as_work() {
        let polite = Autothrottle { target_concurrency: 0.5, ..auto() };
        let delays: Vec<Duration> = (0..3)
            .scan(ms(8000), |delay, _| {
                *delay = polite.next(*delay, &answer(200, ms(1000)), ms(0));
                Some(*delay)
            })
            .collect();
        assert_eq!(delays, [ms(5000), ms(3500), ms(2750)], "toward 2 s");
    }

    #[test]
    fn which_answers_are_good_is_for_the_operator_to_say() {
        let search = Autothrottle { success_statuses: vec![200, 404], ..auto() };
        assert_eq!(search.next(ms(1000), &answer(404, ms(0)), ms(0)), ms(500), "nothing found is an answer");
        assert_eq!(search.next(ms(1000), &answer(304, ms(0)), ms(0)), ms(1000), "it is not in the list");
    }

    #[test]
    fn an_answer_that_was_not_measured_changes_nothing() {
        for latency_ms in [0, 60_000] {
            let cached = OriginOutcome { measured: false, ..answer(200, ms(latency_ms)) };
            assert_eq!(auto().next(ms(1000), &cached, ms(100)), ms(1000));
        }
    }

    #[test]
    fn each_adjustment_is_told_to_whoever_watches_and_to_nobody_else() {
        let watched = Autothrottle { log_adjustments: true, ..auto() };
        for (old_ms, outcome, reason) in [
            (100, answer(200, ms(1000)), "slower at once"),
            (1000, answer(200, ms(100)), "faster, half-way"),
            (1000, answer(500, ms(100)), "an answer that is not good"),
            (500, answer(200, ms(1000)), "as it was"),
            (500, OriginOutcome { measured: false, ..answer(200, ms(1)) }, "the answer does not count"),
        ] {
            let new = watched.next(ms(old_ms), &outcome, ms(0));
            let told = watched.adjustment(ms(old_ms), new, &outcome).expect("it is watched");
            assert!(told.reason.starts_with(reason), "{told:?}");
            assert_eq!(auto().adjustment(ms(old_ms), new, &outcome), None);
        }
    }

    proptest! {
        #[test]
        fn a_steady_latency_ends_in_its_target(latency_ms in 1u64..100_000, start_ms in 0u64..60_000) {
            let target = (ms(latency_ms) / 2).clamp(ms(100), ms(60_000));
            let mut delay = ms(start_ms);
            for _ in 0..64 {
                delay = auto().next(delay, &answer(200, ms(latency_ms)), ms(100));
                prop_assert!(delay >= target, "it comes from above");
            }
            prop_assert!(delay - target <= Duration::from_nanos(2));
        }

        #[test]
        fn what_is_not_good_never_lowers_it(status in 400u16..600, latency_ms in 0u64..100_000, delay_ms in 100u64..60_000) {
            prop_assert!(auto().next(ms(delay_ms), &answer(status, ms(latency_ms)), ms(100)) >= ms(delay_ms));
        }
    }
}
