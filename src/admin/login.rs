//! Log-in of the live page: opens and ends its session.

use super::auth::AccessControl;
use super::listener::OptionalPeer;
use super::problem::Problem;
use super::session::Permission;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tracing::info;

/// Returns what the page may do: `token_required`, and `may_write`, which needs the admin token.
pub(super) async fn show(State(access): State<Arc<AccessControl>>, headers: HeaderMap) -> Json<Value> {
    Json(document(&access, access.sessions.permission(&headers)))
}

/// Opens a session with `{"token": "..."}` and sets its cookie.
pub(super) async fn open(
    State(access): State<Arc<AccessControl>>,
    peer: OptionalPeer,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Credentials {
        token: String,
    }
    access.check_origin(&headers)?;
    let sent: Credentials = serde_json::from_slice(&body).map_err(|_| {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, r#"body: not {"token": "..."}; send the admin token"#)
    })?;
    let wrong = || Problem::new(StatusCode::UNAUTHORIZED, "token: wrong; send admin.token or admin.read_token");
    let permission = access.permission_of(sent.token.as_bytes(), peer.as_deref()).ok_or_else(wrong)?;
    let cookie = access.sessions.open(permission)?;
    let peer = peer_name(peer);
    let token = match permission {
        Permission::Read => "admin.read_token",
        Permission::Write => "admin.token",
    };
    info!(target: "audit", peer, token, "Log-in to the live page from {peer} with {token}");
    Ok(([(SET_COOKIE, cookie)], Json(document(&access, Some(permission)))).into_response())
}

/// Ends the session.
pub(super) async fn close(
    State(access): State<Arc<AccessControl>>,
    peer: OptionalPeer,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    access.check_origin(&headers)?;
    let (cookie, was_open) = access.sessions.close(&headers);
    if was_open {
        let peer = peer_name(peer);
        info!(target: "audit", peer, "Log-out from the live page from {peer}");
    }
    Ok(([(SET_COOKIE, cookie)], Json(document(&access, None))).into_response())
}

pub(super) fn peer_name(peer: OptionalPeer) -> String {
    peer.map_or("an unknown address".to_owned(), |Extension(peer)| peer.to_string())
}

fn document(access: &AccessControl, permission: Option<Permission>) -> Value {
    let may_read = access.token.is_none() || permission.is_some();
    json!({
        "token_required": access.token.is_some(),
        "may_read": may_read,
        "may_write": permission == Some(Permission::Write),
    })
}
