//! Invariants of the parsers of untrusted input. Each takes arbitrary bytes and panics if it is violated. The fuzz
//! targets and `tests/integration/fuzz_corpus.rs` share them.

use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;
use serde_json::Value;
use std::net::IpAddr;
use tidegate::http1::Fields;
use tidegate::policy::identity::{AddressSource, ProxyTrust};
use tidegate::policy::network::IpPrefix;
use tidegate::policy::route::{MatchOptions, Pattern, normalize};
use tidegate::robots::{RobotsDirectives, merge_directives};
use tidegate::verify::read_list;
use tidegate::verify::signature::read_signed_fields;

/// A robots.txt with directives merged in keeps every line of the origin in order, except delays. A second merge does
/// not change it.
pub(crate) fn robots(text: &[u8]) {
    let delays = [("bingbot", 30), ("msnbot-media", 30), ("CCBot", 5), ("Applebot", 7), ("AdsBot-Google", 9)];
    let directives = RobotsDirectives {
        per_crawler: delays.map(|(name, seconds)| (name.to_owned(), seconds)).to_vec(),
        default: Some(10),
        honeypot: Some("/t-r-a-p".into()),
    };
    let Some(once) = merge_directives(text, &directives) else { return };
    let mut rest = lines(&once);
    let mut expected = lines(text).filter(|line| !line.to_ascii_lowercase().starts_with(b"crawl"));
    assert!(expected.all(|line| rest.any(|other| other == line)), "a line of the origin is lost");
    assert_eq!(merge_directives(&once, &directives).as_ref(), Some(&once), "a second merge changes the text");
}

/// A pattern made of a path matches that path. A pattern that ignores spelling also matches its other spellings.
pub(crate) fn paths(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(path) = normalize(text) else { return };
    assert_eq!(normalize(&path).as_deref(), Ok(&*path), "normalization is not idempotent");
    // A star in a path would be a wildcard of the pattern.
    let Ok(exact) = Pattern::parse(&path.replace('*', "%2A")) else { return };
    let path = path.replace('*', "%2A");
    assert!(exact.matches(&path), "a pattern does not match its own path");
    let lenient = exact.with_match_options(MatchOptions { ignore_case: true, ignore_trailing_slash: true });
    let bare = path.strip_suffix('/').filter(|bare| !bare.is_empty()).unwrap_or(&path);
    for other in [bare, &format!("/{bare}/"), &path.to_ascii_uppercase(), &path.to_ascii_lowercase()] {
        let other = normalize(other).expect("path has no NUL");
        assert!(lenient.matches(&other), "another spelling is missed: {other}");
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| matches!(byte, b'\r' | b'\n')).map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
}

/// The first byte selects the trusted header, the rest are its lines. Only hops of trusted proxies are accepted, and
/// entries that a client puts in front of the chain change nothing.
pub(crate) fn forwarded(bytes: &[u8]) {
    let (choice, rest) = bytes.split_first().unwrap_or((&b'x', &[]));
    let (source, forged): (_, &[u8]) = match choice % 3 {
        0 => (AddressSource::XForwardedFor, b"198.51.100.9"),
        1 => (AddressSource::Forwarded, b"for=198.51.100.9"),
        _ => (AddressSource::Header(HeaderName::from_static("x-real-ip")), b""),
    };
    let proxies = [("10.0.0.0", 8), ("2001:db8:aaaa::", 48)];
    let proxies = proxies.map(|(network, length)| IpPrefix::new(address(network), length).expect("valid prefix"));
    let trust = ProxyTrust { source, proxies: proxies.to_vec(), ipv6_prefix: 64 };
    let lines: Vec<&[u8]> = rest.split(|&byte| byte == b'\n').collect();

    let untrusted = address("203.0.113.5");
    let from_untrusted = trust.client(untrusted, &lines);
    assert_eq!((from_untrusted.client, from_untrusted.hops.len()), (untrusted, 0), "an untrusted peer is trusted");
    let proxy = address("10.1.2.3");
    let resolved = trust.client(proxy, &lines);
    assert!(resolved.hops.iter().all(|hop| trust.trusts(*hop)), "an untrusted hop is accepted");
    assert!(resolved.hops.len() <= 32, "a chain beyond the maximum length is accepted");
    if !forged.is_empty() && !trust.trusts(resolved.client) {
        let longer: Vec<&[u8]> = std::iter::once(forged).chain(lines).collect();
        let with_forged = trust.client(proxy, &longer);
        // A chain beyond the maximum length is ignored.
        assert!(
            with_forged == resolved || with_forged.client == proxy,
            "an entry written by the client changes its address"
        );
    }
}

