//! Serves robots.txt from the stored copy while it is fresh, or stale if the origin fails. On a miss, one request
//! fetches it for all.

use super::head::{prepare_client_response, prepare_own_response};
use super::origin::{respond_to_origin_failure, stream_response};
use super::refusal::respond_with_problem;
use super::robots_fetch::{FetchOutcome, RobotsFetch, fetch_robots};
use crate::gateway::cache::{CacheKey, FetchRole};
use crate::gateway::exchange::abandon::Abandonable;
use crate::gateway::exchange::journal::Journal;
use crate::gateway::exchange::within;
use crate::gateway::message::problem::{self, Problem};
use crate::gateway::message::response_body::ResponseBody;
use crate::gateway::message::site::Site;
use crate::gateway::transport::client_body::ClientBody;
use crate::gateway::worker::Worker;
use bytes::Bytes;
use http::Method;
use std::rc::Rc;
use std::time::Duration;
use tidegate_crawlers::robots::{CacheLookup, CachedRobots, FetchedHost, Requester};
use tidegate_http1::{Name, Response};
use tidegate_policy::ClientKind;
use tidegate_policy::identity::ClientKey;

/// Time to retry if no fetch may start soon.
const BUSY_RETRY_AFTER: Duration = Duration::from_secs(5);

/// Source of the response.
enum RobotsSource {
    Copy(CachedRobots),
    Fetch(Box<RobotsFetch>),
    /// No copy, and no fetch may start before this time has passed.
    Unavailable(Duration),
}

pub(in crate::gateway) async fn serve_robots(body: ClientBody, journal: Box<Journal>) -> Response<ResponseBody> {
    let head = &journal.known.request.head;
    journal.known.connection.drain_body(head, body);
    let is_head = head.method == Method::HEAD;
    let settings = &journal.known.config.settings;
    let site = Site::from_head(head, journal.known.is_https());
    let is_named = site.is_named_by(settings.hosts.as_ref());
    let patience = settings.origin(journal.known.classified.route).response_timeout;
    let client = journal.known.address_key();
    let fetch = match select_source(journal.worker(), site, is_named, requester(&journal), client, patience).await {
        RobotsSource::Copy(copy) => return respond_cached(journal, &copy),
        RobotsSource::Unavailable(wait) => return respond_unavailable(journal, wait),
        RobotsSource::Fetch(fetch) => *fetch,
    };
    let (forwarding, connection) = (Rc::clone(&journal.client.forwarding), Rc::clone(&journal.known.connection));
    let fetched = Abandonable::new(|| fetch_robots(journal, fetch), forwarding, connection);
    let (mut journal, outcome) = fetched.await;
    match outcome {
        FetchOutcome::Copy(copy) => respond_cached(journal, &copy),
        FetchOutcome::Other(response) => respond_forwarded(journal, response),
        FetchOutcome::Oversized { upstream, beginning, slot } if !is_head => {
            journal.origin.fetch_slot = Some(slot);
            stream_response(journal, *upstream, beginning, None)
        }
        FetchOutcome::Oversized { upstream, .. } => {
            let Response { status, fields, .. } = upstream.response;
            respond_forwarded(journal, Response { status, fields, body: Bytes::new() })
        }
        FetchOutcome::Failed(error) => respond_to_origin_failure(journal, &error, None),
    }
}

/// Returns the copy of `site`, or the fetch if this request has to make it. If another request fetches it, or all
/// slots are taken, waits at most `patience`. `is_named` means that the settings name the host.
async fn select_source(
    worker: &Worker,
    site: Site,
    is_named: bool,
    requester: Requester,
    client: ClientKey,
    patience: Duration,
) -> RobotsSource {
    let key = site.key();
    let (cache, fetches) = (&worker.shared().robots_cache, &worker.shared().cache.fetches);
    // Of no URL: the cache may hold that of the file for this request.
    let fetch_key = CacheKey::of_url(&format!("robots.txt of {key}"));
    let clock = || worker.monotonic_now();
    let mut taken_over = None;
    let deadline = worker.upstream().new_deadline(patience);
    loop {
        let now = worker.monotonic_now();
        let lookup = cache.lookup(&key, requester, now);
        let is_known = is_named || requester == Requester::VerifiedCrawler || cache.is_known(&key, now);
        let host = if is_known { FetchedHost::Known } else { FetchedHost::Unknown { network: client.network() } };
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
        let guard = match taken_over.take() {
            Some(guard) => guard,
            None => match fetches.acquire(fetch_key, client, now) {
                FetchRole::Fetch(guard) => guard,
                FetchRole::Wait(waiter) => {
                    match within(&deadline, waiter.wait(clock)).await {
                        Some(Ok(_)) => {}
                        Some(Err(guard)) => taken_over = Some(guard),
                        None => return RobotsSource::Unavailable(BUSY_RETRY_AFTER),
                    }
                    continue;
                }
            },
        };
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
}

fn respond_cached(journal: Box<Journal>, cached: &CachedRobots) -> Response<ResponseBody> {
    let conditions = journal.known.request.head.fields.all(Name::IfNoneMatch);
    let (mut response, bytes) = problem::cached_response(cached, conditions);
    prepare_own_response(&journal, response.status, &mut response.fields);
    journal.finish_local_response(response.status, bytes);
    response
}

/// Responds that robots.txt cannot be fetched now. Crawlers then assume that everything is disallowed, until they
/// can read it (RFC 9309 section 2.3.1.4).
fn respond_unavailable(mut journal: Box<Journal>, wait: Duration) -> Response<ResponseBody> {
    let problem = Problem::robots_unavailable(wait, journal.known.retry_after_spread());
    journal.client.retry_after = problem.retry_after();
    respond_with_problem(journal, problem)
}

/// Responds with what the origin sent.
fn respond_forwarded(journal: Box<Journal>, response: Response<Bytes>) -> Response<ResponseBody> {
    let Response { status, mut fields, body } = response;
    prepare_client_response(&journal, status, &mut fields);
    journal.finish_local_response(status, body.len() as u64);
    Response { status, fields, body: ResponseBody::full(body) }
}

fn requester(journal: &Journal) -> Requester {
    match journal.known.classified.classification.kind {
        ClientKind::VerifiedBot => Requester::VerifiedCrawler,
        _ => Requester::Other,
    }
}
