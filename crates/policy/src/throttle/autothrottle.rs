//! AutoThrottle, as in Scrapy: the delay between requests follows the latency of the origin, so that about the target
//! number of requests is in flight.
//!
//! The delay falls halfway to its target per response and rises at once, so that a slow origin gets relief immediately.

use super::OriginOutcome;
use std::cmp::Ordering;
use std::time::Duration;

/// AutoThrottle settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Autothrottle {
    /// Target number of requests in flight; 0.5 means equal parts of work and pause.
    pub target_concurrency: f64,
    /// Initial delay.
    pub start_delay: Duration,
    /// Maximum delay.
    pub max_delay: Duration,
    /// Statuses of responses whose latency may reduce the delay. Errors are often fast.
    pub success_statuses: Vec<u16>,
    /// True to log each adjustment.
    pub log_adjustments: bool,
}

/// Adjustment of the delay by one response, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adjustment {
    /// Outcome of the request.
    pub outcome: OriginOutcome,
    /// Delay before.
    pub old_delay: Duration,
    /// Delay from now on.
    pub new_delay: Duration,
    /// Reason for the adjustment.
    pub reason: &'static str,
}

impl Autothrottle {
    /// Returns the initial delay; `min_delay` is the scope's own delay, the minimum.
    pub fn initial_delay(&self, min_delay: Duration) -> Duration {
        self.clamp(self.start_delay, min_delay)
    }

    /// Returns the delay after an outcome that was observed at `delay`.
    ///
    /// A failed request may raise the delay, never reduce it; an outcome without a meaningful latency leaves it
    /// unchanged.
    pub fn next_delay(&self, delay: Duration, outcome: &OriginOutcome, min_delay: Duration) -> Duration {
        if !outcome.latency_counts {
            return delay;
        }
        let target = outcome.latency.as_secs_f64() / self.target_concurrency;
        let target = Duration::try_from_secs_f64(target).unwrap_or(Duration::MAX);
        let mean = (delay / 2).saturating_add(target / 2);
        let next = self.clamp(mean.max(target), min_delay);
        if self.is_success(outcome) { next } else { next.max(self.clamp(delay, min_delay)) }
    }

    /// Returns the adjustment from `old_delay` to `new_delay` for the log; `None` if adjustments are not logged.
    pub fn adjustment(&self, old_delay: Duration, new_delay: Duration, outcome: &OriginOutcome) -> Option<Adjustment> {
        if !self.log_adjustments {
            return None;
        }
        let reason = match new_delay.cmp(&old_delay) {
            _ if !outcome.latency_counts => "response not measured: cached at the origin, or route excluded",
            Ordering::Greater => "increased at once: latency above target",
            Ordering::Less => "reduced halfway to latency / target_concurrency",
            Ordering::Equal if !self.is_success(outcome) => "unchanged: only success statuses reduce the delay",
            Ordering::Equal => "unchanged: on target, or at a bound",
        };
        Some(Adjustment { outcome: *outcome, old_delay, new_delay, reason })
    }

    fn is_success(&self, outcome: &OriginOutcome) -> bool {
        outcome.status.is_some_and(|status| self.success_statuses.contains(&status))
    }

