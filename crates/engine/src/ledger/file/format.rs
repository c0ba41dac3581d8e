//! Format of the ledger files: compact JSON that a person can read if necessary.

use crate::ledger::lease_table::{Holder, Holding, LeaseTable, LeasedWindow, PREVIOUS_INCARNATIONS, QuotaWindows};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use tidegate_policy::window::{EvictedWindows, Span};
use tidegate_policy::{Timestamp, Units};

/// Record of the ledger file: durable leases by quota, window and holder.
#[derive(Serialize, Deserialize)]
pub(in crate::ledger) struct LedgerRecord {
    /// Number of starts on this file, which identifies the incarnation.
    #[serde(rename = "life")]
    pub(in crate::ledger) incarnation: u64,
    quotas: BTreeMap<String, QuotaRecord>,
}

#[derive(Serialize, Deserialize)]
struct QuotaRecord {
    /// Evicted windows, in nanoseconds: they start before the first value and are about as long as the second.
    #[serde(rename = "forgotten")]
    evicted: (u64, u64),
    windows: BTreeMap<u64, WindowRecord>,
}

#[derive(Serialize, Deserialize)]
struct WindowRecord {
    /// Start and end, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    span: Option<(u64, u64)>,
    /// Held and taken units by holder, in milli-units.
    holdings: BTreeMap<Holder, (u64, u64)>,
}

/// Record of the journal: upper bounds of the usage by this incarnation. A kill of the process does not undo it; a
/// power cut may.
#[derive(Serialize, Deserialize, Default)]
pub(in crate::ledger) struct JournalRecord {
    #[serde(rename = "life")]
    pub(in crate::ledger) incarnation: u64,
    /// Id of the boot. After another boot, writes to this file may be lost.
    pub(in crate::ledger) boot: String,
    /// Highest number of the ledger record that the marks are valid for.
    pub(in crate::ledger) number: u64,
    marks: Vec<(String, u64, u64, u64)>,
}

/// Units taken of a window, and an upper bound of those taken until a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ledger) struct JournalMark {
    pub(in crate::ledger) max_taken: Units,
    pub(in crate::ledger) taken: Units,
}

pub(in crate::ledger) type JournalMarks = BTreeMap<(String, u64), JournalMark>;

impl LedgerRecord {
    pub(in crate::ledger) fn new(incarnation: u64, table: &LeaseTable) -> Self {
        let quotas = table.quotas.iter().map(|(name, quota)| (name.clone(), QuotaRecord::from_windows(quota)));
        Self { incarnation, quotas: quotas.collect() }
    }

    pub(in crate::ledger) fn into_table(self) -> LeaseTable {
        let quotas = self.quotas.into_iter().map(|(name, quota)| (name, quota.into_windows()));
        LeaseTable { quotas: quotas.collect() }
    }
}

impl QuotaRecord {
    fn from_windows(quota: &QuotaWindows) -> Self {
        let EvictedWindows { latest_end: before, max_length: longest } = quota.evicted;
        let windows = quota.windows.iter().map(|(&id, window)| {
            let span = window.span.map(|span| (span.start.0, span.end.0));
            // Omit previous incarnations without units.
            let is_stored =
                |(holder, holding): &(&Holder, &Holding)| **holder != PREVIOUS_INCARNATIONS || !holding.held.is_zero();
            let holdings = window.holdings.iter().filter(is_stored);
            let milli =
                |(&holder, &Holding { held, taken }): (&Holder, &Holding)| (holder, (held.milli(), taken.milli()));
            (id, WindowRecord { span, holdings: holdings.map(milli).collect() })
        });
        let longest = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        Self { evicted: (before.0, longest), windows: windows.collect() }
    }

    fn into_windows(self) -> QuotaWindows {
        let (before, longest) = self.evicted;
        let windows = self.windows.into_iter().map(|(id, window)| {
            let span = window.span.map(|(start, end)| Span { start: Timestamp(start), end: Timestamp(end) });
            let units = |(held, taken)| Holding { held: Units::from_milli(held), taken: Units::from_milli(taken) };
            let holdings = window.holdings.into_iter().map(|(holder, holding)| (holder, units(holding)));
            (id, LeasedWindow { span, holdings: holdings.collect() })
        });
        let evicted = EvictedWindows { latest_end: Timestamp(before), max_length: Duration::from_nanos(longest) };
        QuotaWindows { windows: windows.collect(), evicted }
    }
}

impl JournalRecord {
    pub(in crate::ledger) fn new(incarnation: u64, boot: &str, number: u64, marks: &JournalMarks) -> Self {
        let row = |((quota, id), mark): (&(String, u64), &JournalMark)| {
            (quota.clone(), *id, mark.max_taken.milli(), mark.taken.milli())
        };
        Self { incarnation, boot: boot.to_owned(), number, marks: marks.iter().map(row).collect() }
    }

    pub(in crate::ledger) fn into_marks(self) -> JournalMarks {
        let mark = |(quota, id, max_taken, taken)| {
            ((quota, id), JournalMark { max_taken: Units::from_milli(max_taken), taken: Units::from_milli(taken) })
        };
        self.marks.into_iter().map(mark).collect()
    }
}
