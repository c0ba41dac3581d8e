//! Validates `verify` and `operators`.

use super::diagnostics::Diagnostics;
use crate::authority;
use crate::raw::verify as raw;
use crate::scalars::Pattern;
use crate::serde_forms::{NamedMap, OneOrMany};
use crate::setting_path::SettingPath;
use crate::settings::{CrawlerOperator, Dns, RangeFile, Signatures, Verify};
use ipnet::IpNet;
use tidegate_policy::ProofMethod;
use tidegate_policy::network::{IpPrefix, is_wider_than_crawlers};

/// Maximum length of a product token, in bytes. A product token is a word.
const MAX_TOKEN_LEN: usize = 64;

pub(super) fn verify(raw: &raw::Verify) -> Verify {
    let dns = |servers: &raw::Servers| Dns { nameservers: servers.nameservers.clone(), timeout: servers.timeout };
    let raw::Signatures { enabled, fetch_unlisted_keys, max_lifetime, accept_signature } = raw.signatures;
    Verify {
        dns: match &raw.dns {
            raw::Dns::Off => None,
            raw::Dns::On => Some(dns(&raw::Servers::default())),
            raw::Dns::Servers(servers) => Some(dns(servers)),
        },
        refresh_interval: raw.refresh_interval,
        signatures: enabled.then_some(Signatures { fetch_unlisted_keys, max_lifetime, accept_signature }),
    }
}

/// Returns the operators that the file adds or changes. `known` are the names of the built-in operators.
pub(super) fn operators(
    raw: &NamedMap<raw::Operator>,
    known: &[&str],
    report: &mut Diagnostics,
) -> Vec<CrawlerOperator> {
    let operators = raw.0.iter().map(|(name, raw_operator)| operator(name, raw_operator, known, report)).collect();
    check_unique(raw, SettingPath::product_tokens, |operator| operator.product_tokens.as_ref(), |token| token, report);
    check_unique(raw, SettingPath::signature_agents, |operator| operator.signature_agents.as_ref(), agent_name, report);
    operators
}

/// Checks that no two operators of the file have the same product token or agent: only the last one would get it.
fn check_unique(
    raw: &NamedMap<raw::Operator>,
    path_of_key: impl Fn(&SettingPath) -> SettingPath,
    values_of: impl Fn(&raw::Operator) -> Option<&OneOrMany<String>>,
    name_of: impl Fn(&str) -> &str,
    report: &mut Diagnostics,
) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (name, operator) in &raw.0 {
        let before = seen.len();
        for_each_text(values_of(operator), &path_of_key(&SettingPath::of_operator(name)), |path, text| {
            if let Some((_, other)) = seen[..before].iter().find(|(known, _)| known.eq_ignore_ascii_case(name_of(text)))
            {
                let other = SettingPath::of_operator(other);
                report.error(path, format!("duplicate {text:?}: {other} has it, too"), "keep one of them");
            }
        });
        seen.extend(values_of(operator).iter().flat_map(|list| &list.0).map(|text| (name_of(text), name.as_str())));
    }
}

/// Returns the files among `ranges`, each with its location in the configuration.
pub(super) fn range_files(raw: &NamedMap<raw::Operator>, report: &Diagnostics) -> Vec<RangeFile> {
    let mut files = Vec::new();
    for_each_range(raw, |path, source| {
        if !is_network(source) && !source.contains("://") {
            let named_at = format!("{}: {path}", report.location_of(path));
            files.push(RangeFile { file: source.into(), location: named_at });
        }
    });
    files
}

/// Warns about each range list by URL that is never fetched because `refresh_interval` is off.
pub(super) fn warn_unfetched(raw: &NamedMap<raw::Operator>, verify: &Verify, report: &mut Diagnostics) {
    if verify.refresh_interval.is_some() {
        return;
    }
    for_each_range(raw, |path, source| {
        if source.contains("://") {
            // A query may contain a key.
            let (location, url) = (report.location_of(path), source.split('?').next().unwrap_or_default());
            report.warning(format!("{location}: {path}: {url} is not fetched, because verify.refresh_interval is off"));
        }
    });
}

fn for_each_range(raw: &NamedMap<raw::Operator>, mut visit: impl FnMut(&SettingPath, &str)) {
    for (name, operator) in &raw.0 {
        for_each_text(operator.ranges.as_ref(), &SettingPath::of_operator(name).ranges(), &mut visit);
    }
}

