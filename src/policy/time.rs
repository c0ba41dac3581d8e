//! One time for everything: nanoseconds since the Unix epoch, handed in, never read here.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A moment, in nanoseconds since 1970-01-01T00:00:00Z.
///
/// Arithmetic saturates, and time that goes back counts as no time passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The moment `seconds` after the epoch.
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// Whole seconds since the epoch, rounded down.
    pub const fn seconds(self) -> u64 {
        self.0 / 1_000_000_000
    }

    /// The microsecond that it falls into, which is as much as the access log tells.
    #[must_use]
    pub const fn truncate_to_micros(self) -> Self {
        Self(self.0 - self.0 % 1000)
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub const fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanoseconds(span)))
    }
}

impl AddAssign<Duration> for Timestamp {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanoseconds(span)))
    }
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Whole seconds of `wait`, rounded up: a client that comes back then does not come too early.
pub fn ceil_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// A wait that ends later by `spread`, a share of it, so that those who were told together do not come back together.
pub fn with_spread(wait: Duration, spread: f64) -> Duration {
    wait + wait.min(SPREAD_WAIT).mul_f64(spread)
}

/// A longer wait is spread as if it were this long: minutes part a crowd, hours would only keep it away.
const SPREAD_WAIT: Duration = Duration::from_secs(3600);
