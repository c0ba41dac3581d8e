//! Authorization of admin requests: by token, or without a token only for programs on this machine. Requests of foreign
//! web pages are rejected in both cases.

use super::listener::Peer;
use super::problem::Problem;
use super::server::Authorized;
use super::session::{Permission, Sessions};
use super::wrong_tokens::WrongTokens;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use tidegate_config::admin_address::AdminAddress;
use tidegate_engine::clock::Clock;
use tidegate_policy::secret::Secret;
use tidegate_policy::web_page::RequestOrigin;

/// Access rules of the admin listener.
#[derive(Default)]
pub struct AccessRules {
    /// Bearer token. `None` is allowed only on loopback.
    pub token: Option<Secret>,
    /// Bearer token for requests that change nothing.
    pub read_token: Option<Secret>,
}

/// Access rules of the admin listener, and the sessions of its page.
pub struct AccessControl {
    pub(super) token: Option<Secret>,
    read_token: Option<Secret>,
    /// Address of the admin listener.
    listen: AdminAddress,
    pub(super) sessions: Sessions,
    wrong_tokens: WrongTokens,
}

/// Passes the request on with its [`Permission`] if it is authorized; returns a problem document otherwise.
pub(super) async fn authorize(State(access): State<Arc<AccessControl>>, mut request: Request, next: Next) -> Response {
    match access.check(request.method(), request.headers(), request.extensions().get()) {
        Ok(permission) => {
            if let Some(connection) = request.extensions().get::<Authorized>() {
                connection.set();
            }
            request.extensions_mut().insert(permission);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

impl AccessControl {
    /// Creates the access control of the listener at `listen`, without sessions.
    pub fn new(rules: AccessRules, listen: AdminAddress, clock: Clock) -> Self {
        let AccessRules { token, read_token } = rules;
        let port = match &listen {
            AdminAddress::Tcp(address) => Some(address.port()),
            AdminAddress::Unix(_) => None,
        };
        let (sessions, wrong_tokens) = (Sessions::new(port, clock.clone()), WrongTokens::new(clock));
        Self { token, read_token, listen, sessions, wrong_tokens }
    }

    /// Returns the address of the admin listener.
    pub fn address(&self) -> &AdminAddress {
        &self.listen
    }

    /// Returns true if the token or the session of a request is still valid.
    pub(super) fn permits_read(&self, headers: &HeaderMap) -> bool {
        self.token.is_none() || self.permission(headers).is_some()
    }

    fn check(&self, method: &Method, headers: &HeaderMap, peer: Option<&Peer>) -> Result<Permission, Problem> {
        let permission = match self.token {
            Some(_) => self.check_permission(method, headers, peer)?,
            None => Permission::Write,
        };
        self.check_origin(headers)?;
        Ok(permission)
    }

    /// Rejects requests of foreign web pages.
    pub(super) fn check_origin(&self, headers: &HeaderMap) -> Result<(), Problem> {
        if headers.get_all(HOST).iter().nth(1).is_some() {
            return Err(Problem::new(StatusCode::BAD_REQUEST, "Send one Host."));
        }
        let value = |name| headers.get(name).map(HeaderValue::as_bytes);
        let request = RequestOrigin {
            host: value(HOST),
            origin: value(ORIGIN),
            fetch_site: value(HeaderName::from_static("sec-fetch-site")),
        };
        // No browser connects to a Unix socket.
        if let (None, AdminAddress::Tcp(listen)) = (&self.token, &self.listen)
            && !request.has_local_host(listen.ip())
        {
            let reason = "Use a loopback address as Host, or set admin.token.";
            return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, reason));
        }
        match request.is_other_site() {
            true => Err(Problem::new(StatusCode::FORBIDDEN, "Requests of other sites' pages are not allowed.")),
            false => Ok(()),
        }
    }

    /// Returns what a token permits; `None` if it is wrong, which is logged with its sender `peer`.
    pub(super) fn permission_of(&self, token: &[u8], peer: Option<&Peer>) -> Option<Permission> {
        let permission = self.find_permission(token);
        if permission.is_none() {
            self.wrong_tokens.record(peer);
        }
        permission
    }

    fn find_permission(&self, token: &[u8]) -> Option<Permission> {
        let is = |secret: &Option<Secret>| secret.as_ref().is_some_and(|secret| secret.matches(token));
        match () {
            () if is(&self.token) => Some(Permission::Write),
            () if is(&self.read_token) => Some(Permission::Read),
            () => None,
        }
    }

    /// Returns what the token of a request permits, or without one its session.
    fn permission(&self, headers: &HeaderMap) -> Option<Permission> {
        match headers.contains_key(AUTHORIZATION) {
            true => self.find_permission(sent_token(headers)),
            false => self.sessions.permission(headers),
        }
    }

    fn check_permission(
        &self,
        method: &Method,
        headers: &HeaderMap,
        peer: Option<&Peer>,
    ) -> Result<Permission, Problem> {
        match self.permission(headers) {
            Some(Permission::Read) if !method.is_safe() => {
                Err(Problem::new(StatusCode::FORBIDDEN, "admin.read_token permits no changes; send admin.token."))
            }
            Some(permission) => Ok(permission),
            None => {
                if headers.contains_key(AUTHORIZATION) {
                    self.wrong_tokens.record(peer);
                }
                Err(Problem::new(StatusCode::UNAUTHORIZED, "Send the admin token: Authorization: Bearer ...")
                    .with_header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")))
            }
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

const SCHEME: &[u8] = b"Bearer ";
