//! WebSockets over HTTP/2 (RFC 8441): requests with CONNECT and `:protocol` are passed to the origin as upgrades of
//! HTTP/1.1.

use super::client_body::ClientBody;
use super::connection_timeouts::ConnectionState;
use super::http2_messages::{from_http2, to_http2};
use super::stream_body::StreamBody;
use super::websocket;
use crate::gateway::exchange::{ClientConnection, handle};
use bytes::BytesMut;
use http::{Method, StatusCode};
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::rc::Rc;
use tidegate_http1::{Name, Request};

const PROTOCOL: &str = "websocket";

/// Returns true for the request of a WebSocket on a stream.
pub(in crate::gateway) fn is_request(request: &http::Request<Incoming>) -> bool {
    let protocol = request.extensions().get::<Protocol>();
    request.method() == Method::CONNECT && protocol.is_some_and(|protocol| protocol.as_str() == PROTOCOL)
}

/// Handles the request of a WebSocket. `upgrade` is the stream once the response is sent.
pub(in crate::gateway) async fn respond(
    connection: Rc<ClientConnection>,
    connection_state: &Rc<ConnectionState>,
    request: http::Request<Incoming>,
    upgrade: OnUpgrade,
) -> http::Response<StreamBody> {
    let Request { mut head, .. } = from_http2(request);
    head.method = Method::GET;
    head.fields.append(Name::Connection, b"Upgrade");
    head.fields.append(Name::Upgrade, PROTOCOL.as_bytes());
    // A key of the client has no meaning over HTTP/2.
    head.fields.retain(|field| !field.text.eq_ignore_ascii_case(websocket::KEY.as_bytes()));
    head.fields.append_text(websocket::KEY, websocket::key(connection.new_nonce()).as_bytes());
    let mut response = handle(connection, Request { head, body: ClientBody::Empty }).await;
    let Some(tunnel) = response.body.take_tunnel() else { return to_http2(response, connection_state) };
    // Fields of the upgrade alone.
    response.fields.remove(Name::Connection);
    response.fields.remove(Name::Upgrade);
    response.fields.retain(|field| !field.text.eq_ignore_ascii_case(websocket::ACCEPT.as_bytes()));
    response.status = StatusCode::OK;
    tokio::task::spawn_local(async move {
        if let Ok(stream) = upgrade.await {
            tunnel.run(TokioIo::new(stream), BytesMut::new()).await;
        }
    });
    to_http2(response, connection_state)
}
