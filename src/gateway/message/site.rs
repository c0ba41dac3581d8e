//! A site: scheme and host as the client sees them. Each site has its own robots.txt (RFC 9309 section 2.3).

use super::target;
use http::{Method, Uri};
use tidegate_http1::{Fields, Name, RequestHead, list};
use tidegate_policy::own_hosts::{OwnHosts, without_last_dot};
use tidegate_policy::route::{normalize_host, split_port};
use tidegate_policy::{RequestFacts, RouteId, Rules, path};

/// Scheme and host of a request in canonical form, so that all spellings share one copy of robots.txt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct Site {
    scheme: &'static str,
    /// Host in lower case and without its last dot, with the port unless it is that of the scheme.
    host: String,
    /// Length of the host without its port.
    name_len: usize,
}

/// Returns whether the last proxy was asked by https, as it says; `None` if it does not say.
pub(in crate::gateway) fn is_forwarded_https(fields: &Fields) -> Option<bool> {
    let proto = fields.all(Name::ForwardedProto).flat_map(list).last()?;
    Some(proto.eq_ignore_ascii_case(b"https"))
}

impl Site {
    /// Returns the site of a valid request.
    pub(in crate::gateway) fn from_head(head: &RequestHead, is_https: bool) -> Self {
        Self::new(is_https, &String::from_utf8_lossy(target::host(head)))
    }

    fn new(is_https: bool, host: &str) -> Self {
        let (scheme, own_port) = if is_https { ("https", "443") } else { ("http", "80") };
        let mut host = host.to_ascii_lowercase();
        let (name, port) = split_port(&host);
        let (name_end, name_len) = (name.len(), without_last_dot(name).len());
        let is_usual_port = port.is_none_or(|port| port.is_empty() || port == own_port);
        host.drain(name_len..if is_usual_port { host.len() } else { name_end });
        Self { scheme, host, name_len }
    }

    /// Returns the site of a URL; `None` without a scheme, `http` or `https`, and a host.
    pub(in crate::gateway) fn from_url(url: &Uri) -> Option<Self> {
        let is_https = match url.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        Some(Self::new(is_https, url.authority()?.as_str()))
    }

    /// Returns the scheme: `http` or `https`.
    pub(in crate::gateway) fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// Returns the host as in a `Host` field.
    pub(in crate::gateway) fn host(&self) -> &str {
        &self.host
    }

    /// Returns the route of a GET request for a URL of the site.
    pub(in crate::gateway) fn route(&self, uri: &Uri, rules: &Rules) -> RouteId {
        let host = normalize_host(self.host());
        let normalized = path::normalize(uri.path()).unwrap_or_else(|_| uri.path().into());
        rules.route(&RequestFacts {
            method: &Method::GET,
            host: &host,
            path: &normalized,
            other_paths: &[],
            query: uri.query(),
            user_agent: b"",
            is_preflight: false,
            json: None,
            fields: None,
        })
    }

    /// Returns the key of the site in the cache of robots.txt.
    pub(in crate::gateway) fn key(&self) -> String {
        format!("{}://{}", self.scheme, self.host)
    }

    /// Returns true if `own_hosts` names the host and it has the usual port: clients can invent ports, and names below
    /// a wildcard.
    pub(in crate::gateway) fn is_named_by(&self, own_hosts: Option<&OwnHosts>) -> bool {
        self.host.len() == self.name_len && own_hosts.is_some_and(|own_hosts| own_hosts.names(&self.host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Method, Uri, Version};

    fn head(target: &str, fields: &[(&'static str, &'static str)]) -> RequestHead {
        let target = target.parse::<Uri>().expect("valid target");
        RequestHead { method: Method::GET, target, version: Version::HTTP_11, fields: fields.iter().copied().collect() }
    }

    fn key(host: &'static str, proto: &'static str, trusted: bool) -> String {
        let head = head("/robots.txt", &[("host", host), ("x-forwarded-proto", proto)]);
        Site::from_head(&head, trusted && is_forwarded_https(&head.fields) == Some(true)).key()
    }

    #[test]
    fn spellings_of_a_host_are_one_site() {
        for host in ["shop.example", "SHOP.example", "shop.example.", "Shop.Example.:80", "shop.example:"] {
            assert_eq!(key(host, "", true), "http://shop.example", "{host}");
        }
        for (host, proto, expected) in [
            ("shop.example:443", "https", "https://shop.example"),
            ("shop.example:80", "https", "https://shop.example:80"),
            ("shop.example:443", "http", "http://shop.example:443"),
            ("[2001:DB8::1]:80", "http", "http://[2001:db8::1]"),
            ("[2001:db8::1]:81", "http", "http://[2001:db8::1]:81"),
            ("", "", "http://"),
        ] {
            assert_eq!(key(host, proto, true), expected);
        }
    }

    #[test]
    fn scheme_is_that_of_the_last_trusted_proxy() {
        for proto in ["https", "HTTPS", "http, https", "ftp,https"] {
            assert_eq!(key("a", proto, true), "https://a", "{proto}");
            assert_eq!(key("a", proto, false), "http://a", "{proto}");
        }
        for proto in ["https, http", "gopher", "https://evil.com", ""] {
            assert_eq!(key("a", proto, true), "http://a", "{proto}");
        }
    }

    #[test]
    fn absolute_target_counts_before_the_host_field() {
        let site = Site::from_head(&head("http://A.example.:81/robots.txt", &[("host", "b.example")]), false);
        assert_eq!((site.scheme(), site.host()), ("http", "a.example:81"));
    }

    #[test]
    fn only_a_listed_host_with_the_usual_port_is_named() {
        let patterns = ["example.com", "*.example.com", "::1"].map(|text| text.parse().expect("valid pattern"));
        let own_hosts = OwnHosts::new(patterns.to_vec());
        let is_named = |host| Site::from_head(&head("/", &[("host", host)]), false).is_named_by(Some(&own_hosts));
        for host in ["example.com", "EXAMPLE.com.", "example.com:80", "[::1]", "[::1]:80"] {
            assert!(is_named(host), "{host}");
        }
        for host in ["example.com:8080", "example.com:080", "made-up.example.com", "[::1]:81", "evil.com"] {
            assert!(!is_named(host), "{host}");
        }
        assert!(!Site::from_head(&head("/", &[("host", "example.com")]), false).is_named_by(None));
    }
}
