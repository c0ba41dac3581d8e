//! Usage of a quota by key, and its record beyond the life of the process.

use super::key_file::{KeyFile, OpenFile, RecordForm};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::key_usage::{ChangedEntry, KeyUsage, KeyWindows, Place};
use tidegate_policy::{Timestamp, Units};
use tracing::warn;

/// Usage by key, each change of which that the record shows is written to a file at once, if there is one.
pub(crate) struct KeyedUsage {
    usage: KeyUsage,
    max_keys: usize,
    /// Length that no window of the quota exceeds.
    longest_window: Duration,
    /// Units of which what is recorded in the next file is a multiple.
    record_step: Units,
    file: Option<KeyFile>,
    /// State directory of a file that could not be opened; nothing is recorded until it is.
    dir_to_open: Option<PathBuf>,
    /// What was settled since another process records the usage: units released and units charged, by window and key. `None`
    /// before.
    late: Option<BTreeMap<(u64, u64), (Units, Units)>>,
    /// Places of entries that could not be written: those of requests in flight, since no more are admitted.
    unwritten: BTreeSet<Place>,
}

impl KeyedUsage {
    pub(crate) fn new(form: RecordForm, max_keys: usize) -> Self {
        Self {
            usage: KeyUsage::new(form.windows, max_keys),
            max_keys,
            longest_window: form.longest_window,
            record_step: form.step,
            file: None,
            dir_to_open: None,
            late: None,
            unwritten: BTreeSet::new(),
        }
    }

    pub(crate) fn set_max_keys(&mut self, max_keys: usize) {
        self.max_keys = max_keys;
        self.usage.set_max_keys(max_keys);
    }

    pub(crate) fn max_keys(&self) -> usize {
        self.max_keys
    }

    /// Records multiples of `step` in the next file. In the current one, they become no larger, because nothing says which of its
    /// records would be too low.
    pub(crate) fn set_record_step(&mut self, step: Units) {
        self.record_step = step;
        self.file.iter().for_each(|file| file.lower_step(step));
    }

    /// States that no window of the quota exceeds a length.
    pub(crate) fn set_longest_window(&mut self, length: Duration) {
        self.longest_window = length;
        if let Some(file) = &self.file
            && let Err(error) = file.set_longest_window(length)
        {
            warn_unrecorded(file, &error);
            file.fail();
        }
    }

    /// Returns how usage is recorded in the next file.
    pub(crate) fn form(&self) -> RecordForm {
        RecordForm { windows: self.usage.windows(), longest_window: self.longest_window, step: self.record_step }
    }

    /// Continues with the usage that is recorded in `file`, and records it there. What was counted until now counts as well.
    pub(crate) fn open_file(&mut self, file: KeyFile, recorded: KeyUsage, now: Timestamp) {
        (self.file, self.dir_to_open) = (Some(file), None);
        self.unwritten.clear();
        let counted = std::mem::replace(&mut self.usage, recorded);
        self.usage.set_max_keys(self.max_keys);
        for ChangedEntry { window, entry, .. } in counted.records() {
            self.charge(window, entry.key, entry.used, now);
        }
    }

    /// Records nothing until a file in the state directory `dir` can be opened.
    pub(crate) fn open_later(&mut self, dir: PathBuf) {
        self.dir_to_open = Some(dir);
    }

    /// Returns the state directory of a file that could not be opened.
    pub(crate) fn dir_to_open(&self) -> Option<&PathBuf> {
        self.dir_to_open.as_ref()
    }

