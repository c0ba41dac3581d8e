//! The cookie of a session: which requests get it, and its removal from what the origin and the cache see.

use super::ClientSession;
use super::keys::{Bearer, SessionCookies, SessionKeys, SessionToken};
use crate::gateway::exchange::journal::Journal;
use crate::gateway::exchange::known::Known;
use crate::gateway::message::headers::take_cookies;
use crate::gateway::message::problem::ResponseFormat;
use http::StatusCode;
use std::hash::BuildHasher;
use std::time::Duration;
use tidegate_config::settings::Sessions;
use tidegate_http1::{Fields, Name, RequestHead, list};
use tidegate_policy::{Classification, ClientKind};

/// Prefix of a cookie that belongs to one host and is only sent over https (RFC 6265bis section 4.1.3.2).
const HOST_PREFIX: &str = "__Host-";

/// A session that begins with a refusal.
pub(in crate::gateway) struct RefusedSession {
    /// Value of `Set-Cookie`.
    pub(in crate::gateway) cookie: String,
    /// True if the browser is asked to repeat the request at once: with the session, it is in another class.
    pub(in crate::gateway) comes_back: bool,
}

pub(in crate::gateway) const SET_COOKIE: &str = "set-cookie";

/// Maximum number of session cookies that are looked at.
const MAX_COOKIES: usize = 4;

/// Removes the session cookies from the fields of a request. Returns the values of the first ones.
pub(in crate::gateway) fn take_session_cookies(sessions: &Sessions, fields: &mut Fields) -> SessionCookies {
    let bare = bare_name(&sessions.cookie);
    let mut values = SessionCookies::new();
    take_cookies(fields, |cookie| {
        let Some(at) = memchr::memchr(b'=', cookie) else { return false };
        let (name, value) = (cookie[..at].trim_ascii_end(), cookie[at + 1..].trim_ascii());
        let is_session = name.strip_prefix(HOST_PREFIX.as_bytes()).unwrap_or(name) == bare.as_bytes();
        if is_session && values.len() < MAX_COOKIES {
            values.push(value.into());
        }
        is_session
    });
    values
}

