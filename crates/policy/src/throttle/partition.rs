//! Partitioned scopes: one scope instance per value of a key in the request, such as tenant or host.
//!
//! Requests without a value, or with conflicting values, share one instance, so that omitting the value evades no
//! limit. Spellings of a value are unified: queries are form-decoded, hosts lose their trailing dot, paths are
//! normalized.

use crate::facts::RequestFacts;
use crate::query;
use std::borrow::Cow;
use std::num::NonZeroUsize;

/// Partitioning of a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partitioning {
    /// Key that yields the value.
    pub key: PartitionKey,
    /// Maximum number of values with an instance of their own; all others share one.
    pub max_partitions: NonZeroUsize,
}

/// Part of a request that is the partition key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionKey {
    /// Query parameter with this name.
    Query(String),
    /// Header field with this name.
    Header(http::HeaderName),
    /// Requested host.
    Host,
    /// Path segment with this number, from 1.
    Path(NonZeroUsize),
    /// Pattern of the route.
    Route,
}

/// Input of partition keys.
#[derive(Clone, Copy)]
pub struct PartitionInput<'a> {
    /// Pattern of the route.
    pub route: &'a str,
    /// Request, as rules match it.
    pub request: RequestFacts<'a>,
    /// Value of a header field; repeated fields are combined by [`single_value`].
    pub header: &'a dyn Fn(&http::HeaderName) -> Option<&'a [u8]>,
}

/// Maximum number of characters of a displayed value.
const MAX_DISPLAY_LEN: usize = 64;

impl PartitionKey {
    /// Returns the value of a request; empty if it has none.
    pub fn extract<'a>(&self, input: &PartitionInput<'a>) -> Cow<'a, [u8]> {
        let value = match self {
            Self::Query(name) => return parameter(input.request.query.unwrap_or_default(), name).unwrap_or_default(),
            Self::Header(name) => (input.header)(name).unwrap_or_default(),
            Self::Host => input.request.host.trim_end_matches('.').as_bytes(),
            Self::Path(number) => input.request.path.split('/').nth(number.get()).unwrap_or_default().as_bytes(),
            Self::Route => input.route.as_bytes(),
        };
        Cow::Borrowed(value)
    }
}

/// Returns the common value of all `values`; `None` if they differ or there are none.
pub fn single_value<T: PartialEq>(mut values: impl Iterator<Item = T>) -> Option<T> {
    let first = values.next()?;
    values.all(|other| other == first).then_some(first)
}

/// Formats a value for display: truncated, with control characters escaped.
pub fn display_value(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    let mut output: String = text.chars().take(MAX_DISPLAY_LEN).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX_DISPLAY_LEN).is_some() {
        output.push('…');
    }
    output
}

fn parameter<'a>(query: &'a str, name: &str) -> Option<Cow<'a, [u8]>> {
    single_value(query.split('&').filter_map(|pair| {
        let (found_name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (*decoded(found_name) == *name.as_bytes()).then(|| decoded(value))
    }))
}

/// Form-decodes a name or value; keeps a percent sign that encodes nothing.
fn decoded(text: &str) -> Cow<'_, [u8]> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(text.as_bytes());
    }
    Cow::Owned(query::form_decoded(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::request_facts;
    use proptest::prelude::*;

    fn partition_value(key: &PartitionKey, input: &PartitionInput<'_>) -> String {
        String::from_utf8_lossy(&key.extract(input)).into_owned()
    }

    fn query_input(query: &str) -> PartitionInput<'_> {
        let request = RequestFacts { host: "a.example", query: Some(query), ..request_facts("/t/one") };
        PartitionInput { route: "/t/**", request, header: &|_| None }
    }

    #[test]
    fn query_parameter_value_is_decoded_from_any_spelling() {
        let tenant = PartitionKey::Query("tenant".into());
        for (query, expected) in [
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
            assert_eq!(partition_value(&tenant, &query_input(query)), expected, "{query}");
        }
    }

    #[test]
    fn partition_value_can_be_host_path_route_header() {
        let fields = |name: &http::HeaderName| (name == "x-tenant").then_some(&b"acme"[..]);
        let input = PartitionInput { header: &fields, ..query_input("") };
        let segment = |number| PartitionKey::Path(NonZeroUsize::new(number).expect("1 or more"));
        for (key, expected) in [
            (PartitionKey::Host, "a.example"),
            (segment(1), "t"),
            (segment(2), "one"),
            (segment(3), ""),
            (PartitionKey::Route, "/t/**"),
            (PartitionKey::Header(http::HeaderName::from_static("x-tenant")), "acme"),
            (PartitionKey::Header(http::HeaderName::from_static("x-other")), ""),
        ] {
            assert_eq!(partition_value(&key, &input), expected, "{key:?}");
        }
    }

    #[test]
    fn conflicting_values_give_none() {
        assert_eq!(single_value(["a", "a"].into_iter()), Some("a"));
        assert_eq!(single_value(["a", "b"].into_iter()), None);
        assert_eq!(single_value(std::iter::empty::<&str>()), None);
    }

    #[test]
    fn displayed_value_is_short_and_escaped() {
        assert_eq!(display_value(b"acme"), "acme");
        assert_eq!(display_value("Zürich".as_bytes()), "Zürich");
        assert_eq!(display_value(b"\x1b[2J\n\xff"), "\\u{1b}[2J\\n\u{fffd}");
        assert_eq!(display_value("\u{202e}".as_bytes()), "\\u{202e}");
        assert_eq!(display_value(&[b'x'; 500]).chars().count(), MAX_DISPLAY_LEN + 1);
    }

    proptest! {
        #[test]
        fn every_encoding_decodes_to_the_value(value in "[ -~]{0,20}", encoded in proptest::collection::vec(any::<bool>(), 20)) {
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
