//! A robots.txt as served: the text of the origin or of the override file, with the current directives.

use super::{RobotsDirectives, merge_directives};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use tidegate_policy::hash::fnv1a;

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
    rendered: Mutex<Option<(Arc<RobotsDirectives>, Arc<RobotsDocument>)>>,
}

const PLAIN: &[u8] = b"text/plain; charset=utf-8";

impl RenderedSource {
    pub(super) fn new(original: OriginRobots) -> Self {
        Self { original, rendered: Mutex::default() }
    }

    pub(super) fn original(&self) -> &OriginRobots {
        &self.original
    }

    /// Returns the document with these directives; renders it if they have changed.
    pub(super) fn render(&self, directives: &Arc<RobotsDirectives>) -> Arc<RobotsDocument> {
        let mut rendered = self.rendered.lock();
        match &*rendered {
            Some((current, document)) if Arc::ptr_eq(current, directives) => Arc::clone(document),
            _ => {
                let document = Arc::new(RobotsDocument::new(&self.original, directives));
                *rendered = Some((Arc::clone(directives), Arc::clone(&document)));
                document
            }
        }
    }
}

impl RobotsDocument {
    /// Creates a document that is served unchanged.
    pub fn from_parts(status: u16, content_type: Bytes, text: Bytes) -> Self {
        // The hash is the same in every process, so validators remain valid after a restart.
        let etag = format!("\"{:x}-{:016x}\"", text.len(), fnv1a(text.iter().copied()));
        Self { status, content_type, text, etag, directives_omitted: false }
    }

    fn new(original: &OriginRobots, directives: &RobotsDirectives) -> Self {
        let OriginRobots { status, content_type, text } = original;
        let plain = || Bytes::from_static(PLAIN);
        let unchanged = || Self::from_parts(*status, content_type.clone().unwrap_or_else(plain), text.clone());
        if directives.is_empty() {
            return unchanged();
        }
        // A status other than 200 means that the origin has no rules.
        let (content_type, rules) = match *status {
            200 => (content_type.clone().unwrap_or_else(plain), &text[..]),
            _ => (plain(), &[][..]),
        };
        match merge_directives(rules, directives) {
            Some(merged) => Self::from_parts(200, content_type, merged.into()),
            None => Self { directives_omitted: true, ..unchanged() },
        }
    }

    /// Returns true if a line of `If-None-Match` contains the current validator.
    pub fn matches_etag(&self, if_none_match: &[u8]) -> bool {
        let is_current = |tag: &[u8]| tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == self.etag.as_bytes();
        self.status == 200 && if_none_match.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).any(is_current)
    }
}
