//! Request paths: which are accepted, how rules read them, and what the origin is sent.
//!
//! Origins read one path in different ways. Some decode it before they select a handler, some resolve `..`, some take
//! `\` for a slash, some ignore `;` parameters. Rules therefore match a normalized path, and every other reading that
//! some origin may have.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

/// Most segments of a path. Each is compared with the patterns of all routes, in each reading.
const MAX_SEGMENTS: usize = 256;

/// Handling of paths that origins read in different ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathPolicy {
    /// Rejects slashes, backslashes and control characters in percent-encoding, and backslashes. The origin is sent the
    /// path with its dot segments resolved.
    #[default]
    Strict,
    /// Accepts them: rules match all readings. The origin is sent the path with its dot segments resolved.
    Lenient,
    /// Like `Lenient`, but the origin is sent the path as the client sent it.
    Raw,
}

/// Reason for which a path is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    /// `%00`: ends the path for some origins.
    EncodedNul,
    /// `%2F`: a slash for origins that decode the path before they split it.
    EncodedSlash,
    /// `%5C` or a raw backslash: a slash for origins that follow the URL Standard.
    Backslash,
    /// Control character in percent-encoding.
    EncodedControl,
    /// More segments than [`MAX_SEGMENTS`], for some origin.
    TooManySegments,
    /// Several readings that no decision covers.
    Ambiguous(Ambiguity),
}

/// Reason for which a request that can be read in several ways is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ambiguity {
    /// Readings with costs in different quotas, so that no charge covers what the origin may spend.
    Costs,
    /// Readings of different origins, so that one may be asked for a page that no route leads to.
    Origin,
    /// Readings that are not rewritten alike, or a rewritten path with a reading outside of where its route leads.
    Rewrite,
}

impl fmt::Display for PathError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::EncodedNul => "the path contains an encoded NUL (%00)",
            Self::EncodedSlash => "the path contains an encoded slash (%2F)",
            Self::Backslash => "the path contains a backslash",
            Self::EncodedControl => "the path contains an encoded control character",
            Self::TooManySegments => "the path has more than 256 segments",
            Self::Ambiguous(Ambiguity::Costs) => "the path can be read as pages with costs in different quotas",
            Self::Ambiguous(Ambiguity::Origin) => "the path can be read as pages of different origins",
            Self::Ambiguous(Ambiguity::Rewrite) => "the path can be read as one that is not rewritten",
        })
    }
}

impl Error for PathError {}

/// A path as rules and the origin read it, as far as it differs from the path as sent.
#[derive(Clone, Debug, Default)]
pub struct PathReadings(Option<Box<Readings>>);

#[derive(Clone, Debug)]
struct Readings {
    normalized: String,
    /// Further readings, without duplicates.
    others: Vec<String>,
    /// Path that the origin is sent; `None` for the path as sent by the client.
    for_origin: Option<String>,
}

impl PathReadings {
    /// Reads `path` under `policy`.
    pub fn new(path: &str, policy: PathPolicy) -> Result<Self, PathError> {
        if path.len() > MAX_SEGMENTS && has_too_many_segments(path.as_bytes()) {
            return Err(PathError::TooManySegments);
        }
        if !needs_normalizing(path.as_bytes()) {
            return Ok(Self(None));
        }
        let decoded = decode(path)?;
        if policy == PathPolicy::Strict {
            check_strict(path, &decoded)?;
        }
        let normalized = resolve(&decoded);
        let for_origin = if policy == PathPolicy::Raw { None } else { for_origin(path) };
        // The client's path, if the origin is sent another.
        let mut others = Vec::new();
        if for_origin.is_some() {
            others.extend(spellings(decoded).iter().map(|path| resolve(path)));
        }
        others.extend(readings_by_origins(decode(for_origin.as_deref().unwrap_or(path))?));
        others.sort_unstable();
        others.dedup();
        others.retain(|path| *path != normalized);
        Ok(Self(Some(Box::new(Readings { normalized, others, for_origin }))))
    }

    /// Returns the normalized path; `sent` is the path that was read.
    pub fn normalized<'a>(&'a self, sent: &'a str) -> &'a str {
        self.0.as_ref().map_or(sent, |readings| &readings.normalized)
    }

    /// Returns the readings besides the normalized path.
    pub fn others(&self) -> &[String] {
        self.0.as_ref().map_or(&[], |readings| &readings.others)
    }

