//! Records through restarts, crashes, power cuts and damage: whole, or not there.

use crate::{DiskStore, NewBody, NewRecord, ReadMode};
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const SIZE: u64 = 64 << 20;
const TIMEOUT: Duration = Duration::from_secs(60);
const KEYS: u8 = 6;
const GROUPS: u64 = 3;
/// Length of a body of several blocks.
const LARGE: usize = 150_000;

#[derive(Clone, Debug)]
enum Step {
    Insert { key: u8, length: usize },
    Validate { key: u8 },
    Remove { key: u8 },
    Invalidate { key: u8 },
    RemoveTag { tag: u8 },
    Read { key: u8 },
    Sync,
    Reopen,
}

fn steps(count: usize) -> impl Strategy<Value = Vec<Step>> {
    let key = 0..KEYS;
    let length = prop_oneof![Just(0), 1..200usize, Just(LARGE)];
    let step = prop_oneof![
        6 => (key.clone(), length).prop_map(|(key, length)| Step::Insert { key, length }),
        2 => key.clone().prop_map(|key| Step::Validate { key }),
        2 => key.clone().prop_map(|key| Step::Remove { key }),
        1 => key.clone().prop_map(|key| Step::Invalidate { key }),
        1 => (0..KEYS).prop_map(|tag| Step::RemoveTag { tag }),
        2 => key.prop_map(|key| Step::Read { key }),
        1 => Just(Step::Sync),
        1 => Just(Step::Reopen),
    ];
    vec(step, 1..count)
}

/// A store, and what it must have.
struct Model {
    dir: TempDir,
    boot: u32,
    store: Option<DiskStore>,
    /// Number of the version of each key, which determines meta and body, and the version of its body.
    records: BTreeMap<u8, (u32, u32)>,
    lengths: Vec<usize>,
}

impl Model {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut model = Self { dir, boot: 0, store: None, records: BTreeMap::new(), lengths: Vec::new() };
        model.open();
        model
    }

    fn open(&mut self) {
        let store = DiskStore::open_in_boot(self.dir.path(), SIZE, &format!("boot {}", self.boot)).expect("a store");
        assert!(store.wait(TIMEOUT), "the index is read");
        self.store = Some(store);
    }

    fn store(&self) -> &DiskStore {
        self.store.as_ref().expect("the store is open")
    }

    fn close(&mut self) {
        let store = self.store.take().expect("the store is open");
        assert!(store.wait(TIMEOUT));
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Insert { key, length } => {
                let version = self.next_version(length);
                let parts = body(version, length).chunks(70_000).map(Bytes::copy_from_slice).collect();
                self.store().insert(record(key, version, NewBody::Parts(parts)));
                self.records.insert(key, (version, version));
            }
            Step::Validate { key } => {
                if let Some(&(_, body_version)) = self.records.get(&key) {
                    let version = self.next_version(0);
                    self.store().insert(record(key, version, NewBody::Unchanged));
                    self.records.insert(key, (version, body_version));
                }
            }
            Step::Remove { key } => {
                self.store().remove(key.into());
                self.records.remove(&key);
            }
            Step::Invalidate { key } => {
                let group = u64::from(key) % GROUPS;
                self.store().invalidate(key.into(), group);
                assert!(!self.records.contains_key(&key) || self.is_invalidated_once_written(key));
                // The others of the group are so after the next start.
                self.close();
                self.open();
                for of_group in self.records.keys().filter(|key| u64::from(**key) % GROUPS == group) {
                    assert!(self.store().is_invalidated((*of_group).into()), "{of_group}");
                }
            }
            Step::RemoveTag { tag } => {
                let wanted = tag.to_string();
                let removed = self.store().remove_where(move |label| label.tags.split('\n').any(|tag| tag == wanted));
                let before = self.records.len();
                self.records.retain(|key, _| *key != tag);
                assert_eq!(removed as usize, before - self.records.len());
            }
            Step::Read { key } => {
                self.store().mark_used(key.into());
                drop(self.store().read(key.into(), ReadMode::PageCache));
            }
            Step::Sync => assert!(self.store().flush(TIMEOUT)),
            Step::Reopen => {
                self.close();
                self.open();
            }
        }
    }

    fn is_invalidated_once_written(&self, key: u8) -> bool {
        self.store().wait(TIMEOUT) && self.store().is_invalidated(key.into())
    }

    fn next_version(&mut self, length: usize) -> u32 {
        self.lengths.push(length);
        self.lengths.len() as u32 - 1
    }

    /// Returns the versions of head and body that the store has for a key; `None` if it has none. Fails if they are of no
    /// version of the key, or a body is not whole.
    fn read(&self, key: u8) -> Option<(u32, u32)> {
        let record = self.store().read(key.into(), ReadMode::Blocking).expect("a blocking read")?;
        let meta = String::from_utf8(record.meta).expect("UTF-8");
        let (of_key, version) = meta.split_once(' ').expect("a key and a version");
        assert_eq!(of_key, key.to_string(), "the record of another key");
        let found = record.body.read(ReadMode::Blocking).ok()?.concat();
        let body_version = match found.first_chunk() {
            Some(start) => u32::from_le_bytes(*start),
            None => return Some((version.parse().expect("a number"), u32::MAX)),
        };
        assert!(found == body(body_version, self.lengths[body_version as usize]), "a wrong body");
        Some((version.parse().expect("a number"), body_version))
    }

    /// Returns what [`Self::read`] returns for a key if the store has what it should.
    fn expected(&self, key: u8) -> Option<(u32, u32)> {
        let (version, body_version) = *self.records.get(&key)?;
        let is_empty = self.lengths[body_version as usize] == 0;
        Some((version, if is_empty { u32::MAX } else { body_version }))
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.dir.path()).expect("a directory").map(|entry| entry.expect("an entry").path());
        let mut files: Vec<_> = entries.filter(|path| path.extension().is_some()).collect();
        files.sort();
        files
    }
}

