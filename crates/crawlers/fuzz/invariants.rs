//! Invariants of the parsers of text about crawlers: robots.txt, published ranges and request signatures. Each takes
//! arbitrary bytes and panics if it is violated.

use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;
use serde_json::Value;
use std::net::IpAddr;
use tidegate_crawlers::robots::{RobotsDirectives, check_robots, merge_directives};
use tidegate_crawlers::verify::read_list;
use tidegate_crawlers::verify::signature::read_signed_fields;
use tidegate_http1::Fields;

/// A robots.txt with directives merged in keeps every line of the origin in order, except delays. A second merge does
/// not change it. Each finding of a check names a line.
pub(crate) fn robots(text: &[u8]) {
    let line_count = text.split(|byte| matches!(byte, b'\r' | b'\n')).count();
    let check = check_robots(text, "/a*b", &[("bingbot", "bingbot"), ("applebot", "Applebot")]);
    assert!(
        check.findings.iter().all(|finding| (1..=line_count).contains(&finding.line)),
        "a line that does not exist"
    );
    let delays = [("bingbot", 30), ("msnbot-media", 30), ("CCBot", 5), ("Applebot", 7), ("AdsBot-Google", 9)];
    let directives = RobotsDirectives {
        per_crawler: delays.map(|(name, seconds)| (name.to_owned(), seconds)).to_vec(),
        default: Some(10),
        honeypot: Some("/t-r-a-p".into()),
        usage: vec!["Content-Usage: train-ai=n".into()],
        ..RobotsDirectives::default()
    };
    let Some(once) = merge_directives(text, &directives) else { return };
    let mut rest = lines(&once);
    let mut expected = lines(text).filter(|line| !line.to_ascii_lowercase().starts_with(b"crawl"));
    assert!(expected.all(|line| rest.any(|other| other == line)), "a line of the origin is lost");
    assert_eq!(merge_directives(&once, &directives).as_ref(), Some(&once), "a second merge changes the text");
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| matches!(byte, b'\r' | b'\n')).map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
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
    let canonical = |network: IpNet| match (network, network.addr().to_canonical()) {
        (IpNet::V6(v6), IpAddr::V4(v4)) if v6.prefix_len() >= 96 => IpNet::new(v4.into(), v6.prefix_len() - 96),
        _ => Ok(network),
    };
    words
        .filter_map(network)
        .filter_map(|network: IpNet| canonical(network).ok())
        .map(|network| network.trunc())
        .collect()
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
