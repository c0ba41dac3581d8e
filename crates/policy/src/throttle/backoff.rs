//! Backoff of a scope after overload: pauses the scope, then probes with one request, then recovers step by step.
//!
//! ```text
//!           overload                    pause over               success
//!   closed -----------> backing off ----------------> one probe ----------> one more request per success
//!     ^                      ^                            |                        |            |
//!     |                      +---- overload: next level --+------------------------+            |
//!     +---------------------------- one level less per quiet window ----------------------------+
//! ```
//! Requests in flight when a backoff starts belong to an earlier [`BackoffEpoch`]: sixty overload responses of them
//! count as one, and none of their successes ends the backoff.

use super::{Jitter, OriginOutcome};
use crate::Timestamp;
use std::num::NonZeroU32;
use std::time::Duration;

/// Backoff settings of a scope.
#[derive(Clone, Debug, PartialEq)]
pub struct Backoff {
    /// Overload statuses. Timeouts and broken connections are overload, too.
    pub statuses: Vec<u16>,
    /// Factor between the durations of successive levels.
    pub factor: u32,
    /// Duration of the first backoff.
    pub min_delay: Duration,
    /// Maximum duration, even if the origin requests a longer one.
    pub max_delay: Duration,
    /// Variation of the durations.
    pub jitter: Jitter,
    /// Time without overload after which the level drops by one, and for which overload is remembered as evidence.
    pub window: Duration,
    /// Number of clients, of as many networks, whose overload pauses the scope; that of fewer pauses only these.
    pub min_clients: NonZeroU32,
}

/// Backoff state of a scope, with its history of recent overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffState {
    /// Number of overload responses in a row; the next backoff has the duration of the next level.
    level: u32,
    until: Timestamp,
    last_overload: Timestamp,
    epoch: BackoffEpoch,
    /// Number of requests of this epoch that may be in flight, and that are.
    probe_limit: u32,
    in_flight: u32,
}

/// Period from the start of one backoff to the start of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BackoffEpoch(u32);

impl BackoffEpoch {
    /// Epoch of requests sent before the first backoff.
    pub const BEFORE_ANY: Self = Self(0);
}

/// Reason for which a backoff blocks a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackoffBlock {
    /// The scope backs off until this time.
    BackingOff(Timestamp),
    /// Probes are in flight; the scope waits for their outcome.
    Probing,
}

impl Default for BackoffState {
    fn default() -> Self {
        Self {
            level: 0,
            until: Timestamp(0),
            last_overload: Timestamp(0),
            epoch: BackoffEpoch::BEFORE_ANY,
            probe_limit: UNLIMITED,
            in_flight: 0,
        }
    }
}

impl Backoff {
    /// Returns true if `outcome` is overload.
    pub fn is_overload(&self, outcome: &OriginOutcome) -> bool {
        outcome.status.is_none_or(|status| self.statuses.contains(&status))
    }

    /// Returns true if `outcome` pauses requests: by overload, or because a success reports an exhausted limit.
    pub fn pauses_after(&self, outcome: &OriginOutcome) -> bool {
        self.is_overload(outcome) || (outcome.is_success() && outcome.retry_after.is_some())
    }

    /// Returns the duration of the backoff that leads to `level`, from 1.
    pub fn duration(&self, level: u32) -> Duration {
        let factor = self.factor.max(1).checked_pow(level.saturating_sub(1));
        let duration = factor.and_then(|factor| self.min_delay.checked_mul(factor));
        duration.unwrap_or(Duration::MAX).min(self.max_delay)
    }

    /// Returns the state after the outcome of a request that was sent in `epoch`.
    pub fn on_outcome(
        &self,
        state: BackoffState,
        epoch: BackoffEpoch,
        outcome: &OriginOutcome,
        random: f64,
        now: Timestamp,
    ) -> BackoffState {
        let state = self.decayed(state, now);
        let (is_current_epoch, is_overload) = (epoch == state.epoch, self.is_overload(outcome));
        if is_overload && is_current_epoch {
            return self.on_overload(state, outcome.retry_after, random, now);
        }
        let state = match is_current_epoch && state.level > 0 {
            true => self.on_probe_success(state, now),
            false => state,
        };
        // Overload responses to requests of an earlier epoch count as the same overload, but may request a longer
        // pause. A success that reports an exhausted limit is not overload: it pauses the scope, without probing and
        // without a higher level.
        let requested_pause = outcome.retry_after.filter(|_| is_overload || outcome.is_success()).unwrap_or_default();
        let until = state.until.max(now + requested_pause.min(self.max_delay));
        BackoffState { until, ..state }
    }

