//! Scopes of which there is one for each value of something that a request says: one for each tenant, each host.
//!
//! Who says nothing, or two things at once, shares one scope with all who do: leaving the value out gets nobody around
//! it. Different spellings of a value are one: a query is decoded as forms are, the host is without its last dot, the
//! path as rules see it.

use std::borrow::Cow;
use std::num::NonZeroUsize;

/// One scope for each value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partitioning {
    /// What the value is.
    pub from: PartitionKey,
    /// So many values have scopes of their own at once; those beyond share one.
    pub max_partitions: NonZeroUsize,
}

/// What of a request a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionKey {
    /// The parameter of that name.
    Query(String),
    /// The header field of that name.
    Header(http::HeaderName),
    /// The host asked for.
    Host,
    /// That segment of the path, from 1.
    Path(NonZeroUsize),
    /// The pattern of its route.
    Route,
}

/// What a request says, as far as a scope can go by it.
#[derive(Clone, Copy)]
pub struct PartitionInput<'a> {
    /// The pattern of its route.
    pub route: &'a str,
    /// The host asked for, lower case, without a port.
    pub host: &'a str,
    /// The path as rules match it.
    pub path: &'a str,
    /// The query, without its question mark.
    pub query: Option<&'a str>,
    /// The value of a header field; [`single_value`], where it was sent several times.
    pub header: &'a dyn Fn(&http::HeaderName) -> Option<&'a [u8]>,
}

/// No more of a value is shown.
const MAX_DISPLAY_LEN: usize = 64;

impl PartitionKey {
    /// Returns the value that a request has; nothing, where it has none.
    pub fn extract<'a>(&self, said: &PartitionInput<'a>) -> Cow<'a, [u8]> {
        let found = match self {
            Self::Query(name) => return parameter(said.query.unwrap_or_default(), name).unwrap_or_default(),
            Self::Header(name) => (said.header)(name).unwrap_or_default(),
            Self::Host => said.host.trim_end_matches('.').as_bytes(),
            Self::Path(number) => said.path.split('/').nth(number.get()).unwrap_or_default().as_bytes(),
            Self::Route => said.route.as_bytes(),
        };
        Cow::Borrowed(found)
    }
}

/// Returns what all `values` are, if they are the same.
pub fn single_value<T: PartialEq>(mut values: impl Iterator<Item = T>) -> Option<T> {
    let first = values.next()?;
    values.all(|other| other == first).then_some(first)
}

/// Returns a value for people to read: not too long, and nothing in it that a terminal would obey.
pub fn display_value(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    let mut shown: String = text.chars().take(MAX_DISPLAY_LEN).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX_DISPLAY_LEN).is_some() {
        shown.push('…');
    }
    shown
}

fn parameter<'a>(query: &'a str, name: &str) -> Option<Cow<'a, [u8]>> {
    single_value(query.split('&').filter_map(|pair| {
        let (found, value) = pair.split_once('=').unwrap_or((pair, ""));
        (*decoded(found) == *name.as_bytes()).then(|| decoded(value))
    }))
}

/// A name or value as a form means it; a percent sign that encodes nothing is itself.
fn decoded(text: &str) -> Cow<'_, [u8]> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let encoded = behind.first_chunk::<2>().filter(|_| byte == b'%').and_then(hex);
        plain.push(encoded.unwrap_or(if byte == b'+' { b' ' } else { byte }));
        rest = if encoded.is_some() { &behind[2..] } else { behind };
    }
    Cow::Owned(plain)
}

fn hex(digits: &[u8; 2]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(digits[0])? * 16 + digit(digits[1])?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(from: &PartitionKey, said: &PartitionInput<'_>) -> String {
        String::from_utf8_lossy(&from.extract(said)).into_owned()
    }

    fn asked(query: &str) -> PartitionInput<'_> {
        PartitionInput { route: "/t/**", host: "a.example", path: "/t/one", query: Some(query), header: &|_| None }
    }

    #[test]
    fn a_parameter_is_one_value_however_it_is_spelled() {
        let tenant = PartitionKey::Query("tenant".into());
        for (query, found) in [
            ("tenant=a%20b", "a b"),
            ("tenant=a+b", "a b"),
            ("x=1&tenant=%61+%62&y", "a b"),
            ("%74enant=a b", "a b"),
            ("tenant=a&tenant=%61", "a"),
            ("tenant=a&tenant=b", ""),
            ("tenant", ""),
            ("tenant=", ""),
            ("Tenant=a", ""),
            ("tenant=100%", "100%"),
            ("tenant=%zz%4", "%zz%4"),
            ("tenant=a=b", "a=b"),
            ("", ""),
        ] {
            assert_eq!(value(&tenant, &asked(query)), found, "{query}");
        }
    }

    #[test]
    fn host_path_route_and_header_are_values_too() {
        let fields = |name: &http::HeaderName| (name == "x-tenant").then_some(&b"acme"[..]);
        let said = PartitionInput { host: "a.example.", header: &fields, ..asked("") };
        let segment = |number| PartitionKey::Path(NonZeroUsize::new(number).expect("from 1"));
        for (from, found) in [
            (PartitionKey::Host, "a.example"),
            (segment(1), "t"),
            (segment(2), "one"),
            (segment(3), ""),
            (PartitionKey::Route, "/t/**"),
            (PartitionKey::Header(http::HeaderName::from_static("x-tenant")), "acme"),
            (PartitionKey::Header(http::HeaderName::from_static("x-other")), ""),
        ] {
            assert_eq!(value(&from, &said), found, "{from:?}");
        }
    }

    #[test]
    fn who_says_two_things_says_nothing() {
        assert_eq!(single_value(["a", "a"].into_iter()), Some("a"));
        assert_eq!(single_value(["a", "b"].into_iter()), None);
        assert_eq!(single_value(std::iter::empty::<&str>()), None);
    }

    #[test]
    fn a_value_is_shown_as_one_short_line() {
        assert_eq!(display_value(b"acme"), "acme");
        assert_eq!(display_value("Zürich".as_bytes()), "Zürich");
        assert_eq!(display_value(b"\x1b[2J\n\xff"), "\\u{1b}[2J\\n\u{fffd}");
        assert_eq!(display_value("\u{202e}".as_bytes()), "\\u{202e}");
        assert_eq!(display_value(&[b'x'; 500]).chars().count(), MAX_DISPLAY_LEN + 1);
    }

    proptest! {
        #[test]
        fn any_encoding_of_a_value_is_that_value(value in "[ -~]{0,20}", encoded in proptest::collection::vec(any::<bool>(), 20)) {
            let spelled: String = value.bytes().zip(encoded).map(|(byte, encoded)| match byte {
                b' ' if !encoded => "+".to_owned(),
                b'%' | b'&' | b'+' | b'=' => format!("%{byte:02x}"),
                _ if encoded => format!("%{byte:02X}"),
                _ => char::from(byte).to_string(),
            }).collect();
            prop_assert_eq!(decoded(&spelled), value.as_bytes());
        }
    }
}
