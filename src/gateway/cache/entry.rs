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
            Self::Pass { .. } | Self::Form(_) => Saving::Nothing,
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
