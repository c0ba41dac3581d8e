//! Requests and responses of HTTP/2 in the gateway's own types.

use super::client_body::ClientBody;
use super::response_body::ResponseBody;
use hyper::body::Incoming;
use tidegate_http1::{Fields, Request, RequestHead, Response};

pub(super) fn from_http2(request: http::Request<Incoming>) -> Request<ClientBody> {
    let (http::request::Parts { method, uri, version, headers, .. }, body) = request.into_parts();
    let head = RequestHead { method, target: uri, version, fields: Fields::from(&headers) };
    Request { head, body: ClientBody::Http2(body) }
}

pub(super) fn to_http2(response: Response<ResponseBody>) -> http::Response<ResponseBody> {
    let mut converted = http::Response::new(response.body);
    *converted.status_mut() = response.status;
    *converted.headers_mut() = response.fields.to_map();
    converted
}
