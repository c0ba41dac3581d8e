//! File with the usage of each key in the two latest windows of a quota.
//!
//! A change is written in place, before the request that it is for is sent: writes survive the exit of a process. After a kill,
//! what was reserved counts as used. Writes are synced to the disk every second, by no thread of requests. While a sync takes
//! too long or after it has failed, nothing more is written, so that no request waits for the disk.
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
use std::time::Duration;
use tidegate_policy::hash::{fnv1a, mix};
use tidegate_policy::identity::ClientKey;
use tidegate_policy::key_usage::{ChangedEntry, KeyEntry, KeyUsage, Place, TABLES};
use tidegate_policy::window::Span;
use tidegate_policy::{Timestamp, Units};

/// First bytes of the file: its kind, and its version in the last one. Version 1 counts one window, so its records are of one table;
/// it and version 2 do not state for how many records the file has room.
const MAGIC: &[u8; 8] = b"keys\0\0\0\x03";

/// Kind and version, number of records that the file has room for, and checksum, each of 8 bytes.
const HEADER_LEN: usize = 24;

/// Window, key, used units, floor and checksum, each of 8 bytes.
const RECORD_LEN: usize = 40;

/// Time of a sync from which on nothing is written: long before the system would stop writers until the disk is done.
const MAX_SYNC_TIME: Duration = Duration::from_secs(2);

/// Record of an entry that was never used.
const EMPTY: [u8; RECORD_LEN] = [0; RECORD_LEN];

/// Number of records of which the room in a file is a multiple.
const ROOM_STEP: u64 = 128;

/// Maximum number of records that are read: four times the maximum of `max_keys` in each window.
const MAX_RECORDS: usize = 40_000_000 * TABLES;

