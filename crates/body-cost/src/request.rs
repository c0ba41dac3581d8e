//! Values in the JSON body of a request, of which the beginning is in memory.
//!
//! A client may choose its body so that the gateway and the origin read different values. A value that parsers of JSON read in
//! different ways is therefore marked as ambiguous, and a body that some of them would not read at all is not whole: one that is
//! cut, has anything behind its object, is a list, or breaks the grammar anywhere.

use crate::json::number::NumberParser;
use crate::path::CostPath;
use crate::readings::{NANO, Reading};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Most bytes of a text that is kept. A longer one is ambiguous.
const MAX_TEXT: usize = 1024;
/// Numbers from here on have too many milli-units for 64 bits.
const MAX_NUMBER: f64 = 1e16;
/// Byte order mark, which may precede a document.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// Paths at which request bodies are read.
#[derive(Clone, Debug)]
pub struct RequestPaths(Box<[CostPath]>);

/// What the body of a request has at each path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestValues {
    /// In the order of the paths.
    values: Box<[RequestValue]>,
    is_whole: bool,
    is_broken: bool,
}

/// What the body of a request has at one path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestValue {
    /// Largest number, in thousandths, rounded up; `None` if there is none that is not negative. A text that is a number counts, and
    /// one with other digits, which parsers read in different ways, as the largest one.
    pub largest_milli: Option<u64>,
    /// Text, number or truth value, as text.
    pub text: Option<Box<str>>,
    /// True if parsers read different values: a key of the path occurs twice or in another letter case, or the text is long.
    pub is_ambiguous: bool,
}

impl RequestPaths {
    /// Creates the set of `paths`. Values are in their order.
    pub fn new(paths: Vec<CostPath>) -> Self {
        Self(paths.into())
    }

    /// Reads the body that begins with `beginning`. `is_whole` is false if there is more of it.
    pub fn read(&self, beginning: &[u8], is_whole: bool) -> RequestValues {
        let text = beginning.strip_prefix(BOM).unwrap_or(beginning);
        let mut values = vec![RequestValue::default(); self.0.len()].into_boxed_slice();
        let mut json = serde_json::Deserializer::from_slice(text);
        let leading = (0..self.0.len()).collect();
        let root = ValueSeed { paths: &self.0, values: &mut values, leading, level: 0 };
        let is_read = root.deserialize(&mut json).is_ok() && json.end().is_ok();
        let is_object = text.trim_ascii_start().starts_with(b"{");
        let is_broken = is_whole && !is_read && (is_object || is_utf16(beginning));
        RequestValues { values, is_whole: is_whole && is_read && is_object, is_broken }
    }

    /// Returns the values of a body of which nothing was read.
    pub fn unread(&self) -> RequestValues {
        RequestValues { values: vec![RequestValue::default(); self.0.len()].into(), is_whole: false, is_broken: false }
    }
}

/// Returns true if a `Content-Type` names a character encoding in which ASCII characters are not those of UTF-8, or may not be.
/// Express and aiohttp, among others, read JSON in the encoding that is named, such as UTF-7.
pub fn names_other_charset(content_type: &[u8]) -> bool {
    /// Encodings in which each ASCII character is its own byte, and no other character has such a byte.
    const SAME: [&[u8]; 6] = [b"utf-8", b"utf8", b"us-ascii", b"ascii", b"iso-8859-1", b"windows-1252"];
    const PARAMETER: &[u8] = b"charset";
    let text = content_type.to_ascii_lowercase();
    let values = memchr::memmem::find_iter(&text, PARAMETER).map(|at| text[at + PARAMETER.len()..].trim_ascii_start());
    let value = |rest: &[u8]| {
        let value = rest.strip_prefix(b"=")?.split(|byte| *byte == b';').next()?.trim_ascii();
        let unquoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
        Some(unquoted.unwrap_or(value).to_vec())
    };
    // Parsers differ in which of several parameters they read, and in the spellings that they allow.
    values.map(value).any(|value| value.is_none_or(|value| !SAME.contains(&&*value)))
}

