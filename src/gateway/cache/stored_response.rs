//! A stored response: head, body, and the terms of its reuse.

use super::disk_reader::DiskReader;
use super::saving::Saving;
use crate::gateway::transport::connection_memory::ConnectionMemory;
use crate::gateway::transport::shared_body::OwnedBody;
use crate::gateway::transport::shared_reader::SharedReader;
use bytes::Bytes;
use http::StatusCode;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use tidegate_cache_disk::DiskBody;
use tidegate_http_cache::ReuseTerms;
use tidegate_http_cache::validation::is_updated_by_304;
use tidegate_http1::{Field, FieldBlock, Fields, Name};
use tidegate_policy::hash::mix;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::{ClassId, Timestamp, Units};

/// Fields that list the tags of a response.
const TAG_FIELDS: [&str; 2] = ["cache-tag", "surrogate-key"];

/// Bytes of a stored response besides its head, body and URL, as measured with a million pages of 1 KiB: its own structures,
/// those of the index, and what the allocator adds (docs/PERFORMANCE.md).
const OVERHEAD: u64 = 490;

/// Longest body that is charged to each of its readers, in bytes: one part, which is sent without further bookkeeping.
const MAX_UNSHARED: usize = 64 * 1024;

/// A stored response. A validation replaces it; nothing but its invalidation changes it.
#[derive(Debug)]
pub(in crate::gateway) struct StoredResponse {
    /// Number of its body: no other one in memory has it. Compressed forms are found by it.
    pub(in crate::gateway) version: u64,
    /// Terms of its reuse when it was stored.
    pub(super) terms: ReuseTerms,
    /// A write has invalidated it since.
    pub(super) is_invalidated: AtomicBool,
    pub(in crate::gateway) head: ResponseHead,
    pub(in crate::gateway) body: StoredBody,
    /// Time at which the origin was last asked.
    pub(in crate::gateway) requested_at: Timestamp,
    /// URL, as far as it is part of the key.
    pub(in crate::gateway) url: Box<str>,
    /// Lines of the request fields that select the response, so that the gateway can ask for it again; `None` if it cannot.
    pub(in crate::gateway) selecting: Option<Box<[u8]>>,
    pub(in crate::gateway) saving: Saving,
    pub(in crate::gateway) usage: CopyUsage,
}

/// Compressed body of a stored response, which has an entry of its own.
#[derive(Debug)]
pub(in crate::gateway) struct CompressedForm {
    /// URL of the response.
    pub(super) url: Box<str>,
    pub(super) body: StoredBody,
}

/// Use of a stored response. Counted without a lock.
#[derive(Debug, Default)]
pub(in crate::gateway) struct CopyUsage {
    hits: AtomicU64,
    /// Thousandths of units.
    saved_milli: AtomicU64,
    /// Class of the last client, by its index plus one; 0 for none.
    class: AtomicU32,
    /// Network of the last client, by a part of its hash; 0 for none.
    client: AtomicU32,
    /// The record on disk is marked as used.
    is_marked: AtomicBool,
}

impl CopyUsage {
    /// Counts a use by a client of `class` that saved `saved` units.
    pub(in crate::gateway) fn record(&self, class: ClassId, saved: Units) {
        self.hits.fetch_add(1, Ordering::Relaxed);
        self.class.store(class.index() as u32 + 1, Ordering::Relaxed);
        if !saved.is_zero() {
            self.saved_milli.fetch_add(saved.milli(), Ordering::Relaxed);
        }
    }

    /// Returns the number of uses, and the units that they saved.
    pub(in crate::gateway) fn get(&self) -> (u64, Units) {
        let saved = Units::from_milli(self.saved_milli.load(Ordering::Relaxed));
        (self.hits.load(Ordering::Relaxed), saved)
    }

    /// Returns the class of the last client by its index, as the rules were at that time.
    pub(in crate::gateway) fn class_index(&self) -> Option<usize> {
        self.class.load(Ordering::Relaxed).checked_sub(1).map(|index| index as usize)
    }

    /// Returns the use so far, for the response that replaces this one.
    pub(in crate::gateway) fn so_far(&self) -> Self {
        let (hits, saved) = self.get();
        let copied = |value: &AtomicU32| AtomicU32::new(value.load(Ordering::Relaxed));
        let (class, client) = (copied(&self.class), copied(&self.client));
        Self {
            hits: AtomicU64::new(hits),
            saved_milli: AtomicU64::new(saved.milli()),
            class,
            client,
            is_marked: AtomicBool::default(),
        }
    }

    /// Returns the use of a response for which `client`, as [`Self::client`] returns it, asked last.
    pub(super) fn by(client: u32) -> Self {
        Self { client: AtomicU32::new(client), ..Self::default() }
    }

    /// Returns a part of the hash of the last client's network; 0 for none.
    pub(super) fn client(&self) -> u32 {
        self.client.load(Ordering::Relaxed)
    }

