//! The exchange of a request for its response. The phases in order, each with the reason for its place:
//!
//! 1. Validate (`target`): a request that the gateway and the origin could interpret differently, or for another host
//!    than the own ones, is rejected before it is counted. Host and path are normalized once.
//!    A listener that redirects to https ends here (`answer/redirect`). Before all this, an ACME server gets its token
//!    (`answer/acme_challenge`): it may ask for any host, and is never redirected.
//! 2. Identify (`classify`): user agent, then signature, then proof, because a signature can be a claim to prove; then the bot
//!    score, a fact that classification uses. The result is [`known::Known`].
//!    Where a rule asks what the body says, its beginning is received first (`read_ahead`).
//! 3. Look up (`lookup`): a stored response costs nothing, so it comes before admission. A request whose response
//!    another one fetches waits for it.
//! 4. Decide (`evaluate`): the bucket, the quotas and pacing. A request waits here only for a lease, or for the cost of
//!    its path; a refused one holds nothing. From here on, a [`journal::Journal`] accompanies the request.
//! 5. Serve locally (`answer/document`, `answer/robots`, `answer/redirect`, `answer/copy`): responses of the gateway
//!    and stored ones need no slots.
//! 6. Receive (`receive`): the whole body, before slots are taken, because a client can send slowly.
//! 7. Acquire slots (`throttle`): the permit is held meanwhile, so that a request with slots can be sent. Without
//!    slots, its units are released.
//! 8. Forward (`forward`): sends the request with its permit (`send`). Continues if the client leaves (`abandon`), because the
//!    origin does.
//! 9. Settle (`charges`): before the response is sent, because its head shows the cost. What it reports later (`late_cost`) is
//!    settled at its end.
//! 10. Answer (`answer`): the end of the response drops the journal, which writes the record.
//!
//! A request that another proxy asks about (`answer/delegate`) passes phases 1, 2 and 4, and is settled by that proxy.

pub(in crate::gateway) mod abandon;
pub(in crate::gateway) mod answer;
pub(in crate::gateway) mod cache_trip;
pub(in crate::gateway) mod charges;
pub(in crate::gateway) mod classify;
pub(in crate::gateway) mod client_connection;
pub(in crate::gateway) mod client_side;
pub(in crate::gateway) mod evaluate;
pub(in crate::gateway) mod evidence;
pub(in crate::gateway) mod fill;
pub(in crate::gateway) mod forward;
pub(in crate::gateway) mod invalidate;
pub(in crate::gateway) mod journal;
pub(in crate::gateway) mod known;
pub(in crate::gateway) mod late_cost;
#[cfg(test)]
mod list_fields;
pub(in crate::gateway) mod lookup;
pub(in crate::gateway) mod origin_head;
pub(in crate::gateway) mod origin_trip;
pub(in crate::gateway) mod read_ahead;
pub(in crate::gateway) mod receive;
pub(in crate::gateway) mod reported_usage;
pub(in crate::gateway) mod scope_feedback;
pub(in crate::gateway) mod send;
#[cfg(test)]
mod tests;
pub(in crate::gateway) mod throttle;

pub(in crate::gateway) use client_connection::ClientConnection;
pub(in crate::gateway) use fill::run_fills;

