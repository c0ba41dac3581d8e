//! Answers made from stored responses.

use super::compress::{encode_copy, encode_not_modified};
use super::head::prepare_copy;
use super::refusal::respond_with_problem;
use crate::gateway::cache::{CopyBody, MessageFields, StoredResponse};
use crate::gateway::exchange::cache_trip::CopyReason;
use crate::gateway::exchange::charges::saved_units;
use crate::gateway::exchange::journal::Journal;
use crate::gateway::message::problem::Problem;
use crate::gateway::message::response_body::ResponseBody;
use http::{Method, StatusCode};
use std::fmt::Write;
use std::sync::Arc;
use tidegate_http_cache::range::{RequestedRange, requested_range};
use tidegate_http_cache::validation::{allows_range, is_not_modified, is_sent_in_304};
use tidegate_http_cache::{CacheResult, CacheStatus, ForwardReason, HitDetail};
use tidegate_http1::{Fields, Name, NameSet, Response};
use tidegate_policy::Timestamp;

/// Responds that there is no stored response for a client that wants no other (RFC 9111 section 5.2.1.7).
pub(in crate::gateway) fn respond_only_if_cached(journal: Box<Journal>) -> Response<ResponseBody> {
    respond_with_problem(journal, Problem::only_if_cached())
}

/// Responds that the fetch of others, for which the request waited, takes too long.
pub(in crate::gateway) fn respond_overdue(mut journal: Box<Journal>) -> Response<ResponseBody> {
    let known = &journal.known;
    let wait = known.config.settings.response_timeout(known.classified.route);
    let problem = Problem::fetch_overdue(wait, known.retry_after_spread());
    journal.client.retry_after = problem.retry_after();
    respond_with_problem(journal, problem)
}

/// Responds with a stored response.
pub(in crate::gateway) fn respond_from_copy(
    mut journal: Box<Journal>,
    copy: &StoredResponse,
    reason: CopyReason,
) -> Response<ResponseBody> {
    // A reusable copy was found just before the decision.
    let is_reusable = matches!(reason, CopyReason::Reusable | CopyReason::Crowd);
    let now = if is_reusable { journal.origin.decided_at } else { journal.worker().now() };
    let is_stale = !copy.terms().is_fresh(now) && reason != CopyReason::Validated;
    journal.cache.result = Some(match reason {
        CopyReason::Validated => CacheResult::Revalidated,
        _ if is_stale => CacheResult::Stale,
        _ => CacheResult::Hit,
    });
    // A refused request would have cost nothing; a confirmed copy was counted with its charge.
    if !matches!(reason, CopyReason::Validated | CopyReason::Refused) {
        journal.cache.saved = saved_units(&journal.known, &journal.origin);
    }
    if journal.known.fill().is_none() {
        copy.usage.record(journal.known.classified.classification.class, journal.cache.saved_units());
    }
    let cache_status = copy_status(copy, reason, now);
    journal.cache.status = Some(cache_status);
    let (status, fields, mut body) = copy_response(&journal, copy, cache_status, now);
    let body = match body.take_small() {
        Some(bytes) => {
            journal.finish_local_response(status, bytes.len() as u64);
            ResponseBody::full(bytes)
        }
        None => {
            journal.begin_response(status);
            ResponseBody::stored(body, journal)
        }
    };
    Response { status, fields, body }
}

/// Returns what the cache did for a request that gets `copy` for `reason`.
pub(in crate::gateway) fn copy_status(copy: &StoredResponse, reason: CopyReason, now: Timestamp) -> CacheStatus {
    let ttl = copy.terms().ttl_seconds(now);
    match reason {
        CopyReason::Reusable => CacheStatus::Hit { ttl, detail: None },
        CopyReason::Crowd => CacheStatus::Hit { ttl, detail: Some(HitDetail::Crowd) },
        CopyReason::Collapsed(reason) => CacheStatus::Collapsed { reason },
        CopyReason::Refused => CacheStatus::Hit { ttl, detail: Some(HitDetail::Refused) },
        CopyReason::Error => CacheStatus::Hit { ttl, detail: Some(HitDetail::Error) },
        CopyReason::Validated => {
            CacheStatus::Forward { reason: ForwardReason::Stale, status: Some(304), stored: Some(Ok(())) }
        }
    }
}

/// Returns status, fields and body of the response that `copy` is to the request.
pub(in crate::gateway) fn copy_response(
    journal: &Journal,
    copy: &StoredResponse,
    cache_status: CacheStatus,
    now: Timestamp,
) -> (StatusCode, Fields, CopyBody) {
    let head = &journal.known.request.head;
    let client_fields = journal.cache.client_fields(&journal.known.request);
    let request = MessageFields(client_fields);
    let mut fields = copy.head.fields();
    let length = copy.body.len();
    let is_ok = copy.head.status == StatusCode::OK;
    let mut digits = itoa::Buffer::new();
    let is_conditional = is_ok && client_fields.contains_any(NameSet::of(&[Name::IfNoneMatch, Name::IfModifiedSince]));
    let (status, body) = if is_conditional && is_not_modified(&request, &MessageFields(&fields)) {
        fields.retain(|field| is_sent_in_304(&String::from_utf8_lossy(field.text).to_ascii_lowercase()));
        encode_not_modified(journal, &mut fields);
        (StatusCode::NOT_MODIFIED, CopyBody::none())
    } else if let Some(body) = encode_copy(journal, copy, &mut fields) {
        if head.method == Method::HEAD {
            fields.append(Name::ContentLength, digits.format(body.len()).as_bytes());
            (copy.head.status, CopyBody::none())
        } else {
            (copy.head.status, body)
        }
    } else if head.method == Method::HEAD {
        fields.append(Name::ContentLength, digits.format(length).as_bytes());
        (copy.head.status, CopyBody::none())
    } else {
        let range = client_fields.get(Name::Range).filter(|_| is_ok && allows_range(&request, &MessageFields(&fields)));
        match range.map_or(RequestedRange::Whole, |value| requested_range(value, length)) {
            RequestedRange::Whole => (copy.head.status, copy.body.range(0, length)),
            RequestedRange::Part { first, last } => {
                fields.append_with(Name::ContentRange, |text| write!(text, "bytes {first}-{last}/{length}"));
                (StatusCode::PARTIAL_CONTENT, copy.body.range(first, last + 1))
            }
            RequestedRange::Unsatisfiable => {
                fields.append_with(Name::ContentRange, |text| write!(text, "bytes */{length}"));
                (StatusCode::RANGE_NOT_SATISFIABLE, CopyBody::none())
            }
        }
    };
    // Before the gateway's own fields, which no change concerns.
    prepare_copy(journal, status, &mut fields);
    fields.append(Name::Age, digits.format(copy.terms().age(now).as_secs()).as_bytes());
    fields.append_with(Name::CacheStatus, |text| write!(text, "{cache_status}"));
    (status, fields, body)
}

/// Returns the stored response to send in place of a refusal by a scope, or by the origin.
pub(in crate::gateway) fn copy_for_refusal(journal: &Journal) -> Option<Arc<StoredResponse>> {
    let limit = journal.known.rules().cache.as_ref()?.stale_when_refused;
    journal.cache.copy_for_refusal(limit, journal.worker().now())
}

/// Returns the stored response to send after a failure of the origin.
pub(in crate::gateway) fn copy_for_error(journal: &Journal) -> Option<Arc<StoredResponse>> {
    let limit = journal.known.rules().cache.as_ref()?.stale_if_error;
    journal.cache.copy_for_error(limit, journal.worker().now())
}
