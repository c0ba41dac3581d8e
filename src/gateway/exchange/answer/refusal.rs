//! Responses of the gateway itself: refusals, rejections and errors.

use super::head::{add_rate_limits, allow_reading, prepare_own_response};
use crate::gateway::exchange::client_connection::RequestHandler;
use crate::gateway::exchange::journal::RequestContext;
use crate::gateway::exchange::problem::{Problem, ResponseFormat};
use crate::gateway::exchange::response_body::ResponseBody;
use crate::gateway::exchange::target::RequestError;
use crate::gateway::transport::client_body::ClientBody;
use crate::gateway::transport::listener::ListenerKind;
use hyper::body::Body;
use tidegate_http1::{Name, RequestHead, Response};

impl RequestHandler {
    /// Responds to a request that the rules refuse.
    pub(in crate::gateway) fn refuse(&self, mut context: Box<RequestContext>) -> Response<ResponseBody> {
        let (rules, snapshot) = (&context.current().settings.rules, context.rate_limit_snapshot());
        let problem = Problem::refused(rules, snapshot, context.retry_after_spread()).expect("refusal present");
        let retry_after = problem.retry_after();
        let (response, bytes) = self.render_problem(&context, problem);
        context.set_retry_after(retry_after);
        context.finish_local_response(response.status, bytes);
        response
    }

    /// Renders `problem` with the rate-limit fields. Returns the response and the length of its body.
    fn render_problem(&self, context: &RequestContext, problem: Problem<'_>) -> (Response<ResponseBody>, u64) {
        let current = context.current();
        let status = problem.status();
        let format = ResponseFormat::from_head(&context.client_request().head);
        let mut scratch = self.worker.scratch();
        let (mut response, bytes) = problem.into_response(format, context.id(), &current.error_pages, &mut scratch);
        match self.listener.kind {
            // The proxy has fields of its own.
            ListenerKind::ForwardAuth => add_rate_limits(context, status, &mut response.fields),
            ListenerKind::Site => prepare_own_response(context, status, &mut response.fields),
        }
        allow_reading(&context.client_request().head, &current.settings, &mut response.fields);
        (response, bytes)
    }

    /// Responds to a request that could not be parsed.
    pub(in crate::gateway) fn reject_unparsed(&self, error: tidegate_http1::Malformed) -> Response<ResponseBody> {
        self.reject(RequestError::Malformed(error), ResponseFormat::UNKNOWN)
    }

    /// Responds to a request with this head that is not valid.
    pub(in crate::gateway) fn reject_request(&self, error: RequestError, head: &RequestHead) -> Response<ResponseBody> {
        let mut response = self.reject(error, ResponseFormat::from_head(head));
        allow_reading(head, &self.worker.current().settings, &mut response.fields);
        response
    }

    /// Responds to a request that is not valid, and counts it as a response without a class.
    fn reject(&self, error: RequestError, format: ResponseFormat) -> Response<ResponseBody> {
        let worker = &self.worker;
        let problem = Problem::malformed(error);
        worker.telemetry().response_without_class(problem.status().as_u16());
        let id = worker.next_decision_id();
        problem.into_response(format, id, &worker.current().error_pages, &mut worker.scratch()).0
    }

    /// Responds to an admitted request instead of the origin.
    pub(in crate::gateway) fn respond_with_problem(
        &self,
        context: Box<RequestContext>,
        problem: Problem<'_>,
    ) -> Response<ResponseBody> {
        let (response, bytes) = self.render_problem(&context, problem);
        context.finish_local_response(response.status, bytes);
        response
    }

    /// Drains the body of a rejected request within bounds; otherwise the client would be disconnected before it reads
    /// the response. Bodies that wait for 100-continue are not drained.
    pub(in crate::gateway) fn drain_body(&self, head: &RequestHead, body: ClientBody) {
        if !body.is_end_stream() && !head.fields.contains(Name::Expect) {
            body.drain(&self.worker.drain());
        }
    }
}