fn record(key: u8, version: u32, body: NewBody) -> NewRecord {
    NewRecord {
        key: key.into(),
        group: u64::from(key) % GROUPS,
        url: format!("http://example.com/{key}").into(),
        tags: format!("all\n{key}").into(),
        is_valuable: key.is_multiple_of(2),
        meta: format!("{key} {version}").into_bytes(),
        body,
    }
}

/// Returns the body of a version, which begins with its number.
fn body(version: u32, length: usize) -> Vec<u8> {
    let length = if length == 0 { 0 } else { length.max(4) };
    let mut body: Vec<u8> =
        (0..length).map(|position| (position as u32 ^ version.wrapping_mul(40_503)) as u8).collect();
    body.iter_mut().zip(version.to_le_bytes()).for_each(|(byte, digit)| *byte = digit);
    body
}

fn length_of(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn store_has_what_was_stored_and_not_removed(steps in steps(40)) {
        let mut model = Model::new();
        for step in &steps {
            model.run(step);
            assert!(model.store().wait(TIMEOUT));
            for key in 0..KEYS {
                prop_assert_eq!(model.read(key), model.expected(key), "key {} after {:?}", key, step);
            }
        }
        prop_assert_eq!(model.store().stats().errors, 0);
    }

    /// Of what was written since the last sync, a power cut keeps any part of each file.
    #[test]
    fn power_cut_leaves_records_that_are_whole(
        before in steps(20),
        after in steps(12),
        kept in vec((0.0..=1.0f64, any::<bool>()), 64),
    ) {
        let mut model = Model::new();
        before.iter().for_each(|step| model.run(step));
        model.run(&Step::Sync);
        let synced: BTreeMap<PathBuf, u64> =
            model.files().into_iter().map(|path| (path.clone(), length_of(&path))).collect();
        let lasting: Vec<_> = (0..KEYS).map(|key| model.expected(key)).collect();
        let syncs = |step: &&Step| {
            matches!(step, Step::Sync | Step::Reopen | Step::RemoveTag { .. } | Step::Invalidate { .. })
        };
        after.iter().filter(|step| !syncs(step)).for_each(|step| model.run(step));
        model.close();
        for (path, (part, is_zeroed)) in model.files().into_iter().zip(kept) {
            let (start, end) = (synced.get(&path).copied().unwrap_or(0), length_of(&path));
            let middle = start + ((end - start) as f64 * part) as u64;
            let file = File::options().write(true).open(&path).expect("a file");
            file.set_len(middle).expect("a shorter file");
            if is_zeroed {
                file.set_len(end).expect("a file with a hole");
            }
        }
        model.boot += 1;
        model.open();
        for key in 0..KEYS {
            let found = model.read(key);
            if model.expected(key) == lasting[key as usize] {
                prop_assert_eq!(found, lasting[key as usize], "key {}", key);
            }
        }
        prop_assert_eq!(model.store().stats().errors, 0, "all that is found is whole");
    }

    #[test]
    fn damaged_file_never_gives_a_wrong_record(
        steps in steps(20),
        damage in vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1u8..=255), 1..4),
    ) {
        let mut model = Model::new();
        steps.iter().for_each(|step| model.run(step));
        model.close();
        for (file, position, flipped) in damage {
            let files = model.files();
            let Some(path) = files.get(file.index(files.len().max(1))) else { continue };
            let length = length_of(path);
            if length > 0 {
                let file = File::options().read(true).write(true).open(path).expect("a file");
                let position = position.index(length as usize) as u64;
                let mut byte = [0];
                file.read_exact_at(&mut byte, position).expect("a byte");
                file.write_all_at(&[byte[0] ^ flipped], position).expect("a byte");
            }
        }
        model.open();
        // Fails if head or body are not those of a version of the key.
        for key in 0..KEYS {
            model.read(key);
        }
    }
}

