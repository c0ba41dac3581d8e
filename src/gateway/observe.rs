//! What behaviour gets to see of a request, read from its head.

use super::target::Target;
use crate::engine::Look;
use crate::http1::{Name, RequestHead, list};
use crate::policy::Rules;
use crate::policy::bot_detection::{Browser, Referer, Seen};
use crate::policy::identity::Origin;
use http::Version;
use std::net::IpAddr;

/// All that there is to see of a request that `client` sends, with the headers that were `seen`.
pub(super) fn look<'a>(
    head: &'a RequestHead,
    target: &'a Target<'_>,
    (client, browser): (IpAddr, Browser),
    seen: Seen,
) -> Look<'a> {
    Look {
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
pub(super) fn seen(head: &RequestHead, rules: &Rules, origin: &Origin, peer: IpAddr) -> Seen {
    let is = |name| head.fields.contains(name);
    let through_proxy = rules.trust.believes(peer);
    let proto = || head.fields.all(Name::ForwardedProto).flat_map(list).last();
    let secure = through_proxy && proto().is_some_and(|proto| proto.eq_ignore_ascii_case(b"https"));
    // What a proxy speaks to us says nothing of what the client spoke to it.
    let old_http = head.version == Version::HTTP_10 && !through_proxy && origin.client == peer;
    Seen::LOOKED
        .and(Seen::ACCEPT, is(Name::Accept))
        .and(Seen::ENCODING, is(Name::AcceptEncoding))
        .and(Seen::LANGUAGE, is(Name::AcceptLanguage))
        .and(Seen::REFERER, is(Name::Referer))
        .and(Seen::HINTS, is(Name::SecChUa))
        .and(Seen::FETCH, is(Name::SecFetchMode))
        .and(Seen::UPGRADE, is(Name::UpgradeInsecureRequests))
        .and(Seen::USER_AGENT, is(Name::UserAgent))
        .and(Seen::SECURE, secure)
        .and(Seen::OLD_HTTP, old_http)
}
