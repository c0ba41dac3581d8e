//! Conditions on header fields and cookies, of classes and of routes, and which those of routes a request meets.
//!
//! A field may be sent twice, or as `X_Api_Version`, which some origins read as `X-Api-Version`, and a cookie as `beta =1`. A condition
//! is met if it is in every reading, and may be met if it is in some: the request then counts as the most expensive one that it may
//! be.

use super::identity::CredentialSource;
use super::name_pattern::NamePattern;
use super::query::form_decoded;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// A header field or cookie that a request must have.
#[derive(Clone, Debug)]
pub struct FieldCondition {
    /// The header field or cookie.
    pub source: CredentialSource,
    /// Patterns of its value, of which one matches; empty accepts every value.
    pub values: Vec<NamePattern>,
    /// Condition as text, such as `x-api-version=2|3` or `cookie:beta=1`, which names it in the log.
    pub text: Arc<str>,
}

/// Conditions of routes on fields that a request meets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldMatch {
    /// Texts of the conditions that the request meets in every reading.
    met: Vec<Arc<str>>,
    /// Texts of the conditions that the request meets in some readings only.
    possible: Vec<Arc<str>>,
}

impl FieldMatch {
    /// Beginning of the word of the log for a condition that may be met. No name of a field begins with it.
    const POSSIBLE: char = '?';

    /// Returns which of `conditions` a request with `fields`, as pairs of name and value, meets.
    pub fn read<'a, F>(conditions: &[FieldCondition], fields: impl Fn() -> F) -> Self
    where
        F: Iterator<Item = (&'a [u8], &'a [u8])>,
    {
        let mut matched = Self::default();
        for condition in conditions {
            let texts = match is_met(condition, fields()) {
                Some(true) => &mut matched.met,
                Some(false) => continue,
                None => &mut matched.possible,
            };
            texts.push(Arc::clone(&condition.text));
        }
        matched
    }

    /// Returns whether the request meets a condition; `None` if it does in some readings only.
    pub fn meets(&self, condition: &FieldCondition) -> Option<bool> {
        match self.possible.contains(&condition.text) {
            true => None,
            false => Some(self.met.contains(&condition.text)),
        }
    }

    /// Returns true if the request has several readings, in which it meets different conditions.
    pub fn is_ambiguous(&self) -> bool {
        !self.possible.is_empty()
    }

    /// Iterates over the texts of the conditions that the request meets in every reading.
    pub fn met(&self) -> impl Iterator<Item = &str> {
        self.met.iter().map(AsRef::as_ref)
    }

    /// Iterates over the texts of the conditions that the request meets in some readings only.
    pub fn possible(&self) -> impl Iterator<Item = &str> {
        self.possible.iter().map(AsRef::as_ref)
    }

    /// Returns the words of the log, each with what to write before it.
    pub fn words(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.met().map(|text| ("", text)).chain(self.possible().map(|text| ("?", text)))
    }

    /// Returns what the words of the log say.
    pub fn from_words<'a>(words: impl Iterator<Item = &'a str>) -> Self {
        let mut matched = Self::default();
        for word in words {
            match word.strip_prefix(Self::POSSIBLE) {
                Some(text) => matched.possible.push(text.into()),
                None => matched.met.push(word.into()),
            }
        }
        matched
    }
}

/// Writes the field and the patterns of its value: `the header x-partner like acme*`.
impl fmt::Display for FieldCondition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            CredentialSource::Header(name) => write!(out, "the header {name}")?,
            CredentialSource::Cookie(name) => write!(out, "the cookie {name}")?,
        }
        for (index, pattern) in self.values.iter().enumerate() {
            write!(out, "{}{pattern}", if index == 0 { " like " } else { " or " })?;
        }
        Ok(())
    }
}

impl FieldCondition {
    /// Returns the condition that a request has the header field or cookie, and its value matches one of `values`, if there are any.
    pub fn new(source: CredentialSource, values: Vec<NamePattern>) -> Self {
        let mut text = match &source {
            CredentialSource::Header(name) => name.to_string(),
            CredentialSource::Cookie(name) => format!("cookie:{name}"),
        };
        for (index, value) in values.iter().enumerate() {
            text.push(if index == 0 { '=' } else { '|' });
            // So that each condition has its own text.
            text += &value.to_string().replace('\\', r"\\").replace('|', r"\|");
        }
        Self { source, values, text: text.into() }
    }

    /// Returns true if a request has the field, and one of its values matches. `values` are those of the request.
    pub fn matches<'a>(&self, mut values: impl Iterator<Item = &'a [u8]>) -> bool {
        let is_accepted =
            |value: &str| self.values.is_empty() || self.values.iter().any(|pattern| pattern.matches(value));
        values.any(|value| is_accepted(&String::from_utf8_lossy(value)))
    }
}

