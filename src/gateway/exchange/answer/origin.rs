//! Answers of the origin: its response, or its failure.

use super::compress::encode_response;
use super::head::prepare_client_response;
use super::refusal::respond_with_problem;
use crate::gateway::cache::Recorder;
use crate::gateway::exchange::journal::Journal;
use crate::gateway::message::problem::Problem;
use crate::gateway::message::response_body::ResponseBody;
use crate::gateway::session::begin_on_page;
use crate::gateway::upstream::{ForwardError, UpstreamResponse};
use bytes::Bytes;
use hyper::body::Body;
use std::fmt::Write;
use std::time::Duration;
use tidegate_engine::ThrottleRejection;
use tidegate_http_cache::CacheStatus;
use tidegate_http_cache::storage::Unstorable;
use tidegate_http1::{Fields, Name, Response};

/// Streams the origin's response to the client; `beginning` is the part of its body already read. `recorder` stores
/// it, if the request is a fetch for the cache and its response may be stored.
pub(in crate::gateway) fn stream_response(
    mut journal: Box<Journal>,
    upstream: UpstreamResponse,
    beginning: Bytes,
    recorder: Option<Result<Box<Recorder>, Unstorable>>,
) -> Response<ResponseBody> {
    let UpstreamResponse { response: Response { status, mut fields, body }, pool_guard, deadline } = upstream;
    let is_event_stream = body.size_hint().exact().is_none() && is_event_stream(&fields);
    let compressor = encode_response(&journal, status, &mut fields);
    prepare_client_response(&journal, status, &mut fields);
    let is_shared = recorder.as_ref().is_some_and(|it| it.as_ref().is_ok_and(|recorder| recorder.is_reusable()));
    begin_on_page(&journal, status, is_shared, &mut fields);
    if let Some(reason) = journal.cache.forward_reason {
        let stored = recorder.as_ref().map(|recorder| recorder.as_ref().map(|_| ()).map_err(|reason| *reason));
        let cache_status = CacheStatus::Forward { reason, status: None, stored };
        journal.cache.status = Some(cache_status);
        fields.append_with(Name::CacheStatus, |text| write!(text, "{cache_status}"));
    }
    journal.begin_response(status);
    if is_event_stream {
        deadline.set_limit(journal.known.config.settings.event_stream_timeout(journal.known.classified.route));
    }
    let recorder = recorder.and_then(Result::ok);
    let body = ResponseBody::relayed(beginning, body, pool_guard, deadline, recorder, compressor, journal);
    Response { status, fields, body }
}

/// Responds to a failure of the origin. `Retry-After` covers the backoff of the scopes.
pub(in crate::gateway) fn respond_to_origin_failure(
    mut journal: Box<Journal>,
    error: &ForwardError,
    backoff: Option<ThrottleRejection>,
) -> Response<ResponseBody> {
    journal.origin.settle_unknown();
    journal.worker().record_upstream_failure(&journal.known.config, journal.known.route().origin, error);
    let retry_after = backoff.map_or(Duration::ZERO, |rejection| rejection.retry_after);
    let problem = Problem::origin_failed(error, retry_after);
    if error.is_capacity() {
        journal.refuse_without_capacity(problem.retry_after());
    }
    respond_with_problem(journal, problem)
}

/// Returns true for a stream of server-sent events, which pauses while nothing happens.
fn is_event_stream(fields: &Fields) -> bool {
    let media_type = fields.get(Name::ContentType).unwrap_or_default().split(|&byte| byte == b';').next();
    media_type.is_some_and(|media_type| media_type.trim_ascii().eq_ignore_ascii_case(b"text/event-stream"))
}
