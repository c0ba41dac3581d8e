//! Authorization of admin requests: by token, or without a token only for programs on this machine. Requests of foreign
//! web pages are rejected in both cases.

use super::problem::Problem;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use std::sync::Arc;
use tidegate_config::admin_address::AdminAddress;
use tidegate_policy::secret::Secret;

/// Access rules of the admin listener.
#[derive(Clone)]
pub struct AccessControl {
    /// Bearer token. `None` is allowed only on loopback.
    pub token: Option<Secret>,
    /// Bearer token for requests that change nothing.
    pub read_token: Option<Secret>,
    /// Address of the admin listener.
    pub listen: AdminAddress,
}

/// Passes the request on if it is authorized; returns a problem document otherwise.
pub(super) async fn authorize(State(access): State<Arc<AccessControl>>, request: Request, next: Next) -> Response {
    match access.check(request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

impl AccessControl {
    fn check(&self, method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
        match &self.token {
            Some(token) => self.check_token(method, headers, token)?,
            None => self.check_host(headers)?,
        }
        check_not_browser(headers)
    }

    fn check_token(&self, method: &Method, headers: &HeaderMap, token: &Secret) -> Result<(), Problem> {
        let sent = sent_token(headers);
        if token.matches(sent) {
            return Ok(());
        }
        match self.read_token.as_ref().is_some_and(|token| token.matches(sent)) {
            true if method.is_safe() => Ok(()),
            true => Err(Problem::new(StatusCode::FORBIDDEN, "admin.read_token permits no changes; send admin.token.")),
            false => Err(Problem::new(StatusCode::UNAUTHORIZED, "Send the admin token: Authorization: Bearer ...")
                .with_header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
        }
    }

    /// Rejects a request whose `Host` is not a loopback address. A web page whose name resolves to this machine (DNS
    /// rebinding) still sends its own name. No browser connects to a Unix socket.
    fn check_host(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let AdminAddress::Tcp(listen) = self.listen else { return Ok(()) };
        let host = headers.get(HOST).and_then(authority);
        let is_local = host.is_some_and(|authority| {
            let name = authority.host().trim_start_matches('[').trim_end_matches(']');
            let address: Option<IpAddr> = name.parse().ok();
            name.eq_ignore_ascii_case("localhost")
                || address.is_some_and(|address| address.is_loopback() || address == listen.ip())
        });
        match is_local {
            true => Ok(()),
            false => Err(Problem::new(
                StatusCode::MISDIRECTED_REQUEST,
                "Use a loopback address as Host, or set admin.token.",
            )),
        }
    }
}

fn sent_token(headers: &HeaderMap) -> &[u8] {
    let sent = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    match sent.split_at_checked(SCHEME.len()) {
        Some((scheme, sent)) if scheme.eq_ignore_ascii_case(SCHEME) => sent,
        _ => b"",
    }
}

/// Rejects requests of foreign web pages. Browsers send the origin of a request; programs send neither header.
fn check_not_browser(headers: &HeaderMap) -> Result<(), Problem> {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let foreign_site = site.is_some_and(|site| site != b"same-origin" && site != b"none");
    let foreign_origin = headers.get(ORIGIN).is_some_and(|origin| {
        let host = headers.get(HOST).map(HeaderValue::as_bytes).unwrap_or_default();
        let origin = origin.as_bytes();
        origin.strip_prefix(b"http://").or(origin.strip_prefix(b"https://")) != Some(host)
    });
    match foreign_site || foreign_origin {
        true => Err(Problem::new(StatusCode::FORBIDDEN, "Requests of other sites' pages are not allowed.")),
        false => Ok(()),
    }
}

fn authority(host: &HeaderValue) -> Option<Authority> {
    host.to_str().ok()?.parse().ok()
}

const SCHEME: &[u8] = b"Bearer ";