    /// Clamps `delay` to at least `min_delay` and at most the maximum.
    pub(super) fn clamp(&self, delay: Duration, min_delay: Duration) -> Duration {
        delay.min(self.max_delay).max(min_delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn autothrottle_config() -> Autothrottle {
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

    fn outcome_with_status(status: u16, latency: Duration) -> OriginOutcome {
        OriginOutcome { status: Some(status), latency, latency_counts: true, retry_after: None, is_unreachable: false }
    }

    #[test]
    fn delay_follows_the_algorithm_step_by_step() {
        let mut delay = autothrottle_config().initial_delay(ms(100));
        assert_eq!(delay, ms(5000));
        for (status, latency_ms, delay_ms, reason) in [
            (200, 2000, 3000, "halfway from 5 s to 1 s"),
            (200, 2000, 2000, "halfway again"),
            (200, 8000, 4000, "a larger target applies at once"),
            (500, 10, 4000, "a fast error does not reduce it"),
            (404, 2000, 4000, "no other status reduces it"),
            (503, 20_000, 10_000, "a slow error raises it"),
            (304, 0, 5000, "304 is a success"),
            (200, 400_000, 60_000, "up to the maximum"),
            (200, 0, 30_000, "down again"),
        ] {
            delay = autothrottle_config().next_delay(delay, &outcome_with_status(status, ms(latency_ms)), ms(100));
            assert_eq!(delay, ms(delay_ms), "{reason}");
        }
        for _ in 0..20 {
            delay = autothrottle_config().next_delay(delay, &outcome_with_status(200, ms(0)), ms(100));
        }
        assert_eq!(delay, ms(100), "never below the scope's own delay");
        let timeout = OriginOutcome {
            status: None,
            latency: ms(30_000),
            latency_counts: true,
            retry_after: None,
            is_unreachable: false,
        };
        assert_eq!(
            autothrottle_config().next_delay(delay, &timeout, ms(100)),
            ms(15_000),
            "a timeout is a slow response"
        );
    }

    #[test]
    fn half_target_concurrency_doubles_the_delay() {
        let config = Autothrottle { target_concurrency: 0.5, ..autothrottle_config() };
        let delays: Vec<Duration> = (0..3)
            .scan(ms(8000), |delay, _| {
                *delay = config.next_delay(*delay, &outcome_with_status(200, ms(1000)), ms(0));
                Some(*delay)
            })
            .collect();
        assert_eq!(delays, [ms(5000), ms(3500), ms(2750)], "toward 2 s");
    }

    #[test]
    fn success_statuses_are_configurable() {
        let config = Autothrottle { success_statuses: vec![200, 404], ..autothrottle_config() };
        assert_eq!(
            config.next_delay(ms(1000), &outcome_with_status(404, ms(0)), ms(0)),
            ms(500),
            "404 is a success status here"
        );
        assert_eq!(
            config.next_delay(ms(1000), &outcome_with_status(304, ms(0)), ms(0)),
            ms(1000),
            "304 is not a success status here"
        );
    }

    #[test]
    fn unsampled_response_changes_nothing() {
        for latency_ms in [0, 60_000] {
            let cached = OriginOutcome { latency_counts: false, ..outcome_with_status(200, ms(latency_ms)) };
            assert_eq!(autothrottle_config().next_delay(ms(1000), &cached, ms(100)), ms(1000));
        }
    }

    #[test]
    fn adjustments_are_reported_only_when_logging_is_on() {
        let config = Autothrottle { log_adjustments: true, ..autothrottle_config() };
        for (old_ms, outcome, reason) in [
            (100, outcome_with_status(200, ms(1000)), "increased at once"),
            (1000, outcome_with_status(200, ms(100)), "reduced halfway"),
            (1000, outcome_with_status(500, ms(100)), "unchanged: only success statuses"),
            (500, outcome_with_status(200, ms(1000)), "unchanged: on target"),
            (500, OriginOutcome { latency_counts: false, ..outcome_with_status(200, ms(1)) }, "response not measured"),
        ] {
            let new_delay = config.next_delay(ms(old_ms), &outcome, ms(0));
            let adjustment = config.adjustment(ms(old_ms), new_delay, &outcome).expect("adjustments are logged");
            assert!(adjustment.reason.starts_with(reason), "{adjustment:?}");
            assert_eq!(autothrottle_config().adjustment(ms(old_ms), new_delay, &outcome), None);
        }
    }

    proptest! {
        #[test]
        fn delay_converges_at_steady_latency(latency_ms in 1u64..100_000, start_ms in 0u64..60_000) {
            let target = (ms(latency_ms) / 2).clamp(ms(100), ms(60_000));
            let mut delay = ms(start_ms);
            for _ in 0..64 {
                delay = autothrottle_config().next_delay(delay, &outcome_with_status(200, ms(latency_ms)), ms(100));
                prop_assert!(delay >= target, "the delay exceeds its target");
            }
            prop_assert!(delay - target <= Duration::from_nanos(2));
        }

        #[test]
        fn unsuccessful_response_never_lowers_the_delay(status in 400u16..600, latency_ms in 0u64..100_000, delay_ms in 100u64..60_000) {
            prop_assert!(autothrottle_config().next_delay(ms(delay_ms), &outcome_with_status(status, ms(latency_ms)), ms(100)) >= ms(delay_ms));
        }
    }
}
