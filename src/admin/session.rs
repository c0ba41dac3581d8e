//! Sessions of the live page: a browser that sent a token gets a cookie in its place, so that no script holds the token.

use super::problem::Problem;
use axum::http::header::{COOKIE, HeaderValue};
use axum::http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt::Write;
use std::time::Duration;
use tidegate_engine::clock::Clock;
use tidegate_policy::Timestamp;
use tidegate_policy::secret::Secret;

/// Open sessions.
pub(super) struct Sessions {
    /// Oldest first.
    open: Mutex<VecDeque<Session>>,
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
    /// Creates no sessions.
    pub(super) fn new(clock: Clock) -> Self {
        Self { open: Mutex::default(), clock }
    }

    /// Opens a session and returns its id. The oldest one ends if there are too many.
    pub(super) fn open(&self, permission: Permission) -> Result<String, Problem> {
        let mut bytes = [0; 32];
        let failed = |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "The system has no random numbers.");
        aws_lc_rs::rand::fill(&mut bytes).map_err(failed)?;
        let id = bytes.iter().fold(String::new(), |mut id, byte| {
            let _ = write!(id, "{byte:02x}");
            id
        });
        let mut sessions = self.open.lock();
        if sessions.len() == MAX_SESSIONS {
            sessions.pop_front();
        }
        sessions.push_back(Session {
            id: Secret::new(id.clone()),
            permission,
            expires_at: self.clock.monotonic_now() + LIFETIME,
        });
        Ok(id)
    }

    /// Returns what the session of a request permits; `None` without a session.
    pub(super) fn permission(&self, headers: &HeaderMap) -> Option<Permission> {
        let id = cookie(headers)?;
        let mut sessions = self.open.lock();
        let now = self.clock.monotonic_now();
        sessions.retain(|session| session.expires_at > now);
        sessions.iter().find(|session| session.id.matches(id)).map(|session| session.permission)
    }

    /// Ends the session of a request.
    pub(super) fn close(&self, headers: &HeaderMap) {
        let Some(id) = cookie(headers) else { return };
        self.open.lock().retain(|session| !session.id.matches(id));
    }
}

/// Returns the `Set-Cookie` field of a session: scripts cannot read it, and other sites do not send it.
pub(super) fn cookie_of(id: &str) -> HeaderValue {
    set_cookie(id, LIFETIME)
}

/// Returns the `Set-Cookie` field that deletes the cookie.
pub(super) fn no_cookie() -> HeaderValue {
    set_cookie("", Duration::ZERO)
}

fn set_cookie(id: &str, lifetime: Duration) -> HeaderValue {
    let text = format!("{NAME}={id}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}", lifetime.as_secs());
    HeaderValue::from_str(&text).expect("hexadecimal digits")
}

/// Returns the session id that a request sends.
fn cookie(headers: &HeaderMap) -> Option<&[u8]> {
    let cookies = headers.get_all(COOKIE).iter().flat_map(|value| value.as_bytes().split(|&byte| byte == b';'));
    cookies
        .map(<[u8]>::trim_ascii)
        .find_map(|cookie| cookie.strip_prefix(NAME.as_bytes())?.strip_prefix(b"="))
        .filter(|id| !id.is_empty())
}

/// Name of the cookie.
const NAME: &str = "tidegate_session";

/// A working day.
const LIFETIME: Duration = Duration::from_secs(12 * 3600);

/// More than the browsers of a team.
const MAX_SESSIONS: usize = 64;
