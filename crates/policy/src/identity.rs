//! Identifies the client: its address behind trusted proxies, and the key that selects its bucket.

mod forwarded;
mod key;

pub use key::{ClientKey, CredentialSource, KeyOwner, KeySource, cookie};

use super::network::{IpPrefix, canonical};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum hops that are read, nearest to the gateway first.
const MAX_HOPS: usize = 32;

/// Header family that carries the client address. Exactly one is trusted; they are never combined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AddressSource {
    /// No header: the client is the peer.
    #[default]
    Peer,
    /// `X-Forwarded-For`, walked from the right.
    XForwardedFor,
    /// `Forwarded` (RFC 7239), walked from the right.
    Forwarded,
    /// A vendor's header with one address.
    Header(http::HeaderName),
}

impl AddressSource {
    /// Returns the name of the trusted header, if any.
    pub fn header(&self) -> Option<&str> {
        match self {
            Self::Peer => None,
            Self::XForwardedFor => Some("x-forwarded-for"),
            Self::Forwarded => Some("forwarded"),
            Self::Header(name) => Some(name.as_str()),
        }
    }
}

/// Trust in headers that report the client address.
#[derive(Clone, Debug, Default)]
pub struct ProxyTrust {
    /// Source of the client address.
    pub source: AddressSource,
    /// Trusted peers and hops.
    pub proxies: Vec<IpPrefix>,
    /// Prefix length of an IPv6 client, in bits.
    pub ipv6_prefix: u8,
}

/// Address of the client, and the hops between client and gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAddress {
    /// Client address.
    pub client: IpAddr,
    /// Trusted hops between client and peer, nearest to the gateway last, without the peer.
    pub hops: Vec<IpAddr>,
}

impl ProxyTrust {
    /// Returns true if `address` is a trusted proxy.
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.proxies.iter().any(|prefix| prefix.contains(address))
    }

    /// Returns the header with the client's address of a request of a proxy: the trusted one, else `X-Forwarded-For`.
    pub fn header_behind_proxy(&self) -> &str {
        self.source.header().unwrap_or("x-forwarded-for")
    }

    /// Finds the client behind `peer`. `lines` are the field lines of the trusted header, in order.
    ///
    /// Walks from the right: skips trusted hops; the first untrusted address is the client. An invalid element, or the
    /// 32nd hop, ends the walk at the last valid hop; an empty one is ignored (RFC 9110 section 5.6.1.2). So nothing that
    /// a client sends changes how the elements are read that proxies add to it.
    pub fn client(&self, peer: IpAddr, lines: &[&[u8]]) -> ClientAddress {
        let peer = canonical(peer);
        if self.source == AddressSource::Peer || !self.trusts(peer) {
            return ClientAddress { client: peer, hops: Vec::new() };
        }
        self.client_behind(peer, lines)
    }

    /// Like [`Self::client`], for a peer that is certainly a proxy. `lines` are those of [`Self::header_behind_proxy`].
    pub fn client_behind(&self, proxy: IpAddr, lines: &[&[u8]]) -> ClientAddress {
        let client_address = ClientAddress { client: canonical(proxy), hops: Vec::new() };
        let lines = lines.iter().rev().copied();
        match &self.source {
            AddressSource::Peer | AddressSource::XForwardedFor => {
                let elements = lines.flat_map(|line| line.rsplit(|&byte| byte == b','));
                self.walk(client_address, elements.filter(is_not_empty).map(parse_address))
            }
            AddressSource::Forwarded => {
                let elements = lines.flat_map(forwarded::elements_reversed);
                self.walk(client_address, elements.filter(is_not_empty).map(forwarded::node))
            }
            AddressSource::Header(_) => self.walk(client_address, lines.take(1).map(parse_address)),
        }
    }

    /// Walks along `hops`, nearest to the gateway first.
    fn walk(&self, mut address: ClientAddress, hops: impl Iterator<Item = Option<IpAddr>>) -> ClientAddress {
        for (index, hop) in hops.take(MAX_HOPS).map_while(|hop| hop).enumerate() {
            if index > 0 {
                address.hops.insert(0, address.client);
            }
            address.client = hop;
            if !self.trusts(hop) {
                break;
            }
        }
        address
    }

    /// Returns the key of `client` by its address.
    pub fn key(&self, client: IpAddr) -> ClientKey {
        match canonical(client) {
            IpAddr::V4(v4) => ClientKey::from_v4(v4),
            IpAddr::V6(v6) => match embedded_v4(v6) {
                Some(v4) => ClientKey::from_v4(v4),
                None => {
                    let upper = (u128::from(v6) >> 64) as u64;
                    let mask = u64::MAX.checked_shl(64 - u32::from(self.ipv6_prefix.clamp(1, 64))).unwrap_or(0);
                    ClientKey::from_v6(upper & mask)
                }
            },
        }
    }
}