use crate::gateway::in_place::boxed_in_place;
use crate::gateway::message::headers::strip_admin_sessions;
use crate::gateway::message::problem::Problem;
use crate::gateway::message::response_body::{ResponseBody, omit_body};
use crate::gateway::message::target::{ClientRequest, RequestError, Target};
use crate::gateway::session::{SessionCookies, take_session_cookies};
use crate::gateway::transport::client_body::ClientBody;
use crate::gateway::transport::listener::ListenerKind;
use crate::gateway::unknown_paths::UnknownPath;
use crate::gateway::upstream::{ClientBodyError, Deadline, ForwardError, RequestBody};
use crate::gateway::worker::WorkerConfig;
use abandon::Abandonable;
use answer::acme_challenge::acme_challenge;
use answer::copy::{copy_for_refusal, respond_from_copy, respond_only_if_cached, respond_overdue};
use answer::delegate::answer_proxy;
use answer::document::serve_document;
use answer::origin::respond_to_origin_failure;
use answer::origin_cache::{origin_cache_request, respond_from_origin_cache};
use answer::redirect::{redirect_by_route, redirect_to_https};
use answer::refusal::{refuse, reject_request, respond_with_problem};
use answer::revalidation::respond_while_revalidating;
use answer::robots::serve_robots;
use cache_trip::CopyReason;
use classify::classify;
use evaluate::{evaluate, reevaluate_after_body};
use forward::forward;
use http::Method;
use hyper::body::Body;
use journal::Journal;
use known::Known;
use lookup::{CacheRole, cache_role, copy_fetched_by_others};
use read_ahead::read_ahead;
use receive::receive_body;
use std::cell::OnceCell;
use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use throttle::acquire_slots;
use tidegate_engine::ThrottleRejection;
use tidegate_http1::{Request, RequestHead, Response};
use tidegate_policy::exempt::{is_read_method, is_robots_txt_read};
use tidegate_policy::path::Ambiguity;
use tidegate_policy::{Reason, Timestamp};

/// Field that tells browsers to use https only (RFC 6797).
const STRICT_TRANSPORT_SECURITY: &str = "strict-transport-security";

/// Handles one request of a connection. Always returns a response.
pub(in crate::gateway) async fn handle(
    connection: Rc<ClientConnection>,
    request: Request<ClientBody>,
) -> Response<ResponseBody> {
    let client = Rc::clone(&connection);
    let is_head = request.head.method == Method::HEAD;
    let mut response = respond(connection, request).await;
    if is_head {
        omit_body(&mut response);
    }
    response.body.charge(client.connection_state.memory());
    if let Some(hsts) = &client.listener.hsts
        && response.fields.get_all_by_text(STRICT_TRANSPORT_SECURITY).next().is_none()
    {
        response.fields.append_text(STRICT_TRANSPORT_SECURITY, hsts.as_bytes());
    }
    response
}

async fn respond(connection: Rc<ClientConnection>, request: Request<ClientBody>) -> Response<ResponseBody> {
    if connection.listener.kind == ListenerKind::ForwardAuth {
        // Boxed to keep the future of other requests small.
        return Box::pin(answer_proxy(connection, request)).await;
    }
    let config = connection.worker.config();
    let Request { mut head, body } = request;
    // Before anything reads the cookies: the session of the live page is for the gateway alone.
    strip_admin_sessions(&mut head.fields);
    let session_cookies = session_cookies(&config, &mut head);
    let head_started_at = connection.connection_state.on_request_start(head.version);
    let target = match validate(&connection, &config, &head) {
        ControlFlow::Continue(target) => target,
        ControlFlow::Break(response) => {
            connection.connection_state.on_request_end(false);
            connection.drain_body(&head, body);
            return *response;
        }
    };
    let has_body = !body.is_end_stream();
    let request = ClientRequest { head, target, has_body, signature: OnceCell::new(), session_cookies, json: None };
    let (id, mut now) = (connection.worker.next_decision_id(), connection.worker.now());
    let mut known = identify(connection, config, request, head_started_at.unwrap_or(now), id, now);
    let mut body = body;
    if known.reads_body() {
        // Boxed to keep the future of other requests small.
        body = Box::pin(read_ahead(&mut known, body)).await;
        now = known.worker().now();
        let settings = &known.config.settings;
        if let Err(ambiguity) = settings.check_readings(&known.request.facts(), &known.request.resolved_path()) {
            return reject_ambiguous(&known, ambiguity, body);
        }
    }
    let role = cache_role(&known, &mut now).await;
    let journal = evaluate(known, &role, now).await;
    record_crawler(&journal.known);
    if let Some(reason) = journal.verdict.refusal().map(|refusal| refusal.reason) {
        journal.known.connection.drain_body(&journal.known.request.head, body);
        return respond_refused(journal, role, reason).await;
    }
    let Known { config, request, classified, .. } = &*journal.known;
    if let Some(document) = config.settings.rules.own_document(request.path()) {
        return serve_document(document, body, journal);
    }
    if is_robots_txt_read(&request.head.method, request.path()) {
        // Boxed to keep the future of other requests small.
        return Box::pin(serve_robots(body, journal)).await;
    }
    if config.settings.redirect(classified.route).is_some() {
        return redirect_by_route(body, journal);
    }
    let mut journal = journal;
    match role {
        CacheRole::Unused => {}
        CacheRole::Bypass(reason, copy) => journal.cache.bypass(reason, copy),
        CacheRole::Fetch(fetch) => journal.cache.begin_fetch(fetch),
        CacheRole::Copy(copy, reason) => return respond_from_copy(journal, &copy, reason),
        CacheRole::CopyAndFetch(copy, fetch) => return respond_while_revalidating(journal, &copy, fetch),
        CacheRole::OnlyIfCached => return respond_only_if_cached(journal),
        CacheRole::Overdue => return respond_overdue(journal),
    }
    throttle_and_forward(body, journal).await
}

