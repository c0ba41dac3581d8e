//! File with the usage of each key in the latest windows of a quota.
//!
//! A change is written in place, before the request that it is for is sent: writes survive the exit of a process. After a kill,
//! what was reserved counts as used. Writes are synced to the disk every second, by no thread of requests. While a sync takes
//! too long or after it has failed, nothing more is written, so that no request waits for the disk.
//!
//! Usage is recorded as a multiple of a step, rounded up, and written if this multiple changes. So a restart counts no usage too
//! low, and that of each record at most one step too high.
//!
//! A header states for how many records the file has room, so that a truncated file is known as one.

use crate::files;
use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter, Error, ErrorKind, Read, Result, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};
use tidegate_policy::hash::{fnv1a, mix};
use tidegate_policy::identity::ClientKey;
use tidegate_policy::key_usage::{ChangedEntry, KeyEntry, KeyUsage, KeyWindows, Place};
use tidegate_policy::window::{Span, Window};
use tidegate_policy::{Timestamp, Units};

/// First bytes of the file: its kind, and its version in the last one. Version 1 counts one window, so its records are of one table;
/// it and version 2 do not state for how many records the file has room, and version 3 not the length of the windows.
const MAGIC: &[u8; 8] = b"keys\0\0\0\x04";
const MAGIC_OF_3: &[u8; 8] = b"keys\0\0\0\x03";

/// First bytes of a file of sliding windows, and of one of windows that keys open.
const MAGIC_OF_WINDOWS: [&[u8; 8]; 2] = [b"keys\0\0s\x04", b"keys\0\0f\x04"];

/// Kind and version, number of records that the file has room for, length of a part or of a window in nanoseconds, and checksum, each
/// of 8 bytes.
const HEADER_LEN: usize = 32;

/// The same without the length.
const HEADER_LEN_OF_3: usize = 24;

/// Window, key, used units, floor and checksum, each of 8 bytes.
const RECORD_LEN: usize = 40;

/// Time of a sync from which on nothing is written: long before the system would stop writers until the disk is done.
const MAX_SYNC_TIME: Duration = Duration::from_secs(2);

/// Record of an entry that was never used.
const EMPTY: [u8; RECORD_LEN] = [0; RECORD_LEN];

/// Number of records of which the room in a file is a multiple.
const ROOM_STEP: u64 = 128;

/// Maximum number of records of a table that are read: four times the maximum of `max_keys`.
const MAX_RECORDS: usize = 40_000_000;

/// How the usage of a quota is recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordForm {
    pub(crate) windows: KeyWindows,
    /// Length that no window of the quota exceeds.
    pub(crate) longest_window: Duration,
    /// Units of which the recorded usage is a multiple.
    pub(crate) step: Units,
}

/// An open file of the usage of keys.
#[derive(Debug)]
pub(crate) struct KeyFile {
    path: PathBuf,
    windows: KeyWindows,
    /// Length that no window of the quota exceeds.
    longest_window: Cell<Duration>,
    /// Units of which the recorded usage is a multiple.
    step: Cell<Units>,
    pub(super) open: Arc<OpenFile>,
    /// Number of records that the file has room for.
    room: Cell<u64>,
}

/// A file, and how far it is synced.
#[derive(Debug)]
pub(crate) struct OpenFile {
    file: File,
    /// True if a write may have followed the last sync.
    is_dirty: AtomicBool,
    /// Nanoseconds since 1970 at which the current sync began; 0 if there is none.
    sync_began: AtomicU64,
    /// True if a sync has failed: what is on the disk is unknown.
    has_failed: AtomicBool,
}

