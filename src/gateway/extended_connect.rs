//! WebSockets over HTTP/2 (RFC 8441): requests with CONNECT and `:protocol` are passed to the origin as upgrades of
//! HTTP/1.1.

use super::client_body::ClientBody;
use super::handler::RequestHandler;
use super::http2_messages::{from_http2, to_http2};
use super::response_body::ResponseBody;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use http::{Method, StatusCode};
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::rc::Rc;
use tidegate_http1::{Name, Request};

/// Appended to the key of a WebSocket for the response (RFC 6455 section 1.3).
const WEBSOCKET_GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Returns true for a request of another protocol on a stream.
pub(super) fn is_request(request: &http::Request<Incoming>) -> bool {
    request.method() == Method::CONNECT && request.extensions().get::<Protocol>().is_some()
}

/// Handles a request of another protocol. `upgrade` is the stream once the response is sent.
pub(super) async fn respond(
    handler: Rc<RequestHandler>,
    request: http::Request<Incoming>,
    upgrade: OnUpgrade,
) -> http::Response<ResponseBody> {
    let protocol = request.extensions().get::<Protocol>().map(|protocol| protocol.as_str().to_owned());
    let Request { mut head, .. } = from_http2(request);
    head.method = Method::GET;
    head.fields.append(Name::Connection, b"Upgrade");
    head.fields.append(Name::Upgrade, protocol.as_deref().unwrap_or_default().as_bytes());
    let key = STANDARD.encode(handler.new_nonce());
    head.fields.append_text("sec-websocket-key", key.as_bytes());
    let mut response = handler.handle(Request { head, body: ClientBody::Empty }).await;
    if response.status != StatusCode::SWITCHING_PROTOCOLS {
        return to_http2(response);
    }
    let Some(tunnel) = response.body.take_tunnel().filter(|_| accepts(&response.fields, &key)) else {
        let mut failed = http::Response::new(ResponseBody::full(""));
        *failed.status_mut() = StatusCode::BAD_GATEWAY;
        return failed;
    };
    // Fields of the upgrade alone.
    response.fields.remove(Name::Connection);
    response.fields.remove(Name::Upgrade);
    response.fields.retain(|field| !field.text.eq_ignore_ascii_case(b"sec-websocket-accept"));
    response.status = StatusCode::OK;
    tokio::task::spawn_local(async move {
        if let Ok(stream) = upgrade.await {
            tunnel.run(TokioIo::new(stream), BytesMut::new()).await;
        }
    });
    to_http2(response)
}

/// Returns true if the origin has answered to the key (RFC 6455 section 4.1).
fn accepts(fields: &tidegate_http1::Fields, key: &str) -> bool {
    let expected = STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key.as_bytes(), WEBSOCKET_GUID].concat()));
    fields.get_all_by_text("sec-websocket-accept").any(|accept| accept == expected.as_bytes())
}
