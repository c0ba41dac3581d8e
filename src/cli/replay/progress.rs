//! How far a replay has come: a bar on standard error, where that is a terminal.

use crate::clock::Clock;
use crate::policy::Timestamp;
use crate::terminal::{bar, span, thousands};
use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A bar, with rate and time left.
pub(super) struct Progress {
    clock: Clock,
    bytes: Option<u64>,
    read: Arc<AtomicU64>,
    shown: Cell<Timestamp>,
    is_seen: bool,
}

impl Progress {
    /// Of so many `bytes`, where that is known, what has been `read`.
    pub(super) fn over(bytes: Option<u64>, read: Arc<AtomicU64>) -> Self {
        let (clock, is_seen) = (Clock::system(), io::stderr().is_terminal());
        Self { clock, bytes, read, shown: Cell::default(), is_seen }
    }

    /// So many lines have been read.
    pub(super) fn show(&self, lines: u64) {
        let now = self.clock.uptime();
        if !self.is_seen || now.since(self.shown.get()) < REDRAW_EVERY {
            return;
        }
        self.shown.set(now);
        let drawn = drawn(lines, self.read.load(Ordering::Relaxed), self.bytes, now.since(Timestamp::default()));
        let _ = write!(io::stderr(), "\r\x1b[2K{drawn}");
    }

    /// Takes the bar away.
    pub(super) fn clear(&self) {
        if self.shown.get() > Timestamp::default() {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}

fn drawn(lines: u64, read: u64, bytes: Option<u64>, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64().max(0.001);
    let rate = format!("{} lines, {} a second", thousands(lines), thousands((lines as f64 / seconds) as u64));
    let Some(bytes) = bytes.filter(|bytes| *bytes > 0) else { return rate };
    let done = (read as f64 / bytes as f64).min(1.0);
    let left = seconds / done.max(0.001) * (1.0 - done);
    format!("{} {:>3.0} %  {rate}, {} left", bar(done, &[], 30), done * 100.0, span(left as u64))
}

/// Often enough to be seen to move.
const REDRAW_EVERY: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_says_how_fast_and_how_long_still() {
        let half = drawn(1_000_000, 50, Some(100), Duration::from_secs(2));
        assert_eq!(half, "███████████████···············  50 %  1,000,000 lines, 500,000 a second, 2 s left");
        assert_eq!(drawn(10, 5, None, Duration::from_secs(1)), "10 lines, 10 a second");
    }
}
