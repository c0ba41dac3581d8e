//! Handles requests. The phases in order, each with the reason for its place:
//!
//! 1. Validate (`target`): a request that the gateway and the origin could interpret differently, or for another host
//!    than the own ones, is rejected before it is counted. Host and path are normalized once.
//!    A listener that redirects to https ends here (`redirect`). Before all this, an ACME server gets its token
//!    (`acme_challenge`): it may ask for any host, and is never redirected.
//! 2. Identify (`evaluate`): user agent, then signature, then proof, because a signature can be a claim to prove.
//! 3. Observe (`evaluate`): the bot score is a fact that classification uses.
//! 4. Look up (`cache`): a stored response costs nothing, so it comes before admission. A request whose response
//!    another one fetches waits for it.
//! 5. Admit (`evaluate`): the bucket, the quotas and pacing. A refused request holds nothing and waits for nothing,
//!    except for a lease.
//! 6. Serve locally (`crawl_policy`, `robots`, `redirect`): responses of the gateway need no slots.
//! 7. Receive (`receive`): the whole body, before slots are taken, because a client can send slowly.
//! 8. Acquire slots (`throttle`): the permit is held meanwhile, so that a request with slots can be sent. Without
//!    slots, its units are released.
//! 9. Forward (`forward`): sends the request with its permit. Continues if the client leaves (`abandon`), because the
//!    origin does.
//! 10. Settle (`forward`): before the response is sent, because its head shows the cost.
//! 11. Respond (`forward`, `refuse`, `cache`): the end of the response drops the [`RequestContext`], which writes the record.
//!
//! A request that another proxy asks about (`forward_auth`) passes phases 1 to 3 and 5, and is settled by that proxy.

pub(in crate::gateway) mod abandon;
pub(in crate::gateway) mod answer;
pub(in crate::gateway) mod client_connection;
pub(in crate::gateway) mod compressor;
pub(in crate::gateway) mod cost;
pub(in crate::gateway) mod crawl_delay;
pub(in crate::gateway) mod crawl_policy;
pub(in crate::gateway) mod error_pages;
pub(in crate::gateway) mod evaluate;
pub(in crate::gateway) mod evidence;
pub(in crate::gateway) mod fill;
pub(in crate::gateway) mod forward;
pub(in crate::gateway) mod forward_auth;
pub(in crate::gateway) mod header_rules;
pub(in crate::gateway) mod headers;
pub(in crate::gateway) mod html;
pub(in crate::gateway) mod invalidate;
pub(in crate::gateway) mod journal;
#[cfg(test)]
mod list_fields;
pub(in crate::gateway) mod lookup;
pub(in crate::gateway) mod page_url;
pub(in crate::gateway) mod problem;
pub(in crate::gateway) mod quota_sync;
pub(in crate::gateway) mod receive;
pub(in crate::gateway) mod relay;
pub(in crate::gateway) mod response_body;
pub(in crate::gateway) mod scratch;
pub(in crate::gateway) mod site;
pub(in crate::gateway) mod switch_subject;
pub(in crate::gateway) mod target;
pub(in crate::gateway) mod throttle;
pub(in crate::gateway) mod tunnel;
pub(in crate::gateway) mod unknown_paths;
pub(in crate::gateway) mod untrusted_proxy;

pub(in crate::gateway) use client_connection::RequestHandler;
pub(in crate::gateway) use fill::run_fills;

use crate::gateway::cache::StoredResponse;
use crate::gateway::exchange::journal::RequestContext;
use crate::gateway::exchange::problem::Problem;
use crate::gateway::exchange::response_body::ResponseBody;
use crate::gateway::exchange::target::{ClientRequest, Target};
use crate::gateway::transport::client_body::ClientBody;
use crate::gateway::transport::listener::ListenerKind;
use crate::gateway::upstream::{ClientBodyError, Deadline, ForwardError, RequestBody};
use abandon::Abandonable;
use hyper::body::Body;
use lookup::{CacheRole, CopyReason};
use std::cell::OnceCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use tidegate_engine::{AcquireOutcome, ThrottleRejection};
use tidegate_http1::{Request, Response};
use tidegate_policy::Reason;
use tidegate_policy::exempt::is_robots_txt_read;

