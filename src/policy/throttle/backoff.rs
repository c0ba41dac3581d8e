//! What a scope does when the origin complains: it rests, then tries with one request, then goes on step by step.
//!
//! ```text
//!          complaint                     over                  no complaint
//!   calm -------------> rest of a level -------> one at a time ------------> one more with each such answer
//!    ^                        ^                        |                         |           |
//!    |                        +--- complaint: a level higher --------------------+           |
//!    +-------------------------------------- a level lower after each quiet window ----------+
//! ```
//! Requests that were under way when a rest began belong to an earlier *spell*: sixty of them complaining together
//! are one complaint, and none of their successes ends the rest.

use super::{Jitter, OriginOutcome};
use crate::policy::Timestamp;
use std::num::NonZeroU32;
use std::time::Duration;

/// How a scope backs off.
#[derive(Clone, Debug, PartialEq)]
pub struct Backoff {
    /// The statuses that are a complaint. So are timeouts and broken connections.
    pub statuses: Vec<u16>,
    /// By what each rest is longer than the one before.
    pub factor: u32,
    /// The first rest.
    pub min_delay: Duration,
    /// The longest, whatever the origin asks for.
    pub max_delay: Duration,
    /// By how much rests are varied.
    pub jitter: Jitter,
    /// How long it must be quiet for the level to fall by one.
    pub window: Duration,
}

/// How much the origin has complained of late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffState {
    /// Complaints in a row: the next rest is that of the level above.
    level: u32,
    until: Timestamp,
    last_overload: Timestamp,
    epoch: BackoffEpoch,
    /// Requests of this spell that may be under way, and that are.
    probe_limit: u32,
    in_flight: u32,
}

/// The time from the beginning of one rest to the beginning of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BackoffEpoch(u32);

/// Why a scope under pressure takes nobody now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackoffBlock {
    /// It rests.
    BackingOff(Timestamp),
    /// Those who are on their way find out first whether the origin is well.
    Probing,
}

impl Default for BackoffState {
    fn default() -> Self {
        Self {
            level: 0,
            until: Timestamp(0),
            last_overload: Timestamp(0),
            epoch: BackoffEpoch(0),
            probe_limit: UNLIMITED,
            in_flight: 0,
        }
    }
}

impl Backoff {
    /// Returns whether that is a complaint.
    pub fn is_overload(&self, outcome: &OriginOutcome) -> bool {
        outcome.status.is_none_or(|status| self.statuses.contains(&status))
    }

    /// Returns the rest after the complaint that leads to `level`, from 1.
    pub fn duration(&self, level: u32) -> Duration {
        let factor = self.factor.max(1).checked_pow(level.saturating_sub(1));
        let rest = factor.and_then(|factor| self.min_delay.checked_mul(factor));
        rest.unwrap_or(Duration::MAX).min(self.max_delay)
    }

    /// Returns the pressure after the outcome of a request that was sent in `spell`.
    pub fn on_outcome(
        &self,
        pressure: BackoffState,
        epoch: BackoffEpoch,
        outcome: &OriginOutcome,
        chance: f64,
        now: Timestamp,
    ) -> BackoffState {
        let pressure = self.decayed(pressure, now);
        let (is_of_this_spell, minds) = (epoch == pressure.epoch, self.is_overload(outcome));
        if minds && is_of_this_spell {
            return self.on_overload(pressure, outcome.retry_after, chance, now);
        }
        let pressure = match is_of_this_spell && pressure.level > 0 {
            true => self.on_probe_success(pressure, now),
            false => pressure,
        };
        // Those that were under way are the same complaint, but may ask for a longer rest. Who was served and is told that
        // nothing is left has not complained: the rest is kept, nothing has to be tried after it, and none grows longer.
        let asked_for = outcome.retry_after.filter(|_| minds || outcome.is_success()).unwrap_or_default();
        let until = pressure.until.max(now + asked_for.min(self.max_delay));
        BackoffState { until, ..pressure }
    }

    fn on_probe_success(&self, pressure: BackoffState, now: Timestamp) -> BackoffState {
        // It is quiet from the first success on: before, nobody had asked.
        let last_overload = if pressure.probe_limit == 1 { now } else { pressure.last_overload };
        BackoffState { probe_limit: pressure.probe_limit.saturating_add(1), last_overload, ..pressure }
    }

