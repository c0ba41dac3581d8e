//! Serves robots.txt from the stored copy while it is fresh, or stale if the origin fails. On a miss, one request
//! fetches it for all.

use super::head::{prepare_client_response, prepare_own_response};
use super::robots_fetch::{FetchOutcome, RobotsFetch};
use crate::gateway::exchange::abandon::Abandonable;
use crate::gateway::exchange::client_connection::RequestHandler;
use crate::gateway::exchange::journal::RequestContext;
use crate::gateway::exchange::problem::{self, Problem};
use crate::gateway::exchange::response_body::ResponseBody;
use crate::gateway::exchange::site::Site;
use crate::gateway::exchange::within;
use crate::gateway::transport::client_body::ClientBody;
use bytes::Bytes;
use http::Method;
use std::rc::Rc;
use std::time::Duration;
use tidegate_crawlers::robots::{CacheLookup, CachedRobots, FetchRole, FetchedHost, Requester};
use tidegate_http1::{Name, RequestHead, Response};
use tidegate_policy::ClientKind;

/// Time to retry if no fetch may start soon.
const BUSY_RETRY_AFTER: Duration = Duration::from_secs(5);

/// Conditions of a GET or HEAD request.
struct ConditionalGet {
    /// Lines of `If-None-Match`.
    if_none_match: Vec<Vec<u8>>,
    body: bool,
}

/// Source of the response.
enum RobotsSource {
    Copy(CachedRobots),
    Fetch(Box<RobotsFetch>),
    /// No copy, and no fetch may start before this time has passed.
    Unavailable(Duration),
}

impl RequestHandler {
    pub(in crate::gateway) async fn serve_robots(
        self: Rc<Self>,
        body: ClientBody,
        context: Box<RequestContext>,
    ) -> Response<ResponseBody> {
        let head = &context.client_request().head;
        self.drain_body(head, body);
        let conditions = ConditionalGet::from_head(head);
        let settings = &context.current().settings;
        let site = Site::from_head(head, self.is_https(&settings.rules.trust, &head.fields));
        let is_named = site.is_named_by(settings.hosts.as_ref());
        let patience = settings.origin.response_timeout;
        let network = context.address_key().network();
        let fetch = match self.select_source(site, is_named, requester(&context), network, patience).await {
            RobotsSource::Copy(copy) => return self.respond_cached(context, &conditions, &copy),
            RobotsSource::Unavailable(wait) => return self.respond_unavailable(context, wait),
            RobotsSource::Fetch(fetch) => *fetch,
        };
        let state = Rc::clone(context.forward_state());
        let fetched = Abandonable::new(|| Rc::clone(&self).fetch_robots(context, fetch), state, Rc::clone(&self));
        let (mut context, outcome) = fetched.await;
        match outcome {
            FetchOutcome::Copy(copy) => self.respond_cached(context, &conditions, &copy),
            FetchOutcome::Other(response) => respond_forwarded(context, &conditions, response),
            FetchOutcome::Oversized { upstream, beginning, slot } if conditions.body => {
                context.hold_fetch_slot(slot);
                self.stream_response(context, *upstream, beginning, None)
            }
            FetchOutcome::Oversized { upstream, .. } => {
                let Response { status, fields, .. } = upstream.response;
                respond_forwarded(context, &conditions, Response { status, fields, body: Bytes::new() })
            }
            FetchOutcome::Failed(error) => self.respond_to_origin_failure(context, &error, None),
        }
    }

    /// Returns the copy of `site`, or the fetch if this request has to make it. If another request fetches it, or all
    /// slots are taken, waits at most `patience`. `is_named` means that the settings name the host; `network` is that of the
    /// client.
    async fn select_source(
        &self,
        site: Site,
        is_named: bool,
        requester: Requester,
        network: u64,
        patience: Duration,
    ) -> RobotsSource {
        let (worker, key) = (&self.worker, site.key());
        let cache = &worker.shared().robots_cache;
        let deadline = worker.upstream().new_deadline(patience);
        loop {
            let now = worker.monotonic_now();
            let lookup = cache.lookup(&key, requester, now);
            let is_known = is_named || requester == Requester::VerifiedCrawler || cache.is_known(&key, now);
            let host = if is_known { FetchedHost::Known } else { FetchedHost::Unknown { network } };
            match lookup {
                CacheLookup::Fresh(copy) => return RobotsSource::Copy(copy),
                CacheLookup::Revalidate(copy) => {
                    return match cache.fetch_scope.try_acquire(host, now) {
                        Some(slot) => {
                            let fetch = RobotsFetch { site, requester, stale: Some(copy), guard: None, slot };
                            RobotsSource::Fetch(Box::new(fetch))
                        }
                        None => RobotsSource::Copy(copy),
                    };
                }
                CacheLookup::Miss => {}
            }
            match cache.fetch_locks.acquire(&key) {
                FetchRole::Fetch(guard) => {
                    if let Err(wait) = cache.fetch_scope.take_token(host, now) {
                        return RobotsSource::Unavailable(wait);
                    }
                    return match within(&deadline, cache.fetch_scope.acquire(host)).await {
                        Some(slot) => {
                            let fetch = RobotsFetch { site, requester, stale: None, guard: Some(guard), slot };
                            RobotsSource::Fetch(Box::new(fetch))
                        }
                        None => RobotsSource::Unavailable(BUSY_RETRY_AFTER),
                    };
                }
                FetchRole::Wait(waiter) => {
                    if within(&deadline, waiter.wait()).await.is_none() {
                        return RobotsSource::Unavailable(BUSY_RETRY_AFTER);
                    }
                }
            }
        }
    }

    fn respond_cached(
        &self,
        context: Box<RequestContext>,
        conditions: &ConditionalGet,
        cached: &CachedRobots,
    ) -> Response<ResponseBody> {
        let (mut response, bytes) = problem::cached_response(cached, &conditions.if_none_match, conditions.body);
        prepare_own_response(&context, response.status, &mut response.fields);
        context.finish_local_response(response.status, bytes);
        response
    }

    /// Responds that robots.txt cannot be fetched now. Crawlers then assume that everything is disallowed, until they
    /// can read it (RFC 9309 section 2.3.1.4).
    fn respond_unavailable(&self, mut context: Box<RequestContext>, wait: Duration) -> Response<ResponseBody> {
        let problem = Problem::robots_unavailable(wait, context.retry_after_spread());
        context.set_retry_after(problem.retry_after());
        self.respond_with_problem(context, problem)
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
        let if_none_match = head.fields.all(Name::IfNoneMatch).map(<[u8]>::to_vec).collect();
        Self { if_none_match, body: head.method != Method::HEAD }
    }
}

fn requester(context: &RequestContext) -> Requester {
    match context.evaluation().classification.kind {
        ClientKind::VerifiedBot => Requester::VerifiedCrawler,
        _ => Requester::Other,
    }
}
