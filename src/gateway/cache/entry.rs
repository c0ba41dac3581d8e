//! Entries of the store.

use super::saving::Saving;
use super::stored_response::{CompressedForm, StoredResponse};
use super::variants::Variants;
use std::sync::Arc;
use std::time::Duration;
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

/// Time for which requests for a URL do not wait for each other after one whose response was not for others, unless one
/// that is follows. Each further response that is not for others restarts the time.
const PASS_TIME: Duration = Duration::from_secs(3600);
/// Bytes of an entry without a response.
const SMALL_ENTRY: u64 = 200;

impl CacheEntry {
    /// Invalidates the responses of the entry, as a write at `now` does.
    pub(super) fn invalidate(&self, now: Timestamp) {
        match self {
            Self::Response(response) => response.invalidate(),
            Self::Variants(variants) => variants.record_write(now),
            Self::Pass { .. } | Self::Form(_) => {}
        }
    }

    /// Returns the entry of a URL whose response at `now` was not for others.
    pub(in crate::gateway) fn pass(url: &str, now: Timestamp) -> Self {
        Self::Pass { url: url.into(), until: now + PASS_TIME }
    }

    /// Returns what a use of the entry saves.
    pub(super) fn saving(&self) -> Saving {
        match self {
            Self::Response(response) => response.saving,
            Self::Variants(variants) => variants.saving,
            Self::Pass { .. } | Self::Form(_) => Saving::NOTHING,
        }
    }

    /// Returns the bytes that the entry occupies.
    pub(super) fn weight(&self) -> u64 {
        match self {
            Self::Response(response) => response.weight(),
            Self::Pass { url, .. } => SMALL_ENTRY + url.len() as u64,
            Self::Variants(variants) => SMALL_ENTRY + variants.url.len() as u64 + variants.memory(),
            Self::Form(form) => SMALL_ENTRY + form.url.len() as u64 + form.body.len(),
        }
    }

    /// Returns the class of the entry by what a byte of it saves.
    pub(super) fn class(&self) -> usize {
        self.saving().class(self.weight())
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
