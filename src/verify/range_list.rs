//! A list of networks as somebody publishes it, and whether to believe it.
//!
//! Google's JSON is what most operators have; a network a line, and what may follow it (a geofeed's country), is what the
//! others have. A list is taken whole or not at all: half of it would make impostors of the rest.

use super::range_source::network;
use crate::policy::identity::is_wider_than_crawlers;
use ipnet::IpNet;
use serde_json::Value;

/// Why a list is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeListError {
    /// It is neither JSON with prefixes nor text with a network a line.
    #[error("it is no list of networks: {0}")]
    InvalidFormat(String),
    /// It has no network.
    #[error("it is empty")]
    Empty,
    /// A network in it is wider than any crawler needs.
    #[error("{0} is wider than any crawler's network")]
    TooWide(IpNet),
    /// Its networks together are more than any operator has.
    #[error("its networks are together wider than any operator's")]
    TooWideTogether,
    /// It has many times the addresses that it had.
    #[error("it has grown to {0} times the addresses that it had")]
    Grown(u128),
    /// It has more networks than any operator.
    #[error("it has more than {MAX_NETWORKS} networks")]
    TooMany,
    /// It has lost most of what it had.
    #[error("it has shrunk from {before} networks to {now}, by more than half")]
    Shrunk {
        /// How many networks it had.
        before: usize,
        /// How many it has.
        now: usize,
    },
}

/// Reads a list; the networks in it are sorted, and none is part of another.
pub fn parse(bytes: &[u8]) -> Result<Vec<IpNet>, RangeListError> {
    let text = std::str::from_utf8(bytes).map_err(|_| RangeListError::InvalidFormat("it is not text".into()))?;
    let networks = match text.trim_start_matches('\u{feff}').trim_start() {
        json if json.starts_with(['{', '[']) => parse_json(json)?,
        lines => parse_lines(lines)?,
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
            let is_plausible = AddressSpace::of(&networks).fits_in(MAX_ADDRESS_SPACE);
            if is_plausible { Ok(networks) } else { Err(RangeListError::TooWideTogether) }
        }
    }
}

/// Refuses a list that has lost most of what it had, or has many times as much: more likely somebody's mistake, or somebody
/// else's list, than the end of a data centre, or sixteen new ones.
pub(super) fn check_change(before: &[IpNet], now: Vec<IpNet>) -> Result<Vec<IpNet>, RangeListError> {
    let before = IpNet::aggregate(&before.to_vec());
    if now.len() * 2 < before.len() {
        return Err(RangeListError::Shrunk { before: before.len(), now: now.len() });
    }
    if before.is_empty() {
        return Ok(now);
    }
    let (had, has) = (AddressSpace::of(&before), AddressSpace::of(&now));
    let most = AddressSpace { v4: had.v4.max(SMALL.v4) * GROWTH, v6: had.v6.max(SMALL.v6) * GROWTH };
    match has.fits_in(most) {
        true => Ok(now),
        false => Err(RangeListError::Grown((has.v4 / had.v4.max(1)).max(has.v6 / had.v6.max(1)))),
    }
}

/// How much of the internet networks cover: IPv4 addresses, and IPv6 networks of 64 bits, or parts of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AddressSpace {
    v4: u128,
    v6: u128,
}

impl AddressSpace {
    /// Of networks none of which is part of another.
    fn of(networks: &[IpNet]) -> Self {
        networks.iter().fold(Self { v4: 0, v6: 0 }, |sum, network| match network {
            IpNet::V4(v4) => Self { v4: sum.v4 + (1 << (32 - v4.prefix_len())), ..sum },
            IpNet::V6(v6) => Self { v6: sum.v6 + (1 << 64_u8.saturating_sub(v6.prefix_len())), ..sum },
        })
    }

    fn fits_in(self, most: Self) -> bool {
        self.v4 <= most.v4 && self.v6 <= most.v6
    }
}

/// Twice the widest network that is believed of anybody, in either family: an /8 and a /19.
const MAX_ADDRESS_SPACE: AddressSpace = AddressSpace { v4: 2 << 24, v6: 2 << 45 };

/// So many times what it had is no growth of a list ...
const GROWTH: u128 = 16;

/// ... that had this much, a /20 and a /48: a small one may double and double again.
const SMALL: AddressSpace = AddressSpace { v4: 1 << 12, v6: 1 << 16 };

fn parse_json(text: &str) -> Result<Vec<IpNet>, RangeListError> {
    let value: Value = serde_json::from_str(text).map_err(|error| RangeListError::InvalidFormat(error.to_string()))?;
    let entries = value.as_array().or_else(|| value["prefixes"].as_array());
    let entries = entries.ok_or_else(|| RangeListError::InvalidFormat("it has no `prefixes`".into()))?;
    let prefixes =
        entries.iter().flat_map(|entry| [entry.as_str(), entry["ipv4Prefix"].as_str(), entry["ipv6Prefix"].as_str()]);
    prefixes.flatten().map(parse_network).collect()
}

fn parse_lines(text: &str) -> Result<Vec<IpNet>, RangeListError> {
    let lines = text.lines().map(|line| line.split_once('#').map_or(line, |(line, _)| line).trim());
    let first = |line: &str| parse_network(line.split([',', ';', ' ', '\t']).next().unwrap_or_default());
    lines.filter(|line| !line.is_empty()).map(first).collect()
}