impl KeyFile {
    /// Replaces the file at `path` by one with the records, in the order of their places, and keeps it open.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be written.
    pub(crate) fn create(path: &Path, form: RecordForm, records: impl Iterator<Item = ChangedEntry>) -> Result<Self> {
        let RecordForm { windows, longest_window, step } = form;
        let draft = path.with_extension("new");
        if let Err(error) = fs::remove_file(&draft)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error);
        }
        let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&draft)?;
        let mut writer = BufWriter::new(&file);
        writer.write_all(&header(windows, longest_window, 0))?;
        let mut next = 0;
        for record in records {
            let index = index(windows, record.place);
            (next..index).try_for_each(|_| writer.write_all(&EMPTY))?;
            writer.write_all(&encode(&record, step))?;
            next = index + 1;
        }
        writer.flush()?;
        drop(writer);
        let created = Self {
            step: Cell::new(step),
            longest_window: Cell::new(longest_window),
            ..Self::of(path, windows, file, 0)
        };
        created.make_room(next)?;
        created.open.file.sync_all()?;
        fs::rename(&draft, path)?;
        File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(created)
    }

    fn of(path: &Path, windows: KeyWindows, file: File, room: u64) -> Self {
        let open = OpenFile {
            file,
            is_dirty: AtomicBool::new(false),
            sync_began: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
        };
        Self {
            path: path.to_owned(),
            windows,
            longest_window: Cell::default(),
            step: Cell::new(Units::from_milli(1)),
            open: Arc::new(open),
            room: Cell::new(room),
        }
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Records multiples of `step` from now on, unless it is larger than the current one. One of them is a multiple of the other, so
    /// that no record is too low.
    pub(crate) fn lower_step(&self, step: Units) {
        self.step.set(self.step.get().min(step));
    }

    /// States that no window of the quota exceeds a length.
    ///
    /// # Errors
    ///
    /// Fails as a write does.
    pub(crate) fn set_longest_window(&self, length: Duration) -> Result<()> {
        if self.longest_window.replace(length) == length {
            return Ok(());
        }
        self.open.is_dirty.store(true, Ordering::Release);
        self.open.file.write_all_at(&header(self.windows, length, self.room.get()), 0)
    }

    /// Returns true if a change is to be written, because the record shows it.
    pub(crate) fn shows(&self, changed: &ChangedEntry) -> bool {
        let recorded = |used: Units| used.next_multiple_of(self.step.get());
        changed.earlier.is_none_or(|earlier| recorded(earlier) != recorded(changed.entry.used))
    }

    /// Writes nothing more, until another file takes the place of this one.
    pub(crate) fn fail(&self) {
        self.open.has_failed.store(true, Ordering::Relaxed);
    }

    /// Returns true if the disk takes writes in time.
    pub(crate) fn is_writable(&self, now: Timestamp) -> bool {
        let began = Timestamp(self.open.sync_began.load(Ordering::Relaxed));
        let is_slow = began.0 != 0 && now.saturating_duration_since(began) >= MAX_SYNC_TIME;
        !is_slow && !self.open.has_failed.load(Ordering::Relaxed)
    }

    /// Returns the file of a quota, which cannot be written.
    #[cfg(test)]
    pub(crate) fn read_only(dir: &Path, quota: &str) -> Self {
        let path = path(dir, Kind::Budgets, quota);
        Self::of(&path, KeyWindows::OfQuota, File::open(&path).expect("the file exists"), u64::MAX)
    }

    /// Returns the file of a quota, which cannot be synced.
    #[cfg(test)]
    pub(crate) fn unsyncable(dir: &Path, quota: &str) -> Self {
        let device = OpenOptions::new().write(true).open("/dev/null").expect("it exists");
        Self::of(&path(dir, Kind::Budgets, quota), KeyWindows::OfQuota, device, u64::MAX)
    }

    /// Returns the file of a quota, of which a sync began at `began` and does not end.
    #[cfg(test)]
    pub(crate) fn stalled(dir: &Path, quota: &str, began: Timestamp) -> Self {
        let path = path(dir, Kind::Budgets, quota);
        let file = OpenOptions::new().write(true).open(&path).expect("the file exists");
        let file = Self::of(&path, KeyWindows::OfQuota, file, u64::MAX);
        file.open.sync_began.store(began.0, Ordering::Relaxed);
        file
    }

    /// Writes a changed entry in its place.
    ///
    /// # Errors
    ///
    /// Fails as a write does, for example because the disk is full.
    pub(crate) fn write(&self, record: &ChangedEntry) -> Result<()> {
        let index = index(self.windows, record.place);
        self.open.is_dirty.store(true, Ordering::Release);
        self.make_room(index)?;
        self.open.file.write_all_at(&encode(record, self.step.get()), self.length(index))
    }

    /// Makes room for the record `index`.
    fn make_room(&self, index: u64) -> Result<()> {
        if index < self.room.get() {
            return Ok(());
        }
        let room = (index + 1).max(2 * self.room.get()).next_multiple_of(ROOM_STEP);
        // In this order, no kill leaves a file that is shorter than it states.
        self.open.file.set_len(self.length(room))?;
        self.open.file.write_all_at(&header(self.windows, self.longest_window.get(), room), 0)?;
        self.room.set(room);
        Ok(())
    }

    /// Returns the length of a file with `records`.
    fn length(&self, records: u64) -> u64 {
        HEADER_LEN as u64 + records * RECORD_LEN as u64
    }
}

