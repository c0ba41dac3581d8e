//! Collects a response while it passes to the client, and stores it once it is whole.

use super::ResponseCache;
use super::entry::CacheEntry;
use super::fetch_lock::{FetchEnd, FetchGuard};
use super::placement::StorageTarget;
use super::stored_response::{CopyBody, ResponseHead, StoredBody};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_http_cache::ReuseTerms;

/// Size of the parts of a body of unknown length.
const PART: usize = 64 * 1024;

/// Memory for responses that are being received: a part of that for stored ones, beside it.
pub(in crate::gateway) struct RecordingBudget {
    used: AtomicU64,
    limit: AtomicU64,
}

/// Divisor of the memory of the cache.
const RECORDING_PART: u64 = 4;

impl RecordingBudget {
    pub(super) fn new(cache_memory: u64) -> Self {
        Self { used: AtomicU64::default(), limit: AtomicU64::new(cache_memory / RECORDING_PART) }
    }

    pub(super) fn resize(&self, cache_memory: u64) {
        self.limit.store(cache_memory / RECORDING_PART, Ordering::Relaxed);
    }

    /// Takes `bytes`, which are given back later in any case. Returns false if they exceed the limit.
    fn take(&self, bytes: u64) -> bool {
        self.used.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.limit.load(Ordering::Relaxed)
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A response that is being received.
pub(in crate::gateway) struct Recorder {
    cache: Arc<ResponseCache>,
    /// Present until the end.
    target: Option<StorageTarget>,
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
        cache: Arc<ResponseCache>,
        target: StorageTarget,
        head: ResponseHead,
        terms: ReuseTerms,
        guard: Option<FetchGuard>,
        max_body: u64,
        length: Option<u64>,
    ) -> Self {
        let first_part = length.unwrap_or(0).min(PART as u64) as usize;
        let part = BytesMut::with_capacity(first_part);
        Self { cache, target: Some(target), head, terms, guard, max_body, parts: Vec::new(), part, length: 0 }
    }

    /// Returns true if other clients may get the response without the origin.
    pub(in crate::gateway) fn is_reusable(&self) -> bool {
        self.terms.is_reusable()
    }

    /// Adds a part of the body. Returns false if the body exceeds its limit, or all bodies theirs; nothing is to be stored
    /// then.
    pub(in crate::gateway) fn push(&mut self, data: &[u8]) -> bool {
        self.length += data.len() as u64;
        let is_within_budget = self.cache.recording.take(data.len() as u64);
        let is_too_large = self.length > self.max_body;
        self.add(data);
        if !is_too_large && is_within_budget {
            return true;
        }
        if let (Some(guard), Some(target)) = (self.guard.take(), &self.target) {
            if is_too_large {
                // The next requests fetch without a wait for each other.
                let pass = CacheEntry::pass(&target.url, self.cache.clock.now());
                self.cache.store.insert(guard.key(), pass);
            }
            guard.end(FetchEnd::Unshared);
        }
        false
    }

    /// Returns the number of bytes so far.
    pub(in crate::gateway) fn length(&self) -> u64 {
        self.length
    }

    /// Returns true if other requests wait for the response.
    pub(in crate::gateway) fn has_waiters(&self) -> bool {
        self.guard.as_ref().is_some_and(FetchGuard::has_waiters)
    }

    fn add(&mut self, data: &[u8]) {
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
    }

    fn start_part(&mut self, needed: usize) {
        let full = std::mem::replace(&mut self.part, BytesMut::with_capacity(needed.clamp(PART / 4, PART)));
        if !full.is_empty() {
            self.parts.push(full.freeze());
        }
    }

    /// Returns what was received.
    fn take_body(&mut self) -> StoredBody {
        if !self.part.is_empty() {
            let is_full = self.part.len() == self.part.capacity();
            let part =
                if is_full { std::mem::take(&mut self.part).freeze() } else { Bytes::copy_from_slice(&self.part) };
            self.parts.push(part);
        }
        StoredBody::from_parts(std::mem::take(&mut self.parts))
    }

    /// Stores nothing. Returns what was received from byte `rest` on.
    pub(in crate::gateway) fn abandon(mut self, rest: u64) -> CopyBody {
        let body = self.take_body();
        body.range(rest, body.len())
    }

    /// Stores the response, which is whole. Wakes those who wait for it. Returns whether it is stored, and its body from byte
    /// `rest` on, if that is given.
    pub(in crate::gateway) fn finish(mut self, rest: Option<u64>) -> (bool, Option<CopyBody>) {
        let body = self.take_body();
        let rest = rest.map(|rest| body.range(rest, body.len()));
        let is_reusable = self.terms.is_reusable();
        let mut target = self.target.take().expect("taken once, at the end");
        let version = self.cache.store.next_salt();
        let response = target.response(version, self.terms, self.head.take(), body);
        let is_stored = self.cache.insert_fetched(&target, response);
        if let Some(guard) = self.guard.take().filter(|_| is_stored) {
            guard.end(if is_reusable { FetchEnd::Stored } else { FetchEnd::Unshared });
        }
        (is_stored, rest)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.cache.recording.give_back(self.length);
    }
}
