//! Compressed forms of stored responses: made when a client first wants one, and kept beside the response, one for each
//! content coding.

use super::entry::CacheEntry;
use super::key::CacheKey;
use super::stored_response::{CompressedForm, CopyBody, StoredBody, StoredResponse};
use crate::gateway::shared::Shared;
use bytes::Bytes;
use std::sync::Arc;
use tidegate_policy::compression::Coding;

/// Collects a compressed body while it passes to a client, and stores it once it is whole.
pub(in crate::gateway) struct FormRecorder {
    shared: Arc<Shared>,
    key: CacheKey,
    url: Box<str>,
    /// Largest body.
    max_body: u64,
    parts: Vec<Bytes>,
    length: u64,
}

/// Returns the stored form of `copy`.
pub(in crate::gateway) fn find_form(shared: &Shared, copy: &StoredResponse, coding: Coding) -> Option<CopyBody> {
    match shared.cache.store.get(CacheKey::of_form(copy.version, coding))? {
        CacheEntry::Form(form) => Some(form.body.range(0, form.body.len())),
        CacheEntry::Response(_) | CacheEntry::Variants(_) | CacheEntry::Pass { .. } => None,
    }
}

impl FormRecorder {
    /// Returns the recorder of a form of `copy`.
    pub(in crate::gateway) fn new(shared: &Arc<Shared>, copy: &StoredResponse, coding: Coding, max_body: u64) -> Self {
        let key = CacheKey::of_form(copy.version, coding);
        Self { shared: Arc::clone(shared), key, url: copy.url.clone(), max_body, parts: Vec::new(), length: 0 }
    }

    /// Adds a part. Returns false if the form is too large to be stored.
    pub(in crate::gateway) fn push(&mut self, part: &Bytes) -> bool {
        self.length += part.len() as u64;
        self.parts.push(part.clone());
        self.shared.cache.recording.take(part.len() as u64) && self.length <= self.max_body
    }

    /// Stores the form, which is whole.
    pub(in crate::gateway) fn finish(mut self) {
        let (url, body) = (std::mem::take(&mut self.url), StoredBody::from_parts(std::mem::take(&mut self.parts)));
        let form = CacheEntry::Form(Arc::new(CompressedForm { url, body }));
        self.shared.cache.store.insert(self.key, form);
    }
}

impl Drop for FormRecorder {
    fn drop(&mut self) {
        self.shared.cache.recording.give_back(self.length);
    }
}
