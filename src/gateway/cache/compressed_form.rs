//! Compressed forms of stored responses, one for each content coding: made when a client first wants one, and kept beside
//! the response.

use super::ResponseCache;
use super::entry::CacheEntry;
use super::key::CacheKey;
use super::stored_response::{CompressedForm, CopyBody, StoredBody, StoredResponse};
use crate::gateway::message::compressor::compress;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidegate_cache_disk::ReadMode;
use tidegate_http_cache::coding::Coding;
use tokio::task::spawn_blocking;

/// Largest body that is compressed while its client waits, in bytes: it takes about a millisecond.
const MAX_IMMEDIATE: u64 = 64 * 1024;

/// Returns the body of `copy` in `coding`. A small one that is missing is made at once; a larger one by another thread,
/// for the clients that follow.
pub(in crate::gateway) fn compressed_form(
    cache: &Arc<ResponseCache>,
    copy: &StoredResponse,
    coding: Coding,
) -> Option<CopyBody> {
    let key = CacheKey::of_form(copy.version, coding);
    if let Some(CacheEntry::Form(form)) = cache.store.get_form(key) {
        return Some(form.body.range(0, form.body.len()));
    }
    match copy.body.parts().filter(|_| copy.body.len() <= MAX_IMMEDIATE) {
        Some(parts) => {
            let body = StoredBody::from_parts(compress(coding, parts).ok()?);
            let whole = body.range(0, body.len());
            insert(cache, key, copy.url.clone(), body);
            Some(whole)
        }
        None => {
            make_form(cache, key, copy, coding);
            None
        }
    }
}

/// Lets a thread make a form, unless one is being made: whatever clients ask for, they occupy one thread.
fn make_form(cache: &Arc<ResponseCache>, key: CacheKey, copy: &StoredResponse, coding: Coding) {
    if cache.is_making_form.swap(true, Ordering::AcqRel) {
        return;
    }
    let guard = FormGuard(Arc::clone(cache));
    let (url, body) = (copy.url.clone(), copy.body.clone());
    spawn_blocking(move || {
        let form = match &body {
            StoredBody::Disk(body) => body.read(ReadMode::Blocking).and_then(|parts| compress(coding, &parts)),
            StoredBody::Small(_) | StoredBody::Parts(_) => compress(coding, body.parts().unwrap_or_default()),
        };
        if let Ok(form) = form {
            insert(&guard.0, key, url, StoredBody::from_parts(form));
        }
    });
}

fn insert(cache: &ResponseCache, key: CacheKey, url: Box<str>, body: StoredBody) {
    cache.store.insert(key, CacheEntry::Form(Arc::new(CompressedForm { url, body })));
}

/// A form that is being made. Dropping it lets the next one be made.
struct FormGuard(Arc<ResponseCache>);

impl Drop for FormGuard {
    fn drop(&mut self) {
        self.0.is_making_form.store(false, Ordering::Release);
    }
}
