//! Rules for header fields: which are forwarded, removed, or reserved for the gateway (RFC 9110 section 7.6).

use memchr::memmem::Finder;
use std::sync::LazyLock;
use tidegate_crawlers::verify::api_key::KEY_HEADERS;
use tidegate_http1::{Field, Fields, Name, NameSet, list};
use tidegate_policy::admin_session::COOKIE_PREFIX;
use tidegate_policy::identity::AddressSource;
use tidegate_policy::request_fields::eq_as_cgi;
use tidegate_traces::TraceContext;

/// Field of the trace context, and of what vendors add to it (W3C Trace Context, sections 3.2 and 3.3).
pub(in crate::gateway) const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// Prefix of the gateway's own field names.
const RESERVED_PREFIX: &[u8] = b"x-tidegate-";

/// Fields that concern one connection only and are not forwarded.
const HOP_BY_HOP: NameSet = NameSet::of(&[
    Name::Connection,
    Name::KeepAlive,
    Name::ProxyConnection,
    Name::Te,
    Name::TransferEncoding,
    Name::Upgrade,
    Name::ProxyAuthenticate,
    Name::ProxyAuthorization,
]);

/// Fields that only the gateway may set; from a client they are forged.
const RESERVED: NameSet = NameSet::of(&[Name::Class, Name::Operator, Name::Decision]);

/// Common fields that carry the client's address.
const ADDRESS: NameSet = NameSet::of(&[Name::ForwardedFor, Name::Forwarded, Name::RealIp]);

/// Fields of vendors that carry the client's address: a claim if the settings name them, ordinary fields otherwise.
const VENDOR_ADDRESS: NameSet = NameSet::of(&[Name::CfConnectingIp, Name::TrueClientIp]);

/// All fields that carry the client's address.
pub(in crate::gateway) const CLIENT_ADDRESS: NameSet = ADDRESS.union(VENDOR_ADDRESS);

/// Fields that describe the path of a request; trusted from trusted proxies only.
pub(in crate::gateway) const FORWARDING: NameSet =
    ADDRESS.union(NameSet::of(&[Name::ForwardedProto, Name::ForwardedHost, Name::ForwardedPort]));

/// Fields that `Connection` cannot remove.
const PROTECTED: NameSet = RESERVED.union(FORWARDING).union(NameSet::of(&[
    Name::Host,
    Name::ContentLength,
    Name::Authorization,
    Name::Cookie,
    Name::CacheControl,
    Name::UserAgent,
    Name::Via,
]));

/// Fields that may be a claim under some settings.
const MAYBE_UNTRUSTED: NameSet =
    RESERVED.union(FORWARDING).union(VENDOR_ADDRESS).union(NameSet::of(&[Name::Expect, Name::Other]));

/// Names that no trailer may have.
const FORBIDDEN_TRAILERS: NameSet = RESERVED.union(FORWARDING).union(HOP_BY_HOP).union(NameSet::of(&[
    Name::Host,
    Name::Via,
    Name::Expect,
    Name::ContentLength,
    // Who asks, and for what (RFC 9110 section 6.5.1).
    Name::Authorization,
    Name::Cookie,
    Name::UserAgent,
    Name::Referer,
    Name::Range,
    Name::IfNoneMatch,
    Name::IfModifiedSince,
]));

/// Iterates over the fields of a request that the origin is sent of it, as pairs of name and value: without those that `Connection`
/// lists.
pub(in crate::gateway) fn end_to_end(fields: &Fields) -> impl Iterator<Item = (&[u8], &[u8])> {
    let is_listed = |field: &Field<'_>| {
        let is_same = |name: &[u8]| name.eq_ignore_ascii_case(field.text);
        !PROTECTED.contains(field.name) && fields.all(Name::Connection).flat_map(list).any(is_same)
    };
    let has_list = fields.contains(Name::Connection);
    fields.iter().filter(move |field| !(has_list && is_listed(field))).map(|field| (field.text, field.value))
}

