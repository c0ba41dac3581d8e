//! The form of an entry in a file.

use super::entry::CacheEntry;
use super::key::CacheKey;
use super::saving::Saving;
use super::stored_response::{CopyUsage, ResponseHead, StoredBody, StoredResponse};
use super::variants::{FieldSet, NamedField, Variants};
use crate::gateway::message::page_url::canonical_url;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tidegate_cache_disk::{DiskRecord, DiskStore, NewBody, NewRecord, ReadMode};
use tidegate_http_cache::ReuseTerms;
use tidegate_http_cache::vary::SelectingFields;
use tidegate_policy::Timestamp;
use tracing::warn;

/// Name of the directory in `state_dir`.
const DIRECTORY: &str = "cache";
/// Largest body that returns to memory, in bytes. Larger ones are sent from their file.
const MAX_LOADED_BODY: u64 = 256 * 1024;
/// Version of [`EntryForm`]. Entries of others count as missing.
const FORM: u8 = 4;

/// An entry without its body, in a file.
#[derive(Serialize, Deserialize)]
struct EntryForm<'a> {
    version: u8,
    url: &'a str,
    saving: Saving,
    #[serde(borrow)]
    kind: KindForm<'a>,
}

#[derive(Serialize, Deserialize)]
enum KindForm<'a> {
    Response {
        status: u16,
        lines: &'a [u8],
        requested_at: u64,
        terms: TermsForm,
        selecting: Option<&'a [u8]>,
        /// A part of the hash of the last client's network.
        client: u32,
    },
    Variants {
        salt: u64,
        written_at: u64,
        /// With the times at which they were named.
        #[serde(borrow)]
        names: Vec<(&'a str, u64)>,
        /// With the ends of their freshness.
        sets: Vec<(Vec<&'a str>, u64)>,
    },
}

/// [`ReuseTerms`] in a file.
#[derive(Serialize, Deserialize)]
struct TermsForm {
    generated_at: u64,
    lifetime_s: u32,
    stale_while_revalidate_s: u32,
    stale_if_error_s: Option<u32>,
    always_validate: bool,
    never_stale: bool,
    is_shared_lifetime: bool,
    is_immutable: bool,
    is_public: bool,
    is_for_authorized: bool,
}

/// Opens the store in `state_dir`. Without it, responses are stored in memory alone.
pub(super) fn open(state_dir: &Path, size: u64) -> Option<DiskStore> {
    let dir = state_dir.join(DIRECTORY);
    DiskStore::open(&dir, size)
        .inspect_err(|error| {
            warn!(
                "cache.disk: {} cannot be used, keeping responses in memory alone: {error}; free the directory, or write \
                 cache: {{ disk: off }}",
                dir.display()
            );
        })
        .ok()
}

/// Returns the record of an entry; `None` for one that is kept in memory alone.
pub(super) fn record(key: CacheKey, entry: &CacheEntry, body: NewBody) -> Option<NewRecord> {
    let (url, kind, tags) = match entry {
        CacheEntry::Response(response) => {
            let kind = KindForm::Response {
                status: response.head.status.as_u16(),
                lines: response.head.lines(),
                requested_at: response.requested_at.0,
                terms: TermsForm::from(&response.terms),
                selecting: response.selecting.as_deref(),
                client: response.usage.client(),
            };
            (&*response.url, kind, response.tags().join("\n"))
        }
        CacheEntry::Variants(variants) => {
            let names = variants.names.iter().map(|named| (&*named.name, named.named_at.0)).collect();
            let sets = variants.sets.iter().map(|set| (set.fields.names().collect(), set.fresh_until.0)).collect();
            let written_at = variants.written_at.load(Ordering::Acquire);
            (&*variants.url, KindForm::Variants { salt: variants.salt, written_at, names, sets }, String::new())
        }
        CacheEntry::Pass { .. } | CacheEntry::Form(_) => return None,
    };
    let saving = entry.saving();
    let form = EntryForm { version: FORM, url, saving, kind };
    let meta = postcard::to_allocvec(&form).ok()?;
    let group = CacheKey::of_url(&canonical_url(url)).group();
    let is_valuable = saving != Saving::NOTHING;
    Some(NewRecord { key: key.number(), group, url: url.into(), tags: tags.into(), is_valuable, meta, body })
}

/// Returns the entry in a record; `version` is that of its body. Reads a small body into memory.
pub(super) fn entry(record: DiskRecord, version: u64, mode: ReadMode) -> io::Result<CacheEntry> {
    let DiskRecord { meta, body } = record;
    let unreadable = || io::Error::new(io::ErrorKind::InvalidData, "an entry of another version");
    let form: EntryForm<'_> = postcard::from_bytes(&meta).map_err(|_| unreadable())?;
    if form.version != FORM {
        return Err(unreadable());
    }
    match form.kind {
        KindForm::Variants { salt, written_at, names, sets } => {
            let named = |(name, named_at): (&str, u64)| NamedField { name: name.into(), named_at: Timestamp(named_at) };
            let set = |(names, fresh_until): (Vec<&str>, u64)| FieldSet {
                fields: SelectingFields::from_names(names.into_iter().map(str::to_owned)),
                fresh_until: Timestamp(fresh_until),
            };
            Ok(CacheEntry::Variants(Arc::new(Variants {
                url: form.url.into(),
                salt,
                names: names.into_iter().map(named).collect(),
                sets: sets.into_iter().map(set).collect(),
                saving: form.saving,
                written_at: AtomicU64::new(written_at),
            })))
        }
        KindForm::Response { status, lines, requested_at, terms, selecting, client } => {
            let status = StatusCode::from_u16(status).map_err(|_| unreadable())?;
            let head = ResponseHead::from_lines(status, lines).ok_or_else(unreadable)?;
            let body = match body.len() > MAX_LOADED_BODY {
                true => StoredBody::Disk(body),
                false => StoredBody::from_parts(body.read(mode)?),
            };
            Ok(CacheEntry::Response(Arc::new(StoredResponse {
                version,
                terms: terms.into(),
                is_invalidated: AtomicBool::new(false),
                head,
                body,
                requested_at: Timestamp(requested_at),
                url: form.url.into(),
                selecting: selecting.map(Into::into),
                saving: form.saving,
                usage: CopyUsage::by(client),
            })))
        }
    }
}

impl From<&ReuseTerms> for TermsForm {
    fn from(terms: &ReuseTerms) -> Self {
        let ReuseTerms {
            generated_at,
            lifetime_s,
            stale_while_revalidate_s,
            stale_if_error_s,
            always_validate,
            is_invalidated: _,
            never_stale,
            is_shared_lifetime,
            is_immutable,
            is_public,
            is_for_authorized,
        } = *terms;
        Self {
            generated_at: generated_at.0,
            lifetime_s,
            stale_while_revalidate_s,
            stale_if_error_s,
            always_validate,
            never_stale,
            is_shared_lifetime,
            is_immutable,
            is_public,
            is_for_authorized,
        }
    }
}

impl From<TermsForm> for ReuseTerms {
    fn from(form: TermsForm) -> Self {
        let TermsForm {
            generated_at,
            lifetime_s,
            stale_while_revalidate_s,
            stale_if_error_s,
            always_validate,
            never_stale,
            is_shared_lifetime,
            is_immutable,
            is_public,
            is_for_authorized,
        } = form;
        Self {
            generated_at: Timestamp(generated_at),
            lifetime_s,
            stale_while_revalidate_s,
            stale_if_error_s,
            always_validate,
            is_invalidated: false,
            never_stale,
            is_shared_lifetime,
            is_immutable,
            is_public,
            is_for_authorized,
        }
    }
}
