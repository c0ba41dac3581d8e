//! File with the usage of each key in the two latest windows of a quota.
//!
//! A change is written in place, before the request that it is for is sent: writes survive the exit of a process. After a kill,
//! what was reserved counts as used. Writes are synced to the disk every second, by no thread of requests. While a sync takes
//! too long or after it has failed, nothing more is written, so that no request waits for the disk.

use crate::files;
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

/// First bytes of the file: its kind and version.
const MAGIC: &[u8; 8] = b"keys\0\0\0\x02";

/// Window, key, used units, floor and checksum, each of 8 bytes.
const RECORD_LEN: usize = 40;

/// Time of a sync from which on nothing is written: long before the system would stop writers until the disk is done.
const MAX_SYNC_TIME: Duration = Duration::from_secs(2);

/// Record of an entry that was never used.
const EMPTY: [u8; RECORD_LEN] = [0; RECORD_LEN];

/// Maximum number of records that are read: four times the maximum of `max_keys` in each window.
const MAX_RECORDS: usize = 40_000_000 * TABLES;

/// An open file of the usage of keys.
#[derive(Debug)]
pub(crate) struct KeyFile {
    path: PathBuf,
    pub(super) open: Arc<OpenFile>,
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
        writer.write_all(MAGIC)?;
        let mut next = 0;
        for record in records {
            let index = index(record.place);
            (next..index).try_for_each(|_| writer.write_all(&EMPTY))?;
            writer.write_all(&encode(&record))?;
            next = index + 1;
        }
        writer.flush()?;
        drop(writer);
        file.sync_all()?;
        fs::rename(&draft, path)?;
        File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(Self::of(path, file))
    }

    fn of(path: &Path, file: File) -> Self {
        let open = OpenFile {
            file,
            is_dirty: AtomicBool::new(false),
            sync_began: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
        };
        Self { path: path.to_owned(), open: Arc::new(open) }
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
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
        let path = path(dir, quota);
        Self::of(&path, File::open(&path).expect("the file exists"))
    }

    /// Returns the file of a quota, which cannot be synced.
    #[cfg(test)]
    pub(crate) fn unsyncable(dir: &Path, quota: &str) -> Self {
        let device = OpenOptions::new().write(true).open("/dev/null").expect("it exists");
        Self::of(&path(dir, quota), device)
    }

    /// Returns the file of a quota, of which a sync began at `began` and does not end.
    #[cfg(test)]
    pub(crate) fn stalled(dir: &Path, quota: &str, began: Timestamp) -> Self {
        let path = path(dir, quota);
        let file = Self::of(&path, OpenOptions::new().write(true).open(&path).expect("the file exists"));
        file.open.sync_began.store(began.0, Ordering::Relaxed);
        file
    }

    /// Writes a changed entry in its place.
    ///
    /// # Errors
    ///
    /// Fails as a write does, for example because the disk is full.
    pub(crate) fn write(&self, record: &ChangedEntry) -> Result<()> {
        let offset = MAGIC.len() as u64 + index(record.place) * RECORD_LEN as u64;
        self.open.is_dirty.store(true, Ordering::Release);
        self.open.file.write_all_at(&encode(record), offset)
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

/// Returns the path of the file for a quota in a state directory.
pub(crate) fn path(dir: &Path, quota: &str) -> PathBuf {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let name: String = quota
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") })
        .collect();
    dir.join(format!("key_usage.{name}.bin"))
}

/// Reads the file at `path`; nothing if there is none. Damaged records, which a power cut may leave, are left out: their number
/// is returned, too.
///
/// # Errors
///
/// Fails if the file cannot be read, or is no file of this kind.
pub(crate) fn read(path: &Path) -> Result<(Vec<ChangedEntry>, usize)> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        file => file?,
    };
    if !file.metadata()?.is_file() {
        return Err(Error::other("not a regular file"));
    }
    let mut reader = BufReader::new(file).take((MAGIC.len() + MAX_RECORDS * RECORD_LEN) as u64);
    let mut magic = [0; MAGIC.len()];
    reader.read_exact(&mut magic)?;
    if magic != *MAGIC {
        return Err(Error::other("not a file of this version"));
    }
    let (mut records, mut damaged) = (Vec::new(), 0);
    let mut bytes = [0; RECORD_LEN];
    for index in 0.. {
        match reader.read_exact(&mut bytes) {
            Ok(()) if bytes == EMPTY => {}
            Ok(()) => match decode(place(index), &bytes) {
                Some(record) => records.push(record),
                None => damaged += 1,
            },
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        }
    }
    Ok((records, damaged))
}