/// Removes hop-by-hop fields, in either direction. `TE: trailers` stays, because trailers are forwarded.
pub(in crate::gateway) fn strip_hop_by_hop(fields: &mut Fields) {
    if !fields.contains_any(HOP_BY_HOP) {
        return;
    }
    drop_listed_trailers(fields);
    let is_removed_anyway =
        |name: &[u8]| HOP_BY_HOP.contains(Name::from_bytes(name)) || name.eq_ignore_ascii_case(b"close");
    let listed: Vec<Vec<u8>> = fields
        .all(Name::Connection)
        .flat_map(list)
        .filter(|name| !is_removed_anyway(name) && !PROTECTED.contains(Name::from_bytes(name)))
        .map(<[u8]>::to_vec)
        .collect();
    let trailers = fields.all(Name::Te).flat_map(list).any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
    fields.remove_any(HOP_BY_HOP);
    if !listed.is_empty() {
        fields.retain(|field| !listed.iter().any(|name| name.eq_ignore_ascii_case(field.text)));
    }
    if trailers {
        fields.append(Name::Te, b"trailers");
    }
}

/// Removes what is not for clients from a response of the origin: connection-specific fields, and the gateway's own.
pub(in crate::gateway) fn strip_response(fields: &mut Fields) {
    strip_hop_by_hop(fields);
    fields.remove_any(RESERVED);
}

/// Removes from `Trailer` the names that `Connection` lists.
fn drop_listed_trailers(fields: &mut Fields) {
    if fields.contains(Name::Trailer) {
        let listed: Vec<Vec<u8>> = fields.all(Name::Connection).flat_map(list).map(<[u8]>::to_vec).collect();
        retain_trailers(fields, |trailer| !listed.iter().any(|name| name.eq_ignore_ascii_case(trailer)));
    }
}

/// Removes what a client could forge: copies of the gateway's own fields, and untrusted forwarding fields. `trusted`
/// means that the peer is a trusted proxy. Of the address headers it is trusted for `source` only, because it may
/// forward others as a client sent them.
///
/// CGI, WSGI and others treat `_` as `-`, some any character other than letters and digits. Fields spelled so are always
/// removed: no proxy sends them.
pub(in crate::gateway) fn strip_untrusted(fields: &mut Fields, source: &AddressSource, trusted: bool) {
    let should_remove = |field: Field<'_>| is_untrusted(field, source, trusted);
    if fields.with_names(MAYBE_UNTRUSTED).any(should_remove) {
        fields.retain(|field| !should_remove(field));
    }
    retain_trailers(fields, is_allowed_trailer);
}

fn is_untrusted(field: Field<'_>, source: &AddressSource, trusted: bool) -> bool {
    match field.name {
        Name::Other => {
            is_reserved_or_forwarding_variant(field.text) || is_untrusted_vendor_header(field.text, source, trusted)
        }
        Name::Expect => true,
        name if VENDOR_ADDRESS.contains(name) => is_untrusted_vendor_header(field.text, source, trusted),
        name if ADDRESS.contains(name) => !(trusted && source.header() == Some(name.text())),
        name => RESERVED.contains(name) || (!trusted && FORWARDING.contains(name)),
    }
}

/// Returns true for a name without a number that an origin may read as the gateway's own or as a forwarding field. All
/// of these begin with an x, so that other names cost one comparison.
fn is_reserved_or_forwarding_variant(text: &[u8]) -> bool {
    matches!(text.first(), Some(b'x' | b'X'))
        && (text.get(..RESERVED_PREFIX.len()).is_some_and(|start| eq_as_cgi(start, RESERVED_PREFIX))
            || FORWARDING.contains(Name::from_cgi_bytes(text)))
}

/// Returns true for a vendor's address header that is untrusted, or not spelled as configured.
fn is_untrusted_vendor_header(text: &[u8], source: &AddressSource, trusted: bool) -> bool {
    let AddressSource::Header(name) = source else { return false };
    let name = name.as_str().as_bytes();
    eq_as_cgi(text, name) && !(trusted && text.eq_ignore_ascii_case(name))
}

/// Returns true for a trailer that an origin can safely merge into the head. http1 removes trailers that change the
/// framing, in their usual spelling.
fn is_allowed_trailer(name: &[u8]) -> bool {
    !FORBIDDEN_TRAILERS.contains(Name::from_cgi_bytes(name))
        && !is_reserved_or_forwarding_variant(name)
        && !KEY_HEADERS.iter().any(|header| eq_as_cgi(name, header.as_bytes()))
}

