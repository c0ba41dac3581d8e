//! The cookie of a session: who gets it, and how it is removed from what the origin and the cache see.

use super::ClientSession;
use super::keys::{Bearer, SessionKeys, SessionToken};
use crate::gateway::exchange::journal::Journal;
use crate::gateway::exchange::known::Known;
use crate::gateway::message::headers::take_cookies;
use crate::gateway::message::problem::ResponseFormat;
use std::hash::BuildHasher;
use tidegate_config::settings::Sessions;
use tidegate_http1::{Fields, Name, RequestHead, list};
use tidegate_policy::ClientKind;

/// Prefix of a cookie that belongs to one host and is only sent over https (RFC 6265bis section 4.1.3.2).
const HOST_PREFIX: &str = "__Host-";

/// A session that begins with a refusal.
pub(in crate::gateway) struct RefusedSession {
    /// Value of `Set-Cookie`.
    pub(in crate::gateway) cookie: String,
    /// True if the browser shall come back at once: with the session, it is in another class.
    pub(in crate::gateway) comes_back: bool,
}

pub(in crate::gateway) const SET_COOKIE: &str = "set-cookie";

/// Removes the session cookie from the fields of a request. Returns its value.
pub(in crate::gateway) fn take_cookie(sessions: &Sessions, fields: &mut Fields) -> Option<Box<[u8]>> {
    let bare = bare_name(&sessions.cookie);
    let mut value = None;
    take_cookies(fields, |cookie| {
        let cookie = cookie.strip_prefix(HOST_PREFIX.as_bytes()).unwrap_or(cookie);
        let Some(text) = cookie.strip_prefix(bare.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")) else {
            return false;
        };
        value.get_or_insert_with(|| text.trim_ascii().into());
        true
    });
    value
}

/// Adds the cookie to a page of the origin: a new session, or one that is known from now on. A page gets none if `is_shared`
/// is true, because other clients get it from the cache, or if caches behind the gateway may share it.
pub(in crate::gateway) fn begin_on_page(journal: &Journal, is_shared: bool, fields: &mut Fields) {
    let known = &journal.known;
    let ClientSession { token, bearer: Some(bearer) } = known.client_session() else { return };
    if is_shared || !is_html(fields) || is_for_shared_caches(fields) {
        return;
    }
    let now = known.worker().now();
    let token = match token {
        None => SessionKeys::issue(now),
        // The session begins anew, so that it outlasts the next visit.
        Some(token) if !token.is_known && is_of_person(known) => token.known_from(now),
        Some(_) => None,
    };
    if let Some(cookie) = token.and_then(|token| cookie(known, token, bearer)) {
        fields.append_text(SET_COOKIE, cookie.as_bytes());
    }
}

/// Returns the session that begins with the refusal of a client without one; `None` if none begins.
pub(in crate::gateway) fn begin_on_refusal(journal: &Journal) -> Option<RefusedSession> {
    let known = &journal.known;
    let ClientSession { token: None, bearer: Some(bearer) } = known.client_session() else { return None };
    let now = known.worker().now();
    let cookie = cookie(known, SessionKeys::issue(now)?, bearer)?;
    let class = &known.rules()[known.classified.classification.class];
    let may_come_back = journal.verdict.refusal().is_some_and(|refusal| class.asks_back(refusal.reason));
    let client = || {
        let hasher = &known.worker().shared().credential_hasher;
        hasher.hash_one((known.address_key().to_u64(), bearer))
    };
    let comes_back = known.config.settings.sessions.as_ref()?.enforce
        && may_come_back
        && known.worker().shared().returns.admit(client(), now.seconds() as u32);
    Some(RefusedSession { cookie, comes_back })
}

/// Returns true for a navigation of what may be a browser. Bots that say so, assets, requests of programs and signed agents
/// get no cookie.
pub(in crate::gateway) fn may_begin(kind: ClientKind, is_signed: bool, head: &RequestHead) -> bool {
    kind.may_have_session() && !is_signed && is_navigation(head)
}

