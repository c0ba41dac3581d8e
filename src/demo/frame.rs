//! Renders the live table. Pure functions of the scoreboard.

use super::scoreboard::{ClientGroup, Gauge, Row, Scoreboard};
use super::traffic;
use crate::terminal::{ColorMode, bar, format_duration, group_digits, truncate};
use std::fmt::Write;
use std::time::Duration;

/// Renders the table for a terminal of `width` columns.
pub fn frame(scoreboard: &Scoreboard, width: usize, color: ColorMode) -> String {
    let mut out = String::new();
    let hour = color.bold(&format_time_of_day(scoreboard.now));
    let _ = writeln!(
        out,
        "  {hour}  {}",
        bar(scoreboard.now.as_secs_f64() / traffic::DAY.as_secs_f64(), &[], bar_width(width))
    );
    let used_share = share(scoreboard.quota);
    let units = format!(
        "{} of {} units",
        group_digits(scoreboard.quota.used as u64),
        group_digits(scoreboard.quota.limit as u64)
    );
    let _ = writeln!(
        out,
        "  quota  {}  {units}",
        color.by_level(used_share, &bar(used_share, &scoreboard.thresholds, bar_width(width)))
    );
    let _ = writeln!(out);
    let header =
        format!("  {:<15}{:>9}{:>10}{:>9}{:>9}   last Retry-After", "", "requests", "admitted", "refused", "share");
    let _ = writeln!(out, "{}", truncate(&header, width));
    for group in ClientGroup::ALL {
        let line = truncate(&table_row(group.name(), scoreboard.row(group)), width);
        let _ = writeln!(out, "{}", if group == ClientGroup::People { color.bold(&line) } else { line });
    }
    out
}

/// Renders one line, for an output that is not redrawn.
pub fn log_line(scoreboard: &Scoreboard) -> String {
    let mut out = format!(
        "{}  quota {}/{}",
        format_time_of_day(scoreboard.now),
        scoreboard.quota.used as u64,
        scoreboard.quota.limit as u64
    );
    for group in ClientGroup::ALL {
        let row = scoreboard.row(group);
        let _ = write!(out, "  {} {}/{}", group.name(), row.admitted(), row.requests);
    }
    out
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

/// Formats a time of the day, such as `14:25`.
pub(super) fn format_time_of_day(now: Duration) -> String {
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
        let mut scoreboard = Scoreboard {
            now: Duration::from_secs(14 * 3600 + 25 * 60),
            quota: Gauge { limit: 2000.0, used: 1024.0 },
            thresholds: vec![20.0, 75.0],
            ..Scoreboard::default()
        };
        scoreboard.rows[ClientGroup::People as usize] = Row { requests: 1203, costly: 400, ..Row::default() };
        scoreboard.rows[ClientGroup::Impostors as usize] =
            Row { requests: 40, refused: 30, retry_after: Some(34_500), ..Row::default() };
        scoreboard
    }

    #[test]
    fn frame_shows_time_quota_and_group_rows() {
        let rendered = frame(&sample_scoreboard(), 80, ColorMode::Plain);
        let lines: Vec<&str> = rendered.lines().collect();
        assert!(lines[0].starts_with("  14:25  ███"), "{rendered}");
        assert!(
            lines[1].contains("▓") && lines[1].contains("┊") && lines[1].ends_with("1,024 of 2,000 units"),
            "{rendered}"
        );
        assert_eq!(lines[4], "  people             1,203     1,203        0     0.0%   -");
        assert_eq!(lines[8], "  impostors             40        10       30    75.0%   in 9 h 35 min");
        assert_eq!(lines.len(), 9);
    }

    #[test]
    fn frame_fits_the_width_and_respects_color_mode() {
        for width in [40, 60, 80, 200] {
            let rendered = frame(&sample_scoreboard(), width, ColorMode::Plain);
            assert!(rendered.lines().skip(2).all(|line| line.chars().count() <= width), "{width}\n{rendered}");
            assert!(!rendered.contains('\x1b'));
        }
        assert!(frame(&sample_scoreboard(), 80, ColorMode::Color).contains("\x1b[1m14:25\x1b[0m"));
    }

    #[test]
    fn empty_scoreboard_is_rendered() {
        assert!(frame(&Scoreboard::default(), 80, ColorMode::Plain).contains("0 of 0 units"));
        assert!(log_line(&Scoreboard::default()).starts_with("00:00  quota 0/0"));
    }
}
