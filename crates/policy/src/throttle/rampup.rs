//! Ramp-up: increases the load until the origin returns overload at the target rate, then holds it. For origins that
//! report overload explicitly while their latency is still normal.
//!
//! Overload responses are counted per window: below the target, the load rises by one step; above, it falls by one. The
//! first step is a tenth; a step is half of the previous one on a change of direction, and 1.5 times it otherwise. The
//! load rises only if at least half of the current limit was used.

use crate::Timestamp;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Ramp-up settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Rampup {
    /// Target number of overload responses per window.
    pub target: RangeInclusive<u32>,
    /// Length of a window.
    pub window: Duration,
    /// Variable that is adapted.
    pub variable: RampVariable,
}

/// Adapted variable, with its initial value and bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RampVariable {
    /// Maximum number of requests in flight.
    Concurrency {
        /// Initial value.
        start: u32,
        /// Maximum; the minimum is 1.
        max: u32,
    },
    /// Delay between two requests.
    Delay {
        /// Initial value.
        start: Duration,
        /// Minimum.
        min: Duration,
        /// Maximum.
        max: Duration,
    },
}

/// State of the ramp-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RampState {
    value: RampValue,
    last_step: Option<RampStep>,
    window_started_at: Timestamp,
    overload_count: u32,
    /// Number of requests sent in this window, and the sum of the requests in flight at each.
    sent_count: u32,
    in_flight_sum: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RampStep {
    direction: Direction,
    /// Size in thousandths of the current value.
    size: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Faster,
    Slower,
}

/// Current value of the variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RampValue {
    /// Maximum number of requests in flight.
    Concurrency(u32),
    /// Delay between two requests.
    Delay(Duration),
}

impl RampState {
    /// Creates the state at the initial value.
    pub fn new(rampup: &Rampup, now: Timestamp) -> Self {
        let value = match rampup.variable {
            RampVariable::Concurrency { start, .. } => RampValue::Concurrency(start),
            RampVariable::Delay { start, .. } => RampValue::Delay(start),
        };
        Self::with_value(value, None, now)
    }

    fn with_value(value: RampValue, last_step: Option<RampStep>, now: Timestamp) -> Self {
        Self { value, last_step, window_started_at: now, overload_count: 0, sent_count: 0, in_flight_sum: 0 }
    }

    /// Returns the current value.
    pub fn current(&self) -> RampValue {
        self.value
    }

    /// Applies other settings: keeps the current value, within their bounds.
    pub fn update_config(&mut self, rampup: &Rampup, now: Timestamp) {
        match rampup.variable.clamp(self.value) {
            Some(value) => self.value = value,
            None => *self = Self::new(rampup, now),
        }
    }

    /// Records that a request was sent; `in_flight` is the number of requests in flight, including it.
    pub fn on_sent(&mut self, rampup: &Rampup, in_flight: u32, now: Timestamp) {
        self.evaluate_window(rampup, now);
        self.sent_count = self.sent_count.saturating_add(1);
        self.in_flight_sum += u64::from(in_flight);
    }

    /// Records an overload response.
    pub fn on_overload(&mut self, rampup: &Rampup, now: Timestamp) {
        self.evaluate_window(rampup, now);
        self.overload_count = self.overload_count.saturating_add(1);
    }

    /// Returns true if the overload responses of this window do not exceed the target.
    pub fn within_target(&self, rampup: &Rampup) -> bool {
        self.overload_count <= *rampup.target.end()
    }

    fn evaluate_window(&mut self, rampup: &Rampup, now: Timestamp) {
        let elapsed = now.saturating_duration_since(self.window_started_at);
        if elapsed < rampup.window {
            return;
        }
        let direction = if self.overload_count > *rampup.target.end() {
            Some(Direction::Slower)
        } else if self.overload_count < *rampup.target.start() && self.used_half(elapsed) {
            Some(Direction::Faster)
        } else {
            None
        };
        let step = direction.map(|direction| RampStep::next(self.last_step, direction));
        let value = step.map_or(self.value, |step| self.value.apply(step));
        let value = rampup.variable.clamp(value).unwrap_or(self.value);
        *self = Self::with_value(value, step.or(self.last_step), now);
    }

    fn used_half(&self, elapsed: Duration) -> bool {
        match self.value {
            RampValue::Concurrency(max) => {
                self.sent_count > 0 && self.in_flight_sum * 2 >= u64::from(max) * u64::from(self.sent_count)
            }
            RampValue::Delay(delay) => delay.saturating_mul(self.sent_count.saturating_mul(2)) >= elapsed,
        }
    }
}

impl RampStep {
    fn next(last_step: Option<Self>, direction: Direction) -> Self {
        let size = match last_step {
            None => MAX_STEP,
            Some(last) if last.direction == direction => (last.size * 3 / 2).min(MAX_STEP),
            Some(last) => (last.size / 2).max(MIN_STEP),
        };
        Self { direction, size }
    }
}

impl RampValue {
    fn apply(self, RampStep { direction, size }: RampStep) -> Self {
        let slots = |max: u32| u32::try_from(u64::from(max) * u64::from(size) / STEP_SCALE).unwrap_or(max).max(1);
        let share = f64::from(size) / STEP_SCALE as f64;
        match (self, direction) {
            (Self::Concurrency(limit), Direction::Faster) => Self::Concurrency(limit.saturating_add(slots(limit))),
            (Self::Concurrency(limit), Direction::Slower) => Self::Concurrency(limit.saturating_sub(slots(limit))),
            (Self::Delay(delay), Direction::Faster) => Self::Delay(delay.mul_f64(1.0 - share)),
            (Self::Delay(delay), Direction::Slower) => Self::Delay(delay.mul_f64(1.0 / (1.0 - share))),
        }
    }
}

impl RampVariable {
    /// Returns `value` within the bounds; `None` if it is of the other variable.
    fn clamp(&self, value: RampValue) -> Option<RampValue> {
        match (*self, value) {
            (Self::Concurrency { max, .. }, RampValue::Concurrency(limit)) => {
                Some(RampValue::Concurrency(limit.min(max).max(1)))
            }
            (Self::Delay { min, max, .. }, RampValue::Delay(delay)) => Some(RampValue::Delay(delay.min(max).max(min))),
            _ => None,
        }
    }
}

const STEP_SCALE: u64 = 1000;
/// Maximum step, a tenth: an origin with a little spare capacity does not receive twice the load.
const MAX_STEP: u32 = 100;
/// Minimum step: one overload response per minute is a few hundredths above the capacity.
const MIN_STEP: u32 = 5;

#[cfg(test)]
mod tests;
