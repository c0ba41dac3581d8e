//! Extracts from the head of a request what bot detection observes.

use super::target::ClientRequest;
use http::Version;
use std::net::IpAddr;
use tidegate_engine::ObservedRequest;
use tidegate_http1::{Name, RequestHead, list};
use tidegate_policy::Rules;
use tidegate_policy::bot_detection::{BrowserTraits, HeadersSeen, Referer};
use tidegate_policy::identity::ClientAddress;

/// Returns the observation of a request that `client` sends, with its `seen` headers.
pub(super) fn observed_request<'a>(
    request: &'a ClientRequest,
    (client, browser): (IpAddr, BrowserTraits),
    seen: HeadersSeen,
) -> ObservedRequest<'a> {
    let head = &request.head;
    ObservedRequest {
        method: &head.method,
        path: request.path(),
        query: request.query(),
        client,
        user_agent: head.fields.get(Name::UserAgent).unwrap_or_default(),
        browser,
        referer: Referer::from_header(head.fields.get(Name::Referer), request.host()),
        headers: seen,
    }
}

/// Returns which headers are present and how the request arrived. `peer` is the address of the connection.
pub(super) fn headers_seen(head: &RequestHead, rules: &Rules, address: &ClientAddress, peer: IpAddr) -> HeadersSeen {
    let has = |name| head.fields.contains(name);
    let through_proxy = rules.trust.trusts(peer);
    let proto = || head.fields.all(Name::ForwardedProto).flat_map(list).last();
    let secure = through_proxy && proto().is_some_and(|proto| proto.eq_ignore_ascii_case(b"https"));
    // The HTTP version of a proxy does not show that of the client.
    let old_http = head.version == Version::HTTP_10 && !through_proxy && address.client == peer;
    HeadersSeen::INSPECTED
        .with(HeadersSeen::ACCEPT, has(Name::Accept))
        .with(HeadersSeen::ENCODING, has(Name::AcceptEncoding))
        .with(HeadersSeen::LANGUAGE, has(Name::AcceptLanguage))
        .with(HeadersSeen::REFERER, has(Name::Referer))
        .with(HeadersSeen::HINTS, has(Name::SecChUa))
        .with(HeadersSeen::FETCH, has(Name::SecFetchMode))
        .with(HeadersSeen::UPGRADE, has(Name::UpgradeInsecureRequests))
        .with(HeadersSeen::USER_AGENT, has(Name::UserAgent))
        .with(HeadersSeen::TLS, secure)
        .with(HeadersSeen::HTTP_10, old_http)
}