/// Opens the file of a quota, and returns the usage in it. What was counted in shorter windows counts in the current `window` if
/// it contains the latest of them. Sets an unreadable file aside, and passes the reason to `warn`.
///
/// # Errors
///
/// Fails if the directory cannot be written.
pub(crate) fn open(
    dir: &Path,
    quota: &str,
    max_keys: usize,
    window: Span,
    warn: impl Fn(String),
) -> Result<(KeyFile, KeyUsage)> {
    files::create_dir(dir)?;
    let path = path(dir, quota);
    let records = match read(&path) {
        Ok((records, 0)) => records,
        Ok((records, damaged)) => {
            warn(format!("{damaged} records of {} are damaged, and what their keys had used is lost", path.display()));
            records
        }
        Err(error) => {
            warn(files::set_aside_for(
                &path,
                &format!("{} is unusable, and the usage of all keys is lost: {error}", path.display()),
            ));
            Vec::new()
        }
    };
    let mut usage = KeyUsage::restore(max_keys, &records);
    let latest = usage.latest_window();
    if window.start.0 < latest && latest < window.end.0 {
        usage.redefine(latest, window.start.0);
    }
    Ok((KeyFile::create(&path, usage.records())?, usage))
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
        let (file, usage) = super::open(dir, "a/b", max_keys, span(WINDOW), |text| warnings.borrow_mut().push(text))
            .expect("the directory is writable");
        (file, usage, warnings.into_inner())
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
        assert_eq!([WINDOW + 1, WINDOW + 2].map(|window| usage.len(window)), [4, 1]);
        assert_eq!(usage.used(WINDOW + 2, key(0)), units(8));
        assert!((0..10).all(|number| usage.used(WINDOW + 1, key(number)) >= units(1)));
        assert_eq!(usage.used(WINDOW + 1, key(20)), units(3).max(usage.used(WINDOW + 1, key(20))));
    }

    #[test]
    fn usage_counts_in_a_longer_window_that_began_before() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (file, mut usage, _) = open(dir.path(), 3);
        for (window, used) in [(WINDOW - 1, 2), (WINDOW, 5)] {
            file.write(&usage.reserve(window, key(1), units(used))).expect("the disk has room");
        }
        let day = Span { start: Timestamp(1), end: Timestamp(WINDOW + 9) };
        let (_, usage) = super::open(dir.path(), "a/b", 3, day, |_| {}).expect("the directory is writable");
        assert_eq!([1, WINDOW].map(|window| usage.used(window, key(1))), [units(5), Units::ZERO]);
    }

    #[test]
    fn damage_is_reported_and_loses_only_what_is_damaged() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (file, mut usage, _) = open(dir.path(), 10);
        for number in 0..3 {
            file.write(&usage.reserve(WINDOW, key(number), units(9))).expect("the disk has room");
        }
        let path = path(dir.path(), "a/b");
        assert!(path.ends_with("key_usage.a%2fb.bin"));
        let mut bytes = fs::read(&path).expect("the file exists");
        bytes[MAGIC.len() + TABLES * RECORD_LEN + 16] ^= 1;
        fs::write(&path, &bytes).expect("the disk has room");
        let (_, restored, warnings) = open(dir.path(), 10);
        assert_eq!([0, 1, 2].map(|number| restored.used(WINDOW, key(number)).floor()), [9, 0, 9]);
        assert!(warnings[0].starts_with("1 records of"), "{warnings:?}");
        fs::write(&path, "something else").expect("the disk has room");
        let (_, restored, warnings) = open(dir.path(), 10);
        assert_eq!(restored.len(WINDOW), 0);
        assert!(warnings[0].contains("is unusable") && warnings[0].contains("the file is now"), "{warnings:?}");
    }
}
