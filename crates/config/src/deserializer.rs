//! A serde deserializer over the tree that reports all errors, not only the first.
//!
//! serde stops at the first error. [`read`] records it and starts again without the invalid value. Every key has a
//! default, so this terminates.

use super::error::{ConfigError, SourceLocation, did_you_mean};
use super::number;
use super::raw::cache::{Cache, RouteCacheOptions};
use super::sections::quotas::window_form;
use super::setting_path::SettingPath;
use super::source_map::{SourceMap, ValueSource};
use config::{Value, ValueKind};
use serde::de::value::{SeqDeserializer, StrDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, Expected, IntoDeserializer, MapAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use std::collections::HashMap;
use std::fmt;

/// Maximum number of reported errors.
const MAX_ERRORS: usize = 200;

/// Deserializes a `T`. Each invalid value is added to `errors` and replaced by its default.
pub(super) fn read<T: DeserializeOwned + Default>(
    root: &Value,
    source_map: &SourceMap,
    errors: &mut Vec<ConfigError>,
) -> T {
    let mut context = ReadContext { source_map, invalid: HashMap::new() };
    let unset: Vec<SettingPath> = errors.iter().map(|error| error.path.clone()).collect();
    for _ in 0..MAX_ERRORS {
        let root = ValueDeserializer { value: root, path: SettingPath::ROOT, context: &context };
        let error = match T::deserialize(root) {
            Ok(value) => return value,
            Err(error) => error,
        };
        let (path, location) = error.location.unwrap_or((SettingPath::ROOT, SourceLocation::START));
        let is_reported = match error.kind {
            // A list without its invalid items may be outside of its bound, which they would not be if they were valid.
            ErrorKind::Bound => context.invalid.keys().any(|invalid| invalid.is_within(&path)),
            // A value whose variable is not set is empty.
            ErrorKind::Type => unset.contains(&path),
            ErrorKind::UnknownKey | ErrorKind::Other => false,
        };
        if !is_reported {
            errors.push(ConfigError { location, path: path.clone(), message: error.message, hint: error.hint });
        }
        if context.invalid.insert(path, error.keep_empty) == Some(error.keep_empty) {
            break;
        }
    }
    T::default()
}

/// Error of one value.
#[derive(Debug)]
struct DeError {
    location: Option<(SettingPath, SourceLocation)>,
    message: String,
    hint: String,
    kind: ErrorKind,
    /// True if a map was expected: an empty map in its place preserves the indices of its neighbors.
    keep_empty: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ErrorKind {
    /// A value of another type.
    Type,
    UnknownKey,
    /// A value that has its form, but is outside of the bound of its key.
    Bound,
    Other,
}

impl DeError {
    fn new(message: String, hint: &str) -> Self {
        Self { location: None, message, hint: hint.to_owned(), kind: ErrorKind::Other, keep_empty: false }
    }

    fn with_location(mut self, path: &SettingPath, location: Option<&SourceLocation>) -> Self {
        if self.location.is_some() {
            return self;
        }
        self.location = Some((path.clone(), location.cloned().unwrap_or(SourceLocation::START)));
        if has_secrets(path) {
            self.message = without_found_text(&self.message);
        }
        match self.kind {
            ErrorKind::Type => self.hint = form_of(path, found_text(&self.message)).unwrap_or(self.hint),
            ErrorKind::UnknownKey => self.hint = place_of(path).to_owned() + &self.hint,
            ErrorKind::Bound | ErrorKind::Other => {}
        }
        self
    }
}

/// Returns what to write for keys that are often given a value of another type. `text` is the value, if it is a text.
fn form_of(path: &SettingPath, text: Option<&str>) -> Option<String> {
    let form = match path.keys().collect::<Vec<_>>()[..] {
        ["bot_detection"] => "write bot_detection: { enabled: false } to disable it",
        ["cache"] => "write cache: {} to cache with the defaults, or leave the section out for no cache",
        ["forward_auth"] => "write forward_auth: { listen: 127.0.0.1:9092 }, or leave the section out for no listener",
        ["traces"] => "write traces: { endpoint: \"http://127.0.0.1:4318\" }, or leave the section out for no traces",
        ["verify", "signatures"] => "write signatures: { enabled: false } to disable it",
        ["listen"] => "write an address and a port, such as 127.0.0.1:8080, or 0.0.0.0:8080 for all addresses",
        ["origin"] => "write origin: http://127.0.0.1:3000",
        ["origins"] => "write origins: { shop: http://127.0.0.1:3000, api: http://127.0.0.1:3001 }",
        ["notify"] => "write a list, such as notify: [{ webhook: \"https://...\" }]",
        ["quotas", .., "window"] | ["scopes", .., "quota", "window"] => {
            return Some(window_form(text.unwrap_or_default()));
        }
        [listen, "tls"] if listen.starts_with("listen") => {
            "write tls: { certificate: tls/site.pem, key: tls/site.key }, or { acme: { domains: [example.com] } }"
        }
        [listen, "tls", "acme"] if listen.starts_with("listen") => "write acme: { domains: [example.com] }",
        [route, "cost"] if route.starts_with("routes[") => "write the units by quota, such as { api: 1 }",
        _ => return None,
    };
    Some(form.to_owned())
}

/// Returns the text that a message says was found.
fn found_text(message: &str) -> Option<&str> {
    message.strip_prefix("found \"")?.split_once('"').map(|(text, _)| text)
}

/// Returns true for a section with secrets: a text in its place may be one of them.
fn has_secrets(path: &SettingPath) -> bool {
    match path.keys().collect::<Vec<_>>()[..] {
        ["admin" | "ledger" | "notify"] | ["ledger", "redis"] | [.., "api_key"] => true,
        [section] => section.starts_with("notify[") || section.starts_with("api_keys["),
        _ => false,
    }
}

/// Returns the message of a value of another type without a text that was found.
fn without_found_text(message: &str) -> String {
    match (message.strip_prefix("found \""), message.rfind(", needs ")) {
        (Some(_), Some(needs)) => format!("found a text{}", &message[needs..]),
        _ => message.to_owned(),
    }
}

/// Returns where to write a key that is often written in the wrong section; nothing for other keys.
fn place_of(path: &SettingPath) -> &'static str {
    match path.keys().collect::<Vec<_>>()[..] {
        ["cache", key] if RouteCacheOptions::KEYS.contains(&key) => {
            "write it at a route, routes: [{ match: \"/**\", cache: { ttl: 10m } }]; "
        }
        [route, "cache", key] if route.starts_with("routes[") && Cache::KEYS.contains(&key) => {
            "it is for all routes: write it in the section cache at the top level, such as cache: { stale_when_refused: 30d }; "
        }
        [.., "crawl_delay"] => "write it at a class, classes: [{ name: bot, crawl_delay: 10s }]; ",
        _ => "",
    }
}

impl fmt::Display for DeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}; {}", self.message, self.hint)
    }
}

