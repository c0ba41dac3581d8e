//! Values of query parameters that do not belong into a log.

use std::borrow::Cow;
use tidegate_policy::query::is_named;

/// Stands for a removed value.
const REDACTED: &str = "=[redacted]";

/// Returns `query` without the values of the parameters `names`, in any letter case and encoding.
///
/// A semicolon separates parameters for some origins and is part of a value for others. All that one of them could read
/// as the value is removed.
pub fn redacted<'a>(query: &'a str, names: &[String]) -> Cow<'a, str> {
    if names.is_empty() {
        return Cow::Borrowed(query);
    }
    let (mut text, mut copied, mut start) = (String::new(), 0, 0);
    for part in query.split('&') {
        let end = start + part.len();
        if let Some(name_end) = named_value(part, names) {
            text.push_str(&query[copied..start + name_end]);
            text.push_str(REDACTED);
            copied = end;
        }
        start = end + 1;
    }
    if text.is_empty() {
        return Cow::Borrowed(query);
    }
    text.push_str(&query[copied..]);
    Cow::Owned(text)
}

/// Like [`redacted`], for the query of a URL.
pub fn redacted_url<'a>(url: &'a [u8], names: &[String]) -> Cow<'a, [u8]> {
    let query = url.iter().position(|byte| *byte == b'?').filter(|_| !names.is_empty());
    let Some(query) = query else { return Cow::Borrowed(url) };
    let (before, query) = url.split_at(query + 1);
    let query = String::from_utf8_lossy(query);
    Cow::Owned([before, redacted(&query, names).as_bytes()].concat())
}

/// Returns where the name of the first parameter in `part` that has one of `names` ends; its value and the rest follow.
fn named_value(part: &str, names: &[String]) -> Option<usize> {
    let mut start = 0;
    for pair in part.split(';') {
        if names.iter().any(|name| is_named(pair, name)) {
            return Some(start + pair.find('=').unwrap_or(pair.len()));
        }
        start += pair.len() + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without_secrets(query: &str) -> String {
        redacted(query, &["token".into(), "e mail".into()]).into_owned()
    }

    #[test]
    fn values_of_named_parameters_are_removed_in_every_spelling() {
        assert_eq!(redacted("token=1", &[]), "token=1");
        for (query, expected) in [
            ("token=1", "token=[redacted]"),
            ("a=1&token=s=x&b=2", "a=1&token=[redacted]&b=2"),
            ("Token=1&TOKEN", "Token=[redacted]&TOKEN=[redacted]"),
            ("%74oken=1&token[]=2&token%5b0%5d=3", "%74oken=[redacted]&token[]=[redacted]&token%5b0%5d=[redacted]"),
            ("e+mail=1&e%20mail=2&email=3", "e+mail=[redacted]&e%20mail=[redacted]&email=3"),
            ("token=a;b=c&d=1", "token=[redacted]&d=1"),
            ("a=1;token=s;b=2&c=3", "a=1;token=[redacted]&c=3"),
            ("tokens=1&a=token&&=token", "tokens=1&a=token&&=token"),
            ("", ""),
            ("&&token=1&&", "&&token=[redacted]&&"),
        ] {
            assert_eq!(without_secrets(query), expected, "{query}");
        }
    }

    #[test]
    fn queries_of_urls_are_redacted() {
        let names = ["token".to_owned()];
        for (url, expected) in [
            ("https://a.example/token=1?token=1#x", "https://a.example/token=1?token=[redacted]"),
            ("/page?a=1&token=2", "/page?a=1&token=[redacted]"),
            ("/page", "/page"),
        ] {
            assert_eq!(redacted_url(url.as_bytes(), &names), expected.as_bytes(), "{url}");
            assert_eq!(redacted_url(url.as_bytes(), &[]), url.as_bytes(), "{url}");
        }
    }
}
