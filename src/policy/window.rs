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
}

/// Civil time, handed in: which span of the calendar a moment falls into.
///
/// Spans tile time: they neither overlap nor leave a gap, whatever daylight saving does.
pub trait Calendar: fmt::Debug + Send + Sync {
    /// The span that `moment` falls into.
    fn span(&self, moment: Timestamp) -> Span;

    /// How long a usual span lasts, as told to clients (a day is 24 h even where one has 23 or 25).
    fn usual_length(&self) -> Duration;
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
            Self::Fixed { length } => {
                let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX).max(1);
                let start = Timestamp(moment.0 - moment.0 % length);
                Span { start, end: Timestamp(start.0.saturating_add(length)) }
            }
            Self::Calendar(calendar) => calendar.span(moment),
        }
    }

    /// How long a usual window lasts, as told to clients.
    pub fn usual_length(&self) -> Duration {
        match self {
            Self::Fixed { length } => *length,
            Self::Calendar(calendar) => calendar.usual_length(),
        }
    }
}

impl Span {
    /// True when `moment` falls into this window.
    pub fn contains(&self, moment: Timestamp) -> bool {
        self.start <= moment && moment < self.end
    }
}
