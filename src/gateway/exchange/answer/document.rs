//! Serves the documents of the gateway, which support GET and HEAD only.

use super::crawl_policy::serve_crawl_policy;
use super::usage::serve_usage;
use crate::gateway::exchange::journal::Journal;
use crate::gateway::message::response_body::ResponseBody;
use crate::gateway::transport::client_body::ClientBody;
use tidegate_http1::Response;
use tidegate_policy::exempt::Exemption;

/// Responds with the document whose reads have the exemption `document`.
pub(in crate::gateway) fn serve_document(
    document: Exemption,
    body: ClientBody,
    mut journal: Box<Journal>,
) -> Response<ResponseBody> {
    journal.origin.settle_unknown();
    journal.known.connection.drain_body(&journal.known.request.head, body);
    match document {
        Exemption::Usage => serve_usage(journal),
        _ => serve_crawl_policy(journal),
    }
}
