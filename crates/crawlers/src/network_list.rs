//! Reader of lists of networks: those that operators publish, and files of the administrator.
//!
//! Text has one network a line, perhaps followed by other columns (a reason, a country), in the forms of Spamhaus DROP,
//! FireHOL, geofeeds (RFC 8805), CSV and the Tor exit list. JSON has them at any depth, in the forms of Google, AWS, Azure,
//! Oracle, Cloudflare, Fastly and GitHub. A word that should be a network and is none makes the list invalid: a partial
//! list would let through, or refuse, the clients that it lacks.

use serde_json::Value;
use tidegate_policy::network::IpPrefix;

/// A part of a list that is not a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidEntry {
    /// Line number of a text, from 1, or the line of a syntax error in JSON; `None` for a value in JSON.
    pub(crate) line: Option<u64>,
    /// The part that was found, truncated and without control characters; or the syntax error.
    pub(crate) found: String,
}

/// Reads the networks of a list. Returns the invalid entries, at most 100, on error.
pub(crate) fn parse(text: &str) -> Result<Vec<IpPrefix>, Vec<InvalidEntry>> {
    let text = text.trim_start_matches('\u{feff}');
    let (mut networks, mut invalid) = (Vec::new(), Vec::new());
    let mut add = |line: Option<u64>, found: &str| {
        match IpPrefix::parse(found) {
            Some(network) => networks.push(network),
            None => invalid.push(InvalidEntry { line, found: excerpt(found) }),
        }
        invalid.len() < MAX_REPORTED
    };
    if text.trim_start().starts_with(['{', '[']) {
        match serde_json::from_str(text) {
            Ok(value) => collect(&value, Role::Network, &mut |found| {
                add(None, found);
            }),
            Err(error) => {
                invalid.push(InvalidEntry { line: Some(error.line() as u64), found: excerpt(&error.to_string()) });
            }
        }
    } else {
        let mut lines = (1..).zip(text.lines()).map(|(number, line)| (number, columns(line))).peekable();
        // The header of a CSV file.
        let _ = lines.next_if(|(_, columns)| {
            columns.is_some_and(|first| COLUMN_NAMES.iter().any(|name| first.eq_ignore_ascii_case(name)))
        });
        for (number, found) in lines.filter_map(|(number, found)| Some((number, found?))) {
            if !add(Some(number), found) {
                break;
            }
        }
    }
    if invalid.is_empty() { Ok(networks) } else { Err(invalid) }
}

/// Returns the column with the network; `None` if the line has none.
fn columns(line: &str) -> Option<&str> {
    let line = line.split_once('#').map_or(line, |(line, _comment)| line).trim();
    let mut words = line.split([',', ';', ' ', '\t']).map(|word| word.trim_matches('"'));
    let first = words.next().filter(|first| !first.is_empty() && !first.starts_with("//"))?;
    match first {
        "ExitAddress" => words.next(),
        "ExitNode" | "Published" | "LastStatus" => None,
        first => Some(first),
    }
}

/// What a text in JSON is, by the key that leads to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// A network, or the list is invalid.
    Network,
    /// A network if it is one with a prefix length; anything else is ignored.
    Unknown,
}

/// Passes the texts of networks to `add`. Recursion is bounded by the parser.
fn collect(value: &Value, role: Role, add: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) if role == Role::Network || (text.contains('/') && IpPrefix::parse(text).is_some()) => {
            add(text);
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, role, add)),
        Value::Object(members) => {
            for (key, value) in members {
                collect(value, role_of(key), add);
            }
        }
        _ => {}
    }
}

/// Returns the role of the texts under `key`, such as `ipv4Prefix`, `ip_prefix`, `addressPrefixes`, `cidrs` or `addresses`.
fn role_of(key: &str) -> Role {
    let key = key.to_ascii_lowercase();
    let is_network = ["prefix", "prefixes", "cidr", "cidrs", "addresses"].iter().any(|end| key.ends_with(end));
    if is_network || key == "ip" || key == "ips" { Role::Network } else { Role::Unknown }
}

/// Returns the text as an error shows it: short, whatever was received.
fn excerpt(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(MAX_EXCERPT).collect()
}

