//! Handles requests: facts, identity, class, route, cost, admission, forwarding, response.

mod crawl_policy;
mod evaluate;
mod forward;
mod refuse;
mod robots;
mod throttle;

use super::body::{ClientBody, ResponseBody};
use super::connection_timeouts::ConnectionState;
use super::problem::{Problem, ResponseFormat};
use super::request_context::{ClientRequest, RequestContext};
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
    watch: Rc<ConnectionState>,
    peer: IpAddr,
    peer_text: String,
}

impl RequestHandler {
    pub(super) fn new(worker: Rc<Worker>, watch: Rc<ConnectionState>, peer: SocketAddr) -> Self {
        let peer = peer.ip().to_canonical();
        Self(Rc::new(ConnectionContext { worker, watch, peer, peer_text: peer.to_string() }))
    }

    /// Handles one request. Always returns a response.
    pub(super) async fn handle(self, request: Request<ClientBody>) -> Response<ResponseBody> {
        let ConnectionContext { worker, watch, .. } = &*self.0;
        let mut current = worker.current();
        let Request { head, body } = request;
        watch.on_request_start(head.version);
        let arrival = IncomingRequest { head: &head, has_body: !body.is_end_stream(), signature: OnceCell::new() };
        let mut judged = self.evaluate(&arrival, &current, worker.now());
        if judged.as_ref().is_ok_and(EvaluatedRequest::waits_for_lease)
            && let Some(answers) = &worker.shared().ledger_answers
        {
            (current, judged) = Box::pin(self.reevaluate_after_lease(&arrival, answers)).await;
        }
        let judged = match judged {
            Ok(judged) => judged,
            Err(fault) => {
                watch.on_request_end(false);
                self.drain_body(&head, body);
                return self.reject(fault, ResponseFormat::of(&head));
            }
        };
        let EvaluatedRequest {
            origin,
            key,
            signed,
            crawler,
            classified,
            observation,
            route,
            decision,
            is_crawl_policy,
            is_robots_txt,
        } = judged;
        if let Some(operator) = crawler {
            worker.shared().conduct.record_request(operator, is_robots_txt, worker.monotonic_now());
        }
        let visitor = ClientRequest { head, origin, key, signed, classified, observation, route };
        let id = worker.next_decision_id();
        let mut visit = RequestContext::new(Rc::clone(worker), Rc::clone(watch), current, visitor, &decision, id);
        match decision.ruling {
            AdmissionOutcome::Refused(refusal) => {
                self.drain_body(&visit.client_request().head, body);
                self.refuse(visit, &refusal)
            }
            AdmissionOutcome::Admitted(permit) if is_crawl_policy => {
                visit.hold_permit(permit);
                self.serve_crawl_policy(body, visit)
            }
            AdmissionOutcome::Admitted(permit) => {
                visit.hold_permit(permit);
                match is_robots_txt {
                    // Boxed to keep the future of other requests small.
                    true => Box::pin(self.serve_robots(body, visit)).await,
                    false => self.throttle_and_forward(body, visit).await,
                }
            }
        }
    }

    /// Forwards the request once all its scopes grant slots. The permit is held meanwhile; a rejection releases its
    /// units.
    async fn throttle_and_forward(&self, body: ClientBody, mut visit: Box<RequestContext>) -> Response<ResponseBody> {
        let turn = match self.acquire_slots(&visit) {
            AcquireOutcome::Acquired(pass) => Ok(pass),
            AcquireOutcome::Rejected(closed) => Err(closed),
            AcquireOutcome::Queued(waiting) => {
                // Boxed to keep the future of requests that need not wait small.
                let turn = Box::pin(self.wait_for_slot(waiting)).await;
                visit.end_queue_wait();
                turn.map(Some)
            }
        };
        match turn {
            Ok(pass) => self.forward(body, visit, pass).await,
            Err(ThrottleRejection { scope, reason, retry_after: wait }) => {
                visit.settle_unknown();
                self.drain_body(&visit.client_request().head, body);
                let problem = Problem::throttled(reason, wait, visit.retry_after_spread());
                visit.set_refused_by_scope(scope, reason, problem.retry_after());
                self.respond_with_problem(visit, problem)
            }
        }
    }
}
