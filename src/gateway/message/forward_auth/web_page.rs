//! Requests of web pages to the listener for other proxies. A browser on the machine of a peer sends them for any page that is
//! open: without these rules, a page could reserve units and name clients.

use super::asked_request::{NAMING_FIELDS, Naming};
use super::endpoint::ProxyEndpoint;
use crate::gateway::message::target;
use std::net::{IpAddr, SocketAddr};
use tidegate_http1::RequestHead;
use tidegate_policy::identity::ProxyTrust;
use tidegate_policy::own_hosts::OwnHosts;
use tidegate_policy::route::normalize_host;
use tidegate_policy::web_page::RequestOrigin;

/// Reason why a request may be that of a web page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::gateway) enum WebPageError {
    /// The browser says so, and no field shows that a proxy asks.
    #[error(
        "requests of web pages are not answered: let the proxy send the address of the client, such as X-Forwarded-For"
    )]
    OtherSite,
    /// The host has the port of the listener, as that of a page whose name leads to this machine (DNS rebinding).
    #[error(
        "Host has the port of this listener: let the proxy send the host of the site, or ask at a loopback address; if the \
         site has this port, list it in hosts"
    )]
    OwnPort,
}

/// Returns an error for a request from `peer` to the listener at `listen` that a web page may have sent.
///
/// A question has the fields of a client: its `Origin` and `Sec-Fetch-Site` are those of the sender only if no field is
/// present that browsers send for no page of another site (Fetch: neither CORS-safelisted nor permitted by a preflight).
pub(in crate::gateway) fn check_no_web_page(
    head: &RequestHead,
    endpoint: ProxyEndpoint<'_>,
    trust: &ProxyTrust,
    peer: IpAddr,
    listen: SocketAddr,
    own_hosts: Option<&OwnHosts>,
) -> Result<(), WebPageError> {
    let first = |name| head.fields.get_all_by_text(name).next();
    let host = target::host(head);
    let request = RequestOrigin { host: Some(host), origin: first("origin"), fetch_site: first("sec-fetch-site") };
    let is_sender = match endpoint {
        ProxyEndpoint::Settle => true,
        ProxyEndpoint::Ask(naming, _) => {
            // A proxy that asks by the request itself sends the host of its client.
            let may_have_port =
                naming == Naming::ByFields && (!peer.is_loopback() || request.has_local_host(listen.ip()));
            let is_own = |hosts: &OwnHosts| hosts.contains(&normalize_host(str::from_utf8(host).unwrap_or_default()));
            if request.port() == Some(listen.port()) && !may_have_port && !own_hosts.is_some_and(is_own) {
                return Err(WebPageError::OwnPort);
            }
            NAMING_FIELDS.into_iter().chain([trust.header_behind_proxy()]).all(|name| first(name).is_none())
        }
    };
    match is_sender && request.is_other_site() {
        true => Err(WebPageError::OtherSite),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::endpoint::endpoint;
    use super::*;
    use http::{Method, Uri, Version};
    use tidegate_http1::{Fields, Name};
    use tidegate_policy::own_hosts::OwnHost;

    const LISTEN: &str = "127.0.0.1:9092";
    const NAMED: (&str, &str) = ("X-Forwarded-Uri", "/item");
    const OTHER_SITE: [(&str, &str); 4] = [
        ("Origin", "https://evil.example"),
        ("Origin", "null"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
    ];

    fn check(peer: &str, path: &str, host: &str, fields: &[(&str, &str)]) -> Result<(), WebPageError> {
        let mut sent = Fields::new();
        sent.append(Name::Host, host.as_bytes());
        fields.iter().for_each(|(name, value)| sent.append_text(name, value.as_bytes()));
        let head =
            RequestHead { method: Method::GET, target: Uri::from_static("/"), version: Version::HTTP_11, fields: sent };
        let (peer, listen) = (peer.parse().expect("an address"), LISTEN.parse().expect("an address"));
        let own_hosts = OwnHosts::new(vec![OwnHost::Name("own.example".to_owned())]);
        check_no_web_page(&head, endpoint(path, "/envoy"), &ProxyTrust::default(), peer, listen, Some(&own_hosts))
    }

    #[test]
    fn pages_of_other_sites_are_rejected() {
        for (path, field) in ["/envoy/item", "/envoy", "/nginx", "/", "/settle"]
            .into_iter()
            .flat_map(|path| OTHER_SITE.map(|field| (path, field)))
        {
            for peer in ["127.0.0.1", "::1", "10.0.0.1"] {
                let found = check(peer, path, "localhost:3000", &[field]);
                assert_eq!(found, Err(WebPageError::OtherSite), "{peer} {path} {field:?}");
            }
        }
    }

    #[test]
    fn questions_about_requests_of_pages_are_answered() {
        for field in OTHER_SITE {
            for (path, host, shown) in [
                ("/envoy/item", "example.com", ("X-Forwarded-For", "203.0.113.7")),
                ("/nginx", "example.com", ("X-Original-URI", "/item")),
                ("/caddy", "example.com:443", NAMED),
                ("/traefik", LISTEN, NAMED),
            ] {
                assert_eq!(check("127.0.0.1", path, host, &[field, shown]), Ok(()), "{path} {field:?}");
            }
        }
    }

    #[test]
    fn programs_are_answered() {
        for (path, host) in
            [("/settle", "gateway:9092"), ("/settle", LISTEN), ("/envoy/item", "example.com"), ("/", "")]
        {
            assert_eq!(check("127.0.0.1", path, host, &[]), Ok(()), "{path} {host}");
        }
        assert_eq!(check("127.0.0.1", "/settle", LISTEN, &[("Sec-Fetch-Site", "none")]), Ok(()));
    }

    #[test]
    fn name_that_leads_to_this_machine_is_rejected() {
        let all = [NAMED, ("X-Forwarded-Method", "GET"), ("X-Forwarded-For", "203.0.113.7"), ("X-Forwarded-Host", "a")];
        for path in ["/envoy/item", "/nginx", "/caddy"] {
            for host in ["evil.example:9092", "127.0.0.1.evil.example:9092", "localhost.evil.example:9092"] {
                assert_eq!(check("127.0.0.1", path, host, &all), Err(WebPageError::OwnPort), "{path} {host}");
            }
            assert_eq!(check("127.0.0.1", path, "own.example:9092", &all), Ok(()), "{path}");
            assert_eq!(check("127.0.0.1", path, "example.com:443", &all), Ok(()), "{path}");
        }
        for host in ["localhost:9092", "127.0.0.1:9092", "[::1]:9092"] {
            assert_eq!(check("127.0.0.1", "/traefik", host, &all), Ok(()), "{host}");
            assert_eq!(check("127.0.0.1", "/envoy/item", host, &all), Err(WebPageError::OwnPort), "{host}");
        }
        assert_eq!(check("10.0.0.1", "/traefik", "tidegate.default.svc:9092", &all), Ok(()));
        assert_eq!(check("10.0.0.1", "/envoy/item", "10.0.0.2:9092", &[]), Err(WebPageError::OwnPort));
    }
}
