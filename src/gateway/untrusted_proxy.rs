//! Detects a proxy in front of the gateway that the settings do not name.
//!
//! Such a proxy hides its clients: all of them share its address, and no crawler can be verified. It is detected by a
//! private peer address that sends an untrusted forwarding header, or by a trusted peer that sends another one than the
//! settings name. One detection is stored per configuration. After it a request costs one relaxed load, before it a scan of
//! the field names.

use crate::gateway::message::headers;
use parking_lot::Mutex;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use tidegate_http1::{Fields, Name};
use tidegate_policy::identity::ProxyTrust;
use tidegate_policy::network::{IpPrefix, is_private};
use tracing::warn;

/// Detects the first untrusted proxy.
#[derive(Default)]
pub(in crate::gateway) struct UntrustedProxy {
    is_detected: AtomicBool,
    detection: Mutex<Option<Detection>>,
}

/// A peer, the header it sent, and the proxies to trust.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Detection {
    peer: IpAddr,
    header: &'static str,
    /// The header of the settings, which a trusted peer does not send.
    missing: Option<String>,
    trusted: Vec<IpPrefix>,
}

impl UntrustedProxy {
    /// Checks a request from `peer`, and warns of the first one whose client a proxy seems to hide.
    pub(in crate::gateway) fn observe(&self, trust: &ProxyTrust, peer: IpAddr, fields: &Fields) {
        if self.is_detected.load(Ordering::Relaxed) || !fields.contains_any(headers::CLIENT_ADDRESS) {
            return;
        }
        let missing = match trusted_header(trust, peer) {
            Some(name) if fields.contains(Name::from_bytes(name.as_bytes())) => return,
            None if !is_private(peer) => return,
            missing => missing.map(str::to_owned),
        };
        if let Some(header) = forwarding_header(trust, fields) {
            self.report(Detection { peer, header, missing, trusted: trust.proxies.clone() });
        }
    }

    /// Returns the warning with a hint, if a proxy was detected.
    pub(in crate::gateway) fn warning(&self) -> Option<String> {
        self.detection.lock().as_ref().map(ToString::to_string)
    }

    fn report(&self, detection: Detection) {
        if !self.is_detected.swap(true, Ordering::Relaxed) {
            warn!("{detection}");
            *self.detection.lock() = Some(detection);
        }
    }
}

impl fmt::Display for Detection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, header, missing, .. } = self;
        let sent = match missing {
            None => format!("sends {header}, which is not trusted"),
            Some(missing) => format!("sends {header}, but not {missing}, the header of clients.address_from"),
        };
        write!(
            out,
            "{peer} {sent}: all clients behind it count as one, and crawlers behind it cannot be verified; if your proxy sets \
             {header}, write clients: {{ address_from: {}, trusted_proxies: [{}] }}",
            address_from(header),
            self.trusted_proxies().join(", ")
        )
    }
}

impl Detection {
    /// Returns the currently trusted proxies and the peer, as YAML.
    fn trusted_proxies(&self) -> Vec<String> {
        let loopback = ["127.0.0.0/8", "::1/128"].map(IpPrefix::parse);
        let added = match self.peer.is_loopback() {
            true => loopback.into_iter().flatten().collect(),
            false => Vec::from_iter(IpPrefix::parse(&self.peer.to_string())),
        };
        let is_new = |range: &IpPrefix| self.missing.is_none() && !self.trusted.contains(range);
        self.trusted.iter().copied().chain(added.into_iter().filter(is_new)).map(quoted).collect()
    }
}

/// Formats a range; an IPv6 range in a YAML list needs quotes.
fn quoted(range: IpPrefix) -> String {
    let text = range.to_string();
    if text.contains(':') { format!("\"{text}\"") } else { text }
}

/// Returns the header of the settings with the address of a client, if `peer` is trusted to set it.
fn trusted_header(trust: &ProxyTrust, peer: IpAddr) -> Option<&str> {
    trust.source.header().filter(|_| trust.trusts(peer))
}

/// Returns the forwarding header of the request: the configured one, else the first known one.
fn forwarding_header(trust: &ProxyTrust, fields: &Fields) -> Option<&'static str> {
    let preferred = trust.source.header().map(|name| Name::from_bytes(name.as_bytes()));
    let is_sent = |(name, _): &&(Name, &str)| fields.contains(*name);
    let first = FORWARDING_HEADERS.iter().find(|(name, _)| Some(*name) == preferred).filter(is_sent);
    first.or_else(|| FORWARDING_HEADERS.iter().find(is_sent)).map(|(_, text)| *text)
}