/// Returns true if a text begins as UTF-16 or UTF-32 does, in which some parsers read JSON.
fn is_utf16(text: &[u8]) -> bool {
    let beginning = &text[..text.len().min(4)];
    beginning.contains(&0) || beginning.starts_with(b"\xff\xfe") || beginning.starts_with(b"\xfe\xff")
}

impl RequestValues {
    /// Returns what is known of a body that the origin may decode before it reads the JSON: it may be any other document.
    #[must_use]
    pub fn in_another_coding(self) -> Self {
        Self { is_whole: false, ..self }
    }

    /// Returns what is known of a body whose text the origin may read in another character encoding than UTF-8: any values.
    #[must_use]
    pub fn in_another_charset(self) -> Self {
        Self { is_whole: false, is_broken: true, ..self }
    }

    /// Returns true if the body is one JSON object that was read to its end.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Returns true if the body begins as an object and breaks the grammar: lenient parsers may find any values in it.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Returns what the body has at the path at `position`.
    pub fn at(&self, position: usize) -> &RequestValue {
        &self.values[position]
    }
}

/// Reader of the value that the first segments of some paths, `level` of them, lead to.
struct ValueSeed<'a> {
    paths: &'a [CostPath],
    values: &'a mut [RequestValue],
    /// Positions of these paths.
    leading: Vec<usize>,
    level: usize,
}

/// Reader of a key of an object. Returns the positions of the paths that lead on.
struct KeySeed<'a> {
    paths: &'a [CostPath],
    values: &'a mut [RequestValue],
    leading: &'a [usize],
    level: usize,
}