    /// The same after a complaint that was wished, to find out what the origin bears: it is a step back toward the first
    /// rest, or complaints that come as often as they should would make rests as long as they can be.
    pub fn on_tolerated_overload(
        &self,
        pressure: BackoffState,
        epoch: BackoffEpoch,
        outcome: &OriginOutcome,
        chance: f64,
        now: Timestamp,
    ) -> BackoffState {
        let back = if epoch == pressure.epoch { 2 } else { 0 };
        let eased = BackoffState { level: pressure.level.saturating_sub(back), ..pressure };
        self.on_outcome(eased, epoch, outcome, chance, now)
    }

    /// Returns the pressure under these settings, learned under others: no rest is longer than the longest.
    pub fn clamped(&self, pressure: BackoffState, now: Timestamp) -> BackoffState {
        BackoffState { until: pressure.until.min(now + self.max_delay), ..pressure }
    }

    /// Returns the pressure as it is at `now`: a level less for each quiet window.
    pub fn decayed(&self, pressure: BackoffState, now: Timestamp) -> BackoffState {
        let is_proven = pressure.probe_limit > 1;
        if pressure.level == 0 || !is_proven || self.window.is_zero() {
            return pressure;
        }
        let windows = now.saturating_duration_since(pressure.last_overload).as_nanos() / self.window.as_nanos();
        match u32::try_from(windows) {
            Ok(windows) if windows < pressure.level => BackoffState {
                level: pressure.level - windows,
                last_overload: pressure.last_overload + self.window * windows,
                ..pressure
            },
            _ => BackoffState { level: 0, probe_limit: UNLIMITED, ..pressure },
        }
    }

    fn on_overload(
        &self,
        pressure: BackoffState,
        asked_for: Option<Duration>,
        chance: f64,
        now: Timestamp,
    ) -> BackoffState {
        // A level that makes no rest longer would only take longer to come down from.
        let is_longest = pressure.level > 0 && self.duration(pressure.level) == self.duration(pressure.level + 1);
        let level = pressure.level + u32::from(!is_longest);
        let asked_for = asked_for.unwrap_or_default();
        let rest = self.jitter.apply(self.duration(level).max(asked_for), chance).max(asked_for).min(self.max_delay);
        BackoffState {
            level,
            until: pressure.until.max(now + rest),
            last_overload: now,
            epoch: BackoffEpoch(pressure.epoch.0.wrapping_add(1)),
            probe_limit: 1,
            in_flight: 0,
        }
    }
}

impl BackoffState {
    /// Returns why a request may not be sent now, if it may not.
    pub fn blocked_by(&self, now: Timestamp) -> Option<BackoffBlock> {
        if now < self.until {
            return Some(BackoffBlock::BackingOff(self.until));
        }
        (self.in_flight >= self.probe_limit).then_some(BackoffBlock::Probing)
    }

    /// Returns the pressure with one more request under way, and the spell that it belongs to.
    pub fn on_sent(self) -> (Self, BackoffEpoch) {
        (Self { in_flight: self.in_flight.saturating_add(1), ..self }, self.epoch)
    }

    /// Returns the pressure once a request of `spell` is over, however it ended.
    pub fn on_finished(self, epoch: BackoffEpoch) -> Self {
        let ended = u32::from(epoch == self.epoch);
        Self { in_flight: self.in_flight.saturating_sub(ended), ..self }
    }

    /// Returns how many may be under way at once, where there is a bound.
    pub fn probe_limit(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.probe_limit).filter(|_| self.probe_limit < UNLIMITED)
    }

    /// Returns how long it still rests.
    pub fn remaining(&self, now: Timestamp) -> Duration {
        self.until.saturating_duration_since(now)
    }

    /// Returns how often in a row the origin complained, less one for each quiet window since.
    pub fn level(&self) -> u32 {
        self.level
    }
}

/// What an origin, or a proxy before it, says when it has had enough.
pub const OVERLOAD_STATUSES: [u16; 9] = [429, 502, 503, 504, 520, 521, 522, 523, 524];

