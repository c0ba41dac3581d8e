//! Windows: when the windows of a quota start and end.

use super::Timestamp;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Succession of a quota's windows.
#[derive(Clone, Debug)]
pub enum Window {
    /// Windows of `length`, aligned to the epoch.
    Fixed {
        /// Length of each window; the settings ensure that it is not zero.
        length: Duration,
    },
    /// Hours, days, weeks or months of a time zone; the calendar defines their length.
    Calendar(Arc<dyn Calendar>),
    /// Windows of `length` that start at the first charge after the end of the previous one.
    FirstUse {
        /// Length of each window; never zero.
        length: Duration,
    },
    /// Sliding windows: at most the limit in any span of `length`.
    ///
    /// Implemented as fixed sub-windows: each also counts the usage of the `sub_windows` before it, which together
    /// cover any span of that length. It errs low by at most one sub-window: usage counts for up to `length` plus one
    /// sub-window.
    Sliding {
        /// Length of the spans that are limited; never zero.
        length: Duration,
        /// Number of sub-windows; never zero.
        sub_windows: u32,
    },
}

/// Civil time, handed in: maps times to calendar spans.
///
/// Spans tile time: they neither overlap nor leave gaps, even across daylight saving changes.
pub trait Calendar: fmt::Debug + Send + Sync {
    /// Returns the span that contains `time`.
    fn span(&self, time: Timestamp) -> Span;

    /// Returns the nominal length of a span, as reported to clients (a day is 24 h even if it has 23 or 25).
    fn nominal_length(&self) -> Duration;

    /// Returns the local second of the week, counted from Monday 00:00.
    fn second_of_week(&self, time: Timestamp) -> u32;

    /// Returns the name of the time zone.
    fn zone(&self) -> &str;
}

/// Record of evicted windows of one quota. A window that may be among them counts as used up, so that a clock set back
/// cannot open it again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvictedWindows {
    /// End of the latest evicted window; windows that start before it may be evicted ones.
    pub latest_end: Timestamp,
    /// Longest evicted window. Windows over twice as long belong to another configuration.
    pub max_length: Duration,
}

/// Time span of a window: from `start` inclusive to `end` exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First moment of the span.
    pub start: Timestamp,
    /// First moment after the span.
    pub end: Timestamp,
}

impl Window {
    /// Returns the window that contains `time`.
    pub fn span(&self, time: Timestamp) -> Span {
        match self {
            Self::Fixed { length } => fixed_span(time, *length),
            Self::Calendar(calendar) => calendar.span(time),
            Self::FirstUse { length } => Span { start: time, end: time + *length },
            Self::Sliding { length, sub_windows } => fixed_span(time, sub_window(*length, *sub_windows)),
        }
    }

    /// Returns the window length if windows open at their first charge; `None` if they open at fixed times.
    pub fn first_use_length(&self) -> Option<Duration> {
        match self {
            Self::FirstUse { length } => Some(*length),
            Self::Fixed { .. } | Self::Calendar(_) | Self::Sliding { .. } => None,
        }
    }

    /// Returns the number of preceding windows that count against a window.
    pub fn lookback(&self) -> u32 {
        match self {
            Self::Sliding { sub_windows, .. } => *sub_windows,
            Self::Fixed { .. } | Self::Calendar(_) | Self::FirstUse { .. } => 0,
        }
    }

    /// Returns the length of sliding windows; `None` for others.
    pub fn sliding_length(&self) -> Option<Duration> {
        match self {
            Self::Sliding { length, .. } => Some(*length),
            _ => None,
        }
    }

    /// Returns true for sliding windows, which have no end at which the whole quota is renewed.
    pub fn is_sliding(&self) -> bool {
        matches!(self, Self::Sliding { .. })
    }

    /// Returns the second of the week, counted from Monday 00:00, in the window's time zone or else in UTC.
    pub fn second_of_week(&self, time: Timestamp) -> u32 {
        match self {
            Self::Calendar(calendar) => calendar.second_of_week(time),
            Self::Fixed { .. } | Self::FirstUse { .. } | Self::Sliding { .. } => {
                // 1970 began on a Thursday.
                ((time.seconds() + 3 * 86_400) % (7 * 86_400)) as u32
            }
        }
    }

