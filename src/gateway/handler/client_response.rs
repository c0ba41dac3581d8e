//! Heads of responses for the client.

use crate::gateway::header_rules::{change_response, complete_response};
use crate::gateway::headers;
use crate::gateway::request_context::RequestContext;
use http::StatusCode;
use tidegate_http1::Fields;

/// Prepares the head of a response of the origin for the client: removes connection-specific fields, applies the changes of
/// the route and adds the gateway's own.
pub(super) fn prepare_client_response(context: &RequestContext, status: StatusCode, fields: &mut Fields) {
    headers::strip_response(fields);
    prepare_copy(context, status, fields);
}

/// Like [`prepare_client_response`], for a stored response, which has no connection-specific fields.
pub(super) fn prepare_copy(context: &RequestContext, status: StatusCode, fields: &mut Fields) {
    if let Some(rules) = context.header_rules() {
        change_response(fields, &rules.response);
    }
    add_rate_limits(context, status, fields);
}

/// Completes the head of a response that the gateway itself generates, after all of its own fields but the rate limits.
pub(super) fn prepare_own_response(context: &RequestContext, status: StatusCode, fields: &mut Fields) {
    if let Some(rules) = context.header_rules() {
        complete_response(fields, &rules.response);
    }
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
