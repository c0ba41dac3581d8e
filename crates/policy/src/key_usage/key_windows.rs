//! Windows in which the usage of each key is counted.

use crate::Timestamp;
use crate::window::Span;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Windows of the keys of a quota. Usage is counted in one table for each window of the quota, part of a sliding window, or span in
/// which windows of keys begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyWindows {
    /// Those of the quota, in which all keys begin anew together.
    #[default]
    OfQuota,
    /// Sliding windows of [`PARTS`] parts: what a key has used in the parts before the current one counts, too.
    Sliding {
        /// Length of a part; never zero.
        part: Duration,
    },
    /// Windows that each key opens by its first charge.
    FirstUse {
        /// Length of each window; never zero.
        length: Duration,
    },
}

/// Number of parts of a sliding window of keys. A key errs low by at most one part.
pub const PARTS: u32 = 12;

impl KeyWindows {
    /// Returns sliding windows: at most the limit in any span of `length`.
    pub fn sliding(length: Duration) -> Self {
        let part = length.as_nanos().div_ceil(u128::from(PARTS));
        Self::Sliding { part: Duration::from_nanos(u64::try_from(part).unwrap_or(u64::MAX).max(1)) }
    }

    /// Returns the moment by which a charge at `now` is counted: the id of the quota's window `id`, or `now` itself.
    pub fn moment(self, id: u64, now: Timestamp) -> u64 {
        match self {
            Self::OfQuota => id,
            Self::Sliding { .. } | Self::FirstUse { .. } => now.0,
        }
    }

    /// Returns the number of tables: those that count at one time, and one more, so that a clock that runs ahead and is set back
    /// finds them unchanged.
    pub fn tables(self) -> usize {
        match self {
            Self::OfQuota => 2,
            Self::Sliding { .. } => PARTS as usize + 2,
            Self::FirstUse { .. } => 3,
        }
    }

    /// Returns the span of a window that `moment` is the id of; `None` for windows of the quota.
    pub fn span(self, moment: u64) -> Option<Span> {
        let start = match self {
            Self::OfQuota => return None,
            Self::Sliding { .. } => self.table(moment),
            Self::FirstUse { .. } => moment,
        };
        Some(Span { start: Timestamp(start), end: Timestamp(start.saturating_add(self.spacing())) })
    }

    /// Returns the span of the table that counts what is used at `now`, in the window `of_quota` of the quota.
    pub fn table_span(self, of_quota: Span, now: Timestamp) -> Span {
        self.span(self.table(now.0)).unwrap_or(of_quota)
    }

    /// Returns the ids of the tables before `table` whose usage may count in it, earliest first.
    pub fn earlier_tables(self, table: u64) -> impl Iterator<Item = u64> {
        let reach = self.spacing().saturating_mul(self.earlier_count());
        (table.saturating_sub(reach)..table).step_by(usize::try_from(self.spacing()).unwrap_or(usize::MAX))
    }

    /// Returns the time from which on usage of a table does not count any more.
    pub fn counts_until(self, table: Span) -> Timestamp {
        Timestamp(table.end.0.saturating_add(self.spacing().saturating_mul(self.earlier_count())))
    }

    /// Returns the number of tables before one whose usage may count in it.
    fn earlier_count(self) -> u64 {
        match self {
            Self::OfQuota => 0,
            Self::Sliding { .. } => PARTS.into(),
            Self::FirstUse { .. } => 1,
        }
    }

    /// Returns the id of the table that counts what is used at `moment`.
    pub(crate) fn table(self, moment: u64) -> u64 {
        match self {
            Self::OfQuota => moment,
            Self::Sliding { .. } | Self::FirstUse { .. } => moment - moment % self.spacing(),
        }
    }

    /// Returns the ids of the tables whose usage may count in that of `table`. Those after it are of a clock that was set back.
    pub(super) fn reach(self, table: u64) -> RangeInclusive<u64> {
        let reach = self.spacing().saturating_mul(self.earlier_count());
        table.saturating_sub(reach)..=table.saturating_add(reach)
    }

    /// Returns true if usage of the moment `earlier` may count at `moment`.
    pub fn counts_at(self, earlier: u64, moment: u64) -> bool {
        self.reach(self.table(moment)).contains(&self.table(earlier))
    }

    /// Returns the time at which what is counted in `table` of a sliding window has expired.
    pub(crate) fn expiry(self, table: u64) -> Timestamp {
        Timestamp(table.saturating_add(self.spacing().saturating_mul(u64::from(PARTS) + 1)))
    }

    /// Returns true if windows of keys slide.
    pub(crate) fn slides(self) -> bool {
        matches!(self, Self::Sliding { .. })
    }

    /// Returns true if windows of keys begin at their first charge.
    pub(crate) fn open_by_key(self) -> bool {
        matches!(self, Self::FirstUse { .. })
    }

    /// Returns the time between the ids of two tables, in nanoseconds.
    pub fn spacing(self) -> u64 {
        let spacing = match self {
            Self::OfQuota => return 1,
            Self::Sliding { part } => part,
            Self::FirstUse { length } => length,
        };
        u64::try_from(spacing.as_nanos()).unwrap_or(u64::MAX).max(1)
    }
}