    fn on_probe_success(&self, state: BackoffState, now: Timestamp) -> BackoffState {
        // The quiet time starts at the first success; no requests were sent before.
        let last_overload = if state.probe_limit == 1 { now } else { state.last_overload };
        BackoffState { probe_limit: state.probe_limit.saturating_add(1), last_overload, ..state }
    }

    /// Like [`Self::on_outcome`], after an overload that the ramp-up tolerates. Lowers the level first; otherwise
    /// overload at the target rate would raise the duration to its maximum.
    pub fn on_tolerated_overload(
        &self,
        state: BackoffState,
        epoch: BackoffEpoch,
        outcome: &OriginOutcome,
        random: f64,
        now: Timestamp,
    ) -> BackoffState {
        let levels = if epoch == state.epoch { 2 } else { 0 };
        let lowered = BackoffState { level: state.level.saturating_sub(levels), ..state };
        self.on_outcome(lowered, epoch, outcome, random, now)
    }

    /// Returns the state under these settings, taken over from others: limits the remaining pause to the maximum.
    pub fn clamped(&self, state: BackoffState, now: Timestamp) -> BackoffState {
        BackoffState { until: state.until.min(now + self.max_delay), ..state }
    }

    /// Returns the state, decayed to `now`: one level less per quiet window.
    pub fn decayed(&self, state: BackoffState, now: Timestamp) -> BackoffState {
        let is_proven = state.probe_limit > 1;
        if state.level == 0 || !is_proven || self.window.is_zero() {
            return state;
        }
        let windows = now.saturating_duration_since(state.last_overload).as_nanos() / self.window.as_nanos();
        match u32::try_from(windows) {
            Ok(windows) if windows < state.level => BackoffState {
                level: state.level - windows,
                last_overload: state.last_overload + self.window * windows,
                ..state
            },
            _ => BackoffState { level: 0, probe_limit: UNLIMITED, ..state },
        }
    }

    fn on_overload(
        &self,
        state: BackoffState,
        requested_pause: Option<Duration>,
        random: f64,
        now: Timestamp,
    ) -> BackoffState {
        // A level that does not extend the pause would only delay the recovery.
        let is_longest = state.level > 0 && self.duration(state.level) == self.duration(state.level + 1);
        let level = state.level + u32::from(!is_longest);
        let requested_pause = requested_pause.unwrap_or_default();
        let pause = self
            .jitter
            .apply(self.duration(level).max(requested_pause), random)
            .max(requested_pause)
            .min(self.max_delay);
        BackoffState {
            level,
            until: state.until.max(now + pause),
            last_overload: now,
            epoch: BackoffEpoch(state.epoch.0.wrapping_add(1)),
            probe_limit: 1,
            in_flight: 0,
        }
    }
}

impl BackoffState {
    /// Returns what blocks a request now, if anything.
    pub fn blocked_by(&self, now: Timestamp) -> Option<BackoffBlock> {
        if now < self.until {
            return Some(BackoffBlock::BackingOff(self.until));
        }
        (self.in_flight >= self.probe_limit).then_some(BackoffBlock::Probing)
    }

    /// Returns the state with one more request in flight, and the epoch of the request.
    pub fn on_sent(self) -> (Self, BackoffEpoch) {
        (Self { in_flight: self.in_flight.saturating_add(1), ..self }, self.epoch)
    }

    /// Returns the state after a request of `epoch` has finished, in whatever way.
    pub fn on_finished(self, epoch: BackoffEpoch) -> Self {
        let finished = u32::from(epoch == self.epoch);
        Self { in_flight: self.in_flight.saturating_sub(finished), ..self }
    }