impl std::error::Error for DeError {}

impl Error for DeError {
    /// Splits a message of the form `what is wrong; hint`.
    fn custom<T: fmt::Display>(text: T) -> Self {
        let text = text.to_string();
        let (message, hint) = text.split_once("; ").unwrap_or((&text, "see `tidegate schema`"));
        Self::new(message.to_owned(), hint)
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let is_quoted_number = matches!(found, Unexpected::Str(text) if text.trim().parse::<f64>().is_ok());
        let found = match found {
            Unexpected::Bool(value) => value.to_string(),
            Unexpected::Unsigned(value) => value.to_string(),
            Unexpected::Signed(value) => value.to_string(),
            // With a fraction, also if that is 0: `64.0` is no whole number.
            Unexpected::Float(value) => format!("{value:?}"),
            Unexpected::Str(text) => format!("{text:?}"),
            Unexpected::Unit | Unexpected::Option => "nothing".into(),
            Unexpected::Seq => "a list".into(),
            Unexpected::Map => "a map".into(),
            other => other.to_string(),
        };
        let expected = expected.to_string();
        let (needs, hint) = match expected.as_str() {
            "a boolean" => ("true or false", "write one of the two, without quotes"),
            "a string" => ("text", "put it in quotes"),
            "a sequence" => ("a list", "write [a, b], or one item a line after a dash"),
            "u8" => ("a whole number up to 255", "write it in digits"),
            "u16" => ("a whole number up to 65535", "write it in digits"),
            "u32" => ("a whole number up to 4294967295", "write it in digits"),
            "u64" | "usize" => ("a whole number", "write it in digits"),
            needs if needs.starts_with("struct ") || needs == "a map" => {
                ("keys with values", "write {key: value}, or one key a line, indented")
            }
            needs => needs.split_once("; ").unwrap_or((needs, "see `tidegate schema`")),
        };
        let hint = match hint == "write it in digits" && is_quoted_number {
            true => "write it in digits, without quotes, plus sign and leading zeros",
            false => hint,
        };
        Self { kind: ErrorKind::Type, ..Self::new(format!("found {found}, needs {needs}"), hint) }
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self { kind: ErrorKind::Other, ..Self::invalid_type(found, expected) }
    }

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        let suggestion = did_you_mean(variant, known.iter().copied());
        Self::new(format!("found {variant:?}{suggestion}"), &format!("use one of {}", known.join(", ")))
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        let suggestion = did_you_mean(field, known.iter().copied());
        let hint = format!("known here: {}", known.join(", "));
        Self { kind: ErrorKind::UnknownKey, ..Self::new(format!("unknown key {field:?}{suggestion}"), &hint) }
    }
}

