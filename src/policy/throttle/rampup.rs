//! Goes faster until the origin complains as often as is wished, then holds: for an origin that says itself when it is
//! asked too much, and nothing by its latency before.
//!
//! Once a window the complaints are counted: fewer than wished, one step faster; more, one step slower. A step is a tenth,
//! half of the one before where the direction turns, by half more where it does not: so it comes near, then close. What is
//! allowed has to be used before more is: who asks little never meets the limit.

use crate::policy::Timestamp;
use std::ops::RangeInclusive;
use std::time::Duration;

/// How many complaints are wished, and what is varied to get them.
#[derive(Clone, Debug, PartialEq)]
pub struct Rampup {
    /// So many complaints in a window are right.
    pub target: RangeInclusive<u32>,
    /// How long a window is.
    pub window: Duration,
    /// What is varied.
    pub variable: RampVariable,
}

/// What is varied, from where, between which bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RampVariable {
    /// How many requests may be under way.
    Concurrency {
        /// To begin with.
        start: u32,
        /// The most; the least is one.
        max: u32,
    },
    /// The time between two requests.
    Delay {
        /// To begin with.
        start: Duration,
        /// The shortest.
        min: Duration,
        /// The longest.
        max: Duration,
    },
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RampState {
    reached: RampValue,
    last: Option<RampStep>,
    began: Timestamp,
    overloads: u32,
    /// Requests sent in this window, and how many were under way at each, added up.
    sent: u32,
    under_way: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RampStep {
    direction: Direction,
    /// In thousandths of what was reached.
    size: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Faster,
    Slower,
}

/// What the lever stands at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RampValue {
    /// So many requests may be under way.
    Concurrency(u32),
    /// So far apart they are sent.
    Delay(Duration),
}

impl RampState {
    /// A climb from the bottom.
    pub fn new(rampup: &Rampup, now: Timestamp) -> Self {
        let reached = match rampup.variable {
            RampVariable::Concurrency { start, .. } => RampValue::Concurrency(start),
            RampVariable::Delay { start, .. } => RampValue::Delay(start),
        };
        Self::at(reached, None, now)
    }

    fn at(reached: RampValue, last: Option<RampStep>, now: Timestamp) -> Self {
        Self { reached, last, began: now, overloads: 0, sent: 0, under_way: 0 }
    }

    /// Returns what the lever stands at.
    pub fn current(&self) -> RampValue {
        self.reached
    }

    /// Takes over other settings: what was reached stays, within them.
    pub fn update_config(&mut self, rampup: &Rampup, now: Timestamp) {
        match rampup.variable.clamp(self.reached) {
            Some(reached) => self.reached = reached,
            None => *self = Self::new(rampup, now),
        }
    }

    /// A request was sent; with it, `under_way` are.
    pub fn on_sent(&mut self, rampup: &Rampup, under_way: u32, now: Timestamp) {
        self.evaluate_window(rampup, now);
        self.sent = self.sent.saturating_add(1);
        self.under_way += u64::from(under_way);
    }

    /// The origin complained.
    pub fn on_overload(&mut self, rampup: &Rampup, now: Timestamp) {
        self.evaluate_window(rampup, now);
        self.overloads = self.overloads.saturating_add(1);
    }

    /// Returns whether the complaints of this window are no more than are wished.
    pub fn within_target(&self, rampup: &Rampup) -> bool {
        self.overloads <= *rampup.target.end()
    }

    fn evaluate_window(&mut self, rampup: &Rampup, now: Timestamp) {
        let lasted = now.saturating_duration_since(self.began);
        if lasted < rampup.window {
            return;
        }
        let direction = if self.overloads > *rampup.target.end() {
            Some(Direction::Slower)
        } else if self.overloads < *rampup.target.start() && self.used_half(lasted) {
            Some(Direction::Faster)
        } else {
            None
        };
        let step = direction.map(|direction| RampStep::after(self.last, direction));
        let reached = step.map_or(self.reached, |step| self.reached.after(step));
        let reached = rampup.variable.clamp(reached).unwrap_or(self.reached);
        *self = Self::at(reached, step.or(self.last), now);
    }

    fn used_half(&self, lasted: Duration) -> bool {
        match self.reached {
            RampValue::Concurrency(max) => self.sent > 0 && self.under_way * 2 >= u64::from(max) * u64::from(self.sent),
            RampValue::Delay(delay) => delay.saturating_mul(self.sent.saturating_mul(2)) >= lasted,
        }
    }
}

impl RampStep {
    fn after(last: Option<Self>, direction: Direction) -> Self {
        let size = match last {
            None => MAX_STEP,
            Some(last) if last.direction == direction => (last.size * 3 / 2).min(MAX_STEP),
            Some(last) => (last.size / 2).max(MIN_STEP),
        };
        Self { direction, size }
    }
}

impl RampValue {
    fn after(self, RampStep { direction, size }: RampStep) -> Self {
        let slots = |max: u32| u32::try_from(u64::from(max) * u64::from(size) / STEP_SCALE).unwrap_or(max).max(1);
        let share = f64::from(size) / STEP_SCALE as f64;
        match (self, direction) {
            (Self::Concurrency(most), Direction::Faster) => Self::Concurrency(most.saturating_add(slots(most))),
            (Self::Concurrency(most), Direction::Slower) => Self::Concurrency(most.saturating_sub(slots(most))),
            (Self::Delay(delay), Direction::Faster) => Self::Delay(delay.mul_f64(1.0 - share)),
            (Self::Delay(delay), Direction::Slower) => Self::Delay(delay.mul_f64(1.0 / (1.0 - share))),
        }
    }
}

impl RampVariable {
    /// `reached`, within the bounds; nothing where it is of the other lever.
    fn clamp(&self, reached: RampValue) -> Option<RampValue> {
        match (*self, reached) {
            (Self::Concurrency { max, .. }, RampValue::Concurrency(at)) => {
                Some(RampValue::Concurrency(at.min(max).max(1)))
            }
            (Self::Delay { min, max: most, .. }, RampValue::Delay(delay)) => {
                Some(RampValue::Delay(delay.min(most).max(min)))
            }
            _ => None,
        }
    }
}

const STEP_SCALE: u64 = 1000;
/// A tenth: an origin that bears a little more is not asked for twice as much.
const MAX_STEP: u32 = 100;
/// A complaint a minute is some hundredths above what is borne.
const MIN_STEP: u32 = 5;

#[cfg(test)]
mod tests;
