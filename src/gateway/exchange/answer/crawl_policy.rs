//! Serves the crawl policy. Only GET and HEAD are supported; an admitted request with another method gets 405 and is
//! not charged, because it is never sent to the origin.

use super::head::prepare_own_response;
use crate::gateway::exchange::client_connection::RequestHandler;
use crate::gateway::exchange::crawl_policy::PolicyDocument;
use crate::gateway::exchange::journal::RequestContext;
use crate::gateway::exchange::problem::{self, Problem, ResponseFormat};
use crate::gateway::exchange::response_body::ResponseBody;
use crate::gateway::transport::client_body::ClientBody;
use tidegate_access_log::hexadecimal;
use tidegate_http1::{Name, Response};
use tidegate_policy::exempt::is_read_method;

impl RequestHandler {
    pub(in crate::gateway) fn serve_crawl_policy(
        &self,
        body: ClientBody,
        mut context: Box<RequestContext>,
    ) -> Response<ResponseBody> {
        context.settle_unknown();
        let head = &context.client_request().head;
        self.drain_body(head, body);
        if !is_read_method(&head.method) {
            let mut response = self.respond_with_problem(context, Problem::method_not_allowed());
            response.fields.append(Name::Allow, b"GET, HEAD");
            return response;
        }
        let worker = &self.worker;
        let (current, format, uptime) = (context.current(), ResponseFormat::from_head(head), worker.monotonic_now());
        let cached = current.crawl_policy.render(format.prefers_html, uptime, || {
            let (shared, settings, now) = (worker.shared(), &current.settings, context.started_at());
            let quotas = current.admission.quotas(now);
            let delays = shared.crawl_delay_adviser.advertised(settings, &shared.operators, &quotas, uptime);
            PolicyDocument::build(settings, &shared.operators, &quotas, &delays, now)
        });
        let (mut response, bytes) =
            problem::cached_response(&cached, head.fields.all(Name::IfNoneMatch), format.wants_body);
        response.fields.append(Name::Vary, b"accept");
        response.fields.append(Name::Decision, &hexadecimal(context.id()));
        prepare_own_response(&context, response.status, &mut response.fields);
        context.finish_local_response(response.status, bytes);
        response
    }
}
