//! Sessions of the live page: a browser that sent a token gets a cookie in its place, so that no script holds the token.

use super::problem::Problem;
use axum::http::header::{COOKIE, HeaderValue};
use axum::http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use std::fmt::Write;
use std::time::Duration;
use tidegate_engine::clock::Clock;
use tidegate_policy::Timestamp;
use tidegate_policy::admin_session::COOKIE_PREFIX;
use tidegate_policy::secret::Secret;

/// Open sessions.
pub(super) struct Sessions {
    /// Oldest first.
    open: Mutex<Vec<Session>>,
    /// Name of the cookie.
    cookie_name: String,
    clock: Clock,
}

/// What a token or a session permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    /// Requests that change nothing.
    Read,
    /// All requests.
    Write,
}

struct Session {
    /// Value of the cookie.
    id: Secret,
    permission: Permission,
    expires_at: Timestamp,
}

impl Sessions {
    /// Creates no sessions. Browsers send cookies to every port of a host, so the name has the `port` of the listener.
    pub(super) fn new(port: Option<u16>, clock: Clock) -> Self {
        let cookie_name = port.map_or(COOKIE_PREFIX.to_owned(), |port| format!("{COOKIE_PREFIX}_{port}"));
        Self { open: Mutex::default(), cookie_name, clock }
    }

    /// Opens a session and returns the `Set-Cookie` field for it. If there are too many of the same permission, the
    /// oldest of them ends.
    pub(super) fn open(&self, permission: Permission) -> Result<HeaderValue, Problem> {
        let mut bytes = [0; 32];
        let failed = |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "The system has no random numbers.");
        getrandom::fill(&mut bytes).map_err(failed)?;
        let id = bytes.iter().fold(String::new(), |mut id, byte| {
            let _ = write!(id, "{byte:02x}");
            id
        });
        let mut sessions = self.open.lock();
        let mut same = sessions.iter().enumerate().filter(|(_, session)| session.permission == permission);
        if let (Some((oldest, _)), Some(_)) = (same.next(), same.nth(MAX_SESSIONS - 2)) {
            sessions.remove(oldest);
        }
        let expires_at = self.clock.monotonic_now() + LIFETIME;
        sessions.push(Session { id: Secret::new(id.clone()), permission, expires_at });
        Ok(self.set_cookie(&id, LIFETIME))
    }

    /// Returns what the session of a request permits; `None` without a session.
    pub(super) fn permission(&self, headers: &HeaderMap) -> Option<Permission> {
        let mut sessions = self.open.lock();
        let now = self.clock.monotonic_now();
        sessions.retain(|session| session.expires_at > now);
        self.ids(headers)
            .find_map(|id| sessions.iter().find(|session| session.id.matches(id)))
            .map(|found| found.permission)
    }

    /// Ends the session of a request. Returns the `Set-Cookie` field that deletes its cookie, and true if there was one.
    pub(super) fn close(&self, headers: &HeaderMap) -> (HeaderValue, bool) {
        let mut sessions = self.open.lock();
        let before = sessions.len();
        sessions.retain(|session| !self.ids(headers).any(|id| session.id.matches(id)));
        (self.set_cookie("", Duration::ZERO), sessions.len() < before)
    }

    /// Returns the session ids that a request sends. Another server of the host may have set a cookie of the same name.
    fn ids<'h>(&self, headers: &'h HeaderMap) -> impl Iterator<Item = &'h [u8]> {
        let cookies = headers.get_all(COOKIE).iter().flat_map(|value| value.as_bytes().split(|&byte| byte == b';'));
        cookies
            .map(<[u8]>::trim_ascii)
            .filter_map(|cookie| cookie.strip_prefix(self.cookie_name.as_bytes())?.strip_prefix(b"="))
            .filter(|id| !id.is_empty())
    }

    /// Returns a `Set-Cookie` field: scripts cannot read the cookie, and other sites do not send it.
    fn set_cookie(&self, id: &str, lifetime: Duration) -> HeaderValue {
        let (name, seconds) = (&self.cookie_name, lifetime.as_secs());
        let text = format!("{name}={id}; Path=/api/v1; HttpOnly; SameSite=Strict; Max-Age={seconds}");
        HeaderValue::from_str(&text).expect("hexadecimal digits")
    }
}

/// A working day.
const LIFETIME: Duration = Duration::from_secs(12 * 3600);

/// Maximum number of sessions of one permission: more than the browsers of a team.
const MAX_SESSIONS: usize = 32;
