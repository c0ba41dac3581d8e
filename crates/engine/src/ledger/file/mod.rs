//! Ledger of one instance, in two files of its state directory.
//!
//! `ledger` records the leased units of each window. It is synced to the disk before any of them are handed out, so no
//! failure of the machine makes the record too low. `journal` records an upper bound of the usage by this incarnation.
//! It is written before units are handed out and never synced, because writes survive the exit of a process. So large
//! leases cost about one sync per second, and small marks within them one write each.
//!
//! After a kill without a reboot, the mark counts as taken. After a power cut, or if the journal is not provably
//! intact, the lease counts. After a clean stop, the exact usage counts.

pub(super) mod dir;
pub(super) mod format;
pub(super) mod open_error;
pub(super) mod record_file;

use super::lease_table::{Holder, Holding, LeaseTable};
use super::store::{Lease, LeaseRequest, Store, StoreError};

use crate::ledger::file::dir::{LockedDir, StateDir};
use crate::ledger::file::format::{JournalMark, JournalMarks, JournalRecord, LedgerRecord};
use crate::ledger::file::open_error::OpenError;
use crate::ledger::file::record_file::{RecordFile, RecordFileError};
use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::io;
use std::path::Path;
use std::time::Duration;
use tidegate_policy::{Timestamp, Units};
use tracing::warn;

const LEDGER: (&str, &[u8; 8]) = ("ledger", b"ledger\0\0");
const JOURNAL: (&str, &[u8; 8]) = ("journal", b"journal\0");

/// Holder id of this incarnation: a ledger file has only one live holder.
const LOCAL_HOLDER: Holder = 1;

/// Maximum number of syncs per second; as many may run at once after an idle second.
const MAX_SYNCS_PER_SECOND: u64 = 20;

/// Maximum delay of changes that need not be durable at once; the next lease includes them, too.
const MAX_UNSYNCED_AGE: Duration = Duration::from_secs(1);

/// Minimum time between two warnings about a failing disk.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// Returns the running time of the process, in monotonic time.
pub type Uptime = Box<dyn Fn() -> Timestamp + Send>;

/// Ledger in a directory.
pub struct FileStore(Inner<LockedDir>);

/// [`FileStore`] for any directory type.
pub(super) struct Inner<F> {
    dir: F,
    ledger: RecordFile,
    journal: Option<RecordFile>,
    incarnation: u64,
    boot: String,
    table: LeaseTable,
    marks: JournalMarks,
    /// Content of the journal, to avoid writing it twice.
    written: Option<(u64, JournalMarks)>,
    lost: BTreeMap<String, Units>,
    uptime: Uptime,
    sync_limiter: SyncLimiter,
    last_warned: Option<Timestamp>,
    /// Error of the last attempt to make leases durable.
    pub(super) last_error: Option<String>,
}

/// Rate limiter for syncs.
#[derive(Default)]
struct SyncLimiter {
    /// Time up to which the sync budget is used. A sync uses its share of a second, starting from the last second.
    used_up_to: Timestamp,
    last: Timestamp,
    count: u64,
}

impl FileStore {
    /// Opens the ledger in `dir` and creates missing files. `boot` identifies the boot of the machine; empty if
    /// unknown. Units held by an earlier incarnation count as taken, as far as they may have been taken.
    pub fn open(dir: &Path, boot: &str, uptime: Uptime, now: Timestamp) -> Result<Self, OpenError> {
        let locked_dir = LockedDir::lock(dir).map_err(|error| OpenError::from_lock_error(error, dir))?;
        Inner::open(locked_dir, boot, uptime, now).map(Self)
    }

    /// Returns the leases in the bytes of a `ledger` file, as [`open`](Self::open) reads them.
    pub fn read_leases(bytes: &[u8]) -> Result<LeaseTable, OpenError> {
        let (_, record) =
            read_ledger(bytes).map_err(|error| OpenError::from_record_error(error, Path::new(LEDGER.0)))?;
        Ok(record.into_table())
    }

    /// Returns the number of syncs for leases.
    pub fn sync_count(&self) -> u64 {
        self.0.sync_limiter.count
    }
}

impl Store for FileStore {
    fn last_error(&self) -> Option<String> {
        self.0.last_error.clone()
    }

