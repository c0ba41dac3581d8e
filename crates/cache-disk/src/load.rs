//! The index at the start, from the index files.

use crate::format::{IndexEntry, IndexHead, Span, VERSION, split_frame};
use crate::segment::{self, Segment};
use crate::shared::Location;
use foldhash::fast::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Bytes of an entry of an index file with a URL of usual length.
const TYPICAL_ENTRY: usize = 128;

/// Segments and records of a directory.
#[derive(Default)]
pub(crate) struct Loaded {
    pub(crate) segments: BTreeMap<u32, (Arc<Segment>, u64)>,
    /// Keys, groups and places; each key once.
    pub(crate) records: Vec<(u128, u64, Location)>,
    /// Segment of the last invalidation of each group.
    pub(crate) invalidated_groups: HashMap<u64, u32, RandomState>,
    /// Segments of this boot that are not synced as a whole, with the end of their entries.
    pub(crate) unsynced: Vec<(u32, u64)>,
    /// Number of the next segment.
    pub(crate) next_segment: u32,
}

/// A record while the index files are read.
struct Found {
    head: Span,
    body: Span,
    is_valuable: bool,
    group: u64,
    /// Number of the entry, in the order of writing.
    position: u64,
}

/// Reads the index files. `boot` names the boot of the machine: of what was written in others, only what was synced
/// counts. Segments of other versions, and those without data, are deleted.
pub(crate) fn load(dir: &Path, boot: &str) -> io::Result<Loaded> {
    let mut loaded = Loaded::default();
    let mut records = HashMap::<u128, Found, RandomState>::default();
    let mut invalidations = HashMap::<u64, u64, RandomState>::default();
    let mut position = 0;
    for number in segment::numbers(dir)? {
        loaded.next_segment = number.saturating_add(1);
        let index = segment::read_index(dir, number).unwrap_or_default();
        let head = split_frame::<IndexHead<'_>>(&index).filter(|(head, _)| head.version == VERSION);
        let (Some((head, entries)), Ok((segment, data_length))) = (head, Segment::open(dir, number)) else {
            segment::delete(dir, number)?;
            continue;
        };
        let is_whole = !boot.is_empty() && head.boot == boot;
        let whole_entries = if is_whole { usize::MAX } else { synced_length(entries) };
        let (mut synced, mut last) = (0, 0);
        records.reserve(entries.len() / TYPICAL_ENTRY);
        for (entry, end) in entries_of(entries) {
            last = end;
            position += 1;
            match entry {
                IndexEntry::Stored { key, group, head, body, is_valuable, .. } => {
                    // A torn data file has the older records.
                    if end <= whole_entries && head.segment == number && head.end() <= data_length {
                        records.insert(key, Found { head, body, is_valuable, group, position });
                    } else {
                        // The older record is not the one that was stored last.
                        records.remove(&key);
                    }
                }
                IndexEntry::Removed { key } => drop(records.remove(&key)),
                IndexEntry::GroupInvalidated { group } => {
                    invalidations.insert(group, position);
                    loaded.invalidated_groups.insert(group, number);
                }
                IndexEntry::Synced => synced = end,
            }
        }
        if is_whole && synced < last {
            loaded.unsynced.push((number, (index.len() - entries.len() + last) as u64));
        }
        loaded.segments.insert(number, (Arc::new(segment), data_length + index.len() as u64));
    }
    let has_segment = |span: Span| loaded.segments.contains_key(&span.segment);
    records.retain(|_, record| record.body.length == 0 || has_segment(record.body));
    let located = |(key, Found { head, body, is_valuable, group, position })| {
        let is_invalidated = invalidations.get(&group).is_some_and(|invalidated_at| position < *invalidated_at);
        (key, group, Location::new(head, body, is_valuable, is_invalidated))
    };
    loaded.records = records.into_iter().map(located).collect();
    Ok(loaded)
}

/// Iterates over the entries of an index file after its head, up to a torn one, each with its end.
pub(crate) fn entries_of(entries: &[u8]) -> impl Iterator<Item = (IndexEntry<'_>, usize)> {
    let mut rest = entries;
    std::iter::from_fn(move || {
        let (entry, later) = split_frame::<IndexEntry<'_>>(rest)?;
        rest = later;
        Some((entry, entries.len() - later.len()))
    })
}

/// Returns the end of the entries whose data is synced.
fn synced_length(entries: &[u8]) -> usize {
    let synced = entries_of(entries).filter(|(entry, _)| *entry == IndexEntry::Synced);
    synced.map(|(_, end)| end).last().unwrap_or(0)
}