/// Validates a request. Continues with its target, or ends with the response: to an invalid request, to one of an ACME server,
/// or to one that is redirected to https.
fn validate(
    connection: &ClientConnection,
    config: &WorkerConfig,
    head: &RequestHead,
) -> ControlFlow<Box<Response<ResponseBody>>, Target> {
    let end = |response| ControlFlow::Break(Box::new(response));
    if let Some(response) = acme_challenge(connection, head) {
        return end(response);
    }
    let (worker, rules) = (&connection.worker, &config.settings.rules);
    match (Target::parse(head, &worker.shared().via.pseudonym, &config.settings), connection.listener.redirect_port) {
        (Err(error), _) => end(reject_request(connection, error, head)),
        (Ok(target), Some(port)) => end(redirect_to_https(connection, head, &target, port)),
        // Before it is decided, and charged: the answer is the same, also with a spent quota.
        (Ok(target), None) if !is_read_method(&head.method) && rules.own_document(target.path(head)).is_some() => {
            end(reject_request(connection, RequestError::DocumentMethod, head))
        }
        (Ok(target), None) => ControlFlow::Continue(target),
    }
}

/// Removes the session cookies from a head, if there are sessions, and returns their values.
#[inline]
pub(in crate::gateway) fn session_cookies(config: &WorkerConfig, head: &mut RequestHead) -> SessionCookies {
    let sessions = config.settings.sessions.as_ref();
    sessions.map(|sessions| take_session_cookies(sessions, &mut head.fields)).unwrap_or_default()
}

/// Returns what is known of a valid request.
fn identify(
    connection: Rc<ClientConnection>,
    config: Rc<WorkerConfig>,
    request: ClientRequest,
    received_at: Timestamp,
    id: u64,
    now: Timestamp,
) -> Box<Known> {
    boxed_in_place(|| {
        let (client, classified) = classify(&connection, &request, &config, now);
        Known { connection, config, request, read_body: None, client, classified, received_at, id }
    })
}

/// Responds to a request whose body may be read as calls with costs in different quotas.
fn reject_ambiguous(known: &Known, ambiguity: Ambiguity, body: ClientBody) -> Response<ResponseBody> {
    let (connection, head) = (&known.connection, &known.request.head);
    connection.connection_state.on_request_end(false);
    connection.drain_body(head, body);
    reject_request(connection, RequestError::Body(ambiguity), head)
}

/// Counts a request of a crawler, and whether it reads robots.txt.
fn record_crawler(known: &Known) {
    if let Some(operator) = known.client.crawler {
        let (worker, request) = (known.worker(), &known.request);
        let is_robots_txt = is_robots_txt_read(&request.head.method, request.path());
        worker.shared().crawl_compliance.record_request(operator, is_robots_txt, worker.monotonic_now());
    }
}

