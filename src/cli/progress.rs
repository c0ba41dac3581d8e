//! How far a long command has come: one line on standard error, where that is a terminal.

use crate::clock::Clock;
use crate::policy::Timestamp;
use crate::replay::log::LogFiles;
use crate::terminal::{bar, format_duration, group_digits};
use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A line that is drawn over and over.
pub(super) struct Progress {
    clock: Clock,
    shown: Cell<Timestamp>,
    is_seen: bool,
}

/// How much of the logs has been read.
pub(super) struct ReadProgress {
    bytes: Option<u64>,
    read: Arc<AtomicU64>,
}

impl Progress {
    /// Begins now.
    pub(super) fn begin() -> Self {
        Self { clock: Clock::system(), shown: Cell::default(), is_seen: io::stderr().is_terminal() }
    }

    /// Shows what `drawn` makes of the time since the beginning, unless nobody sees it or it has just been shown.
    pub(super) fn show(&self, drawn: impl FnOnce(Duration) -> String) {
        let now = self.clock.monotonic_now();
        if !self.is_seen || now.saturating_duration_since(self.shown.get()) < REDRAW_INTERVAL {
            return;
        }
        self.shown.set(now);
        let _ = write!(io::stderr(), "\r\x1b[2K{}", drawn(now.saturating_duration_since(Timestamp::default())));
    }

    /// Takes the line away.
    pub(super) fn clear(&self) {
        if self.shown.get() > Timestamp::default() {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}

impl ReadProgress {
    /// Of these files, whose size may be known.
    pub(super) fn of(files: &LogFiles) -> Self {
        Self { bytes: files.bytes, read: files.read.clone() }
    }

    /// A bar with rate and time left, once so many lines have been read.
    pub(super) fn render(&self, lines: u64, elapsed: Duration) -> String {
        let seconds = elapsed.as_secs_f64().max(0.001);
        let rate = format!("{} lines, {}/s", group_digits(lines), group_digits((lines as f64 / seconds) as u64));
        let Some(bytes) = self.bytes.filter(|bytes| *bytes > 0) else { return rate };
        let done = (self.read.load(Ordering::Relaxed) as f64 / bytes as f64).min(1.0);
        format!("{}  {rate}, {} left", done_bar(done), time_left(done, elapsed))
    }
}

/// A bar, and how much of it that is.
pub(super) fn done_bar(done: f64) -> String {
    format!("{} {:>3.0} %", bar(done, &[], 20), done * 100.0)
}

/// How long the rest takes if it goes on like this.
pub(super) fn time_left(done: f64, elapsed: Duration) -> String {
    format_duration((elapsed.as_secs_f64() / done.max(0.001) * (1.0 - done)).ceil() as u64)
}

/// Often enough to be seen to move.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_says_how_fast_and_how_long_still() {
        let reading = |bytes, read| ReadProgress { bytes, read: Arc::new(AtomicU64::new(read)) };
        let half = reading(Some(100), 50).render(1_000_000, Duration::from_secs(2));
        assert_eq!(half, "██████████··········  50 %  1,000,000 lines, 500,000/s, 2 s left");
        assert_eq!(reading(None, 5).render(10, Duration::from_secs(1)), "10 lines, 10/s");
    }

    #[test]
    fn it_fits_a_terminal_and_nothing_is_left_only_at_the_end() {
        let reading = |read| ReadProgress { bytes: Some(1000), read: Arc::new(AtomicU64::new(read)) };
        let long = reading(100).render(999_999_999, Duration::from_secs(19_000));
        assert!(long.chars().count() < 80 && long.ends_with("47 h 30 min left"), "{long}");
        assert!(reading(320).render(1000, Duration::from_millis(100)).ends_with("1 s left"));
        assert!(reading(1000).render(1000, Duration::from_millis(100)).ends_with("0 s left"));
    }
}
