//! Heads of responses for the client.

use crate::gateway::headers;
use crate::gateway::request_context::RequestContext;
use http::StatusCode;
use tidegate_http1::Fields;

/// Prepares the head of a response of the origin for the client: removes connection-specific fields and adds the gateway's
/// own.
pub(super) fn prepare_client_response(context: &RequestContext, status: StatusCode, fields: &mut Fields) {
    headers::strip_response(fields);
    add_rate_limits(context, status, fields);
}

/// Adds the rate-limit fields to a response for the client.
pub(super) fn add_rate_limits(context: &RequestContext, status: StatusCode, fields: &mut Fields) {
    let current = context.current();
    current.rate_limit_headers.write(
        &current.settings.rules,
        context.rate_limit_snapshot(),
        context.started_at(),
        status,
        fields,
    );
}
