//! Serves the documents of the gateway. Only GET and HEAD are supported; an admitted request with another method gets 405 and
//! is not charged, because it is never sent to the origin.

use super::crawl_policy::serve_crawl_policy;
use super::refusal::respond_with_problem;
use super::usage::serve_usage;
use crate::gateway::exchange::journal::Journal;
use crate::gateway::message::problem::Problem;
use crate::gateway::message::response_body::ResponseBody;
use crate::gateway::transport::client_body::ClientBody;
use tidegate_http1::{Name, Response};
use tidegate_policy::exempt::{Exemption, is_read_method};

/// Responds with the document whose reads have the exemption `document`.
pub(in crate::gateway) fn serve_document(
    document: Exemption,
    body: ClientBody,
    mut journal: Box<Journal>,
) -> Response<ResponseBody> {
    journal.origin.settle_unknown();
    let head = &journal.known.request.head;
    journal.known.connection.drain_body(head, body);
    if !is_read_method(&head.method) {
        // What was reserved is released, and the client has it again.
        for usage in &mut journal.quota_usage {
            usage.remaining = usage.remaining.saturating_add(usage.cost);
            usage.client_remaining = usage.client_remaining.map(|remaining| remaining.saturating_add(usage.cost));
        }
        let mut response = respond_with_problem(journal, Problem::method_not_allowed());
        response.fields.append(Name::Allow, b"GET, HEAD");
        return response;
    }
    match document {
        Exemption::Usage => serve_usage(journal),
        _ => serve_crawl_policy(journal),
    }
}