fn operator(name: &str, raw: &raw::Operator, known: &[&str], report: &mut Diagnostics) -> CrawlerOperator {
    let path = SettingPath::of_operator(name);
    report.check_name(&path, name);
    if !known.contains(&name) {
        let is_signed = raw.signature_agents.is_some();
        if raw.product_tokens.is_none() && !is_signed {
            report.warning(format!("{path}: unknown operator without product_tokens: no user agent can claim it"));
        }
        if raw.ranges.is_none() && raw.dns_names.is_none() && !is_signed {
            report.warning(format!("{path}: without ranges, dns_names or signature_agents no client can be verified"));
        }
    }
    let texts = |list: &Option<OneOrMany<String>>| list.as_ref().map(|list| list.0.clone());
    for_each_text(raw.product_tokens.as_ref(), &path.product_tokens(), |path, token| {
        self::check_token(path, token, report);
        warn_version(path, token, report);
    });
    for_each_text(raw.ranges.as_ref(), &path.ranges(), |path, source| {
        self::check_source(path, source, report);
    });
    for_each_text(raw.signature_agents.as_ref(), &path.signature_agents(), |path, agent| {
        self::check_agent(path, agent, report);
    });
    let patterns = |list: &OneOrMany<Pattern>| list.0.iter().map(|pattern| pattern.0.clone()).collect();
    let exhaustive = |list: &OneOrMany<raw::ProofMethodName>| list.0.iter().copied().map(Into::into).collect();
    CrawlerOperator {
        name: name.to_owned(),
        product_tokens: texts(&raw.product_tokens),
        ranges: texts(&raw.ranges),
        dns_names: raw.dns_names.as_ref().map(patterns),
        exhaustive: raw.exhaustive.as_ref().map(exhaustive),
        signature_agents: texts(&raw.signature_agents),
        purpose: raw.purpose.map(Into::into),
    }
}

/// Calls `visit` for each text of a list, with its path.
fn for_each_text(list: Option<&OneOrMany<String>>, path: &SettingPath, mut visit: impl FnMut(&SettingPath, &str)) {
    match list.map(|list| list.0.as_slice()) {
        Some([one]) => visit(path, one),
        Some(many) => many.iter().enumerate().for_each(|(index, text)| visit(&path.index(index), text)),
        None => {}
    }
}

/// Returns the part of an agent's URL by which it is known.
fn agent_name(url: &str) -> &str {
    url.split_once('?').map_or(url, |(name, _)| name).trim_end_matches('/')
}

fn check_token(path: &SettingPath, token: &str, report: &mut Diagnostics) {
    let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    if token.trim() != token || !(2..=MAX_TOKEN_LEN).contains(&token.len()) || !token.bytes().all(printable) {
        report.error(path, format!("invalid product token {token:?}"), "write it like ExampleBot, without a version");
    }
}

/// Warns about a product token with a version: it is matched literally.
fn warn_version(path: &SettingPath, token: &str, report: &mut Diagnostics) {
    let version = token.split_once('/').filter(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()));
    if let Some((product, _)) = version {
        report.warning(format!("{path}: {token:?} matches this version only; {product} matches all versions"));
    }
}

/// Checks a source of ranges. A path is accepted as it is; a URL must be fetchable, and a network no wider than that of
/// a crawler.
fn check_source(path: &SettingPath, source: &str, report: &mut Diagnostics) {
    let hint = "write a network, an https:// URL or the path of a file";
    if source.trim().is_empty() {
        return report.error(path, "is empty", hint);
    }
    if source.parse().is_ok_and(|network: IpNet| is_wider_than_crawlers(network.addr(), network.prefix_len())) {
        let message = format!("{source} is too wide for the network of a crawler");
        return report.error(path, message, "write at most an IPv4 /8 or an IPv6 /19");
    }
    let Some((scheme, rest)) = source.split_once("://") else {
        if looks_like_network(source) && !is_network(source) {
            report.error(path, format!("invalid network {source:?}"), "write it like 192.0.2.0/24 or 2001:db8::/32");
        }
        return;
    };
    let uri: Option<http::Uri> = source.parse().ok().filter(|uri| !rest.contains('@') && has_valid_authority(uri));
    let host = uri.as_ref().and_then(http::Uri::host);
    match (scheme, host) {
        ("https", Some(_)) | ("http", Some("127.0.0.1" | "[::1]" | "localhost")) => {}
        ("http", Some(_)) => {
            report.error(path, "insecure URL", "use https://, or http:// on this machine");
        }
        _ => report.error(path, format!("unsupported URL {source:?}"), hint),
    }
}

fn is_network(text: &str) -> bool {
    IpPrefix::parse(text).is_some()
}

fn has_valid_authority(url: &http::Uri) -> bool {
    url.authority().is_some_and(|authority| authority::parse(authority.as_str()).is_ok())
}

/// Returns true if `text` consists of the characters of an address or network: digits and dots, or hexadecimal digits
/// with colons. No file has such a name.
fn looks_like_network(text: &str) -> bool {
    let contains_only =
        |allowed: &str| text.bytes().all(|byte| byte.is_ascii_digit() || allowed.as_bytes().contains(&byte));
    text.starts_with(|first: char| first.is_ascii_hexdigit() || first == ':')
        && ((text.contains('.') && contains_only("./")) || (text.contains(':') && contains_only("abcdefABCDEF.:/")))
}

fn check_agent(path: &SettingPath, agent: &str, report: &mut Diagnostics) {
    let host = |url: http::Uri| url.scheme_str() == Some("https") && has_valid_authority(&url);
    if !agent.parse().is_ok_and(host) || agent.contains('@') {
        report.error(path, format!("invalid agent URL {agent:?}"), "write it like https://bot.example");
    }
}

impl From<raw::ProofMethodName> for ProofMethod {
    fn from(method: raw::ProofMethodName) -> Self {
        match method {
            raw::ProofMethodName::Ranges => Self::Address,
            raw::ProofMethodName::DnsNames => Self::Dns,
        }
    }
}