const UNLIMITED: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BROKE_OFF: OriginOutcome =
        OriginOutcome { status: None, latency: Duration::ZERO, measured: true, retry_after: None };

    fn backoff() -> Backoff {
        Backoff {
            statuses: vec![429, 503],
            factor: 2,
            min_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(30),
            jitter: Jitter::at_most(0.1),
            window: Duration::from_secs(60),
        }
    }

    fn decayed(seconds: u64) -> Timestamp {
        Timestamp::from_seconds(1_000_000 + seconds)
    }

    fn answer(status: u16, asked_for: Option<u64>) -> OriginOutcome {
        OriginOutcome { status: Some(status), retry_after: asked_for.map(Duration::from_secs), ..BROKE_OFF }
    }

    /// A scope that sends one request at a time.
    struct Story(BackoffState);

    impl Story {
        fn asks(&mut self, seconds: u64, outcome: OriginOutcome) -> &mut Self {
            let (pressure, epoch) = self.0.on_sent();
            self.0 = backoff().on_outcome(pressure, epoch, &outcome, 0.0, decayed(seconds)).on_finished(epoch);
            self
        }

        fn rests_for(&self, seconds: u64) -> u64 {
            self.0.remaining(decayed(seconds)).as_secs()
        }
    }

    #[test]
    fn each_complaint_in_a_row_doubles_the_rest_up_to_the_longest() {
        let rests: Vec<u64> = (1..=8).map(|level| backoff().duration(level).as_secs()).collect();
        assert_eq!(rests, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(backoff().duration(u32::MAX), Duration::from_secs(30));
        let mut story = Story(BackoffState::default());
        let mut now = 0;
        for (level, rest) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 30), (6, 30)] {
            story.asks(now, answer(429, None));
            assert_eq!((story.0.level(), story.rests_for(now)), (level, rest));
            now += rest;
        }
    }

    #[test]
    fn the_origin_s_own_wish_is_a_floor_below_the_longest() {
        for (asked_for, rest) in [(None, 1), (Some(0), 1), (Some(5), 5), (Some(3600), 30)] {
            let mut story = Story(BackoffState::default());
            assert_eq!(story.asks(0, answer(503, asked_for)).rests_for(0), rest, "{asked_for:?}");
        }
        let (pressure, epoch) = BackoffState::default().on_sent();
        let late = backoff().on_outcome(pressure, epoch, &answer(429, Some(10)), 1.0, decayed(0));
        assert_eq!(late.remaining(decayed(0)), Duration::from_secs(11), "jitter comes on top");
        let backoff = Backoff { jitter: Jitter { low: -0.5, high: 0.0 }, ..backoff() };
        let rest = |asked_for| {
            let (pressure, spell) = BackoffState::default().on_sent();
            backoff.on_outcome(pressure, spell, &answer(429, asked_for), 0.0, decayed(0)).remaining(decayed(0))
        };
        assert_eq!((rest(Some(10)), rest(None)), (Duration::from_secs(10), Duration::from_millis(500)));
    }

    #[test]
    fn a_good_answer_that_leaves_nothing_is_a_rest_but_no_complaint() {
        let mut story = Story(BackoffState::default());
        assert_eq!(story.asks(0, answer(200, Some(7))).rests_for(0), 7);
        assert_eq!((story.0.level(), story.0.blocked_by(decayed(6))), (0, Some(BackoffBlock::BackingOff(decayed(7)))));
        let (first, _) = story.0.on_sent();
        assert_eq!(first.blocked_by(decayed(7)), None, "nobody tries for the others");
        assert_eq!(story.asks(7, answer(200, Some(3600))).rests_for(7), 30, "never longer than the longest");
        assert_eq!(story.asks(8, answer(404, Some(3600))).rests_for(8), 29, "what is neither says nothing");
    }

    #[test]
    fn after_the_rest_one_tries_and_each_success_lets_one_more_in() {
        let mut story = Story(BackoffState::default());
        story.asks(0, answer(429, Some(5)));
        assert_eq!(story.0.blocked_by(decayed(4)), Some(BackoffBlock::BackingOff(decayed(5))));
        assert_eq!(story.0.blocked_by(decayed(5)), None);
        let (probing, epoch) = story.0.on_sent();
        assert_eq!(probing.blocked_by(decayed(5)), Some(BackoffBlock::Probing), "one at a time");
        assert_eq!(
            probing.on_finished(epoch).blocked_by(decayed(6)),
            None,
            "one that left without an answer frees its place"
        );
        let proven = backoff().on_outcome(probing, epoch, &answer(200, None), 0.0, decayed(6)).on_finished(epoch);
        let (one, _) = proven.on_sent();
        assert_eq!(one.blocked_by(decayed(6)), None);
        let (two, _) = one.on_sent();
        assert_eq!(two.blocked_by(decayed(6)), Some(BackoffBlock::Probing), "two, not all at once");
        assert_eq!(backoff().decayed(two, decayed(65)).level(), 1);
        let calm = backoff().decayed(two, decayed(66));
        assert_eq!((calm.level(), calm.blocked_by(decayed(66))), (0, None), "quiet for a window since the success");
    }

    #[test]
    fn a_level_is_lost_with_each_quiet_window_but_not_before_a_success() {
        let mut story = Story(BackoffState::default());
        story.asks(0, answer(429, None)).asks(1, answer(429, None)).asks(3, answer(503, None));
        assert_eq!(story.0.level(), 3);
        assert_eq!(backoff().decayed(story.0, decayed(1000)).level(), 3, "nobody has asked since");
        story.asks(1000, answer(200, None));
        for (seconds, level) in [(1059, 3), (1060, 2), (1119, 2), (1120, 1), (1180, 0), (5000, 0)] {
            assert_eq!(backoff().decayed(story.0, decayed(seconds)).level(), level, "at {seconds}");
        }
        story.asks(1061, answer(429, None));
        assert_eq!((story.0.level(), story.rests_for(1061)), (3, 4), "one up from where it had come down to");
    }

    #[test]
    fn those_under_way_complain_once_and_none_of_them_ends_the_rest() {
        let (pressure, first) = BackoffState::default().on_sent();
        let (pressure, second) = pressure.on_sent();
        let (pressure, third) = pressure.on_sent();
        let pressure = backoff().on_outcome(pressure, first, &answer(429, None), 0.0, decayed(0)).on_finished(first);
        let pressure =
            backoff().on_outcome(pressure, second, &answer(429, Some(7)), 0.0, decayed(0)).on_finished(second);
        assert_eq!(
            (pressure.level(), pressure.remaining(decayed(0)).as_secs()),
            (1, 7),
            "once, but the longer wish counts"
        );
        let pressure = backoff().on_outcome(pressure, third, &answer(200, None), 0.0, decayed(0)).on_finished(third);
        let (probing, _) = pressure.on_sent();
        assert_eq!(probing.blocked_by(decayed(7)), Some(BackoffBlock::Probing));
    }

    #[test]
    fn timeouts_and_broken_connections_are_complaints() {
        assert!(backoff().is_overload(&BROKE_OFF));
        assert!(!backoff().is_overload(&answer(500, None)), "only what is listed");
    }

    proptest! {
        #[test]
        fn never_more_under_way_than_allowed_and_never_a_longer_rest_than_the_longest(
            steps in proptest::collection::vec((0u64..40, 0usize..4, proptest::option::of(0u64..100), 0.0f64..1.0), 1..200),
        ) {
            let (mut pressure, mut out, mut now) = (BackoffState::default(), Vec::new(), 0);
            for (pause, what, asked_for, chance) in steps {
                now += pause;
                pressure = backoff().decayed(pressure, decayed(now));
                if what == 0 && pressure.blocked_by(decayed(now)).is_none() {
                    let (next, spell) = pressure.on_sent();
                    pressure = next;
                    out.push(spell);
                } else if let Some(spell) = out.pop() {
                    if what < 3 {
                        let status = if what == 1 { 200 } else { 429 };
                        pressure = backoff().on_outcome(pressure, spell, &answer(status, asked_for), chance, decayed(now));
                    }
                    pressure = pressure.on_finished(spell);
                }
                let of_this_spell = out.iter().filter(|&&spell| spell == pressure.epoch).count();
                prop_assert_eq!(pressure.in_flight as usize, of_this_spell);
                prop_assert!(pressure.remaining(decayed(now)) <= Duration::from_secs(30));
                prop_assert_eq!(pressure.probe_limit == UNLIMITED, pressure.level == 0);
            }
        }
    }
}
