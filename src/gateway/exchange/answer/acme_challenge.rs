//! Answers the challenges of an ACME server by HTTP (RFC 8555 section 8.3).

use crate::gateway::exchange::client_connection::ClientConnection;
use crate::gateway::message::response_body::ResponseBody;
use bytes::Bytes;
use http::StatusCode;
use tidegate_access_log::hexadecimal;
use tidegate_http1::{Fields, Name, RequestHead, Response};
use tidegate_policy::exempt::is_read_method;

/// Directory of the tokens.
const CHALLENGES: &str = "/.well-known/acme-challenge/";

/// Answers a request for a pending token. Costs nothing, and counts as a response only. Returns `None` for all other
/// requests, and on listeners with TLS, which no ACME server asks.
pub(in crate::gateway) fn acme_challenge(
    connection: &ClientConnection,
    head: &RequestHead,
) -> Option<Response<ResponseBody>> {
    let token = head.target.path().strip_prefix(CHALLENGES)?;
    if connection.listener.tls.is_some() || !is_read_method(&head.method) {
        return None;
    }
    let answer = connection.worker.shared().challenges.http_answer(token)?;
    let mut fields = Fields::new();
    fields.append_text("content-type", b"application/octet-stream");
    fields.append(Name::CacheControl, b"no-store");
    fields.append(Name::Decision, &hexadecimal(connection.worker.next_decision_id()));
    connection.worker.telemetry().response_without_class(StatusCode::OK.as_u16());
    Some(Response { status: StatusCode::OK, fields, body: ResponseBody::full(Bytes::from(answer)) })
}
