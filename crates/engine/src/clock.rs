//! Wall-clock and monotonic time. No other file reads the system's clocks.

#![allow(clippy::disallowed_methods, reason = "clippy.toml bans them everywhere else")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tidegate_policy::Timestamp;

/// Source of the wall-clock time and of a monotonic time.
///
/// The two are separate because the wall clock can be set: quota windows follow it, timeouts must not.
#[derive(Clone, Debug)]
pub struct Clock {
    wall: WallClock,
    monotonic: Monotonic,
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
    /// Returns the system's clock.
    pub fn system() -> Self {
        Self { wall: WallClock::System, monotonic: Monotonic::Since(Instant::now()) }
    }

    /// Returns a clock whose wall-clock time stays at `start` until [`Clock::set`] changes it, for all clones.
    /// Monotonic time runs as usual.
    pub fn frozen_at(start: Timestamp) -> Self {
        Self { wall: WallClock::Manual(Arc::new(AtomicU64::new(start.0))), ..Self::system() }
    }

    /// Returns a clock whose wall-clock and monotonic time change only manually.
    pub fn manual(start: Timestamp) -> Self {
        Self { monotonic: Monotonic::Manual(Arc::default()), ..Self::frozen_at(start) }
    }

    /// Sets the wall-clock time, unless it is the system's.
    pub fn set(&self, now: Timestamp) {
        if let WallClock::Manual(nanoseconds) = &self.wall {
            nanoseconds.store(now.0, Ordering::Release);
        }
    }

    /// Advances a manual clock by `span`.
    pub fn advance(&self, span: Duration) {
        self.set(self.now() + span);
        if let Monotonic::Manual(nanoseconds) = &self.monotonic {
            nanoseconds.fetch_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX), Ordering::AcqRel);
        }
    }

    /// Returns the wall-clock time, truncated to microseconds, the precision of the access log: a replay makes the same
    /// decisions. The value can decrease when the system's clock is set; code with state counts that as no elapsed
    /// time.
    pub fn now(&self) -> Timestamp {
        let now = match &self.wall {
            WallClock::System => {
                let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp(u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX))
            }
            WallClock::Manual(nanoseconds) => Timestamp(nanoseconds.load(Ordering::Acquire)),
        };
        now.truncate_to_micros()
    }

    /// Returns the monotonic time since the clock was created.
    pub fn monotonic_now(&self) -> Timestamp {
        match &self.monotonic {
            Monotonic::Since(start) => Timestamp::default() + start.elapsed(),
            Monotonic::Manual(nanoseconds) => Timestamp(nanoseconds.load(Ordering::Acquire)),
        }
    }
}
