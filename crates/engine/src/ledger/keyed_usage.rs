//! Usage of a quota by key, and its record beyond the life of the process.

use super::OpenError;
use super::key_file::{self, KeyFile, OpenFile};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::key_usage::{ChangedEntry, KeyUsage, Place};
use tidegate_policy::window::Span;
use tidegate_policy::{Timestamp, Units};
use tracing::warn;

/// Usage by key, each change of which is written to a file at once, if there is one.
pub(crate) struct KeyedUsage {
    usage: KeyUsage,
    max_keys: usize,
    file: Option<KeyFile>,
    /// Places of entries that could not be written: those of requests in flight, since no more are admitted.
    unwritten: BTreeSet<Place>,
}

impl KeyedUsage {
    pub(crate) fn new(max_keys: usize) -> Self {
        Self { usage: KeyUsage::new(max_keys), max_keys, file: None, unwritten: BTreeSet::new() }
    }

    pub(crate) fn set_max_keys(&mut self, max_keys: usize) {
        self.max_keys = max_keys;
        self.usage.set_max_keys(max_keys);
    }

    /// Continues with the usage of the quota `name` that is recorded in a state directory, and records it there.
    pub(crate) fn open_file(&mut self, dir: &Path, name: &str, window: Span) -> Result<(), OpenError> {
        let (file, usage) = key_file::open(dir, name, self.max_keys, window, |problem| warn!("{problem}"))
            .map_err(|source| OpenError::Directory { path: dir.to_owned(), source })?;
        (self.file, self.usage) = (Some(file), usage);
        Ok(())
    }

    /// Counts the usage of the window `before` in the window `after` from now on.
    pub(crate) fn redefine(&mut self, before: u64, after: u64) {
        self.usage.redefine(before, after);
        self.unwritten.clear();
        if let Some(file) = &mut self.file
            && let Err(error) = KeyFile::create(file.path(), self.usage.records()).map(|new| *file = new)
        {
            warn!("The usage of keys in the changed window is lost at the next start: {error}");
        }
    }

    /// Continues with `usage`, which nothing records.
    pub(crate) fn restore(&mut self, usage: KeyUsage) {
        self.usage = usage;
    }

    /// Records changes in another file from now on. Returns the one before.
    pub(crate) fn replace_file(&mut self, file: KeyFile) -> Option<KeyFile> {
        self.file.replace(file)
    }

    /// Records no more changes, because another process does.
    pub(crate) fn close_file(&mut self) {
        self.file = None;
        self.unwritten.clear();
    }

    pub(crate) fn usage(&self) -> &KeyUsage {
        &self.usage
    }

    /// Returns the file to sync, if there is one.
    pub(crate) fn file_to_sync(&self) -> Option<Arc<OpenFile>> {
        self.file.as_ref().map(|file| Arc::clone(&file.open))
    }

    /// Returns the path and the records of a file that replaces the one whose sync has failed. Changes from now on are for
    /// [`Self::replace_file`] to write.
    pub(crate) fn records_of_new_file(&mut self) -> Option<(PathBuf, Vec<ChangedEntry>)> {
        let path = self.file.as_ref()?.path().to_owned();
        self.unwritten.clear();
        Some((path, self.usage.records().collect()))
    }

    /// Returns true if all changes are recorded. Tries once more to write those that are not.
    pub(crate) fn is_recorded(&mut self, now: Timestamp) -> bool {
        let Some(file) = &self.file else { return true };
        if !file.is_writable(now) {
            return false;
        }
        while let Some(place) = self.unwritten.first().copied() {
            if self.usage.record(place).is_some_and(|record| file.write(&record).is_err()) {
                return false;
            }
            self.unwritten.remove(&place);
        }
        true
    }

    pub(crate) fn reserve(&mut self, window: u64, key: ClientKey, units: Units, now: Timestamp) {
        let changed = self.usage.reserve(window, key, units);
        self.record(changed, now);
    }

    pub(crate) fn charge(&mut self, window: u64, key: ClientKey, units: Units, now: Timestamp) {
        if let Some(changed) = self.usage.charge(window, key, units) {
            self.record(changed, now);
        }
    }

    pub(crate) fn settle(&mut self, window: u64, key: ClientKey, reserved: Units, charged: Units, now: Timestamp) {
        if let Some(changed) = self.usage.settle(window, key, reserved, charged) {
            self.record(changed, now);
        }
    }

    fn record(&mut self, changed: ChangedEntry, now: Timestamp) {
        let Some(file) = &self.file else { return };
        if !file.is_writable(now) {
            self.unwritten.insert(changed.place);
            return;
        }
        let Err(error) = file.write(&changed) else { return };
        if self.unwritten.is_empty() {
            warn!("The usage of keys cannot be written, and requests that it limits are refused: {error}");
        }
        self.unwritten.insert(changed.place);
    }
}