    fn lease(
        &mut self,
        requests: &[LeaseRequest],
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<Lease>, StoreError>> {
        ready(self.0.lease(requests, now))
    }

    fn close(&mut self, requests: &[LeaseRequest], _: Timestamp) -> impl Future<Output = Result<(), StoreError>> {
        ready(self.0.close(requests))
    }

    fn correct(
        &mut self,
        request: &LeaseRequest,
        used: Units,
        now: Timestamp,
    ) -> impl Future<Output = Result<(), StoreError>> {
        ready(self.0.correct(request, used, now))
    }
}

impl<F: StateDir> Inner<F> {
    pub(super) fn open(mut dir: F, boot: &str, uptime: Uptime, now: Timestamp) -> Result<Self, OpenError> {
        let (name, kind) = LEDGER;
        let path = dir.path(name);
        let bytes = dir.read(name).map_err(|source| OpenError::Read { path: path.clone(), source })?;
        let read = bytes.map(|bytes| read_ledger(&bytes)).transpose();
        let (ledger, before) = read.map_err(|error| OpenError::from_record_error(error, &path))?.unzip();
        let (last_incarnation, mut table) = before
            .map_or_else(Default::default, |ledger_record| (ledger_record.incarnation, ledger_record.into_table()));
        let (number, safe_number) = ledger.as_ref().map_or((0, 0), |file| (file.number, file.safe_next_number()));
        let (journal, last_journal) = read_journal(&dir, last_incarnation, boot);
        if ledger.is_some() && last_journal.as_ref().is_some_and(|journal| journal.number > safe_number) {
            return Err(OpenError::Damaged { path, reason: "its last record is missing" });
        }
        let is_complete = ledger.as_ref().is_some_and(|file| !file.may_lack_newest);
        let last_journal = last_journal.filter(|journal| is_complete && journal.number >= number);
        let marks = last_journal.map(JournalRecord::into_marks).unwrap_or_default();
        let mut lost = BTreeMap::new();
        table.retire_holder(LOCAL_HOLDER, now, |quota, window, durable| {
            let mark = marks.get(&(quota.to_owned(), window));
            // Reported usage counts even beyond the lease, after a manual correction or for an unenforced quota.
            let taken = mark.map_or(durable.held, |mark| mark.max_taken.min(durable.held).max(mark.taken));
            let known_taken = mark.map_or(durable.taken, |mark| mark.taken.max(durable.taken)).min(taken);
            let sum: &mut Units = lost.entry(quota.to_owned()).or_default();
            *sum = sum.saturating_add(taken.saturating_sub(known_taken));
            taken
        });

        let incarnation = last_incarnation + 1;
        let record = encode(&LedgerRecord::new(incarnation, &table));
        let written = match ledger {
            Some(mut file) => file.commit(&mut dir, &record).map(|()| file),
            None => RecordFile::create(name, kind, &mut dir, 0, &record),
        };
        let ledger = written.map_err(|source| OpenError::Write { path, source })?;
        let boot = boot.to_owned();
        let mut opened = Self {
            dir,
            ledger,
            // The space of an existing journal is allocated, so a full disk does not matter.
            journal,
            incarnation,
            boot,
            table,
            marks: JournalMarks::new(),
            written: None,
            lost,
            uptime,
            sync_limiter: SyncLimiter::default(),
            last_warned: None,
            last_error: None,
        };
        let path = opened.dir.path(JOURNAL.0);
        opened.write_marks().map_err(|source| OpenError::Write { path, source })?;
        Ok(opened)
    }

    pub(super) fn lease(&mut self, requests: &[LeaseRequest], now: Timestamp) -> Result<Vec<Lease>, StoreError> {
        self.make_durable(requests, now)?;
        let mut leases = Vec::with_capacity(requests.len());
        for request in requests {
            let durable = self.table.holding(LOCAL_HOLDER, &request.quota, request.window.id);
            let status = self.table.status(LOCAL_HOLDER, request, now);
            let needed = request.taken.saturating_add(request.urgent).min(request.wanted);
            let granted = if request.wanted < request.held { request.wanted } else { request.held.max(needed) };
            let max_taken = granted.min(durable.held).max(request.taken);
            self.marks
                .insert((request.quota.clone(), request.window.id), JournalMark { max_taken, taken: request.taken });
            let taken_by_others = status.taken_by_others.saturating_add(self.journal_only_usage(request));
            leases.push(Lease {
                held: max_taken,
                taken_by_others,
                held_by_others: status.held_by_others.max(taken_by_others),
                ..status
            });
        }
        self.marks.retain(|(quota, window), _| self.table.contains(quota, *window));
        self.write_marks().map_err(|source| self.write_error(JOURNAL.0, source))?;
        for (request, lease) in requests.iter().zip(&mut leases) {
            lease.lost = self.lost.remove(&request.quota).unwrap_or_default();
        }
        Ok(leases)
    }

