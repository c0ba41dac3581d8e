//! The store: an index in memory, and files that a thread writes.

use crate::body::DiskBody;
use crate::format::{FRAME_HEAD, Label, RecordHead, Span, split_frame};
use crate::queue::{Queue, Task};
use crate::segment::Segment;
use crate::writer::Writer;
use bytes::Bytes;
use dashmap::DashMap;
use foldhash::fast::RandomState;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tracing::warn;

/// Name of the file whose lock keeps other processes from the directory.
const LOCK_FILE: &str = "lock";

/// Records in the files of a directory. Clones share them. The files are written by a thread, which ends after the last
/// clone.
#[derive(Clone)]
pub struct DiskStore(Arc<Shared>);

/// What the store and its thread share.
pub(crate) struct Shared {
    pub(crate) index: DashMap<u128, Location, RandomState>,
    pub(crate) segments: RwLock<BTreeMap<u32, Arc<Segment>>>,
    pub(crate) queue: Queue,
    /// The index files have been read.
    pub(crate) is_loaded: AtomicBool,
    pub(crate) size: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) counts: Counts,
    _lock: File,
}

/// Counts since the start.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) dropped: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) evictions: AtomicU64,
}

/// Place of a record.
#[derive(Debug)]
pub(crate) struct Location {
    pub(crate) head: Span,
    pub(crate) body: Span,
    /// The record was read since it was written.
    pub(crate) is_used: AtomicBool,
}

/// A record to be stored.
#[derive(Debug)]
pub struct NewRecord {
    /// Key; the record replaces that of the same key.
    pub key: u128,
    /// Group: [`DiskStore::remove_group`] removes all its records.
    pub group: u64,
    /// URL, for removals.
    pub url: Box<str>,
    /// Tags, separated by line feeds, for removals.
    pub tags: Box<str>,
    /// What is stored with the body.
    pub meta: Vec<u8>,
    /// The body.
    pub body: NewBody,
}

/// Body of a record to be stored.
#[derive(Debug)]
pub enum NewBody {
    /// These parts.
    Parts(Vec<Bytes>),
    /// The body of the record with the same key, which stays where it is.
    Unchanged,
}

/// A record that was read.
#[derive(Debug)]
pub struct DiskRecord {
    /// What was stored with the body.
    pub meta: Vec<u8>,
    /// The body, still in its file.
    pub body: DiskBody,
}

/// Contents of the store, and counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// The index files have been read: all records are known.
    pub is_loaded: bool,
    /// Number of records.
    pub entries: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Bytes that they may have.
    pub limit: u64,
    /// Number of records that were displaced.
    pub evictions: u64,
    /// Number of records that were not written, because too much waited.
    pub dropped: u64,
    /// Number of failed reads and writes, and of damaged records.
    pub errors: u64,
}

