//! Serves the crawl policy.

use super::head::prepare_own_response;
use crate::gateway::exchange::journal::Journal;
use crate::gateway::message::crawl_policy::PolicyDocument;
use crate::gateway::message::problem::{self, ResponseFormat};
use crate::gateway::message::response_body::ResponseBody;
use tidegate_access_log::hexadecimal;
use tidegate_http1::{Name, Response};

/// Responds with the crawl policy.
pub(in crate::gateway) fn serve_crawl_policy(journal: Box<Journal>) -> Response<ResponseBody> {
    let head = &journal.known.request.head;
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