    /// Returns the path for the origin, if it is another than the client sent.
    pub fn for_origin(&self) -> Option<&str> {
        self.0.as_ref()?.for_origin.as_deref()
    }
}

/// Returns a path with its dot segments resolved and the other segments as they are spelled: what a target with the rest of the
/// path is appended to.
pub fn resolved(path: &str) -> Cow<'_, str> {
    for_origin(path).map_or(Cow::Borrowed(path), Cow::Owned)
}

/// Normalizes a path: decodes what can be decoded without a change of its segments, encodes what is not ASCII, resolves
/// `.` and `..`, merges repeated slashes. `/x/../item/1`, `//item/1` and `/%69tem/1` are `/item/1`.
pub fn normalize(path: &str) -> Result<Cow<'_, str>, PathError> {
    match needs_normalizing(path.as_bytes()) {
        true => Ok(Cow::Owned(resolve(&decode(path)?))),
        false => Ok(Cow::Borrowed(path)),
    }
}

/// Decodes or encodes the characters of a pattern as [`normalize`] does those of a path.
pub(super) fn normalize_characters(text: &str) -> String {
    decode(text).unwrap_or_else(|_| text.to_owned())
}

/// Returns true if the path has too many segments for an origin that takes encoded slashes and backslashes for slashes.
fn has_too_many_segments(path: &[u8]) -> bool {
    let starts_segment = |at: usize| match path[at] {
        b'/' | b'\\' => true,
        b'%' => matches!(encoded_byte(&path[at + 1..]), Some(b'/' | b'\\')),
        _ => false,
    };
    (0..path.len()).filter(|at| starts_segment(*at)).count() > MAX_SEGMENTS
}

fn needs_normalizing(path: &[u8]) -> bool {
    let mut after_slash = false;
    for &byte in path {
        if matches!(byte, b'%' | b';' | b'\\' | 0x80..) || (after_slash && matches!(byte, b'/' | b'.')) {
            return true;
        }
        after_slash = byte == b'/';
    }
    !path.starts_with(b"/")
}

/// Decodes visible ASCII characters that cannot change the segments of the path, and encodes all others. An origin that
/// compares encoded paths tells `%3A` from `:`, one that compares decoded paths does not.
fn decode(path: &str) -> Result<String, PathError> {
    let mut decoded = String::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let encoded = if byte == b'%' { encoded_byte(tail) } else { None };
        rest = if encoded.is_some() { &tail[2..] } else { tail };
        match (encoded, byte) {
            (Some(0), _) => return Err(PathError::EncodedNul),
            (Some(b'%' | b'/' | b'\\' | b'?' | b'#'), _) => push_encoded(&mut decoded, encoded.unwrap_or_default()),
            (Some(byte), _) if byte.is_ascii_graphic() => decoded.push(char::from(byte)),
            (Some(byte), _) => push_encoded(&mut decoded, byte),
            // Encode a stray percent sign, so that it does not combine with characters decoded after it.
            (None, b'%') => decoded.push_str("%25"),
            (None, byte) if byte.is_ascii() => decoded.push(char::from(byte)),
            (None, byte) => push_encoded(&mut decoded, byte),
        }
    }
    Ok(decoded)
}

