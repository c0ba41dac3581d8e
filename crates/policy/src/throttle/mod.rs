//! Throttle: limits the load on the origin by scopes; settings, and rules on plain values.
//!
//! A request is sent when every one of its scopes permits it: a slot is free ([`ThrottleConfig::concurrency`]), the
//! [`spacing`] is kept, and the scope is not backing off ([`backoff`]). A [`controller`] may adapt concurrency or
//! delay, by latency ([`autothrottle`], [`gradient`]) or by overload responses ([`rampup`]). The engine queues and
//! orders the waiters.

pub mod autothrottle;
pub mod backoff;
pub mod controller;
pub mod gradient;
pub mod overload;
pub mod partition;
pub mod rampup;
#[cfg(test)]
mod simulation;
pub mod spacing;
use crate::tier::Share;
use backoff::Backoff;
use controller::Controller;
use partition::Partitioning;
use spacing::Spacing;
use std::num::NonZeroU32;
use std::time::Duration;
/// A scope: a throttled part of the origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    /// Name in settings, logs and metrics.
    pub name: String,
    /// Throttle settings; `None` if the scope is not throttled.
    pub throttle: Option<ThrottleConfig>,
    /// Partitioning into one instance per value of a key; `None` for a single instance.
    pub partitioning: Option<Partitioning>,
}

/// Throttle settings of a scope.
#[derive(Clone, Debug, PartialEq)]
pub struct ThrottleConfig {
    /// Maximum number of requests in flight.
    pub concurrency: Option<NonZeroU32>,
    /// Part of the slots, and of the queue, that one client may occupy.
    pub client_slots: ClientSlots,
    /// Minimum time between requests.
    pub spacing: Spacing,
    /// Controller that adapts concurrency or delay.
    pub controller: Option<Controller>,
    /// Backoff after overload responses.
    pub backoff: Option<Backoff>,
    /// Wait queue.
    pub queue: QueueConfig,
}

/// Part of the slots of a scope that one client may occupy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientSlots {
    /// A quarter, at least two.
    Quarter,
    /// A share, at least one.
    Share(Share),
    /// A number.
    Count(NonZeroU32),
}

/// Limits of a wait queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// Maximum wait.
    pub max_wait: Duration,
    /// Maximum number of waiters.
    pub max_length: u32,
}

/// Range in which a duration is varied, as fractions of it; `low` may be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Jitter {
    /// Minimum variation.
    pub low: f64,
    /// Maximum variation.
    pub high: f64,
}

/// Outcome of a request to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginOutcome {
    /// Response status; `None` if the request timed out or the connection broke.
    pub status: Option<u16>,
    /// Time from sending the request to receiving the response head.
    pub latency: Duration,
    /// True if the latency reflects the load of the origin; false if the origin answered from a cache or the route is
    /// excluded.
    pub latency_counts: bool,
    /// Pause requested by the origin, in `Retry-After` or rate limit fields.
    pub retry_after: Option<Duration>,
    /// True if no connection to the origin could be made, which no client can cause.
    pub is_unreachable: bool,
}

impl QueueConfig {
    /// No queue.
    pub const NONE: Self = Self { max_wait: Duration::ZERO, max_length: 0 };
}

impl ClientSlots {
    /// Returns the maximum for one client of a scope with `limit` slots; `None` if it may occupy all of them.
    pub fn of(self, limit: u32) -> Option<u32> {
        let slots = match self {
            Self::Quarter => limit.div_ceil(4).max(2),
            Self::Share(share) => {
                let millionths = u64::from(limit) * u64::from(share.millionths());
                u32::try_from(millionths.div_ceil(Share::ALL.millionths().into())).unwrap_or(u32::MAX).max(1)
            }
            Self::Count(slots) => slots.get(),
        };
        (slots < limit).then_some(slots)
    }
}

impl Scope {
    /// Name of the scope that applies to routes without scopes. It always exists.
    pub const DEFAULT: &str = "default";

    /// Creates a scope that is not throttled.
    pub fn unthrottled(name: &str) -> Self {
        Self { name: name.to_owned(), throttle: None, partitioning: None }
    }
}

impl Jitter {
    /// Creates a jitter that extends a duration by up to `share` of it.
    pub fn at_most(share: f64) -> Self {
        Self { low: 0.0, high: share }
    }

    /// Returns `span`, varied by the jitter; `random`, from 0 to 1, selects the point in the range.
    pub fn apply(self, span: Duration, random: f64) -> Duration {
        let share = self.low + (self.high - self.low) * random.clamp(0.0, 1.0);
        let change = Duration::try_from_secs_f64(span.as_secs_f64() * share.abs()).unwrap_or_default();
        if share < 0.0 { span.saturating_sub(change) } else { span.saturating_add(change) }
    }
}

impl OriginOutcome {
    /// Returns true if the request succeeded. Only then may its latency reduce the delay: errors are often fast.
    pub fn is_success(&self) -> bool {
        self.status.is_some_and(|status| matches!(status, 200..=299 | 304))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_occupies_a_part_of_the_slots() {
        let count = |slots| ClientSlots::Count(NonZeroU32::new(slots).expect("not zero"));
        let share = |percent: u32| ClientSlots::Share(Share::from_millionths(percent * 10_000));
        for (slots, limit, expected) in [
            (ClientSlots::Quarter, 64, Some(16)),
            (ClientSlots::Quarter, 65, Some(17)),
            (ClientSlots::Quarter, 4, Some(2)),
            (ClientSlots::Quarter, 3, Some(2)),
            (ClientSlots::Quarter, 2, None),
            (ClientSlots::Quarter, 1, None),
            (share(10), 64, Some(7)),
            (share(1), 64, Some(1)),
            (share(100), 64, None),
            (count(3), 64, Some(3)),
            (count(64), 64, None),
            (count(3), 2, None),
        ] {
            assert_eq!(slots.of(limit), expected, "{slots:?} of {limit}");
        }
    }

    #[test]
    fn jitter_varies_between_its_two_shares() {
        for (low, high, random, millis) in [
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
            let varied = Jitter { low, high }.apply(Duration::from_secs(1), random);
            assert_eq!(varied, Duration::from_millis(millis), "{low} to {high} at {random}");
        }
        assert_eq!(Jitter::at_most(1.0).apply(Duration::MAX, 0.9), Duration::MAX);
    }
}