    /// Returns the name of the window's time zone, if any.
    pub fn zone(&self) -> Option<&str> {
        match self {
            Self::Calendar(calendar) => Some(calendar.zone()),
            Self::Fixed { .. } | Self::FirstUse { .. } | Self::Sliding { .. } => None,
        }
    }

    /// Returns a length that no window exceeds. Of a calendar, it is a twenty-fourth more than the nominal one: a day has up to 25
    /// hours, and a month up to 31 days.
    pub fn longest(&self) -> Duration {
        match self {
            Self::Fixed { length } | Self::FirstUse { length } | Self::Sliding { length, .. } => *length,
            Self::Calendar(calendar) => calendar.nominal_length() + calendar.nominal_length() / 24,
        }
    }

    /// Returns the nominal window length, as reported to clients.
    pub fn nominal_length(&self) -> Duration {
        match self {
            Self::Fixed { length } | Self::FirstUse { length } | Self::Sliding { length, .. } => *length,
            Self::Calendar(calendar) => calendar.nominal_length(),
        }
    }
}

impl Span {
    /// Returns true if the span contains `time`.
    pub fn contains(&self, time: Timestamp) -> bool {
        self.start <= time && time < self.end
    }

    /// Returns the length of the span.
    pub fn length(&self) -> Duration {
        self.end.saturating_duration_since(self.start)
    }
}

impl EvictedWindows {
    /// Records that `span` was evicted.
    pub fn evict(&mut self, span: Span) {
        self.latest_end = self.latest_end.max(span.end);
        self.max_length = self.max_length.max(span.length());
    }

    /// Returns true if `span` may have been evicted.
    pub fn covers(&self, span: Span) -> bool {
        self.may_contain(span.start, span.length())
    }

    /// Returns true if any of the `lookback` windows before `span`, which count against it, may have been evicted.
    pub fn overlaps(&self, span: Span, lookback: u32) -> bool {
        lookback > 0 && self.may_contain(span.start - span.length().saturating_mul(lookback), span.length())
    }

    fn may_contain(&self, start: Timestamp, length: Duration) -> bool {
        start < self.latest_end && length <= self.max_length * 2
    }
}

/// Returns the epoch-aligned span of `length` that contains `time`.
fn fixed_span(time: Timestamp, length: Duration) -> Span {
    let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX).max(1);
    let start = Timestamp(time.0 - time.0 % length);
    Span { start, end: Timestamp(start.0.saturating_add(length)) }
}

