//! A serde deserializer over the tree that reports all errors, not only the first.
//!
//! serde stops at the first error. [`read`] records it, removes the invalid value from the tree and starts again. Every
//! key has a default, so this terminates.

use super::error::{ConfigError, SourceLocation, did_you_mean};
use super::node::{Entry, Node, NodeKind};
use super::setting_path::SettingPath;
use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, Expected, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use std::fmt;

/// Maximum number of reported errors.
const MAX_ERRORS: usize = 200;

/// Deserializes a `T`. Each invalid value is added to `errors` and replaced by its default.
pub(super) fn read<T: DeserializeOwned + Default>(mut root: Node, errors: &mut Vec<ConfigError>) -> T {
    for _ in 0..MAX_ERRORS {
        let error = match T::deserialize(NodeDeserializer(&root)) {
            Ok(value) => return value,
            Err(error) => error,
        };
        let (path, location) = error.location.unwrap_or((SettingPath::ROOT, SourceLocation::START));
        let removed = root.remove(&path, error.keep_empty);
        errors.push(ConfigError { location, path, message: error.message, hint: error.hint });
        if !removed {
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
    /// True if a map was expected: an empty map in its place preserves the indices of its neighbors.
    keep_empty: bool,
}

impl DeError {
    fn new(message: String, hint: &str) -> Self {
        Self { location: None, message, hint: hint.to_owned(), keep_empty: false }
    }

    fn with_location(mut self, path: &SettingPath, location: &SourceLocation) -> Self {
        self.location.get_or_insert_with(|| (path.clone(), location.clone()));
        self
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
        let found = match found {
            Unexpected::Bool(value) => value.to_string(),
            Unexpected::Unsigned(value) => value.to_string(),
            Unexpected::Signed(value) => value.to_string(),
            Unexpected::Float(value) => value.to_string(),
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
        Self::new(format!("found {found}, needs {needs}"), hint)
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        let suggestion = did_you_mean(variant, known.iter().copied());
        Self::new(format!("found {variant:?}{suggestion}"), &format!("use one of {}", known.join(", ")))
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        let suggestion = did_you_mean(field, known.iter().copied());
        let elsewhere = match field {
            "crawl_delay" => "write it at a class, classes: [{ name: bot, crawl_delay: 10s }]; ",
            _ => "",
        };
        Self::new(format!("unknown key {field:?}{suggestion}"), &format!("{elsewhere}known here: {}", known.join(", ")))
    }
}

/// Deserializer of one value.
struct NodeDeserializer<'a>(&'a Node);

impl NodeDeserializer<'_> {
    fn locate<T>(&self, result: Result<T, DeError>) -> Result<T, DeError> {
        result.map_err(|error| error.with_location(&self.0.path, &self.0.location))
    }

    fn any<'de, V: Visitor<'de>>(&self, visitor: V) -> Result<V::Value, DeError> {
        match &self.0.kind {
            NodeKind::Null => visitor.visit_unit(),
            NodeKind::Bool(value) => visitor.visit_bool(*value),
            NodeKind::Integer(value) => visitor.visit_u64(*value),
            NodeKind::SignedInteger(value) => visitor.visit_i64(*value),
            NodeKind::Float(value) => visitor.visit_f64(*value),
            NodeKind::Text { text, .. } => visitor.visit_str(text),
            NodeKind::List(items) => visitor.visit_seq(ListAccess(items.iter())),
            NodeKind::Map(entries) => {
                visitor.visit_map(NodeMapAccess { rest: entries.iter(), value: None, fields: &[] })
            }
        }
    }

    fn number<'de, V: Visitor<'de>>(&self, visitor: V) -> Result<V::Value, DeError> {
        match &self.0.kind {
            NodeKind::Text { text, is_untyped: true } => match text.trim().parse::<u64>() {
                Ok(number) => visitor.visit_u64(number),
                Err(_) => visitor.visit_str(text),
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

impl<'de> Deserializer<'de> for NodeDeserializer<'_> {
    type Error = DeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        self.locate(self.any(visitor))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        self.locate(match &self.0.kind {
            NodeKind::Text { text, is_untyped: true } if text == "true" => visitor.visit_bool(true),
            NodeKind::Text { text, is_untyped: true } if text == "false" => visitor.visit_bool(false),
            _ => self.any(visitor),
        })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        match self.0.kind {
            NodeKind::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        self.locate(match &self.0.kind {
            NodeKind::Null => visitor.visit_seq(ListAccess([].iter())),
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
        let result = match &self.0.kind {
            NodeKind::Null => visitor.visit_map(NodeMapAccess { rest: [].iter(), value: None, fields }),
            NodeKind::Map(entries) => visitor.visit_map(NodeMapAccess { rest: entries.iter(), value: None, fields }),
            NodeKind::List(_) => Err(DeError::invalid_type(Unexpected::Seq, &visitor)),
            _ => self.any(visitor),
        };
        result.map_err(|error| {
            DeError { keep_empty: error.location.is_none() || error.keep_empty, ..error }
                .with_location(&self.0.path, &self.0.location)
        })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeError> {
        self.locate(match &self.0.kind {
            NodeKind::Text { text, .. } => visitor.visit_enum(StrDeserializer::<DeError>::new(text)),
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

struct ListAccess<'a>(std::slice::Iter<'a, Node>);

impl<'de> SeqAccess<'de> for ListAccess<'_> {
    type Error = DeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, DeError> {
        self.0.next().map(|item| seed.deserialize(NodeDeserializer(item))).transpose()
    }
}

/// Keys whose section enables a feature and has a default for each of its keys. Without a value, they mean these
/// defaults.
const DEFAULT_ON_NULL_KEYS: [&str; 5] = ["adaptive_concurrency", "autothrottle", "backoff", "queue", "rampup"];

struct NodeMapAccess<'a> {
    rest: std::slice::Iter<'a, Entry>,
    value: Option<&'a Node>,
    fields: &'static [&'static str],
}

impl<'de> MapAccess<'de> for NodeMapAccess<'_> {
    type Error = DeError;

    /// Skips known keys without a value: the lines below them are often commented out.
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DeError> {
        let fields = self.fields;
        let is_present = |entry: &&Entry| {
            let key = entry.key.as_str();
            !matches!(entry.value.kind, NodeKind::Null) || !fields.contains(&key) || DEFAULT_ON_NULL_KEYS.contains(&key)
        };
        let Some(entry) = self.rest.find(is_present) else { return Ok(None) };
        self.value = Some(&entry.value);
        let key = seed.deserialize(StrDeserializer::<DeError>::new(&entry.key));
        key.map(Some).map_err(|error| error.with_location(&entry.value.path, &entry.key_location))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DeError> {
        let value = self.value.take().expect("serde requests a value only after its key");
        seed.deserialize(NodeDeserializer(value))
    }
}
