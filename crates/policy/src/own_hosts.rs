//! Own hosts of the site. A request for another host is misdirected: what depends on the host, such as a signature, does
//! not count for it.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// Own hosts of a site: names, names with all names below them, and addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnHosts(Vec<OwnHost>);

/// Pattern of own hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnHost {
    /// This name, in lower case and without its last dot.
    Name(String),
    /// All names with at least one label below this name.
    Below(String),
    /// An IP address. In a request, an IPv6 address is in brackets.
    Address(IpAddr),
}

/// Error: the text is no host, or has a scheme, port or path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidOwnHost;

impl OwnHosts {
    /// Creates the list of own hosts.
    pub fn new(hosts: Vec<OwnHost>) -> Self {
        Self(hosts)
    }

    /// Returns the names that certificates of these hosts have: exact ones, and wildcards such as `*.example.com`.
    pub fn certificate_names(&self) -> impl Iterator<Item = String> {
        self.0.iter().filter(|own| !matches!(own, OwnHost::Address(_))).map(OwnHost::to_string)
    }

    /// Returns true if `host`, in lower case and without a port and its last dot, is an own host.
    pub fn contains(&self, host: &str) -> bool {
        self.0.iter().any(|own| own.matches(host))
    }

    /// Returns true if the list names exactly `host`, in lower case and without a port and its last dot: clients can
    /// invent names below a wildcard.
    pub fn names(&self, host: &str) -> bool {
        self.0.iter().any(|own| !matches!(own, OwnHost::Below(_)) && own.matches(host))
    }
}

/// Returns `host` without its last dot: `example.com.` is the absolute form of `example.com`. A host that ends with two
/// dots is not the absolute form of a name, and stays as it is.
pub fn without_last_dot(host: &str) -> &str {
    host.strip_suffix('.').filter(|name| !name.ends_with('.')).unwrap_or(host)
}

impl OwnHost {
    fn matches(&self, host: &str) -> bool {
        match self {
            Self::Name(name) => name == host,
            // The labels are checked, because a `Host` field may contain other characters.
            Self::Below(domain) => host
                .strip_suffix(domain.as_str())
                .and_then(|below| below.strip_suffix('.'))
                .is_some_and(|below| below.split('.').all(is_label)),
            Self::Address(address) => parse_address(host) == Some(*address),
        }
    }
}

impl FromStr for OwnHost {
    type Err = InvalidOwnHost;

    fn from_str(text: &str) -> Result<Self, InvalidOwnHost> {
        if let Some(address) = parse_address(text).or_else(|| text.parse().ok()) {
            return Ok(Self::Address(address));
        }
        let text = text.to_ascii_lowercase();
        let text = without_last_dot(&text);
        let pattern = match text.strip_prefix("*.") {
            Some(domain) if is_name(domain) => Self::Below(domain.to_owned()),
            None if is_name(text) => Self::Name(text.to_owned()),
            _ => return Err(InvalidOwnHost),
        };
        Ok(pattern)
    }
}

impl fmt::Display for OwnHosts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, host) in self.0.iter().enumerate() {
            write!(out, "{}{host}", if index > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for OwnHost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => out.write_str(name),
            Self::Below(domain) => write!(out, "*.{domain}"),
            Self::Address(IpAddr::V4(address)) => address.fmt(out),
            Self::Address(IpAddr::V6(address)) => write!(out, "[{address}]"),
        }
    }
}

/// Parses an address as in a `Host` field.
fn parse_address(host: &str) -> Option<IpAddr> {
    match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => host.parse().ok().filter(IpAddr::is_ipv4),
    }
}

/// Returns true for a DNS name. One whose last label is a number would be a misspelled address.
fn is_name(text: &str) -> bool {
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= 253 && text.split('.').all(is_label) && !last.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_label(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    (1..=63).contains(&text.len()) && text.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_hosts(patterns: &[&str]) -> OwnHosts {
        OwnHosts::new(patterns.iter().map(|text| text.parse().expect("valid pattern")).collect())
    }

    #[test]
    fn names_match_whole_and_wildcards_match_labels_below() {
        let hosts = own_hosts(&["Example.com.", "*.shop.example"]);
        for host in ["example.com", "a.shop.example", "a.b.shop.example", "xn--bcher-kva.shop.example"] {
            assert!(hosts.contains(host), "{host}");
        }
        for host in [
            "",
            ".",
            "com",
            "www.example.com",
            "evilexample.com",
            "example.com.evil.com",
            "example.com.",
            "shop.example",
            ".shop.example",
            "a..shop.example",
            "evilshop.example",
            "evil.com,.shop.example",
            "*.shop.example",
            "%61.shop.example",
            "a.shop.example.evil.com",
        ] {
            assert!(!hosts.contains(host), "{host}");
        }
    }

    #[test]
    fn addresses_match_in_every_spelling() {
        let hosts = own_hosts(&["192.0.2.1", "[2001:DB8::1]", "::1"]);
        for host in ["192.0.2.1", "[2001:db8::1]", "[2001:db8:0:0:0:0:0:1]", "[::1]"] {
            assert!(hosts.contains(host) && hosts.names(host), "{host}");
        }
        for host in ["192.0.2.2", "192.0.2.1.evil.com", "2001:db8::1", "[2001:db8::2]", "[::1", "[192.0.2.1]"] {
            assert!(!hosts.contains(host), "{host}");
        }
    }

    #[test]
    fn only_one_last_dot_is_taken_off() {
        for (host, expected) in
            [("a.example.", "a.example"), ("a.example", "a.example"), ("a.example..", "a.example..")]
        {
            assert_eq!(without_last_dot(host), expected);
            assert_eq!(without_last_dot(expected), expected);
        }
    }

    #[test]
    fn wildcard_names_no_host() {
        let hosts = own_hosts(&["example.com", "*.example.com"]);
        assert!(hosts.names("example.com"));
        assert!(hosts.contains("made-up.example.com") && !hosts.names("made-up.example.com"));
        assert_eq!(hosts.to_string(), "example.com, *.example.com");
        assert_eq!(own_hosts(&["::1", "192.0.2.1"]).to_string(), "[::1], 192.0.2.1");
    }

    #[test]
    fn url_port_or_bare_star_is_no_host() {
        for text in [
            "",
            ".",
            "*",
            "*.",
            "*.*.example.com",
            "a*.example.com",
            "example.com:443",
            "[::1]:443",
            "https://example.com",
            "example.com/",
            "user@example.com",
            "exa mple.com",
            "a..example.com",
            "192.0.2.256",
            "b\u{fc}cher.example",
        ] {
            assert_eq!(text.parse::<OwnHost>(), Err(InvalidOwnHost), "{text}");
        }
    }
}
