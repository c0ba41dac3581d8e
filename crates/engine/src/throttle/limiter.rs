//! Limits of one scope instance: requests in flight, learned delay and backoff, and what blocks the next request.

use super::OLDEST_FIRST_INTERVAL;
use super::slot_cooldown::SlotCooldowns;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::Timestamp;
use tidegate_policy::throttle::autothrottle::Adjustment;
use tidegate_policy::throttle::backoff::{BackoffBlock, BackoffEpoch, BackoffState};
use tidegate_policy::throttle::controller::{Controller, ControllerState, EffectiveLimits};
use tidegate_policy::throttle::{OriginOutcome, QueueConfig, ThrottleConfig};

/// Enforces the limits of one scope instance: concurrency, spacing and backoff.
pub(super) struct ScopeLimiter {
    pub(super) name: Arc<str>,
    /// Limits; `None` if the configuration has no such scope. Requests in flight still release their slots.
    pub(super) config: Option<Arc<ThrottleConfig>>,
    pub(super) in_flight: u32,
    pub(super) queue_length: u32,
    starts_since_oldest: u32,
    next_start: Timestamp,
    slot_cooldowns: SlotCooldowns,
    controller_state: ControllerState,
    /// Limits that follow from configuration and controller state.
    limits: EffectiveLimits,
    pub(super) backoff_state: BackoffState,
    /// Moving average of the origin's latency.
    latency: Duration,
}

/// Condition that blocks the next request, ordered by how long it persists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BlockedBy {
    /// No slot is free.
    NoSlot,
    /// No slot is free; one is by this time at the latest.
    NoSlotUntil(Timestamp),
    /// A probe is in flight, and its response decides.
    Probing,
    /// The delay between requests ends at this time.
    Spacing(Timestamp),
    /// The scope backs off until this time.
    Backoff(Timestamp),
}

/// Effect of a response on one scope instance.
#[derive(Default)]
pub(super) struct FeedbackEffect {
    /// Duration of the backoff, if the response was an overload.
    pub(super) backoff: Option<Duration>,
    /// Change of the delay, if the scope logs its adjustments.
    pub(super) adjustment: Option<Adjustment>,
}

/// Snapshot of one scope or partition.
#[derive(Clone, Debug, PartialEq)]
pub struct ScopeState {
    /// Name of the scope; for a partition, the value of its key.
    pub name: Arc<str>,
    /// Number of requests that hold a slot.
    pub in_flight: u32,
    /// Number of requests in the queues.
    pub queue_length: u32,
    /// Current maximum of requests that hold a slot; `None` if unlimited.
    pub limit: Option<u32>,
    /// Current minimum time between two requests.
    pub delay: Duration,
    /// Remaining backoff; zero if not backing off.
    pub backoff_remaining: Duration,
    /// Backoff level: number of consecutive overloads.
    pub backoff_level: u32,
    /// Number of its clients, networks and routes that back off on their own.
    pub backoff_parts: usize,
    /// Name of the controller that adapts the limits, if one is configured.
    pub controller: Option<&'static str>,
    /// Number of partitions; `None` for a scope with a single instance.
    pub partitions: Option<usize>,
}

impl ScopeState {
    /// Merges the snapshots of two partitions: adds up the requests, and takes the maximum of limits, delay and
    /// backoff.
    pub(super) fn merge(self, other: &Self) -> Self {
        Self {
            in_flight: self.in_flight + other.in_flight,
            queue_length: self.queue_length + other.queue_length,
            limit: self.limit.max(other.limit),
            delay: self.delay.max(other.delay),
            backoff_remaining: self.backoff_remaining.max(other.backoff_remaining),
            backoff_level: self.backoff_level.max(other.backoff_level),
            backoff_parts: self.backoff_parts + other.backoff_parts,
            ..self
        }
    }
}

impl BlockedBy {
    pub(super) fn until(self) -> Option<Timestamp> {
        match self {
            Self::NoSlotUntil(time) | Self::Spacing(time) | Self::Backoff(time) => Some(time),
            Self::NoSlot | Self::Probing => None,
        }
    }

    pub(super) fn is_slot(self) -> bool {
        matches!(self, Self::NoSlot | Self::NoSlotUntil(_))
    }

    pub(super) fn persists_after(self, time: Timestamp) -> bool {
        !self.is_slot() && self.until().is_some_and(|opens_at| opens_at > time)
    }
}

impl ScopeLimiter {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self {
            name,
            config: None,
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

    /// Applies a new configuration. Learned state is kept if the new configuration uses it.
    pub(super) fn update_config(&mut self, config: Option<Arc<ThrottleConfig>>, now: Timestamp) {
        let Some(new) = &config else { return };
        self.controller_state = new.update_controller(self.controller_state, now);
        self.limits = new.effective_limits(&self.controller_state);
        self.backoff_state =
            new.backoff.as_ref().map_or_else(BackoffState::default, |backoff| backoff.clamped(self.backoff_state, now));
        self.next_start = self.next_start.min(new.spacing.next_start(self.limits.delay, 1.0, now));
        self.slot_cooldowns.truncate_to(new.spacing.slot_free_at(now));
        self.config = config;
    }