impl DiskStore {
    /// Opens the store in `dir`, which is created. Its records are known after the index files are read by the thread.
    /// Fails if another process uses the directory.
    pub fn open(dir: &Path, size: u64) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(dir.join(LOCK_FILE))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::Error(error) => error,
            TryLockError::WouldBlock => io::Error::new(io::ErrorKind::ResourceBusy, "another process uses it"),
        })?;
        let (queue, tasks) = Queue::new();
        let shared = Arc::new(Shared {
            index: DashMap::default(),
            segments: RwLock::default(),
            queue,
            is_loaded: AtomicBool::new(false),
            size: AtomicU64::new(size),
            bytes: AtomicU64::new(0),
            counts: Counts::default(),
            _lock: lock,
        });
        let writer = Writer::new(dir.to_owned(), Arc::downgrade(&shared));
        std::thread::Builder::new().name("cache-disk".into()).spawn(move || writer.run(&tasks))?;
        Ok(Self(shared))
    }

    /// Changes the size of the files. Takes effect with the next record.
    pub fn set_size(&self, size: u64) {
        self.0.size.store(size, Ordering::Relaxed);
    }

    /// Returns true if there is a record with the key.
    pub fn contains(&self, key: u128) -> bool {
        self.0.is_readable() && self.0.index.contains_key(&key)
    }

    /// Reads a record, without its body. Blocks the thread. Returns `None` if there is none; a damaged one is removed.
    pub fn read(&self, key: u128) -> Option<DiskRecord> {
        if !self.0.is_readable() {
            return None;
        }
        let (head, body) = {
            let location = self.0.index.get(&key)?;
            location.is_used.store(true, Ordering::Relaxed);
            (location.head, location.body)
        };
        match self.0.read(key, head, body) {
            Ok(record) => Some(record),
            Err(error) => {
                self.0.remove_damaged(key, body, &error);
                None
            }
        }
    }

    /// Stores a record soon, unless too much waits. It takes the place of an older one when it is written.
    pub fn insert(&self, record: NewRecord) {
        let key = record.key;
        if !self.0.queue.insert(Box::new(record)) {
            self.0.counts.dropped.fetch_add(1, Ordering::Relaxed);
            // The older record is not the one that was to be stored.
            if self.0.index.contains_key(&key) {
                self.remove(key);
            }
        }
    }

    /// Removes the record with the key, and those that wait to be written.
    pub fn remove(&self, key: u128) {
        self.0.remove(key);
    }

    /// Removes the records of a group, after the next start at the latest.
    pub fn remove_group(&self, group: u64) {
        self.0.queue.remove_group(group);
    }

    /// Removes the records whose label matches. Returns their number. Blocks the thread.
    pub fn remove_where(&self, is_removed: impl Fn(Label<'_>) -> bool + Send + 'static) -> u64 {
        let (reply, replies) = mpsc::channel();
        self.0.queue.send(Task::RemoveWhere(Box::new(is_removed), reply));
        replies.recv().unwrap_or(0)
    }

    /// Waits until all earlier tasks are done, for at most `timeout`. Returns false if the time is over.
    pub fn flush(&self, timeout: Duration) -> bool {
        let (reply, replies) = mpsc::channel();
        self.0.queue.send(Task::Flush(reply));
        replies.recv_timeout(timeout).is_ok()
    }

    /// Returns what the store contains.
    pub fn stats(&self) -> DiskStats {
        let Shared { index, is_loaded, size, bytes, counts, .. } = &*self.0;
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        DiskStats {
            is_loaded: is_loaded.load(Ordering::Acquire),
            entries: index.len() as u64,
            bytes: get(bytes),
            limit: get(size),
            evictions: get(&counts.evictions),
            dropped: get(&counts.dropped),
            errors: get(&counts.errors),
        }
    }
}

impl Shared {
    fn is_readable(&self) -> bool {
        self.is_loaded.load(Ordering::Acquire) && !self.queue.is_overflowed()
    }

    /// Reads the record at a place, without its body.
    pub(crate) fn read(self: &Arc<Self>, key: u128, head: Span, body: Span) -> io::Result<DiskRecord> {
        let frame = self.segment(head)?.read(u64::from(head.offset), head.length as usize)?;
        let record = split_frame::<RecordHead<'_>>(&frame).map(|(record, _)| record);
        // The key and the place are compared, so that no record is taken for another.
        let Some(record) = record.filter(|record| record.key == key && record.body == body) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the head is damaged"));
        };
        let segment = if body.length == 0 { None } else { Some(self.segment(body)?) };
        let body = DiskBody {
            segment,
            span: body,
            checksums: record.checksums.into(),
            owner: Arc::downgrade(self),
            key,
            is_damaged: Arc::default(),
        };
        Ok(DiskRecord { meta: record.meta.to_vec(), body })
    }

    fn remove(&self, key: u128) {
        self.queue.remove(key);
        self.index.remove(&key);
    }

    /// Removes a record whose read failed, unless another has taken its place.
    pub(crate) fn remove_damaged(&self, key: u128, body: Span, error: &io::Error) {
        if self.index.get(&key).is_some_and(|location| location.body == body) {
            self.counts.on_error(&format!("removing an unreadable response: {error}"));
            self.remove(key);
        }
    }

    fn segment(&self, span: Span) -> io::Result<Arc<Segment>> {
        self.segments.read().get(&span.segment).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Counts {
    /// Counts an error. The first one is logged, and each that doubles their number.
    pub(crate) fn on_error(&self, message: &str) {
        let count = self.errors.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            warn!(count, "Cache on disk: {message}; {count} errors since the start");
        }
    }
}

impl NewRecord {
    /// Returns the number of bytes of the body that are written.
    pub(crate) fn body_length(&self) -> u64 {
        match &self.body {
            NewBody::Parts(parts) => parts.iter().map(|part| part.len() as u64).sum(),
            NewBody::Unchanged => 0,
        }
    }

    /// Returns at least the number of bytes that the record occupies.
    pub(crate) fn length(&self) -> u64 {
        let label = (self.url.len() + self.tags.len()) as u64;
        self.body_length() + self.body_length() / 8192 + self.meta.len() as u64 + label + 4 * FRAME_HEAD as u64 + 128
    }
}
