//! Output of the demo: on a terminal a table that is redrawn in place, else lines.

use super::config::{LIMIT, SHED_THRESHOLDS};
use super::scoreboard::{ClientGroup, Row, Scoreboard};
use super::traffic;
use std::io::{self, Write};
use std::time::Duration;
use tidegate_replay::terminal::{ColorMode, bar, format_duration, group_digits, truncate};

/// An output and its mode.
pub struct Screen {
    out: Box<dyn Write + Send>,
    /// Number of columns of a terminal; `None` for a pipe or a file.
    width: Option<usize>,
    color: ColorMode,
    /// Number of lines of the last table.
    drawn_lines: usize,
}

/// Width of texts in a pipe or a file, in columns.
const PIPE_WIDTH: usize = 120;

impl Screen {
    /// Creates the output for a terminal of `width` columns, or for a pipe or a file.
    pub fn new(out: Box<dyn Write + Send>, width: Option<usize>, color: ColorMode) -> Self {
        Self { out, width, color, drawn_lines: 0 }
    }

    /// Returns the width of texts, in columns.
    pub(super) fn text_width(&self) -> usize {
        self.width.unwrap_or(PIPE_WIDTH)
    }

    /// Returns the color mode.
    pub(super) fn color_mode(&self) -> ColorMode {
        self.color
    }

    /// Returns the time between two updates.
    pub(super) fn update_interval(&self) -> Duration {
        Duration::from_millis(if self.width.is_some() { 200 } else { 5000 })
    }

    /// Writes text below the current content.
    pub(super) fn print(&mut self, text: &str) -> io::Result<()> {
        self.drawn_lines = 0;
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Draws the scoreboard: over the last table on a terminal, else as one more line.
    pub(super) fn draw(&mut self, scoreboard: &Scoreboard) -> io::Result<()> {
        match self.width {
            Some(width) => {
                let table = table(scoreboard, width, self.color);
                let erase = match self.drawn_lines {
                    0 => String::new(),
                    lines => format!("\x1b[{lines}A\x1b[J"),
                };
                self.drawn_lines = table.lines().count();
                write!(self.out, "{erase}{table}")?;
            }
            None => writeln!(self.out, "{}", line(scoreboard))?,
        }
        self.out.flush()
    }
}

/// Renders the table for a terminal of `width` columns.
fn table(scoreboard: &Scoreboard, width: usize, color: ColorMode) -> String {
    let bar_width = width.saturating_sub(36).clamp(10, 60);
    let day_share = scoreboard.now.as_secs_f64() / traffic::DAY.as_secs_f64();
    let used_share = scoreboard.used as f64 / LIMIT as f64;
    let usage_bar = color.by_level(used_share, &bar(used_share, &SHED_THRESHOLDS, bar_width));
    let header =
        format!("  {:<15}{:>9}{:>10}{:>9}{:>9}   last Retry-After", "", "requests", "admitted", "refused", "share");
    let mut lines = vec![
        format!("  {}  {}", color.bold(&time_of_day(scoreboard.now)), bar(day_share, &[], bar_width)),
        format!("  quota  {usage_bar}  {} of {} units", group_digits(scoreboard.used), group_digits(LIMIT)),
        String::new(),
        truncate(&header, width),
    ];
    for (group, name) in ClientGroup::ALL {
        let row = truncate(&table_row(name, scoreboard.row(group)), width);
        lines.push(if group == ClientGroup::People { color.bold(&row) } else { row });
    }
    lines.join("\n") + "\n"
}

fn table_row(name: &str, row: &Row) -> String {
    let share = match row.requests {
        0 => "-".to_owned(),
        requests => format!("{:.1}%", 100.0 * row.refused as f64 / requests as f64),
    };
    let retry_after = row.retry_after.map_or("-".to_owned(), |seconds| format!("in {}", format_duration(seconds)));
    let [requests, admitted, refused] = [row.requests, row.admitted(), row.refused].map(group_digits);
    format!("  {name:<15}{requests:>9}{admitted:>10}{refused:>9}{share:>9}   {retry_after}")
}

/// Renders one line, for an output that is not redrawn.
fn line(scoreboard: &Scoreboard) -> String {
    let rows = ClientGroup::ALL.map(|(group, name)| (name, scoreboard.row(group)));
    let groups = rows.map(|(name, row)| format!("  {name} {}/{}", row.admitted(), row.requests));
    format!("{}  quota {}/{LIMIT}{}", time_of_day(scoreboard.now), scoreboard.used, groups.concat())
}

/// Formats a time of the day, such as `14:25`.
pub(super) fn time_of_day(now: Duration) -> String {
    let minutes = now.as_secs() / 60;
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for SharedBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns what is written for two scoreboards, with a text after the first if it is not empty.
    fn drawn_twice(width: Option<usize>, text: &str) -> String {
        let buffer = SharedBuffer::default();
        let mut screen = Screen::new(Box::new(buffer.clone()), width, ColorMode::Plain);
        screen.draw(&Scoreboard::default()).expect("writable");
        if !text.is_empty() {
            screen.print(text).expect("writable");
        }
        screen.draw(&Scoreboard::default()).expect("writable");
        String::from_utf8_lossy(&buffer.0.lock()).into_owned()
    }

    #[test]
    fn only_the_last_table_of_a_terminal_is_overwritten() {
        assert_eq!(drawn_twice(Some(80), "").matches("\x1b[9A\x1b[J").count(), 1);
        assert!(!drawn_twice(Some(80), "The day is over.\n").contains("\x1b[J"));
        let lines = drawn_twice(None, "");
        assert!(lines.lines().count() == 2 && !lines.contains('\x1b'), "{lines}");
        assert!(lines.starts_with("00:00  quota 0/2000  people 0/0"), "{lines}");
    }

    #[test]
    fn table_shows_time_quota_and_group_rows_and_fits_the_width() {
        let now = Duration::from_secs(14 * 3600 + 25 * 60);
        let mut scoreboard = Scoreboard { now, used: 1024, ..Scoreboard::default() };
        scoreboard.rows[ClientGroup::People as usize] = Row { requests: 1203, ..Row::default() };
        scoreboard.rows[ClientGroup::Impostors as usize] =
            Row { requests: 40, refused: 30, retry_after: Some(34_500), ..Row::default() };
        let rendered = table(&scoreboard, 80, ColorMode::Plain);
        insta::assert_snapshot!(rendered);
        for width in [40, 60, 80, 200] {
            let rendered = table(&scoreboard, width, ColorMode::Plain);
            assert!(rendered.lines().skip(2).all(|line| line.chars().count() <= width), "{width}\n{rendered}");
        }
        assert!(table(&scoreboard, 80, ColorMode::Color).contains("\x1b[1m14:25\x1b[0m"));
    }
}