    /// Returns whether the instance is empty and has the limits of a new one, so that its eviction changes nothing.
    pub(super) fn is_pristine(&self, now: Timestamp) -> bool {
        let has_learned = |config: &Arc<ThrottleConfig>| {
            let backoff_state = config.backoff.as_ref().map(|backoff| backoff.decayed(self.backoff_state, now));
            self.limits != config.effective_limits(&config.update_controller(ControllerState::Fixed, now))
                || backoff_state.is_some_and(|state| state.level() > 0)
        };
        self.is_empty(now) && !self.config.as_ref().is_some_and(has_learned)
    }

    /// Returns whether no request is in flight, queued or blocked.
    pub(super) fn is_empty(&self, now: Timestamp) -> bool {
        self.in_flight == 0
            && self.queue_length == 0
            && self.slot_cooldowns.cooling_slots(now) == 0
            && self.blocked_by(now).is_none()
    }

    pub(super) fn blocked_by(&self, now: Timestamp) -> Option<BlockedBy> {
        let config = self.config.as_ref()?;
        if let Some(backoff) = &config.backoff {
            match backoff.decayed(self.backoff_state, now).blocked_by(now) {
                Some(BackoffBlock::BackingOff(until)) => return Some(BlockedBy::Backoff(until)),
                Some(BackoffBlock::Probing) => return Some(BlockedBy::Probing),
                None => {}
            }
        }
        if now < self.next_start {
            return Some(BlockedBy::Spacing(self.next_start));
        }
        self.slot_blocked_by(self.limits.limit?, now)
    }

    /// Returns the time at which the next slot opens without an event; `None` if only an event opens it. If the only
    /// free slot may be reserved for the oldest waiter, the other waiters need the slot that cools down next.
    pub(super) fn opens_at(&self, now: Timestamp) -> Option<Timestamp> {
        match self.blocked_by(now) {
            Some(block) => block.until(),
            None if self.is_oldest_first_due() && self.has_one_slot_left(now) => self.slot_cooldowns.next_free(now),
            None => None,
        }
    }

    fn slot_blocked_by(&self, limit: u32, now: Timestamp) -> Option<BlockedBy> {
        if self.in_flight >= limit {
            return Some(BlockedBy::NoSlot);
        }
        let opens_at = self.slot_cooldowns.next_free(now)?;
        let is_free = self.in_flight + self.slot_cooldowns.cooling_slots(now) < limit;
        // A request in flight may finish earlier, and its slot may be past its delay by then.
        let block = if self.in_flight > 0 { BlockedBy::NoSlotUntil(opens_at) } else { BlockedBy::Spacing(opens_at) };
        (!is_free).then_some(block)
    }

    /// Returns the earliest start behind `others` starts, considering only the delay between requests.
    pub(super) fn earliest_start_after(&self, others: u32, now: Timestamp) -> Timestamp {
        self.next_start.max(now) + self.limits.delay.saturating_mul(others)
    }

    pub(super) fn is_oldest_first_due(&self) -> bool {
        self.starts_since_oldest % OLDEST_FIRST_INTERVAL == OLDEST_FIRST_INTERVAL - 1
    }

    /// Returns whether one more start takes the last free slot.
    pub(super) fn has_one_slot_left(&self, now: Timestamp) -> bool {
        let taken = self.in_flight + self.slot_cooldowns.cooling_slots(now);
        self.limits.limit.is_some_and(|limit| taken.saturating_add(1) >= limit)
    }

    /// Grants a slot. Without `advances_oldest_first`, a pending oldest-first grant stays pending.
    pub(super) fn grant(&mut self, advances_oldest_first: bool, random: f64, now: Timestamp) -> BackoffEpoch {
        self.in_flight += 1;
        self.starts_since_oldest = self.starts_since_oldest.wrapping_add(u32::from(advances_oldest_first));
        if let Some(config) = &self.config {
            self.next_start = config.spacing.next_start(self.limits.delay, random, now);
            config.on_sent(&mut self.controller_state, self.in_flight, now);
        }
        if let Some(backoff) = self.config.as_ref().and_then(|config| config.backoff.as_ref()) {
            self.backoff_state = backoff.decayed(self.backoff_state, now);
        }
        let (backoff_state, epoch) = self.backoff_state.on_sent();
        self.backoff_state = backoff_state;
        epoch
    }

