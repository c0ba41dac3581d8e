//! Serves robots.txt from a cache: fetched from the origin like any page, then served while fresh, or stale if the
//! origin fails.

use super::RequestHandler;
use super::forward::prepare_client_response;
use crate::gateway::body::{ClientBody, RequestBody, ResponseBody};
use crate::gateway::problem;
use crate::gateway::request_context::RequestContext;
use crate::gateway::target;
use crate::gateway::upstream::{ForwardError, UpstreamResponse};
use crate::http1::{Field, Fields, Name, RequestHead, Response};
use crate::policy::ClientKind;
use crate::policy::decide::ROBOTS_TXT_PATH;
use crate::robots::{
    self, CacheLookup, CachedRobots, FetchGuard, FetchRole, MAX_ROBOTS_BYTES, OriginRobots, Requester,
};
use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode, Uri};
use hyper::body::Body;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
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
        mut visit: Box<RequestContext>,
    ) -> Response<ResponseBody> {
        self.drain_body(&visit.client_request().head, body);
        let worker = &self.0.worker;
        let shelf = &worker.shared().robots_cache;
        let wanted = ConditionalGet::of(&visit.client_request().head);
        let site = self.site_key(&visit);
        let asker = requester(&visit);
        let (found, _errand) =
            self.lookup_or_fetch(&site, asker, visit.current().settings.origin.response_timeout).await;
        let old = match found {
            CacheLookup::Fresh(handout) => return self.respond_cached(visit, &wanted, &handout),
            CacheLookup::Revalidate(handout) => Some(handout),
            CacheLookup::Miss => None,
        };
        self.prepare_upstream_request(&mut visit);
        let head = &mut visit.client_request_mut().head;
        let method = std::mem::replace(&mut head.method, Method::GET);
        let target = std::mem::replace(&mut head.target, Uri::from_static(ROBOTS_TXT_PATH));
        strip_client_headers(&mut head.fields);
        let (answer, _) = self.send_upstream(RequestBody::none(), &mut visit, None).await;
        // The access log shows the client's request.
        let head = &mut visit.client_request_mut().head;
        (head.method, head.target) = (method, target);
        let mut answer = match answer {
            Ok(answer) => answer,
            Err(error) => return self.serve_stale(visit, &wanted, old, &error),
        };
        visit.settle(|_, expected| expected);
        let status = answer.response.status;
        let in_trouble = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
        if let Some(old) = old.as_ref().filter(|_| in_trouble) {
            return self.respond_cached(visit, &wanted, old);
        }
        let can_be_kept = matches!(status.as_u16(), 200 | 404 | 410) && is_identity_encoded(&answer.response.fields);
        if !can_be_kept || answer.response.body.size_hint().lower() > MAX_ROBOTS_BYTES as u64 {
            if !in_trouble {
                shelf.remove(&site);
            }
            return self.forward_response(visit, &wanted, answer, Bytes::new());
        }
        let patience = if old.is_some() { ReadTimeout::Total } else { ReadTimeout::PerChunk };
        let text = match read(&mut answer, patience).await {
            ReadResult::Complete(text) => text,
            ReadResult::Truncated(beginning) => {
                shelf.remove(&site);
                return self.forward_response(visit, &wanted, answer, beginning);
            }
            ReadResult::Failed(error) => return self.serve_stale(visit, &wanted, old, &error),
        };
        let UpstreamResponse { response, lease, .. } = answer;
        let Response { fields, mut body, .. } = response;
        if let Some(connection) = body.take_connection() {
            lease.put_back(connection, visit.uptime());
        }
        let content_type = fields.get(Name::ContentType).map(Bytes::copy_from_slice);
        let fresh_for = robots::fresh_for(fields.all(Name::CacheControl));
        let original = OriginRobots { status: status.as_u16(), content_type, text };
        let handout = shelf.insert(&site, original, fresh_for, asker, worker.monotonic_now());
        self.respond_cached(visit, &wanted, &handout)
    }

    /// Returns the cached document, and the guard for fetching it if this request has to. If another request is
    /// fetching it, waits once, at most `longest`.
    async fn lookup_or_fetch(
        &self,
        site: &str,
        asker: Requester,
        longest: Duration,
    ) -> (CacheLookup, Option<FetchGuard<'_>>) {
        let worker = &self.0.worker;
        let shelf = &worker.shared().robots_cache;
        let found = shelf.lookup(site, asker, worker.monotonic_now());
        if !matches!(found, CacheLookup::Miss) {
            return (found, None);
        }
        match shelf.fetch_locks.acquire(site) {
            FetchRole::Fetch(errand) => (found, Some(errand)),
            FetchRole::Wait(others) => {
                let _ = timeout(longest, others.wait()).await;
                (shelf.lookup(site, asker, worker.monotonic_now()), None)
            }
        }
    }

    /// Returns scheme and host as the client sees them. Each pair has its own robots.txt.
    fn site_key(&self, visit: &RequestContext) -> String {
        let head = &visit.client_request().head;
        let believed = visit.current().settings.rules.trust.trusts(self.0.peer);
        let scheme = head.fields.get(Name::ForwardedProto).filter(|_| believed).unwrap_or(b"http");
        let host = target::host(head);
        [scheme, b"://", host].concat().to_ascii_lowercase().iter().map(|&byte| char::from(byte)).collect()
    }

    fn respond_cached(
        &self,
        visit: Box<RequestContext>,
        wanted: &ConditionalGet,
        handout: &CachedRobots,
    ) -> Response<ResponseBody> {
        let (mut response, bytes) = problem::cached_response(handout, wanted.if_none_match.as_deref(), wanted.body);
        prepare_client_response(&visit, response.status, &mut response.fields);
        visit.finish_local_response(response.status, bytes);
        response
    }

    /// Serves the stale copy if the origin failed, or an error if there is none.
    fn serve_stale(
        &self,
        visit: Box<RequestContext>,
        wanted: &ConditionalGet,
        old: Option<CachedRobots>,
        error: &ForwardError,
    ) -> Response<ResponseBody> {
        match old {
            Some(old) => {
                self.0.worker.note_failure(error);
                self.respond_cached(visit, wanted, &old)
            }
            None => self.origin_failed(visit, error, None),
        }
    }

    /// Forwards the origin's response unchanged; `beginning` is the part of its body already read.
    fn forward_response(
        &self,
        visit: Box<RequestContext>,
        wanted: &ConditionalGet,
        answer: UpstreamResponse,
        beginning: Bytes,
    ) -> Response<ResponseBody> {
        if wanted.body {
            return self.stream_response(visit, answer, beginning);
        }
        // The upstream request was a full GET, whatever the client requested.
        let Response { status, mut fields, .. } = answer.response;
        prepare_client_response(&visit, status, &mut fields);
        visit.finish_local_response(status, 0);
        Response { status, fields, body: ResponseBody::whole(Bytes::new()) }
    }
}

impl ConditionalGet {
    fn of(head: &RequestHead) -> Self {
        let if_none_match = head.fields.get(Name::IfNoneMatch).map(<[u8]>::to_vec);
        Self { if_none_match, body: head.method != Method::HEAD }
    }
}

fn requester(visit: &RequestContext) -> Requester {
    match visit.client_request().classified.kind {
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
async fn read(answer: &mut UpstreamResponse, patience: ReadTimeout) -> ReadResult {
    let UpstreamResponse { response, deadline, .. } = answer;
    let mut text = BytesMut::new();
    loop {
        let next = std::future::poll_fn(|context| match Pin::new(&mut response.body).poll_frame(context) {
            Poll::Ready(next) => Poll::Ready(Ok(next)),
            Poll::Pending if deadline.poll_expired(context) => Poll::Ready(Err(())),
            Poll::Pending => Poll::Pending,
        })
        .await;
        if matches!(patience, ReadTimeout::PerChunk) {
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
