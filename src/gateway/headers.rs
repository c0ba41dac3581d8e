//! Which header fields pass, which stay behind, which are ours (RFC 9110 section 7.6).

use http::header::{self, Entry};
use http::{HeaderMap, HeaderName, HeaderValue};

pub(super) const CLASS: HeaderName = HeaderName::from_static("x-tidegate-class");
pub(super) const OPERATOR: HeaderName = HeaderName::from_static("x-tidegate-operator");
pub(super) const DECISION: HeaderName = HeaderName::from_static("x-tidegate-decision");
pub(super) const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(super) const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(super) const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// What concerns only the connection it arrived on, and goes no further.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
];

/// What a client could only forge: the gate says it, or nobody.
const OURS: [HeaderName; 3] = [CLASS, OPERATOR, DECISION];

/// How an address came here, as others tell it; believed from trusted proxies only.
const FORWARDING: [HeaderName; 6] = [
    FORWARDED_FOR,
    FORWARDED_PROTO,
    FORWARDED_HOST,
    header::FORWARDED,
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("x-forwarded-port"),
];

/// What `Connection` may not take away, whoever lists it there.
fn is_protected(name: &HeaderName) -> bool {
    matches!(
        *name,
        header::HOST | header::CONTENT_LENGTH | header::AUTHORIZATION | header::COOKIE | header::CACHE_CONTROL | header::VIA
    ) || FORWARDING.contains(name)
        || OURS.contains(name)
}

/// Takes away what goes no further, in either direction. `TE: trailers` stays, because trailers are passed on.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if !headers.keys().any(|name| HOP_BY_HOP.contains(name)) {
        return;
    }
    let listed: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .filter(|name| !is_protected(name))
        .collect();
    let trailers = headers.get_all(header::TE).iter().any(|value| {
        let codings = value.as_bytes().split(|&byte| byte == b',');
        codings.into_iter().any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
    });
    for name in listed.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Takes away copies of our own fields, and of the forwarding fields where they are not believed.
pub(super) fn strip_claims(headers: &mut HeaderMap, believed: bool) {
    let must_go = |name: &HeaderName| {
        OURS.contains(name) || *name == header::EXPECT || (!believed && FORWARDING.contains(name))
    };
    let going: smallvec::SmallVec<[HeaderName; 4]> = headers.keys().filter(|name| must_go(name)).cloned().collect();
    for name in going {
        headers.remove(name);
    }
}

/// HTTP/2 may split a cookie into several fields; HTTP/1.1 knows only one (RFC 9113 section 8.2.3).
pub(super) fn join_cookies(headers: &mut HeaderMap) {
    let Entry::Occupied(cookies) = headers.entry(header::COOKIE) else { return };
    if cookies.iter().nth(1).is_none() {
        return;
    }
    let crumbs: Vec<&[u8]> = cookies.iter().map(HeaderValue::as_bytes).collect();
    if let Ok(joined) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])) {
        headers.insert(header::COOKIE, joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn what_connection_lists_goes_no_further() {
        let mut fields = headers(&[("connection", "close, x-hop"), ("x-hop", "1"), ("keep-alive", "5"), ("accept", "*/*")]);
        strip_hop_by_hop(&mut fields);
        assert_eq!(fields, headers(&[("accept", "*/*")]));
    }

    #[test]
    fn connection_cannot_take_away_what_others_rely_on() {
        let mut fields = headers(&[("connection", "x-forwarded-for, host, x-tidegate-class"), ("host", "a")]);
        fields.insert(FORWARDED_FOR, HeaderValue::from_static("192.0.2.1"));
        strip_hop_by_hop(&mut fields);
        assert_eq!(fields, headers(&[("host", "a"), ("x-forwarded-for", "192.0.2.1")]));
    }

    #[test]
    fn te_keeps_nothing_but_trailers() {
        let mut fields = headers(&[("te", "gzip, trailers")]);
        strip_hop_by_hop(&mut fields);
        assert_eq!(fields, headers(&[("te", "trailers")]));
    }

    #[test]
    fn our_own_fields_are_never_taken_from_a_client() {
        let forged = [("x-tidegate-class", "person"), ("x-tidegate-operator", "googlebot"), ("x-forwarded-for", "1.2.3.4")];
        let mut fields = headers(&forged);
        strip_claims(&mut fields, true);
        assert_eq!(fields, headers(&[("x-forwarded-for", "1.2.3.4")]), "a trusted proxy's chain stays");
        strip_claims(&mut fields, false);
        assert!(fields.is_empty());
    }

    #[test]
    fn cookie_crumbs_become_one_cookie() {
        let mut fields = headers(&[("cookie", "a=1"), ("cookie", "b=2")]);
        join_cookies(&mut fields);
        assert_eq!(fields, headers(&[("cookie", "a=1; b=2")]));
    }
}