fn address_from(header: &str) -> String {
    match header {
        "X-Forwarded-For" | "Forwarded" => header.to_ascii_lowercase(),
        vendor_header => format!("{{ header: {vendor_header} }}"),
    }
}

/// Headers with the client's address that proxies set. The first two carry the whole chain and are preferred: entries
/// forged by a client are left of those of the proxy.
const FORWARDING_HEADERS: [(Name, &str); 5] = [
    (Name::ForwardedFor, "X-Forwarded-For"),
    (Name::Forwarded, "Forwarded"),
    (Name::RealIp, "X-Real-IP"),
    (Name::CfConnectingIp, "CF-Connecting-IP"),
    (Name::TrueClientIp, "True-Client-IP"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;
    use tidegate_policy::identity::AddressSource;

    fn warning(trust: &ProxyTrust, peer: &str, header: Option<&'static str>) -> Option<String> {
        let mut sent = HeaderMap::new();
        header.map(|name| sent.insert(name, http::HeaderValue::from_static("192.0.2.1")));
        let proxy = UntrustedProxy::default();
        proxy.observe(trust, peer.parse().expect("valid address"), &Fields::from(&sent));
        proxy.warning()
    }

    fn trust(source: AddressSource, proxies: &[&str]) -> ProxyTrust {
        let proxies = proxies.iter().filter_map(|range| IpPrefix::parse(range)).collect();
        ProxyTrust { source, proxies, ipv6_prefix: 64 }
    }

    #[test]
    fn warning_contains_the_yaml_to_write() {
        let none = trust(AddressSource::Peer, &[]);
        for (peer, header, yaml) in [
            (
                "127.0.0.1",
                "x-forwarded-for",
                "address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8, \"::1/128\"]",
            ),
            ("10.0.0.7", "forwarded", "address_from: forwarded, trusted_proxies: [10.0.0.7/32]"),
            ("::1", "x-real-ip", "address_from: { header: X-Real-IP }, trusted_proxies: [127.0.0.0/8, \"::1/128\"]"),
            (
                "fd00::1",
                "cf-connecting-ip",
                "address_from: { header: CF-Connecting-IP }, trusted_proxies: [\"fd00::1/128\"]",
            ),
        ] {
            let warning = warning(&none, peer, Some(header)).expect("warning");
            assert!(warning.ends_with(&format!("write clients: {{ {yaml} }}")), "{warning}");
        }
        let some = trust(AddressSource::XForwardedFor, &["127.0.0.0/8"]);
        let warning = warning(&some, "172.17.0.1", Some("x-forwarded-for")).expect("warning");
        assert!(warning.contains("trusted_proxies: [127.0.0.0/8, 172.17.0.1/32]"), "{warning}");
    }

    #[test]
    fn no_warning_for_public_trusted_or_direct_peers() {
        let (none, loopback) = (trust(AddressSource::Peer, &[]), trust(AddressSource::XForwardedFor, &["127.0.0.0/8"]));
        assert_eq!(warning(&none, "192.0.2.9", Some("x-forwarded-for")), None);
        assert_eq!(warning(&none, "127.0.0.1", None), None);
        assert_eq!(warning(&loopback, "127.0.0.1", Some("x-forwarded-for")), None);
        assert_eq!(warning(&loopback, "127.0.0.1", None), None, "a request of the proxy itself");
    }

    #[test]
    fn misspelled_header_of_a_trusted_proxy_gives_a_warning() {
        let misspelled = AddressSource::Header(http::HeaderName::from_static("cf-conecting-ip"));
        for source in [misspelled, AddressSource::Forwarded] {
            let name = source.header().expect("a header").to_owned();
            let warning = warning(&trust(source, &["203.0.113.0/24"]), "203.0.113.1", Some("cf-connecting-ip"));
            let warning = warning.expect("a warning");
            assert!(warning.starts_with(&format!("203.0.113.1 sends CF-Connecting-IP, but not {name}, ")), "{warning}");
            let yaml = "address_from: { header: CF-Connecting-IP }, trusted_proxies: [203.0.113.0/24] }";
            assert!(warning.ends_with(yaml), "{warning}");
        }
    }
}