/// Names of the first column in the header of a CSV file.
const COLUMN_NAMES: [&str; 8] = ["ip", "ip_address", "address", "network", "cidr", "prefix", "ip_prefix", "range"];
/// Maximum number of invalid entries reported, since the text may not be a list at all.
const MAX_REPORTED: usize = 100;
const MAX_EXCERPT: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn networks(text: &str) -> Vec<String> {
        let networks = parse(text).unwrap_or_else(|invalid| panic!("{text}: {invalid:?}"));
        networks.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn forms_of_text_lists_are_read() {
        let one = &["203.0.113.0/24"][..];
        for (form, text, expected) in [
            ("plain", "203.0.113.0/24\n", one),
            ("Windows", "\u{feff}203.0.113.0/24\r\n\r\n", one),
            ("comments", "# level 1\n\n203.0.113.9/24   # host bits\n", one),
            ("Spamhaus DROP", "; DROP List\n; Expires: later\n203.0.113.0/24 ; SBL256894\n", one),
            ("geofeed", "203.0.113.0/24,US,US-CA,Fremont,\n", one),
            ("CSV", "203.0.113.7,scan\n\"2001:db8::1\",\"a, b\"\n", &["203.0.113.7/32", "2001:db8::1/128"]),
            ("CSV with a header", "IP_Address;reason\n203.0.113.7;scan\n", &["203.0.113.7/32"]),
            ("tabs", "203.0.113.7\t12\t2026-11-25\n", &["203.0.113.7/32"]),
            (
                "Tor exits",
                "ExitNode 0011BD24\nPublished 2026-11-25 09:00:00\nLastStatus 2026-11-25 10:00:00\n\
                 ExitAddress 203.0.113.7 2026-11-25 10:00:00\n",
                &["203.0.113.7/32"],
            ),
            ("mapped", "::ffff:203.0.113.0/120\n", one),
            ("nothing", "# none\n", &[]),
        ] {
            assert_eq!(networks(text), expected, "{form}");
        }
    }

    #[test]
    fn forms_of_json_lists_are_read() {
        for (form, text) in [
            (
                "Google",
                r#"{"syncToken":"1","prefixes":[{"ipv4Prefix":"203.0.113.0/24","service":"x"},{"ipv6Prefix":"2001:db8::/32"},{"comment":"nothing"}]}"#,
            ),
            (
                "AWS",
                r#"{"createDate":"2026-11-25","prefixes":[{"ip_prefix":"203.0.113.0/24","region":"eu-west-1","service":"EC2"}],"ipv6_prefixes":[{"ipv6_prefix":"2001:db8::/32","network_border_group":"eu"}]}"#,
            ),
            (
                "Azure",
                r#"{"cloud":"Public","values":[{"name":"A","properties":{"platform":"Azure","addressPrefixes":["203.0.113.0/24","2001:db8::/32"],"networkFeatures":["API","NSG"]}}]}"#,
            ),
            (
                "Oracle",
                r#"{"regions":[{"region":"eu","cidrs":[{"cidr":"203.0.113.0/24","tags":["OCI"]},{"cidr":"2001:db8::/32","tags":[]}]}]}"#,
            ),
            (
                "Cloudflare",
                r#"{"result":{"ipv4_cidrs":["203.0.113.0/24"],"ipv6_cidrs":["2001:db8::/32"],"etag":"1"},"success":true}"#,
            ),
            ("Fastly", r#"{"addresses":["203.0.113.0/24"],"ipv6_addresses":["2001:db8::/32"]}"#),
            (
                "GitHub",
                r#"{"verifiable_password_authentication":false,"hooks":["203.0.113.0/24","2001:db8::/32"],"domains":{"website":["*.example.com"]}}"#,
            ),
            ("array", "\n[\"203.0.113.0/24\", \"2001:db8::/32\"]"),
        ] {
            let mut networks = networks(text);
            networks.sort();
            assert_eq!(networks, ["2001:db8::/32", "203.0.113.0/24"], "{form}");
        }
    }

    #[test]
    fn invalid_entries_are_named() {
        let found = |text: &str| -> Vec<(Option<u64>, String)> {
            parse(text).expect_err(text).into_iter().map(|entry| (entry.line, entry.found)).collect()
        };
        assert_eq!(
            found("192.0.2.1\n300.1.1.1\n# fine\n192.0.2.0/33\nexample.com # why\n"),
            [(Some(2), "300.1.1.1".into()), (Some(4), "192.0.2.0/33".into()), (Some(5), "example.com".into())]
        );
        assert_eq!(found("192.0.2.1\nip,reason\n"), [(Some(2), "ip".into())], "a header is the first line");
        assert_eq!(
            found(r#"{"prefixes":[{"ip_prefix":"203.0.113.0/24"},{"ip_prefix":"nowhere"}]}"#),
            [(None, "nowhere".into())]
        );
        assert_eq!(found(r#"["203.0.113.0/24", "nowhere"]"#), [(None, "nowhere".into())]);
        assert_eq!(found("{\n\"prefixes\": [").len(), 1, "an incomplete file");
        assert_eq!(found(&"x\n".repeat(5000)).len(), 100);
        assert_eq!(found(&format!("{}\u{1b}\n", "y".repeat(100)))[0].1, "y".repeat(60));
    }

    proptest! {
        #[test]
        fn networks_are_read_whatever_columns_follow(
            entries in proptest::collection::vec((any::<u32>(), 0u8..=32), 1..20),
            rest in "([,; \t]([a-z0-9. ]{0,20}))?(#[ -~]{0,20})?",
        ) {
            let texts = entries.iter().map(|&(address, length)| format!("{}/{length}", std::net::Ipv4Addr::from(address)));
            let text: String = texts.map(|network| format!("{network}{rest}\n")).collect();
            prop_assert_eq!(parse(&text).map(|networks| networks.len()), Ok(entries.len()));
        }

        #[test]
        fn text_of_any_kind_never_panics(text in "\\PC*", json in r#"[\{\[]"?(prefixes|ipv4Prefix)?[\]\}":, 0-9./]*"#) {
            let _ = (parse(&text), parse(&json));
        }
    }
}
