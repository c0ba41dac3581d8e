//! Controller state of a scope, and the effective limits that follow from it and the settings.

use super::autothrottle::Autothrottle;
use super::backoff::{BackoffEpoch, BackoffState, OVERLOAD_STATUSES};
use super::gradient::{Gradient, GradientLimit, LoadSample};
use super::rampup::{RampState, RampValue, Rampup};
use super::{OriginOutcome, ThrottleConfig};
use crate::Timestamp;
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
        let min_delay = self.spacing.delay;
        match (&self.controller, before) {
            (None, _) => ControllerState::Fixed,
            (Some(Controller::Autothrottle(auto)), ControllerState::Autothrottle(delay)) => {
                ControllerState::Autothrottle(auto.clamp(delay, min_delay))
            }
            (Some(Controller::Autothrottle(auto)), _) => ControllerState::Autothrottle(auto.initial_delay(min_delay)),
            (Some(Controller::Gradient(gradient)), ControllerState::Gradient(mut limit)) => {
                limit.update_bounds(gradient);
                ControllerState::Gradient(limit)
            }
            (Some(Controller::Gradient(gradient)), _) => ControllerState::Gradient(GradientLimit::new(gradient, now)),
            (Some(Controller::Rampup(rampup)), ControllerState::Rampup(mut ramp)) => {
                ramp.update_config(rampup, now);
                ControllerState::Rampup(ramp)
            }
            (Some(Controller::Rampup(rampup)), _) => ControllerState::Rampup(RampState::new(rampup, now)),
        }
    }

    /// Returns the effective limits for a controller state.
    pub fn effective_limits(&self, state: &ControllerState) -> EffectiveLimits {
        let configured = EffectiveLimits { limit: self.concurrency.map(NonZeroU32::get), delay: self.spacing.delay };
        match state {
            ControllerState::Fixed => configured,
            ControllerState::Autothrottle(delay) => EffectiveLimits { delay: *delay, ..configured },
            ControllerState::Gradient(limit) => EffectiveLimits {
                limit: Some(configured.limit.map_or(limit.current(), |max| limit.current().min(max))),
                ..configured
            },
            ControllerState::Rampup(ramp) => match ramp.current() {
                RampValue::Concurrency(max) => EffectiveLimits { limit: Some(max), ..configured },
                RampValue::Delay(delay) => EffectiveLimits { delay, ..configured },
            },
        }
    }

    /// Records that a request was sent; `in_flight` is the number of requests in flight, including it.
    pub fn on_sent(&self, state: &mut ControllerState, in_flight: u32, now: Timestamp) {
        match (&self.controller, state) {
            (Some(Controller::Gradient(_)), ControllerState::Gradient(limit)) => limit.on_sent(in_flight, now),
            (Some(Controller::Rampup(rampup)), ControllerState::Rampup(ramp)) => ramp.on_sent(rampup, in_flight, now),
            _ => {}
        }
    }

    /// Records the outcome of a request sent at `sent`; `in_flight` is the number of requests in flight, including it.
    pub fn on_outcome(
        &self,
        state: &mut ControllerState,
        outcome: &OriginOutcome,
        sent: Timestamp,
        in_flight: u32,
        now: Timestamp,
    ) {
        match (&self.controller, state) {
            (Some(Controller::Autothrottle(auto)), ControllerState::Autothrottle(delay)) => {
                *delay = auto.next_delay(*delay, outcome, self.spacing.delay);
            }
            (Some(Controller::Gradient(gradient)), ControllerState::Gradient(limit)) => {
                if let Some(sample) = self.load_sample(outcome) {
                    limit.on_outcome(gradient, sample, sent, in_flight, now);
                }
            }
            (Some(Controller::Rampup(rampup)), ControllerState::Rampup(ramp)) if self.is_overload(outcome) => {
                ramp.on_overload(rampup, now);
            }
            _ => {}
        }
    }

    /// Returns the backoff state after the outcome of a request that was sent in `epoch`.
    pub fn backoff_after(
        &self,
        backoff_state: BackoffState,
        controller_state: &ControllerState,
        epoch: BackoffEpoch,
        outcome: &OriginOutcome,
        random: f64,
        now: Timestamp,
    ) -> BackoffState {
        let Some(backoff) = &self.backoff else { return backoff_state };
        let is_tolerated = match (&self.controller, controller_state) {
            (Some(Controller::Rampup(rampup)), ControllerState::Rampup(ramp)) => {
                backoff.is_overload(outcome) && ramp.within_target(rampup)
            }
            _ => false,
        };
        match is_tolerated {
            true => backoff.on_tolerated_overload(backoff_state, epoch, outcome, random, now),
            false => backoff.on_outcome(backoff_state, epoch, outcome, random, now),
        }
    }

    /// Returns the load sample of an outcome; `None` for errors that are no overload, since errors are often fast.
    fn load_sample(&self, outcome: &OriginOutcome) -> Option<LoadSample> {
        if self.is_overload(outcome) {
            return Some(LoadSample::Overloaded);
        }
        (outcome.latency_counts && outcome.is_success()).then_some(LoadSample::Success(outcome.latency))
    }

    fn is_overload(&self, outcome: &OriginOutcome) -> bool {
        let is_listed = |status| {
            self.backoff.as_ref().map_or(&OVERLOAD_STATUSES[..], |backoff| &backoff.statuses).contains(&status)
        };
        outcome.status.is_none_or(is_listed)
    }
}

#[cfg(test)]
mod tests;
