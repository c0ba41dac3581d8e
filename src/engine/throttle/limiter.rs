//! One scope: what is under way in it, what was learned of it, and what keeps the next request from starting.

use super::OLDEST_FIRST_INTERVAL;
use super::slot_cooldown::SlotCooldowns;
use crate::policy::throttle::autothrottle::Adjustment;
use crate::policy::throttle::backoff::{BackoffBlock, BackoffEpoch, BackoffState};
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
    pub(super) queue_length: u32,
    starts_since_oldest: u32,
    next_start: Timestamp,
    slot_cooldowns: SlotCooldowns,
    controller_state: ControllerState,
    /// What follows from rules and course.
    limits: EffectiveLimits,
    pub(super) backoff_state: BackoffState,
    /// How long an answer takes of late.
    latency: Duration,
}

/// What keeps a lane from going.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BlockedBy {
    /// A slot has to come free.
    NoSlot,
    /// The same, which one does by then at the latest.
    NoSlotUntil(Timestamp),
    /// A probe has to come back.
    Probing,
    /// Time has to pass.
    Spacing(Timestamp),
    /// The scope rests.
    Backoff(Timestamp),
}

/// What a scope takes from an outcome.
#[derive(Default)]
pub(super) struct FeedbackEffect {
    /// How long it rests, if that was a complaint.
    pub(super) backoff: Option<Duration>,
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
    pub queue_length: u32,
    /// The most that may hold a slot now, where there is a most.
    pub limit: Option<u32>,
    /// The time between any two requests now.
    pub delay: Duration,
    /// How long it still rests.
    pub backoff_remaining: Duration,
    /// How often in a row the origin complained.
    pub backoff_level: u32,
    /// What finds out how hard it may press, if anything does.
    pub controller: Option<&'static str>,
    /// How many values have a scope of that name; `None`, where it is there once.
    pub partitions: Option<usize>,
}

impl ScopeState {
    /// Both taken together, as one that is by value is shown: requests are added up, of the rest the most is told.
    pub(super) fn merge(self, other: &Self) -> Self {
        Self {
            in_flight: self.in_flight + other.in_flight,
            queue_length: self.queue_length + other.queue_length,
            limit: self.limit.max(other.limit),
            delay: self.delay.max(other.delay),
            backoff_remaining: self.backoff_remaining.max(other.backoff_remaining),
            backoff_level: self.backoff_level.max(other.backoff_level),
            ..self
        }
    }
}

impl BlockedBy {
    pub(super) fn until(self) -> Option<Timestamp> {
        match self {
            Self::NoSlotUntil(moment) | Self::Spacing(moment) | Self::Backoff(moment) => Some(moment),
            Self::NoSlot | Self::Probing => None,
        }
    }

    pub(super) fn is_slot(self) -> bool {
        matches!(self, Self::NoSlot | Self::NoSlotUntil(_))
    }

    pub(super) fn persists_after(self, moment: Timestamp) -> bool {
        !self.is_slot() && self.until().is_some_and(|opens| opens > moment)
    }
}