    /// Marks the record on disk as used by `mark`, which returns true if there is one, unless it is marked already.
    pub(super) fn mark_once(&self, mark: impl FnOnce() -> bool) {
        if !self.is_marked.load(Ordering::Relaxed) && mark() {
            self.is_marked.store(true, Ordering::Relaxed);
        }
    }

    /// Remembers `client`. Returns true if it is of another network than the last, which may have many addresses; false if
    /// none is remembered.
    pub(in crate::gateway) fn is_by_another(&self, client: ClientKey) -> bool {
        let client = (mix(client.network()) >> 32) as u32;
        let last = self.client.load(Ordering::Relaxed);
        if last != client {
            self.client.store(client, Ordering::Relaxed);
        }
        last != client && last != 0
    }
}

/// Status and fields of a stored response.
#[derive(Clone, Debug)]
pub(in crate::gateway) struct ResponseHead {
    pub(in crate::gateway) status: StatusCode,
    fields: FieldBlock,
}

/// Body of a stored response: in memory, small or in parts, or in a file.
#[derive(Clone, Debug)]
pub(in crate::gateway) enum StoredBody {
    Small(Bytes),
    Parts(OwnedBody),
    Disk(DiskBody),
}

/// Bytes of a stored body for a response.
pub(in crate::gateway) enum CopyBody {
    Small(Bytes),
    Parts(SharedReader),
    Disk(DiskReader),
}

impl ResponseHead {
    /// Returns the head with the field lines that [`Self::lines`] returned; `None` for other bytes.
    pub(super) fn from_lines(status: StatusCode, lines: &[u8]) -> Option<Self> {
        let fields = FieldBlock::parse(Bytes::copy_from_slice(lines))?;
        Some(Self { status, fields })
    }

    /// Returns the field lines.
    pub(super) fn lines(&self) -> &[u8] {
        self.fields.text()
    }

    /// Returns the head of a response that was received at `date`, without the fields that each use of it writes.
    pub(in crate::gateway) fn new(status: StatusCode, fields: &Fields, date: &[u8]) -> Self {
        let mut lines = fields.to_lines(|field| !is_written_on_use(field));
        if !fields.contains(Name::Date) {
            let mut own = Fields::new();
            own.append(Name::Date, date);
            lines.extend(own.to_lines(|_| true));
        }
        // Without spare capacity, which would be kept. Valid, because fields are.
        Self { status, fields: FieldBlock::parse(lines.into_boxed_slice().into()).unwrap_or_default() }
    }

    /// Takes the head, and leaves one without fields. A clone would allocate a counter of its users.
    pub(super) fn take(&mut self) -> Self {
        Self { status: self.status, fields: std::mem::take(&mut self.fields) }
    }

    /// Returns the fields.
    pub(in crate::gateway) fn fields(&self) -> Fields {
        self.fields.to_fields()
    }

    /// Returns the head updated by the fields of a 304.
    pub(in crate::gateway) fn updated(&self, validated: &Fields, date: &[u8]) -> Self {
        let is_new = |name: &[u8]| is_updated_by_304(&lower_case(name));
        let mut fields = self.fields();
        fields.retain(|old| !(is_new(old.text) && validated.iter().any(|new| new.text.eq_ignore_ascii_case(old.text))));
        let mut lines = fields.to_lines(|_| true);
        lines.extend(validated.to_lines(|field| is_new(field.text) && !is_written_on_use(field)));
        let merged = Fields::from_lines(lines.into()).unwrap_or_default();
        Self::new(self.status, &merged, date)
    }
}

/// Returns true for fields that each use of a stored response writes.
fn is_written_on_use(field: Field<'_>) -> bool {
    matches!(field.name, Name::Age | Name::ContentLength | Name::Trailer | Name::TransferEncoding)
}

fn lower_case(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_ascii_lowercase()
}

impl StoredResponse {
    /// Returns the bytes that the response occupies.
    pub(super) fn weight(&self) -> u64 {
        let selecting = self.selecting.as_ref().map_or(0, |lines| lines.len());
        OVERHEAD + (self.head.fields.memory() + self.url.len() + selecting) as u64 + self.body.memory()
    }

    /// Returns the terms of its reuse.
    pub(in crate::gateway) fn terms(&self) -> ReuseTerms {
        ReuseTerms { is_invalidated: self.is_invalidated.load(Ordering::Acquire), ..self.terms }
    }

    /// Invalidates the response: it must be validated before it is used as a fresh one.
    pub(in crate::gateway) fn invalidate(&self) {
        self.is_invalidated.store(true, Ordering::Release);
    }

    /// Returns the tags.
    pub(super) fn tags(&self) -> Vec<String> {
        let fields = self.head.fields();
        let separators = |byte: &u8| matches!(byte, b',' | b' ' | b'\t');
        let values = TAG_FIELDS.iter().flat_map(|name| fields.get_all_by_text(name));
        let tags = values.flat_map(|value| value.split(separators)).filter(|tag| !tag.is_empty());
        tags.map(|tag| String::from_utf8_lossy(tag).into_owned()).collect()
    }