/// Responds to a request that the rules refuse: with a stored response, with one of the origin's own cache, or with the refusal.
async fn respond_refused(journal: Box<Journal>, role: CacheRole, reason: Reason) -> Response<ResponseBody> {
    let now = journal.worker().now();
    let stale_when_refused = journal.known.rules().cache.as_ref().map(|rules| rules.stale_when_refused);
    if let Some(copy) = stale_when_refused.and_then(|limit| role.replacement(reason, limit, now)) {
        return respond_from_copy(journal, &copy, CopyReason::Refused);
    }
    let fetch = role.fetch_for_origin_cache(&journal);
    match fetch.and_then(|fetch| origin_cache_request(&journal, fetch)) {
        Some(request) => {
            let (forwarding, connection) =
                (Rc::clone(&journal.client.forwarding), Rc::clone(&journal.known.connection));
            Abandonable::new(|| respond_from_origin_cache(journal, request), forwarding, connection).await
        }
        None => refuse(journal),
    }
}

/// Returns the body to send to the origin: received whole, unless the route streams it.
async fn body_to_forward(journal: &mut Journal, body: ClientBody) -> Result<RequestBody, ClientBodyError> {
    let Known { connection, config, request, .. } = &*journal.known;
    if !request.has_body {
        return Ok(RequestBody::Empty);
    }
    if let Some(error) = journal.known.read_body.as_ref().and_then(|read| read.error) {
        connection.drain_body(&request.head, body);
        return Err(error);
    }
    if journal.known.route().streams_body {
        let (limit, state) = (config.settings.limits.max_body_size, Rc::clone(&connection.connection_state));
        return Ok(RequestBody::streaming(body, limit, state, || connection.worker.drain()));
    }
    // Boxed to keep the future of requests without a body small.
    let received = Box::pin(receive_body(journal, body)).await;
    journal.origin.end_reception(journal.known.worker().now());
    received
}

/// Forwards the request once its body is received and all its scopes grant slots. The permit is held meanwhile; a
/// rejection releases its units.
async fn throttle_and_forward(body: ClientBody, mut journal: Box<Journal>) -> Response<ResponseBody> {
    let body = match body_to_forward(&mut journal, body).await {
        Ok(body) => body,
        Err(error) => return respond_to_origin_failure(journal, &ForwardError::ClientBody(error), None),
    };
    if matches!(journal.origin.unknown_path, UnknownPath::AwaitsBody) {
        // Boxed to keep the future of other requests small.
        Box::pin(reevaluate_after_body(&mut journal)).await;
        journal.origin.end_reception(journal.known.worker().now());
        if journal.verdict.refusal().is_some() {
            return refuse(journal);
        }
    }
    match acquire_slots(&mut journal).await {
        Ok(slots) => {
            if let Some((copy, reason)) = copy_fetched_by_others(&journal) {
                journal.origin.settle_unknown();
                return respond_from_copy(journal, &copy, CopyReason::Collapsed(reason));
            }
            let (forwarding, connection) =
                (Rc::clone(&journal.client.forwarding), Rc::clone(&journal.known.connection));
            Abandonable::new(|| forward(body, journal, slots), forwarding, connection).await
        }
        Err(ThrottleRejection { scope, reason, retry_after }) => {
            journal.origin.settle_unknown();
            if let Some(copy) = copy_for_refusal(&journal) {
                journal.refuse_by_scope(scope, reason, None);
                return respond_from_copy(journal, &copy, CopyReason::Refused);
            }
            let problem = Problem::throttled(reason, retry_after, journal.known.retry_after_spread());
            journal.refuse_by_scope(scope, reason, problem.retry_after());
            respond_with_problem(journal, problem)
        }
    }
}

/// Returns the output of `work`, or `None` if `deadline` expires before.
async fn within<T>(deadline: &Deadline, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if deadline.poll_expired(cx) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}