    pub(super) fn close(&mut self, requests: &[LeaseRequest]) -> Result<(), StoreError> {
        settle_marks(&mut self.table, &self.marks, requests);
        for request in requests {
            self.table.close(LOCAL_HOLDER, request);
        }
        let record = encode(&LedgerRecord::new(self.incarnation, &self.table));
        self.ledger.commit(&mut self.dir, &record).map_err(|source| self.write_error(LEDGER.0, source))
    }

    pub(super) fn correct(&mut self, request: &LeaseRequest, used: Units, now: Timestamp) -> Result<(), StoreError> {
        let mut table = self.table.clone();
        let durable = table.holding(LOCAL_HOLDER, &request.quota, request.window.id);
        table.correct(LOCAL_HOLDER, &LeaseRequest { held: durable.held, ..request.clone() }, used, now);
        self.commit(table).map_err(|source| self.write_error(LEDGER.0, source))
    }

    /// Returns the reported usage of windows that overlap the requested one, as far as only the journal contains it.
    fn journal_only_usage(&self, request: &LeaseRequest) -> Units {
        let marks = self.marks.iter().filter(|((quota, _), _)| *quota == request.quota);
        let overlapping = marks.filter(|((quota, id), _)| request.window.overlaps(*id, self.table.span(quota, *id)));
        overlapping.fold(Units::ZERO, |sum, ((quota, id), mark)| {
            sum.saturating_add(mark.taken.saturating_sub(self.table.holding(LOCAL_HOLDER, quota, *id).taken))
        })
    }

    /// Records new leases durably. If the disk fails, the leases that are already durable remain.
    fn make_durable(&mut self, requests: &[LeaseRequest], now: Timestamp) -> Result<(), StoreError> {
        let mut table = self.table.clone();
        let (mut sync_required, mut sync_useful) = (false, false);
        for request in requests {
            let before = table.holding(LOCAL_HOLDER, &request.quota, request.window.id);
            let needed = request.taken.saturating_add(request.urgent).min(request.wanted);
            let is_return = request.wanted < request.held
                || request.wanted.saturating_add(request.wanted.saturating_sub(request.taken)) < before.held;
            // Lease more only once half is used, so that a quiet quota does not sync for every request.
            let half = Units::from_milli(request.wanted.saturating_sub(request.taken).milli() / 2);
            let is_sufficient = before.held >= needed && before.held.saturating_sub(request.taken) >= half;
            let wanted = match (is_return, is_sufficient) {
                (true, _) => request.wanted,
                (false, true) => before.held,
                (false, false) => request.wanted.max(before.held),
            };
            let span = table.span(&request.quota, request.window.id);
            let lease = table.lease(LOCAL_HOLDER, &LeaseRequest { held: before.held, wanted, ..request.clone() }, now);
            sync_required |= lease.held > before.held && needed > before.held;
            sync_useful |= lease.held != before.held || span != table.span(&request.quota, request.window.id);
        }
        table.evict_old(requests);
        let uptime = (self.uptime)();
        let due = uptime.saturating_duration_since(self.sync_limiter.last) >= MAX_UNSYNCED_AGE;
        if !((sync_required || (sync_useful && due)) && self.sync_limiter.is_allowed(uptime)) {
            return Ok(());
        }
        // Mark windows that are leased for the first time: none of their units have been handed out yet.
        for request in requests {
            let mark = JournalMark { max_taken: request.held.max(request.taken), taken: request.taken };
            self.marks.entry((request.quota.clone(), request.window.id)).or_insert(mark);
        }
        self.write_marks().map_err(|source| self.write_error(JOURNAL.0, source))?;
        settle_marks(&mut table, &self.marks, requests);
        self.sync_limiter.record(uptime);
        if let Err(source) = self.commit(table.clone()) {
            self.sync_limiter.defer(uptime);
            self.warn_rate_limited(uptime, &source);
            self.mark_uncertain(requests, &table);
        }
        Ok(())
    }

    /// Lowers leases after a failed sync. The record may be on disk all the same, so no more than it contains may be
    /// taken.
    fn mark_uncertain(&mut self, requests: &[LeaseRequest], failed: &LeaseTable) {
        for request in requests {
            let (quota, window) = (&request.quota, request.window.id);
            let (durable, uncertain) =
                (self.table.holding(LOCAL_HOLDER, quota, window), failed.holding(LOCAL_HOLDER, quota, window));
            self.table.put(LOCAL_HOLDER, quota, window, Holding { held: durable.held.min(uncertain.held), ..durable });
        }
    }

