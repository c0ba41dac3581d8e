//! Which requests a route is for, and what they cost.

use super::cost::Cost;
use super::decide::QuotaId;
use super::facts::Facts;
use std::borrow::Cow;

/// Requests that are treated alike: what they cost and which parts of the origin they touch.
#[derive(Clone, Debug)]
pub struct Route {
    /// The pattern as written; the route's name in logs.
    pub name: String,
    /// Which paths.
    pub path: Pattern,
    /// Which hosts; empty is any. `*.example.com` is every host below it.
    pub hosts: Vec<String>,
    /// Which methods; empty is any.
    pub methods: Vec<http::Method>,
    /// Query parameters that must be there, by name, or by name and value.
    pub query: Vec<(String, Option<String>)>,
    /// What a request is expected to cost, by quota; empty is free.
    pub costs: Vec<(QuotaId, Cost)>,
    /// The scopes it belongs to.
    pub scopes: Vec<ScopeId>,
    /// Whether the latency of its answers tells of the origin's load.
    pub measured: bool,
}

/// A scope, by its place in the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopeId(pub u16);

/// A path pattern: `*` is anything within one segment, `**` at the end any rest, and before the last segment any folders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    segments: Vec<Segment>,
    rest: Rest,
}

/// What may follow the segments of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rest {
    Nothing,
    Anything,
    /// Any folders, or none, and this in the last of them.
    Last(Segment),
}

/// One segment of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    /// This text.
    Text(String),
    /// A bare `*` stands for a name, not for none: `/item/` is not an item.
    Name,
    /// The texts before, between and behind its stars.
    Starred { first: String, between: Vec<String>, last: String },
}

/// Why a pattern cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPattern {
    /// It does not begin with a slash.
    NoSlash,
    /// `**` stands somewhere else than alone at the end or before the last segment.
    RestWithin,
}

/// A path that no rule may be asked about: it contains an encoded NUL or broken percent-encoding of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPath;

impl Pattern {
    /// Reads a pattern such as `/item/*`, `/shop/**` or `/**/*.css`.
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        let path = text.strip_prefix('/').ok_or(BadPattern::NoSlash)?;
        let mut segments: Vec<&str> = path.split('/').collect();
        let rest = match segments[..] {
            [.., "**"] => Rest::Anything,
            [.., "**", last] if !last.contains("**") => Rest::Last(Segment::parse(last)),
            _ => Rest::Nothing,
        };
        segments.truncate(match rest {
            Rest::Nothing => segments.len(),
            Rest::Anything => segments.len() - 1,
            Rest::Last(_) => segments.len() - 2,
        });
        if segments.iter().any(|segment| segment.contains("**")) {
            return Err(BadPattern::RestWithin);
        }
        Ok(Self { segments: segments.into_iter().map(Segment::parse).collect(), rest })
    }

    /// True when the normalised `path` fits.
    pub fn matches(&self, path: &str) -> bool {
        let mut rest = path.strip_prefix('/');
        for segment in &self.segments {
            let Some((found, behind)) = rest.map(first_segment) else { return false };
            if !segment.fits(found) {
                return false;
            }
            rest = behind;
        }
        match &self.rest {
            Rest::Nothing => rest.is_none(),
            Rest::Anything => true,
            Rest::Last(last) => rest.is_some_and(|rest| last.fits(rest.rsplit('/').next().unwrap_or(rest))),
        }
    }
}

impl Segment {
    fn parse(text: &str) -> Self {
        let texts: Vec<&str> = text.split('*').collect();
        match &texts[..] {
            ["", ""] => Self::Name,
            [first, between @ .., last] => Self::Starred {
                first: (*first).to_owned(),
                between: between.iter().map(|text| (*text).to_owned()).collect(),
                last: (*last).to_owned(),
            },
            _ => Self::Text(text.to_owned()),
        }
    }

    fn fits(&self, segment: &str) -> bool {
        match self {
            Self::Text(text) => segment == text,
            Self::Name => !segment.is_empty(),
            Self::Starred { first, between, last } => {
                let Some(mut rest) = segment.strip_prefix(first.as_str()) else { return false };
                for text in between {
                    match rest.find(text) {
                        Some(at) => rest = &rest[at + text.len()..],
                        None => return false,
                    }
                }
                rest.ends_with(last.as_str())
            }
        }
    }
}

impl Route {
    /// True when the route is for this request.
    pub fn fits(&self, facts: &Facts<'_>) -> bool {
        self.path.matches(facts.path)
            && (self.methods.is_empty() || self.methods.contains(facts.method))
            && (self.hosts.is_empty() || self.hosts.iter().any(|host| host_fits(host, facts.host)))
            && self.query.iter().all(|(name, value)| query_has(facts.query.unwrap_or(""), name, value.as_deref()))
    }

    /// True when its requests cost nothing.
    pub fn is_free(&self) -> bool {
        self.costs.is_empty()
    }
}

/// The path as rules match it: unreserved characters decoded, `.` and `..` resolved, repeated slashes one.
///
/// The origin gets the path as sent; this form only decides which route it is, so that `/x/../item/1`, `//item/1` and
/// `/%69tem/1` cost what `/item/1` costs.
pub fn normalise(path: &str) -> Result<Cow<'_, str>, BadPath> {
    if !needs_work(path.as_bytes()) {
        return Ok(Cow::Borrowed(path));
    }
    let decoded = decode_unreserved(path)?;
    let mut kept: Vec<&str> = Vec::new();
    let mut ends_in_slash = false;
    for segment in decoded.split('/') {
        ends_in_slash = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            _ => kept.push(segment),
        }
    }
    let mut normal = format!("/{}", kept.join("/"));
    if ends_in_slash && !kept.is_empty() {
        normal.push('/');
    }
    Ok(Cow::Owned(normal))
}

