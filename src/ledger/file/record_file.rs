//! A file that always holds one whole record: two places, written in turn, each with its number and its checksum.
//!
//! ```text
//! 0      "tidegate" kind(8) version(u32) length of a slot(u32) CRC(u32)     the header, little-endian
//! 4096   number(u64) length(u32) CRC(u32) record ...                         one slot
//! 4096 + length of a slot                                                    the other
//! ```
//!
//! Both are set aside when the file is made, so a disk that fills up is noticed then and not in the middle. A slot whose
//! write or sync failed may be durable or not, and nobody can find out: the next record goes into a new file, while the
//! slot that is known to be good stays where it is.

use crate::ledger::file::dir::StateDir;
use std::io;

/// The format of the file, and of what is in it. One that is newer is left alone.
pub(in crate::ledger) const VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"tidegate";
const HEADER: usize = 4096;
const SLOT_HEADER: usize = 16;
/// Dozens of quotas. Where it is not enough the file is made anew, twice as large.
const MIN_SLOT_BYTES: usize = 64 * 1024;
/// Beyond it something is wrong: a thousand sliding quotas need less.
const MAX_SLOT_BYTES: usize = 64 * 1024 * 1024;

/// A file of two slots.
pub(in crate::ledger) struct RecordFile {
    name: &'static str,
    kind: &'static [u8; 8],
    slot: usize,
    /// The place of the last good record, and its number.
    newest: usize,
    pub(in crate::ledger) number: u64,
    /// The other place is not to be trusted any more.
    tainted: bool,
}

/// What was found in the place of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ledger) enum RecordFileError {
    /// It is something else.
    Foreign,
    /// It was written by a later version.
    Newer(u32),
    /// There is no whole record in it.
    Damaged(&'static str),
}

impl RecordFile {
    /// Reads the newest whole record of `bytes`.
    pub(in crate::ledger) fn read(
        name: &'static str,
        kind: &'static [u8; 8],
        bytes: &[u8],
    ) -> Result<(Self, Vec<u8>), RecordFileError> {
        if bytes.get(..8) != Some(MAGIC) || bytes.get(8..16) != Some(kind) {
            return Err(if bytes.is_empty() {
                RecordFileError::Damaged("it is empty")
            } else {
                RecordFileError::Foreign
            });
        }
        let version = u32_at(bytes, 16).ok_or(RecordFileError::Damaged("it breaks off in its header"))?;
        if version > VERSION {
            return Err(RecordFileError::Newer(version));
        }
        let slot = u32_at(bytes, 20).ok_or(RecordFileError::Damaged("it breaks off in its header"))? as usize;
        if u32_at(bytes, 24) != Some(crc32fast::hash(&bytes[..24]))
            || !(MIN_SLOT_BYTES..=MAX_SLOT_BYTES).contains(&slot)
        {
            return Err(RecordFileError::Damaged("its header does not match its checksum"));
        }
        if bytes.len() < HEADER + 2 * slot {
            return Err(RecordFileError::Damaged("it is shorter than it was made"));
        }
        let records = (0..2).filter_map(|place| {
            let (number, record) = record(&bytes[HEADER + place * slot..][..slot])?;
            Some((number, place, record))
        });
        let (number, newest, record) = records
            .max_by_key(|(number, ..)| *number)
            .ok_or(RecordFileError::Damaged("neither of its records is whole"))?;
        Ok((Self { name, kind, slot, newest, number, tainted: false }, record.to_vec()))
    }

    /// Makes the file, with one record, numbered after `number`.
    pub(in crate::ledger) fn create(
        name: &'static str,
        kind: &'static [u8; 8],
        folder: &mut impl StateDir,
        number: u64,
        record: &[u8],
    ) -> io::Result<Self> {
        let mut slots = Self { name, kind, slot: MIN_SLOT_BYTES, newest: 0, number, tainted: true };
        slots.recreate(folder, record)?;
        Ok(slots)
    }

    /// Writes the next record. Not durable before [`RecordFile::commit`] or the system says so; a kill does not undo it.
    pub(in crate::ledger) fn write(&mut self, folder: &mut impl StateDir, record: &[u8]) -> io::Result<()> {
        self.write_slot(folder, record, |_, _| Ok(()))
    }

    /// Writes the next record and makes it durable. Once this has failed, the record may come to light after a crash
    /// or not.
    pub(in crate::ledger) fn commit(&mut self, folder: &mut impl StateDir, record: &[u8]) -> io::Result<()> {
        self.write_slot(folder, record, |folder, name| folder.sync(name))
    }

    /// No record that may have been written since the last good one has a higher number.
    pub(in crate::ledger) fn safe_next_number(&self) -> u64 {
        self.number + 2
    }

    fn write_slot<F: StateDir>(
        &mut self,
        folder: &mut F,
        record: &[u8],
        sync: impl FnOnce(&mut F, &str) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.tainted || SLOT_HEADER + record.len() > self.slot {
            return self.recreate(folder, record);
        }
        let place = 1 - self.newest;
        let bytes = encode_slot(self.number + 1, record);
        let written = folder.write_at(self.name, (HEADER + place * self.slot) as u64, &bytes);
        if let Err(error) = written.and_then(|()| sync(folder, self.name)) {
            self.tainted = true;
            return Err(error);
        }
        (self.newest, self.number) = (place, self.number + 1);
        Ok(())
    }

    fn recreate(&mut self, folder: &mut impl StateDir, record: &[u8]) -> io::Result<()> {
        let mut slot = self.slot;
        while slot < (SLOT_HEADER + record.len()) * 2 && slot < MAX_SLOT_BYTES {
            slot *= 2;
        }
        if SLOT_HEADER + record.len() > slot {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the record is too large"));
        }
        // Numbered beyond the one that may or may not have been written.
        let number = self.safe_next_number();
        let mut bytes = vec![0; HEADER + 2 * slot];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..16].copy_from_slice(self.kind);
        bytes[16..20].copy_from_slice(&VERSION.to_le_bytes());
        bytes[20..24].copy_from_slice(&u32::try_from(slot).unwrap_or(u32::MAX).to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..24]);
        bytes[24..28].copy_from_slice(&checksum.to_le_bytes());
        let record = encode_slot(number, record);
        bytes[HEADER..HEADER + record.len()].copy_from_slice(&record);
        folder.replace(self.name, &bytes)?;
        (self.slot, self.newest, self.number, self.tainted) = (slot, 0, number, false);
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

/// The whole record in a slot, with its number.
fn record(slot: &[u8]) -> Option<(u64, &[u8])> {
    let number = u64::from_le_bytes(slot.get(..8)?.try_into().ok()?);
    let length = u32_at(slot, 8)? as usize;
    let record = slot.get(SLOT_HEADER..)?.get(..length)?;
    (number > 0 && u32_at(slot, 12) == Some(checksum(number, record))).then_some((number, record))
}

fn checksum(number: u64, record: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(&(record.len() as u64).to_le_bytes());
    hasher.update(record);
    hasher.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