/// Field that tells browsers to use https only (RFC 6797).
const STRICT_TRANSPORT_SECURITY: &str = "strict-transport-security";

impl RequestHandler {
    /// Handles one request. Always returns a response.
    pub(in crate::gateway) async fn handle(self: Rc<Self>, request: Request<ClientBody>) -> Response<ResponseBody> {
        let handler = Rc::clone(&self);
        let mut response = self.respond(request).await;
        response.body.charge(handler.connection_state.memory());
        if let Some(hsts) = &handler.listener.hsts
            && response.fields.get_all_by_text(STRICT_TRANSPORT_SECURITY).next().is_none()
        {
            response.fields.append_text(STRICT_TRANSPORT_SECURITY, hsts.as_bytes());
        }
        response
    }

    async fn respond(self: Rc<Self>, request: Request<ClientBody>) -> Response<ResponseBody> {
        if self.listener.kind == ListenerKind::ForwardAuth {
            // Boxed to keep the future of other requests small.
            return Box::pin(self.answer_proxy(request)).await;
        }
        let Self { worker, connection_state, .. } = &*self;
        let current = worker.current();
        let Request { mut head, body } = request;
        // Before anything reads the cookies: the session of the live page is for the gateway alone.
        headers::strip_admin_sessions(&mut head.fields);
        let head_started_at = connection_state.on_request_start(head.version);
        if let Some(response) = self.acme_challenge(&head) {
            connection_state.on_request_end(false);
            self.drain_body(&head, body);
            return response;
        }
        let settings = &current.settings;
        let target = match Target::parse(&head, &worker.shared().via.pseudonym, settings) {
            Ok(target) => target,
            Err(error) => {
                connection_state.on_request_end(false);
                self.drain_body(&head, body);
                return self.reject_request(error, &head);
            }
        };
        if let Some(port) = self.listener.redirect_port {
            connection_state.on_request_end(false);
            self.drain_body(&head, body);
            return self.redirect(&head, &target, port);
        }
        let request = ClientRequest { head, target, has_body: !body.is_end_stream(), signature: OnceCell::new() };
        let mut now = worker.now();
        let received_at = head_started_at.unwrap_or(now);
        let classified = self.classify(&request, &current, now);
        let role =
            self.cache_role(&request, &classified.classified, &classified.client_address, &current, &mut now).await;
        let (current, evaluated) = self.evaluate(classified, &request, &role, current, now).await;
        let is_crawl_policy = current.settings.rules.is_crawl_policy(request.path());
        let is_robots_txt = is_robots_txt_read(&request.head.method, request.path());
        if let Some(operator) = evaluated.crawler {
            worker.shared().crawl_compliance.record_request(operator, is_robots_txt, worker.monotonic_now());
        }
        let (worker, connection_state) = (Rc::clone(worker), Rc::clone(connection_state));
        let id = worker.next_decision_id();
        let mut context = RequestContext::new(worker, connection_state, current, request, evaluated, received_at, id);
        context.set_fill(self.fill_reason());
        if let Some(refusal) = context.decision().verdict.refusal() {
            let replacement = self.replacement(&role, refusal.reason, &context);
            self.drain_body(&context.client_request().head, body);
            return match replacement {
                Some(copy) => self.respond_from_copy(context, &copy, CopyReason::Refused),
                // Boxed to keep the future of other requests small.
                None => match role
                    .fetch_for_origin_cache(&context)
                    .and_then(|fetch| self.origin_cache_request(&context, fetch))
                {
                    Some(request) => {
                        let (state, handler) = (Rc::clone(context.forward_state()), Rc::clone(&self));
                        Abandonable::new(|| self.respond_from_origin_cache(context, request), state, handler).await
                    }
                    None => self.refuse(context),
                },
            };
        }
        if is_crawl_policy {
            return self.serve_crawl_policy(body, context);
        }
        if is_robots_txt {
            // Boxed to keep the future of other requests small.
            return Box::pin(self.serve_robots(body, context)).await;
        }
        if context.is_redirected() {
            return self.redirect_by_route(body, context);
        }
        match role {
            CacheRole::Unused => {}
            CacheRole::Bypass(reason, copy) => context.set_cache_bypass(reason, copy),
            CacheRole::Fetch(fetch) => context.set_fetch(fetch),
            CacheRole::Copy(copy, reason) => return self.respond_from_copy(context, &copy, reason),
            CacheRole::CopyAndFetch(copy, fetch) => return self.respond_while_revalidating(context, &copy, fetch),
            CacheRole::OnlyIfCached => return self.respond_only_if_cached(context),
            CacheRole::Overdue => return self.respond_overdue(context),
        }
        self.throttle_and_forward(body, context).await
    }