    /// Returns the maximum number of requests in flight; `None` if unlimited.
    pub fn probe_limit(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.probe_limit).filter(|_| self.probe_limit < UNLIMITED)
    }

    /// Returns the current epoch.
    pub fn epoch(&self) -> BackoffEpoch {
        self.epoch
    }

    /// Returns true if no backoff started since a request of `epoch` was sent.
    pub fn is_current(&self, epoch: BackoffEpoch) -> bool {
        self.epoch == epoch
    }

    /// Returns the remaining pause.
    pub fn remaining(&self, now: Timestamp) -> Duration {
        self.until.saturating_duration_since(now)
    }

    /// Returns the number of overload responses in a row, minus one per quiet window since.
    pub fn level(&self) -> u32 {
        self.level
    }
}

/// Overload statuses of origins and of proxies in front of them.
pub const OVERLOAD_STATUSES: [u16; 9] = [429, 502, 503, 504, 520, 521, 522, 523, 524];

const UNLIMITED: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CONNECTION_ERROR: OriginOutcome = OriginOutcome {
        status: None,
        latency: Duration::ZERO,
        latency_counts: true,
        retry_after: None,
        is_unreachable: false,
    };

    fn backoff() -> Backoff {
        Backoff {
            statuses: vec![429, 503],
            factor: 2,
            min_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(30),
            jitter: Jitter::at_most(0.1),
            window: Duration::from_secs(60),
            min_clients: NonZeroU32::MIN,
        }
    }

    fn decayed(seconds: u64) -> Timestamp {
        Timestamp::from_seconds(1_000_000 + seconds)
    }

    fn outcome_with_status(status: u16, retry_after_s: Option<u64>) -> OriginOutcome {
        OriginOutcome { status: Some(status), retry_after: retry_after_s.map(Duration::from_secs), ..CONNECTION_ERROR }
    }

    /// Simulated scope that sends one request at a time.
    struct BackoffScenario(BackoffState);

    impl BackoffScenario {
        fn run_request(&mut self, seconds: u64, outcome: OriginOutcome) -> &mut Self {
            let (state, epoch) = self.0.on_sent();
            self.0 = backoff().on_outcome(state, epoch, &outcome, 0.0, decayed(seconds)).on_finished(epoch);
            self
        }

        fn backoff_left(&self, seconds: u64) -> u64 {
            self.0.remaining(decayed(seconds)).as_secs()
        }
    }

    #[test]
    fn consecutive_overloads_double_the_backoff_up_to_max() {
        let durations: Vec<u64> = (1..=8).map(|level| backoff().duration(level).as_secs()).collect();
        assert_eq!(durations, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(backoff().duration(u32::MAX), Duration::from_secs(30));
        let mut scenario = BackoffScenario(BackoffState::default());
        let mut now = 0;
        for (level, pause) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 30), (6, 30)] {
            scenario.run_request(now, outcome_with_status(429, None));
            assert_eq!((scenario.0.level(), scenario.backoff_left(now)), (level, pause));
            now += pause;
        }
    }

    #[test]
    fn retry_after_is_a_minimum_below_max_backoff() {
        for (retry_after_s, pause) in [(None, 1), (Some(0), 1), (Some(5), 5), (Some(3600), 30)] {
            let mut scenario = BackoffScenario(BackoffState::default());
            assert_eq!(
                scenario.run_request(0, outcome_with_status(503, retry_after_s)).backoff_left(0),
                pause,
                "{retry_after_s:?}"
            );
        }
        let (state, epoch) = BackoffState::default().on_sent();
        let jittered = backoff().on_outcome(state, epoch, &outcome_with_status(429, Some(10)), 1.0, decayed(0));
        assert_eq!(jittered.remaining(decayed(0)), Duration::from_secs(11), "jitter extends the requested pause");
        let backoff = Backoff { jitter: Jitter { low: -0.5, high: 0.0 }, ..backoff() };
        let pause = |retry_after_s| {
            let (state, epoch) = BackoffState::default().on_sent();
            backoff
                .on_outcome(state, epoch, &outcome_with_status(429, retry_after_s), 0.0, decayed(0))
                .remaining(decayed(0))
        };
        assert_eq!((pause(Some(10)), pause(None)), (Duration::from_secs(10), Duration::from_millis(500)));
    }

    #[test]
    fn exhausted_limit_backs_off_without_raising_the_level() {
        let mut scenario = BackoffScenario(BackoffState::default());
        assert_eq!(scenario.run_request(0, outcome_with_status(200, Some(7))).backoff_left(0), 7);
        assert_eq!(
            (scenario.0.level(), scenario.0.blocked_by(decayed(6))),
            (0, Some(BackoffBlock::BackingOff(decayed(7))))
        );
        let (sent, _) = scenario.0.on_sent();
        assert_eq!(sent.blocked_by(decayed(7)), None, "no probing after a success");
        assert_eq!(
            scenario.run_request(7, outcome_with_status(200, Some(3600))).backoff_left(7),
            30,
            "capped at the maximum"
        );
        assert_eq!(
            scenario.run_request(8, outcome_with_status(404, Some(3600))).backoff_left(8),
            29,
            "neither success nor overload: ignored"
        );
    }

    #[test]
    fn probe_concurrency_grows_by_one_per_success() {
        let mut scenario = BackoffScenario(BackoffState::default());
        scenario.run_request(0, outcome_with_status(429, Some(5)));
        assert_eq!(scenario.0.blocked_by(decayed(4)), Some(BackoffBlock::BackingOff(decayed(5))));
        assert_eq!(scenario.0.blocked_by(decayed(5)), None);
        let (probing, epoch) = scenario.0.on_sent();
        assert_eq!(probing.blocked_by(decayed(5)), Some(BackoffBlock::Probing), "one probe at a time");
        assert_eq!(probing.on_finished(epoch).blocked_by(decayed(6)), None, "an aborted probe releases its slot");
        let proven =
            backoff().on_outcome(probing, epoch, &outcome_with_status(200, None), 0.0, decayed(6)).on_finished(epoch);
        let (one, _) = proven.on_sent();
        assert_eq!(one.blocked_by(decayed(6)), None);
        let (two, _) = one.on_sent();
        assert_eq!(two.blocked_by(decayed(6)), Some(BackoffBlock::Probing), "two requests at most");
        assert_eq!(backoff().decayed(two, decayed(65)).level(), 1);
        let recovered = backoff().decayed(two, decayed(66));
        assert_eq!(
            (recovered.level(), recovered.blocked_by(decayed(66))),
            (0, None),
            "one quiet window after the success"
        );
    }

    #[test]
    fn level_decays_per_quiet_window_after_a_success() {
        let mut scenario = BackoffScenario(BackoffState::default());
        scenario
            .run_request(0, outcome_with_status(429, None))
            .run_request(1, outcome_with_status(429, None))
            .run_request(3, outcome_with_status(503, None));
        assert_eq!(scenario.0.level(), 3);
        assert_eq!(backoff().decayed(scenario.0, decayed(1000)).level(), 3, "no success since");
        scenario.run_request(1000, outcome_with_status(200, None));
        for (seconds, level) in [(1059, 3), (1060, 2), (1119, 2), (1120, 1), (1180, 0), (5000, 0)] {
            assert_eq!(backoff().decayed(scenario.0, decayed(seconds)).level(), level, "at {seconds}");
        }
        scenario.run_request(1061, outcome_with_status(429, None));
        assert_eq!((scenario.0.level(), scenario.backoff_left(1061)), (3, 4), "one level above the decayed one");
    }

    #[test]
    fn in_flight_responses_count_as_one_overload() {
        let (state, first) = BackoffState::default().on_sent();
        let (state, second) = state.on_sent();
        let (state, third) = state.on_sent();
        let state =
            backoff().on_outcome(state, first, &outcome_with_status(429, None), 0.0, decayed(0)).on_finished(first);
        let state = backoff()
            .on_outcome(state, second, &outcome_with_status(429, Some(7)), 0.0, decayed(0))
            .on_finished(second);
        assert_eq!((state.level(), state.remaining(decayed(0)).as_secs()), (1, 7), "one level, but the longer pause");
        let state =
            backoff().on_outcome(state, third, &outcome_with_status(200, None), 0.0, decayed(0)).on_finished(third);
        let (probing, _) = state.on_sent();
        assert_eq!(probing.blocked_by(decayed(7)), Some(BackoffBlock::Probing));
    }

    #[test]
    fn timeouts_and_broken_connections_count_as_overload() {
        assert!(backoff().is_overload(&CONNECTION_ERROR));
        assert!(!backoff().is_overload(&outcome_with_status(500, None)), "only listed statuses");
    }

    proptest! {
        #[test]
        fn in_flight_count_and_backoff_stay_bounded(
            steps in proptest::collection::vec((0u64..40, 0usize..4, proptest::option::of(0u64..100), 0.0f64..1.0), 1..200),
        ) {
            let (mut state, mut in_flight, mut now) = (BackoffState::default(), Vec::new(), 0);
            for (pause, action, retry_after_s, random) in steps {
                now += pause;
                state = backoff().decayed(state, decayed(now));
                if action == 0 && state.blocked_by(decayed(now)).is_none() {
                    let (next, epoch) = state.on_sent();
                    state = next;
                    in_flight.push(epoch);
                } else if let Some(epoch) = in_flight.pop() {
                    if action < 3 {
                        let status = if action == 1 { 200 } else { 429 };
                        state = backoff().on_outcome(state, epoch, &outcome_with_status(status, retry_after_s), random, decayed(now));
                    }
                    state = state.on_finished(epoch);
                }
                let in_current_epoch = in_flight.iter().filter(|&&epoch| epoch == state.epoch).count();
                prop_assert_eq!(state.in_flight as usize, in_current_epoch);
                prop_assert!(state.remaining(decayed(now)) <= Duration::from_secs(30));
                prop_assert_eq!(state.probe_limit == UNLIMITED, state.level == 0);
            }
        }
    }

    #[test]
    fn quiet_windows_lower_the_level_one_by_one() {
        let state = BackoffState { level: 3, probe_limit: 2, last_overload: decayed(0), ..BackoffState::default() };
        let level_at = |state, seconds| backoff().decayed(state, decayed(seconds)).level;
        assert_eq!([59, 60, 119, 120, 179, 180].map(|seconds| level_at(state, seconds)), [3, 2, 2, 1, 1, 0]);
        let lowered = backoff().decayed(state, decayed(90));
        assert_eq!([119, 120].map(|seconds| level_at(lowered, seconds)), [2, 1], "a part of a window is kept");
        let unproven = BackoffState { probe_limit: 1, ..state };
        assert_eq!(level_at(unproven, 1_000_000), 3, "no success has shown that the overload is over");
        assert_eq!(backoff().decayed(state, decayed(180)).probe_limit(), None);
    }

    #[test]
    fn backoff_of_other_settings_ends_within_the_maximum() {
        let until = |seconds| BackoffState { level: 5, until: decayed(seconds), ..BackoffState::default() };
        for (before, after) in [(20, 20), (30, 30), (31, 30), (3600, 30)] {
            assert_eq!(backoff().clamped(until(before), decayed(0)), until(after));
        }
    }

    #[test]
    fn each_probe_without_overload_permits_one_more() {
        let limit = |scenario: &BackoffScenario| scenario.0.probe_limit().map(NonZeroU32::get);
        let mut scenario = BackoffScenario(BackoffState::default());
        assert_eq!(limit(&scenario), None);
        scenario.run_request(0, outcome_with_status(429, None));
        assert_eq!(limit(&scenario), Some(1));
        for (second, expected) in [(1, 2), (2, 3), (3, 4)] {
            assert_eq!(limit(scenario.run_request(second, outcome_with_status(200, None))), Some(expected));
        }
    }

    #[test]
    fn overload_and_reported_exhaustion_pause_requests() {
        let outcomes = [(429, None), (503, Some(1)), (200, Some(1)), (200, None), (404, Some(1)), (500, None)];
        let pauses =
            outcomes.map(|(status, retry_after_s)| backoff().pauses_after(&outcome_with_status(status, retry_after_s)));
        assert_eq!(pauses, [true, true, true, false, false, false]);
        assert!(backoff().pauses_after(&CONNECTION_ERROR));
    }

    #[test]
    fn request_is_of_the_current_epoch_until_a_backoff_starts() {
        let (state, before) = BackoffState::default().on_sent();
        let after = |status| backoff().on_outcome(state, before, &outcome_with_status(status, None), 0.0, decayed(0));
        assert!(state.is_current(before) && after(200).is_current(before));
        assert!(!after(429).is_current(before) && after(429).is_current(after(429).epoch()));
    }
}
