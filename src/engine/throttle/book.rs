//! One scope: what is under way in it, what was learned of it, and what keeps the next request from starting.

use super::OLDEST_EVERY;
use crate::policy::throttle::backoff::{Pressure, Rest, Spell};
use crate::policy::throttle::{self, Outcome};
use crate::policy::time::Timestamp;
use std::time::Duration;

/// One scope's book.
pub(super) struct Book {
    pub(super) name: String,
    /// None once the settings name it no more; who is in it leaves all the same.
    pub(super) rules: Option<throttle::Throttle>,
    pub(super) in_flight: u32,
    pub(super) waiting: u32,
    starts: u32,
    next_start: Timestamp,
    /// What AutoThrottle has come to.
    delay: Duration,
    pub(super) pressure: Pressure,
    /// How long an answer takes of late.
    latency: Duration,
}

/// What keeps a lane from going.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hindrance {
    /// A slot has to come free.
    Slot,
    /// A probe has to come back.
    Probe,
    /// Time has to pass.
    Spacing(Timestamp),
    /// The scope rests.
    Rest(Timestamp),
}

/// One scope as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct ScopeState {
    /// Its name.
    pub name: String,
    /// Requests that hold a slot.
    pub in_flight: u32,
    /// Requests in line.
    pub waiting: u32,
    /// The most that may hold a slot, where there is a most.
    pub limit: Option<u32>,
    /// The time between any two requests.
    pub delay: Duration,
    /// How long it still rests.
    pub rests_for: Duration,
    /// How often in a row the origin complained.
    pub level: u32,
}

impl Hindrance {
    pub(super) fn until(self) -> Option<Timestamp> {
        match self {
            Self::Spacing(moment) | Self::Rest(moment) => Some(moment),
            Self::Slot | Self::Probe => None,
        }
    }

    pub(super) fn lasts_beyond(self, moment: Timestamp) -> bool {
        self.until().is_some_and(|opens| opens > moment)
    }
}

impl Book {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            rules: None,
            in_flight: 0,
            waiting: 0,
            starts: 0,
            next_start: Timestamp::default(),
            delay: Duration::ZERO,
            pressure: Pressure::default(),
            latency: Duration::ZERO,
        }
    }

    /// Takes over new settings; what was learned under the old ones is kept as far as they have a use for it.
    pub(super) fn follow(&mut self, rules: Option<throttle::Throttle>) {
        let Some(new) = &rules else { return };
        let least = new.spacing.delay;
        self.delay = match new.autothrottle {
            Some(auto) if self.delay.is_zero() => auto.start(least),
            Some(auto) => self.delay.min(auto.max_delay).max(least),
            None => least,
        };
        if new.backoff.is_none() {
            self.pressure = Pressure::default();
        }
        self.rules = rules;
    }

    pub(super) fn hindrance(&self, now: Timestamp) -> Option<Hindrance> {
        let rules = self.rules.as_ref()?;
        if let Some(backoff) = &rules.backoff {
            match backoff.at(self.pressure, now).hinders(now) {
                Some(Rest::Until(moment)) => return Some(Hindrance::Rest(moment)),
                Some(Rest::Probing) => return Some(Hindrance::Probe),
                None => {}
            }
        }
        if now < self.next_start {
            return Some(Hindrance::Spacing(self.next_start));
        }
        rules.concurrency.is_some_and(|most| self.in_flight >= most.get()).then_some(Hindrance::Slot)
    }

    /// When one can start before whom `others` start, as far as that is only a matter of the time between them.
    pub(super) fn starts_after(&self, others: u32, now: Timestamp) -> Timestamp {
        self.next_start.max(now) + self.delay.saturating_mul(others)
    }

    pub(super) fn turn_is_of_the_oldest(&self) -> bool {
        self.starts % OLDEST_EVERY == OLDEST_EVERY - 1
    }

    pub(super) fn start(&mut self, chance: f64, now: Timestamp) -> Spell {
        self.in_flight += 1;
        self.starts = self.starts.wrapping_add(1);
        if let Some(rules) = &self.rules {
            self.next_start = rules.spacing.next_after(self.delay, chance, now);
        }
        if let Some(backoff) = self.rules.as_ref().and_then(|rules| rules.backoff.as_ref()) {
            self.pressure = backoff.at(self.pressure, now);
        }
        let (pressure, spell) = self.pressure.sent();
        self.pressure = pressure;
        spell
    }

    /// How long it rests, if that was a complaint.
    pub(super) fn hear(&mut self, spell: Spell, outcome: &Outcome, chance: f64, now: Timestamp) -> Option<Duration> {
        let rules = self.rules.as_ref()?;
        if let Some(auto) = &rules.autothrottle {
            self.delay = auto.next(self.delay, outcome, rules.spacing.delay);
        }
        self.latency = match self.latency.is_zero() {
            true => outcome.latency,
            false => (self.latency * 7 + outcome.latency.min(Duration::from_secs(3600))) / 8,
        };
        let backoff = rules.backoff.as_ref()?;
        self.pressure = backoff.after(self.pressure, spell, outcome, chance, now);
        backoff.minds(outcome).then(|| self.pressure.rest_left(now))
    }

    /// How long one who comes back may expect to be kept away: until all who wait have gone, and a slot is free again
    /// though all that are taken have just been.
    pub(super) fn expects(&self, now: Timestamp) -> Duration {
        let Some(rules) = &self.rules else { return Duration::ZERO };
        let spaced = self.starts_after(self.waiting, now + self.pressure.rest_left(now)).since(now);
        let most_at_once = rules.concurrency.into_iter().chain(self.pressure.most_at_once()).min();
        let rounds = most_at_once.map_or(0, |most| self.waiting.saturating_add(1).div_ceil(most.get()));
        spaced.max(self.latency.saturating_mul(rounds))
    }

    pub(super) fn state(&self, now: Timestamp) -> Option<ScopeState> {
        let rules = self.rules.as_ref()?;
        let pressure = rules.backoff.as_ref().map_or(self.pressure, |backoff| backoff.at(self.pressure, now));
        Some(ScopeState {
            name: self.name.clone(),
            in_flight: self.in_flight,
            waiting: self.waiting,
            limit: rules.concurrency.map(std::num::NonZeroU32::get),
            delay: self.delay,
            rests_for: pressure.rest_left(now),
            level: pressure.level(),
        })
    }
}
