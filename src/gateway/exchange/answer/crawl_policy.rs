//! Serves the crawl policy. Only GET and HEAD are supported; an admitted request with another method gets 405 and is
//! not charged, because it is never sent to the origin.

use super::head::prepare_own_response;
use super::refusal::respond_with_problem;
use crate::gateway::exchange::journal::Journal;
use crate::gateway::message::crawl_policy::PolicyDocument;
use crate::gateway::message::problem::{self, Problem, ResponseFormat};
use crate::gateway::message::response_body::ResponseBody;
use crate::gateway::transport::client_body::ClientBody;
use tidegate_access_log::hexadecimal;
use tidegate_http1::{Name, Response};
use tidegate_policy::exempt::is_read_method;

pub(in crate::gateway) fn serve_crawl_policy(body: ClientBody, mut journal: Box<Journal>) -> Response<ResponseBody> {
    journal.origin.settle_unknown();
    let head = &journal.known.request.head;
    journal.known.connection.drain_body(head, body);
    if !is_read_method(&head.method) {
        let mut response = respond_with_problem(journal, Problem::method_not_allowed());
        response.fields.append(Name::Allow, b"GET, HEAD");
        return response;
    }
    let worker = journal.worker();
    let (config, format, uptime) = (&journal.known.config, ResponseFormat::from_head(head), worker.monotonic_now());
    let cached = config.crawl_policy.render(format.prefers_html, uptime, || {
        let (shared, settings, now) = (worker.shared(), &config.settings, journal.origin.decided_at);
        let quotas = config.admission.quotas(now);
        let delays = shared.crawl_delay_adviser.advertised(settings, &shared.operators, &quotas, uptime);
        PolicyDocument::build(settings, &shared.operators, &quotas, &delays, now)
    });
    let (mut response, bytes) = problem::cached_response(&cached, head.fields.all(Name::IfNoneMatch));
    response.fields.append(Name::Vary, b"accept");
    response.fields.append(Name::Decision, &hexadecimal(journal.known.id));
    prepare_own_response(&journal, response.status, &mut response.fields);
    journal.finish_local_response(response.status, bytes);
    response
}
