//! Time of all rules: nanoseconds since the Unix epoch, handed in, never read here.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A point in time, in nanoseconds since 1970-01-01T00:00:00Z.
///
/// Arithmetic saturates; a clock that goes back counts as no time passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Creates the time `seconds` after the epoch.
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// Returns whole seconds since the epoch, rounded down.
    pub const fn seconds(self) -> u64 {
        self.0 / 1_000_000_000
    }

    /// Truncates to microseconds, the precision of the access log.
    #[must_use]
    pub const fn truncate_to_micros(self) -> Self {
        Self(self.0 - self.0 % 1000)
    }

    /// Returns the duration since `earlier`; zero if `earlier` is not before this time.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stays_within_its_range() {
        let span = Duration::from_nanos(1_500);
        let mut time = Timestamp(10_000);
        assert_eq!((time + span, time - span, time.truncate_to_micros()), (Timestamp(11_500), Timestamp(8500), time));
        time += span;
        assert_eq!((time, time.truncate_to_micros()), (Timestamp(11_500), Timestamp(11_000)));
        assert_eq!(time.saturating_duration_since(Timestamp(10_000)), span);
        assert_eq!(Timestamp(10_000).saturating_duration_since(time), Duration::ZERO, "time went back");
        assert_eq!((Timestamp(1) - span, Timestamp(u64::MAX) + span), (Timestamp(0), Timestamp(u64::MAX)));
        assert_eq!((Timestamp::from_seconds(3).0, Timestamp(3_999_999_999).seconds()), (3_000_000_000, 3));
    }
}
