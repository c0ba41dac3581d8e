//! Entries of the store.

use super::stored_response::{CompressedForm, StoredResponse};
use super::variants::Variants;
use std::sync::Arc;
use tidegate_policy::Timestamp;

/// What the store has for a key.
#[derive(Clone, Debug)]
pub(in crate::gateway) enum CacheEntry {
    Response(Arc<StoredResponse>),
    /// The URL has several responses.
    Variants(Arc<Variants>),
    /// Responses of the URL were not stored: requests do not wait for each other before this time.
    Pass {
        url: Arc<str>,
        until: Timestamp,
    },
    /// Compressed body of a response that has its own entry.
    Form(Arc<CompressedForm>),
}

impl CacheEntry {
    /// Invalidates the responses of the entry, as a write at `now` does.
    pub(super) fn invalidate(&self, now: Timestamp) {
        match self {
            Self::Response(response) => response.invalidate(),
            Self::Variants(variants) => variants.record_write(now),
            Self::Pass { .. } | Self::Form(_) => {}
        }
    }

    /// Returns the URL, as far as it is part of the key.
    pub(super) fn url(&self) -> &str {
        match self {
            Self::Response(response) => &response.url,
            Self::Variants(variants) => &variants.url,
            Self::Pass { url, .. } => url,
            Self::Form(form) => &form.url,
        }
    }
}