/// Returns whether a request with `fields` meets a condition; `None` if it does in some readings only.
fn is_met<'a>(condition: &FieldCondition, fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Option<bool> {
    let mut values: Vec<Cow<'_, [u8]>> = Vec::new();
    let mut is_certain = false;
    match &condition.source {
        CredentialSource::Header(name) => {
            let name = name.as_str().as_bytes();
            for (text, value) in fields.filter(|(text, _)| eq_as_cgi(text, name)) {
                values.push(value.into());
                is_certain |= text.eq_ignore_ascii_case(name);
            }
            if values.len() > 1 {
                values.push(values.join(&b", "[..]).into());
            }
        }
        CredentialSource::Cookie(name) => {
            for (_, line) in fields.filter(|(text, _)| text.eq_ignore_ascii_case(b"cookie")) {
                is_certain |= read_cookies(line, name.as_bytes(), &mut values);
            }
        }
    }
    // An origin that reads another spelling as another name has no value.
    let absent = (!is_certain).then_some(false);
    let mut readings = values.iter().map(|value| condition.matches([&**value].into_iter())).chain(absent);
    let first = readings.next()?;
    readings.all(|other| other == first).then_some(first)
}

/// Adds the values that origins may read of the cookies `name` in a line. Returns true if all of them read one.
///
/// Parsers differ in what separates cookies (RFC 6265 section 5.4 a semicolon, RFC 2965 also a comma, Python's a space, and none
/// within quotes), in spaces before the equals sign, and in the decoding of names and values.
fn read_cookies<'a>(line: &'a [u8], name: &[u8], values: &mut Vec<Cow<'a, [u8]>>) -> bool {
    let (mut is_certain, mut is_quoted) = (false, false);
    for pair in line.split(|byte| *byte == b';') {
        let pair = pair.trim_ascii();
        for (start, _) in pair.iter().enumerate().filter(|(at, _)| *at == 0 || is_separator(pair[at - 1])) {
            let cookie = &pair[start..];
            let name_end = cookie.iter().position(|byte| *byte == b'=' || is_separator(*byte)).unwrap_or(cookie.len());
            let (text, rest) = cookie.split_at(name_end);
            if !eq_as_php(&form_decoded_bytes(text), name) {
                continue;
            }
            is_certain |= start == 0 && !is_quoted && text == name && rest.starts_with(b"=");
            let rest = rest.trim_ascii_start();
            let value = rest.strip_prefix(b"=").unwrap_or_default().trim_ascii();
            let cut = match value.strip_prefix(b"\"") {
                Some(quoted) => quoted.split(|byte| *byte == b'"').next(),
                None => value.split(|byte| is_separator(*byte)).next(),
            };
            // A parser that finds a cookie within a pair ends its value there, too: all values together are as long as the line.
            let whole = (start == 0).then_some(value);
            for value in cut.into_iter().chain(whole) {
                let unquoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
                values.extend([value.into(), unquoted.into(), form_decoded_bytes(unquoted).into()]);
            }
        }
        is_quoted ^= pair.iter().filter(|byte| **byte == b'"').count() % 2 == 1;
    }
    is_certain
}

/// Returns true for a byte that ends a cookie for some parsers.
fn is_separator(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b',' | b'"')
}

fn form_decoded_bytes(text: &[u8]) -> Vec<u8> {
    form_decoded(&String::from_utf8_lossy(text)).collect()
}

/// Returns true if PHP reads both names of cookies as one.
fn eq_as_php(one: &[u8], other: &[u8]) -> bool {
    let underscored = |byte: &u8| if matches!(byte, b'.' | b' ' | b'[') { b'_' } else { *byte };
    one.iter().map(underscored).eq(other.iter().map(underscored))
}

