//! Serves robots.txt from a cache: fetched from the origin like any page, then served while fresh, or stale if the
//! origin fails.

use super::forward::prepare_client_response;
use super::request_handler::RequestHandler;
use crate::gateway::client_body::ClientBody;
use crate::gateway::request_context::RequestContext;
use crate::gateway::response_body::ResponseBody;
use crate::gateway::upstream::{ForwardError, RequestBody, UpstreamResponse};
use crate::gateway::{problem, target};
use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode, Uri};
use hyper::body::Body;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tidegate_crawlers::robots::{
    self, CacheLookup, CachedRobots, FetchGuard, FetchRole, MAX_ROBOTS_BYTES, OriginRobots, Requester,
};
use tidegate_http1::{Field, Fields, Name, RequestHead, Response};
use tidegate_policy::ClientKind;
use tidegate_policy::exempt::ROBOTS_TXT_PATH;
use tokio::time::timeout;

/// Conditions of a GET or HEAD request.
struct ConditionalGet {
    if_none_match: Option<Vec<u8>>,
    body: bool,
}

/// Result of reading the robots.txt of the origin.
enum ReadResult {
    Complete(Bytes),
    /// Larger than the cache accepts.
    Truncated(Bytes),
    Failed(ForwardError),
}

/// Scope of the response timeout of the origin while its robots.txt is read.
enum ReadTimeout {
    /// The whole text, because a stale copy can be served instead.
    Total,
    /// Each chunk, because there is no copy.
    PerChunk,
}

impl RequestHandler {
    pub(super) async fn serve_robots(
        &self,
        body: ClientBody,
        mut context: Box<RequestContext>,
    ) -> Response<ResponseBody> {
        self.drain_body(&context.client_request().head, body);
        let worker = &self.worker;
        let cache = &worker.shared().robots_cache;
        let conditions = ConditionalGet::from_head(&context.client_request().head);
        let site = self.site_key(&context);
        let requester = requester(&context);
        let (lookup, _guard) =
            self.lookup_or_fetch(&site, requester, context.current().settings.origin.response_timeout).await;
        let old = match lookup {
            CacheLookup::Fresh(cached) => return self.respond_cached(context, &conditions, &cached),
            CacheLookup::Revalidate(cached) => Some(cached),
            CacheLookup::Miss => None,
        };
        self.prepare_upstream_request(&mut context);
        let (_, _, head) = context.upstream_parts();
        let method = std::mem::replace(&mut head.method, Method::GET);
        let target = std::mem::replace(&mut head.target, Uri::from_static(ROBOTS_TXT_PATH));
        strip_client_headers(&mut head.fields);
        let (result, _) = self.send_upstream(RequestBody::empty(), &mut context, None).await;
        // The access log shows the client's request.
        let (_, _, head) = context.upstream_parts();
        (head.method, head.target) = (method, target);
        let mut upstream = match result {
            Ok(upstream) => upstream,
            Err(error) => return self.serve_stale(context, &conditions, old, &error),
        };
        context.settle(|_, expected| expected);
        let status = upstream.response.status;
        let is_overload = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
        if let Some(old) = old.as_ref().filter(|_| is_overload) {
            return self.respond_cached(context, &conditions, old);
        }
        let is_cacheable = matches!(status.as_u16(), 200 | 404 | 410) && is_identity_encoded(&upstream.response.fields);
        if !is_cacheable || upstream.response.body.size_hint().lower() > MAX_ROBOTS_BYTES as u64 {
            if !is_overload {
                cache.remove(&site);
            }
            return self.forward_response(context, &conditions, upstream, Bytes::new());
        }
        let read_timeout = if old.is_some() { ReadTimeout::Total } else { ReadTimeout::PerChunk };
        let text = match read(&mut upstream, read_timeout).await {
            ReadResult::Complete(text) => text,
            ReadResult::Truncated(beginning) => {
                cache.remove(&site);
                return self.forward_response(context, &conditions, upstream, beginning);
            }
            ReadResult::Failed(error) => return self.serve_stale(context, &conditions, old, &error),
        };
        let UpstreamResponse { response, pool_guard: lease, .. } = upstream;
        let Response { fields, mut body, .. } = response;
        if let Some(connection) = body.take_connection() {
            lease.put_back(connection, context.uptime());
        }
        let content_type = fields.get(Name::ContentType).map(Bytes::copy_from_slice);
        let fresh_for = robots::ttl_from_cache_control(fields.all(Name::CacheControl));
        let original = OriginRobots { status: status.as_u16(), content_type, text };
        let cached = cache.insert(&site, original, fresh_for, requester, worker.monotonic_now());
        self.respond_cached(context, &conditions, &cached)
    }

    /// Returns the cached document, and the guard for fetching it if this request has to. If another request is
    /// fetching it, waits once, at most `max_wait`.
    async fn lookup_or_fetch(
        &self,
        site: &str,
        requester: Requester,
        max_wait: Duration,
    ) -> (CacheLookup, Option<FetchGuard<'_>>) {
        let worker = &self.worker;
        let cache = &worker.shared().robots_cache;
        let lookup = cache.lookup(site, requester, worker.monotonic_now());
        if !matches!(lookup, CacheLookup::Miss) {
            return (lookup, None);
        }
        match cache.fetch_locks.acquire(site) {
            FetchRole::Fetch(guard) => (lookup, Some(guard)),
            FetchRole::Wait(waiter) => {
                let _ = timeout(max_wait, waiter.wait()).await;
                (cache.lookup(site, requester, worker.monotonic_now()), None)
            }
        }
    }

