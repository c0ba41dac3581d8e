//! The store: an index in memory, and files that a thread writes.

use crate::body::BodyOwner;
use crate::format::Label;
use crate::groups::Groups;
use crate::queue::{Queue, Task};
use crate::record::{DiskRecord, NewRecord};
use crate::segment::ReadMode;
use crate::shared::{Counts, Shared};
use crate::writer::Writer;
use dashmap::DashMap;
use parking_lot::RwLock;
use std::fs::{self, DirBuilder, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Name of the file whose lock keeps other processes from the directory.
const LOCK_FILE: &str = "lock";
/// File with the name of the boot of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Records in the files of a directory. Clones share them. The files are written by a thread, which ends after the last
/// clone.
#[derive(Clone)]
pub struct DiskStore(Arc<Shared>);

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
        // Unreadable: nothing counts as written in this boot.
        let boot = fs::read_to_string(BOOT_ID).unwrap_or_default();
        Self::open_in_boot(dir, size, boot.trim())
    }

    /// Opens the store during the boot of the machine that `boot` names.
    pub(crate) fn open_in_boot(dir: &Path, size: u64, boot: &str) -> io::Result<Self> {
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
            groups: Groups::default(),
            is_loaded: AtomicBool::new(false),
            size: AtomicU64::new(size),
            bytes: AtomicU64::new(0),
            valuable_bytes: AtomicU64::new(0),
            counts: Counts::default(),
            is_closed: AtomicBool::new(false),
            lock,
        });
        let writer = Writer::new(dir.to_owned(), boot.to_owned(), Arc::downgrade(&shared));
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

    /// Reads a record, without its body. Returns `None` if there is none; a damaged one is removed. Fails only if the read
    /// would block.
    pub fn read(&self, key: u128, mode: ReadMode) -> io::Result<Option<DiskRecord>> {
        let Some((head, body)) = self.0.place(key) else { return Ok(None) };
        match self.0.read(key, head, body, mode) {
            Ok(record) => Ok(Some(record)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            Err(error) => {
                self.0.remove_damaged(key, body, &error);
                Ok(None)
            }
        }
    }

    /// Lets the record with the key stay rather than those that are not used. Returns false if there is none.
    pub fn mark_used(&self, key: u128) -> bool {
        self.0.index.get(&key).is_some_and(|location| {
            location.is_used.store(true, Ordering::Relaxed);
            true
        })
    }

    /// Stores a record soon, unless too much waits. It takes the place of an older one when it is written.
    pub fn insert(&self, record: NewRecord) {
        let key = record.key;
        self.0.groups.insert(record.group);
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

    /// Invalidates the record with the key, and after the next start, all of its group that are written now.
    pub fn invalidate(&self, key: u128, group: u64) {
        if self.may_contain_group(group) {
            self.0.invalidate(key, group);
        }
    }

    /// Returns true if the record with the key was invalidated after it was written.
    pub fn is_invalidated(&self, key: u128) -> bool {
        self.0.index.get(&key).is_some_and(|location| location.is_invalidated.load(Ordering::Acquire))
    }

    /// Returns false if the group has no records.
    pub fn may_contain_group(&self, group: u64) -> bool {
        !self.0.is_loaded.load(Ordering::Acquire) || self.0.groups.may_contain(group)
    }

    /// Removes the records whose label matches. Returns their number. Blocks the thread.
    pub fn remove_where(&self, is_removed: impl Fn(Label<'_>) -> bool + Send + 'static) -> u64 {
        let (reply, replies) = mpsc::channel();
        self.0.queue.send(Task::RemoveWhere(Box::new(is_removed), reply));
        replies.recv().unwrap_or(0)
    }

    /// Syncs the files soon: what was written before survives a power cut.
    pub fn sync(&self) {
        self.0.queue.sync();
    }

    /// Writes what waits, and lets another process use the directory: nothing is read or written here any more. Waits for at
    /// most `timeout`. Returns false if the time is over; the last records are lost then.
    pub fn close(&self, timeout: Duration) -> bool {
        let is_written = self.flush(timeout);
        self.0.is_closed.store(true, Ordering::Release);
        // What is added meanwhile is dropped by the thread.
        let is_idle = self.wait(timeout);
        let _ = self.0.lock.unlock();
        is_written && is_idle
    }

    /// Waits until all earlier tasks are done and the files synced, for at most `timeout`. Returns false if the time is over.
    pub fn flush(&self, timeout: Duration) -> bool {
        self.sync();
        self.wait(timeout)
    }

    /// Waits until all earlier tasks are done, for at most `timeout`. Returns false if the time is over.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
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
