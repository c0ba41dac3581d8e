//! The crawl policy, answered by the gateway. Only GET and HEAD read it; an admitted request with another method is answered
//! 405 and charged nothing, as it is never sent to the origin.

use super::{RequestHandler, make_inbound};
use crate::gateway::body::{ClientBody, ResponseBody};
use crate::gateway::crawl_policy::PolicyDocument;
use crate::gateway::problem::{self, Problem, ResponseFormat};
use crate::gateway::request_context::RequestContext;
use crate::http1::{Name, Response};
use crate::policy::decide::reads;
use crate::telemetry::hexadecimal;

impl RequestHandler {
    pub(super) fn tell_crawl_policy(&self, body: ClientBody, mut visit: Box<RequestContext>) -> Response<ResponseBody> {
        visit.close();
        let head = &visit.visitor().head;
        self.leave_unread(head, body);
        if !reads(&head.method) {
            let mut response = self.speak(visit, Problem::only_read());
            response.fields.append(Name::Allow, b"GET, HEAD");
            return response;
        }
        let worker = &self.0.worker;
        let (current, reader, uptime) = (visit.current(), ResponseFormat::of(head), worker.time());
        let gather = || PolicyDocument::gather(worker.shared(), &current, visit.began(), uptime);
        let handout = current.crawl_policy.handout(reader.prefers_html, uptime, gather);
        let (mut response, bytes) = problem::kept(&handout, head.fields.get(Name::IfNoneMatch), reader.wants_body);
        make_inbound(&visit, response.status, &mut response.fields);
        response.fields.append(Name::Vary, b"accept");
        response.fields.append(Name::Decision, &hexadecimal(visit.id()));
        visit.answered(response.status, bytes);
        response
    }
}
