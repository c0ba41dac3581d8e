//! Time axis, in the display zone of the report.

use crate::display_zone::{DisplayZone, seconds};
use crate::report::Report;
use tidegate_policy::Timestamp;

/// Time range of a chart, in seconds since 1970.
#[derive(Clone, Copy)]
pub(super) struct TimeAxis<'a> {
    pub(super) from: i64,
    pub(super) to: i64,
    zone: &'a DisplayZone,
}

/// A mark on the axis.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tick {
    pub(super) at: i64,
    pub(super) label: String,
    /// True if the mark is also shown on a narrow screen.
    pub(super) is_coarse: bool,
}

/// Formats the length of a step, such as `2 hours`.
pub(super) fn format_length(seconds: i64) -> String {
    match (seconds / DAY, seconds / HOUR) {
        (0, 1) => "an hour".into(),
        (0, hours) => format!("{hours} hours"),
        (1, _) => "a day".into(),
        (days, _) => format!("{days} days"),
    }
}

impl<'a> TimeAxis<'a> {
    /// Creates the axis from the first request of a log to the end of its last hour.
    pub(super) fn from_report(report: &Report, zone: &'a DisplayZone) -> Self {
        let [first, last] = [report.log.first, report.log.last].map(seconds);
        Self { from: first, to: (last.div_euclid(HOUR) + 1) * HOUR, zone }
    }

    pub(super) const fn seconds(self) -> i64 {
        self.to - self.from
    }

    /// Returns the position of a time, from 0 to 1.
    pub(super) fn position(self, at: i64) -> f64 {
        (at.clamp(self.from, self.to) - self.from) as f64 / self.seconds().max(1) as f64
    }

    /// Returns true if the span from `start` to `end` overlaps the axis.
    pub(super) fn overlaps(self, start: i64, end: i64) -> bool {
        start <= self.to && end >= self.from
    }

    /// Formats a time like `4 Sep 06:00`.
    pub(super) fn format_seconds(self, at: i64) -> String {
        self.zone.format(at, "%-d %b %H:%M")
    }

    /// Formats a time of the report like `4 Sep 06:00`.
    pub(super) fn format_time(self, time: Timestamp) -> String {
        self.format_seconds(seconds(time))
    }

    /// Returns the shortest step, in seconds, with at most `max_steps` steps on the axis.
    pub(super) fn step(self, max_steps: i64) -> i64 {
        let fits = |step: &&i64| self.seconds() <= **step * HOUR * max_steps;
        STEPS.iter().find(fits).unwrap_or(&STEPS[STEPS.len() - 1]) * HOUR
    }

    /// Returns the start and end of the step that contains an hour. A step of one hour starts with the counted hour,
    /// because in some zones hours begin at another minute.
    pub(super) fn tick_span(self, at: i64, length: i64) -> [i64; 2] {
        if length <= HOUR {
            return [at, at + length];
        }
        let local = self.zone.local_seconds(at).div_euclid(length) * length;
        [local, local + length].map(|local| self.zone.utc_seconds(local))
    }

    /// Returns the marks of the axis.
    pub(super) fn ticks(self) -> Vec<Tick> {
        let fine = self.step(MAX_TICKS);
        // A multiple of the fine step; below a day only divisors of a day.
        let is_coarse = |step: &i64| self.seconds() / step < MAX_TICKS_NARROW && (DAY % step == 0 || step % DAY == 0);
        let coarse = (1..=MAX_TICKS).map(|multiple| multiple * fine).find(is_coarse).unwrap_or(fine * MAX_TICKS);
        let first = self.zone.local_seconds(self.from).div_euclid(fine);
        let mark = |local: i64| {
            let is_day = local.rem_euclid(DAY) == 0;
            let at = self.zone.utc_seconds(local);
            let label = self.zone.format(at, if is_day { "%-d %b" } else { "%H:%M" });
            Tick { at, label, is_coarse: local.rem_euclid(coarse) == 0 }
        };
        let marks = (first..)
            .map(|step| mark(step * fine))
            .skip_while(|mark| mark.at < self.from - self.seconds() / EDGE_TOLERANCE);
        marks.take_while(|mark| mark.at <= self.to).collect()
    }
}

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// Usual step lengths in hours: up to a day, weeks, and half years of weeks.
const STEPS: [i64; 15] = [1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 672, 1344, 2688, 4368, 8736];

/// A mark outside by less than this fraction of the axis is shown at its edge: logs begin a few seconds after midnight.
const EDGE_TOLERANCE: i64 = 300;

/// Maximum number of marks on a wide screen.
const MAX_TICKS: i64 = 12;

/// Maximum number of marks on a narrow screen.
const MAX_TICKS_NARROW: i64 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn day_axis_marks_every_two_or_six_hours() {
        let axis = TimeAxis { from: 1_717_718_400, to: 1_717_718_400 + DAY, zone: &DisplayZone::default() };
        let marks = axis.ticks();
        let labels: Vec<&str> = marks.iter().map(|mark| mark.label.as_str()).collect();
        assert_eq!(labels[..3], ["7 Jun", "02:00", "04:00"]);
        let coarse: Vec<&str> = marks.iter().filter(|mark| mark.is_coarse).map(|mark| mark.label.as_str()).collect();
        assert_eq!(coarse, ["7 Jun", "06:00", "12:00", "18:00", "8 Jun"]);
    }

    #[test]
    fn days_begin_at_local_midnight_of_the_zone() {
        let zone = DisplayZone::from_name("America/Los_Angeles");
        // The day on which daylight saving time begins, and the day after.
        let axis = TimeAxis { from: 1_710_057_600, to: 1_710_057_600 + 2 * DAY, zone: &zone };
        let days: Vec<(i64, String)> = axis
            .ticks()
            .into_iter()
            .filter(|mark| mark.label.contains(' '))
            .map(|mark| (mark.at, mark.label))
            .collect();
        assert_eq!(days[..2], [(1_710_057_600, "10 Mar".into()), (1_710_057_600 + 23 * HOUR, "11 Mar".into())]);
        assert_eq!(axis.tick_span(1_710_057_600 + HOUR, 12 * HOUR), [1_710_057_600, 1_710_057_600 + 11 * HOUR]);
    }

    proptest! {
        #[test]
        fn mark_count_is_bounded_for_any_span(from in 0..500_000_i64, hours in 1..17_568_i64) {
            let zone = DisplayZone::from_name("Asia/Kolkata");
            let axis = TimeAxis { from: from * HOUR, to: (from + hours) * HOUR, zone: &zone };
            let marks = axis.ticks();
            prop_assert!(marks.len() <= 14, "{}", marks.len());
            let coarse_count = marks.iter().filter(|mark| mark.is_coarse).count();
            prop_assert!(coarse_count <= 6 && (coarse_count > 0 || hours < 24), "{coarse_count} of {}", marks.len());
            let from = axis.from - axis.seconds() / EDGE_TOLERANCE;
            prop_assert!(marks.iter().all(|mark| (from..=axis.to).contains(&mark.at)));
        }
    }
}
