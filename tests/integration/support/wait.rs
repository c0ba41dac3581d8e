//! Waits for what other threads and processes do: until it is so, or until a deadline by the clock.

#![allow(clippy::disallowed_methods, reason = "a deadline for other processes is one by the system's clock")]

use std::time::{Duration, Instant};

/// A test that waits for longer has failed. Only a failing test waits for all of it, so it suits a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Pause between two attempts, which leaves the processor to what is waited for.
const PAUSE: Duration = Duration::from_millis(2);

/// Calls `attempt` until it returns a value. Panics with `what` was waited for after [`TIMEOUT`].
#[track_caller]
pub fn wait_for<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(start.elapsed() < TIMEOUT, "waited {TIMEOUT:?} for {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Calls `is_so` until it is true. Panics with `what` was waited for after [`TIMEOUT`].
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for(what, || is_so().then_some(()));
}

/// Lets real time pass, for what goes by the clock of another process.
pub fn pass_real_time(span: Duration) {
    std::thread::sleep(span);
}
