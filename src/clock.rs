//! The only file that asks the time.

use crate::policy::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Tells the time: the system's, or one that a test moves.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Set(Arc<AtomicU64>),
}

impl Clock {
    /// The system's wall clock.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that stands at `start` until [`Clock::set`] moves it; its clones move along.
    pub fn standing_at(start: Timestamp) -> Self {
        Self(Source::Set(Arc::new(AtomicU64::new(start.0))))
    }

    /// Moves a standing clock; the system's does not listen.
    pub fn set(&self, now: Timestamp) {
        if let Source::Set(nanoseconds) = &self.0 {
            nanoseconds.store(now.0, Ordering::Release);
        }
    }

    /// The time. It may go back when somebody sets the system's clock; whoever keeps state counts that as no time
    /// passed.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => {
                let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp(u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX))
            }
            Source::Set(nanoseconds) => Timestamp(nanoseconds.load(Ordering::Acquire)),
        }
    }
}
