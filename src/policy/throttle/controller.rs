//! How hard a scope presses now: as its settings say, or as its controller has found out.

use super::autothrottle::Autothrottle;
use super::backoff::{BackoffEpoch, BackoffState, OVERLOAD_STATUSES};
use super::gradient::{Gradient, GradientLimit, LoadSample};
use super::rampup::{RampState, RampValue, Rampup};
use super::{OriginOutcome, ThrottleConfig};
use crate::policy::Timestamp;
use std::num::NonZeroU32;
use std::time::Duration;

/// What finds out how hard the origin may be pressed. A scope has one at most: two would undo each other's work.
#[derive(Clone, Debug, PartialEq)]
pub enum Controller {
    /// Varies the time between two requests by the latency.
    Autothrottle(Autothrottle),
    /// Varies the most requests at once by the latency.
    Gradient(Gradient),
    /// Varies one of them by the complaints.
    Rampup(Rampup),
}

/// What a scope's controller has found out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ControllerState {
    /// There is none.
    Fixed,
    /// The time between two requests.
    Autothrottle(Duration),
    /// The most requests at once.
    Gradient(GradientLimit),
    /// Either.
    Rampup(RampState),
}

/// How hard the scope presses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EffectiveLimits {
    /// The most requests at once, where there is a most.
    pub limit: Option<u32>,
    /// The least time between two.
    pub delay: Duration,
}

impl Controller {
    /// Its name in YAML, and wherever it is shown.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Autothrottle(_) => "autothrottle",
            Self::Gradient(_) => "gradient",
            Self::Rampup(_) => "rampup",
        }
    }
}

impl ThrottleConfig {
    /// Returns the course under these settings, of which `before` was learned under others.
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

    /// Returns how hard the scope presses on this course.
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

    /// A request was sent; with it, `under_way` are.
    pub fn on_sent(&self, course: &mut ControllerState, under_way: u32, now: Timestamp) {
        match (&self.controller, course) {
            (Some(Controller::Gradient(_)), ControllerState::Gradient(limit)) => limit.on_sent(under_way, now),
            (Some(Controller::Rampup(rampup)), ControllerState::Rampup(climb)) => climb.on_sent(rampup, under_way, now),
            _ => {}
        }
    }

    /// The outcome is known of a request that was sent at `sent`; with it, `under_way` were.
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

    /// Returns the pressure after the outcome of a request that was sent in `spell`.
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

    /// Errors that are no complaint say nothing, and often sooner than anything else.
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
