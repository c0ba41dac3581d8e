//! Routes: match requests and define their costs and scopes.

use super::cache::RouteCacheRules;
use super::cost::{Cost, RequestedCost};
use super::facts::RequestFacts;
use super::ids::{OriginId, QuotaId, ScopeId};
use super::own_hosts::without_last_dot;
use super::path::normalize_characters;
use super::query;
use super::request_body::{JsonCondition, JsonMatch};
use super::request_fields::FieldCondition;
use super::units::Units;
use std::borrow::Cow;

/// A set of requests with the same costs, scopes and cache rules.
#[derive(Clone, Debug)]
pub struct Route {
    /// Name of the route in logs and metrics: its pattern as written, and what tells it from others with this pattern.
    pub name: String,
    /// Path pattern.
    pub path: Pattern,
    /// Matching hosts; empty matches all. `*.example.com` matches every host below it.
    pub hosts: Vec<String>,
    /// Matching methods, in any letter case; empty matches all.
    pub methods: Vec<http::Method>,
    /// Required query parameters, by name, or by name and value.
    pub query: Vec<(String, Option<String>)>,
    /// Conditions on the JSON body, all of which must be met.
    pub json: Vec<JsonCondition>,
    /// Conditions on header fields and cookies, all of which must be met.
    pub fields: Vec<FieldCondition>,
    /// Expected cost per quota; empty if the route is free.
    pub costs: Vec<(QuotaId, Cost)>,
    /// What bodies of requests state of a [`Cost::Requested`], by quota.
    pub requested_costs: Vec<(QuotaId, RequestedCost)>,
    /// Scopes of the route; empty if its requests do not reach the origin.
    pub scopes: Vec<ScopeId>,
    /// Origin of the responses.
    pub origin: OriginId,
    /// True if the latency of responses is sampled for the adaptive controllers.
    pub is_latency_sampled: bool,
    /// True if the origin receives the request body while the client sends it.
    pub streams_body: bool,
    /// Rules of the cache; `None` if responses are not stored.
    pub cache: Option<RouteCacheRules>,
    /// True if responses may be compressed.
    pub is_compressed: bool,
}

/// A path pattern. `*` matches within one segment; `**` matches any tail at the end, and any directories before the
/// last segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    segments: Vec<Segment>,
    rest: PatternTail,
    match_options: MatchOptions,
}

/// Path spellings that a pattern matches. The default is the exact spelling only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatchOptions {
    /// True if ASCII letters match case-insensitively.
    pub ignore_case: bool,
    /// True if `/a` and `/a/` are the same path.
    pub ignore_trailing_slash: bool,
}

/// Allowed tail after the segments of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PatternTail {
    Empty,
    Any,
    /// Any number of directories, then this segment.
    LastSegment(Segment),
}

/// A segment of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    /// Exact text.
    Text(String),
    /// A bare `*`; matches any non-empty name: `/item/` is not an item.
    AnyName,
    /// Text before, between and after the stars.
    Wildcard { first: String, between: Vec<String>, last: String },
}

/// Reason for which a pattern is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternError {
    /// Does not start with a slash.
    NoSlash,
    /// Contains `**` elsewhere than alone at the end or before the last segment.
    MisplacedDoubleStar,
}

