//! How crawlers are held to what they say, and the operators that the file adds or changes.

use super::diagnostics::Diagnostics;
use crate::config::raw::verify::{self as raw, Refresh};
use crate::config::scalars::Pattern;
use crate::config::serde_forms::{NamedMap, OneOrMany};
use crate::config::settings::{CrawlerOperator, Dns, ProofMethod, RangeFile, Signatures, Verify};
use crate::policy::identity::is_wider_than_crawlers;
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const TIMEOUT: Duration = Duration::from_secs(2);

/// How long a signature may hold at most, as the draft standard recommends.
const DEFAULT_MAX_LIFETIME: Duration = DAY;

/// Whoever publishes a list should not be asked more often.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_secs(60);

/// A product token is a word; what is longer was not meant to be one.
const MAX_TOKEN_LEN: usize = 64;

pub(super) fn verify(raw: &raw::Verify, report: &mut Diagnostics) -> Verify {
    let dns = match &raw.dns {
        raw::Dns::Off => None,
        raw::Dns::On => Some(Dns { nameservers: Vec::new(), timeout: TIMEOUT }),
        raw::Dns::Servers(servers) => Some(Dns {
            nameservers: nameservers(servers, report),
            timeout: report.nonzero_duration(
                "verify.dns.timeout",
                servers.timeout.as_ref().map(|span| span.0),
                TIMEOUT,
            ),
        }),
    };
    let refresh = match &raw.refresh {
        Refresh::Off => None,
        Refresh::Daily => Some(DAY),
        Refresh::Every(span) => {
            if span.0 < MIN_REFRESH_INTERVAL {
                report.error("verify.refresh", "found less than a minute", "write a duration such as 24h, or off");
            }
            Some(span.0)
        }
    };
    Verify { dns, refresh, signatures: signatures(&raw.signatures, report) }
}

fn nameservers(raw: &raw::Servers, report: &mut Diagnostics) -> Vec<SocketAddr> {
    let Some(servers) = &raw.nameservers else { return Vec::new() };
    if servers.0.is_empty() {
        let remedy = "write one such as 127.0.0.1:53, leave it out to ask the system's, or write dns: off";
        report.error("verify.dns.nameservers", "names no server", remedy);
    }
    servers.0.iter().map(|server| server.0).collect()
}

fn signatures(raw: &raw::Signatures, report: &mut Diagnostics) -> Option<Signatures> {
    let max_lifetime = raw.max_lifetime.as_ref().map(|span| span.0);
    let max_lifetime = report.nonzero_duration("verify.signatures.max_lifetime", max_lifetime, DEFAULT_MAX_LIFETIME);
    raw.enabled.unwrap_or(true).then_some(Signatures { unlisted_agents: raw.unlisted_agents, max_lifetime })
}

/// The operators that the file adds or changes; `known` are all others by name.
pub(super) fn operators(
    raw: &NamedMap<raw::Operator>,
    known: &[&str],
    report: &mut Diagnostics,
) -> Vec<CrawlerOperator> {
    let operators = raw.0.iter().map(|(name, written)| operator(name, written, known, report)).collect();
    check_unique(raw, "tokens", |operator| operator.tokens.as_ref(), report);
    check_unique(raw, "signature_agents", |operator| operator.signature_agents.as_ref(), report);
    operators
}

/// What crawlers say of themselves is one operator's: the last in the file would have it, and the others nothing.
fn check_unique(
    raw: &NamedMap<raw::Operator>,
    key: &str,
    of: impl Fn(&raw::Operator) -> Option<&OneOrMany<String>>,
    report: &mut Diagnostics,
) {
    let mut told: Vec<(&str, &str)> = Vec::new();
    for (name, written) in &raw.0 {
        let before = told.len();
        each(of(written), &format!("operators.{name}.{key}"), |path, text| {
            if let Some((_, other)) = told[..before].iter().find(|(known, _)| known.eq_ignore_ascii_case(text)) {
                report.error(path, format!("{text:?} stands under operators.{other}, too"), "keep one of them");
            }
        });
        told.extend(of(written).iter().flat_map(|list| &list.0).map(|text| (text.as_str(), name.as_str())));
    }
}

/// The files among the sources of addresses, each with where it is named.
pub(super) fn range_files(raw: &NamedMap<raw::Operator>, report: &Diagnostics) -> Vec<RangeFile> {
    let mut files = Vec::new();
    each_range(raw, |path, source| {
        if !is_network(source) && !source.contains("://") {
            let named_at = format!("{}: {path}", report.location_of(path));
            files.push(RangeFile { file: source.into(), named_at });
        }
    });
    files
}

/// Whoever writes a URL wants it to be asked.
pub(super) fn warn_unfetched(raw: &NamedMap<raw::Operator>, verify: &Verify, report: &mut Diagnostics) {
    if verify.refresh.is_some() {
        return;
    }
    each_range(raw, |path, source| {
        if source.contains("://") {
            // A query may hold a key.
            let (place, url) = (report.location_of(path), source.split('?').next().unwrap_or_default());
            report.warning(format!("{place}: {path}: {url} is not fetched, because verify.refresh is off"));
        }
    });
}

fn each_range(raw: &NamedMap<raw::Operator>, mut look: impl FnMut(&str, &str)) {
    for (name, written) in &raw.0 {
        each(written.ranges.as_ref(), &format!("operators.{name}.ranges"), &mut look);
    }
}