/// State that the deserializers of all values share.
struct ReadContext<'a> {
    source_map: &'a SourceMap,
    /// Invalid values. They are skipped or, if true, replaced by an empty map.
    invalid: HashMap<SettingPath, bool>,
}

/// Deserializer of one value.
struct ValueDeserializer<'a> {
    value: &'a Value,
    path: SettingPath,
    context: &'a ReadContext<'a>,
}

impl<'a> ValueDeserializer<'a> {
    fn locate<T>(&self, result: Result<T, DeError>) -> Result<T, DeError> {
        result.map_err(|error| error.with_location(&self.path, self.source().map(|source| &source.location)))
    }

    fn source(&self) -> Option<&'a ValueSource> {
        self.context.source_map.source(&self.path)
    }

    /// Returns the deserializer of a child; `None` if it is skipped.
    fn child(&self, value: &'a Value, path: SettingPath) -> Option<Self> {
        (self.context.invalid.get(&path) != Some(&false)).then_some(Self { value, path, context: self.context })
    }

    fn is_emptied(&self) -> bool {
        self.context.invalid.get(&self.path) == Some(&true)
    }

    fn is_untyped(&self) -> bool {
        self.source().is_some_and(|source| source.is_untyped)
    }

    fn items(&self, items: &'a [Value]) -> SeqDeserializer<std::vec::IntoIter<Self>, DeError> {
        let children = items.iter().enumerate().filter_map(|(index, item)| self.child(item, self.path.index(index)));
        SeqDeserializer::new(children.collect::<Vec<_>>().into_iter())
    }

    /// Returns the entries in the order of their locations; none if the value is not a map.
    fn entries(&self, fields: &'static [&'static str]) -> TableAccess<'a> {
        let table = match &self.value.kind {
            ValueKind::Table(table) if !self.is_emptied() => Some(table),
            _ => None,
        };
        let entry = |(key, value): (&'a String, &'a Value)| {
            let child = self.child(value, self.path.entry(key))?;
            Some((child.source().map(|source| &source.key_location), key.as_str(), child))
        };
        let mut entries: Vec<_> = table.into_iter().flatten().filter_map(entry).collect();
        entries.sort_by_key(|(location, key, _)| (*location, *key));
        TableAccess { rest: entries.into_iter(), value: None, fields }
    }

    fn any<'de, V: Visitor<'de>>(&self, visitor: V) -> Result<V::Value, DeError> {
        match &self.value.kind {
            ValueKind::Nil | ValueKind::I128(_) | ValueKind::U128(_) => visitor.visit_unit(),
            ValueKind::Boolean(value) => visitor.visit_bool(*value),
            ValueKind::U64(value) => visitor.visit_u64(*value),
            ValueKind::I64(value) => visitor.visit_i64(*value),
            ValueKind::Float(value) => visitor.visit_f64(*value),
            ValueKind::String(text) => visitor.visit_str(text),
            ValueKind::Array(items) => visitor.visit_seq(self.items(items)),
            ValueKind::Table(_) => visitor.visit_map(self.entries(&[])),
        }
    }

    fn number<'de, V: Visitor<'de>>(&self, visitor: V) -> Result<V::Value, DeError> {
        match &self.value.kind {
            ValueKind::String(text) if self.is_untyped() => match number::whole::<u64>(text.trim()) {
                Some(number) => visitor.visit_u64(number),
                None => visitor.visit_str(text),
            },
            _ => self.any(visitor),
        }
    }
}

