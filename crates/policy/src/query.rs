//! Query parameters, form-decoded, as the origins read them that read most into a query.

use super::path::{encoded_byte, push_encoded};
use std::borrow::Cow;

/// Most parameters of a query, as usual origins have it. Each is compared with all names in the rules.
const MAX_PARAMETERS: usize = 1000;

/// Returns true if `query` has more than a thousand parameters for an origin that separates them by semicolons, too.
pub fn has_too_many_parameters(query: &str) -> bool {
    let separators = || query.bytes().filter(|byte| matches!(byte, b'&' | b';')).count();
    query.len() >= MAX_PARAMETERS && separators() >= MAX_PARAMETERS
}

/// Returns true if `query` has the parameter `name`, in any letter case if `ignore_case`, with `value` if it is given.
pub(super) fn has(query: &str, name: &str, value: Option<&str>, ignore_case: bool) -> bool {
    let is_found = |pair: &str| {
        let (found_name, found_value) = pair.split_once('=').unwrap_or((pair, ""));
        names(found_name, name, ignore_case) && value.is_none_or(|value| decodes_to(found_value, value))
    };
    // Some origins also separate parameters by semicolons.
    query.split('&').any(is_found) || (query.contains(';') && query.split(['&', ';']).any(is_found))
}

/// Returns true if the name of `pair`, such as `page=2`, is `name` in any letter case and encoding, or a member of it.
pub fn is_named(pair: &str, name: &str) -> bool {
    names(pair.split_once('=').map_or(pair, |(found, _)| found), name, true)
}

/// Returns true if some origin reads `text` as the name `name`, or as a member of the list or map of that name: `page[]`,
/// `page[2]`, `[page]`. PHP skips spaces at the start, ends a name at NUL, and reads a dot, space or bracket as `_`.
fn names(text: &str, name: &str, ignore_case: bool) -> bool {
    let is_same = |found: u8, expected: u8| {
        found == expected
            || (ignore_case && found.eq_ignore_ascii_case(&expected))
            || (expected == b'_' && matches!(found, b'.' | b' ' | b'['))
    };
    if text.len() < name.len() || text == name {
        return text == name;
    }
    let mut found = form_decoded(text).skip_while(|byte| matches!(byte, b' ' | b'[' | b']'));
    name.bytes().all(|expected| found.next().is_some_and(|found| is_same(found, expected)))
        && found.next().is_none_or(|byte| matches!(byte, b'[' | b']' | 0))
}

/// Returns true if `text`, raw or form-decoded, equals `expected`: `+` is a space.
fn decodes_to(text: &str, expected: &str) -> bool {
    text == expected || (text.contains(['%', '+']) && form_decoded(text).eq(expected.bytes()))
}

/// Form-decodes a query name or value. A percent sign without two digits is kept.
pub fn form_decoded(text: &str) -> impl Iterator<Item = u8> {
    let mut rest = text.as_bytes();
    std::iter::from_fn(move || {
        let (&first, tail) = rest.split_first()?;
        let encoded = if first == b'%' { encoded_byte(tail) } else { None };
        rest = if encoded.is_some() { &tail[2..] } else { tail };
        Some(encoded.unwrap_or(if first == b'+' { b' ' } else { first }))
    })
}

/// Normalizes a query: decodes what is unreserved in URLs (RFC 3986 section 2.3), and encodes what no URL contains.
pub fn normalize(query: &str) -> Cow<'_, str> {
    let needs_normalizing = |byte: &u8| *byte == b'%' || needs_encoding(*byte);
    if !query.as_bytes().iter().any(needs_normalizing) {
        return Cow::Borrowed(query);
    }
    let mut normalized = String::with_capacity(query.len());
    let mut rest = query.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let encoded = if byte == b'%' { encoded_byte(tail) } else { None };
        rest = if encoded.is_some() { &tail[2..] } else { tail };
        match (encoded, byte) {
            (Some(byte), _) if is_unreserved(byte) => normalized.push(char::from(byte)),
            (Some(byte), _) => push_encoded(&mut normalized, byte),
            // A stray percent sign must not combine with what is decoded after it.
            (None, byte) if byte == b'%' || needs_encoding(byte) => push_encoded(&mut normalized, byte),
            (None, byte) => normalized.push(char::from(byte)),
        }
    }
    Cow::Owned(normalized)
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Returns true if no URL contains the byte.
pub fn needs_encoding(byte: u8) -> bool {
    !byte.is_ascii_graphic() || matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}')
}

#[cfg(test)]
mod tests {
    fn has(query: &str, name: &str, value: Option<&str>) -> bool {
        super::has(query, name, value, false)
    }

    #[test]
    fn number_of_parameters_is_bounded_in_every_spelling() {
        for parameter in ["&", ";", "a&", "a=1;", "&a[]=1"] {
            assert!(!super::has_too_many_parameters(&parameter.repeat(super::MAX_PARAMETERS - 1)), "{parameter}");
            assert!(super::has_too_many_parameters(&parameter.repeat(super::MAX_PARAMETERS)), "{parameter}");
        }
        assert!(!super::has_too_many_parameters(&format!("q={}", "a%26b+".repeat(5_000))), "a long value is one value");
    }

    #[test]
    fn query_parameters_are_compared_decoded() {
        assert!(has("q=1&page=2", "page", None));
        assert!(has("q=1&page=2", "page", Some("2")));
        assert!(!has("q=1&page=2", "page", Some("3")));
        for query in ["%70age=2", "a&p%61ge", "page=%32", "x=1&%70%61%67%65=2"] {
            assert!(has(query, "page", None), "{query}");
        }
        assert!(has("page=%32", "page", Some("2")) && !has("page=%33", "page", Some("2")));
        assert!(has("q=a+b", "q", Some("a b")) && has("q=a%20b", "q", Some("a b")));
        assert!(has("q=c++", "q", Some("c++")) && has("q=c%2B%2b", "q", Some("c++")), "raw spelling matches");
        assert!(!has("%zzpage=2", "page", None) && !has("page%", "page", None));
        for query in ["page[]=2", "a=1&page%5b0%5D=2", "[page]=2", "page]=2", "page[a][b]=2", "a=1;page=2"] {
            assert!(has(query, "page", None) && has(query, "page", Some("2")), "{query}");
        }
        assert!(!has("pages[]=2", "page", None) && !has("p[page]=2", "page", None) && has("q=a;b", "q", Some("a;b")));
        assert!(!has("page%3D2", "page", None), "an encoded `=` does not separate");
    }

    #[test]
    fn names_are_compared_as_php_reads_them() {
        for query in ["%20page=2", "+page=2", "page%00x=2", "+%5Bpage=2", "page%00"] {
            assert!(has(query, "page", None), "{query}");
        }
        for query in ["page_no=2", "page.no=2", "page+no=2", "page%20no=2", "page%2eno=2", "page[no=2"] {
            assert!(has(query, "page_no", None), "{query}");
        }
        assert!(!has("page_no=2", "page.no", None) && !has("page+=2", "page", None) && !has("apage=2", "page", None));
    }

    #[test]
    fn letter_case_of_names_is_ignored_on_request() {
        for (query, is_match) in
            [("PAGE=2", true), ("p%41ge[]=2", true), ("Page=A", false), ("pages=2", false), ("pag", false)]
        {
            let value = query.contains("=A").then_some("a");
            assert_eq!(super::has(query, "page", value, true), is_match, "{query}");
        }
        assert!(!has("PAGE=2", "page", None));
    }
}