/// Adds the cookie to a page of the origin: a new session, or one that is known from now on. A page gets none if `is_shared`
/// is true, because other clients get it from the cache, or if caches behind the gateway may share it.
pub(in crate::gateway) fn begin_on_page(journal: &Journal, status: StatusCode, is_shared: bool, fields: &mut Fields) {
    let known = &journal.known;
    let ClientSession { token, bearer: Some(bearer) } = known.client_session() else { return };
    if is_shared || status != StatusCode::OK || !is_html(fields) || is_for_shared_caches(fields) {
        return;
    }
    let now = known.worker().now();
    let lifetime = known.config.settings.sessions.as_ref().map_or(Duration::ZERO, |sessions| sessions.lifetime);
    let token = match token {
        None => SessionKeys::issue(now),
        Some(token) if !token.is_known && is_of_person(known) => token.renewed(true, now),
        // A session does not end in the middle of a visit.
        Some(token) if token.age(now) > lifetime / 2 => token.renewed(token.is_known, now),
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
    let Classification { class, evidence, .. } = &known.classified.classification;
    let class = &known.rules()[*class];
    let may_come_back = journal.verdict.refusal().is_some_and(|refusal| class.asks_back(refusal.reason, evidence));
    // Two people behind one address rarely ask for the same page in one minute.
    let client = || {
        let hasher = &known.worker().shared().credential_hasher;
        hasher.hash_one((known.address_key().to_u64(), bearer, known.request.path()))
    };
    // A client whose network changes with each request was asked a moment ago, too.
    let was_asked = || known.request.session_cookies.iter().any(|value| SessionToken::was_just_issued(value, now));
    let comes_back = known.config.settings.sessions.as_ref()?.enforce
        && may_come_back
        && !was_asked()
        && known.worker().shared().returns.admit(client(), now.seconds() as u32);
    Some(RefusedSession { cookie, comes_back })
}

/// Returns true for a navigation of what may be a browser. Declared bots, assets, requests of programs and signed agents get
/// no cookie.
pub(in crate::gateway) fn may_begin(kind: ClientKind, is_signed: bool, head: &RequestHead) -> bool {
    kind.may_have_session() && !is_signed && is_navigation(head)
}

fn is_navigation(head: &RequestHead) -> bool {
    let is_absent_or = |name, word: &[u8]| head.fields.get(name).is_none_or(|value| value == word);
    head.method == http::Method::GET
        && is_absent_or(Name::SecFetchDest, b"document")
        && is_absent_or(Name::SecFetchMode, b"navigate")
        // A page that is fetched ahead is not seen.
        && head.fields.get_all_by_text("sec-purpose").next().is_none()
        && ResponseFormat::from_head(head).prefers_html
}

fn is_of_person(known: &Known) -> bool {
    known.client.observation.is_some_and(|observation| observation.is_of_person(&known.config.admission))
}

fn is_html(fields: &Fields) -> bool {
    let media_type = fields.get(Name::ContentType).unwrap_or_default().split(|&byte| byte == b';').next();
    media_type.is_some_and(|media_type| media_type.trim_ascii().eq_ignore_ascii_case(b"text/html"))
}

/// Fields that tell shared caches alone what to keep: RFC 9213, and the forms of vendors before it.
const TARGETED_FIELDS: [&str; 5] =
    ["cdn-cache-control", "surrogate-control", "cloudflare-cdn-cache-control", "edge-control", "x-accel-expires"];

/// Returns true if caches that several clients share may keep the response, by RFC 9111 section 3 or by its age alone: one of
/// them would give all of its clients the same cookie.
fn is_for_shared_caches(fields: &Fields) -> bool {
    let has = |name| fields.get_all_by_text(name).next().is_some();
    if TARGETED_FIELDS.into_iter().any(has) {
        return true;
    }
    let mut may_be_kept = has("expires") || has("last-modified");
    for directive in fields.all(Name::CacheControl).flat_map(list) {
        match directive.to_ascii_lowercase().as_slice() {
            b"private" | b"no-store" => return false,
            // With a list of fields, they hold for these alone.
            b"public" | b"no-cache" => may_be_kept = true,
            directive if directive.starts_with(b"s-maxage") => may_be_kept = true,
            directive if directive.starts_with(b"max-age") => may_be_kept |= !directive.ends_with(b"=0"),
            _ => {}
        }
    }
    may_be_kept
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
            (&["__Host-tidegate=one; tidegate=two; c=3"], Some("one two"), &["c=3"]),
            (&["tidegate =abc; tidegate=; c"], Some("abc "), &["c"]),
            (&["tidegate=1; tidegate=2; tidegate=3; tidegate=4; tidegate=5"], Some("1 2 3 4"), &[]),
            (
                &["my__Host-tidegate=1; tidegates=2; x=tidegate"],
                None,
                &["my__Host-tidegate=1; tidegates=2; x=tidegate"],
            ),
            (&["a=1"], None, &["a=1"]),
        ] {
            let mut fields: Fields = lines.iter().map(|line| ("cookie", *line)).collect();
            let taken = take_session_cookies(&sessions, &mut fields).join(&b' ');
            assert_eq!(taken, value.unwrap_or_default().as_bytes(), "{lines:?}");
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
            ("private=\"X-Foo\", max-age=600", true),
            ("no-cache=\"Set-Cookie\", max-age=600", true),
            ("no-cache", true),
            ("no-store, no-cache, must-revalidate", false),
        ] {
            let fields: Fields = [("cache-control", value)].into_iter().collect();
            assert_eq!(is_for_shared_caches(&fields), is_shared, "{value}");
        }
        for (name, is_shared) in
            [("Last-Modified", true), ("Expires", true), ("X-Accel-Expires", true), ("ETag", false)]
        {
            assert_eq!(is_for_shared_caches(&[(name, "x")].into_iter().collect()), is_shared, "{name}");
        }
        let targeted = [("cache-control", "private"), ("CDN-Cache-Control", "public, max-age=600")];
        assert!(is_for_shared_caches(&targeted.into_iter().collect()));
    }
}
