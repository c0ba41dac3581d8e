//! Which header fields pass, which stay behind, which are ours (RFC 9110 section 7.6).

use crate::http1::{Field, Fields, Name, list};
use crate::policy::identity::AddressSource;

/// How the names of our own fields begin.
const OURS: &[u8] = b"x-tidegate-";

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

/// What a client could only forge: the gateway says it, or nothing does.
fn is_reserved(name: Name) -> bool {
    matches!(name, Name::Class | Name::Operator | Name::Decision)
}

/// How a request came here, as others tell it; believed from trusted proxies only.
fn is_forwarding(name: Name) -> bool {
    tells_address(name) || matches!(name, Name::ForwardedProto | Name::ForwardedHost | Name::ForwardedPort)
}

/// The common headers that tell the client's address.
fn tells_address(name: Name) -> bool {
    matches!(name, Name::ForwardedFor | Name::Forwarded | Name::RealIp)
}

/// The vendors' headers that tell the client's address: a claim where the settings name them, a field like others elsewhere.
fn is_vendors(name: Name) -> bool {
    matches!(name, Name::CfConnectingIp | Name::TrueClientIp)
}

/// True for the headers that tell the client's address, those of vendors among them.
pub(super) fn may_tell_address(name: Name) -> bool {
    tells_address(name) || is_vendors(name)
}

