//! The thread that reads the index files at the start, and writes all files.

use crate::format::{IndexEntry, IndexHead, Label, RecordHead, Span, split_frame};
use crate::load::{entries_of, load};
use crate::queue::Task;
use crate::record::{MIN_RECORD, NewBody, NewRecord};
use crate::segment::{self, ReadMode, SegmentWriter};
use crate::shared::{Location, Shared};
use foldhash::fast::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};

/// Number of segments that the size of the files is divided into.
const SEGMENTS: u64 = 64;
/// Least and greatest bytes of a segment, besides its last record.
const SEGMENT_BYTES: (u64, u64) = (1 << 20, 1 << 30);
/// Part of all files that one record may be, as a divisor.
const RECORD_PART: u64 = 8;
/// Part of a segment whose used records move to the newest one, as a divisor.
const SECOND_CHANCE_PART: u64 = 2;
/// Part of the files up to which valuable records stay whatever else is written, as a divisor. Beyond it, no other records
/// are written.
const VALUABLE_PART: u64 = 2;
/// Most groups whose invalidations are remembered.
const MAX_INVALIDATED_GROUPS: usize = 64 * 1024;

/// The thread that writes.
pub(crate) struct Writer {
    dir: PathBuf,
    /// Name of the boot of the machine.
    boot: String,
    /// The thread ends after the store.
    shared: Weak<Shared>,
    current: Option<SegmentWriter>,
    next_segment: u32,
    /// Bytes of each closed segment.
    closed: BTreeMap<u32, u64>,
    /// Segment of the last invalidation of each group: records of the group have no second chance, which would be newer.
    invalidated_groups: HashMap<u64, u32, RandomState>,
    /// Segments up to this one have no second chance: invalidations of their records were forgotten.
    forgotten: Option<u32>,
}

impl Writer {
    pub(crate) fn new(dir: PathBuf, boot: String, shared: Weak<Shared>) -> Self {
        let (current, next_segment, closed, invalidated_groups, forgotten) = Default::default();
        Self { dir, boot, shared, current, next_segment, closed, invalidated_groups, forgotten }
    }

    /// Loads the index, then works until the store is dropped.
    pub(crate) fn run(mut self, tasks: &Receiver<Task>) {
        if let Some(shared) = self.shared.upgrade() {
            let unsynced = self.load(&shared);
            shared.is_loaded.store(true, Ordering::Release);
            for (number, end) in unsynced {
                let synced = segment::sync_closed(&self.dir, number, end);
                self.check(&shared, synced);
            }
        }
        while let Ok(task) = tasks.recv() {
            match task {
                // The store is not held here, so that its owner can open the directory again.
                Task::Flush(reply) => drop(reply.send(())),
                task => {
                    let Some(shared) = self.shared.upgrade() else { return };
                    self.work(&shared, task);
                }
            }
        }
    }

    /// Loads the index. Returns the segments that are not synced, with the ends of their entries.
    fn load(&mut self, shared: &Arc<Shared>) -> Vec<(u32, u64)> {
        let loaded = match load(&self.dir, &self.boot) {
            Ok(loaded) => loaded,
            Err(error) => {
                shared.counts.on_error(&format!("index unreadable, starting empty: {error}"));
                self.delete_all(shared);
                return Vec::new();
            }
        };
        self.next_segment = loaded.next_segment;
        self.invalidated_groups = loaded.invalidated_groups;
        for (number, (segment, bytes)) in loaded.segments {
            self.closed.insert(number, bytes);
            shared.segments.write().insert(number, segment);
        }
        for (key, group, location) in loaded.records {
            shared.groups.insert(group);
            // A removal or invalidation of the meantime may wait.
            shared.queue.publish(key, |is_invalidated| {
                location.is_invalidated.fetch_or(is_invalidated, Ordering::AcqRel);
                shared.add(key, location);
            });
        }
        self.count_bytes(shared);
        loaded.unsynced
    }

