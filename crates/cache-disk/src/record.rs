//! Records on their way to the files and back.

use crate::body::DiskBody;
use crate::format::FRAME_HEAD;
use bytes::Bytes;

/// Bytes of the files that a record counts at least, so that small ones do not fill the memory of the index: 142 bytes
/// each.
pub(crate) const MIN_RECORD: u64 = 4096;

/// A record to be stored.
#[derive(Debug)]
pub struct NewRecord {
    /// Key; the record replaces that of the same key.
    pub key: u128,
    /// Group: [`DiskStore::invalidate`](crate::DiskStore::invalidate) invalidates all its records.
    pub group: u64,
    /// URL, for removals.
    pub url: Box<str>,
    /// Tags, separated by line feeds, for removals.
    pub tags: Box<str>,
    /// It stays rather than records that are not valuable: those neither displace nor outlive it.
    pub is_valuable: bool,
    /// What is stored with the body.
    pub meta: Vec<u8>,
    /// The body.
    pub body: NewBody,
}

/// Body of a record to be stored.
#[derive(Debug)]
pub enum NewBody {
    /// These parts.
    Parts(Vec<Bytes>),
    /// The body of the record with the same key, which stays where it is.
    Unchanged,
}

/// A record that was read.
#[derive(Debug)]
pub struct DiskRecord {
    /// What was stored with the body.
    pub meta: Vec<u8>,
    /// The body, still in its file.
    pub body: DiskBody,
}

impl NewRecord {
    /// Returns the number of bytes of the body that are written.
    pub(crate) fn body_length(&self) -> u64 {
        match &self.body {
            NewBody::Parts(parts) => parts.iter().map(|part| part.len() as u64).sum(),
            NewBody::Unchanged => 0,
        }
    }

    /// Returns at least the number of bytes that the record occupies.
    pub(crate) fn length(&self) -> u64 {
        let label = (self.url.len() + self.tags.len()) as u64;
        self.body_length() + self.body_length() / 8192 + self.meta.len() as u64 + label + 4 * FRAME_HEAD as u64 + 128
    }
}
