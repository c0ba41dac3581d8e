//! Calendar windows in a time zone: hours, days, weeks and months, correct across daylight saving.
//!
//! A window begins when the zone's clocks show the reset time. If they skip it, the window begins at the end of the
//! gap; if they show it twice, at the first time. The zone database is part of the binary, so that a log replayed on
//! another machine has the same windows.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, ToSpan as _};
use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt;
use std::time::Duration;
use tidegate_policy::Timestamp;
use tidegate_policy::window::{Calendar, Span};

/// Length of a calendar window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CalendarUnit {
    /// An hour, aligned to the minutes of the zone's clocks. Never longer: an hour that occurs twice is two windows.
    Hour,
    /// A day; two days a year have 23 or 25 hours.
    Day,
    /// A week that begins on Monday.
    Week,
    /// A month that begins on its first day.
    Month,
}

/// The calendar of one zone, divided into windows.
#[derive(Clone)]
pub struct CivilCalendar {
    unit: CalendarUnit,
    zone: TimeZone,
    reset_time: Time,
}

/// Error: the zone database has no zone of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownZone;

/// Returns true if the zone database has a zone of this name.
pub fn is_zone(name: &str) -> bool {
    TimeZoneDatabase::bundled().get(name).is_ok()
}

impl CivilCalendar {
    /// Returns windows of `unit` in the IANA `zone`, each beginning at the given time of day (hours: at its minutes).
    pub fn new(unit: CalendarUnit, zone: &str, reset_time: Time) -> Result<Self, UnknownZone> {
        let zone = TimeZoneDatabase::bundled().get(zone).map_err(|_| UnknownZone)?;
        Ok(Self { unit, zone, reset_time })
    }

    fn span_at(&self, time: jiff::Timestamp) -> (jiff::Timestamp, jiff::Timestamp) {
        if self.unit == CalendarUnit::Hour {
            return self.hour(time);
        }
        let today = self.zone.to_datetime(time).date();
        let mut first = self.first_day(today);
        while self.reset_instant(first) > time {
            first = self.first_day(first.saturating_sub(1.day()));
        }
        loop {
            let next = self.next_start_day(first);
            if next == first {
                return (self.reset_instant(first), jiff::Timestamp::MAX);
            }
            if time < self.reset_instant(next) {
                return (self.reset_instant(first), self.reset_instant(next));
            }
            first = next;
        }
    }

    /// Returns the day on which the window of `date` begins.
    fn first_day(&self, date: Date) -> Date {
        match self.unit {
            CalendarUnit::Hour | CalendarUnit::Day => date,
            CalendarUnit::Week => date.saturating_sub(i32::from(date.weekday().to_monday_zero_offset()).days()),
            CalendarUnit::Month => date.first_of_month(),
        }
    }

    fn next_start_day(&self, first: Date) -> Date {
        match self.unit {
            CalendarUnit::Hour | CalendarUnit::Day => first.saturating_add(1.day()),
            CalendarUnit::Week => first.saturating_add(1.week()),
            CalendarUnit::Month => first.saturating_add(1.month()),
        }
    }