fn store_of(dir: &Path, size: u64) -> DiskStore {
    let store = DiskStore::open(dir, size).expect("a store");
    assert!(store.wait(TIMEOUT));
    store
}

fn page(number: u32, length: usize) -> NewRecord {
    let body = NewBody::Parts(vec![body(number, length).into()]);
    NewRecord {
        key: number.into(),
        group: number.into(),
        url: "".into(),
        tags: "".into(),
        is_valuable: false,
        meta: Vec::new(),
        body,
    }
}

#[test]
fn small_valuable_records_with_long_labels_displace_each_other() {
    let dir = tempfile::tempdir().expect("a directory");
    let size = 8 << 20;
    let store = store_of(dir.path(), size);
    for (length, url) in [(0, 0), (10, 8_000), (0, 16_000)] {
        for number in 0..4_000 {
            let url = "u".repeat(url).into();
            store.insert(NewRecord { is_valuable: true, url, ..page(number, length) });
            if number % 500 == 0 {
                assert!(store.wait(TIMEOUT));
            }
        }
        assert!(store.wait(TIMEOUT));
        let stats = store.stats();
        assert!(store.contains(3_999) && stats.bytes <= size && stats.errors == 0, "{stats:?}");
    }
}

#[test]
fn valuable_records_stay_whatever_else_is_written_and_read() {
    const LENGTH: usize = 10_000;
    const VALUABLE: u32 = 300;
    let dir = tempfile::tempdir().expect("a directory");
    let size = 8 << 20;
    let store = store_of(dir.path(), size);
    let valuable = |number| NewRecord { is_valuable: true, ..page(number, LENGTH) };
    (0..VALUABLE).for_each(|number| store.insert(valuable(number)));
    for number in VALUABLE..VALUABLE + 4000 {
        store.insert(page(number, LENGTH));
        if number % 10 == 0 {
            assert!(store.wait(TIMEOUT));
            store.mark_used(number.into());
        }
    }
    assert!(store.wait(TIMEOUT));
    let is_stored = |store: &DiskStore, number: u32| store.contains(number.into());
    let stats = store.stats();
    assert!((0..VALUABLE).all(|number| is_stored(&store, number)), "{stats:?}");
    assert!(stats.bytes <= size && stats.evictions > 3000 && stats.dropped == 0 && stats.errors == 0, "{stats:?}");
    drop(store);
    let store = store_of(dir.path(), size);
    assert!((0..VALUABLE).all(|number| is_stored(&store, number)), "also after a restart");
    // Beyond their part of the files, they displace each other, and nothing else is written.
    (10_000..12_000).for_each(|number| store.insert(valuable(number)));
    assert!(store.wait(TIMEOUT));
    store.insert(page(20_000, LENGTH));
    assert!(store.wait(TIMEOUT));
    assert!(!is_stored(&store, 20_000) && is_stored(&store, 11_999) && store.stats().bytes <= size);
}

