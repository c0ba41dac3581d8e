//! The store against a model: restarts, torn and damaged files, displacement, and removals in any order.

use bytes::Bytes;
use proptest::prelude::*;
use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidegate_cache_disk::{BLOCK, DiskStore, Label, NewBody, NewRecord};

const MIB: u64 = 1 << 20;

fn flush(store: &DiskStore) {
    assert!(store.flush(Duration::from_secs(600)));
}

fn open(dir: &Path, size: u64) -> DiskStore {
    let store = DiskStore::open(dir, size).expect("the directory is usable");
    flush(&store);
    assert!(store.stats().is_loaded);
    store
}

/// Closes a store: what is inserted is written.
fn close(store: DiskStore) {
    flush(&store);
}

/// Returns a body that only this key and version have.
fn body(key: u128, version: u8, length: usize) -> Vec<u8> {
    (0..length).map(|position| (key as u8) ^ version ^ (position as u8) ^ ((position >> 8) as u8)).collect()
}

fn record(key: u128, version: u8, length: usize) -> NewRecord {
    let whole = Bytes::from(body(key, version, length));
    let middle = length / 3;
    NewRecord {
        key,
        group: key as u64 % 4,
        url: format!("http://example.com/{}", key % 3).into(),
        tags: format!("tag-{}\nall", key % 2).into(),
        meta: vec![version],
        body: NewBody::Parts(vec![whole.slice(..middle), whole.slice(middle..)]),
    }
}

/// Returns the version, and the body unless it is damaged.
fn read(store: &DiskStore, key: u128) -> Option<(u8, Option<Vec<u8>>)> {
    let record = store.read(key)?;
    let body = record.body.read().ok().map(|parts| parts.concat());
    assert!(body.as_ref().is_none_or(|body| body.len() as u64 == record.body.len()));
    Some((record.meta[0], body))
}

fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    files.sort();
    files
}

#[derive(Clone, Debug)]
enum Step {
    Insert { key: u128, version: u8, length: usize },
    Validate { key: u128, version: u8 },
    Remove { key: u128 },
    RemoveGroup { group: u64 },
    RemoveUrl { url: u128 },
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0u128..12;
    let length = prop_oneof![0usize..2000, BLOCK as usize - 1..BLOCK as usize + 2, Just(200_000)];
    let step = prop_oneof![
        8 => (key.clone(), any::<u8>(), length).prop_map(|(key, version, length)| Step::Insert { key, version, length }),
        2 => (key.clone(), any::<u8>()).prop_map(|(key, version)| Step::Validate { key, version }),
        2 => key.prop_map(|key| Step::Remove { key }),
        1 => (0u64..4).prop_map(|group| Step::RemoveGroup { group }),
        1 => (0u128..3).prop_map(|url| Step::RemoveUrl { url }),
        2 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn store_has_after_each_restart_what_was_stored_and_not_removed(steps in steps()) {
        let dir = tempfile::tempdir().expect("a directory");
        let mut store = open(dir.path(), 1024 * MIB);
        let mut model = HashMap::<u128, (u8, Vec<u8>)>::new();
        for step in steps.into_iter().chain([Step::Restart]) {
            match step {
                Step::Insert { key, version, length } => {
                    store.insert(record(key, version, length));
                    model.insert(key, (version, body(key, version, length)));
                }
                Step::Validate { key, version } => {
                    store.insert(NewRecord { meta: vec![version], body: NewBody::Unchanged, ..record(key, 0, 0) });
                    model.entry(key).and_modify(|stored| stored.0 = version);
                }
                Step::Remove { key } => {
                    store.remove(key);
                    prop_assert_eq!(read(&store, key), None, "at once, even if its insertion waits");
                    model.remove(&key);
                }
                Step::RemoveGroup { group } => {
                    store.remove_group(group);
                    // In effect after a restart.
                    close(store);
                    store = open(dir.path(), 1024 * MIB);
                    model.retain(|key, _| *key as u64 % 4 != group);
                }
                Step::RemoveUrl { url } => {
                    let url_text = format!("http://example.com/{url}");
                    let removed = store.remove_where(move |label: Label<'_>| label.url == url_text);
                    let before = model.len() as u64;
                    model.retain(|key, _| key % 3 != url);
                    prop_assert_eq!(removed, before - model.len() as u64);
                }
                Step::Restart => {
                    close(store);
                    store = open(dir.path(), 1024 * MIB);
                }
            }
            flush(&store);
            for key in 0..12 {
                let expected = model.get(&key).map(|(version, body)| (*version, Some(body.clone())));
                prop_assert_eq!(read(&store, key), expected);
            }
            prop_assert_eq!(store.stats().entries, model.len() as u64);
        }
        prop_assert_eq!(store.stats().errors, 0);
    }

    /// A file may end anywhere after a crash, and any byte of it may be wrong.
    #[test]
    fn damaged_files_never_give_a_wrong_body(
        lengths in prop::collection::vec(0usize..150_000, 1..20),
        cuts in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..2),
        flips in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>(), 1u8..=255), 0..4),
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let store = open(dir.path(), 1024 * MIB);
        for (key, length) in lengths.iter().enumerate() {
            store.insert(record(key as u128, 1, *length));
        }
        close(store);
        let damage = |is_index: bool, change: &dyn Fn(&mut Vec<u8>)| {
            let [file] = &files(dir.path(), if is_index { "index" } else { "data" })[..] else { panic!("one segment") };
            let mut content = fs::read(file).expect("a file");
            if !content.is_empty() {
                change(&mut content);
            }
            fs::write(file, content).expect("a file");
        };
        for (is_index, place) in &cuts {
            damage(*is_index, &|content| content.truncate(place.index(content.len())));
        }
        for (is_index, place, flip) in &flips {
            damage(*is_index, &|content| {
                let place = place.index(content.len());
                content[place] ^= flip;
            });
        }
        let store = open(dir.path(), 1024 * MIB);
        for (key, length) in lengths.iter().enumerate() {
            match read(&store, key as u128) {
                Some((version, Some(found))) => {
                    prop_assert_eq!(version, 1);
                    prop_assert_eq!(found, body(key as u128, 1, *length));
                }
                Some((_, None)) | None => prop_assert!(!(cuts.is_empty() && flips.is_empty())),
            }
        }
        store.insert(record(3, 2, 10));
        flush(&store);
        prop_assert_eq!(read(&store, 3), Some((2, Some(body(3, 2, 10)))), "the store goes on");
    }
}

