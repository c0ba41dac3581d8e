//! Time range of a log, and the time zone of its clock.

use jiff::tz::Offset;
use std::collections::BTreeMap;
use tidegate_policy::Timestamp;

/// Time range and clock offsets of a log.
#[derive(Default)]
pub(super) struct LogTimeRange {
    offset_counts: BTreeMap<i64, u64>,
    span: Option<(Timestamp, Timestamp)>,
}

/// A time zone that matches the clock of the log.
#[derive(Debug)]
pub(super) struct Zone {
    pub(super) name: String,
    /// Remark on the choice, for a comment.
    pub(super) remark: String,
}

impl LogTimeRange {
    /// Records the time of a request, and the offset of its clock in seconds east of UTC.
    pub(super) fn record(&mut self, at: Timestamp, utc_offset: i64) {
        let (first, last) = self.span.unwrap_or((at, at));
        self.span = Some((first.min(at), last.max(at)));
        if self.offset_counts.len() < MAX_OFFSETS || self.offset_counts.contains_key(&utc_offset) {
            *self.offset_counts.entry(utc_offset).or_default() += 1;
        }
    }

    /// Returns the first and last time, in the log's own clock.
    pub(super) fn span(&self) -> Option<[String; 2]> {
        let (first, last) = self.span?;
        Some([first, last].map(|at| self.civil(at).strftime("%-d %b %Y %H:%M").to_string()))
    }

    /// Returns true if the log covers less than a day.
    pub(super) fn is_less_than_a_day(&self) -> bool {
        self.covered_seconds() < DAY - ROTATION_SLACK_S
    }

    /// Returns the covered hours, rounded up, at least 1, because a shorter time says little about a day.
    pub(super) fn hours(&self) -> u64 {
        self.covered_seconds().div_ceil(3600).max(1)
    }

    /// Extrapolates an amount of the covered hours to a day.
    pub(super) fn per_day(&self, amount: u64) -> u64 {
        (amount * 24).div_ceil(self.hours())
    }

    fn covered_seconds(&self) -> u64 {
        self.span.map_or(0, |(first, last)| last.saturating_duration_since(first).as_secs())
    }

    /// Returns the zone of the most frequent clock offset.
    pub(super) fn zone(&self) -> Zone {
        let most_common =
            self.offset_counts.iter().max_by_key(|(utc_offset, count)| (**count, std::cmp::Reverse(**utc_offset)));
        let utc_offset = most_common.map_or(0, |(utc_offset, _)| *utc_offset);
        let clock_remark = format!("the log's clock shows {}", format_offset(utc_offset));
        let (name, remark) = match (utc_offset, utc_offset % 3600, self.offset_counts.len()) {
            (0, ..) => ("UTC".to_owned(), clock_remark),
            // POSIX counts these offsets to the west.
            (_, 0, _) if (-12..=14).contains(&(utc_offset / 3600)) => {
                let name = format!("Etc/GMT{:+}", -utc_offset / 3600);
                let remark = format!("{clock_remark}, which is {name} (POSIX inverts the sign)");
                (name, remark)
            }
            _ => match FRACTIONAL_OFFSET_ZONES.iter().find(|(seconds, _)| *seconds == utc_offset) {
                Some((_, name)) => ((*name).to_owned(), clock_remark),
                None => ("UTC".to_owned(), format!("{clock_remark}, which matches no zone")),
            },
        };
        let remark = match self.offset_counts.len() {
            0 | 1 => remark,
            _ => format!("{remark} most of the time, but it changes; set your zone"),
        };
        Zone { name, remark }
    }

    fn civil(&self, at: Timestamp) -> jiff::civil::DateTime {
        let utc_offset =
            self.offset_counts.iter().max_by_key(|(_, count)| **count).map_or(0, |(utc_offset, _)| *utc_offset);
        let offset = Offset::from_seconds(utc_offset as i32).unwrap_or(Offset::UTC);
        let timestamp = jiff::Timestamp::from_second(at.seconds() as i64).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        offset.to_datetime(timestamp)
    }
}

fn format_offset(utc_offset: i64) -> String {
    let sign = if utc_offset < 0 { '-' } else { '+' };
    format!("{sign}{:02}{:02}", utc_offset.abs() / 3600, utc_offset.abs() % 3600 / 60)
}

const DAY: u64 = 86_400;

/// Tolerance at both ends of a window, in seconds: a log that is rotated daily rarely begins exactly at midnight.
const ROTATION_SLACK_S: u64 = 2 * 3600;

/// Maximum number of distinct clock offsets; real logs have few.
const MAX_OFFSETS: usize = 64;

/// Zones with an offset that is not a full hour and without daylight saving time, by offset in seconds.
const FRACTIONAL_OFFSET_ZONES: [(i64, &str); 8] = [
    (-34_200, "Pacific/Marquesas"),
    (12_600, "Asia/Tehran"),
    (16_200, "Asia/Kabul"),
    (19_800, "Asia/Kolkata"),
    (20_700, "Asia/Kathmandu"),
    (23_400, "Asia/Yangon"),
    (31_500, "Australia/Eucla"),
    (34_200, "Australia/Darwin"),
];