/// Returns true if an origin of CGI or WSGI reads both names as one.
pub fn eq_as_cgi(one: &[u8], other: &[u8]) -> bool {
    let dashed = |byte: &u8| if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' };
    one.len() == other.len() && one.iter().map(dashed).eq(other.iter().map(dashed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn condition(source: CredentialSource, patterns: &[&str]) -> FieldCondition {
        FieldCondition::new(source, patterns.iter().map(|pattern| pattern.parse().expect("a pattern")).collect())
    }

    fn header(patterns: &[&str]) -> FieldCondition {
        condition(CredentialSource::Header(http::HeaderName::from_static("x-api-version")), patterns)
    }

    fn read(condition: &FieldCondition, fields: &[(&str, &str)]) -> Option<bool> {
        let pairs = || fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        FieldMatch::read(std::slice::from_ref(condition), pairs).meets(condition)
    }

    #[test]
    fn field_that_origins_read_differently_may_meet_a_condition() {
        let (second, any) = (header(&["2", "2.*"]), header(&[]));
        assert_eq!((&*second.text, &*any.text), ("x-api-version=2|2.*", "x-api-version"));
        assert_ne!(header(&["2|3"]).text, header(&["2", "3"]).text);
        assert_ne!(header(&[r"2\|3"]).text, header(&[r"2\", "3"]).text);
        for (fields, of_second, of_any) in [
            (&[][..], Some(false), Some(false)),
            (&[("accept", "2")], Some(false), Some(false)),
            (&[("x-api-version", "2")], Some(true), Some(true)),
            (&[("X-API-VERSION", "2.1")], Some(true), Some(true)),
            (&[("x-api-version", "1")], Some(false), Some(true)),
            (&[("x-api-version", "2, 1")], Some(false), Some(true)),
            (&[("x-api-version", "")], Some(false), Some(true)),
            (&[("x-api-version", "2"), ("x-api-version", "1")], None, Some(true)),
            (&[("x-api-version", "2"), ("x-api-version", "2")], None, Some(true)),
            (&[("x-api-version", "1"), ("x-api-version", "3")], Some(false), Some(true)),
            (&[("x_api_version", "2")], None, None),
            (&[("X.Api-Version", "1")], Some(false), None),
            (&[("x-api-version", "1"), ("x_api_version", "2")], None, Some(true)),
        ] {
            assert_eq!((read(&second, fields), read(&any, fields)), (of_second, of_any), "{fields:?}");
        }
    }

    #[test]
    fn cookie_that_is_sent_twice_may_meet_a_condition() {
        let beta = condition(CredentialSource::Cookie("beta".into()), &["1"]);
        assert_eq!(&*beta.text, "cookie:beta=1");
        for (cookies, is_met) in [
            (&["beta=1"][..], Some(true)),
            (&["a=b; beta=1 ;c=d"], Some(true)),
            (&["a=b", "beta=1"], Some(true)),
            (&["Beta=1; beta2=1; a=beta=1"], Some(false)),
            (&["beta=; a=1"], Some(false)),
            (&["beta=1; beta=1"], Some(true)),
            (&["beta=1; beta=0"], None),
            (&["beta=1", "beta="], None),
            (&["beta =1"], None),
            (&["beta =0; beta"], Some(false)),
            (&["beta=1; beta =0"], None),
            (&["a=b beta=1"], None),
            (&["a=b,\tbeta = 1"], None),
            (&["a=\"; beta=1"], None),
            (&["a=\"b\"; beta=1"], Some(true)),
            (&["be%74a=1"], None),
            (&["beta=\"1\""], None),
            (&["beta=%31"], None),
            (&["beta=1 a=b"], None),
            (&["a=b beta=\"1\" c=d"], None),
        ] {
            let fields: Vec<_> = cookies.iter().map(|line| ("Cookie", *line)).collect();
            assert_eq!(read(&beta, &fields), is_met, "{cookies:?}");
        }
        let any = condition(CredentialSource::Cookie("be_ta".into()), &[]);
        for (cookies, is_met) in
            [("be_ta=", Some(true)), ("be_ta", None), ("be.ta=1", None), ("x be_ta", None), ("a=be_ta=1", Some(false))]
        {
            assert_eq!(read(&any, &[("cookie", cookies)]), is_met, "{cookies}");
        }
    }

    #[test]
    fn values_of_a_hostile_cookie_are_bounded_by_its_length() {
        for part in ["beta=1 ", "beta = ", "beta,", "beta=beta ", "beta=\"", "beta=1;", " beta =1;"] {
            let (line, mut values) = (part.repeat(10_000), Vec::new());
            read_cookies(line.as_bytes(), b"beta", &mut values);
            let bytes: usize = values.iter().map(|value| value.len()).sum();
            assert!(bytes <= 6 * line.len(), "{part}: {bytes} bytes of {}", line.len());
        }
    }

    proptest! {
        #[test]
        fn condition_of_one_exact_field_is_certain(name in "[xX]-[aA]pi-[vV]ersion", value in "[123.]{0,3}") {
            let (pattern, any) = (header(&["2*"]), header(&[]));
            prop_assert_eq!(read(&pattern, &[(&name, &value)]), Some(value.starts_with('2')));
            prop_assert_eq!(read(&any, &[(&name, &value)]), Some(true));
        }

        #[test]
        fn words_of_the_log_say_what_was_met(
            fields in proptest::collection::vec(("[xX][-_]api[-_]version", "[12]"), 0..4)
        ) {
            let conditions = [header(&["2"]), header(&["1"]), header(&[])];
            let pairs = || fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            let matched = FieldMatch::read(&conditions, pairs);
            let words: Vec<String> = matched.words().map(|(mark, text)| format!("{mark}{text}")).collect();
            prop_assert_eq!(FieldMatch::from_words(words.iter().map(String::as_str)), matched);
        }
    }
}
