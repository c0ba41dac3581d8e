//! Published network lists of operators, and plausibility checks. A list is used as a whole or not at all.

use crate::network_list;
use ipnet::IpNet;
use tidegate_policy::network::{IpPrefix, is_wider_than_crawlers};

/// Reason why a list is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeListError {
    /// Neither JSON with prefixes nor text with one network per line.
    #[error("not a network list: {0}")]
    InvalidFormat(String),
    /// The list has no networks.
    #[error("empty list")]
    Empty,
    /// A network is wider than that of any crawler.
    #[error("{0} is wider than any crawler's network")]
    TooWide(IpNet),
    /// The networks together are wider than those of any operator.
    #[error("the networks together are wider than those of any operator")]
    TooWideTogether,
    /// The list has many times the addresses that it had.
    #[error("rejected: {0} times more addresses than before")]
    Grown(u128),
    /// The list has more networks than that of any operator.
    #[error("more than {MAX_NETWORKS} networks")]
    TooMany,
    /// The list has lost more than half of its networks.
    #[error("rejected: more than half of the networks removed ({before} -> {now})")]
    Shrunk {
        /// Previous number of networks.
        before: usize,
        /// New number of networks.
        now: usize,
    },
}

/// Parses a list. The returned networks are sorted and disjoint.
pub fn parse(bytes: &[u8]) -> Result<Vec<IpNet>, RangeListError> {
    let text = std::str::from_utf8(bytes).map_err(|_| RangeListError::InvalidFormat("not text".into()))?;
    let networks: Vec<IpNet> = match network_list::parse(text) {
        Ok(networks) => networks.iter().filter_map(to_ip_net).collect(),
        Err(invalid) => {
            let found = invalid.first().map_or("", |entry| &entry.found);
            return Err(RangeListError::InvalidFormat(format!("`{found}` is not a network")));
        }
    };
    let is_too_wide = |network: &&IpNet| is_wider_than_crawlers(network.addr(), network.prefix_len());
    if let Some(wide) = networks.iter().find(is_too_wide) {
        return Err(RangeListError::TooWide(*wide));
    }
    match networks.len() {
        0 => Err(RangeListError::Empty),
        count if count > MAX_NETWORKS => Err(RangeListError::TooMany),
        _ => {
            let networks = IpNet::aggregate(&networks);
            let is_plausible = AddressSpace::from_networks(&networks).fits_in(MAX_ADDRESS_SPACE);
            if is_plausible { Ok(networks) } else { Err(RangeListError::TooWideTogether) }
        }
    }
}

/// Rejects a list that lost more than half of its networks, or that grew to more than [`MAX_GROWTH_FACTOR`] times its
/// addresses. Such a change is more likely an error, or another list, than a real change of the operator's networks.
pub(super) fn check_change(before: &[IpNet], now: Vec<IpNet>) -> Result<Vec<IpNet>, RangeListError> {
    let before = IpNet::aggregate(&before.to_vec());
    if now.len() * 2 < before.len() {
        return Err(RangeListError::Shrunk { before: before.len(), now: now.len() });
    }
    if before.is_empty() {
        return Ok(now);
    }
    let (old, new) = (AddressSpace::from_networks(&before), AddressSpace::from_networks(&now));
    let limit = AddressSpace {
        v4: old.v4.max(MIN_GROWTH_BASE.v4) * MAX_GROWTH_FACTOR,
        v6: old.v6.max(MIN_GROWTH_BASE.v6) * MAX_GROWTH_FACTOR,
    };
    match new.fits_in(limit) {
        true => Ok(now),
        false => Err(RangeListError::Grown((new.v4 / old.v4.max(1)).max(new.v6 / old.v6.max(1)))),
    }
}

/// Size of the covered address space: IPv4 addresses, and IPv6 networks of 64 bits or parts of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AddressSpace {
    v4: u128,
    v6: u128,
}

impl AddressSpace {
    /// Adds up disjoint networks.
    fn from_networks(networks: &[IpNet]) -> Self {
        networks.iter().fold(Self { v4: 0, v6: 0 }, |sum, network| match network {
            IpNet::V4(v4) => Self { v4: sum.v4 + (1 << (32 - v4.prefix_len())), ..sum },
            IpNet::V6(v6) => Self { v6: sum.v6 + (1 << 64_u8.saturating_sub(v6.prefix_len())), ..sum },
        })
    }

    fn fits_in(self, limit: Self) -> bool {
        self.v4 <= limit.v4 && self.v6 <= limit.v6
    }
}

/// Maximum address space of a list: twice the widest network accepted, which is an /8 and a /19.
const MAX_ADDRESS_SPACE: AddressSpace = AddressSpace { v4: 2 << 24, v6: 2 << 45 };

/// Maximum growth of a list at one refresh, as a factor.
const MAX_GROWTH_FACTOR: u128 = 16;

/// Smaller lists may grow to [`MAX_GROWTH_FACTOR`] times this size, a /20 and a /48: a small list may double repeatedly.
const MIN_GROWTH_BASE: AddressSpace = AddressSpace { v4: 1 << 12, v6: 1 << 16 };

fn to_ip_net(network: &IpPrefix) -> Option<IpNet> {
    IpNet::new(network.bounds().0, network.length()).ok()
}

