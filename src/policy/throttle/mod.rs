//! How hard the gate may press on a part of the origin: settings, and rules on plain values.
//!
//! A request is sent when all of its scopes let it: a slot is free ([`Throttle::concurrency`]), the [`spacing`] to the
//! one before is kept, which [`autothrottle`] may stretch, and the scope does not rest ([`backoff`]). Who has to wait,
//! and in what order, is the engine's business.

pub mod autothrottle;
pub mod backoff;
pub mod spacing;
pub mod value;

use autothrottle::Autothrottle;
use backoff::Backoff;
use spacing::Spacing;
use std::num::NonZeroU32;
use std::time::Duration;
use value::ByValue;

/// A part of the origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    /// Its name in settings, logs and metrics.
    pub name: String,
    /// How it is throttled; `None` costs its requests nothing.
    pub throttle: Option<Throttle>,
    /// There is one of it for each value; `None`: it is there once.
    pub by_value: Option<ByValue>,
}

/// How one scope is throttled.
#[derive(Clone, Debug, PartialEq)]
pub struct Throttle {
    /// The most requests at once.
    pub concurrency: Option<NonZeroU32>,
    /// The time between any two.
    pub spacing: Spacing,
    /// Stretches that time as the origin grows slow.
    pub autothrottle: Option<Autothrottle>,
    /// Lets the scope rest when the origin complains.
    pub backoff: Option<Backoff>,
    /// Who may wait for a turn.
    pub queue: Queue,
}

/// The bounds of a waiting line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The longest wait.
    pub max_wait: Duration,
    /// The most who wait.
    pub max_length: u32,
}

/// By what share a pause may be longer than it has to be.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Jitter(pub f64);

/// What the origin did with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its status; `None` where it timed out or broke off.
    pub status: Option<u16>,
    /// From sending the request to the head of the answer.
    pub latency: Duration,
    /// How long the origin asked to be left alone.
    pub asked_for: Option<Duration>,
}

impl Scope {
    /// A scope that is not throttled.
    pub fn open(name: &str) -> Self {
        Self { name: name.to_owned(), throttle: None, by_value: None }
    }
}

impl Jitter {
    /// Returns `span`, longer by up to its share of it: `chance`, from 0 to 1, says by how much.
    pub fn stretch(self, span: Duration, chance: f64) -> Duration {
        let share = (self.0 * chance).clamp(0.0, 1.0);
        span.saturating_add(Duration::try_from_secs_f64(span.as_secs_f64() * share).unwrap_or(Duration::ZERO))
    }
}

impl Outcome {
    /// Returns whether the origin did what it was asked: only then is its latency a reason to go faster. Errors are
    /// often answered sooner than anything else.
    pub fn is_good(&self) -> bool {
        self.status.is_some_and(|status| matches!(status, 200..=299 | 304))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_only_lengthens() {
        let second = Duration::from_secs(1);
        for (share, chance, millis) in [(0.0, 0.9, 1000), (0.1, 0.0, 1000), (0.1, 0.5, 1050), (0.5, 1.0, 1500)] {
            assert_eq!(Jitter(share).stretch(second, chance), Duration::from_millis(millis), "{share} {chance}");
        }
        assert_eq!(Jitter(1.0).stretch(Duration::MAX, 0.9), Duration::MAX);
    }
}
