//! The cache's part in a request on its way: the fetch that it is, the copies that may replace its response, what was saved.

use crate::gateway::cache::{CacheFetch, FetchRules, StoredResponse};
use crate::gateway::message::target::ClientRequest;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;
use tidegate_http_cache::storage::Unstorable;
use tidegate_http_cache::{CacheResult, CacheStatus, ForwardReason};
use tidegate_http1::Fields;
use tidegate_policy::{QuotaId, Timestamp, Units};

/// Reason for which a stored response is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum CopyReason {
    /// It may be used for the request.
    Reusable,
    /// It is stale, and a crowd requests it.
    Crowd,
    /// Another request fetched it while this one waited.
    Collapsed(ForwardReason),
    /// The gateway would have refused the request.
    Refused,
    /// The origin failed.
    Error,
    /// The origin confirmed it.
    Validated,
}

/// What the cache has to do with a request.
#[derive(Default)]
pub(in crate::gateway) struct CacheTrip {
    /// Fetch whose response may be stored, until the response is received.
    pub(in crate::gateway) fetch: Option<Box<CacheFetch>>,
    /// Stored response that the request could not use: it may take the place of a failure.
    bypassed_copy: Option<Arc<StoredResponse>>,
    /// What the response says of the cache; `None` if it says nothing.
    pub(in crate::gateway) status: Option<CacheStatus>,
    /// The response is stored.
    pub(in crate::gateway) is_stored: bool,
    /// Result of the cache; `None` if the route is not cached.
    pub(in crate::gateway) result: Option<CacheResult>,
    /// Reason for which the request is forwarded in spite of the cache.
    pub(in crate::gateway) forward_reason: Option<ForwardReason>,
    /// Only the origin's own cache may answer: the rules refused the request.
    pub(in crate::gateway) is_for_origin_cache: bool,
    /// Fields as the client sent them, if the origin is sent others because of the cache.
    client_fields: Option<Fields>,
    /// Units that a stored response saved.
    pub(in crate::gateway) saved: SmallVec<[(QuotaId, Units); 2]>,
}

impl CacheTrip {
    /// Records that the request is forwarded, and its response not stored.
    pub(in crate::gateway) fn bypass(&mut self, reason: ForwardReason, copy: Option<Arc<StoredResponse>>) {
        self.forward_reason = Some(reason);
        self.bypassed_copy = copy;
        self.result = Some(match reason {
            ForwardReason::Bypass | ForwardReason::Method => CacheResult::Bypass,
            _ => CacheResult::Miss,
        });
    }

    /// Records that the response is fetched for the cache.
    pub(in crate::gateway) fn begin_fetch(&mut self, fetch: Box<CacheFetch>) {
        self.result.get_or_insert(CacheResult::Miss);
        self.forward_reason = Some(fetch.reason);
        self.fetch = Some(fetch);
    }

    /// Rewrites target and fields of the request for the origin, if the response may be stored.
    pub(in crate::gateway) fn prepare(&mut self, request: &mut ClientRequest, rules: FetchRules<'_>, now: Timestamp) {
        if let Some(fetch) = &mut self.fetch {
            self.client_fields = Some(request.head.fields.clone());
            fetch.prepare(&mut request.head, rules, now);
            request.set_origin_target(fetch.url.path_and_query());
        }
    }

    /// Returns the fields that the client sent, as far as they are not rewritten for every request.
    pub(in crate::gateway) fn client_fields<'a>(&'a self, request: &'a ClientRequest) -> &'a Fields {
        self.client_fields.as_ref().unwrap_or(&request.head.fields)
    }

    /// Returns the stored response that may replace a failure of the origin for `limit`.
    pub(in crate::gateway) fn copy_for_error(&self, limit: Duration, now: Timestamp) -> Option<Arc<StoredResponse>> {
        self.stored_copy().filter(|copy| copy.terms().may_replace_error(limit, now))
    }

    /// Returns the stored response that may replace a refusal for `limit`.
    pub(in crate::gateway) fn copy_for_refusal(&self, limit: Duration, now: Timestamp) -> Option<Arc<StoredResponse>> {
        self.stored_copy().filter(|copy| copy.terms().may_replace_refusal(limit, now))
    }

    fn stored_copy(&self) -> Option<Arc<StoredResponse>> {
        match &self.fetch {
            Some(fetch) => fetch.copy.as_ref().map(|(_, copy)| Arc::clone(copy)),
            None => self.bypassed_copy.clone(),
        }
    }

    /// Records that nothing replaces the response any more: others may displace the copy.
    pub(in crate::gateway) fn forget_copy(&mut self) {
        self.bypassed_copy = None;
    }

    /// Records that the response, which is being received, is too large to be stored.
    pub(in crate::gateway) fn give_up_storage(&mut self) {
        if let Some(CacheStatus::Forward { stored, .. }) = &mut self.status {
            *stored = Some(Err(Unstorable::TooLarge));
        }
    }

    /// Returns what the cache did, at the end of the request: the response may have promised to be stored.
    pub(in crate::gateway) fn final_status(&self) -> Option<CacheStatus> {
        match self.status? {
            CacheStatus::Forward { reason, status, stored: Some(Ok(())) } if !self.is_stored => {
                Some(CacheStatus::Forward { reason, status, stored: None })
            }
            status => Some(status),
        }
    }

    /// Returns true if the response is a stored one.
    pub(in crate::gateway) fn is_from_copy(&self) -> bool {
        self.result.is_some_and(CacheResult::is_copy)
    }

    /// Returns the units that a stored response saved, of all quotas.
    pub(in crate::gateway) fn saved_units(&self) -> Units {
        self.saved.iter().map(|(_, units)| *units).sum()
    }
}