/// The longest list of any crawler has a few thousand networks; this many take 10 MiB.
const MAX_NETWORKS: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse_list(text: &str) -> Result<Vec<String>, RangeListError> {
        parse(text.as_bytes()).map(|networks| networks.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn networks_are_sorted_and_disjoint() {
        let text = r#"{"creationTime": "2026-08-20T14:46:45.000000", "extra": 1, "prefixes": [
            {"ipv6Prefix": "2001:4860:4801:10::/64"}, {"ipv4Prefix": "66.249.64.0/27", "service": "x"},
            {"ipv4Prefix": "192.0.2.7"}, {"ipv4Prefix": "198.51.100.77/24"}, {"comment": "nothing"}]}"#;
        let expected = ["66.249.64.0/27", "192.0.2.7/32", "198.51.100.0/24", "2001:4860:4801:10::/64"];
        let mut networks = parse_list(text).expect("a list");
        networks.sort();
        let mut expected = expected.map(str::to_owned);
        expected.sort();
        assert_eq!(networks, expected);
        assert_eq!(parse_list(r#"["192.0.2.0/24"]"#).expect("a list"), ["192.0.2.0/24"]);
    }

    #[test]
    fn text_list_with_comments_and_columns_is_parsed() {
        let text = "\u{feff}# ours\n\n192.0.2.0/25 # a\r\n192.0.2.128/25,US,US-CA,,\n2001:db8::1\n";
        assert_eq!(parse_list(text).expect("a list"), ["192.0.2.0/24", "2001:db8::1/128"]);
    }

    #[test]
    fn invalid_list_is_rejected_as_a_whole() {
        for text in ["<!doctype html>", "{", "192.0.2.0/24\nnonsense", "192.0.2.0/33", "[[]"] {
            assert!(
                matches!(parse_list(text), Err(RangeListError::InvalidFormat(_))),
                "{text}: {:?}",
                parse_list(text)
            );
        }
        assert!(matches!(parse(b"\xff\xfe"), Err(RangeListError::InvalidFormat(_))));
        for text in ["", "# nothing\n", "[]", r#"{"prefixes": []}"#, r#"{"error": "no"}"#] {
            assert_eq!(parse_list(text), Err(RangeListError::Empty), "{text}");
        }
    }

    #[test]
    fn overly_wide_and_too_many_networks_are_rejected() {
        for (text, fits) in [
            ("0.0.0.0/0", false),
            ("20.0.0.0/7", false),
            ("17.0.0.0/8", true),
            ("2000::/18", false),
            ("2a03::/19", true),
        ] {
            assert_eq!(parse_list(text).is_ok(), fits, "{text}");
        }
        let many: Vec<String> = (0..=MAX_NETWORKS as u32)
            .map(|number| std::net::Ipv4Addr::from(number * 2 + 0x0b00_0000).to_string())
            .collect();
        assert_eq!(parse_list(&many.join("\n")), Err(RangeListError::TooMany));
    }

    #[test]
    fn total_width_of_networks_is_limited() {
        let all_of =
            |prefixes: std::ops::Range<u32>| prefixes.map(|first| format!("{first}.0.0.0/8\n")).collect::<String>();
        assert_eq!(parse_list(&all_of(0..256)), Err(RangeListError::TooWideTogether));
        assert_eq!(parse_list(&all_of(16..19)), Err(RangeListError::TooWideTogether), "in any combination");
        assert!(parse_list(&all_of(16..18)).is_ok());
        assert_eq!(parse_list("2000::/19\n2001::/19\n2a03::/19\n2c00::/19\n"), Err(RangeListError::TooWideTogether));
    }

    #[test]
    fn list_growth_is_limited() {
        let networks = |text: &str| parse(text.as_bytes()).expect("a list");
        let before = networks("192.0.2.0/24\n2001:db8::/48\n");
        for (now, fits) in [
            ("192.0.2.0/24\n198.18.0.0/16\n", false),
            ("192.0.2.0/24\n198.18.0.0/17\n", true),
            ("192.0.2.0/24\n2001:db8::/40\n", false),
            ("192.0.2.0/24\n2001:db8::/45\n", true),
        ] {
            assert_eq!(check_change(&before, networks(now)).is_ok(), fits, "{now}");
        }
        assert_eq!(check_change(&networks("10.0.0.0/16"), networks("10.0.0.0/11")), Err(RangeListError::Grown(32)));
        assert!(check_change(&[], networks("17.0.0.0/8")).is_ok(), "there is no previous version");
    }

    #[test]
    fn list_can_shrink_by_at_most_half() {
        let networks = |count: u8| {
            parse((0..count).map(|number| format!("192.0.{}.0/25\n", number * 2)).collect::<String>().as_bytes())
                .expect("a list")
        };
        assert_eq!(check_change(&networks(10), networks(5)), Ok(networks(5)));
        assert_eq!(check_change(&networks(10), networks(4)), Err(RangeListError::Shrunk { before: 10, now: 4 }));
        assert_eq!(check_change(&[], networks(1)), Ok(networks(1)));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "\\PC*", json in r#"[\{\[]"?(prefixes|ipv4Prefix)?[\]\}":, 0-9./]*"#) {
            let _ = (parse(text.as_bytes()), parse(json.as_bytes()));
        }
    }
}