impl Pattern {
    /// Parses a pattern such as `/item/*`, `/shop/**` or `/**/*.css`. Merges repeated slashes, as in paths.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let path = text.strip_prefix('/').ok_or(PatternError::NoSlash)?;
        let (directories, last) = path.rsplit_once('/').unwrap_or(("", path));
        let directories = directories.split('/').filter(|segment| !segment.is_empty());
        let mut segments: Vec<&str> = directories.chain([last]).collect();
        let rest = match segments[..] {
            [.., "**"] => PatternTail::Any,
            [.., "**", last] if !last.contains("**") => PatternTail::LastSegment(Segment::parse(last)),
            _ => PatternTail::Empty,
        };
        segments.truncate(match rest {
            PatternTail::Empty => segments.len(),
            PatternTail::Any => segments.len() - 1,
            PatternTail::LastSegment(_) => segments.len() - 2,
        });
        if segments.iter().any(|segment| segment.contains("**")) {
            return Err(PatternError::MisplacedDoubleStar);
        }
        let segments = segments.into_iter().map(Segment::parse).collect();
        Ok(Self { segments, rest, match_options: MatchOptions::default() })
    }

    /// Returns the pattern with `match_options` applied.
    pub fn with_match_options(mut self, match_options: MatchOptions) -> Self {
        self.match_options = match_options;
        if match_options.ignore_case {
            self.texts_mut().for_each(|text| text.make_ascii_lowercase());
        }
        if match_options.ignore_trailing_slash {
            self.drop_trailing_slash();
        }
        self
    }

    /// Returns the path spellings that the pattern matches.
    pub fn match_options(&self) -> MatchOptions {
        self.match_options
    }

    /// Returns true for `/**`, which matches every path.
    pub fn is_any(&self) -> bool {
        self.segments.is_empty() && self.rest == PatternTail::Any
    }

    /// Returns true if this pattern certainly matches every path that `other` matches. False does not exclude it:
    /// overlapping patterns are not analyzed.
    pub fn covers(&self, other: &Self) -> bool {
        let (match_options, other_spelling) = (self.match_options, other.match_options);
        let is_no_stricter = (match_options.ignore_case || !other_spelling.ignore_case)
            && (match_options.ignore_trailing_slash || !other_spelling.ignore_trailing_slash);
        self.is_any() || (is_no_stricter && other.clone().with_match_options(match_options) == *self)
    }

    /// Returns true if the normalized `path` matches.
    pub fn matches(&self, path: &str) -> bool {
        let path = if self.match_options.ignore_trailing_slash { without_trailing_slash(path) } else { path };
        let case = if self.match_options.ignore_case { Case::Insensitive } else { Case::Sensitive };
        let mut rest = path.strip_prefix('/');
        for segment in &self.segments {
            let Some((text, tail)) = rest.map(first_segment) else { return false };
            if !segment.matches(text, case) {
                return false;
            }
            rest = tail;
        }
        match &self.rest {
            PatternTail::Empty => rest.is_none(),
            PatternTail::Any => true,
            PatternTail::LastSegment(last) => {
                rest.is_some_and(|rest| last.matches(rest.rsplit('/').next().unwrap_or(rest), case))
            }
        }
    }

    fn texts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let last = match &mut self.rest {
            PatternTail::LastSegment(last) => Some(last),
            PatternTail::Empty | PatternTail::Any => None,
        };
        self.segments.iter_mut().chain(last).flat_map(Segment::texts_mut)
    }

    /// Normalizes `/search/` to `/search` and `/shop/**/` to `/shop/**`; keeps `/`.
    fn drop_trailing_slash(&mut self) {
        let empty = Segment::Text(String::new());
        if self.rest == PatternTail::LastSegment(empty.clone()) {
            self.rest = PatternTail::Any;
        }
        if self.rest == PatternTail::Empty && self.segments.len() > 1 && self.segments.last() == Some(&empty) {
            self.segments.pop();
        }
    }
}

/// Case sensitivity of ASCII letters.
#[derive(Clone, Copy)]
enum Case {
    Sensitive,
    Insensitive,
}

impl Case {
    fn is_same(self, one: &[u8], other: &[u8]) -> bool {
        match self {
            Self::Sensitive => one == other,
            Self::Insensitive => one.eq_ignore_ascii_case(other),
        }
    }

    /// Returns the part of `text` after the prefix `start`; `None` if `text` does not start with it.
    fn strip_prefix<'a>(self, text: &'a [u8], start: &[u8]) -> Option<&'a [u8]> {
        let (head, tail) = text.split_at_checked(start.len())?;
        self.is_same(head, start).then_some(tail)
    }

    fn ends_with(self, text: &[u8], end: &[u8]) -> bool {
        text.len().checked_sub(end.len()).is_some_and(|from| self.is_same(&text[from..], end))
    }

    /// Returns the part of `text` after the first `part`; `None` if there is none.
    fn after_first<'a>(self, text: &'a [u8], part: &[u8]) -> Option<&'a [u8]> {
        (0..=text.len().checked_sub(part.len())?).find_map(|from| self.strip_prefix(&text[from..], part))
    }
}

impl Segment {
    fn parse(text: &str) -> Self {
        let texts: Vec<String> = text.split('*').map(normalize_characters).collect();
        match &texts[..] {
            [first, last] if first.is_empty() && last.is_empty() => Self::AnyName,
            [first, between @ .., last] => {
                Self::Wildcard { first: first.clone(), between: between.to_vec(), last: last.clone() }
            }
            [text] => Self::Text(text.clone()),
            [] => Self::Text(String::new()),
        }
    }

