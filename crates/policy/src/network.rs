//! Addresses and address ranges: canonical form, parsing, bounds and containment of IPv4 and IPv6 prefixes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address range: network and prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpPrefix {
    network: u128,
    mask: u128,
    v6: bool,
}

impl IpPrefix {
    /// Creates the range of `length` leading bits of `address`, host bits cleared; `None` if `length` is too long.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        let (bits, width, v6) = match address {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)), 32, false),
            IpAddr::V6(v6) => (u128::from(v6), 128, true),
        };
        let host_bits = u32::from(u8::checked_sub(width, length)?);
        let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
        Some(Self { network: bits & mask, mask, v6 })
    }

    /// Parses `192.0.2.0/24`, `2001:db8::/32`, or one address. Converts an IPv4-mapped range (`::ffff:192.0.2.0/120`)
    /// to IPv4. Neither numbers of the address nor the length have leading zeros, which some programs read as octal.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address.parse().ok()?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let length: u8 = length.map_or(Some(width), prefix_length)?;
        match (canonical(address), length.checked_sub(96)) {
            (v4 @ IpAddr::V4(_), Some(length)) if address.is_ipv6() => Self::new(v4, length),
            _ => Self::new(address, length),
        }
    }

    /// Returns the first and the last address of the range.
    pub fn bounds(&self) -> (IpAddr, IpAddr) {
        let (first, last) = (self.network, self.network | !self.mask);
        match self.v6 {
            true => (Ipv6Addr::from(first).into(), Ipv6Addr::from(last).into()),
            false => (Ipv4Addr::from(first as u32).into(), Ipv4Addr::from(last as u32).into()),
        }
    }

    /// Returns the prefix length, in bits.
    pub fn length(&self) -> u8 {
        let bits = self.mask.count_ones() - if self.v6 { 0 } else { 96 };
        bits as u8
    }

    /// Returns true if the range contains `address`.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => !self.v6 && u128::from(u32::from(v4)) & self.mask == self.network,
            IpAddr::V6(v6) => self.v6 && u128::from(v6) & self.mask == self.network,
        }
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.bounds().0, self.length())
    }
}

fn prefix_length(text: &str) -> Option<u8> {
    let is_plain = text == "0" || text.starts_with(|first: char| matches!(first, '1'..='9'));
    text.parse().ok().filter(|_| is_plain)
}

/// Returns the canonical address: IPv4-mapped IPv6 addresses become IPv4.
pub fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Returns true for a loopback, private (RFC 1918, RFC 4193), link-local or shared (RFC 6598) address. Requests from
/// the internet have such an address only if they pass a proxy.
pub fn is_private(address: IpAddr) -> bool {
    match canonical(address) {
        IpAddr::V4(v4) => {
            let is_shared = matches!(v4.octets(), [100, 64..=127, ..]);
            v4.is_loopback() || v4.is_private() || v4.is_link_local() || is_shared
        }
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

/// Returns true if the network is wider than that of any crawler, hence a configuration error.
pub fn is_wider_than_crawlers(address: IpAddr, length: u8) -> bool {
    length < if address.is_ipv4() { 8 } else { 19 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_range_refuses_the_length_of_an_ipv4_mapped_range() {
        assert_eq!(IpPrefix::parse("192.0.2.0/96"), None);
        assert_eq!(IpPrefix::parse("192.0.2.0/128"), None);
        assert_eq!(IpPrefix::parse("::ffff:192.0.2.0/120"), IpPrefix::parse("192.0.2.0/24"));
    }

    #[test]
    fn prefix_display_round_trips() {
        for text in ["127.0.0.0/8", "192.0.2.1/32", "0.0.0.0/0", "::1/128", "2001:db8::/32", "::/0"] {
            assert_eq!(IpPrefix::parse(text).expect("valid range").to_string(), text);
        }
    }

    #[test]
    fn range_contains_the_addresses_from_its_first_to_its_last() {
        let address = |text: &str| -> IpAddr { text.parse().expect("valid address") };
        for (text, before, first, last, after) in [
            ("192.0.2.64/26", "192.0.2.63", "192.0.2.64", "192.0.2.127", "192.0.2.128"),
            ("::ffff:192.0.2.64/122", "192.0.2.63", "192.0.2.64", "192.0.2.127", "192.0.2.128"),
            ("192.0.2.9", "192.0.2.8", "192.0.2.9", "192.0.2.9", "192.0.2.10"),
            ("2001:db8::/32", "2001:db7::", "2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db9::"),
            ("2001:db8::/97", "192.0.2.1", "2001:db8::", "2001:db8::7fff:ffff", "2001:db8::8000:0"),
        ] {
            let range = IpPrefix::parse(text).expect("valid range");
            assert_eq!(range.bounds(), (address(first), address(last)), "{text}");
            let contained = [before, first, last, after].map(|text| range.contains(address(text)));
            assert_eq!(contained, [false, true, true, false], "{text}");
        }
        for invalid in [
            "192.0.2.0/33",
            "::/129",
            "192.0.2.0/",
            "192.0.2/24",
            "192.0.2.0/024",
            "192.0.2.010/32",
            "::/00",
            "::/+8",
            "",
        ] {
            assert_eq!(IpPrefix::parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn ranges_wider_than_8_and_19_bits_are_too_wide() {
        let is_too_wide = |text: &str, length| is_wider_than_crawlers(text.parse().expect("valid address"), length);
        assert_eq!([7, 8, 9].map(|length| is_too_wide("192.0.2.0", length)), [true, false, false]);
        assert_eq!([18, 19, 20].map(|length| is_too_wide("2001:db8::", length)), [true, false, false]);
    }

    #[test]
    fn private_addresses_are_recognized() {
        let is_private = |text: &str| is_private(text.parse().expect("valid address"));
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "172.31.0.1",
            "192.168.0.9",
            "169.254.1.1",
            "100.64.0.1",
            "100.127.255.255",
            "::1",
        ] {
            assert!(is_private(private), "{private}");
        }
        for private in ["fd00::1", "fe80::1", "::ffff:10.0.0.1"] {
            assert!(is_private(private), "{private}");
        }
        for public in ["66.249.66.1", "172.32.0.1", "100.128.0.1", "100.63.255.255", "192.0.2.1", "2001:db8::1"] {
            assert!(!is_private(public), "{public}");
        }
    }
}
