//! The index at the start, from the index files.

use crate::format::{IndexEntry, MAGIC, Span, split_frame};
use crate::segment::{self, Segment, index_path};
use foldhash::fast::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

/// Segments and records of a directory.
#[derive(Default)]
pub(crate) struct Loaded {
    pub(crate) segments: BTreeMap<u32, (Arc<Segment>, u64)>,
    pub(crate) records: HashMap<u128, (Span, Span), RandomState>,
    /// Segment of the last removal of each group.
    pub(crate) removed_groups: HashMap<u64, u32, RandomState>,
    /// Number of the next segment.
    pub(crate) next_segment: u32,
}

/// A record while the index files are read.
struct Found {
    head: Span,
    body: Span,
    group: u64,
    /// Number of the entry, in the order of writing.
    position: u64,
}

/// Reads the index files. Segments of other versions, and those without data, are deleted.
pub(crate) fn load(dir: &Path) -> io::Result<Loaded> {
    let mut loaded = Loaded::default();
    let mut records = HashMap::<u128, Found, RandomState>::default();
    let mut removals = HashMap::<u64, u64, RandomState>::default();
    let mut position = 0;
    for number in segment::numbers(dir)? {
        loaded.next_segment = number.saturating_add(1);
        let Some((segment, data_length, index)) = open(dir, number) else {
            segment::delete(dir, number)?;
            continue;
        };
        let mut rest = &index[MAGIC.len()..];
        while let Some((entry, later)) = split_frame::<IndexEntry<'_>>(rest) {
            rest = later;
            position += 1;
            match entry {
                IndexEntry::Stored { key, group, head, body, .. } => {
                    // A torn data file has the older records.
                    if head.segment == number && head.end() <= data_length {
                        records.insert(key, Found { head, body, group, position });
                    }
                }
                IndexEntry::Removed { key } => drop(records.remove(&key)),
                IndexEntry::GroupRemoved { group } => {
                    removals.insert(group, position);
                    loaded.removed_groups.insert(group, number);
                }
            }
        }
        loaded.segments.insert(number, (Arc::new(segment), data_length + index.len() as u64));
    }
    let has_segment = |span: Span| loaded.segments.contains_key(&span.segment);
    records.retain(|_, record| {
        let is_removed = removals.get(&record.group).is_some_and(|removed_at| record.position < *removed_at);
        !is_removed && (record.body.length == 0 || has_segment(record.body))
    });
    loaded.records = records.into_iter().map(|(key, record)| (key, (record.head, record.body))).collect();
    Ok(loaded)
}

fn open(dir: &Path, number: u32) -> Option<(Segment, u64, Vec<u8>)> {
    let index = fs::read(index_path(dir, number)).ok().filter(|index| index.starts_with(MAGIC))?;
    let (segment, length) = Segment::open(dir, number).ok()?;
    Some((segment, length, index))
}