impl ScopeLimiter {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            rules: None,
            in_flight: 0,
            queue_length: 0,
            starts_since_oldest: 0,
            next_start: Timestamp::default(),
            slot_cooldowns: SlotCooldowns::default(),
            controller_state: ControllerState::Fixed,
            limits: EffectiveLimits::default(),
            backoff_state: BackoffState::default(),
            latency: Duration::ZERO,
        }
    }

    /// Takes over new settings; what was learned under the old ones is kept as far as they have a use for it.
    pub(super) fn update_config(&mut self, rules: Option<Arc<throttle::ThrottleConfig>>, now: Timestamp) {
        let Some(new) = &rules else { return };
        self.controller_state = new.update_controller(self.controller_state, now);
        self.limits = new.effective_limits(&self.controller_state);
        self.backoff_state =
            new.backoff.as_ref().map_or_else(BackoffState::default, |backoff| backoff.clamped(self.backoff_state, now));
        self.next_start = self.next_start.min(new.spacing.next_start(self.limits.delay, 1.0, now));
        self.slot_cooldowns.truncate_to(new.spacing.slot_free_at(now));
        self.rules = rules;
    }

    /// Returns whether nobody is in it, nobody is kept from it, and it presses as hard as a new one: to forget it changes
    /// nothing.
    pub(super) fn is_pristine(&self, now: Timestamp) -> bool {
        let has_learned = |rules: &Arc<throttle::ThrottleConfig>| {
            let backoff_state = rules.backoff.as_ref().map(|backoff| backoff.decayed(self.backoff_state, now));
            self.limits != rules.effective_limits(&rules.update_controller(ControllerState::Fixed, now))
                || backoff_state.is_some_and(|pressure| pressure.level() > 0)
        };
        self.is_empty(now) && !self.rules.as_ref().is_some_and(has_learned)
    }

    /// Returns whether nobody is in it, and nobody is kept from it.
    pub(super) fn is_empty(&self, now: Timestamp) -> bool {
        self.in_flight == 0
            && self.queue_length == 0
            && self.slot_cooldowns.cooling_slots(now) == 0
            && self.blocked_by(now).is_none()
    }

    pub(super) fn blocked_by(&self, now: Timestamp) -> Option<BlockedBy> {
        let rules = self.rules.as_ref()?;
        if let Some(backoff) = &rules.backoff {
            match backoff.decayed(self.backoff_state, now).blocked_by(now) {
                Some(BackoffBlock::BackingOff(moment)) => return Some(BlockedBy::Backoff(moment)),
                Some(BackoffBlock::Probing) => return Some(BlockedBy::Probing),
                None => {}
            }
        }
        if now < self.next_start {
            return Some(BlockedBy::Spacing(self.next_start));
        }
        self.slot_blocked_by(self.limits.limit?, now)
    }

    fn slot_blocked_by(&self, most: u32, now: Timestamp) -> Option<BlockedBy> {
        if self.in_flight >= most {
            return Some(BlockedBy::NoSlot);
        }
        let opens = self.slot_cooldowns.next_free(now)?;
        let is_free = self.in_flight + self.slot_cooldowns.cooling_slots(now) < most;
        // Whoever is under way may be over before that, and have been sent long enough ago.
        let hindrance = if self.in_flight > 0 { BlockedBy::NoSlotUntil(opens) } else { BlockedBy::Spacing(opens) };
        (!is_free).then_some(hindrance)
    }

    /// When one can start before whom `others` start, as far as that is only a matter of the time between them.
    pub(super) fn earliest_start_after(&self, others: u32, now: Timestamp) -> Timestamp {
        self.next_start.max(now) + self.limits.delay.saturating_mul(others)
    }

    pub(super) fn oldest_first_due(&self) -> bool {
        self.starts_since_oldest % OLDEST_FIRST_INTERVAL == OLDEST_FIRST_INTERVAL - 1
    }

    /// Returns whether one more start takes the last slot that is free.
    pub(super) fn has_one_slot_left(&self, now: Timestamp) -> bool {
        let taken = self.in_flight + self.slot_cooldowns.cooling_slots(now);
        self.limits.limit.is_some_and(|most| taken.saturating_add(1) >= most)
    }

    /// One more starts. Where it was not its turn, the turn is still of the one whose it is.
    pub(super) fn grant(&mut self, takes_turn: bool, chance: f64, now: Timestamp) -> BackoffEpoch {
        self.in_flight += 1;
        self.starts_since_oldest = self.starts_since_oldest.wrapping_add(u32::from(takes_turn));
        if let Some(rules) = &self.rules {
            self.next_start = rules.spacing.next_start(self.limits.delay, chance, now);
            rules.on_sent(&mut self.controller_state, self.in_flight, now);
        }
        if let Some(backoff) = self.rules.as_ref().and_then(|rules| rules.backoff.as_ref()) {
            self.backoff_state = backoff.decayed(self.backoff_state, now);
        }
        let (backoff_state, spell) = self.backoff_state.on_sent();
        self.backoff_state = backoff_state;
        spell
    }

    /// What follows from the outcome of a request that was sent at `sent`.
    pub(super) fn record_response(
        &mut self,
        spell: BackoffEpoch,
        outcome: &OriginOutcome,
        chance: f64,
        sent: Timestamp,
        now: Timestamp,
    ) -> FeedbackEffect {
        let Some(rules) = &self.rules else { return FeedbackEffect::default() };
        let delay = self.limits.delay;
        rules.on_outcome(&mut self.controller_state, outcome, sent, self.in_flight, now);
        self.limits = rules.effective_limits(&self.controller_state);
        let adjustment = match &rules.controller {
            Some(Controller::Autothrottle(auto)) => auto.adjustment(delay, self.limits.delay, outcome),
            _ => None,
        };
        self.latency = match self.latency.is_zero() {
            true => outcome.latency,
            false => (self.latency * 7 + outcome.latency.min(Duration::from_secs(3600))) / 8,
        };
        let Some(backoff) = &rules.backoff else { return FeedbackEffect { backoff: None, adjustment } };
        self.backoff_state =
            rules.backoff_after(self.backoff_state, &self.controller_state, spell, outcome, chance, now);
        FeedbackEffect { backoff: backoff.is_overload(outcome).then(|| self.backoff_state.remaining(now)), adjustment }
    }

    /// A request that was sent at `sent` is over, however it ended.
    pub(super) fn release(&mut self, spell: BackoffEpoch, sent: Timestamp, now: Timestamp) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.backoff_state = self.backoff_state.on_finished(spell);
        if let Some(rules) = &self.rules {
            self.slot_cooldowns.push(rules.spacing.slot_free_at(sent), now);
        }
    }

    /// How long one who comes back may expect to be kept away: until all who wait have gone, and a slot is free again
    /// though all that are taken have just been.
    pub(super) fn estimated_wait(&self, now: Timestamp) -> Duration {
        let Some(rules) = &self.rules else { return Duration::ZERO };
        let rested = now + self.backoff_state.remaining(now);
        let spaced = self.earliest_start_after(self.queue_length, rested).saturating_duration_since(now);
        let most_at_once =
            self.limits.limit.into_iter().chain(self.backoff_state.probe_limit().map(NonZeroU32::get)).min();
        let Some(most) = most_at_once.map(|most| most.max(1)) else { return spaced };
        let slot = self.slot_blocked_by(most, now).and_then(BlockedBy::until).unwrap_or(now);
        let cooled = slot
            .saturating_duration_since(now)
            .saturating_add(rules.spacing.per_slot.saturating_mul(self.queue_length / most));
        let served = self.latency.saturating_mul(self.queue_length.saturating_add(1).div_ceil(most));
        spaced.max(cooled).max(served)
    }

    pub(super) fn state(&self, now: Timestamp) -> Option<ScopeState> {
        let rules = self.rules.as_ref()?;
        let backoff_state =
            rules.backoff.as_ref().map_or(self.backoff_state, |backoff| backoff.decayed(self.backoff_state, now));
        Some(ScopeState {
            name: Arc::clone(&self.name),
            in_flight: self.in_flight,
            queue_length: self.queue_length,
            limit: self.limits.limit,
            delay: self.limits.delay,
            backoff_remaining: backoff_state.remaining(now),
            backoff_level: backoff_state.level(),
            controller: rules.controller.as_ref().map(Controller::name),
            partitions: None,
        })
    }
}