    fn work(&mut self, shared: &Arc<Shared>, task: Task) {
        if shared.is_closed.load(Ordering::Acquire) {
            return;
        }
        if shared.queue.is_overflowed() {
            self.delete_all(shared);
            shared.queue.end_overflow();
        }
        match task {
            // Its removal may be among those that were forgotten.
            Task::Insert(record, overflows) if overflows != shared.queue.overflows() => {
                shared.queue.on_inserted(&record);
            }
            Task::Insert(record, _) => {
                let stored = self.insert(shared, &record);
                if !matches!(stored, Ok(true)) && shared.index.contains_key(&record.key) {
                    // The older record is not the one that was to be stored.
                    self.remove(shared, record.key);
                }
                let stored = stored.map(drop);
                shared.queue.on_inserted(&record);
                self.check(shared, stored);
            }
            Task::Remove(key) => {
                self.remove(shared, key);
                shared.queue.on_removed(key);
            }
            Task::Invalidate { key, group } => {
                // The entries of invalidations occupy space, too.
                let _ = self.make_space(shared, shared.size.load(Ordering::Relaxed), 0);
                let stored = self.append_entry(shared, &IndexEntry::GroupInvalidated { group });
                self.remember_invalidation(group);
                shared.queue.on_invalidated(key);
                self.check_removal(shared, stored);
            }
            Task::RemoveWhere(is_removed, reply) => {
                let (removed, stored) = self.remove_where(shared, &*is_removed);
                let synced = stored.and_then(|()| self.sync());
                self.check_removal(shared, synced);
                let _ = reply.send(removed);
            }
            Task::Sync => {
                shared.queue.on_sync();
                let synced = self.sync();
                self.check(shared, synced);
            }
            Task::Flush(_) => {}
        }
        self.count_bytes(shared);
    }

    /// Handles the end of a write. After a failure, the next one begins a new segment.
    fn check(&mut self, shared: &Arc<Shared>, stored: io::Result<()>) {
        if let Err(error) = stored {
            shared.counts.on_error(&format!("cannot write, keeping responses in memory: {error}"));
            if let Some(writer) = self.current.take_if(|writer| writer.is_empty()) {
                shared.segments.write().remove(&writer.segment.number);
                let _ = segment::delete(&self.dir, writer.segment.number);
            }
            self.close_segment();
        }
    }