fn is_navigation(head: &RequestHead) -> bool {
    let is_absent_or = |name, word: &[u8]| head.fields.get(name).is_none_or(|value| value == word);
    head.method == http::Method::GET
        && is_absent_or(Name::SecFetchDest, b"document")
        && is_absent_or(Name::SecFetchMode, b"navigate")
        && ResponseFormat::from_head(head).prefers_html
}

fn is_of_person(known: &Known) -> bool {
    known.client.observation.is_some_and(|observation| observation.is_of_person(&known.config.admission))
}

fn is_html(fields: &Fields) -> bool {
    let media_type = fields.get(Name::ContentType).unwrap_or_default().split(|&byte| byte == b';').next();
    media_type.is_some_and(|media_type| media_type.trim_ascii().eq_ignore_ascii_case(b"text/html"))
}

/// Returns true if caches that several clients share may keep the response: one of them would give all of its clients the
/// same cookie.
fn is_for_shared_caches(fields: &Fields) -> bool {
    let mut has_lifetime = fields.get_all_by_text("expires").next().is_some();
    for directive in fields.all(Name::CacheControl).flat_map(list) {
        let name = directive.split(|&byte| byte == b'=').next().unwrap_or_default().trim_ascii();
        match name.to_ascii_lowercase().as_slice() {
            b"private" | b"no-store" | b"no-cache" => return false,
            b"public" | b"s-maxage" => has_lifetime = true,
            b"max-age" => has_lifetime |= !directive.ends_with(b"=0"),
            _ => {}
        }
    }
    has_lifetime
}

/// Returns the value of `Set-Cookie` for a session.
fn cookie(known: &Known, token: SessionToken, bearer: Bearer) -> Option<String> {
    let sessions = known.config.settings.sessions.as_ref()?;
    let value = known.worker().shared().session_keys.sign(token, bearer);
    let (name, lifetime) = (&sessions.cookie, sessions.lifetime.as_secs());
    let attributes = format!("Path=/; Max-Age={lifetime}; HttpOnly; SameSite=Lax");
    Some(match known.is_https() || is_loopback_host(known.request.target.host()) {
        true => format!("{name}={value}; {attributes}; Secure"),
        false => format!("{}={value}; {attributes}", bare_name(name)),
    })
}

/// Returns the name of the cookie over http.
fn bare_name(name: &str) -> &str {
    name.strip_prefix(HOST_PREFIX).unwrap_or(name)
}

/// Returns true for a host whose secure cookies browsers accept over http, too: their own machine.
fn is_loopback_host(host: &str) -> bool {
    host == "localhost" || host == "[::1]" || host.strip_prefix("127.").is_some_and(|rest| rest.split('.').count() == 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_taken_from_what_the_origin_sees() {
        let sessions = Sessions::default();
        for (lines, value, left) in [
            (&["a=1; __Host-tidegate=abc; b=2"][..], Some("abc"), &["a=1; b=2"][..]),
            (&["tidegate=abc"], Some("abc"), &[]),
            (&["a=1", "__Host-tidegate=abc"], Some("abc"), &["a=1"]),
            (&["__Host-tidegate=one; tidegate=two; c=3"], Some("one"), &["c=3"]),
            (
                &["my__Host-tidegate=1; tidegates=2; x=tidegate"],
                None,
                &["my__Host-tidegate=1; tidegates=2; x=tidegate"],
            ),
            (&["a=1"], None, &["a=1"]),
        ] {
            let mut fields: Fields = lines.iter().map(|line| ("cookie", *line)).collect();
            let taken = take_cookie(&sessions, &mut fields);
            assert_eq!(taken.as_deref(), value.map(str::as_bytes), "{lines:?}");
            assert_eq!(fields, left.iter().map(|line| ("cookie", *line)).collect(), "{lines:?}");
        }
    }

    #[test]
    fn pages_for_shared_caches_get_no_cookie() {
        for (value, is_shared) in [
            ("public, max-age=60", true),
            ("max-age=60", true),
            ("S-MaxAge=5", true),
            ("max-age=0", false),
            ("private, max-age=60", false),
            ("no-store", false),
            ("must-revalidate", false),
        ] {
            let fields: Fields = [("cache-control", value)].into_iter().collect();
            assert_eq!(is_for_shared_caches(&fields), is_shared, "{value}");
        }
    }
}