fn parse_network(text: &str) -> Result<IpNet, RangeListError> {
    // What is quoted in the log is short, whatever was sent.
    let shown = || text.chars().take(40).filter(|letter| !letter.is_control()).collect::<String>();
    network(text).ok_or_else(|| RangeListError::InvalidFormat(format!("`{}` is no network", shown())))
}

/// The longest list of any crawler has a few thousand; this many take 10 MiB.
const MAX_NETWORKS: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(text: &str) -> Result<Vec<String>, RangeListError> {
        parse(text.as_bytes()).map(|networks| networks.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn googles_json_is_read_with_all_that_others_make_of_it() {
        let text = r#"{"creationTime": "2026-08-20T14:46:45.000000", "extra": 1, "prefixes": [
            {"ipv6Prefix": "2001:4860:4801:10::/64"}, {"ipv4Prefix": "66.249.64.0/27", "service": "x"},
            {"ipv4Prefix": "192.0.2.7"}, {"ipv4Prefix": "198.51.100.77/24"}, {"comment": "nothing"}]}"#;
        let expected = ["66.249.64.0/27", "192.0.2.7/32", "198.51.100.0/24", "2001:4860:4801:10::/64"];
        let mut found = list(text).expect("a list");
        found.sort();
        let mut expected = expected.map(str::to_owned);
        expected.sort();
        assert_eq!(found, expected);
        assert_eq!(list(r#"["192.0.2.0/24"]"#).expect("a list"), ["192.0.2.0/24"]);
    }

    #[test]
    fn a_network_a_line_is_read_with_comments_and_what_follows() {
        let text = "\u{feff}# ours\n\n192.0.2.0/25 # a\r\n192.0.2.128/25,US,US-CA,,\n2001:db8::1\n";
        assert_eq!(list(text).expect("a list"), ["192.0.2.0/24", "2001:db8::1/128"]);
    }

    #[test]
    fn what_is_no_list_is_refused_whole() {
        for text in ["<!doctype html>", "{\"error\": \"no\"}", "{", "192.0.2.0/24\nnonsense", "192.0.2.0/33", "[[]"] {
            assert!(matches!(list(text), Err(RangeListError::InvalidFormat(_))), "{text}: {:?}", list(text));
        }
        assert!(matches!(parse(b"\xff\xfe"), Err(RangeListError::InvalidFormat(_))));
        for text in ["", "# nothing\n", "[]", r#"{"prefixes": []}"#] {
            assert_eq!(list(text), Err(RangeListError::Empty), "{text}");
        }
    }

    #[test]
    fn what_no_crawler_has_is_refused() {
        for (text, fits) in [
            ("0.0.0.0/0", false),
            ("20.0.0.0/7", false),
            ("17.0.0.0/8", true),
            ("2000::/18", false),
            ("2a03::/19", true),
        ] {
            assert_eq!(list(text).is_ok(), fits, "{text}");
        }
        let many: Vec<String> = (0..=MAX_NETWORKS as u32)
            .map(|number| std::net::Ipv4Addr::from(number * 2 + 0x0b00_0000).to_string())
            .collect();
        assert_eq!(list(&many.join("\n")), Err(RangeListError::TooMany));
    }

    #[test]
    fn networks_that_together_are_wider_than_any_operators_are_refused() {
        let all_of =
            |prefixes: std::ops::Range<u32>| prefixes.map(|first| format!("{first}.0.0.0/8\n")).collect::<String>();
        assert_eq!(list(&all_of(0..256)), Err(RangeListError::TooWideTogether));
        assert_eq!(list(&all_of(16..19)), Err(RangeListError::TooWideTogether), "however they are put together");
        assert!(list(&all_of(16..18)).is_ok());
        assert_eq!(list("2000::/19\n2001::/19\n2a03::/19\n2c00::/19\n"), Err(RangeListError::TooWideTogether));
    }

    #[test]
    fn a_list_may_grow_but_not_to_somebody_elses() {
        let of = |text: &str| parse(text.as_bytes()).expect("a list");
        let before = of("192.0.2.0/24\n2001:db8::/48\n");
        for (now, fits) in [
            ("192.0.2.0/24\n198.18.0.0/16\n", false),
            ("192.0.2.0/24\n198.18.0.0/17\n", true),
            ("192.0.2.0/24\n2001:db8::/40\n", false),
            ("192.0.2.0/24\n2001:db8::/45\n", true),
        ] {
            assert_eq!(check_change(&before, of(now)).is_ok(), fits, "{now}");
        }
        assert_eq!(check_change(&of("10.0.0.0/16"), of("10.0.0.0/11")), Err(RangeListError::Grown(32)));
        assert!(check_change(&[], of("17.0.0.0/8")).is_ok(), "nothing is known of it");
    }

    #[test]
    fn a_list_may_lose_half_and_not_more() {
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
        fn no_text_makes_it_panic(text in "\\PC*", json in r#"[\{\[]"?(prefixes|ipv4Prefix)?[\]\}":, 0-9./]*"#) {
            let _ = (parse(text.as_bytes()), parse(json.as_bytes()));
        }
    }
}
