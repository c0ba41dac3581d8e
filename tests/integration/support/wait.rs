//! Waits for other threads and processes: until a condition is true, or until a deadline.

#![allow(clippy::disallowed_methods, reason = "deadlines for other processes use the system clock")]

use std::time::{Duration, Instant};

/// Time after which a waiting test fails. Only a failing test waits that long, so it suits a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Pause between two attempts, which leaves the processor to other processes.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// End of a wait that consists of several.
pub struct Deadline(Instant);

impl Deadline {
    /// Returns the deadline of a wait that starts now, after [`TIMEOUT`].
    pub fn from_now() -> Self {
        Self(Instant::now() + TIMEOUT)
    }

    /// Returns the time left.
    pub fn left(&self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

/// Calls `attempt` until it returns a value. Panics with `description` after [`TIMEOUT`].
#[track_caller]
pub fn wait_for<T>(description: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(start.elapsed() < TIMEOUT, "waited {TIMEOUT:?} for {description}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Calls `condition` until it returns true. Panics with `description` after [`TIMEOUT`].
#[track_caller]
pub fn wait_until(description: &str, mut condition: impl FnMut() -> bool) {
    wait_for(description, || condition().then_some(()));
}

/// Sleeps in real time, for processes that use their own clock.
pub fn pass_real_time(span: Duration) {
    std::thread::sleep(span);
}
