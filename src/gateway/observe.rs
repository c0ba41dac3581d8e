//! What behaviour gets to see of a request, read from its head.

use super::target::Target;
use crate::engine::ObservedRequest;
use crate::http1::{Name, RequestHead, list};
use crate::policy::Rules;
use crate::policy::bot_detection::{BrowserTraits, HeadersSeen, Referer};
use crate::policy::identity::ClientAddress;
use http::Version;
use std::net::IpAddr;

/// All that there is to see of a request that `client` sends, with the headers that were `seen`.
pub(super) fn observed_request<'a>(
    head: &'a RequestHead,
    target: &'a Target<'_>,
    (client, browser): (IpAddr, BrowserTraits),
    seen: HeadersSeen,
) -> ObservedRequest<'a> {
    ObservedRequest {
        method: &head.method,
        path: &target.path,
        query: target.query,
        client,
        user_agent: head.fields.get(Name::UserAgent).unwrap_or_default(),
        browser,
        referer: Referer::of(head.fields.get(Name::Referer), &target.host),
        seen,
    }
}

/// Which headers were there, and how the request came. `peer` is who connected.
pub(super) fn headers_seen(head: &RequestHead, rules: &Rules, origin: &ClientAddress, peer: IpAddr) -> HeadersSeen {
    let is = |name| head.fields.contains(name);
    let through_proxy = rules.trust.trusts(peer);
    let proto = || head.fields.all(Name::ForwardedProto).flat_map(list).last();
    let secure = through_proxy && proto().is_some_and(|proto| proto.eq_ignore_ascii_case(b"https"));
    // What a proxy speaks to us says nothing of what the client spoke to it.
    let old_http = head.version == Version::HTTP_10 && !through_proxy && origin.client == peer;
    HeadersSeen::INSPECTED
        .with(HeadersSeen::ACCEPT, is(Name::Accept))
        .with(HeadersSeen::ENCODING, is(Name::AcceptEncoding))
        .with(HeadersSeen::LANGUAGE, is(Name::AcceptLanguage))
        .with(HeadersSeen::REFERER, is(Name::Referer))
        .with(HeadersSeen::HINTS, is(Name::SecChUa))
        .with(HeadersSeen::FETCH, is(Name::SecFetchMode))
        .with(HeadersSeen::UPGRADE, is(Name::UpgradeInsecureRequests))
        .with(HeadersSeen::USER_AGENT, is(Name::UserAgent))
        .with(HeadersSeen::TLS, secure)
        .with(HeadersSeen::HTTP_10, old_http)
}
