//! Conditions on header fields and cookies, of classes and of routes, and which those of routes a request meets.
//!
//! A field may be sent twice, or as `X_Api_Version`, which some origins read as `X-Api-Version`. A condition is met if it is in every
//! reading, and may be met if it is in some: the request then counts as the most expensive one that it may be.

use super::identity::CredentialSource;
use super::identity::key::cookies_named;
use super::name_pattern::NamePattern;
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
            text += &value.to_string();
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
    let mut values: Vec<&[u8]> = Vec::new();
    let (mut exact, mut joined) = (0, None);
    match &condition.source {
        CredentialSource::Header(name) => {
            let name = name.as_str().as_bytes();
            for (text, value) in fields.filter(|(text, _)| eq_as_cgi(text, name)) {
                values.push(value);
                exact += usize::from(text.eq_ignore_ascii_case(name));
            }
            joined = (values.len() > 1).then(|| values.join(&b", "[..]));
        }
        CredentialSource::Cookie(name) => {
            let lines = fields.filter(|(text, _)| text.eq_ignore_ascii_case(b"cookie")).map(|(_, line)| line);
            values.extend(cookies_named(lines, name));
            exact = values.len();
        }
    }
    let is_cookie = matches!(condition.source, CredentialSource::Cookie(_));
    let accepts = |value: &[u8]| !(is_cookie && value.is_empty()) && condition.matches([value].into_iter());
    // An origin that reads another spelling as another name has no value.
    let absent = (exact == 0).then_some(false);
    let mut readings = values.iter().copied().chain(joined.as_deref()).map(accepts).chain(absent);
    let first = readings.next()?;
    readings.all(|other| other == first).then_some(first)
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
        ] {
            let fields: Vec<_> = cookies.iter().map(|line| ("Cookie", *line)).collect();
            assert_eq!(read(&beta, &fields), is_met, "{cookies:?}");
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
