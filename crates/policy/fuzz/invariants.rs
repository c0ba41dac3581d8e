//! Invariants of the parsers of request targets and fields that rules use. Each takes arbitrary bytes and panics if it
//! is violated.

#[path = "origin_models.rs"]
pub(crate) mod origin_models;

use http::{HeaderName, Method, Uri};
use origin_models::{MODELS, OriginModel};
use std::collections::BTreeSet;
use std::iter::once;
use std::net::IpAddr;
use std::sync::LazyLock;
use tidegate_policy::cost::Cost;
use tidegate_policy::fixtures;
use tidegate_policy::identity::{AddressSource, ProxyTrust, cookie};
use tidegate_policy::network::IpPrefix;
use tidegate_policy::path::{PathPolicy, PathReadings, normalize};
use tidegate_policy::route::{MatchOptions, Pattern, Route};
use tidegate_policy::throttle::partition::{PartitionInput, PartitionKey};
use tidegate_policy::{QuotaId, RequestFacts, Rules, Units};

/// A pattern made of a path matches that path. A pattern that ignores spelling also matches its other spellings. The
/// path that the origin is sent has nothing left to resolve.
pub(crate) fn paths(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for policy in [PathPolicy::Strict, PathPolicy::Lenient, PathPolicy::Raw] {
        let Ok(readings) = PathReadings::new(text, policy) else { continue };
        let Some(sent) = readings.for_origin() else { continue };
        let received = PathReadings::new(sent, policy).expect("the origin is sent a valid path");
        assert_eq!(received.for_origin(), None, "the origin is sent an unresolved path");
        // Backslashes are sent encoded.
        let expected = readings.normalized(text).replace('\\', "%5C");
        assert_eq!(received.normalized(sent), expected, "the origin is sent another path");
    }
    let Ok(path) = normalize(text) else { return };
    assert_eq!(normalize(&path).as_deref(), Ok(&*path), "normalization is not idempotent");
    // A star in a path would be a wildcard of the pattern.
    let Ok(exact) = Pattern::parse(&path.replace('*', "%2A")) else { return };
    assert!(exact.matches(&path), "a pattern does not match its own path");
    let lenient = exact.with_match_options(MatchOptions { ignore_case: true, ignore_trailing_slash: true });
    let bare = path.strip_suffix('/').filter(|bare| !bare.is_empty()).unwrap_or(&path);
    for other in [bare, &format!("/{bare}/"), &path.to_ascii_uppercase(), &path.to_ascii_lowercase()] {
        let other = normalize(other).expect("path has no NUL");
        assert!(lenient.matches(&other), "another spelling is missed: {other}");
    }
}

/// The charge of a request target covers what each model of an origin spends on the target that it is sent.
pub(crate) fn charges(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for policy in [PathPolicy::Strict, PathPolicy::Lenient, PathPolicy::Raw] {
        let Some((charged, sent)) = charge(text, policy) else { continue };
        for OriginModel { name, spend } in MODELS {
            let spent = spend(&sent);
            assert!(charged >= spent, "{name} spends {spent} on {sent}, charged {charged} for {text} ({policy:?})");
        }
    }
}