    fn texts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let (first, between, last) = match self {
            Self::Text(text) => (Some(text), &mut [][..], None),
            Self::AnyName => (None, &mut [][..], None),
            Self::Wildcard { first, between, last } => (Some(first), &mut between[..], Some(last)),
        };
        first.into_iter().chain(between).chain(last)
    }

    fn matches(&self, segment: &str, case: Case) -> bool {
        match self {
            Self::Text(text) => case.is_same(segment.as_bytes(), text.as_bytes()),
            Self::AnyName => !segment.is_empty(),
            Self::Wildcard { first, between, last } => {
                let rest = case.strip_prefix(segment.as_bytes(), first.as_bytes());
                let rest = between.iter().fold(rest, |rest, text| case.after_first(rest?, text.as_bytes()));
                rest.is_some_and(|rest| case.ends_with(rest, last.as_bytes()))
            }
        }
    }
}

impl Route {
    /// Returns true if the route matches the request, its path read as `path`, in every reading of body and fields.
    pub fn matches(&self, request: &RequestFacts<'_>, path: &str) -> bool {
        self.matches_line(request, path)
            && self.json.iter().all(|condition| request.json.is_some_and(|json| json.meets(condition)))
            && self.has_fields(request, |is_met| is_met == Some(true))
    }

    /// Returns true if the route matches the request, its path read as `path`, in some reading of body and fields.
    pub fn may_match(&self, request: &RequestFacts<'_>, path: &str) -> bool {
        let may_meet = |json: &JsonMatch, condition| *json == JsonMatch::Unreadable || json.meets(condition);
        self.matches_line(request, path)
            && self.json.iter().all(|condition| request.json.is_some_and(|json| may_meet(json, condition)))
            && self.has_fields(request, |is_met| is_met != Some(false))
    }

    fn has_fields(&self, request: &RequestFacts<'_>, is_enough: impl Fn(Option<bool>) -> bool) -> bool {
        self.fields.iter().all(|condition| request.fields.is_some_and(|fields| is_enough(fields.meets(condition))))
    }

    /// Returns true if the route matches the request but for its body and fields, its path read as `path`.
    pub fn matches_line(&self, request: &RequestFacts<'_>, path: &str) -> bool {
        self.path.matches(path)
            && (self.methods.is_empty() || self.methods.iter().any(|method| is_same_method(method, request.method)))
            && (self.hosts.is_empty() || self.hosts.iter().any(|host| host_matches(host, request.host)))
            && self.has_query(request.query.unwrap_or_default())
    }

    fn has_query(&self, query: &str) -> bool {
        let ignore_case = self.path.match_options().ignore_case;
        self.query.iter().all(|(name, value)| query::has(query, name, value.as_deref(), ignore_case))
    }

    /// Returns a measure of what requests of the route use, to compare the readings of one path: units of all quotas, a
    /// learned cost counted as one unit and a requested one as its default, then the number of scopes.
    pub fn weight(&self) -> (Units, usize) {
        let units = self.costs.iter().map(|(_, cost)| cost.first_estimate());
        (units.sum(), self.scopes.len())
    }

    /// Returns true if requests of the route have a cost in `quota`, fixed or learned.
    pub fn has_cost_in(&self, quota: QuotaId) -> bool {
        self.costs.iter().any(|(other, _)| *other == quota)
    }

    /// Returns true if bodies of requests state their cost in `quota`.
    pub fn has_requested_cost_in(&self, quota: QuotaId) -> bool {
        self.requested_costs.iter().any(|(other, _)| *other == quota)
    }

    /// Returns true if requests of the route cost nothing.
    pub fn is_free(&self) -> bool {
        self.costs.is_empty()
    }
}

/// Returns true if some origin reads both as the same method: in any letter case.
pub(crate) fn is_same_method(one: &http::Method, other: &http::Method) -> bool {
    one == other || one.as_str().eq_ignore_ascii_case(other.as_str())
}

/// Returns the path without a trailing slash; keeps `/`.
fn without_trailing_slash(path: &str) -> &str {
    path.strip_suffix('/').filter(|path| !path.is_empty()).unwrap_or(path)
}

/// Normalizes a host for rules: lower case, without port and last dot. Whatever follows the last colon counts as the
/// port, even if it is no number, because no other part of a host contains a colon outside brackets.
pub fn normalize_host(host: &str) -> Cow<'_, str> {
    let host = without_last_dot(split_port(host).0);
    match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(host.to_ascii_lowercase()),
        false => Cow::Borrowed(host),
    }
}

/// Splits a host at the colon before its port, which few hosts have.
pub fn split_port(host: &str) -> (&str, Option<&str>) {
    if !host.as_bytes().contains(&b':') {
        return (host, None);
    }
    // A colon within brackets is part of an IPv6 address.
    match host.bytes().rposition(|byte| matches!(byte, b':' | b']')) {
        Some(end) if host.as_bytes()[end] == b':' => (&host[..end], Some(&host[end + 1..])),
        _ => (host, None),
    }
}

