//! Bodies in files, in blocks with checksums.

use crate::format::{BLOCK, Span};
use crate::segment::{ReadMode, Segment};
use bytes::Bytes;
use std::fmt::Debug;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Store that a body belongs to.
pub(crate) trait BodyOwner: Debug + Send + Sync {
    /// Removes a record whose body could not be read, unless another has taken its place.
    fn remove_damaged(&self, key: u128, body: Span, error: &io::Error);
}

/// Body of a record. It can be read even after its record was removed.
#[derive(Clone, Debug)]
pub struct DiskBody {
    pub(crate) segment: Option<Arc<Segment>>,
    pub(crate) span: Span,
    pub(crate) checksums: Arc<[u32]>,
    pub(crate) owner: Weak<dyn BodyOwner>,
    pub(crate) key: u128,
    pub(crate) is_damaged: Arc<AtomicBool>,
}

impl DiskBody {
    /// Returns the number of bytes.
    pub fn len(&self) -> u64 {
        u64::from(self.span.length)
    }

    /// Returns true if the body has no bytes.
    pub fn is_empty(&self) -> bool {
        self.span.length == 0
    }

    /// Returns true if a read found the body damaged. Clones share this.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    /// Reads the block that begins at `number` times [`BLOCK`]. Fails if the file is damaged; the record is removed then.
    pub fn read_block(&self, number: u64, mode: ReadMode) -> io::Result<Bytes> {
        self.checked_block(number, mode).inspect_err(|error| {
            if error.kind() == io::ErrorKind::WouldBlock {
                return;
            }
            self.is_damaged.store(true, Ordering::Relaxed);
            if let Some(owner) = self.owner.upgrade() {
                owner.remove_damaged(self.key, self.span, error);
            }
        })
    }

    fn checked_block(&self, number: u64, mode: ReadMode) -> io::Result<Bytes> {
        let start = number * BLOCK;
        let (Some(segment), Some(checksum)) = (&self.segment, self.checksums.get(number as usize)) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let length = self.len().saturating_sub(start).min(BLOCK);
        let block = segment.read(u64::from(self.span.offset) + start, length as usize, mode)?;
        match crc32fast::hash(&block) == *checksum {
            true => Ok(block.into()),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "a block of a stored body is damaged")),
        }
    }

    /// Reads the whole body, in blocks. Fails if the file is damaged.
    pub fn read(&self, mode: ReadMode) -> io::Result<Vec<Bytes>> {
        (0..self.len().div_ceil(BLOCK)).map(|number| self.read_block(number, mode)).collect()
    }
}
