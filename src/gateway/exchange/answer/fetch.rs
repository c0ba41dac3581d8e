//! Responses of the origin to fetches for the cache: stored, or the confirmation of a copy.

use super::copy::respond_from_copy;
use super::origin::stream_response;
use crate::gateway::cache::{
    CacheEntry, CacheFetch, CacheKey, FetchEnd, FetchRules, Recorder, ResponseHead, StoredResponse,
};
use crate::gateway::exchange::cache_trip::CopyReason;
use crate::gateway::exchange::charges::{saved_units, saving_of_copy};
use crate::gateway::exchange::journal::Journal;
use crate::gateway::message::cost;
use crate::gateway::message::headers;
use crate::gateway::message::response_body::ResponseBody;
use crate::gateway::upstream::{OriginBody, UpstreamResponse};
use crate::gateway::worker::Worker;
use bytes::Bytes;
use http::StatusCode;
use hyper::body::Body;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_http_cache::storage::Unstorable;
use tidegate_http1::Fields;
use tidegate_http1::{Name, Response};

/// Responds to the request of a fetch: with the copy that the origin confirmed, or with its response, which is stored
/// if it may be.
pub(in crate::gateway) fn respond_to_fetch(
    journal: Box<Journal>,
    upstream: UpstreamResponse,
    mut fetch: Box<CacheFetch>,
) -> Response<ResponseBody> {
    let config = Rc::clone(&journal.known.config);
    let status = upstream.response.status;
    if status == StatusCode::NOT_MODIFIED
        && let Some((key, copy)) = fetch.copy.take()
    {
        return respond_from_validated(journal, upstream, *fetch, key, &copy);
    }
    let mut stored_fields = upstream.response.fields.clone();
    headers::strip_response(&mut stored_fields);
    let Some(rules) = FetchRules::of_route(&config.settings, journal.known.classified.route) else {
        return stream_response(journal, upstream, Bytes::new(), None);
    };
    let (worker, now) = (Rc::clone(journal.worker()), journal.worker().now());
    let store = &worker.shared().cache.store;
    let sent = &journal.known.request.head.fields;
    let length = upstream.response.body.size_hint().exact();
    let is_too_large = length.is_some_and(|length| length > rules.rules.max_object);
    let storage = fetch.storage(sent, status, &stored_fields, rules, now);
    // Another client may be served: the next requests name theirs.
    let is_refused = rules.names_clients && !fetch.may_name_client() && is_refusal(status);
    let storage = if is_refused { storage.and(Err(Unstorable::Status)) } else { storage };
    let storage = if is_too_large { storage.and(Err(Unstorable::TooLarge)) } else { storage };
    match storage {
        Ok((mut target, terms)) => {
            // A client that reloads it, perhaps for less, makes no copy of others worthless.
            target.saving =
                target.saving.max(saving_of_copy(&journal.known, &journal.origin, cost::was_cache_hit(&stored_fields)));
            // The client that asked first is one of those who ask.
            target.usage.is_by_another(journal.known.classified.key);
            let head = ResponseHead::new(status, &stored_fields, &worker.date());
            let (cache, guard) = (Arc::clone(&worker.shared.cache), fetch.guard.take());
            let max_object = rules.rules.max_object;
            let recorder = Recorder::new(cache, target, head, terms, guard, max_object, length);
            stream_response(journal, upstream, Bytes::new(), Some(Ok(Box::new(recorder))))
        }
        Err(reason) => {
            // After a failure, or a response that only this request has, the next request that waits fetches.
            if !reason.is_of_request() && !is_overload(status) && !fetch.is_personal {
                // The copy that the response replaces is no longer the origin's, unless this client was refused.
                if let Some((key, _)) = &fetch.copy
                    && !is_refusal(status)
                {
                    store.remove(*key);
                }
                remember_unshared(&worker, &mut fetch, journal.cache.client_fields(&journal.known.request));
            }
            stream_response(journal, upstream, Bytes::new(), Some(Err(reason)))
        }
    }
}

/// Responds with the copy that the origin confirmed, and stores its updated head.
fn respond_from_validated(
    mut journal: Box<Journal>,
    upstream: UpstreamResponse,
    mut fetch: CacheFetch,
    key: CacheKey,
    copy: &StoredResponse,
) -> Response<ResponseBody> {
    let config = Rc::clone(&journal.known.config);
    let UpstreamResponse { response, pool_guard, .. } = upstream;
    let Response { mut fields, mut body, .. } = response;
    if let Some(connection) = OriginBody::take_connection(&mut body) {
        pool_guard.put_back(connection, journal.worker().monotonic_tick().get());
    }
    journal.end_at_origin();
    journal.cache.saved = saved_units(&journal.known, &journal.origin);
    headers::strip_response(&mut fields);
    if !fields.contains(Name::Date) {
        fields.append(Name::Date, &journal.worker().date());
    }
    let (worker, now) = (Rc::clone(journal.worker()), journal.worker().now());
    let store = &worker.shared().cache.store;
    let head = copy.head.updated(&fields, &worker.date());
    let updated_fields = head.fields();
    let sent = &journal.known.request.head.fields;
    let storage = FetchRules::of_route(&config.settings, journal.known.classified.route)
        .map(|rules| fetch.storage(sent, head.status, &updated_fields, rules, now));
    let end = match storage {
        Some(Ok((mut target, terms))) => {
            target.usage = copy.usage.so_far();
            // To confirm it may cost less than to fetch it.
            target.saving =
                copy.saving.max(saving_of_copy(&journal.known, &journal.origin, cost::was_cache_hit(&fields)));
            let updated = Arc::new(target.response(copy.version, terms, head, copy.body.clone()));
            let is_stored = worker.shared().cache.insert_confirmed((key, copy), &target, Arc::clone(&updated));
            journal.cache.is_stored = is_stored;
            if let Some(guard) = fetch.guard.take().filter(|_| is_stored) {
                guard.end(if terms.is_reusable() { FetchEnd::Stored } else { FetchEnd::Unshared });
            }
            return respond_from_copy(journal, &updated, CopyReason::Validated);
        }
        // Confirmed for this request only.
        Some(Err(reason)) if reason.is_of_request() => None,
        _ => Some(FetchEnd::Unshared),
    };
    if let Some(end) = end {
        store.remove(key);
        if let Some(guard) = fetch.guard.take() {
            guard.end(end);
        }
    }
    respond_from_copy(journal, copy, CopyReason::Validated)
}

/// Returns true for statuses that say nothing about the page.
fn is_overload(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

/// Returns true for statuses that say something about the request or its client, and nothing about the page.
fn is_refusal(status: StatusCode) -> bool {
    status.is_client_error() && !matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE)
}

/// Returns true for statuses after which a stale copy may be sent (RFC 5861 section 4).
pub(in crate::gateway) fn is_failure(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}

/// Remembers that the response of a fetch was not for others, so that the next requests do not wait for each other.
/// `fields` are those of the client.
fn remember_unshared(worker: &Worker, fetch: &mut CacheFetch, fields: &Fields) {
    let store = &worker.shared().cache.store;
    if fetch.copy.is_none() {
        let key = fetch.lock_key(fields);
        // Other responses of the URL stay where they are found.
        if !matches!(store.get(key), Some(CacheEntry::Response(_) | CacheEntry::Variants(_))) {
            store.insert(key, CacheEntry::pass(&fetch.url.url, worker.now()));
        }
    }
    if let Some(guard) = fetch.guard.take() {
        guard.end(FetchEnd::Unshared);
    }
}
