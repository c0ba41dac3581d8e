//! A robots.txt as served: the text of the origin or of the override file, with the current directives.

use super::{RobotsDirectives, merged};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;

/// robots.txt as received from the origin.
#[derive(Clone, Debug)]
pub struct OriginRobots {
    /// 200, or a status that means that there is no robots.txt.
    pub status: u16,
    /// `Content-Type`, if present.
    pub content_type: Option<Bytes>,
    /// Body.
    pub text: Bytes,
}

/// A document to serve, with its validator.
#[derive(Clone, Debug)]
pub struct RobotsDocument {
    /// Status; 200 unless there is nothing to serve.
    pub status: u16,
    /// `Content-Type`.
    pub content_type: Bytes,
    /// Body.
    pub text: Bytes,
    /// Strong validator; it differs for different texts.
    pub etag: String,
    /// True if the directives are omitted, because the text would exceed the size that crawlers read.
    pub directives_omitted: bool,
}

/// A source and the document rendered from it last.
pub(super) struct RenderedSource {
    original: OriginRobots,
    edition: Mutex<Option<(Arc<RobotsDirectives>, Arc<RobotsDocument>)>>,
}

const PLAIN: &[u8] = b"text/plain; charset=utf-8";

impl RenderedSource {
    pub(super) fn new(original: OriginRobots) -> Self {
        Self { original, edition: Mutex::default() }
    }

    pub(super) fn original(&self) -> &OriginRobots {
        &self.original
    }

    /// Returns the document with these directives; renders it if they have changed.
    pub(super) fn render(&self, wishes: &Arc<RobotsDirectives>) -> Arc<RobotsDocument> {
        let mut kept = self.edition.lock();
        match &*kept {
            Some((of, edition)) if Arc::ptr_eq(of, wishes) => Arc::clone(edition),
            _ => {
                let edition = Arc::new(RobotsDocument::new(&self.original, wishes));
                *kept = Some((Arc::clone(wishes), Arc::clone(&edition)));
                edition
            }
        }
    }
}

impl RobotsDocument {
    /// Creates a document that is served unchanged.
    pub fn of(status: u16, content_type: Bytes, text: Bytes) -> Self {
        let etag = format!("\"{:x}-{:016x}\"", text.len(), fingerprint(&text));
        Self { status, content_type, text, etag, directives_omitted: false }
    }

    fn new(original: &OriginRobots, wishes: &RobotsDirectives) -> Self {
        let OriginRobots { status, content_type, text } = original;
        let plain = || Bytes::from_static(PLAIN);
        let as_it_is = || Self::of(*status, content_type.clone().unwrap_or_else(plain), text.clone());
        if wishes.is_empty() {
            return as_it_is();
        }
        // A status other than 200 means that the origin has no rules.
        let (content_type, rules) = match *status {
            200 => (content_type.clone().unwrap_or_else(plain), &text[..]),
            _ => (plain(), &[][..]),
        };
        match merged(rules, wishes) {
            Some(merged) => Self::of(200, content_type, merged.into()),
            None => Self { directives_omitted: true, ..as_it_is() },
        }
    }

    /// Returns true if `If-None-Match` contains the current validator.
    pub fn matches_etag(&self, if_none_match: &[u8]) -> bool {
        let known = |tag: &[u8]| tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == self.etag.as_bytes();
        self.status == 200 && if_none_match.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).any(known)
    }
}

/// FNV-1a hash. It is the same in every process, so validators remain valid after a restart.
fn fingerprint(text: &[u8]) -> u64 {
    text.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