/// Returns the charge of a request target, and the target that the origin is sent; `None` if it is rejected.
pub(crate) fn charge(target: &str, policy: PathPolicy) -> Option<(u64, String)> {
    static RULES: LazyLock<Rules> = LazyLock::new(|| Rules {
        quotas: vec![fixtures::quota("api", 1_000_000)],
        routes: vec![
            costed("/search", None, 4),
            costed("/search.*", None, 4),
            costed("/café", None, 5),
            costed("/café.*", None, 5),
            costed("/item/*", None, 1),
            costed("/use/**", None, 2),
            costed("/use.*", None, 2),
            costed("/list", Some("page"), 3),
            costed("/list.*", Some("page"), 3),
            fixtures::route(&[]),
        ],
        ..fixtures::rules()
    });
    let uri = Uri::try_from(target).ok().filter(|uri| uri.authority().is_none() && uri.path().starts_with('/'))?;
    let readings = PathReadings::new(uri.path(), policy).ok()?;
    let facts = RequestFacts {
        method: &Method::GET,
        host: "example.com",
        path: readings.normalized(uri.path()),
        other_paths: readings.others(),
        query: uri.query(),
        user_agent: b"",
        is_preflight: false,
        json: None,
        fields: None,
    };
    let costs = &RULES[RULES.route(&facts)].costs;
    let charged = costs.iter().map(|(_, cost)| if let Cost::Fixed(units) = cost { units.ceil() } else { 0 }).sum();
    let path = readings.for_origin().unwrap_or(uri.path());
    Some((charged, uri.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"))))
}

fn costed(path: &str, parameter: Option<&str>, cost: u64) -> Route {
    let any_spelling = MatchOptions { ignore_case: true, ignore_trailing_slash: true };
    Route {
        path: Pattern::parse(path).expect("a valid pattern").with_match_options(any_spelling),
        query: parameter.into_iter().map(|name| (name.to_owned(), None)).collect(),
        costs: vec![(QuotaId::from_index(0), Cost::Fixed(Units::from_whole(cost)))],
        ..fixtures::route(&[])
    }
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
        assert_eq!(trust.client(proxy, &longer), resolved, "an entry written by the client changes its address");
    }
}

/// The value of a cookie does not depend on the other cookies, nor on how the pairs are spread over fields.
pub(crate) fn cookies(bytes: &[u8]) {
    let lines: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
    let value = |lines: &[&[u8]]| cookie(lines.iter().copied(), "session").map(<[u8]>::to_vec);
    let expected = value(&lines);
    assert_eq!(value(&[&lines.join(&b"; "[..])]), expected, "joined fields have another value");
    let others: Vec<&[u8]> = once(&b"other=1; sessions=2;"[..]).chain(lines.iter().copied()).collect();
    assert_eq!(value(&others), expected, "another cookie changes the value");
    let Some(expected) = expected else { return };
    assert!(!expected.is_empty() && !expected.contains(&b';') && expected.trim_ascii() == expected, "not a value");
    assert_eq!(value(&[&[b"session=", &*expected].concat()]), Some(expected), "the round trip changes the value");
}

/// The value of a query parameter agrees with a second reader, and survives an encoding of all its bytes.
pub(crate) fn queries(bytes: &[u8]) {
    let Ok(query) = std::str::from_utf8(bytes) else { return };
    let value = |query: &str| {
        let request = RequestFacts {
            method: &http::Method::GET,
            host: "",
            path: "/",
            other_paths: &[],
            query: Some(query),
            user_agent: b"",
            is_preflight: false,
            json: None,
            fields: None,
        };
        let input = PartitionInput { route: "/", request, header: &|_| None };
        PartitionKey::Query("tenant".into()).extract(&input).into_owned()
    };
    let values: BTreeSet<Vec<u8>> = query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .filter(|(name, _)| form_decoded(name) == b"tenant")
        .map(|(_, value)| form_decoded(value))
        .collect();
    let expected = if values.len() == 1 { values.into_iter().next().unwrap_or_default() } else { Vec::new() };
    assert_eq!(value(query), expected, "two readers disagree");
    let encoded: String = expected.iter().map(|byte| format!("%{byte:02X}")).collect();
    assert_eq!(value(&format!("other=1&%74en%61nt={encoded}")), expected, "the round trip changes the value");
}

/// Decodes a name or value of a query, independently of the gateway.
fn form_decoded(text: &str) -> Vec<u8> {
    let mut parts = text.split('%');
    let plain = |text: &str| text.replace('+', " ").into_bytes();
    let mut decoded = plain(parts.next().unwrap_or_default());
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                decoded.extend(plain(&part[2..]));
            }
            None => {
                decoded.push(b'%');
                decoded.extend(plain(part));
            }
        }
    }
    decoded
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}