    /// Returns the first instant of `date` at or after the reset time.
    fn reset_instant(&self, date: Date) -> jiff::Timestamp {
        let local = date.to_datetime(self.reset_time);
        match self.zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => instant_at_offset(local, offset),
            AmbiguousOffset::Fold { before, .. } => instant_at_offset(local, before),
            AmbiguousOffset::Gap { after, .. } => {
                let just_before = instant_at_offset(local, after);
                self.zone.following(just_before).next().map_or(just_before, |transition| transition.timestamp())
            }
        }
    }

    /// Returns the hour that contains `time`. Some zones change by half hours; such a change cuts the current hour.
    fn hour(&self, time: jiff::Timestamp) -> (jiff::Timestamp, jiff::Timestamp) {
        const HOUR: i64 = 3600;
        let offset = |time| i64::from(self.zone.to_offset(time).seconds());
        let minutes = i64::from(self.reset_time.minute()) * 60;
        let current_offset = offset(time);
        let start = time.as_second() - (time.as_second() + current_offset - minutes).rem_euclid(HOUR);
        let splits_hour = |transition: jiff::Timestamp| {
            let before = transition.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(transition);
            (offset(transition) - offset(before)).rem_euclid(HOUR) != 0
        };
        let just_after = time.checked_add(SignedDuration::from_nanos(1)).unwrap_or(time);
        let last_cut = self
            .zone
            .preceding(just_after)
            .map(|transition| transition.timestamp())
            .take_while(|transition| transition.as_second() > start)
            .find(|&transition| splits_hour(transition));
        let next_cut = self
            .zone
            .following(time)
            .map(|transition| transition.timestamp())
            .take_while(|transition| transition.as_second() < start + HOUR)
            .find(|&transition| splits_hour(transition));
        let second = |second| jiff::Timestamp::from_second(second).unwrap_or(jiff::Timestamp::MAX);
        (last_cut.unwrap_or_else(|| second(start)), next_cut.unwrap_or_else(|| second(start + HOUR)))
    }
}

impl Calendar for CivilCalendar {
    fn span(&self, time: Timestamp) -> Span {
        let time = jiff::Timestamp::from_nanosecond(i128::from(time.0)).unwrap_or(jiff::Timestamp::MAX);
        let (start, end) = self.span_at(time);
        Span { start: timestamp(start), end: timestamp(end) }
    }

    fn nominal_length(&self) -> Duration {
        const DAY: u64 = 24 * 60 * 60;
        Duration::from_secs(match self.unit {
            CalendarUnit::Hour => 60 * 60,
            CalendarUnit::Day => DAY,
            CalendarUnit::Week => 7 * DAY,
            CalendarUnit::Month => 30 * DAY,
        })
    }

    fn second_of_week(&self, time: Timestamp) -> u32 {
        let time = jiff::Timestamp::from_nanosecond(i128::from(time.0)).unwrap_or(jiff::Timestamp::MAX);
        let local = self.zone.to_datetime(time);
        let days = u32::from(local.weekday().to_monday_zero_offset().unsigned_abs());
        let of_day = i32::from(local.hour()) * 3600 + i32::from(local.minute()) * 60 + i32::from(local.second());
        days * 86_400 + of_day.unsigned_abs()
    }

    fn zone(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }
}

impl fmt::Debug for CivilCalendar {
    /// Writes a description for summaries: `day of America/Los_Angeles, from 00:00`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            CalendarUnit::Hour => "hour",
            CalendarUnit::Day => "day",
            CalendarUnit::Week => "week",
            CalendarUnit::Month => "month",
        };
        write!(
            out,
            "{unit} of {}, from {:02}:{:02}",
            Calendar::zone(self),
            self.reset_time.hour(),
            self.reset_time.minute()
        )
    }
}

fn instant_at_offset(local: DateTime, offset: jiff::tz::Offset) -> jiff::Timestamp {
    offset.to_timestamp(local).unwrap_or(if local.year() > 0 { jiff::Timestamp::MAX } else { jiff::Timestamp::MIN })
}

/// Converts a time; a time before 1970 becomes the epoch, a time out of range becomes the maximum.
/// Returns the start of a day such as `2027-01-01` in UTC; `None` for another text, and for days before 1970.
pub(crate) fn start_of_day(day: &str) -> Option<Timestamp> {
    let start = TimeZone::UTC.to_timestamp(day.parse::<Date>().ok()?.to_datetime(Time::midnight())).ok()?;
    (start >= jiff::Timestamp::UNIX_EPOCH && day.len() == "2027-01-01".len()).then(|| timestamp(start))
}

fn timestamp(time: jiff::Timestamp) -> Timestamp {
    let nanoseconds = time.as_nanosecond().max(0);
    Timestamp(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
