//! What the store and its thread share: where each record is, and what waits.

use crate::body::{BodyOwner, DiskBody};
use crate::format::{RecordHead, Span, split_frame};
use crate::groups::Groups;
use crate::queue::Queue;
use crate::record::{DiskRecord, MIN_RECORD};
use crate::segment::{ReadMode, Segment};
use dashmap::DashMap;
use foldhash::fast::RandomState;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tracing::warn;

/// What the store and its thread share.
pub(crate) struct Shared {
    pub(crate) index: DashMap<u128, Location, RandomState>,
    pub(crate) segments: RwLock<BTreeMap<u32, Arc<Segment>>>,
    pub(crate) queue: Queue,
    /// Groups of all records that are in the files, or wait to be written.
    pub(crate) groups: Groups,
    /// The index files have been read.
    pub(crate) is_loaded: AtomicBool,
    pub(crate) size: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Bytes of the valuable records.
    pub(crate) valuable_bytes: AtomicU64,
    pub(crate) counts: Counts,
    /// Another process uses the files now.
    pub(crate) is_closed: AtomicBool,
    /// Keeps other processes from the directory.
    pub(crate) lock: File,
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
    pub(crate) is_valuable: bool,
    /// The record was used since it was written.
    pub(crate) is_used: AtomicBool,
    /// The record was invalidated since it was written.
    pub(crate) is_invalidated: AtomicBool,
}

impl Location {
    pub(crate) fn new(head: Span, body: Span, is_valuable: bool, is_invalidated: bool) -> Self {
        let (is_used, is_invalidated) = (AtomicBool::new(false), AtomicBool::new(is_invalidated));
        Self { head, body, is_valuable, is_used, is_invalidated }
    }

    /// Returns the place as it is now.
    pub(crate) fn copied(&self) -> Self {
        let copied = |flag: &AtomicBool| AtomicBool::new(flag.load(Ordering::Acquire));
        let (is_used, is_invalidated) = (copied(&self.is_used), copied(&self.is_invalidated));
        Self { head: self.head, body: self.body, is_valuable: self.is_valuable, is_used, is_invalidated }
    }

    /// Returns the bytes of head and body.
    pub(crate) fn length(&self) -> u64 {
        u64::from(self.head.length) + u64::from(self.body.length)
    }

    /// Returns the bytes that it counts as a valuable record.
    fn valuable_length(&self) -> u64 {
        if self.is_valuable { self.length().max(MIN_RECORD) } else { 0 }
    }
}

impl Shared {
    /// Returns true if records may be read.
    pub(crate) fn is_readable(&self) -> bool {
        self.is_loaded.load(Ordering::Acquire) && !self.queue.is_overflowed() && !self.is_closed.load(Ordering::Acquire)
    }

    /// Adds a record to the index, in place of that of the key.
    pub(crate) fn add(&self, key: u128, location: Location) {
        self.valuable_bytes.fetch_add(location.valuable_length(), Ordering::Relaxed);
        if let Some(replaced) = self.index.insert(key, location) {
            self.valuable_bytes.fetch_sub(replaced.valuable_length(), Ordering::Relaxed);
        }
    }

    /// Takes a record out of the index, if `is_taken`.
    pub(crate) fn take(&self, key: u128, is_taken: impl FnOnce(&Location) -> bool) {
        if let Some((_, location)) = self.index.remove_if(&key, |_, location| is_taken(location)) {
            self.valuable_bytes.fetch_sub(location.valuable_length(), Ordering::Relaxed);
        }
    }

    /// Takes the records out of the index that are not `kept`.
    pub(crate) fn retain(&self, kept: impl Fn(&Location) -> bool) {
        self.index.retain(|_, location| {
            let is_kept = kept(location);
            if !is_kept {
                self.valuable_bytes.fetch_sub(location.valuable_length(), Ordering::Relaxed);
            }
            is_kept
        });
    }

    /// Returns the places of head and body of a record.
    pub(crate) fn place(&self, key: u128) -> Option<(Span, Span)> {
        let location = self.is_readable().then(|| self.index.get(&key))??;
        Some((location.head, location.body))
    }

    /// Reads the record at a place, without its body.
    pub(crate) fn read(self: &Arc<Self>, key: u128, head: Span, body: Span, mode: ReadMode) -> io::Result<DiskRecord> {
        let frame = self.segment(head)?.read(u64::from(head.offset), head.length as usize, mode)?;
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
            owner: Arc::downgrade(self) as Weak<dyn BodyOwner>,
            key,
            is_damaged: Arc::default(),
        };
        Ok(DiskRecord { meta: record.meta.to_vec(), body })
    }

    /// Removes the record with the key, and those that wait to be written.
    pub(crate) fn remove(&self, key: u128) {
        // Nothing to remove: neither written, nor waiting, nor perhaps in an index that is being read.
        if self.is_loaded.load(Ordering::Acquire) && self.queue.is_empty() && !self.index.contains_key(&key) {
            return;
        }
        self.queue.remove(key);
        self.take(key, |_| true);
    }

    /// Invalidates the record with the key, those that wait to be written, and its group, as the next start finds it.
    pub(crate) fn invalidate(&self, key: u128, group: u64) {
        self.queue.invalidate(key, group);
        if let Some(location) = self.index.get(&key) {
            location.is_invalidated.store(true, Ordering::Release);
        }
    }

    fn segment(&self, span: Span) -> io::Result<Arc<Segment>> {
        self.segments.read().get(&span.segment).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl BodyOwner for Shared {
    fn remove_damaged(&self, key: u128, body: Span, error: &io::Error) {
        if self.index.get(&key).is_some_and(|location| location.body == body) {
            self.counts.on_error(&format!("removing an unreadable response: {error}"));
            self.remove(key);
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Shared").finish_non_exhaustive()
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