#[test]
fn files_keep_their_size_and_what_is_read_stays() {
    const LENGTH: usize = 20_000;
    let dir = tempfile::tempdir().expect("a directory");
    let size = 16 * MIB;
    let store = open(dir.path(), size);
    store.insert(record(0, 1, LENGTH));
    flush(&store);
    for key in 1..4000 {
        store.insert(record(key, 1, LENGTH));
        if key % 100 == 0 {
            flush(&store);
            assert_eq!(read(&store, 0), Some((1, Some(body(0, 1, LENGTH)))), "read before each displacement");
            let on_disk: u64 = ["data", "index"]
                .iter()
                .flat_map(|extension| files(dir.path(), extension))
                .map(|file| fs::metadata(file).expect("a file").len())
                .sum();
            assert!(on_disk <= size && store.stats().bytes == on_disk, "{on_disk} {:?}", store.stats());
        }
    }
    flush(&store);
    let stats = store.stats();
    assert!(stats.entries > 600 && stats.evictions > 3000 && stats.errors == 0, "{stats:?}");
    assert_eq!((read(&store, 1), read(&store, 3999).map(|(version, _)| version)), (None, Some(1)));
    store.set_size(4 * MIB);
    store.insert(record(4000, 1, LENGTH));
    flush(&store);
    assert!(store.stats().bytes <= 4 * MIB, "{:?}", store.stats());
    close(store);
    let store = open(dir.path(), 4 * MIB);
    assert_eq!(read(&store, 4000), Some((1, Some(body(4000, 1, LENGTH)))));
}

#[test]
fn removed_group_does_not_return_by_a_second_chance() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path(), 16 * MIB);
    store.insert(record(5, 1, 1000));
    flush(&store);
    assert!(read(&store, 5).is_some());
    store.remove_group(1);
    for key in (8..4000).step_by(4) {
        store.insert(record(key, 1, 60_000));
        if key % 100 == 0 {
            flush(&store);
            store.read(5);
        }
    }
    close(store);
    assert!(!open(dir.path(), 16 * MIB).contains(5));
}

#[test]
fn body_is_read_to_its_end_after_its_removal() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path(), 16 * MIB);
    store.insert(record(1, 1, 300_000));
    flush(&store);
    let record = store.read(1).expect("a record");
    store.remove(1);
    for key in 2..500 {
        store.insert(self::record(key, 1, 100_000));
        flush(&store);
    }
    assert!(store.stats().evictions > 0);
    assert_eq!(record.body.read().expect("the file is still open").concat(), body(1, 1, 300_000));
}

#[test]
fn too_many_removals_forget_all_records_instead_of_waiting() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path(), 16 * MIB);
    store.insert(record(1, 1, 10));
    flush(&store);
    for key in 0..400_000 {
        store.remove(key + 2);
    }
    flush(&store);
    // Whether the thread kept up is chance; in either case the store goes on, without a record that was removed.
    store.insert(record(2, 2, 10));
    flush(&store);
    assert_eq!(read(&store, 2), Some((2, Some(body(2, 2, 10)))));
    assert_eq!(store.stats().errors, 0);
}

#[test]
fn second_process_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let _store = open(dir.path(), MIB);
    assert_eq!(DiskStore::open(dir.path(), MIB).err().map(|error| error.kind()), Some(ErrorKind::ResourceBusy));
}