#[test]
fn files_stay_within_their_size_and_keep_what_is_used() {
    const LENGTH: usize = 10_000;
    let dir = tempfile::tempdir().expect("a directory");
    let size = 8 << 20;
    let store = store_of(dir.path(), size);
    store.insert(page(0, LENGTH));
    for number in 1..4000 {
        store.insert(page(number, LENGTH));
        if number % 10 == 0 {
            assert!(store.wait(TIMEOUT));
            assert!(
                store.mark_used(0) && store.read(0, ReadMode::Blocking).is_ok_and(|record| record.is_some()),
                "a record that is used goes on, {number}"
            );
            assert!(store.stats().bytes <= size);
        }
    }
    assert!(store.wait(TIMEOUT));
    let stats = store.stats();
    assert!(stats.evictions > 3000 && stats.entries > 400 && stats.dropped == 0 && stats.errors == 0, "{stats:?}");
    let of_files: u64 =
        fs::read_dir(dir.path()).expect("a directory").map(|file| length_of(&file.expect("a file").path())).sum();
    assert_eq!(of_files, stats.bytes);
    assert!(store.contains(3999), "the newest record");
    assert!(!store.contains(1), "a record that was not read");
    // A smaller size takes effect with the next record.
    store.set_size(4 << 20);
    store.insert(page(4000, LENGTH));
    assert!(store.wait(TIMEOUT));
    assert!(store.stats().bytes <= 4 << 20 && store.contains(4000));
}

#[test]
fn record_that_is_too_large_replaces_nothing_and_removes_the_older_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = store_of(dir.path(), 8 << 20);
    store.insert(page(1, 1000));
    store.insert(page(2, 1000));
    store.insert(page(1, 2 << 20));
    assert!(store.wait(TIMEOUT));
    assert!(!store.contains(1) && store.contains(2));
}

#[test]
fn invalidated_group_is_not_valid_again_by_a_second_chance() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = store_of(dir.path(), 8 << 20);
    store.insert(page(0, 1000));
    assert!(store.wait(TIMEOUT));
    store.invalidate(0, 0);
    for number in 1..2000 {
        store.insert(page(number, 10_000));
        if number % 50 == 0 {
            assert!(store.wait(TIMEOUT));
            store.mark_used(0);
        }
    }
    assert!(store.wait(TIMEOUT));
    drop(store);
    let store = store_of(dir.path(), 8 << 20);
    assert!(!store.contains(0) || store.is_invalidated(0));
}

#[test]
fn reader_goes_on_after_the_record_is_removed_and_its_files_deleted() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = store_of(dir.path(), 8 << 20);
    store.insert(page(1, LARGE));
    assert!(store.wait(TIMEOUT));
    let record = store.read(1, ReadMode::Blocking).ok().flatten().expect("a record");
    let first = record.body.read_block(0, ReadMode::Blocking).expect("a block");
    store.remove(1);
    (2..2000).for_each(|number| {
        store.insert(page(number, 10_000));
        assert!(store.wait(TIMEOUT));
    });
    assert!(!store.contains(1));
    let rest = (1..3).map(|number| record.body.read_block(number, ReadMode::Blocking).expect("a block"));
    assert!(std::iter::once(first).chain(rest).collect::<Vec<_>>().concat() == body(1, LARGE));
}

#[test]
fn second_process_is_refused_until_the_first_has_ended() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = store_of(dir.path(), SIZE);
    let refused = DiskStore::open(dir.path(), SIZE).err().expect("the directory is in use");
    assert_eq!(refused.kind(), std::io::ErrorKind::ResourceBusy);
    drop(store);
    store_of(dir.path(), SIZE);
}