/// Returns the IPv4 client inside a NAT64 (`64:ff9b::/96`) or 6to4 (`2002::/16`) address.
fn embedded_v4(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = u128::from(v6);
    if bits >> 32 == 0x0064_ff9b << 64 {
        return Some(Ipv4Addr::from(bits as u32));
    }
    (bits >> 112 == 0x2002).then(|| Ipv4Addr::from((bits >> 80) as u32))
}

fn is_not_empty(element: &&[u8]) -> bool {
    !element.trim_ascii().is_empty()
}

/// Parses a hop: an address with optional port, brackets, quotes and zone.
fn parse_address(token: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(token).ok()?.trim_matches([' ', '\t']);
    let text = text.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')).unwrap_or(text);
    let host = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            let port_is_plain = port.strip_prefix(':').map_or(port.is_empty(), is_port);
            port_is_plain.then_some(host)?
        }
        None => match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => is_port(port).then_some(host)?,
            _ => text,
        },
    };
    let host = host.split_once('%').map_or(host, |(address, _zone)| address);
    host.parse().ok().map(canonical)
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trust(source: AddressSource) -> ProxyTrust {
        let proxies = ["10.0.0.0/8", "127.0.0.0/8", "2001:db8:aaaa::/48"].map(|text| {
            let (address, length) = text.split_once('/').expect("network with a prefix length");
            IpPrefix::new(address.parse().expect("valid IP"), length.parse().expect("valid length"))
                .expect("valid range")
        });
        ProxyTrust { source, proxies: proxies.to_vec(), ipv6_prefix: 64 }
    }

    fn client(source: AddressSource, peer: &str, lines: &[&str]) -> String {
        let peer = peer.parse().expect("valid peer address");
        let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
        trust(source).client(peer, &lines).client.to_string()
    }

    fn by_xff(peer: &str, lines: &[&str]) -> String {
        client(AddressSource::XForwardedFor, peer, lines)
    }

    #[test]
    fn untrusted_peer_is_always_the_client() {
        assert_eq!(by_xff("192.0.2.9", &["198.51.100.1"]), "192.0.2.9");
        assert_eq!(client(AddressSource::Peer, "127.0.0.1", &["198.51.100.1"]), "127.0.0.1");
    }

    #[test]
    fn peer_that_is_certainly_a_proxy_needs_no_trust() {
        let client = |source, line: &str| {
            let trust = trust(source);
            let peer = "192.0.2.9".parse().expect("valid address");
            (trust.client_behind(peer, &[line.as_bytes()]).client.to_string(), trust.header_behind_proxy().to_owned())
        };
        let xff = || "x-forwarded-for".to_owned();
        assert_eq!(client(AddressSource::Peer, "203.0.113.66, 198.51.100.1"), ("198.51.100.1".into(), xff()));
        assert_eq!(client(AddressSource::XForwardedFor, "198.51.100.1, 10.0.0.2"), ("198.51.100.1".into(), xff()));
        assert_eq!(client(AddressSource::Forwarded, "for=198.51.100.1"), ("198.51.100.1".into(), "forwarded".into()));
        assert_eq!(client(AddressSource::XForwardedFor, ""), ("192.0.2.9".into(), xff()));
    }

    #[test]
    fn rightmost_untrusted_hop_is_the_client() {
        assert_eq!(by_xff("10.0.0.1", &["203.0.113.66, 198.51.100.1, 10.9.9.9"]), "198.51.100.1");
        assert_eq!(by_xff("10.0.0.1", &["203.0.113.66", "198.51.100.1"]), "198.51.100.1", "lines are joined in order");
        assert_eq!(by_xff("10.0.0.1", &["10.1.1.1, 10.2.2.2"]), "10.1.1.1", "all trusted: leftmost hop");
        assert_eq!(by_xff("10.0.0.1", &[]), "10.0.0.1");
    }

    #[test]
    fn invalid_hop_yields_the_last_valid_hop() {
        assert_eq!(by_xff("10.0.0.1", &["198.51.100.1, unknown, 10.9.9.9"]), "10.9.9.9");
        assert_eq!(by_xff("10.0.0.1", &["_hidden"]), "10.0.0.1");
        assert_eq!(by_xff("10.0.0.1", &["198.51.100.1:99999999"]), "10.0.0.1");
    }

    #[test]
    fn hops_are_parsed_in_every_format() {
        for (token, address) in [
            ("1.2.3.4:5678", "1.2.3.4"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("\"1.2.3.4\"", "1.2.3.4"),
            (" fe80::1%eth0 ", "fe80::1"),
            ("::ffff:1.2.3.4", "1.2.3.4"),
        ] {
            assert_eq!(by_xff("10.0.0.1", &[token]), address, "{token}");
        }
        assert_eq!(by_xff("::ffff:10.0.0.1", &["1.2.3.4"]), "1.2.3.4", "a mapped peer is IPv4");
    }

    #[test]
    fn long_chain_does_not_hide_the_client() {
        for forged in ["1.1.1.1, ".repeat(100), "a".repeat(8000) + ",", "10.0.0.9,".repeat(100)] {
            assert_eq!(by_xff("10.0.0.1", &[&format!("{forged}198.51.100.1")]), "198.51.100.1");
            assert_eq!(by_xff("10.0.0.1", &[&forged, "198.51.100.1,10.0.0.2"]), "198.51.100.1");
        }
        let chain: Vec<String> = (0..40).map(|hop| format!("10.0.1.{hop}")).collect();
        assert_eq!(by_xff("10.0.0.1", &[&chain.join(",")]), "10.0.1.8", "the 32nd hop");
    }

    #[test]
    fn hops_are_the_trusted_proxies_between_client_and_peer() {
        let peer = "10.0.0.1".parse().expect("valid address");
        let found = trust(AddressSource::XForwardedFor).client(peer, &[b"9.9.9.9, 1.2.3.4, 10.0.0.3", b"10.0.0.2"]);
        let hops: Vec<String> = found.hops.iter().map(IpAddr::to_string).collect();
        assert_eq!((found.client.to_string(), hops), ("1.2.3.4".into(), vec!["10.0.0.3".into(), "10.0.0.2".into()]));
        assert!(trust(AddressSource::XForwardedFor).client(peer, &[]).hops.is_empty());
    }

    #[test]
    fn each_address_source_names_its_header() {
        let vendor = AddressSource::Header(http::HeaderName::from_static("cf-connecting-ip"));
        let sources = [AddressSource::Peer, AddressSource::XForwardedFor, AddressSource::Forwarded, vendor];
        let headers = sources.each_ref().map(AddressSource::header);
        assert_eq!(headers, [None, Some("x-forwarded-for"), Some("forwarded"), Some("cf-connecting-ip")]);
    }

    #[test]
    fn forwarded_quoted_strings_are_parsed() {
        let client_of = |line: &str| client(AddressSource::Forwarded, "10.0.0.1", &[line]);
        assert_eq!(client_of("for=192.0.2.43;proto=https, FOR=\"[2001:db8:cafe::17]:4711\""), "2001:db8:cafe::17");
        assert_eq!(client_of("by=\"a,b;for=9.9.9.9\";for=192.0.2.1"), "192.0.2.1");
        assert_eq!(client_of("for=198.51.100.1, for=unknown, for=10.3.3.3"), "10.3.3.3");
        assert_eq!(client_of("for=192.0.2.1;for=192.0.2.2"), "10.0.0.1", "a duplicate parameter is invalid");
        assert_eq!(client_of("proto=https"), "10.0.0.1");
        for forged in ["for=\"9.9.9.9", "for=9.9.9.9;by=\"", "\"\\\"", "for=9.9.9.9;for=8.8.8.8"] {
            assert_eq!(client_of(&format!("{forged}, for=192.0.2.1")), "192.0.2.1", "{forged}");
            assert_eq!(client_of(&format!("{forged}, for=\"[2001:db8::1]:80\"")), "2001:db8::1", "{forged}");
        }
    }

    #[test]
    fn vendor_header_holds_one_address_and_the_last_one_counts() {
        let source = AddressSource::Header(http::HeaderName::from_static("cf-connecting-ip"));
        assert_eq!(client(source.clone(), "10.0.0.1", &["198.51.100.7"]), "198.51.100.7");
        assert_eq!(client(source.clone(), "10.0.0.1", &["198.51.100.7", "198.51.100.8"]), "198.51.100.8");
        assert_eq!(client(source.clone(), "10.0.0.1", &["198.51.100.7, 198.51.100.8"]), "10.0.0.1");
        assert_eq!(client(source, "192.0.2.9", &["198.51.100.7"]), "192.0.2.9");
    }

    #[test]
    fn client_key_groups_ipv6_and_unwraps_embedded_ipv4() {
        let trust = trust(AddressSource::Peer);
        let key = |text: &str| trust.key(text.parse().expect("valid address"));
        assert_eq!(key("2001:db8:1:2::1"), key("2001:db8:1:2:ffff::9"));
        assert_ne!(key("2001:db8:1:2::1"), key("2001:db8:1:3::1"));
        for spelling in ["::ffff:192.0.2.1", "64:ff9b::192.0.2.1", "2002:c000:201::1"] {
            assert_eq!(key(spelling), key("192.0.2.1"), "{spelling}");
        }
        assert_eq!(key("192.0.2.1").owner(), KeyOwner::V4(Ipv4Addr::new(192, 0, 2, 1)));
        assert_eq!(key("2001:db8:1:2::1").owner(), KeyOwner::V6("2001:db8:1:2::".parse().expect("valid address")));
    }

    proptest! {
        #[test]
        fn empty_elements_change_no_client(
            hops in proptest::collection::vec(0usize..5, 0..6), gaps in proptest::collection::vec("[ \t]{0,2}(,[ \t]{0,2}){0,3}", 7),
            splits in proptest::collection::vec(any::<bool>(), 7),
        ) {
            let nodes = ["198.51.100.1", "10.0.0.2", "unknown", "\"[2001:db8::1]:443\"", "10.0.0.3:80"];
            for (source, prefix) in [(AddressSource::XForwardedFor, ""), (AddressSource::Forwarded, "for=")] {
                let elements: Vec<String> = hops.iter().map(|&hop| format!("{prefix}{}", nodes[hop])).collect();
                let mut lines = vec![gaps[0].clone()];
                for (index, element) in elements.iter().enumerate() {
                    match splits[index] {
                        true => lines.push(String::new()),
                        false => lines.last_mut().expect("a line").push(','),
                    }
                    let line = lines.last_mut().expect("a line");
                    *line += element;
                    if !gaps[index + 1].trim().is_empty() {
                        *line += &gaps[index + 1];
                    }
                }
                let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
                let plain = elements.join(",");
                let plain = if plain.is_empty() { vec![] } else { vec![plain.as_str()] };
                prop_assert_eq!(client(source.clone(), "10.0.0.1", &lines), client(source, "10.0.0.1", &plain), "{:?}", lines);
            }
        }

        #[test]
        fn hops_left_of_the_first_untrusted_are_ignored(
            forged in "[ -~]{0,80}|([0-9.]{7},){40}", hop: u32, trusted in proptest::collection::vec(any::<u32>(), 0..5),
        ) {
            let untrusted = Ipv4Addr::from(hop);
            prop_assume!(!trust(AddressSource::Peer).trusts(untrusted.into()));
            let tail: String = trusted.iter().map(|bits| format!(",{}", Ipv4Addr::from(0x0a00_0000 | bits >> 8))).collect();
            prop_assert_eq!(by_xff("10.0.0.1", &[&format!("{forged},{untrusted}{tail}")]), untrusted.to_string());
        }

        #[test]
        fn bytes_of_any_kind_never_panic(lines in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..5)) {
            for source in [AddressSource::XForwardedFor, AddressSource::Forwarded] {
                let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
                let lines: Vec<&[u8]> = lines.iter().map(Vec::as_slice).collect();
                let client_address = trust(source).client(peer, &lines);
                prop_assert!(client_address.hops.len() <= MAX_HOPS);
            }
        }
    }
}
