//! Progress of a long command: one line on standard error if that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidegate_replay::log::LogFiles;
use tidegate_replay::terminal::{bar, format_duration, group_digits};

/// A line that is redrawn.
pub(super) struct Progress {
    line: ProgressBar,
    drawn_at: Cell<Duration>,
}

/// Progress of reading logs.
pub(super) struct ReadProgress {
    total_bytes: Option<u64>,
    bytes_read: Arc<AtomicU64>,
}

impl Progress {
    /// Starts the clock.
    pub(super) fn start() -> Self {
        let style = ProgressStyle::with_template("{msg}").expect("valid template");
        Self { line: ProgressBar::no_length().with_style(style), drawn_at: Cell::default() }
    }

    /// Draws the line that `render` renders from the elapsed time, unless stderr is no terminal or a redraw is too
    /// early.
    pub(super) fn show(&self, render: impl FnOnce(Duration) -> String) {
        if self.line.elapsed().saturating_sub(self.drawn_at.get()) >= REDRAW_INTERVAL {
            self.show_now(render);
        }
    }

    /// Draws the line that `render` renders from the elapsed time, unless stderr is no terminal.
    pub(super) fn show_now(&self, render: impl FnOnce(Duration) -> String) {
        if self.is_terminal() {
            if self.line.is_finished() {
                self.line.reset();
            }
            self.drawn_at.set(self.line.elapsed());
            self.line.set_message(render(self.drawn_at.get()));
            self.line.force_draw();
        }
    }

    /// Returns true if the line is drawn.
    pub(super) fn is_terminal(&self) -> bool {
        !self.line.is_hidden()
    }

    /// Erases the line, until it is drawn again.
    pub(super) fn clear(&self) {
        self.line.finish_and_clear();
    }
}

impl ReadProgress {
    /// Creates the progress of reading `files`, whose size may be known.
    pub(super) fn new(files: &LogFiles) -> Self {
        Self { total_bytes: files.total_bytes, bytes_read: files.bytes_read.clone() }
    }

    /// Renders a bar with the rate and the remaining time.
    pub(super) fn render(&self, lines: u64, elapsed: Duration) -> String {
        let seconds = elapsed.as_secs_f64().max(0.001);
        let rate = format!("{} lines, {}/s", group_digits(lines), group_digits((lines as f64 / seconds) as u64));
        let Some(total_bytes) = self.total_bytes.filter(|bytes| *bytes > 0) else { return rate };
        let done = (self.bytes_read.load(Ordering::Relaxed) as f64 / total_bytes as f64).min(1.0);
        format!("{}  {rate}, {} left", progress_bar(done), time_left(done, elapsed))
    }
}

/// Renders a bar with its percentage.
pub(super) fn progress_bar(done: f64) -> String {
    format!("{} {:>3.0} %", bar(done, &[], 20), done * 100.0)
}

/// Formats the remaining time at the present rate.
pub(super) fn time_left(done: f64, elapsed: Duration) -> String {
    format_duration((elapsed.as_secs_f64() / done.max(0.001) * (1.0 - done)).ceil() as u64)
}

/// Short enough for visible movement.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_shows_rate_and_remaining_time() {
        let reading =
            |total_bytes, bytes_read| ReadProgress { total_bytes, bytes_read: Arc::new(AtomicU64::new(bytes_read)) };
        let half = reading(Some(100), 50).render(1_000_000, Duration::from_secs(2));
        assert_eq!(half, "██████████··········  50 %  1,000,000 lines, 500,000/s, 2 s left");
        assert_eq!(reading(None, 5).render(10, Duration::from_secs(1)), "10 lines, 10/s");
    }

    #[test]
    fn bar_fits_80_columns_and_reaches_zero_seconds() {
        let reading =
            |bytes_read| ReadProgress { total_bytes: Some(1000), bytes_read: Arc::new(AtomicU64::new(bytes_read)) };
        let long = reading(100).render(999_999_999, Duration::from_secs(19_000));
        assert!(long.chars().count() < 80 && long.ends_with("47 h 30 min left"), "{long}");
        assert!(reading(320).render(1000, Duration::from_millis(100)).ends_with("1 s left"));
        assert!(reading(1000).render(1000, Duration::from_millis(100)).ends_with("0 s left"));
    }
}