#[test]
fn more_removals_than_may_wait_remove_all() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = store_of(dir.path(), SIZE);
    (0..10).for_each(|number| store.insert(page(number, 1000)));
    assert!(store.wait(TIMEOUT));
    // The thread is busy with a removal that takes until all others wait.
    let (begun, has_begun) = std::sync::mpsc::channel();
    let gate = Arc::new(parking_lot::Mutex::new(()));
    let closed = gate.lock();
    let (busy, inner_gate) = (store.clone(), Arc::clone(&gate));
    let blocked = std::thread::spawn(move || {
        busy.remove_where(move |_| {
            let _ = begun.send(());
            drop(inner_gate.lock());
            false
        })
    });
    has_begun.recv().expect("the thread has begun");
    // It waits, and its removal is among those that are forgotten.
    store.insert(page(11, 1000));
    (0..100_000).for_each(|key| store.remove(1_000_000 + key));
    store.remove(11);
    assert!(!store.contains(5), "no record may be read");
    store.insert(page(13, 1000));
    drop(closed);
    blocked.join().expect("a thread");
    assert!(store.wait(TIMEOUT));
    // The next task deletes all; records are stored again after it.
    store.remove(0);
    assert!(store.wait(TIMEOUT));
    assert!(!store.contains(5) && !store.contains(11) && store.stats().entries == 0);
    store.insert(page(12, 1000));
    assert!(store.wait(TIMEOUT) && store.contains(12));
}

#[test]
fn newer_record_of_an_invalidated_group_is_valid() {
    let dir = tempfile::tempdir().expect("a directory");
    let in_group = |number, body| NewRecord { group: 7, ..record(number, 0, body) };
    let parts = || NewBody::Parts(vec![Bytes::from_static(b"page")]);
    let store = store_of(dir.path(), SIZE);
    store.insert(in_group(1, parts()));
    store.insert(in_group(2, parts()));
    store.invalidate(1, 7);
    store.insert(in_group(3, parts()));
    assert!(store.wait(TIMEOUT));
    assert_eq!([1, 2, 3].map(|key| store.is_invalidated(key)), [true, false, false], "the key alone, for now");
    drop(store);
    let store = store_of(dir.path(), SIZE);
    assert_eq!([1, 2, 3].map(|key| store.is_invalidated(key)), [true, true, false]);
    // As the origin confirmed it.
    store.insert(in_group(1, NewBody::Unchanged));
    assert!(store.wait(TIMEOUT) && !store.is_invalidated(1));
    drop(store);
    let store = store_of(dir.path(), SIZE);
    assert_eq!([1, 2, 3].map(|key| store.is_invalidated(key)), [false, true, false]);
}

#[test]
fn invalidation_of_a_group_without_records_writes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = store_of(dir.path(), SIZE);
    store.insert(page(1, 100));
    assert!(store.wait(TIMEOUT));
    let bytes = store.stats().bytes;
    (1000..3000).for_each(|group| store.invalidate(group.into(), group));
    assert!(store.wait(TIMEOUT));
    // A few groups have the bit of that of the record.
    assert!(store.stats().bytes < bytes + 100, "{} bytes, then {}", bytes, store.stats().bytes);
}

#[test]
fn planted_links_and_pipes_are_neither_read_nor_written_nor_waited_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let outside = dir.path().join("outside");
    fs::write(&outside, b"not a segment").expect("a file");
    for number in [1, 2] {
        std::os::unix::fs::symlink(&outside, dir.path().join(format!("{number:010}.index"))).expect("a link");
        std::os::unix::fs::symlink(&outside, dir.path().join(format!("{number:010}.data"))).expect("a link");
    }
    let pipe = dir.path().join("0000000003.index");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("a pipe");
    let store = store_of(dir.path(), SIZE);
    assert_eq!(store.stats().entries, 0);
    store.insert(page(7, 100));
    assert!(store.wait(TIMEOUT) && store.stats().entries == 1, "{:?}", store.stats());
    assert_eq!(store.remove_where(|_| true), 1);
    assert_eq!(fs::read(&outside).expect("the file is there"), b"not a segment");
}

#[test]
fn small_records_do_not_fill_the_memory_of_the_index() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = store_of(dir.path(), 16 << 20);
    (0..10_000).for_each(|number| {
        store.insert(page(number, 1));
        if number % 1000 == 0 {
            assert!(store.wait(TIMEOUT));
        }
    });
    assert!(store.wait(TIMEOUT));
    let stats = store.stats();
    assert!(stats.entries <= 4096 && stats.evictions > 0, "{stats:?}");
}