/// Returns the length of a sub-window; `parts` of them are at least `length` long.
fn sub_window(length: Duration, sub_windows: u32) -> Duration {
    let nanoseconds = length.as_nanos().div_ceil(u128::from(sub_windows.max(1)));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn first_use_window_opens_at_the_request() {
        let window = Window::FirstUse { length: Duration::from_secs(60) };
        let span = window.span(Timestamp::from_seconds(77));
        assert_eq!((span.start.seconds(), span.end.seconds()), (77, 137));
        assert_eq!(window.first_use_length(), Some(Duration::from_secs(60)));
    }

    #[test]
    fn evicted_windows_are_known_by_time_and_length() {
        let day = |number: u64| fixed_span(Timestamp::from_seconds(number * 86_400), Duration::from_secs(86_400));
        let mut evicted = EvictedWindows::default();
        assert!(!evicted.covers(day(3)));
        evicted.evict(day(3));
        assert!(evicted.covers(day(3)) && evicted.covers(day(1)));
        assert!(!evicted.covers(day(4)));
        let month = Span { start: day(1).start, end: day(31).start };
        assert!(!evicted.covers(month), "a much longer window was not evicted");
    }

    #[test]
    fn week_begins_on_monday_in_utc() {
        let monday = 4 * 86_400;
        let window = Window::Fixed { length: Duration::from_secs(60) };
        let second = |time| window.second_of_week(Timestamp::from_seconds(time));
        assert_eq!([0, monday - 1, monday, monday + 1].map(second), [3 * 86_400, 7 * 86_400 - 1, 0, 1]);
        assert_eq!(second(monday + 7 * 86_400 + 5), 5);
    }

    #[test]
    fn only_sliding_windows_look_back() {
        let length = Duration::from_secs(60);
        for (window, lookback, first_use) in [
            (Window::Fixed { length }, 0, None),
            (Window::FirstUse { length }, 0, Some(length)),
            (Window::Sliding { length, sub_windows: 6 }, 6, None),
        ] {
            assert_eq!((window.lookback(), window.is_sliding()), (lookback, lookback > 0));
            assert_eq!((window.first_use_length(), window.nominal_length(), window.zone()), (first_use, length, None));
        }
    }

    /// Calendar of days that begin at noon.
    #[derive(Debug)]
    struct Noons;

    impl Calendar for Noons {
        fn span(&self, time: Timestamp) -> Span {
            let Span { start, end } = fixed_span(time, self.nominal_length());
            Span { start: start + self.nominal_length() / 2, end: end + self.nominal_length() / 2 }
        }

        fn nominal_length(&self) -> Duration {
            Duration::from_secs(86_400)
        }

        fn second_of_week(&self, time: Timestamp) -> u32 {
            time.seconds() as u32 + 7
        }

        fn zone(&self) -> &str {
            "Noon"
        }
    }

    #[test]
    fn calendar_defines_span_length_week_and_zone() {
        let window = Window::Calendar(Arc::new(Noons));
        let time = Timestamp::from_seconds(50);
        assert_eq!((window.span(time).start.seconds(), window.span(time).end.seconds()), (43_200, 129_600));
        assert_eq!((window.second_of_week(time), window.zone()), (57, Some("Noon")));
        assert_eq!((window.nominal_length(), window.first_use_length()), (Noons.nominal_length(), None));
        assert_eq!((window.lookback(), window.is_sliding()), (0, false));
    }

    #[test]
    fn span_holds_its_start_and_not_its_end() {
        let span = Span { start: Timestamp(10), end: Timestamp(20) };
        assert_eq!([9, 10, 19, 20].map(|time| span.contains(Timestamp(time))), [false, true, true, false]);
        assert_eq!(span.length(), Duration::from_nanos(10));
    }

    #[test]
    fn evicted_windows_overlap_those_that_look_back_on_them() {
        let hour = |number: u64| fixed_span(Timestamp::from_seconds(number * 3600), Duration::from_secs(3600));
        let mut evicted = EvictedWindows::default();
        evicted.evict(hour(3));
        evicted.evict(hour(1));
        assert_eq!([3, 4].map(|number| evicted.covers(hour(number))), [true, false]);
        let overlaps = [(3, 0), (4, 1), (5, 1), (5, 2), (8, 4), (8, 5)];
        let expected = [false, true, false, true, false, true];
        assert_eq!(overlaps.map(|(number, lookback)| evicted.overlaps(hour(number), lookback)), expected);
        let long = |hours: u64| Span { start: hour(0).start, end: hour(hours).start };
        assert_eq!([2, 3].map(|hours| evicted.covers(long(hours))), [true, false], "at most twice as long");
    }

    proptest! {
        #[test]
        fn sliding_window_parts_cover_any_span(
            length in 1u64..100_000_000_000, parts in 1u32..100, time in 0u64..10_000_000_000_000,
        ) {
            let window = Window::Sliding { length: Duration::from_nanos(length), sub_windows: parts };
            let span = window.span(Timestamp(time));
            let covered = span.start.0.saturating_sub(u64::from(window.lookback()) * (span.end.0 - span.start.0));
            prop_assert!(span.contains(Timestamp(time)));
            prop_assert!(covered == 0 || time - covered >= length);
            let excess = time.saturating_sub(length).saturating_sub(covered);
            prop_assert!(covered == 0 || excess <= (span.end.0 - span.start.0) + u64::from(parts));
        }
    }
}
