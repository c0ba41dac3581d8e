//! Paths with their changing parts left out: `/item/123` is `/item/*`.

use std::cmp::Ordering;
use std::fmt;

/// A path pattern as routes have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pattern(Vec<PatternSegment>);

/// One segment. What is more particular comes first, as it must among routes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PatternSegment {
    /// This one.
    Name(Box<str>),
    /// Any.
    Any,
    /// Any, and whatever follows.
    Rest,
}

/// The segment as a name; nothing where it is one of many that stand for things: a number, a date, a hash, a title. What
/// a stranger may have made up to look like a pattern or like YAML is none either.
pub(super) fn name(segment: &str) -> Option<&str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let digits = segment.bytes().filter(u8::is_ascii_digit).count();
    let is_number = digits == segment.len() || digits >= MAX_DIGITS;
    let is_secret = segment.split(|letter: char| !letter.is_ascii_alphanumeric()).any(is_key);
    (segment.len() <= MAX_NAME_LEN && segment.bytes().all(plain) && !is_number && !is_secret).then_some(segment)
}

/// A long word with digits among its letters is somebody's key, whatever stands before and behind it.
fn is_key(word: &str) -> bool {
    word.len() >= MIN_KEY_LEN
        && word.bytes().any(|byte| byte.is_ascii_digit())
        && word.bytes().any(|byte| byte.is_ascii_alphabetic())
}

impl Pattern {
    /// This with one more segment.
    pub(super) fn join(&self, part: PatternSegment) -> Self {
        Self(self.0.iter().cloned().chain([part]).collect())
    }

    /// True where it may fit names that are not in it.
    pub(super) fn has_wildcard(&self) -> bool {
        matches!(self.0.last(), Some(PatternSegment::Any | PatternSegment::Rest))
    }

    /// The order of routes: of two that fit the same path, the more particular first.
    pub(super) fn cmp_specificity(&self, other: &Self) -> Ordering {
        let particular = |pattern: &Self| pattern.0.iter().map(PatternSegment::specificity).collect::<Vec<_>>();
        particular(self).cmp(&particular(other))
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

/// A name has a version or a small number in it (`v2`, `top10`); a year or more is a thing.
const MAX_DIGITS: usize = 4;

/// Shorter ones could be guessed, and are no secret.
const MIN_KEY_LEN: usize = 16;

/// Names of folders are short; titles are not.
const MAX_NAME_LEN: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_told_from_a_name() {
        for folder in ["item", "v2", "wp-login.php", "", "feed.xml", "top10", ".env"] {
            assert_eq!(name(folder), Some(folder).filter(|folder| !folder.is_empty()), "{folder:?}");
        }
        for thing in ["42", "2015", "logstash-2012", "3fa85f64-5717-4562", "a%20b", "**", "$HOME", "\"", "caf\u{e9}"] {
            assert_eq!(name(thing), None, "{thing:?}");
        }
        assert_eq!(name(&"a".repeat(41)), None);
        for key in ["sk_live_51H8abcdefghijklmnop", "eyJhbGciOiJIUzI1NiJ9.abc.def"] {
            assert_eq!(name(key), None, "{key:?}");
        }
    }

    #[test]
    fn the_more_particular_comes_first() {
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
