//! The axis of time, in UTC.

use crate::replay::report::Report;

/// From when to when a chart goes, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: i64,
    pub(super) to: i64,
}

/// A mark on the axis.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) at: i64,
    pub(super) label: String,
    /// Whether there is room for it on a phone, too.
    pub(super) is_coarse: bool,
}

/// Seconds since 1970 of a time of the report.
pub(super) fn seconds(time: &str) -> i64 {
    time.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_second)
}

/// `4 Sep 06:00`
pub(super) fn moment(seconds: i64) -> String {
    format(seconds, "%-d %b %H:%M")
}

/// How long a step of a chart is.
pub(super) fn length(seconds: i64) -> String {
    match (seconds / DAY, seconds / HOUR) {
        (0, 1) => "an hour".into(),
        (0, hours) => format!("{hours} hours"),
        (1, _) => "a day".into(),
        (days, _) => format!("{days} days"),
    }
}

impl Span {
    /// The hours of a report, whole.
    pub(super) fn of(report: &Report) -> Self {
        let [first, last] = [&report.log.first, &report.log.last].map(|time| time.as_deref().map_or(0, seconds));
        Self { from: first.div_euclid(HOUR) * HOUR, to: (last.div_euclid(HOUR) + 1) * HOUR }
    }

    pub(super) const fn seconds(self) -> i64 {
        self.to - self.from
    }

    /// Where a moment lies, from 0 to 1.
    pub(super) fn place(self, at: i64) -> f64 {
        (at - self.from) as f64 / self.seconds().max(1) as f64
    }

    pub(super) fn holds(self, at: i64) -> bool {
        (self.from..=self.to).contains(&at)
    }

    /// How long a bar may stand for, so that there are no more than `most`.
    pub(super) fn step(self, most: i64) -> i64 {
        let fits = |step: &&i64| self.seconds() <= **step * HOUR * most;
        STEPS.iter().find(fits).unwrap_or(&STEPS[STEPS.len() - 1]) * HOUR
    }

    /// The marks of its axis.
    pub(super) fn marks(self) -> Vec<Mark> {
        let fine = self.step(MOST_MARKS);
        // Of several fine ones; below a day only what divides it.
        let is_coarse = |step: &i64| self.seconds() / step < MOST_ON_PHONE && (DAY % step == 0 || step % DAY == 0);
        let coarse = (1..=MOST_MARKS).map(|several| several * fine).find(is_coarse).unwrap_or(fine * MOST_MARKS);
        let first = self.from.div_euclid(fine) + i64::from(self.from.rem_euclid(fine) > 0);
        let mark = |at: i64| {
            let is_day = at.rem_euclid(DAY) == 0;
            let label = format(at, if is_day { "%-d %b" } else { "%H:%M" });
            Mark { at, label, is_coarse: at.rem_euclid(coarse) == 0 }
        };
        (first..).map(|step| step * fine).take_while(|&at| at <= self.to).map(mark).collect()
    }
}

fn format(seconds: i64, form: &str) -> String {
    let moment = jiff::Timestamp::from_second(seconds).unwrap_or_default();
    moment.to_zoned(jiff::tz::TimeZone::UTC).strftime(form).to_string()
}

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// Steps that people think in, in hours: up to a day, weeks, and half years of weeks.
const STEPS: [i64; 15] = [1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 672, 1344, 2688, 4368, 8736];

/// Marks on a wide screen ...
const MOST_MARKS: i64 = 12;

/// ... and on a narrow one.
const MOST_ON_PHONE: i64 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_day_has_a_mark_every_two_hours_and_every_six_on_a_phone() {
        let day = Span { from: 1_717_718_400, to: 1_717_718_400 + DAY };
        let marks = day.marks();
        let labels: Vec<&str> = marks.iter().map(|mark| mark.label.as_str()).collect();
        assert_eq!(labels[..3], ["7 Jun", "02:00", "04:00"]);
        let coarse: Vec<&str> = marks.iter().filter(|mark| mark.is_coarse).map(|mark| mark.label.as_str()).collect();
        assert_eq!(coarse, ["7 Jun", "06:00", "12:00", "18:00", "8 Jun"]);
    }

    proptest! {
        #[test]
        fn marks_are_few_however_long_it_is(from in 0..500_000_i64, hours in 1..17_568_i64) {
            let span = Span { from: from * HOUR, to: (from + hours) * HOUR };
            let marks = span.marks();
            prop_assert!(marks.len() <= 14, "{}", marks.len());
            let on_phone = marks.iter().filter(|mark| mark.is_coarse).count();
            prop_assert!(on_phone <= 6 && (on_phone > 0 || hours < 24), "{on_phone} of {}", marks.len());
            prop_assert!(marks.iter().all(|mark| span.holds(mark.at)));
        }
    }
}
