//! Requests of web pages to listeners that are for programs. A browser sends them for any page that is open, also to its own
//! machine and network.

use http::uri::Authority;
use std::net::IpAddr;

/// What a request says about the page that it comes from.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestOrigin<'a> {
    /// Value of `Host`.
    pub host: Option<&'a [u8]>,
    /// Value of `Origin` (RFC 6454).
    pub origin: Option<&'a [u8]>,
    /// Value of `Sec-Fetch-Site` (Fetch Metadata).
    pub fetch_site: Option<&'a [u8]>,
}

impl RequestOrigin<'_> {
    /// Returns true for a request of a page of another site. Browsers send the origin of a request; programs send neither
    /// field.
    pub fn is_other_site(&self) -> bool {
        let foreign_site = self.fetch_site.is_some_and(|site| site != b"same-origin" && site != b"none");
        let foreign_origin = self.origin.is_some_and(|origin| {
            let host = origin.strip_prefix(b"http://").or(origin.strip_prefix(b"https://"));
            host != Some(self.host.unwrap_or_default())
        });
        foreign_site || foreign_origin
    }

    /// Returns true if `Host` is a loopback address, `localhost` or the address `listen`. A page whose name resolves to this
    /// machine (DNS rebinding) still sends its own name.
    pub fn has_local_host(&self, listen: IpAddr) -> bool {
        self.authority().is_some_and(|authority| {
            let name = authority.host().trim_start_matches('[').trim_end_matches(']');
            let address: Option<IpAddr> = name.parse().ok();
            name.eq_ignore_ascii_case("localhost")
                || address.is_some_and(|address| address.is_loopback() || address == listen)
        })
    }

    /// Returns the port that `Host` states.
    pub fn port(&self) -> Option<u16> {
        self.authority()?.port_u16()
    }

    fn authority(&self) -> Option<Authority> {
        Authority::try_from(self.host?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_sites_are_known_by_their_fields() {
        let is_other_site = |origin: Option<&'static str>, fetch_site: Option<&'static str>| {
            let [origin, fetch_site] = [origin, fetch_site].map(|value| value.map(str::as_bytes));
            RequestOrigin { host: Some(b"127.0.0.1:9090"), origin, fetch_site }.is_other_site()
        };
        for (origin, fetch_site) in [
            (None, None),
            (None, Some("none")),
            (Some("http://127.0.0.1:9090"), Some("same-origin")),
            (Some("https://127.0.0.1:9090"), None),
        ] {
            assert!(!is_other_site(origin, fetch_site), "{origin:?} {fetch_site:?}");
        }
        for (origin, fetch_site) in [
            (Some("null"), None),
            (Some("http://evil.example"), None),
            (Some("http://127.0.0.1:3000"), None),
            (Some("http://evil.example"), Some("same-origin")),
            (None, Some("cross-site")),
            (None, Some("same-site")),
            (Some(""), None),
        ] {
            assert!(is_other_site(origin, fetch_site), "{origin:?} {fetch_site:?}");
        }
        let without_host = RequestOrigin { origin: Some(b"http://evil.example"), ..RequestOrigin::default() };
        assert!(without_host.is_other_site());
    }

    #[test]
    fn local_hosts_are_addresses_of_this_machine() {
        let listen = IpAddr::from([192, 0, 2, 1]);
        let local = ["localhost", "LOCALHOST:9090", "127.0.0.1", "127.8.8.8:1", "[::1]:9090", "192.0.2.1:9090"];
        let foreign =
            ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:9090", "203.0.113.7", "a b", ""];
        for (host, expected) in local.iter().map(|host| (host, true)).chain(foreign.iter().map(|host| (host, false))) {
            let request = RequestOrigin { host: Some(host.as_bytes()), ..RequestOrigin::default() };
            assert_eq!(request.has_local_host(listen), expected, "{host}");
        }
        assert!(!RequestOrigin::default().has_local_host(listen));
    }

    #[test]
    fn port_is_the_stated_one() {
        for (host, port) in
            [("a:9092", Some(9092)), ("[::1]:80", Some(80)), ("a", None), ("a:99999", None), ("a b:1", None)]
        {
            let request = RequestOrigin { host: Some(host.as_bytes()), ..RequestOrigin::default() };
            assert_eq!(request.port(), port, "{host}");
        }
    }
}