impl OpenFile {
    /// Syncs what was written since the last call. `now` returns the time.
    ///
    /// # Errors
    ///
    /// Fails if the disk does, also in a call before: what is on it is unknown then.
    pub(crate) fn sync(&self, now: impl Fn() -> Timestamp) -> Result<()> {
        if self.has_failed.load(Ordering::Relaxed) {
            return Err(Error::other("a sync has failed before"));
        }
        if !self.is_dirty.swap(false, Ordering::Acquire) {
            return Ok(());
        }
        self.sync_began.store(now().0.max(1), Ordering::Relaxed);
        let synced = self.file.sync_data();
        self.has_failed.store(synced.is_err(), Ordering::Relaxed);
        self.sync_began.store(0, Ordering::Relaxed);
        synced
    }
}

/// What the keys of a file have used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Units of their own budgets.
    Budgets,
    /// Units of one limit, of which each client has a share.
    Shares,
}

/// Returns the path of the file for a quota in a state directory. A quota that had budgets before a reload and has shares now
/// has both files.
pub(crate) fn path(dir: &Path, kind: Kind, quota: &str) -> PathBuf {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let name: String = quota
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") })
        .collect();
    let kind = match kind {
        Kind::Budgets => "key_usage",
        Kind::Shares => "client_usage",
    };
    dir.join(format!("{kind}.{name}.bin"))
}

/// Content of a file.
#[derive(Debug, Default)]
struct Content {
    windows: KeyWindows,
    /// Length that no window of the quota exceeded; `None` if the file does not say.
    longest_window: Option<Duration>,
    records: Vec<ChangedEntry>,
    /// Number of records that are damaged, or missing between others, as a power cut may leave them.
    damaged: usize,
    /// Number of bytes that the file has fewer than its header states.
    missing: u64,
    /// Nanoseconds since 1970 of the last write, by the clock of the system.
    written_at: u64,
}

/// Reads the file at `path`; nothing if there is none.
///
/// # Errors
///
/// Fails if the file cannot be read, or is no file of this kind.
fn read(path: &Path) -> Result<Content> {
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Content::default()),
        metadata => metadata?,
    };
    // To open another kind of file may block.
    if !metadata.is_file() {
        return Err(Error::other("not a regular file"));
    }
    let mut reader = BufReader::new(File::open(path)?);
    let mut start = [0; HEADER_LEN];
    reader.read_exact(&mut start[..MAGIC.len()])?;
    let current = match &start[..MAGIC.len()] {
        magic if magic == MAGIC_OF_3 => Some(HEADER_LEN_OF_3),
        magic if magic == MAGIC || MAGIC_OF_WINDOWS.iter().any(|it| magic == *it) => Some(HEADER_LEN),
        b"keys\0\0\0\x01" | b"keys\0\0\0\x02" => None,
        _ => return Err(Error::other("not a file of this version or an earlier one")),
    };
    let written_at = metadata.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let written_at = written_at.and_then(|at| u64::try_from(at.as_nanos()).ok()).unwrap_or_default();
    let mut content = Content { written_at, ..Content::default() };
    if let Some(length) = current {
        let start = &mut start[..length];
        reader.read_exact(&mut start[MAGIC.len()..])?;
        match (windows(start), room(start)) {
            (Some(windows), Some(room)) => {
                let stated = room.saturating_mul(RECORD_LEN as u64).saturating_add(length as u64);
                let missing = stated.saturating_sub(metadata.len());
                let longest_window = start.starts_with(MAGIC).then(|| Duration::from_nanos(number(start, 2)));
                content = Content { windows, longest_window, missing, ..content };
            }
            (None, _) => return Err(Error::other("the header is damaged")),
            (Some(windows), None) => content = Content { windows, damaged: 1, ..content },
        }
    }
    let tables = content.windows.tables();
    let step = if start.starts_with(b"keys\0\0\0\x01") { tables } else { 1 };
    let mut reader = reader.take((MAX_RECORDS * tables * RECORD_LEN) as u64);
    // Entries of a table are written without gaps.
    let mut gaps = vec![0; tables];
    let mut bytes = [0; RECORD_LEN];
    for index in (0..).step_by(step) {
        let place = place(content.windows, index);
        let gap = &mut gaps[usize::from(place.table)];
        match reader.read_exact(&mut bytes) {
            Ok(()) if bytes == EMPTY => *gap += 1,
            Ok(()) => {
                content.damaged += std::mem::take(gap);
                match decode(place, &bytes) {
                    Some(record) => content.records.push(record),
                    None => content.damaged += 1,
                }
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        }
    }
    Ok(content)
}