/// Decodes the two hexadecimal digits at the start of `text`.
pub(super) fn encoded_byte(text: &[u8]) -> Option<u8> {
    let digit = |index: usize| char::from(*text.get(index)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

pub(super) fn push_encoded(text: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    text.extend(['%', char::from(DIGITS[usize::from(byte >> 4)]), char::from(DIGITS[usize::from(byte & 15)])]);
}

/// Checks a path and its decoded form against [`PathPolicy::Strict`].
fn check_strict(path: &str, decoded: &str) -> Result<(), PathError> {
    if path.contains('\\') {
        return Err(PathError::Backslash);
    }
    decoded.match_indices('%').try_for_each(|(at, _)| match encoded_byte(&decoded.as_bytes()[at + 1..]) {
        Some(b'/') => Err(PathError::EncodedSlash),
        Some(b'\\') => Err(PathError::Backslash),
        Some(..0x20 | 0x7F) => Err(PathError::EncodedControl),
        _ => Ok(()),
    })
}

/// Returns the readings of a decoded path that the origin is sent, possibly with duplicates. Its dots behind an encoded
/// slash are not resolved yet.
fn readings_by_origins(decoded: String) -> Vec<String> {
    let spellings = spellings(decoded);
    let resolve_both = |path: &str| [resolve(path), resolve_before_merging(path)];
    let mut readings: Vec<String> = spellings.iter().map(|path| merge_slashes(path)).collect();
    readings.extend(spellings.iter().flat_map(|path| resolve_both(path)));
    readings.extend(spellings.iter().filter_map(|path| without_authority(path)).flat_map(resolve_both));
    readings
}

/// Returns a decoded path with its encoded slashes and backslashes as they are and as slashes, and with and without
/// parameters.
fn spellings(decoded: String) -> Vec<String> {
    let mut spellings = vec![decoded];
    for slash in ["%2F", "%5C", "\\"] {
        add_spellings(&mut spellings, slash, |path| path.replace(slash, "/"));
    }
    add_spellings(&mut spellings, ";", without_parameters);
    spellings
}

/// Adds another spelling of each path that contains `text`.
fn add_spellings(paths: &mut Vec<String>, text: &str, respell: impl Fn(&str) -> String) {
    let more: Vec<String> = paths.iter().filter(|path| path.contains(text)).map(|path| respell(path)).collect();
    paths.extend(more);
}

/// Returns the path without the `;` parameters of its segments (RFC 3986 section 3.3).
fn without_parameters(path: &str) -> String {
    let names: Vec<&str> = path.split('/').map(|segment| segment.split(';').next().unwrap_or_default()).collect();
    names.join("/")
}

/// Returns the path that the URL Standard reads in a relative URL that starts with two slashes: the part behind its
/// host.
fn without_authority(path: &str) -> Option<&str> {
    const SLASHES: [char; 2] = ['/', '\\'];
    let authority = path.strip_prefix('/')?.strip_prefix(SLASHES)?.trim_start_matches(SLASHES);
    authority.find(SLASHES).map(|at| &authority[at..])
}

fn merge_slashes(path: &str) -> String {
    join(path.split('/').filter(|segment| !segment.is_empty()), path.ends_with('/'))
}

/// Resolves `.` and `..`, also in percent-encoding, and merges repeated slashes. Keeps the other segments as they are.
fn resolve(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    let mut ends_in_slash = false;
    for segment in path.split('/') {
        let dots = dot_count(segment);
        ends_in_slash = segment.is_empty() || dots.is_some();
        match dots {
            Some(2) => {
                segments.pop();
            }
            None if !segment.is_empty() => segments.push(segment),
            _ => {}
        }
    }
    join(segments.iter().copied(), ends_in_slash)
}

/// Resolves dot segments as the URL Standard does, before it merges repeated slashes: `/item//../1` is `/item/1`.
fn resolve_before_merging(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    let mut ends_in_slash = false;
    for segment in path.strip_prefix('/').unwrap_or(path).split('/') {
        let dots = dot_count(segment);
        ends_in_slash = segment.is_empty() || dots.is_some();
        match dots {
            Some(2) => drop(segments.pop()),
            Some(_) => {}
            None => segments.push(segment),
        }
    }
    join(segments.into_iter().filter(|segment| !segment.is_empty()), ends_in_slash)
}

/// Joins segments to a path. The root has one slash.
fn join<'a>(segments: impl Iterator<Item = &'a str>, ends_in_slash: bool) -> String {
    let mut path = String::from("/");
    for segment in segments {
        if path.len() > 1 {
            path.push('/');
        }
        path.push_str(segment);
    }
    if ends_in_slash && path.len() > 1 {
        path.push('/');
    }
    path
}

/// Returns the number of dots of a dot segment, raw or encoded: 1 for `.`, 2 for `..` and `.%2e`.
fn dot_count(segment: &str) -> Option<usize> {
    let mut rest = segment;
    let mut count = 0;
    while count < 2 && !rest.is_empty() {
        rest = [".", "%2e", "%2E"].into_iter().find_map(|dot| rest.strip_prefix(dot))?;
        count += 1;
    }
    (count > 0 && rest.is_empty()).then_some(count)
}

/// Returns the path for the origin, with everything resolved that origins resolve in different ways: dot segments,
/// repeated slashes at the start (a host in a relative URL), and characters that no URL contains. `None` if there is
/// nothing to resolve.
fn for_origin(path: &str) -> Option<String> {
    if !path.starts_with('/') {
        return None;
    }
    let needs_encoding = |byte: &u8| matches!(byte, b'\\' | 0x80..);
    let resolved = match path.split('/').any(|segment| dot_count(segment).is_some()) {
        true => Cow::Owned(resolve(path)),
        false if path.starts_with("//") => Cow::Owned(format!("/{}", path.trim_start_matches('/'))),
        false if path.bytes().any(|byte| needs_encoding(&byte)) => Cow::Borrowed(path),
        false => return None,
    };
    let mut encoded = String::with_capacity(resolved.len());
    for byte in resolved.bytes() {
        match needs_encoding(&byte) {
            true => push_encoded(&mut encoded, byte),
            false => encoded.push(char::from(byte)),
        }
    }
    Some(encoded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn readings(path: &str, policy: PathPolicy) -> Vec<String> {
        let readings = PathReadings::new(path, policy).expect("an accepted path");
        let mut all = vec![readings.normalized(path).to_owned()];
        all.extend_from_slice(readings.others());
        all
    }

    fn for_origin(path: &str, policy: PathPolicy) -> String {
        PathReadings::new(path, policy).expect("an accepted path").for_origin().unwrap_or(path).to_owned()
    }

    #[test]
    fn path_spellings_normalize_to_one_path() {
        for (path, normalized) in [
            ("/item/1", "/item/1"),
            ("//item///1", "/item/1"),
            ("/x/../item/./1", "/item/1"),
            ("/%69tem/1", "/item/1"),
            ("/x/%2e%2E/item/1", "/item/1"),
            ("/../../item/1", "/item/1"),
            ("/item%2f1", "/item%2F1"),
            ("/item%3a1%2A", "/item:1*"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("/café", "/caf%C3%A9"),
            ("/a%20b%3F%23", "/a%20b%3F%23"),
            ("/item/", "/item/"),
            ("/a/..", "/"),
            ("/%zz", "/%25zz"),
            ("/%0%61", "/%250a"),
            ("/%+5", "/%25+5"),
            ("/%", "/%25"),
            ("/%4", "/%254"),
            ("/%252F", "/%252F"),
            ("/.../..a/.a", "/.../..a/.a"),
        ] {
            assert_eq!(normalize(path).as_deref(), Ok(normalized), "{path}");
        }
        assert_eq!(normalize("/a%00b"), Err(PathError::EncodedNul));
    }

    #[test]
    fn only_a_path_that_may_change_is_copied() {
        for path in ["/", "/item/1", "/a.b/c-d.", "/item/"] {
            assert!(matches!(normalize(path), Ok(Cow::Borrowed(same)) if same == path), "{path}");
            assert!(PathReadings::new(path, PathPolicy::Strict).expect("a path").0.is_none(), "{path}");
        }
        for path in ["//", "/a//b", "/./a", "/a/.b", "/%61", "/a;b", "a", ""] {
            assert!(matches!(normalize(path), Ok(Cow::Owned(_))), "{path}");
        }
    }

    #[test]
    fn strict_policy_rejects_what_origins_read_in_different_ways() {
        for (path, error) in [
            ("/a%00b", PathError::EncodedNul),
            ("/item%2f1", PathError::EncodedSlash),
            ("/x%2F..%2Fitem/1", PathError::EncodedSlash),
            ("/item\\1", PathError::Backslash),
            ("/item%5C1", PathError::Backslash),
            ("/item%5c1", PathError::Backslash),
            ("/a%0Ab", PathError::EncodedControl),
            ("/a%1f", PathError::EncodedControl),
            ("/a%7F", PathError::EncodedControl),
        ] {
            assert_eq!(PathReadings::new(path, PathPolicy::Strict).map(|_| ()), Err(error), "{path}");
            let is_nul = error == PathError::EncodedNul;
            assert_eq!(PathReadings::new(path, PathPolicy::Lenient).is_err(), is_nul, "{path}");
            assert_eq!(PathReadings::new(path, PathPolicy::Raw).is_err(), is_nul, "{path}");
        }
        for path in ["/a%20b", "/a%252Fb", "/a;b=c", "/%C3%A9", "/a%", "/x/../y"] {
            assert!(PathReadings::new(path, PathPolicy::Strict).is_ok(), "{path}");
        }
    }

    #[test]
    fn number_of_segments_is_bounded_in_every_spelling() {
        for segment in ["/a", "/", "/a;b", "\\a", "%2Fa", "%2fa", "%5Ca", "%5c", "/.", "/..", "/..;", "/%2e%2e"] {
            for policy in [PathPolicy::Strict, PathPolicy::Lenient, PathPolicy::Raw] {
                let path = |segments: usize| format!("/{}", segment.repeat(segments));
                let error = |segments| PathReadings::new(&path(segments), policy).map(|_| ()).err();
                assert_eq!(error(MAX_SEGMENTS), Some(PathError::TooManySegments), "{segment}");
                assert_ne!(error(MAX_SEGMENTS - 1), Some(PathError::TooManySegments), "{segment}");
            }
        }
        let long = format!("/{}", "a%20;b".repeat(5_000));
        assert!(PathReadings::new(&long, PathPolicy::Strict).is_ok(), "a long segment is one segment");
    }

    #[test]
    fn readings_cover_parameters_encoded_slashes_and_backslashes() {
        use PathPolicy::{Lenient, Raw, Strict};
        for (path, policy, expected) in [
            ("/item/1;v=2", Strict, vec!["/item/1;v=2", "/item/1"]),
            ("/x/..;/item/1", Strict, vec!["/x/..;/item/1", "/item/1", "/x/../item/1"]),
            ("/item/1", Strict, vec!["/item/1"]),
            ("/a/../b", Strict, vec!["/b"]),
            ("/item%2F1", Lenient, vec!["/item%2F1", "/item/1"]),
            ("/free%2f..%2fitem", Lenient, vec!["/free%2F..%2Fitem", "/free/../item", "/item"]),
            ("/use%2f..//x", Lenient, vec!["/use%2F../x", "/use/../x", "/x"]),
            ("/item\\1", Lenient, vec!["/item\\1", "/item%5C1", "/item/1"]),
            ("/%5Citem/1/%5C/..", Lenient, vec!["/%5Citem/1/", "/1/", "/item/", "/item/1/"]),
            ("/item/1/../../free", Lenient, vec!["/free"]),
            ("/item/1/../../free", Raw, vec!["/free", "/item/1/../../free"]),
            ("//host/item/1", Raw, vec!["/host/item/1", "/item/1"]),
            ("/item//../1", Raw, vec!["/1", "/item/../1", "/item/1"]),
            ("/item//../1", Lenient, vec!["/1"]),
            ("/\\host/item/1", Raw, vec!["/\\host/item/1", "/host/item/1", "/item/1"]),
        ] {
            assert_eq!(readings(path, policy), expected, "{path}");
        }
    }

    #[test]
    fn origin_is_sent_resolved_path() {
        use PathPolicy::{Lenient, Raw, Strict};
        for (path, policy, sent) in [
            ("/item/%7e//1;a", Strict, "/item/%7e//1;a"),
            ("/item/1/../../free", Strict, "/free"),
            ("/x/.%2e/%69tem/./1/", Strict, "/%69tem/1/"),
            ("/item/..", Strict, "/"),
            ("//host/item", Strict, "/host/item"),
            ("/café", Strict, "/caf%C3%A9"),
            ("/\\host\\item", Lenient, "/%5Chost%5Citem"),
            ("/a%2F..%2Fb", Lenient, "/a%2F..%2Fb"),
            ("//host/../item", Raw, "//host/../item"),
            ("*", Strict, "*"),
        ] {
            assert_eq!(for_origin(path, policy), sent, "{path}");
        }
    }

    proptest! {
        #[test]
        fn normalization_is_idempotent(path in "/[a-z0-9/.%;\\\\é]{0,40}") {
            if let Ok(once) = normalize(&path) {
                let twice = normalize(&once).map(Cow::into_owned);
                prop_assert_eq!(twice, Ok(once.into_owned()));
            }
        }

        /// The origin reads what the rules have matched, and reads it in one way: the path that it is sent is resolved.
        #[test]
        fn resolved_path_has_the_same_readings(path in "/([a-z;é]|/|\\.|\\.\\.|%2e|%2F|%5c|\\\\|%61){0,12}") {
            for policy in [PathPolicy::Strict, PathPolicy::Lenient] {
                let Ok(sent) = PathReadings::new(&path, policy) else { continue };
                let resolved = sent.for_origin().unwrap_or(&path).to_owned();
                let received = PathReadings::new(&resolved, policy).expect("an accepted path");
                prop_assert_eq!(received.for_origin(), None);
                prop_assert!(resolved.is_ascii() && !resolved.contains('\\') && !resolved.starts_with("//"));
                let known = readings(&path, policy);
                for reading in readings(&resolved, policy) {
                    // An encoded backslash and a raw one are read alike in all combinations.
                    let raw = reading.replace("%5C", "\\");
                    prop_assert!(known.iter().any(|known| known.replace("%5C", "\\") == raw), "{} {:?}", reading, known);
                }
            }
        }
    }
}