    /// Records the response to a request that was sent at `sent`.
    pub(super) fn record_response(
        &mut self,
        epoch: BackoffEpoch,
        outcome: &OriginOutcome,
        random: f64,
        sent: Timestamp,
        now: Timestamp,
    ) -> FeedbackEffect {
        let Some(config) = &self.config else { return FeedbackEffect::default() };
        let delay = self.limits.delay;
        config.on_outcome(&mut self.controller_state, outcome, sent, self.in_flight, now);
        self.limits = config.effective_limits(&self.controller_state);
        let adjustment = match &config.controller {
            Some(Controller::Autothrottle(autothrottle)) => autothrottle.adjustment(delay, self.limits.delay, outcome),
            _ => None,
        };
        self.latency = match self.latency.is_zero() {
            true => outcome.latency,
            false => (self.latency * 7 + outcome.latency.min(Duration::from_secs(3600))) / 8,
        };
        let Some(backoff) = &config.backoff else { return FeedbackEffect { backoff: None, adjustment } };
        self.backoff_state =
            config.backoff_after(self.backoff_state, &self.controller_state, epoch, outcome, random, now);
        FeedbackEffect { backoff: backoff.is_overload(outcome).then(|| self.backoff_state.remaining(now)), adjustment }
    }

    /// Records a response in the controller alone, because another instance backs off after it.
    pub(super) fn record_load(&mut self, outcome: &OriginOutcome, sent: Timestamp, now: Timestamp) {
        let Some(config) = &self.config else { return };
        config.on_outcome(&mut self.controller_state, outcome, sent, self.in_flight, now);
        self.limits = config.effective_limits(&self.controller_state);
    }

    /// Returns the maximum of requests in flight of one client; `None` if only the limit of the scope applies.
    pub(super) fn client_slots(&self) -> Option<NonZeroU32> {
        let slots = self.config.as_ref()?.client_slots.of(self.limits.limit?)?;
        NonZeroU32::new(slots)
    }

    /// Returns the queue of a client with `slots`: the same part of the queue of the scope.
    pub(super) fn client_queue(&self, slots: Option<NonZeroU32>) -> QueueConfig {
        let queue = self.config.as_ref().map_or(QueueConfig::NONE, |config| config.queue);
        let Some((slots, limit)) = slots.zip(self.limits.limit) else { return queue };
        let length = (u64::from(queue.max_length) * u64::from(slots.get())).div_ceil(limit.max(1).into());
        QueueConfig { max_length: u32::try_from(length).unwrap_or(u32::MAX), ..queue }
    }

    /// Returns whether the instance backs off, or recovers from a backoff.
    pub(super) fn backs_off(&self, now: Timestamp) -> bool {
        let backoff = self.config.as_ref().and_then(|config| config.backoff.as_ref());
        let state = backoff.map_or(self.backoff_state, |backoff| backoff.decayed(self.backoff_state, now));
        state.level() > 0 || !state.remaining(now).is_zero()
    }

    /// Ends the backoff and forgets its level.
    pub(super) fn end_backoff(&mut self) {
        self.backoff_state = BackoffState::default();
    }

    /// Releases the slot of a request that was sent at `sent`, whatever its outcome.
    pub(super) fn release(&mut self, epoch: BackoffEpoch, sent: Timestamp, now: Timestamp) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.backoff_state = self.backoff_state.on_finished(epoch);
        if let Some(config) = &self.config {
            self.slot_cooldowns.push(config.spacing.slot_free_at(sent), now);
        }
    }

    /// Estimates the wait of a request that retries later. By then all waiters have started, and a slot is free again
    /// even if all were taken just now.
    pub(super) fn estimated_wait(&self, now: Timestamp) -> Duration {
        let Some(config) = &self.config else { return Duration::ZERO };
        let backoff_end = now + self.backoff_state.remaining(now);
        let spacing_wait = self.earliest_start_after(self.queue_length, backoff_end).saturating_duration_since(now);
        let limit = self.limits.limit.into_iter().chain(self.backoff_state.probe_limit().map(NonZeroU32::get)).min();
        let Some(limit) = limit.map(|limit| limit.max(1)) else { return spacing_wait };
        let slot_free_at = self.slot_blocked_by(limit, now).and_then(BlockedBy::until).unwrap_or(now);
        let cooldown_wait = slot_free_at
            .saturating_duration_since(now)
            .saturating_add(config.spacing.per_slot.saturating_mul(self.queue_length / limit));
        let service_wait = self.latency.saturating_mul(self.queue_length.saturating_add(1).div_ceil(limit));
        spacing_wait.max(cooldown_wait).max(service_wait)
    }

    pub(super) fn state(&self, now: Timestamp) -> Option<ScopeState> {
        let config = self.config.as_ref()?;
        let backoff_state =
            config.backoff.as_ref().map_or(self.backoff_state, |backoff| backoff.decayed(self.backoff_state, now));
        Some(ScopeState {
            name: Arc::clone(&self.name),
            in_flight: self.in_flight,
            queue_length: self.queue_length,
            limit: self.limits.limit,
            delay: self.limits.delay,
            backoff_remaining: backoff_state.remaining(now),
            backoff_level: backoff_state.level(),
            backoff_parts: 0,
            controller: config.controller.as_ref().map(Controller::name),
            partitions: None,
        })
    }
}
