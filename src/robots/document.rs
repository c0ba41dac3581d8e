//! A robots.txt as it is served: the origin's text, or ours in its place, with the wishes in force written in.

use super::{RobotsDirectives, merged};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;

/// What the origin said, whole.
#[derive(Clone, Debug)]
pub struct OriginRobots {
    /// 200, or one that says that there is no robots.txt.
    pub status: u16,
    /// Its `Content-Type`, if it gave one.
    pub content_type: Option<Bytes>,
    /// The body.
    pub text: Bytes,
}

/// What is served.
#[derive(Clone, Debug)]
pub struct RobotsDocument {
    /// 200, unless there is nothing to be said.
    pub status: u16,
    /// Its `Content-Type`.
    pub content_type: Bytes,
    /// The body.
    pub text: Bytes,
    /// A strong validator: another text has another.
    pub etag: String,
    /// True where the wishes are left out, because with them it would be longer than what crawlers read.
    pub directives_omitted: bool,
}

/// An original, and the edition that was last made of it.
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

    /// The edition with these wishes.
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
    /// A text that is served as it is.
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
        // Unless it is 200, there are no rules of the origin's.
        let (content_type, rules) = match *status {
            200 => (content_type.clone().unwrap_or_else(plain), &text[..]),
            _ => (plain(), &[][..]),
        };
        match merged(rules, wishes) {
            Some(merged) => Self::of(200, content_type, merged.into()),
            None => Self { directives_omitted: true, ..as_it_is() },
        }
    }

    /// True when a client that sends this `If-None-Match` has the text already.
    pub fn matches_etag(&self, if_none_match: &[u8]) -> bool {
        let known = |tag: &[u8]| tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == self.etag.as_bytes();
        self.status == 200 && if_none_match.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).any(known)
    }
}

/// FNV-1a: the same in every process, so that a validator outlives a restart.
fn fingerprint(text: &[u8]) -> u64 {
    text.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
