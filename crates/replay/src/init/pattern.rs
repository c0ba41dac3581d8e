//! Path patterns with variable segments replaced: `/item/123` becomes `/item/*`.

use std::cmp::Ordering;
use std::fmt;

/// A path pattern, as in routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pattern(Vec<PatternSegment>);

/// One segment of a pattern. More specific segments are ordered first, as routes require.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PatternSegment {
    /// Exactly this name.
    Name(Box<str>),
    /// Any single segment.
    Any,
    /// Any remaining segments.
    Rest,
}

/// Returns the segment if it is a name; `None` for variable segments (numbers, dates, hashes, titles), and for
/// characters that have a meaning in patterns or YAML, which a client could inject.
pub(super) fn literal_segment(segment: &str) -> Option<&str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let digits = segment.bytes().filter(u8::is_ascii_digit).count();
    let is_number = digits == segment.len() || digits >= MAX_DIGITS;
    let is_secret = segment.split(|letter: char| !letter.is_ascii_alphanumeric()).any(is_key);
    (segment.len() <= MAX_NAME_LEN && segment.bytes().all(plain) && !is_number && !is_secret).then_some(segment)
}

/// Returns true for a long word of letters and digits, which may be a secret key.
fn is_key(word: &str) -> bool {
    word.len() >= MIN_KEY_LEN
        && word.bytes().any(|byte| byte.is_ascii_digit())
        && word.bytes().any(|byte| byte.is_ascii_alphabetic())
}

impl Pattern {
    /// Returns the pattern with one more segment.
    pub(super) fn join(&self, part: PatternSegment) -> Self {
        Self(self.0.iter().cloned().chain([part]).collect())
    }

    /// Returns true if the pattern ends in a wildcard. A trailing slash does not count: routes with a cost ignore it.
    pub(super) fn has_wildcard(&self) -> bool {
        let is_named = |segment: &&PatternSegment| !matches!(segment, PatternSegment::Name(name) if name.is_empty());
        matches!(self.0.iter().rfind(is_named), Some(PatternSegment::Any | PatternSegment::Rest))
    }

    /// Orders patterns as routes: of two that match the same path, the more specific one is first.
    pub(super) fn cmp_specificity(&self, other: &Self) -> Ordering {
        let specificities = |pattern: &Self| pattern.0.iter().map(PatternSegment::specificity).collect::<Vec<_>>();
        specificities(self).cmp(&specificities(other))
    }
}

impl PatternSegment {
    const fn specificity(&self) -> u8 {
        match self {
            Self::Name(_) => 0,
            Self::Any => 1,
            Self::Rest => 2,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            PatternSegment::Name(name) => write!(out, "/{name}"),
            PatternSegment::Any => out.write_str("/*"),
            PatternSegment::Rest => out.write_str("/**"),
        })
    }
}

/// Number of digits from which a segment is variable. Names contain a version or a small number (`v2`, `top10`); four
/// digits may be a year.
const MAX_DIGITS: usize = 4;

/// Minimum length of a secret key. Shorter ones could be guessed.
const MIN_KEY_LEN: usize = 16;

/// Maximum length of a name. Directory names are short, titles are long.
const MAX_NAME_LEN: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_segments_are_distinguished_from_names() {
        for segment in ["item", "v2", "wp-login.php", "", "feed.xml", "top10", ".env"] {
            assert_eq!(literal_segment(segment), Some(segment).filter(|segment| !segment.is_empty()), "{segment:?}");
        }
        for segment in ["42", "2015", "logstash-2012", "3fa85f64-5717-4562", "a%20b", "**", "$HOME", "\"", "caf\u{e9}"]
        {
            assert_eq!(literal_segment(segment), None, "{segment:?}");
        }
        assert_eq!(literal_segment(&"a".repeat(41)), None);
        for key in ["sk_live_51H8abcdefghijklmnop", "eyJhbGciOiJIUzI1NiJ9.abc.def"] {
            assert_eq!(literal_segment(key), None, "{key:?}");
        }
    }

    #[test]
    fn more_specific_patterns_come_first() {
        let pattern = |parts: &[PatternSegment]| Pattern(parts.to_vec());
        let named = |text: &str| PatternSegment::Name(text.into());
        let mut patterns = [
            pattern(&[PatternSegment::Rest]),
            pattern(&[PatternSegment::Any]),
            pattern(&[named("item"), PatternSegment::Any]),
            pattern(&[named("item"), named("new")]),
        ];
        patterns.sort_by(Pattern::cmp_specificity);
        assert_eq!(patterns.map(|pattern| pattern.to_string()), ["/item/new", "/item/*", "/*", "/**"]);
    }
}
