//! Renders the live table. Pure functions of the scoreboard.

use super::scoreboard::{Gauge, Group, Row, Scoreboard};
use super::traffic;
use crate::terminal::{ColorMode, bar, format_duration, group_digits, truncate};
use std::fmt::Write;
use std::time::Duration;

/// Renders the table for a terminal of `width` columns.
pub fn frame(board: &Scoreboard, width: usize, ink: ColorMode) -> String {
    let mut out = String::new();
    let hour = ink.bold(&clock(board.now));
    let _ = writeln!(
        out,
        "  {hour}  {}",
        bar(board.now.as_secs_f64() / traffic::LENGTH.as_secs_f64(), &[], bar_width(width))
    );
    let spent = share(board.quota);
    let units =
        format!("{} of {} units", group_digits(board.quota.used as u64), group_digits(board.quota.limit as u64));
    let _ = writeln!(out, "  quota  {}  {units}", ink.by_level(spent, &bar(spent, &board.marks, bar_width(width))));
    let _ = writeln!(out);
    let head =
        format!("  {:<15}{:>9}{:>10}{:>9}{:>9}   last Retry-After", "", "requests", "admitted", "refused", "share");
    let _ = writeln!(out, "{}", truncate(&head, width));
    for group in Group::ALL {
        let line = truncate(&line(group.name(), board.row(group)), width);
        let _ = writeln!(out, "{}", if group == Group::People { ink.bold(&line) } else { line });
    }
    out
}

/// Renders one line, for an output that is not redrawn.
pub fn line_of_log(board: &Scoreboard) -> String {
    let mut out = format!("{}  quota {}/{}", clock(board.now), board.quota.used as u64, board.quota.limit as u64);
    for group in Group::ALL {
        let row = board.row(group);
        let _ = write!(out, "  {} {}/{}", group.name(), row.admitted(), row.requests);
    }
    out
}

fn line(name: &str, row: &Row) -> String {
    let share = match row.requests {
        0 => "-".to_owned(),
        asked => format!("{:.1}%", 100.0 * row.refused as f64 / asked as f64),
    };
    let wait = row.retry_after.map_or("-".to_owned(), |seconds| format!("in {}", format_duration(seconds)));
    let [asked, served, refused] = [row.requests, row.admitted(), row.refused].map(group_digits);
    format!("  {name:<15}{asked:>9}{served:>10}{refused:>9}{share:>9}   {wait}")
}

/// Formats a time of the day, such as `14:25`.
pub(super) fn clock(now: Duration) -> String {
    let minutes = now.as_secs() / 60;
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

fn share(gauge: Gauge) -> f64 {
    if gauge.limit > 0.0 { (gauge.used / gauge.limit).clamp(0.0, 1.0) } else { 0.0 }
}

fn bar_width(width: usize) -> usize {
    width.saturating_sub(36).clamp(10, 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_scoreboard() -> Scoreboard {
        let mut board = Scoreboard {
            now: Duration::from_secs(14 * 3600 + 25 * 60),
            quota: Gauge { limit: 2000.0, used: 1024.0 },
            marks: vec![20.0, 75.0],
            ..Scoreboard::default()
        };
        board.rows[Group::People as usize] = Row { requests: 1203, costly: 400, ..Row::default() };
        board.rows[Group::Impostors as usize] =
            Row { requests: 40, refused: 30, retry_after: Some(34_500), ..Row::default() };
        board
    }

    #[test]
    fn frame_shows_time_quota_and_group_rows() {
        let drawn = frame(&sample_scoreboard(), 80, ColorMode::Plain);
        let lines: Vec<&str> = drawn.lines().collect();
        assert!(lines[0].starts_with("  14:25  ███"), "{drawn}");
        assert!(
            lines[1].contains("▓") && lines[1].contains("┊") && lines[1].ends_with("1,024 of 2,000 units"),
            "{drawn}"
        );
        assert_eq!(lines[4], "  people             1,203     1,203        0     0.0%   -");
        assert_eq!(lines[8], "  impostors             40        10       30    75.0%   in 9 h 35 min");
        assert_eq!(lines.len(), 9);
    }

    #[test]
    fn frame_fits_the_width_and_respects_color_mode() {
        for width in [40, 60, 80, 200] {
            let drawn = frame(&sample_scoreboard(), width, ColorMode::Plain);
            assert!(drawn.lines().skip(2).all(|line| line.chars().count() <= width), "{width}\n{drawn}");
            assert!(!drawn.contains('\x1b'));
        }
        assert!(frame(&sample_scoreboard(), 80, ColorMode::Color).contains("\x1b[1m14:25\x1b[0m"));
    }

    #[test]
    fn empty_scoreboard_is_rendered() {
        assert!(frame(&Scoreboard::default(), 80, ColorMode::Plain).contains("0 of 0 units"));
        assert!(line_of_log(&Scoreboard::default()).starts_with("00:00  quota 0/0"));
    }
}