    /// Returns true if a client with such credentials may get the response.
    pub(in crate::gateway) fn is_for(&self, has_cookies: bool, has_authorization: bool) -> bool {
        (!has_cookies || self.terms.is_public) && (!has_authorization || self.terms.is_for_authorized)
    }
}

impl StoredBody {
    /// Returns the body of these parts.
    pub(super) fn from_parts(mut parts: Vec<Bytes>) -> Self {
        match &parts[..] {
            [] => Self::Small(Bytes::new()),
            [part] if part.len() <= MAX_UNSHARED => Self::Small(parts.remove(0)),
            _ => Self::Parts(OwnedBody::new(parts)),
        }
    }

    /// Returns the parts in memory; `None` if the body is in a file.
    pub(in crate::gateway) fn parts(&self) -> Option<&[Bytes]> {
        match self {
            Self::Small(body) => Some(std::slice::from_ref(body)),
            Self::Parts(body) => Some(body.parts()),
            Self::Disk(_) => None,
        }
    }

    /// Returns true if the file of the body is damaged.
    pub(in crate::gateway) fn is_damaged(&self) -> bool {
        matches!(self, Self::Disk(body) if body.is_damaged())
    }

    /// Returns the number of bytes.
    pub(in crate::gateway) fn len(&self) -> u64 {
        match self {
            Self::Disk(body) => body.len(),
            Self::Small(_) | Self::Parts(_) => self.memory(),
        }
    }

    /// Returns the number of bytes in memory.
    fn memory(&self) -> u64 {
        match self {
            Self::Small(body) => body.len() as u64,
            Self::Parts(body) => body.len() as u64,
            Self::Disk(_) => 0,
        }
    }

    /// Returns the bytes from `first` to before `end`.
    pub(in crate::gateway) fn range(&self, first: u64, end: u64) -> CopyBody {
        match self {
            Self::Small(body) => CopyBody::Small(body.slice(first as usize..end as usize)),
            Self::Parts(body) => CopyBody::Parts(SharedReader::new(body, first, end)),
            Self::Disk(body) => CopyBody::Disk(DiskReader::new(body.clone(), first, end)),
        }
    }
}

impl CopyBody {
    /// Returns the body of a response without one.
    pub(in crate::gateway) fn none() -> Self {
        Self::Small(Bytes::new())
    }

    /// Takes a small body.
    pub(in crate::gateway) fn take_small(&mut self) -> Option<Bytes> {
        match self {
            Self::Small(body) => Some(std::mem::take(body)),
            Self::Parts(_) | Self::Disk(_) => None,
        }
    }

    /// Polls for the next bytes; `None` at the end.
    pub(in crate::gateway) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        match self {
            Self::Small(body) => Poll::Ready(Some(std::mem::take(body)).filter(|body| !body.is_empty()).map(Ok)),
            Self::Parts(reader) => reader.poll_next(cx),
            Self::Disk(reader) => reader.poll_next(cx),
        }
    }

    /// Charges what it occupies to the connection of `client`, except for a small body.
    pub(in crate::gateway) fn charge(&mut self, memory: &Rc<ConnectionMemory>, client: ClientKey) {
        match self {
            Self::Small(_) => {}
            Self::Parts(reader) => reader.charge(memory, client),
            Self::Disk(reader) => reader.charge(memory),
        }
    }

    /// Returns the bytes of a small body.
    pub(in crate::gateway) fn small_len(&self) -> usize {
        match self {
            Self::Small(body) => body.len(),
            Self::Parts(_) | Self::Disk(_) => 0,
        }
    }

    /// Returns the number of bytes.
    pub(in crate::gateway) fn len(&self) -> u64 {
        match self {
            Self::Small(body) => body.len() as u64,
            Self::Parts(reader) => reader.remaining(),
            Self::Disk(reader) => reader.remaining(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_one_network_in_a_row_count_once() {
        let usage = CopyUsage::default();
        let v4 = |network: u64, host: u64| ClientKey::from_u64((network << 8) | host);
        let v6 = |site: u64, prefix: u64| ClientKey::from_u64((0x2001_0db8 << 32) | (site << 16) | prefix);
        // The first one filled the copy.
        for (client, counts) in [
            (v4(0xcb_0071, 1), false),
            (v4(0xcb_0071, 1), false),
            (v4(0xcb_0071, 254), false),
            (v4(0xc6_3364, 1), true),
            (v4(0xc6_3364, 2), false),
            (v6(1, 1), true),
            (v6(1, 0xffff), false),
            (v6(2, 1), true),
            (v4(0xcb_0071, 1), true),
        ] {
            assert_eq!(usage.is_by_another(client), counts, "{client:?}");
        }
        assert!(!CopyUsage::by(usage.client()).is_by_another(v4(0xcb_0071, 9)), "also after it was read from disk");
    }
}
