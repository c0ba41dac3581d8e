//! The only file that asks the time.

#![allow(clippy::disallowed_methods, reason = "clippy.toml bans them so that they stand here alone")]

use crate::policy::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Tells the time of day, and how long it has been running.
///
/// They are asked separately, because the time of day can be set: windows of a quota follow it, timeouts must not.
#[derive(Clone, Debug)]
pub struct Clock {
    of_day: WallClock,
    running: Monotonic,
}

#[derive(Clone, Debug)]
enum WallClock {
    System,
    Manual(Arc<AtomicU64>),
}

#[derive(Clone, Debug)]
enum Monotonic {
    Since(Instant),
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self { of_day: WallClock::System, running: Monotonic::Since(Instant::now()) }
    }

    /// A time of day that stands at `start` until [`Clock::set`] moves it; its clones move along. Timeouts run as usual.
    pub fn frozen_at(start: Timestamp) -> Self {
        Self { of_day: WallClock::Manual(Arc::new(AtomicU64::new(start.0))), ..Self::system() }
    }

    /// A clock of which everything is moved by hand, timeouts included.
    pub fn manual(start: Timestamp) -> Self {
        Self { running: Monotonic::Manual(Arc::default()), ..Self::frozen_at(start) }
    }

    /// Sets the time of day, unless it is the system's.
    pub fn set(&self, now: Timestamp) {
        if let WallClock::Manual(nanoseconds) = &self.of_day {
            nanoseconds.store(now.0, Ordering::Release);
        }
    }

    /// Lets `span` pass on a clock that is moved by hand.
    pub fn advance(&self, span: Duration) {
        self.set(self.now() + span);
        if let Monotonic::Manual(nanoseconds) = &self.running {
            nanoseconds.fetch_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX), Ordering::AcqRel);
        }
    }

    /// The time of day, to the microsecond: what is decided by it can be decided again by what the access log says. It may
    /// go back when somebody sets the system's clock; whoever keeps state counts that as no time passed.
    pub fn now(&self) -> Timestamp {
        let now = match &self.of_day {
            WallClock::System => {
                let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp(u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX))
            }
            WallClock::Manual(nanoseconds) => Timestamp(nanoseconds.load(Ordering::Acquire)),
        };
        now.truncate_to_micros()
    }

    /// How long this clock has been running, on a scale that nobody can set.
    pub fn monotonic_now(&self) -> Timestamp {
        match &self.running {
            Monotonic::Since(start) => Timestamp::default() + start.elapsed(),
            Monotonic::Manual(nanoseconds) => Timestamp(nanoseconds.load(Ordering::Acquire)),
        }
    }
}