    fn commit(&mut self, table: LeaseTable) -> io::Result<()> {
        let record = encode(&LedgerRecord::new(self.incarnation, &table));
        self.ledger.commit(&mut self.dir, &record)?;
        self.table = table;
        self.last_error = None;
        Ok(())
    }

    /// Writes the marks. They are valid for the current record of the ledger and for the next one.
    fn write_marks(&mut self) -> io::Result<()> {
        let number = self.ledger.safe_next_number();
        if self
            .written
            .as_ref()
            .is_some_and(|(written_number, marks)| *written_number == number && *marks == self.marks)
        {
            return Ok(());
        }
        let record = encode(&JournalRecord::new(self.incarnation, &self.boot, number, &self.marks));
        let (name, kind) = JOURNAL;
        self.written = None;
        match &mut self.journal {
            Some(file) => file.write(&mut self.dir, &record)?,
            None => self.journal = Some(RecordFile::create(name, kind, &mut self.dir, 0, &record)?),
        }
        self.written = Some((number, self.marks.clone()));
        Ok(())
    }

    fn write_error(&self, name: &str, source: io::Error) -> StoreError {
        StoreError::Write { path: self.dir.path(name).display().to_string(), source }
    }

    fn warn_rate_limited(&mut self, uptime: Timestamp, error: &io::Error) {
        let last_error = format!(
            "Cannot write {}: {error}. Requests are admitted until the current leases are used up",
            self.dir.path(LEDGER.0).display()
        );
        if self.last_warned.is_none_or(|last| uptime.saturating_duration_since(last) >= WARN_INTERVAL) {
            self.last_warned = Some(uptime);
            warn!("{last_error}");
        }
        self.last_error = Some(last_error);
    }
}

impl SyncLimiter {
    fn is_allowed(&self, now: Timestamp) -> bool {
        self.used_up_to <= now
    }

    fn record(&mut self, now: Timestamp) {
        let a_second_ago = now - Duration::from_secs(1);
        self.used_up_to = self.used_up_to.max(a_second_ago) + Duration::from_secs(1) / MAX_SYNCS_PER_SECOND as u32;
        self.last = now;
        self.count += 1;
    }

    /// Defers the next sync by a second after a disk failure.
    fn defer(&mut self, now: Timestamp) {
        self.used_up_to = now + Duration::from_secs(1);
    }
}

/// Lowers the leases of windows without a request to their marks.
fn settle_marks(table: &mut LeaseTable, marks: &JournalMarks, requests: &[LeaseRequest]) {
    for ((quota, window), mark) in marks {
        let is_requested = requests.iter().any(|request| request.quota == *quota && request.window.id == *window);
        if !is_requested && mark.max_taken < table.holding(LOCAL_HOLDER, quota, *window).held {
            table.put(LOCAL_HOLDER, quota, *window, Holding { held: mark.max_taken, taken: mark.taken });
        }
    }
}

/// Returns the journal, and its record if that is provably the last one of `incarnation`: none is damaged, and the system
/// has not stopped since.
fn read_journal(dir: &impl StateDir, incarnation: u64, boot: &str) -> (Option<RecordFile>, Option<JournalRecord>) {
    let (name, kind) = JOURNAL;
    let bytes = dir.read(name).ok().flatten();
    let Some((file, record)) = bytes.and_then(|bytes| RecordFile::read(name, kind, &bytes).ok()) else {
        return (None, None);
    };
    let record = serde_json::from_slice::<JournalRecord>(&record).ok().filter(|record| {
        !file.may_lack_newest && !boot.is_empty() && record.boot == boot && record.incarnation == incarnation
    });
    (Some(file), record)
}

/// Reads the bytes of the `ledger` file.
fn read_ledger(bytes: &[u8]) -> Result<(RecordFile, LedgerRecord), RecordFileError> {
    let (name, kind) = LEDGER;
    let (file, record) = RecordFile::read(name, kind, bytes)?;
    let record = serde_json::from_slice(&record).map_err(|_| RecordFileError::Damaged("invalid record"))?;
    Ok((file, record))
}

fn encode(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("names and numbers are valid JSON")
}

/// Returns the boot id of the system; empty if unavailable.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}