    /// Counts what counts at the moment `before` at the moment `after` of other windows from now on.
    pub(crate) fn redefine(&mut self, before: u64, windows: KeyWindows, after: u64) {
        self.usage.redefine(before, windows, after);
        self.unwritten.clear();
        let form = self.form();
        let Some(file) = &mut self.file else { return };
        match KeyFile::create(file.path(), form, self.usage.records()) {
            Ok(new) => *file = new,
            Err(error) => {
                warn_unrecorded(file, &error);
                // The records of other windows are of no use: another file takes their place.
                file.fail();
            }
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

    /// Records no more changes, because another process does. What is settled from now on is for [`Self::take_late`].
    pub(crate) fn close_file(&mut self) {
        (self.file, self.dir_to_open, self.late) = (None, None, Some(BTreeMap::new()));
        self.unwritten.clear();
    }

    pub(crate) fn usage(&self) -> &KeyUsage {
        &self.usage
    }

    /// Returns the file to sync, if there is one.
    pub(crate) fn file_to_sync(&self) -> Option<Arc<OpenFile>> {
        self.file.as_ref().map(|file| Arc::clone(&file.open))
    }

    /// Returns the path, the form and the records of a file that replaces `failed`, whose sync has failed; `None` if
    /// another one already has.
    /// Changes from now on are for [`Self::replace_file`] to write.
    pub(crate) fn records_to_replace(
        &mut self,
        failed: &Arc<OpenFile>,
    ) -> Option<(PathBuf, RecordForm, Vec<ChangedEntry>)> {
        let file = self.file.as_ref().filter(|file| Arc::ptr_eq(&file.open, failed))?;
        let path = file.path().to_owned();
        self.unwritten.clear();
        Some((path, self.form(), self.usage.records().collect()))
    }

    /// Returns true if all changes are recorded. Tries once more to write those that are not.
    pub(crate) fn is_recorded(&mut self, now: Timestamp) -> bool {
        let Some(file) = &self.file else { return self.dir_to_open.is_none() };
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

    /// Returns the window to settle.
    pub(crate) fn reserve(&mut self, moment: u64, key: ClientKey, units: Units, now: Timestamp) -> u64 {
        let changed = self.usage.reserve(moment, key, units);
        self.record(changed, now);
        changed.window
    }

    pub(crate) fn charge(&mut self, moment: u64, key: ClientKey, units: Units, now: Timestamp) {
        self.note_late(moment, key, Units::ZERO, units);
        if let Some(changed) = self.usage.charge(moment, key, units) {
            self.record(changed, now);
        }
    }

    pub(crate) fn settle(&mut self, window: u64, key: ClientKey, reserved: Units, charged: Units, now: Timestamp) {
        self.note_late(window, key, reserved, charged);
        if let Some(changed) = self.usage.settle(window, key, reserved, charged) {
            self.record(changed, now);
        }
    }

    /// Returns what was settled since the last call, once another process records the usage: by window and key, the units
    /// released and those charged.
    pub(crate) fn take_late(&mut self) -> BTreeMap<(u64, u64), (Units, Units)> {
        self.late.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Notes a settlement for the process that records the usage, if another one does.
    pub(crate) fn note_late(&mut self, window: u64, key: ClientKey, reserved: Units, charged: Units) {
        if let Some(late) = self.late.as_mut().filter(|_| reserved != charged) {
            let (released, added) = late.entry((window, key.to_u64())).or_default();
            *released = released.saturating_add(reserved.saturating_sub(charged));
            *added = added.saturating_add(charged.saturating_sub(reserved));
        }
    }

    fn record(&mut self, changed: ChangedEntry, now: Timestamp) {
        let Some(file) = &self.file else { return };
        if !file.shows(&changed) && !self.unwritten.contains(&changed.place) {
            return;
        }
        if !file.is_writable(now) {
            self.unwritten.insert(changed.place);
            return;
        }
        let Err(error) = file.write(&changed) else {
            self.unwritten.remove(&changed.place);
            return;
        };
        if self.unwritten.is_empty() {
            warn_unrecorded(file, &error);
        }
        self.unwritten.insert(changed.place);
    }
}

fn warn_unrecorded(file: &KeyFile, error: &Error) {
    let path = file.path().display();
    warn!(
        "Cannot write {path}: {error}; free space, or make it writable. Until then, budgets (`per`) are refused, and a restart loses what clients have used of their shares (`per_client`)"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::key_file;
    use proptest::prelude::*;
    use std::path::Path;
    use tidegate_policy::window::{Span, Window};

    const NOW: Timestamp = Timestamp(5);
    const MAX_KEYS: usize = 4;
    const LARGEST_STEP: Units = Units::from_whole(64);

    fn key(number: u64) -> ClientKey {
        ClientKey::from_credential(number)
    }

    /// Returns the usage that the next process finds in a directory, and goes on to record there.
    fn started(dir: &Path, step: Units) -> KeyedUsage {
        let (path, window) = (dir.join("usage"), Span { start: Timestamp(0), end: Timestamp(9) });
        let panic = |problem| panic!("{problem}");
        let form = RecordForm { windows: KeyWindows::OfQuota, longest_window: window.length(), step };
        let quota = Window::Fixed { length: window.length() };
        let (file, recorded) =
            key_file::open(&path, MAX_KEYS, form, &quota, window, NOW, panic).expect("the directory is writable");
        let mut usage = KeyedUsage::new(form, MAX_KEYS);
        usage.open_file(file, recorded, NOW);
        usage
    }

    #[test]
    fn change_is_written_if_the_record_shows_it() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut usage = started(dir.path(), Units::from_whole(8));
        usage.reserve(0, key(1), Units::from_whole(1), NOW);
        usage.file.iter().for_each(KeyFile::fail);
        // What has to be written is noted, because this file takes no more.
        for (number, units, is_written) in [(1, 7, false), (1, 1, true), (2, 0, true)] {
            usage.unwritten.clear();
            usage.charge(0, key(number), Units::from_whole(units), NOW);
            assert_eq!(!usage.unwritten.is_empty(), is_written, "{number}: {units}");
        }
        usage.charge(0, key(1), Units::from_whole(1), NOW);
        assert_eq!(usage.unwritten.len(), 1);
        usage.settle(0, key(1), Units::from_whole(1), Units::ZERO, NOW);
        usage.settle(0, key(1), Units::from_whole(2), Units::ZERO, NOW);
        assert_eq!(usage.unwritten.len(), 2, "the usage of the first key is a step less");
    }

    #[derive(Clone, Debug)]
    enum Event {
        Reserved(u64, u64),
        Settled(u64, u64, u64),
        Configured(u64),
        Killed,
    }

    fn event() -> impl Strategy<Value = Event> {
        let (key, milli) = (0..6_u64, 0..70_000_u64);
        prop_oneof![
            8 => (key.clone(), milli.clone()).prop_map(|(key, units)| Event::Reserved(key, units)),
            4 => (key, milli.clone(), milli).prop_map(|(key, reserved, charged)| Event::Settled(key, reserved, charged)),
            2 => prop_oneof![Just(1), (0..7_u32).prop_map(|log| 1000 << log)].prop_map(Event::Configured),
            1 => Just(Event::Killed),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn restart_counts_at_most_one_step_more_and_never_less(
            events in prop::collection::vec(event(), 1..60),
        ) {
            let dir = tempfile::tempdir().expect("temporary directory");
            let mut usage = started(dir.path(), LARGEST_STEP);
            for event in events.into_iter().chain([Event::Killed]) {
                match event {
                    Event::Reserved(number, milli) => {
                        usage.reserve(0, key(number), Units::from_milli(milli), NOW);
                    }
                    Event::Settled(number, reserved, charged) => {
                        usage.settle(0, key(number), Units::from_milli(reserved), Units::from_milli(charged), NOW);
                    }
                    Event::Configured(step) => usage.set_record_step(Units::from_milli(step)),
                    Event::Killed => {
                        let next = started(dir.path(), usage.form().step);
                        let counted = |usage: &KeyedUsage| usage.usage().entries(0, 0..MAX_KEYS).collect::<Vec<_>>();
                        let (before, after) = (counted(&usage), counted(&next));
                        prop_assert_eq!(before.len(), after.len());
                        for (before, after) in before.into_iter().zip(after) {
                            prop_assert_eq!(before.key, after.key);
                            prop_assert!(before.used <= after.used, "{before:?} {after:?}");
                            let most = before.used.saturating_add(LARGEST_STEP);
                            prop_assert!(after.used < most, "{before:?} {after:?}");
                        }
                        usage = next;
                    }
                }
            }
        }
    }
}
