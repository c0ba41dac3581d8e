//! Patterns of names in client certificates and of values of header fields and cookies.

use std::fmt;
use std::str::FromStr;

/// Pattern of a name or value, in any case. `*` matches any text, also none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern(String);

/// Error: the pattern is empty or too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidNamePattern;

/// Maximum length of a pattern. No name in a certificate is longer.
const MAX_LEN: usize = 256;

impl NamePattern {
    /// Returns true if the whole `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        let Some((start, rest)) = self.0.split_once('*') else { return self.0 == name };
        let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
        let Some(mut name) = name.strip_prefix(start).and_then(|name| name.strip_suffix(end)) else { return false };
        // The first occurrence leaves most for the parts that follow.
        for part in middle.split('*') {
            let Some(found) = name.find(part) else { return false };
            name = &name[found + part.len()..];
        }
        true
    }
}

impl FromStr for NamePattern {
    type Err = InvalidNamePattern;

    fn from_str(text: &str) -> Result<Self, InvalidNamePattern> {
        let is_valid = !text.is_empty() && text.len() <= MAX_LEN;
        is_valid.then(|| Self(text.to_ascii_lowercase())).ok_or(InvalidNamePattern)
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_matches_any_text_and_the_rest_is_literal() {
        for (pattern, matching, others) in [
            ("partner", &["partner", "Partner"][..], &["partners", "a partner", ""][..]),
            (
                "*.partner.example",
                &["a.partner.example", "A.B.Partner.Example", ".partner.example"],
                &["partner.example"],
            ),
            ("svc-*", &["svc-", "svc-a"], &["svc", "a-svc-b"]),
            ("a*b*c", &["abc", "a-b-c", "abbcc"], &["acb", "ab", "abcd"]),
            ("ab*ba", &["abba", "ab-ba"], &["aba"]),
            ("*", &["", "x"], &[]),
            ("spiffe://site/*", &["spiffe://site/api"], &["spiffe://other/api"]),
        ] {
            let parsed: NamePattern = pattern.parse().expect("valid pattern");
            assert!(matching.iter().all(|name| parsed.matches(name)), "{pattern}");
            assert!(!others.iter().any(|name| parsed.matches(name)), "{pattern}");
        }
        assert_eq!("".parse::<NamePattern>(), Err(InvalidNamePattern));
    }
}