/// Splits a path at its first slash. Scans bytewise, as segments are short.
fn first_segment(path: &str) -> (&str, Option<&str>) {
    match path.bytes().position(|byte| byte == b'/') {
        Some(slash) => (&path[..slash], Some(&path[slash + 1..])),
        None => (path, None),
    }
}

/// Returns true if `host` is `pattern`, or below it for `*.example.com`.
pub(crate) fn host_matches(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
        None => pattern == host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use crate::path::normalize;
    use proptest::prelude::*;

    fn matches(pattern: &str, path: &str) -> bool {
        Pattern::parse(pattern).expect("valid pattern").matches(path)
    }

    #[test]
    fn hosts_are_matched_in_lower_case_and_without_port() {
        for (host, normalized) in [
            ("Shop.Example", "shop.example"),
            ("shop.example:8080", "shop.example"),
            ("shop.example:", "shop.example"),
            ("shop.example:http", "shop.example"),
            ("Shop.example.", "shop.example"),
            ("shop.example.:80", "shop.example"),
            ("[2001:DB8::1]", "[2001:db8::1]"),
            ("[2001:db8::1]:8080", "[2001:db8::1]"),
            ("", ""),
        ] {
            assert_eq!(normalize_host(host), normalized, "{host}");
        }
    }

    #[test]
    fn star_matches_one_segment_double_star_the_rest() {
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
        assert!(matches("/shop//b/**", "/shop/b/") && matches("//search", "/search"));
        assert_eq!(Pattern::parse("item"), Err(PatternError::NoSlash));
        assert_eq!(Pattern::parse("/**/x/y"), Err(PatternError::MisplacedDoubleStar));
        assert_eq!(Pattern::parse("/**/x**"), Err(PatternError::MisplacedDoubleStar));
    }

    #[test]
    fn double_star_matches_last_segment_at_any_depth() {
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
    fn case_and_trailing_slash_follow_the_spelling() {
        let both = MatchOptions { ignore_case: true, ignore_trailing_slash: true };
        let (case, slash) =
            (MatchOptions { ignore_trailing_slash: false, ..both }, MatchOptions { ignore_case: false, ..both });
        for (pattern, path, match_options, expected) in [
            ("/search", "/SEARCH", case, true),
            ("/search", "/search/", case, false),
            ("/search", "/search/", slash, true),
            ("/search", "/SEARCH/", slash, false),
            ("/SEARCH", "/search/", both, true),
            ("/search/", "/search", slash, true),
            ("/search/", "/search", case, false),
            ("/search", "/searching", both, false),
            ("/search", "/search/x", both, false),
            ("/item/*", "/Item/1/", both, true),
            ("/item/*", "/item/", both, false),
            ("/item/*", "/item", both, false),
            ("/item/*/", "/ITEM/1", both, true),
            ("/**/*.css", "/a.CSS", both, true),
            ("/**/*.css", "/x/a.css/", both, true),
            ("/**/*.css", "/x/css/", both, false),
            ("/img-*x*.PNG", "/IMG-1X2.png", both, true),
            ("/img-*x*.png", "/img-1.png", both, false),
            ("/a*a", "/A", both, false),
            ("/caf%C3%A9", "/CAF%C3%A9", both, true),
            ("/caf%C3%A9", "/caf%C3%89", both, false),
            ("/café", "/caf%C3%A9", both, true),
            ("/caf%c3%a9/x%3a%69*", "/caf%C3%A9/x:i2", both, true),
            ("/a%2A", "/a*", both, true),
            ("/a%2A", "/ab", both, false),
            ("/shop/**", "/SHOP", both, true),
            ("/shop/**/", "/shop/a", both, true),
            ("/", "/", both, true),
            ("/", "/a", both, false),
            ("/**", "/", both, true),
        ] {
            let pattern = Pattern::parse(pattern).expect("valid pattern").with_match_options(match_options);
            assert_eq!(pattern.matches(path), expected, "{pattern:?} {path}");
        }
    }

    #[test]
    fn pattern_coverage_respects_the_spelling() {
        let both = MatchOptions { ignore_case: true, ignore_trailing_slash: true };
        let exact = |text| Pattern::parse(text).expect("valid pattern");
        let lenient = |text| exact(text).with_match_options(both);
        assert!(lenient("/search").covers(&lenient("/Search/")) && lenient("/search").covers(&exact("/SEARCH")));
        assert!(!exact("/search").covers(&lenient("/search")) && !lenient("/search").covers(&lenient("/search/*")));
        assert!(exact("/**").covers(&lenient("/a")) && exact("/a").covers(&exact("/a")));
    }

    #[test]
    fn route_matches_requests_that_meet_all_of_its_conditions() {
        let route = Route {
            path: Pattern::parse("/item/*").expect("valid pattern"),
            hosts: vec!["a.example".into(), "*.b.example".into()],
            methods: vec![http::Method::GET, http::Method::HEAD],
            query: vec![("page".into(), None), ("sort".into(), Some("up".into()))],
            ..fixtures::route(&[])
        };
        let any = fixtures::route(&[]);
        for (method, host, path, query, is_match) in [
            (http::Method::GET, "a.example", "/item/1", Some("page=2&sort=up"), true),
            (http::Method::HEAD, "x.b.example", "/item/1", Some("sort=up&page"), true),
            (http::Method::POST, "a.example", "/item/1", Some("page=2&sort=up"), false),
            (http::Method::from_bytes(b"get").expect("a token"), "a.example", "/item/1", Some("page=2&sort=up"), true),
            (http::Method::GET, "c.example", "/item/1", Some("page=2&sort=up"), false),
            (http::Method::GET, "a.example", "/item", Some("page=2&sort=up"), false),
            (http::Method::GET, "a.example", "/item/1", Some("page=2&sort=down"), false),
            (http::Method::GET, "a.example", "/item/1", Some("sort=up"), false),
            (http::Method::GET, "a.example", "/item/1", None, false),
        ] {
            let request = RequestFacts { method: &method, host, query, ..fixtures::request_facts(path) };
            assert_eq!(route.matches(&request, path), is_match, "{request:?}");
            assert!(any.matches(&request, path));
        }
    }

    #[test]
    fn only_two_stars_alone_match_every_path() {
        let pattern = |text| Pattern::parse(text).expect("valid pattern");
        for (text, is_any) in [("/**", true), ("/", false), ("/shop/**", false), ("/**/new", false), ("/*", false)] {
            assert_eq!(pattern(text).is_any(), is_any, "{text}");
        }
        let ignore_case = MatchOptions { ignore_case: true, ..MatchOptions::default() };
        assert_eq!(pattern("/a").with_match_options(ignore_case).match_options(), ignore_case);
    }

    #[test]
    fn pattern_that_is_stricter_in_one_spelling_covers_no_lenient_one() {
        let pattern = |ignore_case, ignore_trailing_slash| {
            Pattern::parse("/a")
                .expect("valid pattern")
                .with_match_options(MatchOptions { ignore_case, ignore_trailing_slash })
        };
        for (ignore_case, ignore_slash) in [(false, false), (false, true), (true, false), (true, true)] {
            for (other_case, other_slash) in [(false, false), (false, true), (true, false), (true, true)] {
                assert_eq!(
                    pattern(ignore_case, ignore_slash).covers(&pattern(other_case, other_slash)),
                    ignore_case >= other_case && ignore_slash >= other_slash,
                    "{ignore_case} {ignore_slash} {other_case} {other_slash}"
                );
            }
        }
    }

    #[test]
    fn hosts_narrow_a_route() {
        assert!(host_matches("*.example.com", "shop.example.com"));
        assert!(!host_matches("*.example.com", "example.com"));
        assert!(!host_matches("*.example.com", "badexample.com") && !host_matches("*.example.com", ".example.com"));
        assert!(host_matches("example.com", "example.com") && !host_matches("example.com", "shop.example.com"));
    }

    proptest! {
        /// Exact patterns match as before, and every exact match also matches with any spelling option.
        #[test]
        fn lenient_pattern_matches_a_superset(pattern in "/[aB/]{0,4}(\\*|\\*b|/\\*\\*|)", path in "/[aAbB/]{0,6}") {
            let Ok(path) = normalize(&path) else { return Ok(()) };
            let Ok(exact) = Pattern::parse(&pattern) else { return Ok(()) };
            let both = MatchOptions { ignore_case: true, ignore_trailing_slash: true };
            let lenient = exact.clone().with_match_options(both);
            prop_assert!(!exact.matches(&path) || lenient.matches(&path));
            prop_assert_eq!(lenient.matches(&path), lenient.matches(&path.to_ascii_uppercase()));
            if path != "/" {
                let slashed = format!("{}/", without_trailing_slash(&path));
                prop_assert_eq!(lenient.matches(&path), lenient.matches(&slashed));
            }
        }
    }
}