/// What `Connection` may not take away, whoever lists it there.
fn is_protected(name: Name) -> bool {
    is_reserved(name)
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
    drop_listed_trailers(fields);
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

/// Takes the names that `Connection` lists out of `Trailer`.
fn drop_listed_trailers(fields: &mut Fields) {
    if fields.contains(Name::Trailer) {
        let listed: Vec<Vec<u8>> = fields.all(Name::Connection).flat_map(list).map(<[u8]>::to_vec).collect();
        keep_trailers(fields, |trailer| !listed.iter().any(|name| name.eq_ignore_ascii_case(trailer)));
    }
}

/// Takes away what a client could only forge: copies of our own fields, and forwarding fields that are not believed. Where
/// `believed`, the peer is a trusted proxy: of the families that tell an address it vouches for `source` alone, as it may
/// pass the others on as a client sent them.
///
/// CGI, WSGI and others take `_` for `-`. So spelled, these fields always go: no proxy sends them.
pub(super) fn strip_untrusted(fields: &mut Fields, source: &AddressSource, believed: bool) {
    let must_go = |field: Field<'_>| is_claim(field, source, believed);
    if fields.with_names(may_be_claim).any(must_go) {
        fields.retain(|field| !must_go(field));
    }
    keep_trailers(fields, may_trail);
}

/// False for the names that are no claim, whatever the settings.
fn may_be_claim(name: Name) -> bool {
    is_reserved(name) || is_forwarding(name) || is_vendors(name) || matches!(name, Name::Expect | Name::Other)
}

fn is_claim(field: Field<'_>, source: &AddressSource, believed: bool) -> bool {
    match field.name {
        Name::Other => spells_ours_or_forwarding(field.text) || claims_vendor_address(field.text, source, believed),
        Name::Expect => true,
        name if is_vendors(name) => claims_vendor_address(field.text, source, believed),
        name if tells_address(name) => !(believed && source.header() == Some(name.text())),
        name => is_reserved(name) || (!believed && is_forwarding(name)),
    }
}

/// True for a name without a number that an origin may read as ours or as a forwarding field. All of these begin with an x,
/// so that other names cost one comparison.
fn spells_ours_or_forwarding(text: &[u8]) -> bool {
    matches!(text.first(), Some(b'x' | b'X'))
        && (text.get(..OURS.len()).is_some_and(|start| is_same_to_cgi(start, OURS))
            || (text.contains(&b'_') && is_forwarding(Name::of_cgi(text))))
}

/// True for a vendor's header that tells an address, where it is not believed or not spelled as it is configured.
fn claims_vendor_address(text: &[u8], source: &AddressSource, believed: bool) -> bool {
    let AddressSource::Header(name) = source else { return false };
    let name = name.as_str().as_bytes();
    is_same_to_cgi(text, name) && !(believed && text.eq_ignore_ascii_case(name))
}

/// True if an origin that takes `_` for `-` reads both names as one.
fn is_same_to_cgi(one: &[u8], other: &[u8]) -> bool {
    let dashed = |byte: &u8| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    one.len() == other.len() && one.iter().map(dashed).eq(other.iter().map(dashed))
}

/// True for a trailer that an origin may merge into the head without harm. http1 keeps what changes the framing away, in its
/// usual spelling.
fn may_trail(name: &[u8]) -> bool {
    let read = Name::of_cgi(name);
    !is_reserved(read)
        && !is_forwarding(read)
        && !is_hop_by_hop(read)
        && !matches!(read, Name::Host | Name::Via | Name::Expect | Name::ContentLength)
        && !spells_ours_or_forwarding(name)
}

/// Takes the names that `keep` does not keep out of `Trailer`: what it does not announce is not passed on.
fn keep_trailers(fields: &mut Fields, keep: impl Fn(&[u8]) -> bool) {
    if !fields.contains(Name::Trailer) || fields.all(Name::Trailer).flat_map(list).all(&keep) {
        return;
    }
    let kept: Vec<&[u8]> = fields.all(Name::Trailer).flat_map(list).filter(|name| keep(name)).collect();
    let kept = kept.join(&b", "[..]);
    fields.remove(Name::Trailer);
    if !kept.is_empty() {
        fields.append(Name::Trailer, &kept);
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
        strip_untrusted(&mut found, &AddressSource::XForwardedFor, true);
        assert_eq!(found, fields(&[("x-forwarded-for", "1.2.3.4")]), "a trusted proxy's chain stays");
        strip_untrusted(&mut found, &AddressSource::XForwardedFor, false);
        assert!(found.is_empty());
    }

    #[test]
    fn underscores_do_not_disguise_a_claim() {
        let forged = [
            "X_Tidegate_Operator",
            "x-tidegate_class",
            "X_TIDEGATE_ANYTHING",
            "X-Tidegate-New",
            "X_Forwarded_For",
            "x-forwarded_proto",
            "X_Real_IP",
            "X_Forwarded-Host",
            "CF_Connecting_IP",
        ];
        let source = AddressSource::Header(http::HeaderName::from_static("cf-connecting-ip"));
        for (name, believed) in forged.into_iter().flat_map(|name| [(name, true), (name, false)]) {
            let mut found = fields(&[(name, "1"), ("x_api_key", "2"), ("x-tide", "3"), ("accept", "*/*")]);
            strip_untrusted(&mut found, &source, believed);
            assert_eq!(found, fields(&[("x_api_key", "2"), ("x-tide", "3"), ("accept", "*/*")]), "{name}");
        }
    }

    #[test]
    fn a_trusted_proxy_vouches_for_the_configured_family_alone() {
        let vendor = AddressSource::Header(http::HeaderName::from_static("cf-connecting-ip"));
        let real_ip = AddressSource::Header(http::HeaderName::from_static("x-real-ip"));
        let all = ["x-forwarded-for", "forwarded", "x-real-ip", "cf-connecting-ip", "x-forwarded-proto"];
        for (source, kept) in [
            (AddressSource::Peer, &[3, 4][..]),
            (AddressSource::XForwardedFor, &[0, 3, 4]),
            (AddressSource::Forwarded, &[1, 3, 4]),
            (real_ip, &[2, 3, 4]),
            (vendor, &[3, 4]),
        ] {
            let mut found: Fields = all.iter().map(|name| (*name, "1")).collect();
            strip_untrusted(&mut found, &source, true);
            assert_eq!(found, kept.iter().map(|place| (all[*place], "1")).collect(), "{source:?}");
        }
        let vendor = AddressSource::Header(http::HeaderName::from_static("cf-connecting-ip"));
        let mut found = fields(&[("CF-Connecting-IP", "1")]);
        strip_untrusted(&mut found, &vendor, false);
        assert!(found.is_empty());
    }

    #[test]
    fn trailers_carry_no_claims_and_nothing_of_the_connection() {
        let announced = "X-Sum, X_Tidegate_Operator, X-Forwarded-For, forwarded, Host, via, Expect, Content_Length, \
                         transfer-encoding, keep-alive, X-Hop, x_real_ip, Digest";
        let mut found = fields(&[("connection", "x-hop, digest"), ("trailer", announced)]);
        strip_hop_by_hop(&mut found);
        strip_untrusted(&mut found, &AddressSource::XForwardedFor, true);
        assert_eq!(found, fields(&[("trailer", "X-Sum")]));
        let mut found = fields(&[("trailer", "x-forwarded-for")]);
        strip_untrusted(&mut found, &AddressSource::XForwardedFor, true);
        assert!(found.is_empty());
    }

    #[test]
    fn cookie_crumbs_become_one_cookie() {
        let mut found = fields(&[("cookie", "a=1"), ("cookie", "b=2")]);
        join_cookies(&mut found);
        assert_eq!(found, fields(&[("cookie", "a=1; b=2")]));
    }
}
