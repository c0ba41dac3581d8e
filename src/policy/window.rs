//! When an allowance begins and ends.

use super::time::Timestamp;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How a quota's windows follow each other.
#[derive(Clone, Debug)]
pub enum Window {
    /// Every `length`, counted from the epoch. Never zero: the settings see to it.
    Fixed {
        /// How long each window lasts.
        length: Duration,
    },
    /// Hours, days, weeks or months of a time zone; how long they are is the calendar's business.
    Calendar(Arc<dyn Calendar>),
    /// Opened by the first charge, then `length` long; the next one is opened by the first charge after its end.
    FirstUse {
        /// How long it lasts once it is open. Never zero.
        length: Duration,
    },
    /// Never more than the limit in any span of `length`.
    ///
    /// A series of fixed parts, each a window of its own, on which the `parts` before it weigh, too: together they cover
    /// any span of that length. So it errs low by at most one part: what was taken weighs for up to `length` and one
    /// part of it more.
    Sliding {
        /// Any span of this length is kept within the limit. Never zero.
        length: Duration,
        /// Into so many parts it is cut. Never zero.
        sub_windows: u32,
    },
}

/// Civil time, handed in: which span of the calendar a moment falls into.
///
/// Spans tile time: they neither overlap nor leave a gap, whatever daylight saving does.
pub trait Calendar: fmt::Debug + Send + Sync {
    /// The span that `moment` falls into.
    fn span(&self, moment: Timestamp) -> Span;

    /// How long a usual span lasts, as told to clients (a day is 24 h even where one has 23 or 25).
    fn nominal_length(&self) -> Duration;

    /// Which second of the week its clocks show, from Monday 00:00 on.
    fn second_of_week(&self, moment: Timestamp) -> u32;

    /// The name of its time zone.
    fn zone(&self) -> &str;
}

/// How much of a series of windows is no longer remembered. A window that may be among them counts as spent: a clock set
/// back must not open it a second time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvictedWindows {
    /// Windows that begin before this moment ...
    pub before: Timestamp,
    /// ... and are not much longer than the longest of the forgotten: others belong to other rules.
    pub longest: Duration,
}

/// One window: from `start` up to, not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first moment that belongs to it.
    pub start: Timestamp,
    /// The first moment that no longer does.
    pub end: Timestamp,
}

impl Window {
    /// The window that `moment` falls into.
    pub fn span(&self, moment: Timestamp) -> Span {
        match self {
            Self::Fixed { length } => fixed_span(moment, *length),
            Self::Calendar(calendar) => calendar.span(moment),
            Self::FirstUse { length } => Span { start: moment, end: moment + *length },
            Self::Sliding { length, sub_windows } => fixed_span(moment, sub_window(*length, *sub_windows)),
        }
    }

    /// How long a window lasts that is opened by its first charge; `None` where the time alone says when one opens.
    pub fn first_use_length(&self) -> Option<Duration> {
        match self {
            Self::FirstUse { length } => Some(*length),
            Self::Fixed { .. } | Self::Calendar(_) | Self::Sliding { .. } => None,
        }
    }

    /// So many windows weigh on the one that follows them.
    pub fn lookback(&self) -> u32 {
        match self {
            Self::Sliding { sub_windows, .. } => *sub_windows,
            Self::Fixed { .. } | Self::Calendar(_) | Self::FirstUse { .. } => 0,
        }
    }

    /// Which second of the week it is, from Monday 00:00 on: by the clocks of its zone, or in UTC where it has none.
    pub fn second_of_week(&self, moment: Timestamp) -> u32 {
        match self {
            Self::Calendar(calendar) => calendar.second_of_week(moment),
            Self::Fixed { .. } | Self::FirstUse { .. } | Self::Sliding { .. } => {
                // 1970 began on a Thursday.
                ((moment.seconds() + 3 * 86_400) % (7 * 86_400)) as u32
            }
        }
    }