fn operator(name: &str, raw: &raw::Operator, known: &[&str], report: &mut Diagnostics) -> CrawlerOperator {
    let path = format!("operators.{name}");
    report.name(&path, name);
    if !known.contains(&name) {
        let signs = raw.signature_agents.is_some();
        if raw.tokens.is_none() && !signs {
            report.warning(format!("{path}: none is built in by that name, and without tokens nobody claims it"));
        }
        if raw.ranges.is_none() && raw.names.is_none() && !signs {
            report.warning(format!("{path}: without ranges, names or signature_agents nothing proves it"));
        }
    }
    let texts = |list: &Option<OneOrMany<String>>| list.as_ref().map(|list| list.0.clone());
    each(raw.tokens.as_ref(), &format!("{path}.tokens"), |path, token| {
        self::token(path, token, report);
        warn_version(path, token, report);
    });
    each(raw.ranges.as_ref(), &format!("{path}.ranges"), |path, source| self::source(path, source, report));
    each(raw.signature_agents.as_ref(), &format!("{path}.signature_agents"), |path, agent| {
        self::agent(path, agent, report);
    });
    let patterns = |list: &OneOrMany<Pattern>| list.0.iter().map(|pattern| pattern.0.clone()).collect();
    let complete = |list: &OneOrMany<raw::ProofMethodName>| list.0.iter().copied().map(Into::into).collect();
    CrawlerOperator {
        name: name.to_owned(),
        tokens: texts(&raw.tokens),
        ranges: texts(&raw.ranges),
        names: raw.names.as_ref().map(patterns),
        complete: raw.complete.as_ref().map(complete),
        signature_agents: texts(&raw.signature_agents),
    }
}

/// Looks at each text of a list, with its path.
fn each(list: Option<&OneOrMany<String>>, path: &str, mut look: impl FnMut(&str, &str)) {
    match list.map(|list| list.0.as_slice()) {
        Some([one]) => look(path, one),
        Some(many) => many.iter().enumerate().for_each(|(index, text)| look(&format!("{path}[{index}]"), text)),
        None => {}
    }
}

fn token(path: &str, token: &str, report: &mut Diagnostics) {
    let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    if token.trim() != token || !(2..=MAX_TOKEN_LEN).contains(&token.len()) || !token.bytes().all(printable) {
        report.error(path, format!("{token:?} is no product token"), "write it like ExampleBot, without a version");
    }
}

/// It is looked for as it stands.
fn warn_version(path: &str, token: &str, report: &mut Diagnostics) {
    let version = token.split_once('/').filter(|(_, rest)| rest.starts_with(|sign: char| sign.is_ascii_digit()));
    if let Some((product, _)) = version {
        report.warning(format!("{path}: {token:?} is that version alone; {product} is all of them"));
    }
}

/// A file may be anything; a URL must be one that is fetched, and a network one that a crawler may have.
fn source(path: &str, source: &str, report: &mut Diagnostics) {
    let remedy = "write a network, an https:// URL or the path of a file";
    if source.trim().is_empty() {
        return report.error(path, "names no source", remedy);
    }
    if source.parse().is_ok_and(|network: IpNet| is_wider_than_crawlers(network.addr(), network.prefix_len())) {
        let wrong = format!("{source} is wider than any crawler's network");
        return report.error(path, wrong, "write what its crawlers have: at most an IPv4 /8 or an IPv6 /19");
    }
    let Some((scheme, rest)) = source.split_once("://") else {
        if looks_like_network(source) && !is_network(source) {
            report.error(path, format!("{source:?} is no network"), "write it like 192.0.2.0/24 or 2001:db8::/32");
        }
        return;
    };
    let uri: Option<http::Uri> = source.parse().ok().filter(|_| !rest.contains('@'));
    let host = uri.as_ref().and_then(http::Uri::host);
    match (scheme, host) {
        ("https", Some(_)) | ("http", Some("127.0.0.1" | "[::1]" | "localhost")) => {}
        ("http", Some(_)) => {
            report.error(
                path,
                "anybody on the way could write that list",
                "use https://; http:// is for this machine alone",
            );
        }
        _ => report.error(path, format!("{source:?} cannot be fetched"), remedy),
    }
}

fn is_network(text: &str) -> bool {
    text.parse::<IpNet>().is_ok() || text.parse::<IpAddr>().is_ok()
}

/// No file has such a name: digits and dots, or what has colons besides.
fn looks_like_network(text: &str) -> bool {
    let only = |signs: &str| text.bytes().all(|byte| byte.is_ascii_digit() || signs.as_bytes().contains(&byte));
    text.starts_with(|first: char| first.is_ascii_hexdigit() || first == ':')
        && ((text.contains('.') && only("./")) || (text.contains(':') && only("abcdefABCDEF.:/")))
}

fn agent(path: &str, agent: &str, report: &mut Diagnostics) {
    let host = |url: http::Uri| url.scheme_str() == Some("https") && url.host().is_some_and(|host| !host.is_empty());
    if !agent.parse().is_ok_and(host) || agent.contains('@') {
        report.error(path, format!("{agent:?} is no agent's address"), "write it like https://bot.example");
    }
}

impl From<raw::ProofMethodName> for ProofMethod {
    fn from(known: raw::ProofMethodName) -> Self {
        match known {
            raw::ProofMethodName::Addresses => Self::Addresses,
            raw::ProofMethodName::Names => Self::Names,
        }
    }
}
