//! Serves robots.txt from the stored copy while it is fresh, or stale if the origin fails. On a miss, one request
//! fetches it for all.

use super::forward::prepare_client_response;
use super::request_handler::RequestHandler;
use super::robots_fetch::{FetchOutcome, RobotsFetch};
use crate::gateway::client_body::ClientBody;
use crate::gateway::problem;
use crate::gateway::request_context::RequestContext;
use crate::gateway::response_body::ResponseBody;
use crate::gateway::site::Site;
use bytes::Bytes;
use http::Method;
use std::time::Duration;
use tidegate_crawlers::robots::{CacheLookup, CachedRobots, FetchGuard, FetchRole, Requester};
use tidegate_http1::{Name, RequestHead, Response};
use tidegate_policy::ClientKind;
use tokio::time::timeout;

/// Conditions of a GET or HEAD request.
struct ConditionalGet {
    if_none_match: Option<Vec<u8>>,
    body: bool,
}

impl RequestHandler {
    pub(super) async fn serve_robots(
        &self,
        body: ClientBody,
        mut context: Box<RequestContext>,
    ) -> Response<ResponseBody> {
        let head = &context.client_request().head;
        self.drain_body(head, body);
        let conditions = ConditionalGet::from_head(head);
        let settings = &context.current().settings;
        let site = Site::from_head(head, settings.rules.trust.trusts(self.peer));
        let requester = requester(&context);
        let (key, max_wait) = (site.key(), settings.origin.response_timeout);
        let (lookup, _guard) = self.lookup_or_fetch(&key, requester, max_wait).await;
        let stale = match lookup {
            CacheLookup::Fresh(copy) => return self.respond_cached(context, &conditions, &copy),
            CacheLookup::Revalidate(copy) => Some(copy),
            CacheLookup::Miss => None,
        };
        match self.fetch_robots(&mut context, RobotsFetch { site, requester, stale }).await {
            FetchOutcome::Copy(copy) => self.respond_cached(context, &conditions, &copy),
            FetchOutcome::Other(response) => respond_forwarded(context, &conditions, response),
            FetchOutcome::Oversized { upstream, beginning } if conditions.body => {
                self.stream_response(context, *upstream, beginning)
            }
            FetchOutcome::Oversized { upstream, .. } => {
                let Response { status, fields, .. } = upstream.response;
                respond_forwarded(context, &conditions, Response { status, fields, body: Bytes::new() })
            }
            FetchOutcome::Failed(error) => self.respond_to_origin_failure(context, &error, None),
        }
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
}

/// Responds with what the origin sent, unless the client wants no body.
fn respond_forwarded(
    context: Box<RequestContext>,
    conditions: &ConditionalGet,
    response: Response<Bytes>,
) -> Response<ResponseBody> {
    let Response { status, mut fields, body } = response;
    let body = if conditions.body { body } else { Bytes::new() };
    prepare_client_response(&context, status, &mut fields);
    context.finish_local_response(status, body.len() as u64);
    Response { status, fields, body: ResponseBody::full(body) }
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
