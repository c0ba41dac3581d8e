//! A stored response: head, body, and the terms of its reuse.

use bytes::Bytes;
use http::StatusCode;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_http1::{Field, Fields, Name};
use tidegate_policy::cache::ReuseTerms;
use tidegate_policy::cache::validation::is_updated_by_304;
use tidegate_policy::{Timestamp, Units};

/// Fields that list the tags of a response.
const TAG_FIELDS: [&str; 2] = ["cache-tag", "surrogate-key"];

/// Bytes of a stored response besides its head, body and URL: its own structures and those of the index.
const OVERHEAD: u64 = 200;

/// A stored response. Immutable: a validation replaces it.
#[derive(Debug)]
pub(in crate::gateway) struct StoredResponse {
    pub(in crate::gateway) terms: ReuseTerms,
    pub(in crate::gateway) head: ResponseHead,
    pub(in crate::gateway) body: StoredBody,
    /// Time at which the origin was last asked.
    pub(in crate::gateway) requested_at: Timestamp,
    /// URL, as far as it is part of the key.
    pub(in crate::gateway) url: Box<str>,
    pub(in crate::gateway) usage: CopyUsage,
}

/// Use of a stored response. Counted without a lock.
#[derive(Debug, Default)]
pub(in crate::gateway) struct CopyUsage {
    hits: AtomicU64,
    /// Thousandths of units.
    saved_milli: AtomicU64,
}

impl CopyUsage {
    /// Counts a use that saved `saved` units.
    pub(in crate::gateway) fn record(&self, saved: Units) {
        self.hits.fetch_add(1, Ordering::Relaxed);
        self.saved_milli.fetch_add(saved.milli(), Ordering::Relaxed);
    }

    /// Returns the number of uses, and the units that they saved.
    pub(in crate::gateway) fn get(&self) -> (u64, Units) {
        let saved = Units::from_milli(self.saved_milli.load(Ordering::Relaxed));
        (self.hits.load(Ordering::Relaxed), saved)
    }

    /// Returns the use so far, for the response that replaces this one.
    pub(in crate::gateway) fn so_far(&self) -> Self {
        let (hits, saved) = self.get();
        Self { hits: AtomicU64::new(hits), saved_milli: AtomicU64::new(saved.milli()) }
    }
}

/// Status and fields of a stored response.
#[derive(Clone, Debug)]
pub(in crate::gateway) struct ResponseHead {
    pub(in crate::gateway) status: StatusCode,
    lines: Bytes,
}

/// Body of a stored response, in parts.
#[derive(Clone, Debug)]
pub(in crate::gateway) enum StoredBody {
    One(Bytes),
    Parts(Box<[Bytes]>),
}

impl ResponseHead {
    /// Returns the head of a response that was received at `date`, without the fields that each use of it writes.
    pub(in crate::gateway) fn new(status: StatusCode, fields: &Fields, date: &[u8]) -> Self {
        let mut lines = fields.to_lines(|field| !is_written_on_use(field));
        if !fields.contains(Name::Date) {
            let mut own = Fields::new();
            own.append(Name::Date, date);
            lines.extend(own.to_lines(|_| true));
        }
        Self { status, lines: lines.into() }
    }

    /// Returns the fields.
    pub(in crate::gateway) fn fields(&self) -> Fields {
        Fields::from_lines(self.lines.clone()).unwrap_or_default()
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
        OVERHEAD + self.head.lines.len() as u64 + self.body.len() + self.url.len() as u64
    }

    /// Returns true if the response has the tag.
    pub(super) fn has_tag(&self, tag: &str) -> bool {
        let fields = self.head.fields();
        let separators = |byte: &u8| matches!(byte, b',' | b' ' | b'\t');
        let mut values = TAG_FIELDS.iter().flat_map(|name| fields.get_all_by_text(name));
        values.any(|value| value.split(separators).any(|found| found == tag.as_bytes()))
    }

    /// Returns true if a client with such credentials may get the response.
    pub(in crate::gateway) fn is_for(&self, has_cookies: bool, has_authorization: bool) -> bool {
        (!has_cookies || self.terms.is_public) && (!has_authorization || self.terms.is_for_authorized)
    }
}

impl StoredBody {
    /// Returns the number of bytes.
    pub(in crate::gateway) fn len(&self) -> u64 {
        match self {
            Self::One(body) => body.len() as u64,
            Self::Parts(parts) => parts.iter().map(|part| part.len() as u64).sum(),
        }
    }

    /// Returns the bytes from `first` to before `end`.
    pub(in crate::gateway) fn range(&self, first: u64, end: u64) -> VecDeque<Bytes> {
        let parts = match self {
            Self::One(body) => std::slice::from_ref(body),
            Self::Parts(parts) => parts,
        };
        let mut start = 0;
        let mut range = VecDeque::new();
        for part in parts {
            let length = part.len() as u64;
            let (from, to) = (first.max(start), end.min(start + length));
            if from < to {
                range.push_back(part.slice((from - start) as usize..(to - start) as usize));
            }
            start += length;
        }
        range
    }
}
