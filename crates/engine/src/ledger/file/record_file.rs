//! A file that always contains one intact record: two slots, written in turn, each with a number and a checksum.
//!
//! ```text
//! 0      "tidegate" kind(8) version(u32) length of a slot(u32) CRC(u32)     the header, little-endian
//! 4096   number(u64) length(u32) CRC(u32) record ...                         one slot
//! 4096 + length of a slot                                                    the other
//! ```
//!
//! Both slots are allocated when the file is created, so that a full disk is detected then. After a failed write or
//! sync, the content of a slot is unknown. The next record then goes into a new file, and the intact slot stays
//! unchanged.

use crate::ledger::file::dir::StateDir;
use std::io;

/// Version of the file format and of its content. Files of a newer version are not modified.
pub(in crate::ledger) const VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"tidegate";
const HEADER: usize = 4096;
const SLOT_HEADER: usize = 16;
/// Minimum slot size in bytes; enough for dozens of quotas. If it is too small, the file is recreated with twice the
/// size.
const MIN_SLOT_BYTES: usize = 64 * 1024;
/// Maximum slot size in bytes. A thousand sliding quotas need less, so more indicates an error.
const MAX_SLOT_BYTES: usize = 64 * 1024 * 1024;

/// A record file with two slots.
pub(in crate::ledger) struct RecordFile {
    name: &'static str,
    kind: &'static [u8; 8],
    slot_bytes: usize,
    /// Index of the slot with the last intact record; `number` is the number of that record.
    newest_slot: usize,
    pub(in crate::ledger) number: u64,
    /// True if the content of the other slot is unknown.
    tainted: bool,
    /// True if the other slot was damaged when the file was read: the newest record may be lost.
    pub(in crate::ledger) may_lack_newest: bool,
}

/// Reason why a record file cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ledger) enum RecordFileError {
    /// The file has another format.
    UnknownFormat,
    /// The file was written by a later version.
    UnsupportedVersion(u32),
    /// The file contains no intact record.
    Damaged(&'static str),
}

impl RecordFile {
    /// Reads the newest intact record of `bytes`.
    pub(in crate::ledger) fn read(
        name: &'static str,
        kind: &'static [u8; 8],
        bytes: &[u8],
    ) -> Result<(Self, Vec<u8>), RecordFileError> {
        if bytes.get(..8) != Some(MAGIC) || bytes.get(8..16) != Some(kind) {
            return Err(if bytes.is_empty() {
                RecordFileError::Damaged("empty file")
            } else {
                RecordFileError::UnknownFormat
            });
        }
        let version = u32_at(bytes, 16).ok_or(RecordFileError::Damaged("truncated header"))?;
        if version > VERSION {
            return Err(RecordFileError::UnsupportedVersion(version));
        }
        let slot_len = u32_at(bytes, 20).ok_or(RecordFileError::Damaged("truncated header"))? as usize;
        if u32_at(bytes, 24) != Some(crc32fast::hash(&bytes[..24]))
            || !(MIN_SLOT_BYTES..=MAX_SLOT_BYTES).contains(&slot_len)
        {
            return Err(RecordFileError::Damaged("header checksum mismatch"));
        }
        if bytes.len() < HEADER + 2 * slot_len {
            return Err(RecordFileError::Damaged("truncated file"));
        }
        let slot = |index: usize| &bytes[HEADER + index * slot_len..][..slot_len];
        let records = (0..2).filter_map(|index| {
            let (number, record) = decode_slot(slot(index))?;
            Some((number, index, record))
        });
        let (number, newest_slot, record) =
            records.max_by_key(|(number, ..)| *number).ok_or(RecordFileError::Damaged("no intact record"))?;
        let other = slot(1 - newest_slot);
        let may_lack_newest = decode_slot(other).is_none() && other.iter().any(|byte| *byte != 0);
        let file = Self { name, kind, slot_bytes: slot_len, newest_slot, number, tainted: false, may_lack_newest };
        Ok((file, record.to_vec()))
    }

    /// Creates the file with one record, numbered after `number`.
    pub(in crate::ledger) fn create(
        name: &'static str,
        kind: &'static [u8; 8],
        dir: &mut impl StateDir,
        number: u64,
        record: &[u8],
    ) -> io::Result<Self> {
        let mut file = Self {
            name,
            kind,
            slot_bytes: MIN_SLOT_BYTES,
            newest_slot: 0,
            number,
            tainted: true,
            may_lack_newest: false,
        };
        file.recreate(dir, record)?;
        Ok(file)
    }

    /// Writes the next record. A kill does not undo the write; it is durable after [`RecordFile::commit`] or a flush by
    /// the system.
    pub(in crate::ledger) fn write(&mut self, dir: &mut impl StateDir, record: &[u8]) -> io::Result<()> {
        self.write_slot(dir, record, |_, _| Ok(()))
    }

