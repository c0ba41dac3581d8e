//! How hard the gate may press on a part of the origin: settings, and rules on plain values.
//!
//! A request is sent when all of its scopes let it: a slot is free ([`ThrottleConfig::concurrency`]), the [`spacing`] to the
//! one before is kept, and the scope does not rest ([`backoff`]). How many slots there are and how far apart requests are
//! sent may be found out on the way ([`controller`]): by the latency ([`autothrottle`], [`gradient`]) or by complaints
//! ([`rampup`]). Who has to wait, and in what order, is the engine's business.

pub mod autothrottle;
pub mod backoff;
pub mod controller;
pub mod gradient;
pub mod partition;
pub mod rampup;
#[cfg(test)]
mod simulation;
pub mod spacing;

use backoff::Backoff;
use controller::Controller;
use partition::Partitioning;
use spacing::Spacing;
use std::num::NonZeroU32;
use std::time::Duration;

/// A part of the origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    /// Its name in settings, logs and metrics.
    pub name: String,
    /// How it is throttled; `None` costs its requests nothing.
    pub throttle: Option<ThrottleConfig>,
    /// There is one of it for each value; `None`: it is there once.
    pub partitioning: Option<Partitioning>,
}

/// How one scope is throttled.
#[derive(Clone, Debug, PartialEq)]
pub struct ThrottleConfig {
    /// The most requests at once.
    pub concurrency: Option<NonZeroU32>,
    /// The time between two.
    pub spacing: Spacing,
    /// Finds out by itself how many at once, or how far apart.
    pub controller: Option<Controller>,
    /// Lets the scope rest when the origin complains.
    pub backoff: Option<Backoff>,
    /// Who may wait for a turn.
    pub queue: QueueConfig,
}

/// The bounds of a waiting line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// The longest wait.
    pub max_wait: Duration,
    /// The most who wait.
    pub max_length: u32,
}

/// By what shares a pause is varied: from `low` to `high`, of which the lower may be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Jitter {
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
}

/// What the origin did with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginOutcome {
    /// Its status; `None` where it timed out or broke off.
    pub status: Option<u16>,
    /// From sending the request to the head of the answer.
    pub latency: Duration,
    /// Whether the latency tells of the origin's load: not where the origin had the answer in a cache, or where the route
    /// is left out.
    pub measured: bool,
    /// How long the origin asked to be left alone.
    pub retry_after: Option<Duration>,
}

impl Scope {
    /// A scope that is not throttled.
    pub fn unthrottled(name: &str) -> Self {
        Self { name: name.to_owned(), throttle: None, partitioning: None }
    }
}

impl Jitter {
    /// A pause is longer by up to `share`.
    pub fn at_most(share: f64) -> Self {
        Self { low: 0.0, high: share }
    }

    /// Returns `span`, varied: `chance`, from 0 to 1, says where between the two shares.
    pub fn apply(self, span: Duration, chance: f64) -> Duration {
        let share = self.low + (self.high - self.low) * chance.clamp(0.0, 1.0);
        let change = Duration::try_from_secs_f64(span.as_secs_f64() * share.abs()).unwrap_or_default();
        if share < 0.0 { span.saturating_sub(change) } else { span.saturating_add(change) }
    }
}

impl OriginOutcome {
    /// Returns whether the origin did what it was asked: only then is its latency a reason to go faster. Errors are
    /// often answered sooner than anything else.
    pub fn is_success(&self) -> bool {
        self.status.is_some_and(|status| matches!(status, 200..=299 | 304))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_varies_between_its_two_shares() {
        for (low, high, chance, millis) in [
            (0.0, 0.0, 0.9, 1000),
            (0.0, 0.1, 0.0, 1000),
            (0.0, 0.1, 0.5, 1050),
            (0.0, 0.5, 1.0, 1500),
            (-0.1, 0.3, 0.0, 900),
            (-0.1, 0.3, 0.25, 1000),
            (-0.1, 0.3, 1.0, 1300),
            (-1.0, -0.5, 0.0, 0),
            (-1.0, -0.5, 1.0, 500),
        ] {
            let varied = Jitter { low, high }.apply(Duration::from_secs(1), chance);
            assert_eq!(varied, Duration::from_millis(millis), "{low} to {high} at {chance}");
        }
        assert_eq!(Jitter::at_most(1.0).apply(Duration::MAX, 0.9), Duration::MAX);
    }
}
