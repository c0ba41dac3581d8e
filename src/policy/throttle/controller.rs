//! Controller state of a scope, and the effective limits that follow from it and the settings.

use super::autothrottle::Autothrottle;
use super::backoff::{BackoffEpoch, BackoffState, OVERLOAD_STATUSES};
use super::gradient::{Gradient, GradientLimit, LoadSample};
use super::rampup::{RampState, RampValue, Rampup};
use super::{OriginOutcome, ThrottleConfig};
use crate::policy::Timestamp;
use std::num::NonZeroU32;
use std::time::Duration;

/// A controller adapts concurrency or delay to the origin. A scope has at most one, since two would counteract each
/// other.
#[derive(Clone, Debug, PartialEq)]
pub enum Controller {
    /// Adapts the delay by latency.
    Autothrottle(Autothrottle),
    /// Adapts the concurrency limit by latency.
    Gradient(Gradient),
    /// Adapts either of them by overload responses.
    Rampup(Rampup),
}

/// State of a scope's controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ControllerState {
    /// No controller.
    Fixed,
    /// Current delay between requests.
    Autothrottle(Duration),
    /// Current concurrency limit.
    Gradient(GradientLimit),
    /// Current concurrency limit or delay.
    Rampup(RampState),
}

/// Effective limits of a scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EffectiveLimits {
    /// Maximum number of requests in flight, if limited.
    pub limit: Option<u32>,
    /// Minimum time between requests.
    pub delay: Duration,
}

impl Controller {
    /// Returns the name in YAML, logs and views.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Autothrottle(_) => "autothrottle",
            Self::Gradient(_) => "gradient",
            Self::Rampup(_) => "rampup",
        }
    }
}

impl ThrottleConfig {
    /// Returns the state under these settings, taking over `before` where it fits.
    pub fn update_controller(&self, before: ControllerState, now: Timestamp) -> ControllerState {
        let least = self.spacing.delay;
        match (&self.controller, before) {
            (None, _) => ControllerState::Fixed,
            (Some(Controller::Autothrottle(auto)), ControllerState::Autothrottle(delay)) => {
                ControllerState::Autothrottle(auto.clamp(delay, least))
            }
            (Some(Controller::Autothrottle(auto)), _) => ControllerState::Autothrottle(auto.start(least)),
            (Some(Controller::Gradient(gradient)), ControllerState::Gradient(mut limit)) => {
                limit.update_bounds(gradient);
                ControllerState::Gradient(limit)
            }
            (Some(Controller::Gradient(gradient)), _) => ControllerState::Gradient(GradientLimit::new(gradient, now)),
            (Some(Controller::Rampup(rampup)), ControllerState::Rampup(mut climb)) => {
                climb.update_config(rampup, now);
                ControllerState::Rampup(climb)
            }
            (Some(Controller::Rampup(rampup)), _) => ControllerState::Rampup(RampState::new(rampup, now)),
        }
    }

    /// Returns the effective limits for a controller state.
    pub fn effective_limits(&self, course: &ControllerState) -> EffectiveLimits {
        let written = EffectiveLimits { limit: self.concurrency.map(NonZeroU32::get), delay: self.spacing.delay };
        match course {
            ControllerState::Fixed => written,
            ControllerState::Autothrottle(delay) => EffectiveLimits { delay: *delay, ..written },
            ControllerState::Gradient(limit) => EffectiveLimits {
                limit: Some(written.limit.map_or(limit.current(), |most| limit.current().min(most))),
                ..written
            },
            ControllerState::Rampup(climb) => match climb.current() {
                RampValue::Concurrency(most) => EffectiveLimits { limit: Some(most), ..written },
                RampValue::Delay(delay) => EffectiveLimits { delay, ..written },
            },
        }
    }

    /// Records that a request was sent; `under_way` requests, including it, are in flight.
    pub fn on_sent(&self, course: &mut ControllerState, under_way: u32, now: Timestamp) {
        match (&self.controller, course) {
            (Some(Controller::Gradient(_)), ControllerState::Gradient(limit)) => limit.on_sent(under_way, now),
            (Some(Controller::Rampup(rampup)), ControllerState::Rampup(climb)) => climb.on_sent(rampup, under_way, now),
            _ => {}
        }
    }

    /// Records the outcome of a request sent at `sent`; `under_way` requests, including it, were in flight.
    pub fn on_outcome(
        &self,
        course: &mut ControllerState,
        outcome: &OriginOutcome,
        sent: Timestamp,
        under_way: u32,
        now: Timestamp,
    ) {
        match (&self.controller, course) {
            (Some(Controller::Autothrottle(auto)), ControllerState::Autothrottle(delay)) => {
                *delay = auto.next(*delay, outcome, self.spacing.delay);
            }
            (Some(Controller::Gradient(gradient)), ControllerState::Gradient(limit)) => {
                if let Some(sign) = self.load_sample(outcome) {
                    limit.on_outcome(gradient, sign, sent, under_way, now);
                }
            }
            (Some(Controller::Rampup(rampup)), ControllerState::Rampup(climb)) if self.is_overload(outcome) => {
                climb.on_overload(rampup, now);
            }
            _ => {}
        }
    }

    /// Returns the backoff state after the outcome of a request that was sent in `spell`.
    pub fn backoff_after(
        &self,
        pressure: BackoffState,
        course: &ControllerState,
        spell: BackoffEpoch,
        outcome: &OriginOutcome,
        chance: f64,
        now: Timestamp,
    ) -> BackoffState {
        let Some(backoff) = &self.backoff else { return pressure };
        let is_wished = match (&self.controller, course) {
            (Some(Controller::Rampup(rampup)), ControllerState::Rampup(climb)) => {
                backoff.is_overload(outcome) && climb.within_target(rampup)
            }
            _ => false,
        };
        match is_wished {
            true => backoff.on_tolerated_overload(pressure, spell, outcome, chance, now),
            false => backoff.on_outcome(pressure, spell, outcome, chance, now),
        }
    }

    /// Returns the load sample of an outcome; `None` for errors that are no overload, since errors are often fast.
    fn load_sample(&self, outcome: &OriginOutcome) -> Option<LoadSample> {
        if self.is_overload(outcome) {
            return Some(LoadSample::Overloaded);
        }
        (outcome.measured && outcome.is_success()).then_some(LoadSample::Success(outcome.latency))
    }

    fn is_overload(&self, outcome: &OriginOutcome) -> bool {
        let minds = |status| {
            self.backoff.as_ref().map_or(&OVERLOAD_STATUSES[..], |backoff| &backoff.statuses).contains(&status)
        };
        outcome.status.is_none_or(minds)
    }
}

#[cfg(test)]
mod tests;