    /// Handles the end of a removal. If it cannot be written, the record must not return after the next start.
    fn check_removal(&mut self, shared: &Arc<Shared>, stored: io::Result<()>) {
        if stored.is_err() {
            self.check(shared, stored);
            self.delete_all(shared);
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.current.as_mut().map_or(Ok(()), SegmentWriter::sync)
    }

    /// Removes a record, also for the next start.
    fn remove(&mut self, shared: &Arc<Shared>, key: u128) {
        shared.take(key, |_| true);
        let stored = self.append_entry(shared, &IndexEntry::Removed { key });
        self.check_removal(shared, stored);
    }

    /// Writes a record. Returns false if it is too large, or its body is not there, or the valuable records leave it no space.
    fn insert(&mut self, shared: &Arc<Shared>, record: &NewRecord) -> io::Result<bool> {
        let size = shared.size.load(Ordering::Relaxed);
        if record.length() > (size / RECORD_PART).min(SEGMENT_BYTES.1) {
            return Ok(false);
        }
        if !record.is_valuable && shared.valuable_bytes.load(Ordering::Relaxed) > size / VALUABLE_PART {
            return Ok(false);
        }
        self.make_space(shared, size, record.length())?;
        let NewRecord { key, group, url, tags, is_valuable, meta, body } = record;
        let label = Label { url, tags };
        let (body, checksums) = match body {
            NewBody::Parts(parts) => self.segment(shared)?.append_body(parts)?,
            NewBody::Unchanged => {
                let place = shared.index.get(key).map(|location| (location.head, location.body));
                let Some((head, body)) = place else { return Ok(false) };
                (body, shared.read(*key, head, body, ReadMode::Blocking)?.body.checksums.to_vec())
            }
        };
        let head = RecordHead { key: *key, body, checksums, meta };
        self.append_record(shared, *group, &head, *is_valuable, label).map(|()| true)
    }

    fn append_record(
        &mut self,
        shared: &Arc<Shared>,
        group: u64,
        record: &RecordHead<'_>,
        is_valuable: bool,
        label: Label<'_>,
    ) -> io::Result<()> {
        let (key, body) = (record.key, record.body);
        // Beside its body, even if that has filled the segment: they are deleted together.
        let is_beside_body = |writer: &SegmentWriter| body.length > 0 && writer.segment.number == body.segment;
        if !self.current.as_ref().is_some_and(is_beside_body) {
            self.segment(shared)?;
        }
        let Some(writer) = &mut self.current else { return Err(io::ErrorKind::NotFound.into()) };
        let head = writer.append_head(record)?;
        writer.append_entry(&IndexEntry::Stored { key, group, head, body, is_valuable, label })?;
        shared.queue.publish(key, |is_invalidated| {
            shared.add(key, Location::new(head, body, is_valuable, is_invalidated));
        });
        Ok(())
    }

    fn append_entry(&mut self, shared: &Arc<Shared>, entry: &IndexEntry<'_>) -> io::Result<()> {
        self.segment(shared)?.append_entry(entry)
    }

    /// Returns the segment to write, a new one if the last is full.
    fn segment(&mut self, shared: &Arc<Shared>) -> io::Result<&mut SegmentWriter> {
        let limit = segment_bytes(shared.size.load(Ordering::Relaxed));
        if self.current.as_ref().is_some_and(|current| current.bytes() >= limit) {
            self.close_segment();
        }
        if self.current.is_none() {
            let number = self.next_segment;
            self.next_segment = number.checked_add(1).ok_or(io::ErrorKind::StorageFull)?;
            let writer = SegmentWriter::create(&self.dir, number, &self.boot)?;
            shared.segments.write().insert(number, Arc::clone(&writer.segment));
            self.current = Some(writer);
        }
        self.current.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Closes the segment that is written. If it cannot be synced, its last records do not survive a restart of the machine.
    fn close_segment(&mut self) {
        if let Some(mut writer) = self.current.take() {
            let _ = writer.sync();
            self.closed.insert(writer.segment.number, writer.bytes());
        }
    }

    fn bytes(&self) -> u64 {
        self.closed.values().sum::<u64>() + self.current.as_ref().map_or(0, SegmentWriter::bytes)
    }

    fn count_bytes(&self, shared: &Arc<Shared>) {
        shared.bytes.store(self.bytes(), Ordering::Relaxed);
    }

    /// Deletes the oldest segments until `needed` bytes fit, and those that move from the next segment.
    fn make_space(&mut self, shared: &Arc<Shared>, size: u64, needed: u64) -> io::Result<()> {
        let segment = segment_bytes(size);
        let is_full = |writer: &Self| {
            let moved = writer.closed.values().next().copied().unwrap_or_default().max(segment);
            writer.bytes() + needed + moved > size || shared.index.len() as u64 >= size / MIN_RECORD
        };
        // Valuable records move once in a turn through all files, which might free nothing otherwise.
        let mut turn = self.closed.len();
        while is_full(self) {
            let Some((&oldest, &bytes)) = self.closed.first_key_value() else {
                // The segment that is written alone exceeds a size that was lowered.
                if self.current.is_none() {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                self.close_segment();
                continue;
            };
            let has_space = shared.valuable_bytes.load(Ordering::Relaxed) <= size / VALUABLE_PART;
            self.delete_segment(shared, oldest, turn > 0 && has_space, bytes.min(segment) / SECOND_CHANCE_PART)?;
            turn = turn.saturating_sub(1);
            // Only now, so that segments are deleted in their order: a removal outlives the records that it removes.
            self.closed.remove(&oldest);
        }
        Ok(())
    }

    /// Deletes a segment, after records were moved to the newest one: of its used ones up to `budget` bytes, and its valuable
    /// ones if `keeps_valuable`.
    fn delete_segment(
        &mut self,
        shared: &Arc<Shared>,
        number: u32,
        keeps_valuable: bool,
        mut budget: u64,
    ) -> io::Result<()> {
        let index = segment::read_index(&self.dir, number).unwrap_or_default();
        for (key, group, label) in stored_in(&index) {
            let place = shared.index.get(&key).map(|location| location.copied());
            let Some(place) = place.filter(|place| is_in(number, place.head, place.body)) else { continue };
            let (length, is_used) = (place.length(), place.is_used.load(Ordering::Relaxed));
            let is_moved = (place.is_valuable && keeps_valuable) || (is_used && length <= budget);
            if is_moved && self.has_second_chance(number, group) {
                budget = budget.saturating_sub(length);
                if self.move_record(shared, key, group, &place, label).is_ok() {
                    continue;
                }
            }
            shared.take(key, |location| location.head == place.head);
            shared.counts.evictions.fetch_add(1, Ordering::Relaxed);
        }
        // A newer head may have its body here, without an entry here that is still valid.
        shared.retain(|location| !is_in(number, location.head, location.body));
        shared.segments.write().remove(&number);
        self.invalidated_groups.retain(|_, removed_in| *removed_in != number);
        segment::delete(&self.dir, number)?;
        // So that no segment returns whose removals are in one that was deleted later.
        segment::sync_names(&self.dir)
    }

    fn has_second_chance(&self, number: u32, group: u64) -> bool {
        self.forgotten.is_none_or(|forgotten| number > forgotten) && !self.invalidated_groups.contains_key(&group)
    }

    fn move_record(
        &mut self,
        shared: &Arc<Shared>,
        key: u128,
        group: u64,
        place: &Location,
        label: Label<'_>,
    ) -> io::Result<()> {
        let record = shared.read(key, place.head, place.body, ReadMode::Blocking)?;
        let (body, checksums) = self.segment(shared)?.append_body(&record.body.read(ReadMode::Blocking)?)?;
        let head = RecordHead { key, body, checksums, meta: &record.meta };
        self.append_record(shared, group, &head, place.is_valuable, label)
    }

    fn remember_invalidation(&mut self, group: u64) {
        let number = self.current.as_ref().map_or(self.next_segment, |current| current.segment.number);
        self.invalidated_groups.insert(group, number);
        if self.invalidated_groups.len() > MAX_INVALIDATED_GROUPS {
            self.invalidated_groups.clear();
            self.forgotten = Some(number);
        }
    }

    fn remove_where(&mut self, shared: &Arc<Shared>, is_removed: &dyn Fn(Label<'_>) -> bool) -> (u64, io::Result<()>) {
        let mut removed = 0;
        let numbers: Vec<u32> = shared.segments.read().keys().copied().collect();
        for number in numbers {
            let index = segment::read_index(&self.dir, number).unwrap_or_default();
            for (key, _, label) in stored_in(&index) {
                let is_current = || shared.index.get(&key).is_some_and(|location| location.head.segment == number);
                if is_removed(label) && is_current() {
                    shared.take(key, |_| true);
                    removed += 1;
                    if let Err(error) = self.append_entry(shared, &IndexEntry::Removed { key }) {
                        return (removed, Err(error));
                    }
                }
            }
        }
        (removed, Ok(()))
    }

    /// Deletes all records.
    fn delete_all(&mut self, shared: &Arc<Shared>) {
        shared.retain(|_| false);
        shared.segments.write().clear();
        self.current = None;
        self.closed.clear();
        self.invalidated_groups.clear();
        self.forgotten = None;
        if let Err(error) = delete_files(&self.dir) {
            shared.counts.on_error(&format!("cannot delete the files: {error}"));
        }
    }
}

fn delete_files(dir: &Path) -> io::Result<()> {
    segment::numbers(dir)?.into_iter().try_for_each(|number| segment::delete(dir, number))
}

fn is_in(number: u32, head: Span, body: Span) -> bool {
    head.segment == number || (body.length > 0 && body.segment == number)
}

/// Returns the least bytes of a full segment.
fn segment_bytes(size: u64) -> u64 {
    let (least, greatest) = SEGMENT_BYTES;
    (size / SEGMENTS).clamp(least, greatest)
}

/// Iterates over the records of an index file.
fn stored_in(index: &[u8]) -> impl Iterator<Item = (u128, u64, Label<'_>)> {
    let entries = split_frame::<IndexHead<'_>>(index).map_or(&[][..], |(_, entries)| entries);
    entries_of(entries).filter_map(|(entry, _)| match entry {
        IndexEntry::Stored { key, group, label, .. } => Some((key, group, label)),
        _ => None,
    })
}
