//! Requests and responses of HTTP/2 in the gateway's own types.

use super::client_body::ClientBody;
use super::connection_timeouts::ConnectionState;
use super::stream_body::StreamBody;
use crate::gateway::message::response_body::ResponseBody;
use hyper::body::Incoming;
use std::rc::Rc;
use tidegate_http1::{Fields, Request, RequestHead, Response};

pub(in crate::gateway) fn from_http2(request: http::Request<Incoming>) -> Request<ClientBody> {
    let (http::request::Parts { method, uri, version, headers, .. }, body) = request.into_parts();
    let head = RequestHead { method, target: uri, version, fields: Fields::from(&headers) };
    Request { head, body: ClientBody::Http2(body) }
}

/// Returns the response on a stream of the connection of `connection_state`.
pub(in crate::gateway) fn to_http2(
    response: Response<ResponseBody>,
    connection_state: &Rc<ConnectionState>,
) -> http::Response<StreamBody> {
    let mut converted = http::Response::new(StreamBody::new(response.body, connection_state));
    *converted.status_mut() = response.status;
    *converted.headers_mut() = response.fields.to_map();
    converted
}