    /// Writes the next record and syncs it. After a failure, the record may or may not be found after a crash.
    pub(in crate::ledger) fn commit(&mut self, dir: &mut impl StateDir, record: &[u8]) -> io::Result<()> {
        self.write_slot(dir, record, |dir, name| dir.sync(name))
    }

    /// Returns a number that no record written since the last intact one exceeds.
    pub(in crate::ledger) fn safe_next_number(&self) -> u64 {
        self.number + 2
    }

    fn write_slot<F: StateDir>(
        &mut self,
        dir: &mut F,
        record: &[u8],
        sync: impl FnOnce(&mut F, &str) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.tainted || SLOT_HEADER + record.len() > self.slot_bytes {
            return self.recreate(dir, record);
        }
        let index = 1 - self.newest_slot;
        let bytes = encode_slot(self.number + 1, record);
        let written = dir.write_at(self.name, (HEADER + index * self.slot_bytes) as u64, &bytes);
        if let Err(error) = written.and_then(|()| sync(dir, self.name)) {
            self.tainted = true;
            return Err(error);
        }
        (self.newest_slot, self.number) = (index, self.number + 1);
        Ok(())
    }

    fn recreate(&mut self, dir: &mut impl StateDir, record: &[u8]) -> io::Result<()> {
        let mut slot_len = self.slot_bytes;
        while slot_len < (SLOT_HEADER + record.len()) * 2 && slot_len < MAX_SLOT_BYTES {
            slot_len *= 2;
        }
        if SLOT_HEADER + record.len() > slot_len {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "record too large"));
        }
        // Number the record above the one that may have been written.
        let number = self.safe_next_number();
        let mut bytes = vec![0; HEADER + 2 * slot_len];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..16].copy_from_slice(self.kind);
        bytes[16..20].copy_from_slice(&VERSION.to_le_bytes());
        bytes[20..24].copy_from_slice(&u32::try_from(slot_len).unwrap_or(u32::MAX).to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..24]);
        bytes[24..28].copy_from_slice(&checksum.to_le_bytes());
        let record = encode_slot(number, record);
        bytes[HEADER..HEADER + record.len()].copy_from_slice(&record);
        dir.replace(self.name, &bytes)?;
        (self.slot_bytes, self.newest_slot, self.number, self.tainted) = (slot_len, 0, number, false);
        Ok(())
    }
}

fn encode_slot(number: u64, record: &[u8]) -> Vec<u8> {
    let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(SLOT_HEADER + record.len());
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&checksum(number, record).to_le_bytes());
    bytes.extend_from_slice(record);
    bytes
}

/// Returns the intact record of a slot with its number, or `None`.
fn decode_slot(slot_bytes: &[u8]) -> Option<(u64, &[u8])> {
    let number = u64::from_le_bytes(slot_bytes.get(..8)?.try_into().ok()?);
    let length = u32_at(slot_bytes, 8)? as usize;
    let record = slot_bytes.get(SLOT_HEADER..)?.get(..length)?;
    (number > 0 && u32_at(slot_bytes, 12) == Some(checksum(number, record))).then_some((number, record))
}

