//! Collects a response while it passes to the client, and stores it once it is whole.

use super::fetch_lock::{FetchEnd, FetchGuard};
use super::key::CacheKey;
use super::store::CacheEntry;
use super::stored_response::{CopyUsage, ResponseHead, StoredBody, StoredResponse};
use super::variants::Variants;
use crate::gateway::shared::Shared;
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use tidegate_policy::cache::ReuseTerms;

/// Size of the parts of a body of unknown length.
const PART: usize = 64 * 1024;

/// Where a response is stored.
pub(in crate::gateway) struct StorageTarget {
    /// Key of the response itself.
    pub(in crate::gateway) key: CacheKey,
    /// Key of the URL, with the fields that select among its responses, if there are any.
    pub(in crate::gateway) variants: Option<(CacheKey, Arc<Variants>)>,
    /// URL, as far as it is part of the key.
    pub(in crate::gateway) url: Box<str>,
}

/// A response that is being received.
pub(in crate::gateway) struct Recorder {
    shared: Arc<Shared>,
    target: StorageTarget,
    head: ResponseHead,
    terms: ReuseTerms,
    /// Lock of the fetch. Dropped before the end, it hands the fetch over.
    guard: Option<FetchGuard>,
    max_body: u64,
    parts: Vec<Bytes>,
    part: BytesMut,
    length: u64,
}

impl Recorder {
    /// Returns the recorder of a response with a body of `length` bytes, if it is known.
    pub(in crate::gateway) fn new(
        shared: Arc<Shared>,
        target: StorageTarget,
        head: ResponseHead,
        terms: ReuseTerms,
        guard: Option<FetchGuard>,
        max_body: u64,
        length: Option<u64>,
    ) -> Self {
        let first_part = length.unwrap_or(0).min(PART as u64) as usize;
        let part = BytesMut::with_capacity(first_part);
        Self { shared, target, head, terms, guard, max_body, parts: Vec::new(), part, length: 0 }
    }

    /// Adds a part of the body. Returns false if the body exceeds its limit; nothing is stored then.
    pub(in crate::gateway) fn push(&mut self, data: &[u8]) -> bool {
        self.length += data.len() as u64;
        if self.length > self.max_body {
            if let Some(guard) = self.guard.take() {
                guard.end(FetchEnd::Unshared);
            }
            return false;
        }
        let mut rest = data;
        while !rest.is_empty() {
            if self.part.len() == self.part.capacity() {
                self.start_part(rest.len());
            }
            let (now, later) = rest.split_at(rest.len().min(self.part.capacity() - self.part.len()));
            // Copied, because a part keeps the read buffer that it arrived in.
            self.part.extend_from_slice(now);
            rest = later;
        }
        true
    }

    fn start_part(&mut self, needed: usize) {
        let full = std::mem::replace(&mut self.part, BytesMut::with_capacity(needed.clamp(PART / 4, PART)));
        if !full.is_empty() {
            self.parts.push(full.freeze());
        }
    }

    /// Stores the response, which is whole. Wakes those who wait for it.
    pub(in crate::gateway) fn finish(mut self) {
        if !self.part.is_empty() {
            let is_full = self.part.len() == self.part.capacity();
            let part = if is_full { self.part.freeze() } else { Bytes::copy_from_slice(&self.part) };
            self.parts.push(part);
        }
        let mut parts = std::mem::take(&mut self.parts);
        let body = match parts.len() {
            0 => StoredBody::One(Bytes::new()),
            1 => StoredBody::One(parts.remove(0)),
            _ => StoredBody::Parts(parts.into()),
        };
        let is_reusable = !self.terms.always_validate && self.terms.lifetime_s > 0;
        let response = StoredResponse {
            terms: self.terms,
            head: self.head,
            body,
            url: self.target.url,
            usage: CopyUsage::default(),
        };
        let store = &self.shared.cache.store;
        if let Some((url_key, variants)) = self.target.variants {
            store.insert(url_key, CacheEntry::Variants(variants));
        }
        store.insert(self.target.key, CacheEntry::Response(Arc::new(response)));
        if let Some(guard) = self.guard {
            guard.end(if is_reusable { FetchEnd::Stored } else { FetchEnd::Unshared });
        }
    }
}
