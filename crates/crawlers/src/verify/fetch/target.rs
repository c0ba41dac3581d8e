//! Target of a fetch, and the addresses that it may be fetched from.

use super::FetchError;
use http::Uri;
use http::uri::{PathAndQuery, Scheme};
use rustls::pki_types::ServerName;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses that a fetch may connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowedAddresses {
    /// Public addresses over HTTPS: for URLs from untrusted clients.
    Public,
    /// Any address over HTTPS, and this machine also over plain HTTP: for URLs from the administrator's config.
    Any,
    /// Any address, over HTTPS and plain HTTP: for a URL that the user of a command names.
    Named,
}

/// Parsed URL of a document.
#[derive(Clone, Debug)]
pub(super) struct FetchTarget {
    /// Host, without the brackets of IPv6.
    pub(super) host: String,
    pub(super) port: u16,
    /// Host and port as in a `Host` field.
    pub(super) authority: String,
    /// Name to verify in the certificate; `None` for plain HTTP.
    pub(super) server_name: Option<ServerName<'static>>,
    pub(super) path: PathAndQuery,
}

impl FetchTarget {
    pub(super) fn parse(url: &str, reach: AllowedAddresses) -> Result<Self, FetchError> {
        let parsed: Option<Self> = url.parse().ok().and_then(|uri| Self::from_uri(&uri));
        let target = parsed.filter(|target| target.server_name.is_some() || reach != AllowedAddresses::Public);
        target.ok_or_else(|| FetchError::InvalidUrl(url.to_owned()))
    }

    fn from_uri(uri: &Uri) -> Option<Self> {
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
        let host = authority.host().trim_matches(['[', ']']).to_ascii_lowercase();
        let secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return None,
        };
        let server_name = ServerName::try_from(host.clone()).ok()?;
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        Some(Self {
            host,
            port: authority.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            authority: authority.as_str().to_ascii_lowercase(),
            server_name: secure.then_some(server_name),
            path,
        })
    }

    /// Returns the target of a redirect to `location`; an error if it is on another server, unless the user of a command has named
    /// the URL.
    pub(super) fn resolve_redirect(&self, location: &str, reach: AllowedAddresses) -> Result<Self, FetchError> {
        let not_allowed = || FetchError::RedirectNotAllowed(location.to_owned());
        if reach == AllowedAddresses::Named {
            return self.absolute(location).parse().ok().and_then(|uri| Self::from_uri(&uri)).ok_or_else(not_allowed);
        }
        let uri: Uri = location.parse().map_err(|_| not_allowed())?;
        // `//host/path` is another server, though it parses as a path.
        let is_path = |path: &&PathAndQuery| path.as_str().starts_with('/') && !path.as_str().starts_with("//");
        let path = uri.path_and_query().filter(is_path).cloned();
        let target = match (uri.authority(), path) {
            (None, Some(path)) => Some(Self { path, ..self.clone() }),
            _ => Self::from_uri(&uri).filter(|target| {
                (&target.host, target.port, &target.server_name) == (&self.host, self.port, &self.server_name)
            }),
        };
        target.ok_or_else(not_allowed)
    }

    /// Returns the URL that a reference of this document means (RFC 3986 section 5.2), without regard to `..`.
    fn absolute(&self, reference: &str) -> String {
        let scheme = if self.server_name.is_some() { "https" } else { "http" };
        let path = self.path.path();
        match reference {
            _ if reference.contains("://") => reference.to_owned(),
            _ if reference.starts_with("//") => format!("{scheme}:{reference}"),
            _ if reference.starts_with('/') => format!("{scheme}://{}{reference}", self.authority),
            _ if reference.starts_with('?') => format!("{scheme}://{}{path}{reference}", self.authority),
            _ => {
                let directory = path.rfind('/').map_or("/", |slash| &path[..=slash]);
                format!("{scheme}://{}{directory}{reference}", self.authority)
            }
        }
    }

    pub(super) fn allows(&self, address: IpAddr, reach: AllowedAddresses) -> bool {
        match (reach, &self.server_name) {
            (AllowedAddresses::Public, _) => is_public(address),
            (AllowedAddresses::Named, _) | (AllowedAddresses::Any, Some(_)) => true,
            (AllowedAddresses::Any, None) => address.to_canonical().is_loopback(),
        }
    }
}

impl fmt::Display for FetchTarget {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.server_name.is_some() { "https" } else { "http" };
        write!(out, "{scheme}://{}{}", self.authority, self.path)
    }
}