/// Removes from `Trailer` the names that `keep` rejects: trailers that are not announced are not forwarded.
pub(in crate::gateway) fn retain_trailers(fields: &mut Fields, keep: impl Fn(&[u8]) -> bool) {
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

/// Writes the trace context for the origin. What vendors have added to the sender's context goes on with it, and with no other.
pub(in crate::gateway) fn write_trace(fields: &mut Fields, trace: &TraceContext) {
    let is_kept = |text: &[u8]| {
        !text.eq_ignore_ascii_case(TRACEPARENT.as_bytes())
            && (trace.parent_span_id.is_some() || !text.eq_ignore_ascii_case(TRACESTATE.as_bytes()))
    };
    if !fields.with_names(NameSet::of(&[Name::Other])).all(|field| is_kept(field.text)) {
        fields.retain(|field| is_kept(field.text));
    }
    let mut traceparent = String::with_capacity(TRACEPARENT_LEN);
    if trace.write_traceparent(&mut traceparent).is_ok() {
        fields.append_text(TRACEPARENT, traceparent.as_bytes());
    }
}

/// Length of a value of `traceparent`.
const TRACEPARENT_LEN: usize = 55;

/// Removes sessions of the live page: a browser sends its cookies to every port of a host.
pub(in crate::gateway) fn strip_admin_sessions(fields: &mut Fields) {
    // Building the searcher takes longer than a search.
    static SESSION: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(COOKIE_PREFIX));
    if fields.all(Name::Cookie).any(|cookies| SESSION.find(cookies).is_some()) {
        take_cookies(fields, |cookie| cookie.starts_with(COOKIE_PREFIX.as_bytes()));
    }
}

/// Removes the cookies, as `name=value`, for which `is_taken` returns true.
pub(in crate::gateway) fn take_cookies(fields: &mut Fields, mut is_taken: impl FnMut(&[u8]) -> bool) {
    let cookies = fields.all(Name::Cookie).flat_map(|cookies| cookies.split(|&byte| byte == b';'));
    let (mut kept, mut has_taken) = (Vec::new(), false);
    for cookie in cookies.map(<[u8]>::trim_ascii) {
        match is_taken(cookie) {
            true => has_taken = true,
            false => kept.push(cookie),
        }
    }
    if !has_taken {
        return;
    }
    let kept = kept.join(&b"; "[..]);
    fields.remove(Name::Cookie);
    if !kept.is_empty() {
        fields.append(Name::Cookie, &kept);
    }
}

