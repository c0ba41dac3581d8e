//! Handles requests: facts, identity, class, route, cost, admission, forwarding, response.

mod crawl_policy;
mod evaluate;
mod forward;
mod refuse;
mod robots;
mod throttle;

use super::client_body::ClientBody;
use super::connection_timeouts::ConnectionState;
use super::problem::{Problem, ResponseFormat};
use super::request_context::{ClientRequest, RequestContext};
use super::response_body::ResponseBody;
use super::worker::Worker;
use crate::engine::{AcquireOutcome, AdmissionOutcome, ThrottleRejection};
use crate::http1::{Request, Response};
use evaluate::{EvaluatedRequest, IncomingRequest};
use hyper::body::Body;
use std::cell::OnceCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

/// Request handler of one client connection.
#[derive(Clone)]
pub(super) struct RequestHandler(Rc<ConnectionContext>);

/// Client and worker of a connection.
struct ConnectionContext {
    worker: Rc<Worker>,
    connection_state: Rc<ConnectionState>,
    peer: IpAddr,
    peer_text: String,
}

impl RequestHandler {
    pub(super) fn new(worker: Rc<Worker>, connection_state: Rc<ConnectionState>, peer: SocketAddr) -> Self {
        let peer = peer.ip().to_canonical();
        Self(Rc::new(ConnectionContext { worker, connection_state, peer, peer_text: peer.to_string() }))
    }

    /// Handles one request. Always returns a response.
    pub(super) async fn handle(self, request: Request<ClientBody>) -> Response<ResponseBody> {
        let ConnectionContext { worker, connection_state, .. } = &*self.0;
        let mut current = worker.current();
        let Request { head, body } = request;
        connection_state.on_request_start(head.version);
        let incoming = IncomingRequest { head: &head, has_body: !body.is_end_stream(), signature: OnceCell::new() };
        let mut evaluated = self.evaluate(&incoming, &current, worker.now());
        if evaluated.as_ref().is_ok_and(EvaluatedRequest::waits_for_lease)
            && let Some(ledger_responses) = &worker.shared().ledger_responses
        {
            (current, evaluated) = Box::pin(self.reevaluate_after_lease(&incoming, ledger_responses)).await;
        }
        let evaluated = match evaluated {
            Ok(evaluated) => evaluated,
            Err(error) => {
                connection_state.on_request_end(false);
                self.drain_body(&head, body);
                return self.reject(error, ResponseFormat::from_head(&head));
            }
        };
        let EvaluatedRequest {
            client_address: origin,
            key,
            signed,
            crawler,
            classification: classified,
            observation,
            route,
            decision,
            is_crawl_policy,
            is_robots_txt,
        } = evaluated;
        if let Some(operator) = crawler {
            worker.shared().crawl_compliance.record_request(operator, is_robots_txt, worker.monotonic_now());
        }
        let client_request =
            ClientRequest { head, client_address: origin, key, signed, classification: classified, observation, route };
        let id = worker.next_decision_id();
        let mut context =
            RequestContext::new(Rc::clone(worker), Rc::clone(connection_state), current, client_request, &decision, id);
        match decision.outcome {
            AdmissionOutcome::Refused(refusal) => {
                self.drain_body(&context.client_request().head, body);
                self.refuse(context, &refusal)
            }
            AdmissionOutcome::Admitted(permit) if is_crawl_policy => {
                context.hold_permit(permit);
                self.serve_crawl_policy(body, context)
            }
            AdmissionOutcome::Admitted(permit) => {
                context.hold_permit(permit);
                match is_robots_txt {
                    // Boxed to keep the future of other requests small.
                    true => Box::pin(self.serve_robots(body, context)).await,
                    false => self.throttle_and_forward(body, context).await,
                }
            }
        }
    }

    /// Forwards the request once all its scopes grant slots. The permit is held meanwhile; a rejection releases its
    /// units.
    async fn throttle_and_forward(&self, body: ClientBody, mut context: Box<RequestContext>) -> Response<ResponseBody> {
        let acquired = match self.acquire_slots(&context) {
            AcquireOutcome::Acquired(slots) => Ok(slots),
            AcquireOutcome::Rejected(rejection) => Err(rejection),
            AcquireOutcome::Queued(queued) => {
                // Boxed to keep the future of requests that need not wait small.
                let acquired = Box::pin(self.wait_for_slot(queued)).await;
                context.end_queue_wait();
                acquired.map(Some)
            }
        };
        match acquired {
            Ok(slots) => self.forward(body, context, slots).await,
            Err(ThrottleRejection { scope, reason, retry_after }) => {
                context.settle_unknown();
                self.drain_body(&context.client_request().head, body);
                let problem = Problem::throttled(reason, retry_after, context.retry_after_spread());
                context.set_refused_by_scope(scope, reason, problem.retry_after());
                self.respond_with_problem(context, problem)
            }
        }
    }
}
