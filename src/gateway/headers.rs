//! Which header fields pass, which stay behind, which are ours (RFC 9110 section 7.6).

use crate::http1::{Fields, Name, list};

/// What concerns only the connection it arrived on, and goes no further.
fn is_hop_by_hop(name: Name) -> bool {
    matches!(
        name,
        Name::Connection
            | Name::KeepAlive
            | Name::ProxyConnection
            | Name::Te
            | Name::TransferEncoding
            | Name::Upgrade
            | Name::ProxyAuthenticate
            | Name::ProxyAuthorization
    )
}

/// What a client could only forge: the gate says it, or nobody.
fn is_ours(name: Name) -> bool {
    matches!(name, Name::Class | Name::Operator | Name::Decision)
}

/// How an address came here, as others tell it; believed from trusted proxies only.
fn is_forwarding(name: Name) -> bool {
    matches!(
        name,
        Name::ForwardedFor
            | Name::ForwardedProto
            | Name::ForwardedHost
            | Name::Forwarded
            | Name::RealIp
            | Name::ForwardedPort
    )
}

/// What `Connection` may not take away, whoever lists it there.
fn is_protected(name: Name) -> bool {
    is_ours(name)
        || is_forwarding(name)
        || matches!(
            name,
            Name::Host
                | Name::ContentLength
                | Name::Authorization
                | Name::Cookie
                | Name::CacheControl
                | Name::UserAgent
                | Name::Via
        )
}

/// Takes away what goes no further, in either direction. `TE: trailers` stays, because trailers are passed on.
pub(super) fn strip_hop_by_hop(fields: &mut Fields) {
    if !fields.names().any(is_hop_by_hop) {
        return;
    }
    let goes_anyway = |name: &[u8]| is_hop_by_hop(Name::of(name)) || name.eq_ignore_ascii_case(b"close");
    let listed: Vec<Vec<u8>> = fields
        .all(Name::Connection)
        .flat_map(list)
        .filter(|name| !goes_anyway(name) && !is_protected(Name::of(name)))
        .map(<[u8]>::to_vec)
        .collect();
    let trailers = fields.all(Name::Te).flat_map(list).any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
    fields
        .retain(|field| !is_hop_by_hop(field.name) && !listed.iter().any(|name| name.eq_ignore_ascii_case(field.text)));
    if trailers {
        fields.append(Name::Te, b"trailers");
    }
}

/// Takes away copies of our own fields, and of the forwarding fields where they are not believed.
pub(super) fn strip_claims(fields: &mut Fields, believed: bool) {
    let must_go = |name| is_ours(name) || name == Name::Expect || (!believed && is_forwarding(name));
    if fields.names().any(must_go) {
        fields.retain(|field| !must_go(field.name));
    }
}

/// HTTP/2 may split a cookie into several fields; HTTP/1.1 knows only one (RFC 9113 section 8.2.3).
pub(super) fn join_cookies(fields: &mut Fields) {
    if fields.all(Name::Cookie).nth(1).is_some() {
        let crumbs: Vec<&[u8]> = fields.all(Name::Cookie).collect();
        let joined = crumbs.join(&b"; "[..]);
        fields.insert(Name::Cookie, &joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(given: &[(&'static str, &'static str)]) -> Fields {
        given.iter().copied().collect()
    }

    #[test]
    fn what_connection_lists_goes_no_further() {
        let mut found =
            fields(&[("Connection", "close, X-Hop"), ("x-hop", "1"), ("Keep-Alive", "5"), ("accept", "*/*")]);
        strip_hop_by_hop(&mut found);
        assert_eq!(found, fields(&[("accept", "*/*")]));
    }

    #[test]
    fn connection_cannot_take_away_what_others_rely_on() {
        let kept = [("host", "a"), ("user-agent", "b"), ("x-forwarded-for", "192.0.2.1")];
        let listing = ("connection", "x-forwarded-for, host, user-agent, x-tidegate-class");
        let mut found: Fields = [listing].into_iter().chain(kept).collect();
        strip_hop_by_hop(&mut found);
        assert_eq!(found, fields(&kept));
    }

    #[test]
    fn te_keeps_nothing_but_trailers() {
        let mut found = fields(&[("te", "gzip, trailers")]);
        strip_hop_by_hop(&mut found);
        assert_eq!(found, fields(&[("te", "trailers")]));
    }

    #[test]
    fn our_own_fields_are_never_taken_from_a_client() {
        let forged =
            [("x-tidegate-class", "person"), ("X-Tidegate-Operator", "googlebot"), ("x-forwarded-for", "1.2.3.4")];
        let mut found = fields(&forged);
        strip_claims(&mut found, true);
        assert_eq!(found, fields(&[("x-forwarded-for", "1.2.3.4")]), "a trusted proxy's chain stays");
        strip_claims(&mut found, false);
        assert!(found.is_empty());
    }

    #[test]
    fn cookie_crumbs_become_one_cookie() {
        let mut found = fields(&[("cookie", "a=1"), ("cookie", "b=2")]);
        join_cookies(&mut found);
        assert_eq!(found, fields(&[("cookie", "a=1; b=2")]));
    }
}