/// Returns true for addresses outside all private, local, shared and special networks (the IANA special-purpose
/// registries).
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = match (a, b, c) {
        (0 | 10 | 127, ..) | (224.., ..) => true,
        // Shared between a provider and its customers; some clouds have their metadata service there.
        (100, 64..=127, _) => true,
        (169, 254, _) | (172, 16..=31, _) | (192, 168, _) => true,
        // Protocol assignments, 6to4 relays, benchmarks, documentation.
        (192, 0, 0 | 2) | (192, 88, 99) | (198, 18..=19, _) | (198, 51, 100) | (203, 0, 113) => true,
        _ => false,
    };
    !special
}

/// Only 2000::/3 is allocated, and parts of it are tunnels to IPv4 or not routed.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    let special = match (a, b) {
        // Protocol assignments including Teredo, documentation, 6to4.
        (0x2001, 0..=0x1ff | 0xdb8) | (0x2002, _) => true,
        (0x3fff, 0..=0xfff) => true,
        _ => false,
    };
    a & 0xe000 == 0x2000 && !special
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_globally_routable_addresses_are_public() {
        for public in
            ["8.8.8.8", "100.63.255.255", "172.32.0.1", "192.0.1.1", "2606:4700::1", "2001:4860::1", "::ffff:8.8.8.8"]
        {
            assert!(is_public(public.parse().expect("an address")), "{public}");
        }
        for special in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "198.18.0.1",
            "203.0.113.9",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "64:ff9b::7f00:1",
            "::ffff:127.0.0.1",
            "2001:db8::1",
            "2001::1",
            "2002:7f00:1::1",
            "ff02::1",
            "3fff::1",
        ] {
            assert!(!is_public(special.parse().expect("an address")), "{special}");
        }
    }

    #[test]
    fn url_is_split_into_host_port_path() {
        let target =
            FetchTarget::parse("https://Example.com/bots.json?v=1", AllowedAddresses::Public).expect("a plain address");
        assert_eq!((target.host.as_str(), target.port, target.path.as_str()), ("example.com", 443, "/bots.json?v=1"));
        let target =
            FetchTarget::parse("https://[2606:4700::1]:8443", AllowedAddresses::Public).expect("a plain address");
        assert_eq!((target.host.as_str(), target.port, target.path.as_str()), ("2606:4700::1", 8443, "/"));
        for invalid in
            ["example.com/x", "ftp://example.com/", "https://user:pass@example.com/", "https:///x", "", "https://a b/"]
        {
            assert!(FetchTarget::parse(invalid, AllowedAddresses::Any).is_err(), "{invalid}");
        }
        assert!(FetchTarget::parse("http://example.com/", AllowedAddresses::Public).is_err());
    }

    #[test]
    fn redirect_must_stay_on_the_same_server() {
        let target = FetchTarget::parse("https://example.com/old", AllowedAddresses::Public).expect("a plain address");
        for (location, expected_path) in [("/new?x", "/new?x"), ("https://EXAMPLE.com:443/new", "/new")] {
            let redirected = target.resolve_redirect(location, AllowedAddresses::Public).expect("the same server");
            assert_eq!(redirected.path.as_str(), expected_path);
        }
        for location in
            ["https://example.org/", "http://example.com/", "https://example.com:8443/", "//example.org/x", "new", ""]
        {
            for reach in [AllowedAddresses::Public, AllowedAddresses::Any] {
                assert!(target.resolve_redirect(location, reach).is_err(), "{location}");
            }
        }
    }

    #[test]
    fn redirect_of_a_url_that_a_user_names_may_leave_the_server() {
        let named = AllowedAddresses::Named;
        let target = FetchTarget::parse("http://example.com/a/robots.txt", named).expect("a plain address");
        for (location, expected) in [
            ("https://www.example.com/robots.txt", "https://www.example.com/robots.txt"),
            ("http://127.0.0.1:8080/x?y#z", "http://127.0.0.1:8080/x?y"),
            ("//example.org/x", "http://example.org/x"),
            ("/robots.txt", "http://example.com/robots.txt"),
            ("new", "http://example.com/a/new"),
            ("?q", "http://example.com/a/robots.txt?q"),
        ] {
            let redirected = target.resolve_redirect(location, named).map(|target| target.to_string());
            assert_eq!(redirected.ok().as_deref(), Some(expected), "{location}");
        }
        for location in ["ftp://example.org/", "http://user@example.org/", "https:///x", "http://a b/"] {
            assert!(target.resolve_redirect(location, named).is_err(), "{location}");
        }
    }
}
