//! One scope: what is under way in it, what was learned of it, and what keeps the next request from starting.

use super::OLDEST_EVERY;
use super::slot_cooldown::SlotCooldowns;
use crate::policy::throttle::autothrottle::Adjustment;
use crate::policy::throttle::backoff::{BackoffState, BackoffBlock, BackoffEpoch};
use crate::policy::throttle::controller::{Controller, ControllerState, EffectiveLimits};
use crate::policy::throttle::{self, OriginOutcome};
use crate::policy::time::Timestamp;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// One scope's book.
pub(super) struct ScopeLimiter {
    pub(super) name: Arc<str>,
    /// None once the settings name it no more; who is in it leaves all the same.
    pub(super) rules: Option<Arc<throttle::ThrottleConfig>>,
    pub(super) in_flight: u32,
    pub(super) waiting: u32,
    starts: u32,
    next_start: Timestamp,
    cooling: SlotCooldowns,
    course: ControllerState,
    /// What follows from rules and course.
    pace: EffectiveLimits,
    pub(super) pressure: BackoffState,
    /// How long an answer takes of late.
    latency: Duration,
}

/// What keeps a lane from going.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BlockedBy {
    /// A slot has to come free.
    Slot,
    /// The same, which one does by then at the latest.
    SlotBy(Timestamp),
    /// A probe has to come back.
    Probe,
    /// Time has to pass.
    Spacing(Timestamp),
    /// The scope rests.
    Rest(Timestamp),
}

/// What a scope takes from an outcome.
#[derive(Default)]
pub(super) struct FeedbackEffect {
    /// How long it rests, if that was a complaint.
    pub(super) rest: Option<Duration>,
    /// What it did to the delay, if somebody watches.
    pub(super) adjustment: Option<Adjustment>,
}

/// One scope as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct ScopeState {
    /// Its name; of one of those by value, the value.
    pub name: Arc<str>,
    /// Requests that hold a slot.
    pub in_flight: u32,
    /// Requests in line.
    pub waiting: u32,
    /// The most that may hold a slot now, where there is a most.
    pub limit: Option<u32>,
    /// The time between any two requests now.
    pub delay: Duration,
    /// How long it still rests.
    pub rests_for: Duration,
    /// How often in a row the origin complained.
    pub level: u32,
    /// What finds out how hard it may press, if anything does.
    pub controller: Option<&'static str>,
    /// How many values have a scope of that name; `None`, where it is there once.
    pub values: Option<usize>,
}

impl ScopeState {
    /// Both taken together, as one that is by value is shown: requests are added up, of the rest the most is told.
    pub(super) fn and(self, other: &Self) -> Self {
        Self {
            in_flight: self.in_flight + other.in_flight,
            waiting: self.waiting + other.waiting,
            limit: self.limit.max(other.limit),
            delay: self.delay.max(other.delay),
            rests_for: self.rests_for.max(other.rests_for),
            level: self.level.max(other.level),
            ..self
        }
    }
}

impl BlockedBy {
    pub(super) fn until(self) -> Option<Timestamp> {
        match self {
            Self::SlotBy(moment) | Self::Spacing(moment) | Self::Rest(moment) => Some(moment),
            Self::Slot | Self::Probe => None,
        }
    }

    pub(super) fn is_slot(self) -> bool {
        matches!(self, Self::Slot | Self::SlotBy(_))
    }

    pub(super) fn lasts_beyond(self, moment: Timestamp) -> bool {
        !self.is_slot() && self.until().is_some_and(|opens| opens > moment)
    }
}

