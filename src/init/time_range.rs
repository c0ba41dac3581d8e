//! When a log was written, and by which clock.

use crate::policy::Timestamp;
use crate::replay::report::WindowReport;
use jiff::tz::Offset;
use std::collections::BTreeMap;

/// The time of a log.
#[derive(Default)]
pub(super) struct LogTimeRange {
    clocks: BTreeMap<i64, u64>,
    span: Option<(Timestamp, Timestamp)>,
}

/// A time zone whose clocks show what the log shows.
#[derive(Debug)]
pub(super) struct Zone {
    pub(super) name: String,
    /// What to know of it.
    pub(super) remark: String,
}

impl LogTimeRange {
    /// Takes a request's time, by a clock so many seconds east of Greenwich.
    pub(super) fn record(&mut self, at: Timestamp, east: i64) {
        let (first, last) = self.span.unwrap_or((at, at));
        self.span = Some((first.min(at), last.max(at)));
        if self.clocks.len() < MAX_OFFSETS || self.clocks.contains_key(&east) {
            *self.clocks.entry(east).or_default() += 1;
        }
    }

    /// From when to when it goes, as the log's own clock shows it.
    pub(super) fn span(&self) -> Option<[String; 2]> {
        let (first, last) = self.span?;
        Some([first, last].map(|at| self.civil(at).strftime("%-d %b %Y %H:%M").to_string()))
    }

    /// True where they are less than one.
    pub(super) fn is_less_than_a_day(&self) -> bool {
        self.covered_seconds() < DAY - ROTATION_SLACK_S
    }

    /// About so many hours, at least one: what is shorter says little of a day.
    pub(super) fn hours(&self) -> u64 {
        self.covered_seconds().div_ceil(3600).max(1)
    }

    /// What a whole day would have, where these hours have so much.
    pub(super) fn per_day(&self, amount: u64) -> u64 {
        (amount * 24).div_ceil(self.hours())
    }

    /// True where a window lies within them.
    pub(super) fn covers(&self, window: &WindowReport) -> bool {
        let second = |text: &str| text.parse().map_or(0, jiff::Timestamp::as_second).unsigned_abs();
        let (start, end) = (second(&window.start), second(&window.end));
        self.span.is_some_and(|(first, last)| {
            first.seconds() <= start + ROTATION_SLACK_S && end <= last.seconds() + ROTATION_SLACK_S
        })
    }

    fn covered_seconds(&self) -> u64 {
        self.span.map_or(0, |(first, last)| last.saturating_duration_since(first).as_secs())
    }

    /// The zone of its clock.
    pub(super) fn zone(&self) -> Zone {
        let most = self.clocks.iter().max_by_key(|(east, count)| (**count, std::cmp::Reverse(**east)));
        let east = most.map_or(0, |(east, _)| *east);
        let written = format!("the log's clock shows {}", offset(east));
        let (name, remark) = match (east, east % 3600, self.clocks.len()) {
            (0, ..) => ("UTC".to_owned(), written),
            // POSIX counts these to the west.
            (_, 0, _) if (-12..=14).contains(&(east / 3600)) => {
                let name = format!("Etc/GMT{:+}", -east / 3600);
                let remark = format!("{written}, and {name} is just that: its sign is the other way round");
                (name, remark)
            }
            _ => match HALF_HOURS.iter().find(|(seconds, _)| *seconds == east) {
                Some((_, name)) => ((*name).to_owned(), written),
                None => ("UTC".to_owned(), format!("{written}, which is no zone's")),
            },
        };
        let remark = match self.clocks.len() {
            0 | 1 => remark,
            _ => format!("{remark} most of the time, but it is set: name your zone"),
        };
        Zone { name, remark }
    }

    fn civil(&self, at: Timestamp) -> jiff::civil::DateTime {
        let most = self.clocks.iter().max_by_key(|(_, count)| **count).map_or(0, |(east, _)| *east);
        let offset = Offset::from_seconds(most as i32).unwrap_or(Offset::UTC);
        let moment = jiff::Timestamp::from_second(at.seconds() as i64).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        offset.to_datetime(moment)
    }
}

fn offset(east: i64) -> String {
    let sign = if east < 0 { '-' } else { '+' };
    format!("{sign}{:02}{:02}", east.abs() / 3600, east.abs() % 3600 / 60)
}

const DAY: u64 = 86_400;

/// A log that is rotated every day seldom begins with a request of its first minutes.
const ROTATION_SLACK_S: u64 = 2 * 3600;

/// More than a server is ever set to.
const MAX_OFFSETS: usize = 64;

/// Zones off the full hour whose clocks are never changed.
const HALF_HOURS: [(i64, &str); 8] = [
    (-34_200, "Pacific/Marquesas"),
    (12_600, "Asia/Tehran"),
    (16_200, "Asia/Kabul"),
    (19_800, "Asia/Kolkata"),
    (20_700, "Asia/Kathmandu"),
    (23_400, "Asia/Yangon"),
    (31_500, "Australia/Eucla"),
    (34_200, "Australia/Darwin"),
];
