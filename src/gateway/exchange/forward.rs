//! Forwarding of an admitted request: sent, settled, answered.

use super::answer::copy::{copy_for_error, copy_for_refusal, respond_from_copy};
use super::answer::fetch::{is_failure, respond_to_fetch};
use super::answer::origin::{respond_to_origin_failure, stream_response};
use super::answer::refusal::respond_with_problem;
use super::answer::tunnel::{respond_upgraded, wanted_upgrade};
use super::cache_trip::CopyReason;
use super::charges::{actual_cost, charge_unexpected_costs, expect_late_costs};
use super::invalidate::invalidate;
use super::journal::Journal;
use super::known::Known;
use super::origin_head::{changed_head, prepare_fetch, prepare_head};
use super::reported_usage::sync_quotas;
use super::send::{proxied_client, send};
use crate::gateway::message::headers::write_trace;
use crate::gateway::message::problem::Problem;
use crate::gateway::message::response_body::{ResponseBody, scan_to_end};
use crate::gateway::upstream::RequestBody;
use bytes::Bytes;
use http::{StatusCode, Version};
use hyper::body::Body;
use std::rc::Rc;
use tidegate_engine::{SlotGuard, ThrottleRejection};
use tidegate_http1::{Name, Response};
use tidegate_policy::QuotaId;
use tidegate_traces::TraceContext;

/// Forwards the request to the origin and returns the response for the client.
pub(in crate::gateway) async fn forward(
    body: RequestBody,
    mut journal: Box<Journal>,
    slots: Option<SlotGuard>,
) -> Response<ResponseBody> {
    let config = Rc::clone(&journal.known.config);
    let upgrade = match wanted_upgrade(&journal) {
        Ok(upgrade) => upgrade,
        Err(error) => return respond_to_origin_failure(journal, &error, None),
    };
    prepare_head(&mut journal.known);
    if let Some(upgrade) = &upgrade {
        let head = &mut journal.known.request.head;
        head.fields.append(Name::Connection, b"Upgrade");
        head.fields.append(Name::Upgrade, &upgrade.protocol);
    }
    prepare_fetch(&mut journal);
    let Known { client, request, .. } = &mut *journal.known;
    // The id that a client has chosen is not sent for a response that others may get.
    let is_own = |trace: &&TraceContext| trace.parent_span_id.is_none();
    if let Some(trace) = client.trace().filter(|trace| journal.cache.fetch.is_none() || is_own(trace)) {
        write_trace(&mut request.head.fields, trace);
    }
    journal.known.request.resolve_target();
    let (head, client) = (changed_head(&journal.known), proxied_client(&journal));
    let (result, backoff) = send(head.as_deref(), body, &mut journal, slots, client).await;
    let in_place_of_error = copy_for_error(&journal);
    let in_place_of_refusal = copy_for_refusal(&journal);
    let fetch = journal.cache.fetch.take();
    let upstream = match result {
        Ok(upstream) => upstream,
        Err(error) => {
            if let Some(copy) = in_place_of_error {
                journal.origin.settle_unknown();
                journal.worker().record_upstream_failure(&config, journal.known.route().origin, &error);
                return respond_from_copy(journal, &copy, CopyReason::Error);
            }
            return respond_to_origin_failure(journal, &error, backoff);
        }
    };
    let rules = &config.settings.rules;
    let revalidation_costs = fetch
        .as_ref()
        .filter(|fetch| fetch.copy.is_some() && upstream.response.status == StatusCode::NOT_MODIFIED)
        .and_then(|_| Some(rules[journal.known.classified.route].cache.as_ref()?.revalidation_costs.as_slice()))
        .unwrap_or_default();
    let expected_cost = |id: QuotaId, expected| {
        revalidation_costs.iter().find(|(quota, _)| *quota == id).map_or(expected, |(_, cost)| *cost)
    };
    let Response { status, fields, .. } = &upstream.response;
    let known = &journal.known;
    let released = (!known.config.late_quotas.is_empty()).then(|| {
        let has_body = !upstream.response.body.is_end_stream();
        expect_late_costs(known, &mut journal.origin, &journal.client, *status, fields, has_body)
    });
    journal.origin.settle(|quota, expected| actual_cost(known, quota, expected_cost(quota, expected), fields));
    if let Some(released) = released {
        journal.origin.charge(released);
    }
    charge_unexpected_costs(&journal.known, &mut journal.origin, *status, fields);
    sync_quotas(&journal.known, &mut journal.origin, *status, fields);
    // Over HTTP/2, a 2xx status would tell the client that its tunnel is open (RFC 8441 section 5).
    let is_success_of_connect =
        upgrade.is_some() && journal.known.request.head.version == Version::HTTP_2 && status.is_success();
    if *status == StatusCode::SWITCHING_PROTOCOLS || is_success_of_connect {
        return respond_upgraded(journal, upstream, upgrade);
    }
    // Overload 429 of the origin: all clients get the same response of the gateway.
    if let Some(ThrottleRejection { reason, retry_after, .. }) =
        backoff.filter(|_| *status == StatusCode::TOO_MANY_REQUESTS)
    {
        Box::pin(scan_to_end(upstream.response.body, &upstream.deadline, &mut journal)).await;
        if let Some(copy) = in_place_of_refusal {
            return respond_from_copy(journal, &copy, CopyReason::Refused);
        }
        let problem = Problem::throttled(reason, retry_after, 0.0);
        journal.client.retry_after = problem.retry_after();
        return respond_with_problem(journal, problem);
    }
    if is_failure(upstream.response.status)
        && let Some(copy) = in_place_of_error
    {
        Box::pin(scan_to_end(upstream.response.body, &upstream.deadline, &mut journal)).await;
        return respond_from_copy(journal, &copy, CopyReason::Error);
    }
    match fetch {
        Some(fetch) => respond_to_fetch(journal, upstream, fetch),
        None => {
            invalidate(&journal.known, &upstream.response);
            stream_response(journal, upstream, Bytes::new(), None)
        }
    }
}