    /// The name of the time zone that it goes by, if it does.
    pub fn zone(&self) -> Option<&str> {
        match self {
            Self::Calendar(calendar) => Some(calendar.zone()),
            Self::Fixed { .. } | Self::FirstUse { .. } | Self::Sliding { .. } => None,
        }
    }

    /// How long a usual window lasts, as told to clients.
    pub fn nominal_length(&self) -> Duration {
        match self {
            Self::Fixed { length } | Self::FirstUse { length } | Self::Sliding { length, .. } => *length,
            Self::Calendar(calendar) => calendar.nominal_length(),
        }
    }
}

impl Span {
    /// True when `moment` falls into this window.
    pub fn contains(&self, moment: Timestamp) -> bool {
        self.start <= moment && moment < self.end
    }

    /// How long it lasts.
    pub fn length(&self) -> Duration {
        self.end.saturating_duration_since(self.start)
    }
}

impl EvictedWindows {
    /// Notes that `span` is no longer remembered.
    pub fn evict(&mut self, span: Span) {
        self.before = self.before.max(span.end);
        self.longest = self.longest.max(span.length());
    }

    /// True when `span` may be one of those that are no longer remembered.
    pub fn covers(&self, span: Span) -> bool {
        self.may_contain(span.start, span.length())
    }

    /// True when one of them may be among the `back` windows before `span`, which weigh on it.
    pub fn overlaps(&self, span: Span, back: u32) -> bool {
        back > 0 && self.may_contain(span.start - span.length().saturating_mul(back), span.length())
    }

    fn may_contain(&self, start: Timestamp, length: Duration) -> bool {
        start < self.before && length <= self.longest * 2
    }
}

/// The span of `length`, counted from the epoch, that `moment` falls into.
fn fixed_span(moment: Timestamp, length: Duration) -> Span {
    let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX).max(1);
    let start = Timestamp(moment.0 - moment.0 % length);
    Span { start, end: Timestamp(start.0.saturating_add(length)) }
}

/// One of `parts` that together are at least `length` long.
fn sub_window(length: Duration, sub_windows: u32) -> Duration {
    let nanoseconds = length.as_nanos().div_ceil(u128::from(sub_windows.max(1)));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_first_use_opens_where_it_falls() {
        let window = Window::FirstUse { length: Duration::from_secs(60) };
        let span = window.span(Timestamp::from_seconds(77));
        assert_eq!((span.start.seconds(), span.end.seconds()), (77, 137));
        assert_eq!(window.first_use_length(), Some(Duration::from_secs(60)));
    }

    #[test]
    fn a_forgotten_window_is_known_by_when_it_was_and_how_long() {
        let day = |number: u64| fixed_span(Timestamp::from_seconds(number * 86_400), Duration::from_secs(86_400));
        let mut forgotten = EvictedWindows::default();
        assert!(!forgotten.covers(day(3)));
        forgotten.evict(day(3));
        assert!(forgotten.covers(day(3)) && forgotten.covers(day(1)));
        assert!(!forgotten.covers(day(4)));
        let month = Span { start: day(1).start, end: day(31).start };
        assert!(!forgotten.covers(month), "a window of other rules was never forgotten");
    }

    proptest! {
        #[test]
        fn the_parts_that_weigh_cover_any_span_of_the_length(
            length in 1u64..100_000_000_000, parts in 1u32..100, moment in 0u64..10_000_000_000_000,
        ) {
            let window = Window::Sliding { length: Duration::from_nanos(length), sub_windows: parts };
            let span = window.span(Timestamp(moment));
            let covered = span.start.0.saturating_sub(u64::from(window.lookback()) * (span.end.0 - span.start.0));
            prop_assert!(span.contains(Timestamp(moment)));
            prop_assert!(covered == 0 || moment - covered >= length);
            let errs_low = moment.saturating_sub(length).saturating_sub(covered);
            prop_assert!(covered == 0 || errs_low <= (span.end.0 - span.start.0) + u64::from(parts));
        }
    }
}
