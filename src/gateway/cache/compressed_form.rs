//! Compressed forms of stored responses, one for each content coding: made when a client first wants one, and kept beside
//! the response.

use super::entry::CacheEntry;
use super::key::CacheKey;
use super::stored_response::{CompressedForm, CopyBody, StoredBody, StoredResponse};
use crate::gateway::compressor::compress;
use crate::gateway::shared::Shared;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidegate_cache_disk::ReadMode;
use tidegate_policy::compression::Coding;
use tokio::task::spawn_blocking;

/// Largest body that is compressed while its client waits, in bytes: it takes about a millisecond.
const MAX_IMMEDIATE: u64 = 64 * 1024;

/// Returns the body of `copy` in `coding`. A small one that is missing is made at once; a larger one by another thread,
/// for the clients that follow.
pub(in crate::gateway) fn compressed_form(
    shared: &Arc<Shared>,
    copy: &StoredResponse,
    coding: Coding,
) -> Option<CopyBody> {
    let key = CacheKey::of_form(copy.version, coding);
    if let Some(CacheEntry::Form(form)) = shared.cache.store.get_form(key) {
        return Some(form.body.range(0, form.body.len()));
    }
    match copy.body.parts().filter(|_| copy.body.len() <= MAX_IMMEDIATE) {
        Some(parts) => {
            let body = compress(coding, parts).ok()?;
            insert(shared, key, copy.url.clone(), body.clone());
            Some(CopyBody::One(body))
        }
        None => {
            make_form(shared, key, copy, coding);
            None
        }
    }
}

/// Lets a thread make a form, unless one is being made: whatever clients ask for, they occupy one thread.
fn make_form(shared: &Arc<Shared>, key: CacheKey, copy: &StoredResponse, coding: Coding) {
    if shared.cache.is_making_form.swap(true, Ordering::AcqRel) {
        return;
    }
    let guard = FormGuard(Arc::clone(shared));
    let (url, body) = (copy.url.clone(), copy.body.clone());
    spawn_blocking(move || {
        let parts = match body {
            StoredBody::One(body) => Ok(vec![body]),
            StoredBody::Parts(parts) => Ok(parts.into_vec()),
            StoredBody::Disk(body) => body.read(ReadMode::Blocking),
        };
        if let Ok(form) = parts.and_then(|parts| compress(coding, &parts)) {
            insert(&guard.0, key, url, form);
        }
    });
}

fn insert(shared: &Shared, key: CacheKey, url: Box<str>, body: Bytes) {
    shared.cache.store.insert(key, CacheEntry::Form(Arc::new(CompressedForm { url, body: StoredBody::One(body) })));
}

/// A form that is being made. Dropping it lets the next one be made.
struct FormGuard(Arc<Shared>);

impl Drop for FormGuard {
    fn drop(&mut self) {
        self.0.cache.is_making_form.store(false, Ordering::Release);
    }
}