    /// Returns scheme and host as the client sees them. Each pair has its own robots.txt.
    fn site_key(&self, context: &RequestContext) -> String {
        let head = &context.client_request().head;
        let is_trusted = context.current().settings.rules.trust.trusts(self.peer);
        let scheme = head.fields.get(Name::ForwardedProto).filter(|_| is_trusted).unwrap_or(b"http");
        let host = target::host(head);
        [scheme, b"://", host].concat().to_ascii_lowercase().iter().map(|&byte| char::from(byte)).collect()
    }

    fn respond_cached(
        &self,
        context: Box<RequestContext>,
        conditions: &ConditionalGet,
        cached: &CachedRobots,
    ) -> Response<ResponseBody> {
        let (mut response, bytes) =
            problem::cached_response(cached, conditions.if_none_match.as_deref(), conditions.body);
        prepare_client_response(&context, response.status, &mut response.fields);
        context.finish_local_response(response.status, bytes);
        response
    }

    /// Serves the stale copy if the origin failed, or an error if there is none.
    fn serve_stale(
        &self,
        context: Box<RequestContext>,
        conditions: &ConditionalGet,
        old: Option<CachedRobots>,
        error: &ForwardError,
    ) -> Response<ResponseBody> {
        match old {
            Some(old) => {
                self.worker.log_upstream_failure(error);
                self.respond_cached(context, conditions, &old)
            }
            None => self.respond_to_origin_failure(context, error, None),
        }
    }

    /// Forwards the origin's response unchanged; `beginning` is the part of its body already read.
    fn forward_response(
        &self,
        context: Box<RequestContext>,
        conditions: &ConditionalGet,
        upstream: UpstreamResponse,
        beginning: Bytes,
    ) -> Response<ResponseBody> {
        if conditions.body {
            return self.stream_response(context, upstream, beginning);
        }
        // The upstream request was a full GET, whatever the client requested.
        let Response { status, mut fields, .. } = upstream.response;
        prepare_client_response(&context, status, &mut fields);
        context.finish_local_response(status, 0);
        Response { status, fields, body: ResponseBody::full(Bytes::new()) }
    }
}

impl ConditionalGet {
    fn from_head(head: &RequestHead) -> Self {
        let if_none_match = head.fields.get(Name::IfNoneMatch).map(<[u8]>::to_vec);
        Self { if_none_match, body: head.method != Method::HEAD }
    }
}

fn requester(context: &RequestContext) -> Requester {
    match context.evaluation().classification.kind {
        ClientKind::VerifiedBot => Requester::VerifiedCrawler,
        _ => Requester::Other,
    }
}

/// Removes all fields that depend on the client: the response is cached for all clients, complete and not encoded.
fn strip_client_headers(fields: &mut Fields) {
    let is_of_this_client = |field: &Field<'_>| {
        matches!(
            field.name,
            Name::AcceptEncoding | Name::Authorization | Name::CacheControl | Name::ContentLength | Name::Cookie
        ) || field.text.get(..3).is_some_and(|start| start.eq_ignore_ascii_case(b"if-"))
            || field.text.eq_ignore_ascii_case(b"range")
    };
    fields.retain(|field| !is_of_this_client(&field));
    fields.append(Name::AcceptEncoding, b"identity");
}

/// Returns true for a response without content encoding.
fn is_identity_encoded(fields: &Fields) -> bool {
    fields.get(Name::ContentEncoding).is_none_or(|coding| coding.eq_ignore_ascii_case(b"identity"))
}

/// Reads the response, up to the size limit of the cache.
async fn read(upstream: &mut UpstreamResponse, read_timeout: ReadTimeout) -> ReadResult {
    let UpstreamResponse { response, deadline, .. } = upstream;
    let mut text = BytesMut::new();
    loop {
        let next = std::future::poll_fn(|context| match Pin::new(&mut response.body).poll_frame(context) {
            Poll::Ready(next) => Poll::Ready(Ok(next)),
            Poll::Pending if deadline.poll_expired(context) => Poll::Ready(Err(())),
            Poll::Pending => Poll::Pending,
        })
        .await;
        if matches!(read_timeout, ReadTimeout::PerChunk) {
            deadline.reset();
        }
        match next {
            Err(()) => return ReadResult::Failed(ForwardError::BodyTimedOut),
            Ok(None) => return ReadResult::Complete(text.freeze()),
            Ok(Some(Err(source))) => return ReadResult::Failed(ForwardError::OriginClosed { source }),
            Ok(Some(Ok(frame))) => text.extend_from_slice(frame.data_ref().map_or(&[], |data| &data[..])),
        }
        if text.len() > MAX_ROBOTS_BYTES {
            deadline.reset();
            return ReadResult::Truncated(text.freeze());
        }
    }
}