macro_rules! numbers {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
            self.locate(self.number(visitor))
        })*
    };
}

impl<'de> IntoDeserializer<'de, DeError> for ValueDeserializer<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for ValueDeserializer<'_> {
    type Error = DeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        self.locate(self.any(visitor))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        self.locate(match &self.value.kind {
            ValueKind::String(text) if text == "true" && self.is_untyped() => visitor.visit_bool(true),
            ValueKind::String(text) if text == "false" && self.is_untyped() => visitor.visit_bool(false),
            _ => self.any(visitor),
        })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        match self.value.kind {
            ValueKind::Nil => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        self.locate(match &self.value.kind {
            ValueKind::Nil => visitor.visit_seq(self.items(&[])),
            _ => self.any(visitor),
        })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        self.deserialize_struct("", &[], visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeError> {
        let result = match &self.value.kind {
            ValueKind::Nil | ValueKind::Table(_) => visitor.visit_map(self.entries(fields)),
            _ if self.is_emptied() => visitor.visit_map(self.entries(fields)),
            ValueKind::Array(_) => Err(DeError::invalid_type(Unexpected::Seq, &visitor)),
            _ => self.any(visitor),
        };
        self.locate(
            result.map_err(|error| DeError { keep_empty: error.location.is_none() || error.keep_empty, ..error }),
        )
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeError> {
        self.locate(match &self.value.kind {
            ValueKind::String(text) => visitor.visit_enum(StrDeserializer::<DeError>::new(text)),
            _ => self
                .any(ExpectedVariants(variants))
                .and(Err(DeError::new("found no word".into(), "see `tidegate schema`"))),
        })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &str, visitor: V) -> Result<V::Value, DeError> {
        visitor.visit_newtype_struct(self)
    }

    numbers! {
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_i8 deserialize_i16 deserialize_i32
        deserialize_i64
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

/// Visitor for the message that lists the expected words if the value is no word.
struct ExpectedVariants(&'static [&'static str]);

impl Visitor<'_> for ExpectedVariants {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a word; use one of {}", self.0.join(", "))
    }
}

/// Keys whose section enables a feature and has a default for each of its keys. Without a value, they mean these
/// defaults.
const DEFAULT_ON_NULL_KEYS: [&str; 7] =
    ["adaptive_concurrency", "autothrottle", "backoff", "cache", "compression", "queue", "rampup"];

struct TableAccess<'a> {
    rest: std::vec::IntoIter<(Option<&'a SourceLocation>, &'a str, ValueDeserializer<'a>)>,
    value: Option<ValueDeserializer<'a>>,
    fields: &'static [&'static str],
}

impl<'de> MapAccess<'de> for TableAccess<'_> {
    type Error = DeError;

    /// Skips known keys without a value: the lines below them are often commented out.
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DeError> {
        let fields = self.fields;
        let is_present = |(_, key, child): &(_, &str, ValueDeserializer<'_>)| {
            !matches!(child.value.kind, ValueKind::Nil) || !fields.contains(key) || DEFAULT_ON_NULL_KEYS.contains(key)
        };
        let Some((location, key, child)) = self.rest.find(is_present) else { return Ok(None) };
        let key = seed.deserialize(StrDeserializer::<DeError>::new(key));
        let key = key.map(Some).map_err(|error| error.with_location(&child.path, location));
        self.value = Some(child);
        key
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DeError> {
        let value = self.value.take().expect("serde requests a value only after its key");
        let (path, source_map) = (value.path.clone(), value.context.source_map);
        seed.deserialize(value).map_err(|error| {
            let kind = if error.location.is_none() { ErrorKind::Bound } else { error.kind };
            DeError { kind, ..error }.with_location(&path, source_map.position(&path))
        })
    }
}
