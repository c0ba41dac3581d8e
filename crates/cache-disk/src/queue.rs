//! Work for the writing thread: what waits, within bounds, and the removals and invalidations that follow what waits.

use crate::format::Label;
use crate::record::NewRecord;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Most bytes of bodies that wait.
const MAX_BYTES: u64 = 32 << 20;
/// Most bytes of bodies with which a record waits that is not valuable, so that a flood of them leaves space for others.
const MAX_BYTES_FOR_OTHERS: u64 = MAX_BYTES / 2;
/// Bytes that each record counts besides its body.
const RECORD: u64 = 1024;
/// Most removals that wait. One more, and all records are forgotten.
const MAX_REMOVALS: usize = 64 * 1024;

/// Work for the writing thread.
pub(crate) enum Task {
    /// Stores a record, unless removals were forgotten since it was added: the number of overflows until then.
    Insert(Box<NewRecord>, u64),
    Remove(u128),
    /// Invalidates the record with the key, and its group.
    Invalidate {
        key: u128,
        group: u64,
    },
    /// Removes the records whose label matches, and sends their number.
    RemoveWhere(Box<dyn Fn(Label<'_>) -> bool + Send>, Sender<u64>),
    /// Syncs the files.
    Sync,
    /// Sends when all earlier tasks are done.
    Flush(Sender<()>),
}

/// Work that waits for the writing thread.
pub(crate) struct Queue {
    tasks: Sender<Task>,
    bytes: AtomicU64,
    removals: Mutex<Removals>,
    /// Too many removals wait: no record may be read until the thread has deleted all.
    is_overflowed: AtomicBool,
    overflows: AtomicU64,
    /// A sync waits.
    has_sync: AtomicBool,
}

#[derive(Default)]
struct Removals {
    by_key: HashMap<u128, u32, RandomState>,
    /// Invalidations by key.
    invalidated: HashMap<u128, u32, RandomState>,
    count: usize,
}

impl Queue {
    pub(crate) fn new() -> (Self, Receiver<Task>) {
        let (tasks, receiver) = channel();
        let (bytes, removals, is_overflowed, overflows, has_sync) = Default::default();
        (Self { tasks, bytes, removals, is_overflowed, overflows, has_sync }, receiver)
    }

    /// Adds a record. Returns false if too much waits.
    pub(crate) fn insert(&self, record: Box<NewRecord>) -> bool {
        let overflows = self.overflows();
        if self.is_overflowed() {
            return false;
        }
        let bytes = bytes_of(&record);
        let limit = if record.is_valuable { MAX_BYTES } else { MAX_BYTES_FOR_OTHERS };
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > limit {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        self.tasks.send(Task::Insert(record, overflows)).is_ok()
    }

    /// Returns true if no record waits to be written.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.load(Ordering::Acquire) == 0
    }

    /// Adds the removal of a record. Those that wait are not stored.
    pub(crate) fn remove(&self, key: u128) {
        let mut removals = self.removals.lock();
        if self.count(&mut removals) {
            *removals.by_key.entry(key).or_default() += 1;
            // Sent within the lock, so that the order is that of the removals.
            let _ = self.tasks.send(Task::Remove(key));
        }
    }

    /// Adds the invalidation of a record and its group. Those that wait are invalidated once they are stored.
    pub(crate) fn invalidate(&self, key: u128, group: u64) {
        let mut removals = self.removals.lock();
        if self.count(&mut removals) {
            *removals.invalidated.entry(key).or_default() += 1;
            let _ = self.tasks.send(Task::Invalidate { key, group });
        }
    }

    /// Adds a sync, unless one waits.
    pub(crate) fn sync(&self) {
        if !self.has_sync.swap(true, Ordering::Relaxed) {
            let _ = self.tasks.send(Task::Sync);
        }
    }

    /// Counts the sync as begun.
    pub(crate) fn on_sync(&self) {
        self.has_sync.store(false, Ordering::Relaxed);
    }

    /// Adds another task.
    pub(crate) fn send(&self, task: Task) {
        let _ = self.tasks.send(task);
    }

    fn count(&self, removals: &mut Removals) -> bool {
        removals.count += 1;
        if removals.count > MAX_REMOVALS && !self.is_overflowed.swap(true, Ordering::AcqRel) {
            self.overflows.fetch_add(1, Ordering::AcqRel);
        }
        !self.is_overflowed()
    }

    /// Returns the number of overflows so far.
    pub(crate) fn overflows(&self) -> u64 {
        self.overflows.load(Ordering::Acquire)
    }

    /// Returns true if no record may be read or written before all are deleted.
    pub(crate) fn is_overflowed(&self) -> bool {
        self.is_overflowed.load(Ordering::Relaxed)
    }

    /// Ends an overflow, after all records were deleted. The removals that wait do no harm.
    pub(crate) fn end_overflow(&self) {
        let mut removals = self.removals.lock();
        removals.count = 0;
        self.is_overflowed.store(false, Ordering::Relaxed);
    }

    /// Counts a record as written or dropped.
    pub(crate) fn on_inserted(&self, record: &NewRecord) {
        self.bytes.fetch_sub(bytes_of(record), Ordering::Relaxed);
    }

    /// Counts the removal of a record as done.
    pub(crate) fn on_removed(&self, key: u128) {
        let mut removals = self.removals.lock();
        removals.count = removals.count.saturating_sub(1);
        count_down(&mut removals.by_key, key);
    }

    /// Counts the invalidation of a record as done.
    pub(crate) fn on_invalidated(&self, key: u128) {
        let mut removals = self.removals.lock();
        removals.count = removals.count.saturating_sub(1);
        count_down(&mut removals.invalidated, key);
    }

    /// Calls `publish` unless the removal of the record waits, with true if its invalidation does. None is added meanwhile.
    pub(crate) fn publish(&self, key: u128, publish: impl FnOnce(bool)) {
        let removals = self.removals.lock();
        if !removals.by_key.contains_key(&key) && !self.is_overflowed() {
            publish(removals.invalidated.contains_key(&key));
        }
    }
}

/// Lowers the count of a key, and removes it at zero.
fn count_down(counts: &mut HashMap<u128, u32, RandomState>, key: u128) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

fn bytes_of(record: &NewRecord) -> u64 {
    record.body_length() + record.meta.len() as u64 + RECORD
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::NewBody;
    use bytes::Bytes;

    #[test]
    fn flood_of_other_records_leaves_space_for_valuable_ones() {
        let (queue, _tasks) = Queue::new();
        let insert = |is_valuable| {
            let body = NewBody::Parts(vec![Bytes::from_static(&[0; 1 << 20])]);
            let (url, tags) = Default::default();
            queue.insert(Box::new(NewRecord { key: 0, group: 0, url, tags, is_valuable, meta: Vec::new(), body }))
        };
        let inserted = |is_valuable| (0..100).filter(|_| insert(is_valuable)).count();
        assert_eq!((inserted(false), inserted(true), inserted(false)), (15, 16, 0));
    }
}