fn needs_work(path: &[u8]) -> bool {
    let mut after_slash = false;
    for &byte in path {
        if byte == b'%' || (after_slash && (byte == b'/' || byte == b'.')) {
            return true;
        }
        after_slash = byte == b'/';
    }
    !path.starts_with(b"/")
}

fn decode_unreserved(path: &str) -> Result<String, BadPath> {
    let mut decoded = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        decoded.push_str(&rest[..at]);
        let byte = rest.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match byte {
            Some(0) => return Err(BadPath),
            Some(byte) if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => decoded.push(char::from(byte)),
            Some(byte) => decoded.push_str(&format!("%{byte:02X}")),
            // A stray percent sign is itself, encoded: it must not join what is decoded behind it.
            None => decoded.push_str("%25"),
        }
        rest = &rest[at + if byte.is_some() { 3 } else { 1 }..];
    }
    decoded.push_str(rest);
    Ok(decoded)
}

/// A path up to its first slash, and what is behind that. Byte by byte, as segments are short.
fn first_segment(path: &str) -> (&str, Option<&str>) {
    match path.bytes().position(|byte| byte == b'/') {
        Some(slash) => (&path[..slash], Some(&path[slash + 1..])),
        None => (path, None),
    }
}

fn host_fits(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(below) => host.len() > below.len() && host.ends_with(below),
        None => pattern == host,
    }
}

fn query_has(query: &str, name: &str, value: Option<&str>) -> bool {
    query.split('&').any(|pair| {
        let (found, holds) = pair.split_once('=').unwrap_or((pair, ""));
        found == name && value.is_none_or(|value| value == holds)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &str, path: &str) -> bool {
        Pattern::parse(pattern).expect("a good pattern").matches(path)
    }

    #[test]
    fn a_star_is_one_segment_and_two_are_any_rest() {
        assert!(matches("/item/*", "/item/42"));
        assert!(!matches("/item/*", "/item/42/reviews"));
        assert!(!matches("/item/*", "/item/"));
        assert!(!matches("/item/*", "/item"));
        assert!(matches("/**", "/"));
        assert!(matches("/**", "/a/b/c"));
        assert!(matches("/shop/**", "/shop/"));
        assert!(matches("/shop/**", "/shop/a/b"));
        assert!(matches("/img-*.png", "/img-7.png"));
        assert!(!matches("/img-*.png", "/img-7.jpg"));
        assert!(matches("/search", "/search"));
        assert!(!matches("/search", "/search/"));
        assert_eq!(Pattern::parse("item"), Err(BadPattern::NoSlash));
        assert_eq!(Pattern::parse("/**/x/y"), Err(BadPattern::RestWithin));
        assert_eq!(Pattern::parse("/**/x**"), Err(BadPattern::RestWithin));
    }

    #[test]
    fn the_last_segment_may_lie_however_deep() {
        for path in ["/a.css", "/shop/a.css", "/shop/b/c/.css"] {
            assert!(matches("/**/*.css", path), "{path}");
        }
        for path in ["/a.css/", "/a.css/b", "/a.CSS", "/css", "/"] {
            assert!(!matches("/**/*.css", path), "{path}");
        }
        assert!(matches("/shop/**/new", "/shop/new") && matches("/shop/**/new", "/shop/a/b/new"));
        assert!(!matches("/shop/**/new", "/shop") && !matches("/shop/**/new", "/new"));
    }

    #[test]
    fn every_spelling_of_a_path_is_the_same_route() {
        for (spelling, normal) in [
            ("/item/1", "/item/1"),
            ("//item///1", "/item/1"),
            ("/x/../item/./1", "/item/1"),
            ("/%69tem/1", "/item/1"),
            ("/x/%2e%2E/item/1", "/item/1"),
            ("/../../item/1", "/item/1"),
            ("/item%2f1", "/item%2F1"),
            ("/item/", "/item/"),
            ("/a/..", "/"),
            ("/%zz", "/%25zz"),
            ("/%0%61", "/%250a"),
        ] {
            assert_eq!(normalise(spelling).as_deref(), Ok(normal), "{spelling}");
        }
        assert_eq!(normalise("/a%00b"), Err(BadPath));
    }

    #[test]
    fn query_parameters_and_hosts_narrow_a_route() {
        assert!(query_has("q=1&page=2", "page", None));
        assert!(query_has("q=1&page=2", "page", Some("2")));
        assert!(!query_has("q=1&page=2", "page", Some("3")));
        assert!(host_fits("*.example.com", "shop.example.com"));
        assert!(!host_fits("*.example.com", "example.com"));
        assert!(!host_fits("*.example.com", "badexample.com"));
    }

    proptest! {
        #[test]
        fn a_normal_path_stays_as_it_is(path in "/[a-z0-9/.%]{0,40}") {
            if let Ok(once) = normalise(&path) {
                let twice = normalise(&once).map(Cow::into_owned);
                prop_assert_eq!(twice, Ok(once.into_owned()));
            }
        }
    }
}
