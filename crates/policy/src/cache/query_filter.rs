//! The part of a query that is part of the key. The origin is sent nothing else, so that a parameter that it reads
//! differently cannot change what other clients get.

use std::borrow::Cow;

/// Name of query parameters, or their beginning: `fbclid`, `utm_*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterPattern {
    name: String,
    is_prefix: bool,
}

impl ParameterPattern {
    /// Returns the pattern; `None` if it is empty, or has a star elsewhere than at its end, or a separator.
    pub fn parse(text: &str) -> Option<Self> {
        let name = text.strip_suffix('*').unwrap_or(text);
        let is_valid = !text.is_empty() && !name.contains(['*', '&', '=', '#']) && !name.contains(char::is_whitespace);
        is_valid.then(|| Self { name: name.to_owned(), is_prefix: name.len() < text.len() })
    }

    fn matches(&self, name: &str) -> bool {
        if self.is_prefix { name.starts_with(&self.name) } else { name == self.name }
    }
}

/// Returns the parameters of `query` that are part of the key, as sent and in order: those in `included`, if there is
/// such a list, without those in `ignored`. Only `&` separates parameters.
pub fn filter<'a>(query: &'a str, included: Option<&[ParameterPattern]>, ignored: &[ParameterPattern]) -> Cow<'a, str> {
    let is_kept = |pair: &&str| {
        let name = pair.split_once('=').map_or(*pair, |(name, _)| name);
        let is_match = |pattern: &ParameterPattern| pattern.matches(name);
        included.is_none_or(|included| included.iter().any(is_match)) && !ignored.iter().any(is_match)
    };
    if (included.is_none() && ignored.is_empty()) || query.split('&').all(|pair| is_kept(&pair)) {
        return Cow::Borrowed(query);
    }
    Cow::Owned(query.split('&').filter(is_kept).collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_parameters_are_neither_in_the_key_nor_sent() {
        let pattern = |text| ParameterPattern::parse(text).expect("valid");
        let ignored = ["utm_*", "gclid"].map(pattern);
        for (query, expected) in [
            ("a=1&b=2", "a=1&b=2"),
            ("utm_source=x&a=1&gclid", "a=1"),
            ("utm_source=x", ""),
            ("a=1;utm_source=x", "a=1;utm_source=x"),
            ("utm_source=x;callback=evil", ""),
            ("gclid2=1&xgclid=2", "gclid2=1&xgclid=2"),
            ("a=1&&b", "a=1&&b"),
        ] {
            assert_eq!(filter(query, None, &ignored), expected, "{query}");
        }
        let included = ["page", "q"].map(pattern);
        assert_eq!(filter("page=2&callback=evil&q=a", Some(&included), &ignored), "page=2&q=a");
        assert_eq!(filter("callback=evil", Some(&[]), &[]), "");
        for invalid in ["", "a*b", "a b", "a=b", "a&b"] {
            assert_eq!(ParameterPattern::parse(invalid), None, "{invalid}");
        }
    }
}