/// Opens the file of a quota, and returns the usage in it. What counts at `now` in other windows than those of `form`, or was counted
/// in another window of the quota that overlaps the current one, counts in those of this configuration. `window` are those of the
/// quota, of which `current` is the current one. Sets an unreadable file aside. Passes what is lost to `warn`.
///
/// # Errors
///
/// Fails if the directory cannot be written.
pub(crate) fn open(
    path: &Path,
    max_keys: usize,
    form: RecordForm,
    window: &Window,
    current: Span,
    now: Timestamp,
    warn: impl Fn(String),
) -> Result<(KeyFile, KeyUsage)> {
    let windows = form.windows;
    files::create_dir(path.parent().unwrap_or(Path::new(".")))?;
    let shown = path.display();
    let content = read(path).unwrap_or_else(|error| {
        let reason = format!("{shown} is unusable, and the usage of all keys is lost: {error}");
        warn(files::set_aside_for(path, &reason));
        Content { windows, ..Content::default() }
    });
    let Content { windows: recorded_windows, longest_window, records, damaged, missing, written_at } = content;
    if damaged > 0 {
        warn(format!("{damaged} records of {shown} are damaged, and what their keys had used is lost"));
    }
    if missing > 0 {
        warn(format!("{shown} is truncated by {missing} bytes, and what the keys in them had used is lost"));
    }
    let mut usage = KeyUsage::restore(recorded_windows, max_keys, &records);
    let (latest, id) = (usage.latest_window(), current.start.0);
    let is_of_quota = |windows| windows == KeyWindows::OfQuota;
    // A window of this configuration ends before the current one begins.
    let is_other =
        || longest_window != Some(form.longest_window) || window.span(Timestamp(latest)).start != Timestamp(latest);
    let reaches = |length: Duration| Timestamp(latest) + length > current.start;
    match (is_of_quota(recorded_windows), is_of_quota(windows)) {
        (true, true) if id < latest && latest < current.end.0 => usage.redefine(latest, windows, id),
        (true, true) if latest < id && longest_window.is_some_and(reaches) && is_other() => {
            usage.redefine(latest, windows, id);
        }
        (true, false) => {
            let moment = windows.moment(id, now);
            // The length of the recorded windows is unknown, but nothing was charged after the last write.
            let counts = windows.counts_at(written_at.clamp(latest, moment.max(latest)), moment);
            usage.redefine(if counts { latest } else { moment }, windows, moment);
        }
        (false, _) if recorded_windows != windows => usage.redefine(now.0, windows, windows.moment(id, now)),
        _ => {}
    }
    Ok((KeyFile::create(path, RecordForm { windows: usage.windows(), ..form }, usage.records())?, usage))
}

/// Returns the header of a file with room for `room` records.
fn header(windows: KeyWindows, longest_window: Duration, room: u64) -> Vec<u8> {
    let [of_sliding, of_first_use] = MAGIC_OF_WINDOWS;
    let (magic, length) = match windows {
        KeyWindows::OfQuota => (MAGIC, longest_window),
        KeyWindows::Sliding { part } => (of_sliding, part),
        KeyWindows::FirstUse { length } => (of_first_use, length),
    };
    let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    let mut bytes = magic.to_vec();
    bytes.extend(room.to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes.extend(checksum(&bytes).to_le_bytes());
    bytes
}

/// Returns the number of records that a file with this header has room for; `None` if the header is damaged.
fn room(header: &[u8]) -> Option<u64> {
    let (content, sum) = header.split_at(header.len() - 8);
    (number(sum, 0) == checksum(content)).then(|| number(header, 1))
}

/// Returns the windows of a file with this header; `None` if the header is damaged and does not say.
fn windows(header: &[u8]) -> Option<KeyWindows> {
    if header.starts_with(MAGIC) || header.starts_with(MAGIC_OF_3) {
        return Some(KeyWindows::OfQuota);
    }
    room(header)?;
    let length = Duration::from_nanos(number(header, 2).max(1));
    Some(match header.starts_with(MAGIC_OF_WINDOWS[0]) {
        true => KeyWindows::Sliding { part: length },
        false => KeyWindows::FirstUse { length },
    })
}

/// Returns the number at a place of `bytes`, in numbers of 8 bytes.
fn number(bytes: &[u8], place: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * place + byte]))
}