    /// Returns the stored response to send in place of a refusal.
    fn replacement(&self, role: &CacheRole, reason: Reason, context: &RequestContext) -> Option<Arc<StoredResponse>> {
        let rules = context.current().settings.rules.cache.as_ref()?;
        role.replacement(reason, rules.stale_when_refused, self.worker.now())
    }

    /// Returns the body to send to the origin: received whole, unless the route streams it.
    async fn body_to_forward(
        &self,
        context: &mut RequestContext,
        body: ClientBody,
    ) -> Result<RequestBody, ClientBodyError> {
        if !context.client_request().has_body {
            return Ok(RequestBody::Empty);
        }
        if context.streams_body() {
            let limit = context.current().settings.limits.max_body_size;
            return Ok(RequestBody::streaming(body, limit, Rc::clone(&self.connection_state), || self.worker.drain()));
        }
        // Boxed to keep the future of requests without a body small.
        let received = Box::pin(self.receive_body(context, body)).await;
        context.end_reception();
        received
    }

    /// Forwards the request once its body is received and all its scopes grant slots. The permit is held meanwhile; a
    /// rejection releases its units.
    async fn throttle_and_forward(
        self: Rc<Self>,
        body: ClientBody,
        mut context: Box<RequestContext>,
    ) -> Response<ResponseBody> {
        let body = match self.body_to_forward(&mut context, body).await {
            Ok(body) => body,
            Err(error) => return self.respond_to_origin_failure(context, &ForwardError::ClientBody(error), None),
        };
        if context.awaits_cost() {
            // Boxed to keep the future of other requests small.
            Box::pin(self.reevaluate_after_body(&mut context)).await;
            context.end_reception();
            if context.decision().verdict.refusal().is_some() {
                return self.refuse(context);
            }
        }
        let acquired = match self.acquire_slots(&context) {
            AcquireOutcome::Acquired(slots) => Ok(slots),
            AcquireOutcome::Rejected(rejection) => Err(rejection),
            AcquireOutcome::Queued(queued) => {
                // Boxed to keep the future of requests that need not wait small.
                let acquired = Box::pin(self.wait_for_slot_of_fetch(queued, &mut context)).await;
                context.end_queue_wait();
                acquired.map(Some)
            }
        };
        match acquired {
            Ok(slots) => {
                if let Some((copy, reason)) = self.copy_fetched_by_others(&context) {
                    context.settle_unknown();
                    return self.respond_from_copy(context, &copy, CopyReason::Collapsed(reason));
                }
                let (state, handler) = (Rc::clone(context.forward_state()), Rc::clone(&self));
                Abandonable::new(|| self.forward(body, context, slots), state, handler).await
            }
            Err(ThrottleRejection { scope, reason, retry_after }) => {
                context.settle_unknown();
                if let Some(copy) = context.copy_in_place_of_refusal() {
                    context.set_refused_by_scope(scope, reason, None);
                    return self.respond_from_copy(context, &copy, CopyReason::Refused);
                }
                let problem = Problem::throttled(reason, retry_after, context.retry_after_spread());
                context.set_refused_by_scope(scope, reason, problem.retry_after());
                self.respond_with_problem(context, problem)
            }
        }
    }
}

/// Returns the output of `work`, or `None` if `deadline` expires before.
async fn within<T>(deadline: &Deadline, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if deadline.poll_expired(context) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}
