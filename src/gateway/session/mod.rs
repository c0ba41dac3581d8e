//! Sessions of browsers: a signed cookie that a browser sends back. Only the secret that signs is stored.
//!
//! A navigation without a session gets a cookie with its page, or with its refusal. The first refusal of a stranger asks the
//! browser to repeat the request with the cookie ([`tidegate_engine::ReturnTable`]).

mod cookie;
mod keys;

pub(super) use cookie::{SET_COOKIE, begin_on_page, begin_on_refusal, may_begin, take_session_cookies};
pub use keys::SessionSecret;
pub(super) use keys::{Bearer, SessionCookies, SessionKeys, SessionToken};

use tidegate_policy::session::Session;

/// Session of the client of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClientSession {
    /// Content of a valid cookie.
    pub(super) token: Option<SessionToken>,
    /// Client to which the cookie of the response is bound; `None` if the request gets none.
    pub(super) bearer: Option<Bearer>,
}

impl ClientSession {
    /// Returns the session as rules match it.
    pub(super) fn state(self) -> Session {
        self.token.map_or(Session::None, SessionToken::session)
    }
}