/// Joins cookie fields: HTTP/2 may split a cookie into several fields, HTTP/1.1 allows only one (RFC 9113 section
/// 8.2.3). Of several, origins read the first one alone, or join them by a comma.
pub(in crate::gateway) fn join_cookies(fields: &mut Fields) {
    if fields.all(Name::Cookie).nth(1).is_some() {
        let cookies: Vec<&[u8]> = fields.all(Name::Cookie).collect();
        let joined = cookies.join(&b"; "[..]);
        fields.insert(Name::Cookie, &joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&'static str, &'static str)]) -> Fields {
        pairs.iter().copied().collect()
    }

    #[test]
    fn connection_listed_fields_are_removed() {
        let mut headers =
            fields(&[("Connection", "close, X-Hop"), ("x-hop", "1"), ("Keep-Alive", "5"), ("accept", "*/*")]);
        strip_hop_by_hop(&mut headers);
        assert_eq!(headers, fields(&[("accept", "*/*")]));
    }

    #[test]
    fn connection_cannot_remove_protected_fields() {
        let kept = [("host", "a"), ("user-agent", "b"), ("x-forwarded-for", "192.0.2.1")];
        let listing = ("connection", "x-forwarded-for, host, user-agent, x-tidegate-class");
        let mut headers: Fields = [listing].into_iter().chain(kept).collect();
        strip_hop_by_hop(&mut headers);
        assert_eq!(headers, fields(&kept));
    }

    #[test]
    fn te_keeps_only_trailers() {
        let mut headers = fields(&[("te", "gzip, trailers")]);
        strip_hop_by_hop(&mut headers);
        assert_eq!(headers, fields(&[("te", "trailers")]));
    }

    #[test]
    fn reserved_fields_from_clients_are_removed() {
        let forged =
            [("x-tidegate-class", "person"), ("X-Tidegate-Operator", "googlebot"), ("x-forwarded-for", "1.2.3.4")];
        let mut headers = fields(&forged);
        strip_untrusted(&mut headers, &AddressSource::XForwardedFor, true);
        assert_eq!(headers, fields(&[("x-forwarded-for", "1.2.3.4")]), "a trusted proxy's chain stays");
        strip_untrusted(&mut headers, &AddressSource::XForwardedFor, false);
        assert!(headers.is_empty());
    }

    #[test]
    fn variants_of_reserved_fields_are_removed() {
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
            "X.Tidegate.Class",
            "x!tidegate~new",
            "X.Forwarded-For",
            "X-Real'IP",
            "cf.connecting.ip",
        ];
        let source = AddressSource::Header(http::HeaderName::from_static("cf-connecting-ip"));
        for (name, trusted) in forged.into_iter().flat_map(|name| [(name, true), (name, false)]) {
            let mut headers =
                fields(&[(name, "1"), ("x_api_key", "2"), ("x-tide", "3"), ("x-tidegates-a", "4"), ("accept", "*/*")]);
            strip_untrusted(&mut headers, &source, trusted);
            let kept = [("x_api_key", "2"), ("x-tide", "3"), ("x-tidegates-a", "4"), ("accept", "*/*")];
            assert_eq!(headers, fields(&kept), "{name}");
        }
    }

    #[test]
    fn trusted_proxy_keeps_only_the_configured_family() {
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
            let mut headers: Fields = all.iter().map(|name| (*name, "1")).collect();
            strip_untrusted(&mut headers, &source, true);
            assert_eq!(headers, kept.iter().map(|index| (all[*index], "1")).collect(), "{source:?}");
        }
        let vendor = AddressSource::Header(http::HeaderName::from_static("cf-connecting-ip"));
        let mut headers = fields(&[("CF-Connecting-IP", "1")]);
        strip_untrusted(&mut headers, &vendor, false);
        assert!(headers.is_empty());
    }

    #[test]
    fn announced_trailers_exclude_reserved_and_hop_fields() {
        let announced = "X-Sum, X_Tidegate_Operator, X-Forwarded-For, X.Real.IP, forwarded, Host, via, Expect, Content_Length, \
                         transfer-encoding, keep-alive, X-Hop, x_real_ip, Digest";
        let mut headers = fields(&[("connection", "x-hop, digest"), ("trailer", announced)]);
        strip_hop_by_hop(&mut headers);
        strip_untrusted(&mut headers, &AddressSource::XForwardedFor, true);
        assert_eq!(headers, fields(&[("trailer", "X-Sum")]));
        let mut headers = fields(&[("trailer", "x-forwarded-for")]);
        strip_untrusted(&mut headers, &AddressSource::XForwardedFor, true);
        assert!(headers.is_empty());
    }

    #[test]
    fn sessions_of_the_live_page_do_not_reach_the_origin() {
        for (sent, forwarded) in [
            (&["a=1; tidegate_session_9090=00; b=2"][..], &["a=1; b=2"][..]),
            (&["tidegate_session=00"], &[]),
            (&["a=1;tidegate_session_1=", "b=\"2; 3\""], &["a=1; b=\"2; 3\""]),
            (&["a=1;b=tidegate_session"], &["a=1;b=tidegate_session"]),
            (&["a=1;b=2", "c=3"], &["a=1;b=2", "c=3"]),
        ] {
            let cookies = |values: &[&'static str]| values.iter().map(|value| ("cookie", *value)).collect::<Fields>();
            let mut headers = cookies(sent);
            strip_admin_sessions(&mut headers);
            assert_eq!(headers, cookies(forwarded), "{sent:?}");
        }
    }

    #[test]
    fn split_cookie_fields_are_joined() {
        let mut headers = fields(&[("cookie", "a=1"), ("cookie", "b=2")]);
        join_cookies(&mut headers);
        assert_eq!(headers, fields(&[("cookie", "a=1; b=2")]));
    }
}