/// An open file of the usage of keys.
#[derive(Debug)]
pub(crate) struct KeyFile {
    path: PathBuf,
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
    pub(crate) fn create(path: &Path, records: impl Iterator<Item = ChangedEntry>) -> Result<Self> {
        let draft = path.with_extension("new");
        if let Err(error) = fs::remove_file(&draft)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error);
        }
        let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&draft)?;
        let mut writer = BufWriter::new(&file);
        writer.write_all(&header(0))?;
        let mut next = 0;
        for record in records {
            let index = index(record.place);
            (next..index).try_for_each(|_| writer.write_all(&EMPTY))?;
            writer.write_all(&encode(&record))?;
            next = index + 1;
        }
        writer.flush()?;
        drop(writer);
        let created = Self::of(path, file, 0);
        created.make_room(next)?;
        created.open.file.sync_all()?;
        fs::rename(&draft, path)?;
        File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(created)
    }

    fn of(path: &Path, file: File, room: u64) -> Self {
        let open = OpenFile {
            file,
            is_dirty: AtomicBool::new(false),
            sync_began: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
        };
        Self { path: path.to_owned(), open: Arc::new(open), room: Cell::new(room) }
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
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
        Self::of(&path, File::open(&path).expect("the file exists"), u64::MAX)
    }

    /// Returns the file of a quota, which cannot be synced.
    #[cfg(test)]
    pub(crate) fn unsyncable(dir: &Path, quota: &str) -> Self {
        let device = OpenOptions::new().write(true).open("/dev/null").expect("it exists");
        Self::of(&path(dir, Kind::Budgets, quota), device, u64::MAX)
    }

    /// Returns the file of a quota, of which a sync began at `began` and does not end.
    #[cfg(test)]
    pub(crate) fn stalled(dir: &Path, quota: &str, began: Timestamp) -> Self {
        let path = path(dir, Kind::Budgets, quota);
        let file = Self::of(&path, OpenOptions::new().write(true).open(&path).expect("the file exists"), u64::MAX);
        file.open.sync_began.store(began.0, Ordering::Relaxed);
        file
    }

    /// Writes a changed entry in its place.
    ///
    /// # Errors
    ///
    /// Fails as a write does, for example because the disk is full.
    pub(crate) fn write(&self, record: &ChangedEntry) -> Result<()> {
        let index = index(record.place);
        self.open.is_dirty.store(true, Ordering::Release);
        self.make_room(index)?;
        self.open.file.write_all_at(&encode(record), HEADER_LEN as u64 + index * RECORD_LEN as u64)
    }

    /// Makes room for the record `index`.
    fn make_room(&self, index: u64) -> Result<()> {
        if index < self.room.get() {
            return Ok(());
        }
        let room = (index + 1).max(2 * self.room.get()).next_multiple_of(ROOM_STEP);
        // In this order, no kill leaves a file that is shorter than it states.
        self.open.file.set_len(HEADER_LEN as u64 + room * RECORD_LEN as u64)?;
        self.open.file.write_all_at(&header(room), 0)?;
        self.room.set(room);
        Ok(())
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
    records: Vec<ChangedEntry>,
    /// Number of records that are damaged, or missing between others, as a power cut may leave them.
    damaged: usize,
    /// Number of bytes that the file has fewer than its header states.
    missing: u64,
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
    let mut reader = BufReader::new(File::open(path)?).take((HEADER_LEN + MAX_RECORDS * RECORD_LEN) as u64);
    let mut start = [0; HEADER_LEN];
    let (magic, rest) = start.split_at_mut(MAGIC.len());
    reader.read_exact(magic)?;
    let (damaged, missing, tables) = match &*magic {
        current if current == MAGIC => {
            reader.read_exact(rest)?;
            let room = room(&start);
            let stated = room.unwrap_or_default().saturating_mul(RECORD_LEN as u64).saturating_add(HEADER_LEN as u64);
            (usize::from(room.is_none()), stated.saturating_sub(metadata.len()), TABLES)
        }
        b"keys\0\0\0\x02" => (0, 0, TABLES),
        b"keys\0\0\0\x01" => (0, 0, 1),
        _ => return Err(Error::other("not a file of this version or an earlier one")),
    };
    let mut content = Content { records: Vec::new(), damaged, missing };
    // Entries of a table are written without gaps.
    let mut gaps = [0; TABLES];
    let mut bytes = [0; RECORD_LEN];
    for index in (0..).step_by(TABLES / tables) {
        let place = place(index);
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

/// Opens the file of a quota, and returns the usage in it. What was counted in shorter windows counts in the current `window` if
/// it contains the latest of them. Sets an unreadable file aside. Passes what is lost to `warn`.
///
/// # Errors
///
/// Fails if the directory cannot be written.
pub(crate) fn open(path: &Path, max_keys: usize, window: Span, warn: impl Fn(String)) -> Result<(KeyFile, KeyUsage)> {
    files::create_dir(path.parent().unwrap_or(Path::new(".")))?;
    let shown = path.display();
    let Content { records, damaged, missing } = read(path).unwrap_or_else(|error| {
        let reason = format!("{shown} is unusable, and the usage of all keys is lost: {error}");
        warn(files::set_aside_for(path, &reason));
        Content::default()
    });
    if damaged > 0 {
        warn(format!("{damaged} records of {shown} are damaged, and what their keys had used is lost"));
    }
    if missing > 0 {
        warn(format!("{shown} is truncated by {missing} bytes, and what the keys in them had used is lost"));
    }
    let mut usage = KeyUsage::restore(max_keys, &records);
    let latest = usage.latest_window();
    if window.start.0 < latest && latest < window.end.0 {
        usage.redefine(latest, window.start.0);
    }
    Ok((KeyFile::create(path, usage.records())?, usage))
}

/// Returns the header of a file with room for `room` records.
fn header(room: u64) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&room.to_le_bytes());
    let checksum = checksum(&bytes[..16]);
    bytes[16..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Returns the number of records that a file with this header has room for; `None` if the header is damaged.
fn room(header: &[u8; HEADER_LEN]) -> Option<u64> {
    let number = |start: usize| u64::from_le_bytes(std::array::from_fn(|byte| header[start + byte]));
    (number(16) == checksum(&header[..16])).then(|| number(8))
}

fn encode(record: &ChangedEntry) -> [u8; RECORD_LEN] {
    let ChangedEntry { window, entry: KeyEntry { key, used }, floor, .. } = *record;
    let mut bytes = [0; RECORD_LEN];
    for (place, number) in bytes.chunks_exact_mut(8).zip([window, key.to_u64(), used.milli(), floor.milli()]) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    let checksum = checksum(&bytes[..RECORD_LEN - 8]);
    bytes[RECORD_LEN - 8..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Returns the number of the record of an entry: those of one slot follow each other.
fn index(place: Place) -> u64 {
    u64::from(place.slot) * TABLES as u64 + u64::from(place.table)
}

fn place(index: u64) -> Place {
    Place { table: (index % TABLES as u64) as u8, slot: (index / TABLES as u64) as u32 }
}

fn decode(place: Place, bytes: &[u8; RECORD_LEN]) -> Option<ChangedEntry> {
    let number = |index: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * index + byte]));
    (number(4) == checksum(&bytes[..RECORD_LEN - 8])).then(|| ChangedEntry {
        place,
        window: number(0),
        entry: KeyEntry { key: ClientKey::from_u64(number(1)), used: Units::from_milli(number(2)) },
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

    fn key(number: u64) -> ClientKey {
        ClientKey::from_credential(number)
    }

    fn units(whole: u64) -> Units {
        Units::from_whole(whole)
    }

    fn span(window: u64) -> Span {
        Span { start: Timestamp(window), end: Timestamp(window + 1) }
    }

    fn open(dir: &Path, max_keys: usize) -> (KeyFile, KeyUsage, Vec<String>) {
        let warnings = RefCell::new(Vec::new());
        let (file, usage) =
            super::open(&file_path(dir), max_keys, span(WINDOW), |text| warnings.borrow_mut().push(text))
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
        let of_one_table = records.clone().step_by(TABLES);
        for (version, records) in
            [(1, of_one_table.flatten().copied().collect()), (2, records.flatten().copied().collect::<Vec<u8>>())]
        {
            let content = [&b"keys\0\0\0"[..], &[version], &records].concat();
            fs::write(file_path(dir.path()), content).expect("the file can be written");
            let (_, read, warnings) = open(dir.path(), 9);
            assert_eq!(warnings, [""; 0]);
            for number in 0..6 {
                assert_eq!(read.used(WINDOW, key(number)), usage.used(WINDOW, key(number)), "{version}: {number}");
            }
        }
        fs::write(file_path(dir.path()), b"keys\0\0\0\x04................").expect("the file can be written");
        let (_, read, warnings) = open(dir.path(), 9);
        assert!(
            warnings[0].contains("not a file of this version or an earlier one") && read.len(WINDOW) == 0,
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
        assert_eq!((usage.len(WINDOW + 1), usage.used(WINDOW + 1, key(20))), (10, Units::ZERO));
        file.write(&usage.reserve(WINDOW + 1, key(20), units(3))).expect("the disk has room");
        file.write(&usage.reserve(WINDOW + 2, key(0), units(8))).expect("the disk has room");
        let (_, usage, _) = open(dir.path(), 4);
        assert!(usage.is_forgotten(WINDOW), "it made room for another one");
        assert_eq!([WINDOW + 1, WINDOW + 2].map(|window| usage.len(window)), [11, 1]);
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
        let (_, usage) = super::open(&file_path(dir.path()), 3, day, |_| {}).expect("the directory is writable");
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
        bytes[HEADER_LEN + TABLES * RECORD_LEN + 16] ^= 1;
        fs::write(&path, &bytes).expect("the disk has room");
        let (_, restored, warnings) = open(dir.path(), 10);
        assert_eq!([0, 1, 2].map(|number| restored.used(WINDOW, key(number)).floor()), [9, 0, 9]);
        assert!(warnings[0].starts_with("1 records of"), "{warnings:?}");
        fs::write(&path, "something else").expect("the disk has room");
        let (_, restored, warnings) = open(dir.path(), 10);
        assert_eq!(restored.len(WINDOW), 0);
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
            assert!(restored.len(WINDOW) <= whole);
        }
        fs::write(&path, &content).expect("the disk has room");
        assert_eq!(open(dir.path(), 10).2, [""; 0]);
    }

    #[test]
    fn records_lost_between_others_and_a_damaged_header_are_reported() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (path, content) = filled(dir.path());
        for (place, length, left) in [(HEADER_LEN, TABLES * RECORD_LEN * 2, 3), (8, 1, 5)] {
            let mut damaged = content.clone();
            damaged[place..place + length].fill(0);
            fs::write(&path, &damaged).expect("the disk has room");
            let (_, restored, warnings) = open(dir.path(), 10);
            assert!(warnings.len() == 1 && warnings[0].contains("records of"), "{warnings:?}");
            assert_eq!(restored.len(WINDOW), left);
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