/// A parsed list has only addresses of its text, none twice, and survives a round trip.
pub(crate) fn ranges(bytes: &[u8]) {
    let Ok(networks) = read_list(bytes) else { return };
    assert!(!networks.is_empty(), "an empty list would make every crawler an impostor");
    let expected = stated(std::str::from_utf8(bytes).expect("parsed list is UTF-8"));
    for network in &networks {
        let inside = expected.iter().filter(|address| network.contains(*address));
        let covered = addresses(inside);
        assert!(covered >= addresses([network]), "{network} is wider than the text");
    }
    let overlap = networks.windows(2).find(|pair| pair[0].contains(&pair[1]) || pair[1].contains(&pair[0]));
    assert_eq!(overlap, None, "networks overlap");
    let text: String = networks.iter().map(|network| format!("{network}\n")).collect();
    // Two adjacent networks of the maximum width are merged into a wider one, which is refused.
    if let Ok(reparsed) = read_list(text.as_bytes()) {
        assert_eq!(reparsed, networks, "the round trip changes the list");
    }
}

/// Parsing the signature in lines of header fields is deterministic.
pub(crate) fn signatures(bytes: &[u8]) {
    let fields = || Fields::from(&header(bytes));
    assert_eq!(read_signed_fields(fields()), read_signed_fields(fields()), "a second parse has another result");
}

fn header(bytes: &[u8]) -> HeaderMap {
    let field = |line: &[u8]| {
        let colon = line.iter().position(|&byte| byte == b':')?;
        let name = HeaderName::from_bytes(line[..colon].trim_ascii()).ok()?;
        Some((name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?))
    };
    let mut header = HeaderMap::new();
    for (name, value) in bytes.split(|&byte| byte == b'\n').filter_map(field) {
        header.append(name, value);
    }
    header
}

/// Returns every network in a text, parsed independently of the gateway's parser.
fn stated(text: &str) -> Vec<IpNet> {
    let mut texts = Vec::new();
    match serde_json::from_str(text.trim_start_matches('\u{feff}').trim_start()) {
        Ok(value) => collect(&value, &mut texts),
        Err(_) => texts.push(text.to_owned()),
    }
    let is_of_network = |letter: char| letter.is_ascii_hexdigit() || ".:/".contains(letter);
    let words = texts.iter().flat_map(|text| text.split(|letter| !is_of_network(letter)));
    let network = |word: &str| word.parse().ok().or_else(|| word.parse::<IpAddr>().ok().map(IpNet::from));
    words.filter_map(network).map(|network: IpNet| network.trunc()).collect()
}

fn collect(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| collect(value, texts)),
        Value::Object(entries) => entries.values().for_each(|value| collect(value, texts)),
        _ => {}
    }
}

/// Returns the number of addresses in `networks`. Addresses in two networks count twice.
fn addresses<'a>(networks: impl IntoIterator<Item = &'a IpNet>) -> u128 {
    let count = |network: &IpNet| 1u128.checked_shl((network.max_prefix_len() - network.prefix_len()).into());
    networks.into_iter().fold(0, |sum: u128, network| sum.saturating_add(count(network).unwrap_or(u128::MAX)))
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}