impl ScopeLimiter {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            rules: None,
            in_flight: 0,
            waiting: 0,
            starts: 0,
            next_start: Timestamp::default(),
            cooling: SlotCooldowns::default(),
            course: ControllerState::Fixed,
            pace: EffectiveLimits::default(),
            pressure: BackoffState::default(),
            latency: Duration::ZERO,
        }
    }

    /// Takes over new settings; what was learned under the old ones is kept as far as they have a use for it.
    pub(super) fn follow(&mut self, rules: Option<Arc<throttle::ThrottleConfig>>, now: Timestamp) {
        let Some(new) = &rules else { return };
        self.course = new.course(self.course, now);
        self.pace = new.pace(&self.course);
        self.pressure =
            new.backoff.as_ref().map_or_else(BackoffState::default, |backoff| backoff.within(self.pressure, now));
        self.next_start = self.next_start.min(new.spacing.next_after(self.pace.delay, 1.0, now));
        self.cooling.end_by(new.spacing.slot_opens(now));
        self.rules = rules;
    }

    /// Returns whether nobody is in it, nobody is kept from it, and it presses as hard as a new one: to forget it changes
    /// nothing.
    pub(super) fn is_as_new(&self, now: Timestamp) -> bool {
        let has_learned = |rules: &Arc<throttle::ThrottleConfig>| {
            let pressure = rules.backoff.as_ref().map(|backoff| backoff.at(self.pressure, now));
            self.pace != rules.pace(&rules.course(ControllerState::Fixed, now))
                || pressure.is_some_and(|pressure| pressure.level() > 0)
        };
        self.is_empty(now) && !self.rules.as_ref().is_some_and(has_learned)
    }

    /// Returns whether nobody is in it, and nobody is kept from it.
    pub(super) fn is_empty(&self, now: Timestamp) -> bool {
        self.in_flight == 0 && self.waiting == 0 && self.cooling.slots(now) == 0 && self.hindrance(now).is_none()
    }

    pub(super) fn hindrance(&self, now: Timestamp) -> Option<BlockedBy> {
        let rules = self.rules.as_ref()?;
        if let Some(backoff) = &rules.backoff {
            match backoff.at(self.pressure, now).hinders(now) {
                Some(BackoffBlock::Until(moment)) => return Some(BlockedBy::Rest(moment)),
                Some(BackoffBlock::Probing) => return Some(BlockedBy::Probe),
                None => {}
            }
        }
        if now < self.next_start {
            return Some(BlockedBy::Spacing(self.next_start));
        }
        self.slot_hindrance(self.pace.limit?, now)
    }

    fn slot_hindrance(&self, most: u32, now: Timestamp) -> Option<BlockedBy> {
        if self.in_flight >= most {
            return Some(BlockedBy::Slot);
        }
        let opens = self.cooling.next(now)?;
        let is_free = self.in_flight + self.cooling.slots(now) < most;
        // Whoever is under way may be over before that, and have been sent long enough ago.
        let hindrance = if self.in_flight > 0 { BlockedBy::SlotBy(opens) } else { BlockedBy::Spacing(opens) };
        (!is_free).then_some(hindrance)
    }

    /// When one can start before whom `others` start, as far as that is only a matter of the time between them.
    pub(super) fn starts_after(&self, others: u32, now: Timestamp) -> Timestamp {
        self.next_start.max(now) + self.pace.delay.saturating_mul(others)
    }

    pub(super) fn turn_is_of_the_oldest(&self) -> bool {
        self.starts % OLDEST_EVERY == OLDEST_EVERY - 1
    }

    /// Returns whether one more start takes the last slot that is free.
    pub(super) fn has_one_slot_left(&self, now: Timestamp) -> bool {
        let taken = self.in_flight + self.cooling.slots(now);
        self.pace.limit.is_some_and(|most| taken.saturating_add(1) >= most)
    }

    /// One more starts. Where it was not its turn, the turn is still of the one whose it is.
    pub(super) fn start(&mut self, takes_turn: bool, chance: f64, now: Timestamp) -> BackoffEpoch {
        self.in_flight += 1;
        self.starts = self.starts.wrapping_add(u32::from(takes_turn));
        if let Some(rules) = &self.rules {
            self.next_start = rules.spacing.next_after(self.pace.delay, chance, now);
            rules.sent(&mut self.course, self.in_flight, now);
        }
        if let Some(backoff) = self.rules.as_ref().and_then(|rules| rules.backoff.as_ref()) {
            self.pressure = backoff.at(self.pressure, now);
        }
        let (pressure, spell) = self.pressure.sent();
        self.pressure = pressure;
        spell
    }

    /// What follows from the outcome of a request that was sent at `sent`.
    pub(super) fn hear(
        &mut self,
        spell: BackoffEpoch,
        outcome: &OriginOutcome,
        chance: f64,
        sent: Timestamp,
        now: Timestamp,
    ) -> FeedbackEffect {
        let Some(rules) = &self.rules else { return FeedbackEffect::default() };
        let delay = self.pace.delay;
        rules.heard(&mut self.course, outcome, sent, self.in_flight, now);
        self.pace = rules.pace(&self.course);
        let adjustment = match &rules.controller {
            Some(Controller::Autothrottle(auto)) => auto.adjustment(delay, self.pace.delay, outcome),
            _ => None,
        };
        self.latency = match self.latency.is_zero() {
            true => outcome.latency,
            false => (self.latency * 7 + outcome.latency.min(Duration::from_secs(3600))) / 8,
        };
        let Some(backoff) = &rules.backoff else { return FeedbackEffect { rest: None, adjustment } };
        self.pressure = rules.pressure_after(self.pressure, &self.course, spell, outcome, chance, now);
        FeedbackEffect { rest: backoff.minds(outcome).then(|| self.pressure.rest_left(now)), adjustment }
    }

    /// A request that was sent at `sent` is over, however it ended.
    pub(super) fn over(&mut self, spell: BackoffEpoch, sent: Timestamp, now: Timestamp) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.pressure = self.pressure.over(spell);
        if let Some(rules) = &self.rules {
            self.cooling.put(rules.spacing.slot_opens(sent), now);
        }
    }

    /// How long one who comes back may expect to be kept away: until all who wait have gone, and a slot is free again
    /// though all that are taken have just been.
    pub(super) fn expects(&self, now: Timestamp) -> Duration {
        let Some(rules) = &self.rules else { return Duration::ZERO };
        let rested = now + self.pressure.rest_left(now);
        let spaced = self.starts_after(self.waiting, rested).since(now);
        let most_at_once = self.pace.limit.into_iter().chain(self.pressure.most_at_once().map(NonZeroU32::get)).min();
        let Some(most) = most_at_once.map(|most| most.max(1)) else { return spaced };
        let slot = self.slot_hindrance(most, now).and_then(BlockedBy::until).unwrap_or(now);
        let cooled = slot.since(now).saturating_add(rules.spacing.per_slot.saturating_mul(self.waiting / most));
        let served = self.latency.saturating_mul(self.waiting.saturating_add(1).div_ceil(most));
        spaced.max(cooled).max(served)
    }

    pub(super) fn state(&self, now: Timestamp) -> Option<ScopeState> {
        let rules = self.rules.as_ref()?;
        let pressure = rules.backoff.as_ref().map_or(self.pressure, |backoff| backoff.at(self.pressure, now));
        Some(ScopeState {
            name: Arc::clone(&self.name),
            in_flight: self.in_flight,
            waiting: self.waiting,
            limit: self.pace.limit,
            delay: self.pace.delay,
            rests_for: pressure.rest_left(now),
            level: pressure.level(),
            controller: rules.controller.as_ref().map(Controller::name),
            values: None,
        })
    }
}