fn encode(record: &ChangedEntry, step: Units) -> [u8; RECORD_LEN] {
    let ChangedEntry { window, entry: KeyEntry { key, used }, floor, .. } = *record;
    let used = used.next_multiple_of(step);
    let mut bytes = [0; RECORD_LEN];
    for (place, number) in bytes.chunks_exact_mut(8).zip([window, key.to_u64(), used.milli(), floor.milli()]) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    let checksum = checksum(&bytes[..RECORD_LEN - 8]);
    bytes[RECORD_LEN - 8..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Returns the number of the record of an entry: those of one slot follow each other.
fn index(windows: KeyWindows, place: Place) -> u64 {
    u64::from(place.slot) * windows.tables() as u64 + u64::from(place.table)
}

fn place(windows: KeyWindows, index: u64) -> Place {
    let tables = windows.tables() as u64;
    Place { table: (index % tables) as u8, slot: (index / tables) as u32 }
}

fn decode(place: Place, bytes: &[u8; RECORD_LEN]) -> Option<ChangedEntry> {
    let number = |place| number(bytes, place);
    (number(4) == checksum(&bytes[..RECORD_LEN - 8])).then(|| ChangedEntry {
        place,
        window: number(0),
        entry: KeyEntry { key: ClientKey::from_u64(number(1)), used: Units::from_milli(number(2)) },
        earlier: None,
        floor: Units::from_milli(number(3)),
    })
}

fn checksum(bytes: &[u8]) -> u64 {
    mix(fnv1a(bytes.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const WINDOW: u64 = 7;
    const EXACT: Units = Units::from_milli(1);

    fn key(number: u64) -> ClientKey {
        ClientKey::from_credential(number)
    }

    fn units(whole: u64) -> Units {
        Units::from_whole(whole)
    }

    fn span(window: u64) -> Span {
        Span { start: Timestamp(window), end: Timestamp(window + 1) }
    }

    fn form(windows: KeyWindows, longest_window: Duration) -> RecordForm {
        RecordForm { windows, longest_window, step: EXACT }
    }

    fn open(dir: &Path, max_keys: usize) -> (KeyFile, KeyUsage, Vec<String>) {
        let warnings = RefCell::new(Vec::new());
        let (file, usage) = super::open(
            &file_path(dir),
            max_keys,
            form(KeyWindows::OfQuota, Duration::from_nanos(1)),
            &Window::Fixed { length: Duration::from_nanos(1) },
            span(WINDOW),
            Timestamp(WINDOW),
            |text| {
                warnings.borrow_mut().push(text);
            },
        )
        .expect("the directory is writable");
        (file, usage, warnings.into_inner())
    }

    fn file_path(dir: &Path) -> PathBuf {
        path(dir, Kind::Budgets, "a/b")
    }

    #[test]
    fn usage_outlives_the_process() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (file, mut usage, _) = open(dir.path(), 3);
        for number in 0..5 {
            file.write(&usage.reserve(WINDOW, key(number), units(number + 1))).expect("the disk has room");
        }
        file.write(&usage.settle(WINDOW, key(4), units(5), units(2)).expect("the window is counted"))
            .expect("as above");
        let (_, restored, warnings) = open(dir.path(), 3);
        assert_eq!(warnings, [""; 0]);
        for number in 0..6 {
            assert_eq!(restored.used(WINDOW, key(number)), usage.used(WINDOW, key(number)), "{number}");
        }
    }

    /// `tests/data/state` has files that these versions have made.
    #[test]
    fn files_of_earlier_versions_are_read() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (file, mut usage, _) = open(dir.path(), 9);
        for number in 0..5 {
            file.write(&usage.reserve(WINDOW, key(number), units(number + 1))).expect("the disk has room");
        }
        let current = fs::read(file_path(dir.path())).expect("the file exists");
        let records = current[HEADER_LEN..].chunks_exact(RECORD_LEN);
        let of_one_table = records.clone().step_by(2);
        let records = records.flatten().copied().collect::<Vec<u8>>();
        let mut of_3 = MAGIC_OF_3.to_vec();
        of_3.extend((records.len() as u64 / RECORD_LEN as u64).to_le_bytes());
        of_3.extend(checksum(&of_3).to_le_bytes());
        for (version, start, records) in [
            (1, b"keys\0\0\0\x01".to_vec(), of_one_table.flatten().copied().collect()),
            (2, b"keys\0\0\0\x02".to_vec(), records.clone()),
            (3, of_3, records),
        ] {
            let content = [start, records].concat();
            fs::write(file_path(dir.path()), content).expect("the file can be written");
            let (_, read, warnings) = open(dir.path(), 9);
            assert_eq!(warnings, [""; 0]);
            for number in 0..6 {
                assert_eq!(read.used(WINDOW, key(number)), usage.used(WINDOW, key(number)), "{version}: {number}");
            }
        }
        fs::write(file_path(dir.path()), b"keys\0\0\0\x05................").expect("the file can be written");
        let (_, read, warnings) = open(dir.path(), 9);
        assert!(
            warnings[0].contains("not a file of this version or an earlier one")
                && read.entries(WINDOW, 0..read.slots()).count() == 0,
            "{warnings:?}"
        );
    }

    #[test]
    fn records_of_an_earlier_window_and_a_smaller_table_do_no_harm() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (file, mut usage, _) = open(dir.path(), 100);
        for number in 0..50 {
            file.write(&usage.reserve(WINDOW, key(number), units(9))).expect("the disk has room");
        }
        for number in 0..10 {
            file.write(&usage.reserve(WINDOW + 1, key(number), units(1))).expect("the disk has room");
        }
        let (file, mut usage, _) = open(dir.path(), 100);
        assert_eq!((usage.entries(WINDOW + 1, 0..20).count(), usage.used(WINDOW + 1, key(20))), (10, Units::ZERO));
        file.write(&usage.reserve(WINDOW + 1, key(20), units(3))).expect("the disk has room");
        file.write(&usage.reserve(WINDOW + 2, key(0), units(8))).expect("the disk has room");
        let (_, usage, _) = open(dir.path(), 4);
        assert!(usage.is_forgotten(WINDOW), "it made room for another one");
        assert_eq!([WINDOW + 1, WINDOW + 2].map(|window| usage.entries(window, 0..20).count()), [11, 1]);
        assert_eq!(usage.used(WINDOW + 2, key(0)), units(8));
        assert!((0..10).all(|number| usage.used(WINDOW + 1, key(number)) == units(1)));
        assert_eq!(usage.used(WINDOW + 1, key(20)), units(3));
    }

    #[test]
    fn usage_counts_in_a_longer_window_that_began_before() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (file, mut usage, _) = open(dir.path(), 3);
        for (window, used) in [(WINDOW - 1, 2), (WINDOW, 5)] {
            file.write(&usage.reserve(window, key(1), units(used))).expect("the disk has room");
        }
        let day = Span { start: Timestamp(1), end: Timestamp(WINDOW + 9) };
        let quota = Window::Fixed { length: day.length() };
        let (_, usage) = super::open(
            &file_path(dir.path()),
            3,
            form(KeyWindows::OfQuota, day.length()),
            &quota,
            day,
            Timestamp(WINDOW),
            |_| {},
        )
        .expect("the directory is writable");
        assert_eq!([1, WINDOW].map(|window| usage.used(window, key(1))), [units(5), Units::ZERO]);
    }

    #[test]
    fn damage_is_reported_and_loses_only_what_is_damaged() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (file, mut usage, _) = open(dir.path(), 10);
        for number in 0..3 {
            file.write(&usage.reserve(WINDOW, key(number), units(9))).expect("the disk has room");
        }
        let path = file_path(dir.path());
        assert!(path.ends_with("key_usage.a%2fb.bin"));
        let mut bytes = fs::read(&path).expect("the file exists");
        bytes[HEADER_LEN + 2 * RECORD_LEN + 16] ^= 1;
        fs::write(&path, &bytes).expect("the disk has room");
        let (_, restored, warnings) = open(dir.path(), 10);
        assert_eq!([0, 1, 2].map(|number| restored.used(WINDOW, key(number)).floor()), [9, 0, 9]);
        assert!(warnings[0].starts_with("1 records of"), "{warnings:?}");
        fs::write(&path, "something else").expect("the disk has room");
        let (_, restored, warnings) = open(dir.path(), 10);
        assert_eq!(restored.entries(WINDOW, 0..restored.slots()).count(), 0);
        assert!(warnings[0].contains("is unusable") && warnings[0].contains("the file is now"), "{warnings:?}");
    }

    /// Writes five entries to the file, and returns its path and its content.
    fn filled(dir: &Path) -> (PathBuf, Vec<u8>) {
        let (file, mut usage, _) = open(dir, 10);
        for number in 0..5 {
            file.write(&usage.reserve(WINDOW, key(number), units(9))).expect("the disk has room");
        }
        let path = file_path(dir);
        let content = fs::read(&path).expect("the file exists");
        (path, content)
    }

    #[test]
    fn truncated_file_is_reported_wherever_it_ends() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (path, content) = filled(dir.path());
        for length in 0..content.len() {
            if length > HEADER_LEN + 12 * RECORD_LEN && length < content.len() - 2 {
                continue;
            }
            fs::write(&path, &content[..length]).expect("the disk has room");
            let (_, restored, warnings) = open(dir.path(), 10);
            assert_eq!(warnings.len(), 1, "{length}: {warnings:?}");
            let is_cut = length >= HEADER_LEN;
            assert_eq!(warnings[0].contains("is truncated by"), is_cut, "{warnings:?}");
            assert_eq!(warnings[0].contains("is unusable"), !is_cut, "{warnings:?}");
            let whole = length.saturating_sub(HEADER_LEN).div_ceil(RECORD_LEN);
            assert!(restored.entries(WINDOW, 0..restored.slots()).count() <= whole);
        }
        fs::write(&path, &content).expect("the disk has room");
        assert_eq!(open(dir.path(), 10).2, [""; 0]);
    }

    #[test]
    fn records_lost_between_others_and_a_damaged_header_are_reported() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (path, content) = filled(dir.path());
        for (place, length, left) in [(HEADER_LEN, 2 * RECORD_LEN * 2, 3), (8, 1, 5)] {
            let mut damaged = content.clone();
            damaged[place..place + length].fill(0);
            fs::write(&path, &damaged).expect("the disk has room");
            let (_, restored, warnings) = open(dir.path(), 10);
            assert!(warnings.len() == 1 && warnings[0].contains("records of"), "{warnings:?}");
            assert_eq!(restored.entries(WINDOW, 0..restored.slots()).count(), left);
        }
    }

    #[test]
    fn file_grows_without_a_warning_at_the_next_start() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (file, mut usage, _) = open(dir.path(), 1000);
        for number in 0..1000 {
            file.write(&usage.reserve(WINDOW + number % 2, key(number), units(1))).expect("the disk has room");
            if number % 100 == 0 {
                let copy = tempfile::tempdir().expect("temporary directory");
                fs::copy(file_path(dir.path()), file_path(copy.path())).expect("the disk has room");
                let (_, restored, warnings) = open(copy.path(), 1000);
                assert_eq!((warnings, restored.records().count() as u64), (Vec::new(), number + 1));
            }
        }
    }

    #[test]
    fn file_of_other_windows_states_them_and_continues_in_those_of_the_configuration() {
        let sliding = KeyWindows::sliding(Duration::from_secs(60));
        let first_use = KeyWindows::FirstUse { length: Duration::from_secs(60) };
        let now = Timestamp::from_seconds(1_800_000_030);
        let open_with = |dir: &Path, windows: KeyWindows| {
            let warnings = RefCell::new(Vec::new());
            let window = Span { start: Timestamp::from_seconds(1_800_000_000), end: Timestamp(u64::MAX) };
            let quota = Window::Fixed { length: window.length() };
            let form = form(windows, window.length());
            let warn = |text| warnings.borrow_mut().push(text);
            let opened = super::open(&file_path(dir), 9, form, &quota, window, now, warn);
            let (file, usage) = opened.expect("the directory is writable");
            (file, usage, warnings.into_inner())
        };
        for windows in [sliding, first_use] {
            let dir = tempfile::tempdir().expect("temporary directory");
            let (file, mut usage, _) = open_with(dir.path(), windows);
            for number in 0..200 {
                let time = now.0 - number % 3 * 5_000_000_000;
                file.write(&usage.reserve(time, key(number), units(4))).expect("the disk has room");
                file.write(&usage.reserve(now.0, key(number % 7), units(1))).expect("the disk has room");
            }
            let mut of_unknown = None;
            for others in [windows, first_use, KeyWindows::OfQuota, sliding, sliding] {
                let (_, restored, warnings) = open_with(dir.path(), others);
                let moment = others.moment(1_800_000_000_000_000_000, now);
                assert_eq!(warnings, [""; 0]);
                assert!((0..7).all(|number| restored.used(moment, key(number)) >= units(4 + 28)), "{others:?}");
                let unknown = restored.used(moment, key(9000));
                assert_eq!(*of_unknown.get_or_insert(unknown), unknown, "{others:?}");
            }
            let path = file_path(dir.path());
            let content = fs::read(&path).expect("the file exists");
            for (place, is_lost) in [(18, true), (9, true), (HEADER_LEN + 20, false)] {
                let mut damaged = content.clone();
                damaged[place] ^= 1;
                fs::write(&path, &damaged).expect("the disk has room");
                let (_, _, warnings) = open_with(dir.path(), sliding);
                assert_eq!(warnings[0].contains("is unusable"), is_lost, "{place}: {warnings:?}");
            }
        }
    }

    #[test]
    fn usage_of_a_window_counts_in_another_one_that_it_overlaps() {
        const HOUR: u64 = 3600;
        let midnight = Timestamp::from_seconds(1_800_057_600);
        let open_at = |path: &Path, (length, longest): (u64, u64), hour: u64| {
            let [length, longest, since] = [length, longest, hour].map(|hours| Duration::from_secs(hours * HOUR));
            let (window, now) = (Window::Fixed { length }, midnight + since);
            let (form, current) = (form(KeyWindows::OfQuota, longest), window.span(now));
            let opened = super::open(path, 3, form, &window, current, now, |_| {}).expect("a readable file");
            (opened.0, opened.1, current.start.0)
        };
        // Length of the windows, and what the file states of it, before and after; hours of the charge and of the starts; what counts
        // at each. Windows of ten hours begin at 18, 4 and 14.
        for (before, after, charged_at, starts, used) in [
            ((24, 24), (12, 12), 3, &[13, 14][..], 5),
            ((24, 24), (12, 12), 3, &[25], 0),
            ((24, 24), (1, 1), 3, &[5], 5),
            ((12, 12), (24, 24), 3, &[13], 5),
            ((24, 24), (10, 10), 3, &[23], 5),
            ((10, 10), (24, 24), 3, &[3], 5),
            ((10, 10), (24, 24), 21, &[25], 0),
            ((24, 24), (24, 24), 3, &[13, 20], 5),
            ((24, 24), (24, 24), 3, &[25], 0),
            // A calendar states more than most of its days have.
            ((24, 25), (24, 25), 3, &[25], 0),
            ((24, 25), (12, 12), 3, &[13], 5),
        ] {
            let dir = tempfile::tempdir().expect("temporary directory");
            let path = file_path(dir.path());
            let (file, mut usage, window) = open_at(&path, before, charged_at);
            file.write(&usage.reserve(window, key(1), units(5))).expect("the disk has room");
            for start in starts {
                let (_, usage, window) = open_at(&path, after, *start);
                let counted = usage.used(window, key(1));
                assert_eq!(counted, units(used), "{before:?} at {charged_at}, then {after:?} at {start}");
            }
        }
    }

    #[test]
    fn longer_windows_of_a_reload_are_stated_in_the_file() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (file, ..) = open(dir.path(), 3);
        let length = Duration::from_secs(3600);
        file.set_longest_window(length).expect("the disk has room");
        assert_eq!(read(&file_path(dir.path())).expect("a readable file").longest_window, Some(length));
    }

    #[test]
    fn usage_of_a_day_counts_in_shorter_windows_of_keys_until_it_expires() {
        let start = Timestamp::from_seconds(1_800_000_000);
        let now = start + Duration::from_secs(14 * 3600);
        let day = Span { start, end: start + Duration::from_secs(24 * 3600) };
        let hour = Duration::from_secs(3600);
        for windows in [KeyWindows::sliding(hour), KeyWindows::FirstUse { length: hour }] {
            for (written_before, used) in [(1, 5), (2 * 3600, 0)] {
                let dir = tempfile::tempdir().expect("temporary directory");
                let path = file_path(dir.path());
                let quota = Window::Fixed { length: day.length() };
                let open_with = |windows| {
                    super::open(&path, 3, form(windows, day.length()), &quota, day, now, |_| {})
                        .expect("a readable file")
                };
                let (file, mut usage) = open_with(KeyWindows::OfQuota);
                file.write(&usage.reserve(start.0, key(1), units(5))).expect("the disk has room");
                let written_at = UNIX_EPOCH + Duration::from_secs(now.seconds() - written_before);
                File::options()
                    .write(true)
                    .open(&path)
                    .and_then(|file| file.set_modified(written_at))
                    .expect("own file");
                assert_eq!(open_with(windows).1.used(now.0, key(1)), units(used), "{windows:?} {written_before}");
            }
        }
    }

    #[test]
    fn what_is_no_regular_file_is_set_aside() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = file_path(dir.path());
        files::make_fifo(&path);
        for _ in 0..3 {
            let (file, mut usage, warnings) = open(dir.path(), 10);
            assert!(warnings[0].contains("not a regular file; the file is now"), "{warnings:?}");
            file.write(&usage.reserve(WINDOW, key(1), units(9))).expect("the disk has room");
            assert_eq!(open(dir.path(), 10).1.used(WINDOW, key(1)), units(9));
            fs::remove_file(&path).expect("it exists");
            std::os::unix::fs::symlink("/dev/null", &path).expect("the directory is writable");
        }
    }
}
