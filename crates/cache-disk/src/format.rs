//! Frames of the files: length, CRC-32, and a value in postcard's format.

use serde::{Deserialize, Serialize};

/// Version of the files. Files of others are deleted.
pub(crate) const VERSION: u32 = 3;

/// Length of the blocks in which a body is read, in bytes. The last one may be shorter.
pub const BLOCK: u64 = 64 * 1024;

/// Bytes of a frame before its value.
pub(crate) const FRAME_HEAD: usize = 8;

/// Place of a part of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Span {
    /// Number of the segment.
    pub(crate) segment: u32,
    /// First byte in its data file.
    pub(crate) offset: u32,
    /// Number of bytes.
    pub(crate) length: u32,
}

impl Span {
    /// Returns the end of the part in its file.
    pub(crate) fn end(self) -> u64 {
        u64::from(self.offset) + u64::from(self.length)
    }
}

/// What a removal can name besides the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label<'a> {
    /// URL of the record.
    pub url: &'a str,
    /// Tags of the record, separated by line feeds.
    pub tags: &'a str,
}

/// First frame of an index file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IndexHead<'a> {
    pub(crate) version: u32,
    /// Boot of the machine during which the file is written.
    pub(crate) boot: &'a str,
}

/// Entry of an index file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum IndexEntry<'a> {
    /// A record.
    Stored {
        key: u128,
        /// Records of one group are invalidated together.
        group: u64,
        head: Span,
        body: Span,
        is_valuable: bool,
        #[serde(borrow)]
        label: Label<'a>,
    },
    /// The record of the key was removed.
    Removed { key: u128 },
    /// All records of the group were invalidated.
    GroupInvalidated { group: u64 },
    /// The data file is synced as far as the entries before this one need it.
    Synced,
}

/// Head of a record in a data file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordHead<'a> {
    pub(crate) key: u128,
    pub(crate) body: Span,
    /// CRC-32 of each block of the body.
    pub(crate) checksums: Vec<u32>,
    /// What the user of the store keeps with the body.
    pub(crate) meta: &'a [u8],
}

/// Appends a frame with `value`.
pub(crate) fn append_frame(buffer: &mut Vec<u8>, value: &impl Serialize) {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; FRAME_HEAD]);
    let mut value = match postcard::to_extend(value, std::mem::take(buffer)) {
        Ok(written) => written,
        // A vector has no end, and the values have no maps or sequences of unknown length.
        Err(error) => unreachable!("{error}"),
    };
    let content = &value[start + FRAME_HEAD..];
    let (length, checksum) = (content.len() as u32, crc32fast::hash(content));
    value[start..start + 4].copy_from_slice(&length.to_le_bytes());
    value[start + 4..start + FRAME_HEAD].copy_from_slice(&checksum.to_le_bytes());
    *buffer = value;
}

/// Splits a frame off `bytes`. Returns its value and the rest; `None` if it is torn or damaged.
pub(crate) fn split_frame<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<(T, &'a [u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (checksum, rest) = rest.split_first_chunk()?;
    let (content, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    if crc32fast::hash(content) != u32::from_le_bytes(*checksum) {
        return None;
    }
    Some((postcard::from_bytes(content).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ENTRY: IndexEntry<'_> = IndexEntry::Stored {
        key: 7,
        group: 9,
        head: Span { segment: 1, offset: 300, length: 20 },
        body: Span { segment: 1, offset: 0, length: 300 },
        is_valuable: true,
        label: Label { url: "http://example.com/a", tags: "x\ny" },
    };

    proptest! {
        #[test]
        fn damaged_frame_is_never_read(position in 0usize..80, flipped in 1u8..=255) {
            let mut buffer = Vec::new();
            append_frame(&mut buffer, &ENTRY);
            prop_assert_eq!(split_frame::<IndexEntry<'_>>(&buffer), Some((ENTRY, &[][..])));
            prop_assert_eq!(split_frame::<IndexEntry<'_>>(&buffer[..position.min(buffer.len() - 1)]), None);
            let position = position % buffer.len();
            buffer[position] ^= flipped;
            prop_assert_eq!(split_frame::<IndexEntry<'_>>(&buffer), None);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let _ = split_frame::<IndexEntry<'_>>(&bytes);
            let _ = split_frame::<RecordHead<'_>>(&bytes);
        }
    }
}