fn checksum(number: u64, record: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(&(record.len() as u64).to_le_bytes());
    hasher.update(record);
    hasher.finalize()
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::dir::LockedDir;
    use super::*;
    use tempfile::TempDir;

    const NAME: &str = "records";
    const KIND: &[u8; 8] = b"testkind";

    /// A record file in a directory of its own.
    struct Fixture {
        dir: LockedDir,
        file: RecordFile,
        _temporary: TempDir,
    }

    impl Fixture {
        fn new(record: &[u8]) -> Self {
            let temporary = tempfile::tempdir().expect("temporary directory");
            let mut dir = LockedDir::lock(temporary.path()).expect("the directory is free");
            let file = RecordFile::create(NAME, KIND, &mut dir, 0, record).expect("writable");
            Self { dir, file, _temporary: temporary }
        }

        fn commit(&mut self, record: &[u8]) {
            self.file.commit(&mut self.dir, record).expect("writable");
        }

        fn bytes(&self) -> Vec<u8> {
            self.dir.read(NAME).expect("readable").expect("created")
        }

        /// Returns the offset of the newest slot.
        fn newest_slot(&self) -> usize {
            HEADER + self.file.newest_slot * self.file.slot_bytes
        }
    }

    fn read(bytes: &[u8]) -> Result<(u64, Vec<u8>), RecordFileError> {
        RecordFile::read(NAME, KIND, bytes).map(|(file, record)| (file.number, record))
    }

    /// Returns the bytes with a valid header for `slot_bytes`.
    fn with_slot_bytes(mut bytes: Vec<u8>, slot_bytes: u32) -> Vec<u8> {
        bytes[20..24].copy_from_slice(&slot_bytes.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..24]);
        bytes[24..28].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    #[test]
    fn last_record_is_read_whichever_slot_it_is_in() {
        let mut fixture = Fixture::new(b"first");
        let first = fixture.file.number;
        assert_eq!(read(&fixture.bytes()), Ok((first, b"first".to_vec())));
        for number in 1..6_u64 {
            let record = format!("record {number}").into_bytes();
            match number % 2 {
                0 => fixture.commit(&record),
                _ => fixture.file.write(&mut fixture.dir, &record).expect("writable"),
            }
            assert_eq!(read(&fixture.bytes()), Ok((first + number, record)));
            assert_eq!(fixture.file.safe_next_number(), first + number + 2);
        }
    }

    #[test]
    fn damage_to_any_byte_of_the_newest_record_uncovers_the_one_before() {
        let mut fixture = Fixture::new(b"before");
        let before = fixture.file.number;
        fixture.commit(b"newest");
        let (bytes, slot) = (fixture.bytes(), fixture.newest_slot());
        for offset in slot..slot + SLOT_HEADER + b"newest".len() {
            let mut damaged = bytes.clone();
            damaged[offset] ^= 1;
            assert_eq!(read(&damaged), Ok((before, b"before".to_vec())), "byte {}", offset - slot);
        }
    }

    #[test]
    fn damaged_header_and_truncated_file_are_errors() {
        let bytes = Fixture::new(b"record").bytes();
        for offset in 0..28 {
            let mut damaged = bytes.clone();
            damaged[offset] ^= 2;
            let expected = match offset {
                0..16 => RecordFileError::UnknownFormat,
                16 => RecordFileError::UnsupportedVersion(VERSION ^ 2),
                17..20 => RecordFileError::UnsupportedVersion(VERSION ^ (2 << (8 * (offset - 16)))),
                _ => RecordFileError::Damaged("header checksum mismatch"),
            };
            assert_eq!(read(&damaged), Err(expected), "byte {offset}");
        }
        for slot_bytes in [MIN_SLOT_BYTES as u32 - 1, MAX_SLOT_BYTES as u32 + 1] {
            let damaged = with_slot_bytes(bytes.clone(), slot_bytes);
            assert_eq!(read(&damaged), Err(RecordFileError::Damaged("header checksum mismatch")), "{slot_bytes}");
        }
        assert_eq!(read(&bytes[..bytes.len() - 1]), Err(RecordFileError::Damaged("truncated file")));
        let longer = with_slot_bytes(bytes.clone(), MIN_SLOT_BYTES as u32 + 1);
        assert_eq!(read(&longer), Err(RecordFileError::Damaged("truncated file")));
        assert_eq!(read(&bytes[..18]), Err(RecordFileError::Damaged("truncated header")));
        assert_eq!(read(&bytes[..22]), Err(RecordFileError::Damaged("truncated header")));
        assert_eq!(read(&[]), Err(RecordFileError::Damaged("empty file")));
    }

    #[test]
    fn slots_are_enlarged_when_a_record_exceeds_them() {
        let mut fixture = Fixture::new(&[1; MIN_SLOT_BYTES / 2 - SLOT_HEADER]);
        assert_eq!(fixture.bytes().len(), HEADER + 2 * MIN_SLOT_BYTES, "twice the first record fits");
        let largest = [2; MIN_SLOT_BYTES - SLOT_HEADER];
        fixture.commit(&largest);
        assert_eq!(fixture.bytes().len(), HEADER + 2 * MIN_SLOT_BYTES);
        assert_eq!(read(&fixture.bytes()).map(|(_, record)| record), Ok(largest.to_vec()));
        let larger = [3; MIN_SLOT_BYTES - SLOT_HEADER + 1];
        fixture.commit(&larger);
        assert_eq!(fixture.bytes().len(), HEADER + 2 * 4 * MIN_SLOT_BYTES, "twice the record fits");
        assert_eq!(read(&fixture.bytes()).map(|(_, record)| record), Ok(larger.to_vec()));
    }

    #[test]
    fn record_above_the_maximum_is_an_error_and_changes_nothing() {
        let mut fixture = Fixture::new(b"kept");
        let (number, too_large) = (fixture.file.number, vec![0; MAX_SLOT_BYTES - SLOT_HEADER + 1]);
        let error = fixture.file.commit(&mut fixture.dir, &too_large).expect_err("it exceeds the maximum");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read(&fixture.bytes()), Ok((number, b"kept".to_vec())));
    }
}