impl ValueSeed<'_> {
    /// Sets the value of the paths that end here.
    fn set(&mut self, text: &str, milli: Option<u64>) {
        for &position in self.leading.iter().filter(|position| self.paths[**position].len() == self.level) {
            let value = &mut self.values[position];
            value.largest_milli = value.largest_milli.max(milli);
            value.is_ambiguous |= text.len() > MAX_TEXT;
            value.text = (text.len() <= MAX_TEXT).then(|| text.into());
        }
    }

    fn inner(&mut self, leading: Vec<usize>) -> ValueSeed<'_> {
        ValueSeed { paths: self.paths, values: self.values, leading, level: self.level + 1 }
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let mut seen = Vec::new();
        loop {
            let Self { paths, values, leading, level } = &mut self;
            let key = KeySeed { paths, values, leading, level: *level };
            let Some(leading) = map.next_key_seed(key)? else { return Ok(()) };
            for &position in &leading {
                match seen.contains(&position) {
                    true => self.values[position].is_ambiguous = true,
                    false => seen.push(position),
                }
            }
            match leading.is_empty() {
                true => _ = map.next_value::<IgnoredAny>()?,
                false => map.next_value_seed(self.inner(leading))?,
            }
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        for index in 0.. {
            let (paths, level) = (self.paths, self.level);
            let leads_on = |position: &usize| paths[*position].index(level) == Some(index);
            let leading: Vec<usize> = self.leading.iter().copied().filter(leads_on).collect();
            let element = match leading.is_empty() {
                true => list.next_element::<IgnoredAny>()?.map(|_| ()),
                false => list.next_element_seed(self.inner(leading))?,
            };
            if element.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_str<E: Error>(mut self, text: &str) -> Result<(), E> {
        // With a sign, spaces or underscores, it is a number for some languages.
        let lenient = || milli_of(&text.trim().trim_start_matches('+').replace('_', ""));
        let milli = if text.len() <= MAX_TEXT { milli_of(text).or_else(lenient) } else { None };
        // Some parsers read the digits of any script, hexadecimal ones, or those that a text begins with.
        let is_negative = text.trim_start().starts_with(['-', '\u{2212}']);
        let any = || (!is_negative && text.contains(char::is_numeric)).then_some(u64::MAX);
        let milli = milli.or_else(any);
        self.set(text, milli);
        Ok(())
    }

    fn visit_u64<E: Error>(mut self, number: u64) -> Result<(), E> {
        self.set(&number.to_string(), Some(number.saturating_mul(1000)));
        Ok(())
    }

    fn visit_i64<E: Error>(mut self, number: i64) -> Result<(), E> {
        self.set(&number.to_string(), None);
        Ok(())
    }

    fn visit_f64<E: Error>(mut self, number: f64) -> Result<(), E> {
        let text = number.to_string();
        let milli = if number >= MAX_NUMBER { Some(u64::MAX) } else { milli_of(&text) };
        self.set(&text, milli);
        Ok(())
    }

    fn visit_bool<E: Error>(mut self, truth: bool) -> Result<(), E> {
        self.set(if truth { "true" } else { "false" }, None);
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = Vec<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<usize>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = Vec<usize>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Vec<usize>, E> {
        let leading = self.leading.iter().copied().filter(|&position| {
            let path = &self.paths[position];
            let is_same = path.has_key(self.level, key.as_bytes());
            let is_other_case =
                !is_same && path.key(self.level).is_some_and(|segment| is_same_in_any_case(segment, key));
            self.values[position].is_ambiguous |= is_other_case;
            is_same || is_other_case
        });
        Ok(leading.collect())
    }
}

/// Returns the number that a text is, in thousandths; `None` if it is none, or negative.
fn milli_of(text: &str) -> Option<u64> {
    match NumberParser::parse(text.as_bytes())? {
        Reading::Number(billionths) => Some(u64::try_from(billionths.div_ceil(NANO / 1000)).unwrap_or(u64::MAX)),
        Reading::Invalid => None,
    }
}

/// Returns true if some parser takes both keys for the same: Go's compares them in any letter case.
fn is_same_in_any_case(one: &str, other: &str) -> bool {
    let folded = |char: char| match char {
        'ſ' => 's',
        // The sign of Kelvin.
        '\u{212a}' => 'k',
        char => char.to_lowercase().next().unwrap_or(char),
    };
    one.chars().map(folded).eq(other.chars().map(folded))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn read(body: &str) -> (RequestValue, bool) {
        let paths = RequestPaths::new(vec!["a.b".parse().expect("path")]);
        let values = paths.read(body.as_bytes(), true);
        (values.at(0).clone(), values.is_whole())
    }

    fn number(body: &str) -> Option<u64> {
        read(body).0.largest_milli
    }

    #[test]
    fn numbers_are_read_in_thousandths() {
        for (value, milli) in [
            ("0", Some(0)),
            ("-0.0", Some(0)),
            ("4096", Some(4_096_000)),
            ("0.25", Some(250)),
            ("1.1", Some(1100)),
            ("0.0001", Some(1)),
            ("1e3", Some(1_000_000)),
            ("\"4096\"", Some(4_096_000)),
            ("\"007.5\"", Some(7500)),
            ("\" +5_000 \"", Some(5_000_000)),
            ("99999999999999999999", Some(u64::MAX)),
            ("18446744073709551615", Some(u64::MAX)),
            ("1e300", Some(u64::MAX)),
            // No number, one that no parser can hold, or a value of another type.
            ("1e400", None),
            ("-1", None),
            ("-0.5", None),
            ("\"-1\"", None),
            ("\"many\"", None),
            // Numbers for `parseInt` of JavaScript, `Number`, or `int` of Python.
            ("\"4096 tokens\"", Some(u64::MAX)),
            ("\"0x1000\"", Some(u64::MAX)),
            ("\"４０９６\"", Some(u64::MAX)),
            ("\"\"", None),
            ("null", None),
            ("true", None),
            ("[1]", None),
            ("{\"b\":1}", None),
        ] {
            assert_eq!(number(&format!("{{\"a\":{{\"b\":{value}}}}}")), milli, "{value}");
        }
    }

    #[test]
    fn the_largest_number_of_a_repeated_key_counts() {
        for body in [
            r#"{"a":{"b":1,"b":9,"b":2}}"#,
            r#"{"a":{"b":9},"a":{"b":1}}"#,
            r#"{"a":{"b":9},"a":{}}"#,
            r#"{"a":{"b":1},"A":{"B":9}}"#,
            r#"{"a":{"\u0062":9,"b":1}}"#,
        ] {
            let (value, is_whole) = read(body);
            assert_eq!((value.largest_milli, value.is_ambiguous, is_whole), (Some(9000), true, true), "{body}");
        }
    }

    #[test]
    fn values_are_read_as_text() {
        let text = |body: &str| read(body).0.text.map(String::from);
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(text(r#"{"x":[{}],"a":{"c":1,"b":"s\u0065arch"}}"#), some("search"));
        assert_eq!(text(r#"{"a":{"b":true}}"#), some("true"));
        assert_eq!(text(r#"{"a":{"b":-3}}"#), some("-3"));
        assert_eq!(text(r#"{"a":{"b":{"b":"no"}}}"#), None);
        assert_eq!(text(r#"{"a":[{"b":"no"}]}"#), None);
        assert_eq!(text(r#"{"b":"no","a":null}"#), None);
        let long = format!("{{\"a\":{{\"b\":\"{}\"}}}}", "x".repeat(MAX_TEXT + 1));
        assert_eq!((text(&long), read(&long).0.is_ambiguous), (None, true));
    }

    #[test]
    fn keys_in_other_letter_case_are_ambiguous() {
        for body in [r#"{"A":{"b":"x"}}"#, r#"{"a":{"B":"x"}}"#, r#"{"a":{"b":"y","B":"x"}}"#] {
            let (value, _) = read(body);
            assert_eq!((value.text.as_deref(), value.is_ambiguous), (Some("x"), true), "{body}");
        }
        assert!(is_same_in_any_case("params", "PARAMſ") && is_same_in_any_case("key", "\u{212a}ey"));
        assert!(!is_same_in_any_case("params", "param") && !is_same_in_any_case("a", "b"));
    }

    #[test]
    fn what_some_parser_would_not_read_is_not_whole() {
        for body in [
            "",
            " ",
            "[]",
            r#"[{"a":{"b":1}}]"#,
            "1",
            "\"a\"",
            "{",
            r#"{"a":{"b":1}"#,
            r#"{"a":{"b":1}} {}"#,
            r#"{"a":{"b":1}},"#,
            r#"{"a":{"b":1},}"#,
            r#"{a:{"b":1}}"#,
            r#"{'a':{"b":1}}"#,
            r#"{"x":NaN,"a":{"b":1}}"#,
            r#"{"x":[}],"a":{"b":1}}"#,
            r#"{"x":01,"a":{"b":1}}"#,
            r#"{"x":"\ud800\q","a":{"b":1}}"#,
            "/**/{}",
            "{\"x\":\"\n\"}",
            "\u{feff}\u{feff}{}",
        ] {
            assert!(!read(body).1, "{body}");
        }
        for body in ["{}", " {\"a\":1} \r\n", "\u{feff}{\"a\":{}}", r#"{"x":"\ud800"}"#] {
            assert!(read(body).1, "{body}");
        }
        let paths = RequestPaths::new(vec!["a".parse().expect("path")]);
        assert!(!paths.read(b"{\"a\":1}", false).is_whole() && !paths.unread().is_whole());
        assert!(!paths.read(b"{\"a\":\"\xff\"}", true).is_whole(), "not UTF-8");
        let utf16: Vec<u8> = "{}".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(!paths.read(&utf16, true).is_whole());
    }

    #[test]
    fn object_that_breaks_the_grammar_is_broken() {
        let paths = RequestPaths::new(vec!["a".parse().expect("path")]);
        let utf16 = |unit: fn(u16) -> [u8; 2]| "{\"a\":1}".encode_utf16().flat_map(unit).collect::<Vec<u8>>();
        let with_mark = [b"\xff\xfe".to_vec(), utf16(u16::to_le_bytes)].concat();
        for body in [
            br#"{"x":NaN,"a":1}"#.to_vec(),
            br#"{"a":1e999}"#.to_vec(),
            br#"{"\ud800":1,"a":1}"#.to_vec(),
            b"{\"x\":\"\t\",\"a\":1}".to_vec(),
            b" \xef\xbb\xbf{\"a\":1".to_vec(),
            b"{\"a\":1".to_vec(),
            utf16(u16::to_le_bytes),
            utf16(u16::to_be_bytes),
            with_mark,
        ] {
            let is_object = body.trim_ascii_start().starts_with(b"{") || body.contains(&0);
            assert_eq!(paths.read(&body, true).is_broken(), is_object, "{}", body.escape_ascii());
            assert!(!paths.read(&body, false).is_broken(), "more of it follows");
        }
        for body in ["", "{}", "{\"a\":\"many\"}", "[{\"a\":1}]", "a=1", "--boundary", "\u{feff}{\"a\":1}"] {
            assert!(!paths.read(body.as_bytes(), true).is_broken(), "{body}");
        }
        assert!(!paths.unread().is_broken());
    }

    #[test]
    fn charset_in_which_other_text_is_read_is_another_one() {
        for same in [
            "",
            "application/json",
            "application/json; charset=utf-8",
            "application/json;Charset = \"UTF-8\" ; x=y",
            "application/json; charset=US-ASCII",
            "text/plain; charset=ISO-8859-1",
        ] {
            assert!(!names_other_charset(same.as_bytes()), "{same}");
        }
        for other in [
            "application/json; charset=utf-7",
            "application/json; charset=\"UTF-16\"",
            "application/json;charset=IBM037",
            "application/json; charset=utf-8; charset=utf-7",
            "application/json; charset=utf-7; charset=utf-8",
            "application/json; charset*=utf-8''utf-7",
            "application/json; charset",
            "application/json; charset=",
            "application/json; charset=\"utf-8",
            "application/json; x=\"; charset=utf-7\"",
            "application/json; charset=utf-8, text/plain; charset=utf-7",
        ] {
            assert!(names_other_charset(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn depth_is_no_danger() {
        let deep = |open: &str| format!("{{\"x\":{}", open.repeat(30_000));
        assert!(!read(&deep("[")).1 && !read(&deep("{\"a\":")).1);
        let closed = format!("{{\"x\":{}{},\"a\":{{\"b\":7}}}}", "[".repeat(20_000), "]".repeat(20_000));
        assert_eq!(read(&closed).0.largest_milli, Some(7000));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-d]{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map("[a-c]", inner, 0..4).prop_map(|map| json!(map)),
            ]
        })
    }

    proptest! {
        /// A document without repeated keys has the values that a parser finds.
        #[test]
        fn values_are_those_of_a_parsed_document(document in any_json()) {
            let (value, is_whole) = read(&document.to_string());
            prop_assert_eq!(is_whole, document.is_object());
            let expected = match &document["a"]["b"] {
                Value::String(text) => Some(text.clone()),
                Value::Null | Value::Array(_) | Value::Object(_) => None,
                other => Some(other.to_string()),
            };
            prop_assert_eq!((value.text.map(String::from), value.is_ambiguous), (expected, false));
        }

        /// No bytes cause a panic, and a cut document is not whole.
        #[test]
        fn cut_documents_are_not_whole(document in any_json(), at in any::<prop::sample::Index>(), bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let paths = RequestPaths::new(vec!["a.b".parse().expect("path"), "0.a".parse().expect("path")]);
            let text = document.to_string();
            prop_assert!(!paths.read(&text.as_bytes()[..at.index(text.len())], true).is_whole());
            let _ = paths.read(&bytes, true);
        }
    }
}
