//! Sections whose keys are declared once: name, value, default, form in the file, and bounds.
//!
//! [`section!`] declares the type of the values, which YAML is deserialized to directly. Its JSON Schema states each
//! default from the value that holds.

use super::admin_address::AdminAddress;
use super::scalars::{AdminSocket, Amount, CountLimit, Percent, Size, Span, TimeOfDay};
use super::serde_forms::OneOrMany;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, Error};
use serde::ser::Serialize;
use serde_json::{Map, Value};
use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::time::Duration;
use tidegate_policy::tier::Share;
use tidegate_policy::units::Units;

/// Declares the type of a section.
///
/// A key is `name: Type = default => Written, bound;`. `Written` is its form in the file, which is convertible to `Type`
/// ([`FromWritten`]), and `bound` is a function such as [`positive`]. A key with another name than its field is
/// `field("key"): ...`. A key that is a section itself, or has a form of its own, is `name: Type;`. The doc comment of a key describes effect, unit and bounds. The schema adds the default; the
/// comment states it only if it is no value, such as `Default none.`. Fields under `derived` are no keys.
macro_rules! section {
    (
        $(#[doc = $doc:literal])*
        $visibility:vis struct $Section:ident {
            $(
                $(#[doc = $key_doc:literal])*
                $field:ident $(($key:literal))?: $Value:ty $(= $default:expr => $Written:ty, $bound:expr)?;
            )*
        }
        $(derived { $($(#[doc = $derived_doc:literal])* $derived:ident: $Derived:ty = $derived_default:expr;)* })?
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug)]
        $visibility struct $Section {
            $(
                $(#[doc = $key_doc])*
                $visibility $field: $Value,
            )*
            $($(
                $(#[doc = $derived_doc])*
                $visibility $derived: $Derived,
            )*)?
        }

        impl Default for $Section {
            fn default() -> Self {
                Self { $($field: $crate::section::default_value!($Value $(, $default)?),)* $($($derived: $derived_default,)*)? }
            }
        }

        impl $Section {
            pub(crate) const KEYS: &'static [&'static str] = &[$($crate::section::key_name!($field $($key)?)),*];
        }

        impl<'de> serde::Deserialize<'de> for $Section {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct SectionVisitor;

                impl<'de> serde::de::Visitor<'de> for SectionVisitor {
                    type Value = $Section;

                    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        out.write_str(concat!("struct ", stringify!($Section)))
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<$Section, A::Error> {
                        let mut section = $Section::default();
                        while let Some(key) = map.next_key_seed($crate::section::KeySeed($Section::KEYS))? {
                            match key {
                                $($crate::section::key_name!($field $($key)?) => {
                                    section.$field =
                                        $crate::section::read_value!(map, $Value $(, $default, $Written, $bound)?);
                                })*
                                _ => {}
                            }
                        }
                        Ok(section)
                    }
                }

                deserializer.deserialize_struct(stringify!($Section), Self::KEYS, SectionVisitor)
            }
        }

        impl schemars::JsonSchema for $Section {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($Section).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let mut keys = serde_json::Map::new();
                $(
                    let description = concat!($($key_doc, "\n"),*);
                    let property =
                        $crate::section::key_schema!(generator, description, $Value $(, $default, $Written)?);
                    keys.insert($crate::section::key_name!($field $($key)?).to_owned(), property);
                )*
                $crate::section::object(concat!($($doc, "\n"),*), &keys)
            }
        }
    };
}

/// Expands to the name of a key: that of its field, or another one.
macro_rules! key_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $key:literal) => {
        $key
    };
}

/// Expands to the default of a key.
macro_rules! default_value {
    ($Value:ty) => {
        <$Value>::default()
    };
    ($Value:ty, $default:expr) => {
        $default
    };
}

/// Expands to the value of a key, read from a map.
macro_rules! read_value {
    ($map:ident, $Value:ty) => {
        $map.next_value::<$Value>()?
    };
    ($map:ident, $Value:ty, $default:expr, $Written:ty, $bound:expr) => {
        $map.next_value_seed($crate::section::ValueSeed::<$Value, $Written, _>::new($default, $bound))?
    };
}

/// Expands to the schema of a key.
macro_rules! key_schema {
    ($generator:ident, $description:ident, $Value:ty) => {
        $crate::section::described($generator.subschema_for::<$Value>(), $description)
    };
    ($generator:ident, $description:ident, $Value:ty, $default:expr, $Written:ty) => {
        $crate::section::property::<$Value, $Written>($description, &$default, $generator)
    };
}

pub(crate) use {default_value, key_name, key_schema, read_value, section};

/// A value that a section stores, converted from its form `W` in the file.
pub(crate) trait FromWritten<W>: Sized {
    /// Converts a value of the file within its bounds.
    fn from_written(written: W) -> Self;

    /// Returns the form in the file; `None` if the file cannot write the value, which is that of an absent key.
    fn to_written(&self) -> Option<W>;
}

impl<T: FromWritten<W>, W> FromWritten<W> for Option<T> {
    fn from_written(written: W) -> Self {
        Some(T::from_written(written))
    }

    fn to_written(&self) -> Option<W> {
        self.as_ref()?.to_written()
    }
}

/// Implements [`FromWritten`] for types that are stored as written.
macro_rules! stored_as_written {
    ($($Type:ty),*) => {
        $(impl $crate::section::FromWritten<$Type> for $Type {
            fn from_written(written: $Type) -> Self {
                written
            }

            fn to_written(&self) -> Option<$Type> {
                Some(self.clone())
            }
        })*
    };
}

pub(crate) use stored_as_written;

stored_as_written!(bool, u8, u32, String);

/// Implements [`FromWritten`] for the values of words.
macro_rules! stored_as_inner {
    ($($Word:ident($Value:ty)),*) => {
        $(impl FromWritten<$Word> for $Value {
            fn from_written($Word(value): $Word) -> Self {
                value
            }

            fn to_written(&self) -> Option<$Word> {
                Some($Word(self.clone()))
            }
        })*
    };
}

stored_as_inner!(
    AdminSocket(AdminAddress),
    Amount(Units),
    Percent(Share),
    Size(u64),
    Span(Duration),
    TimeOfDay(jiff::civil::Time)
);

impl FromWritten<u32> for usize {
    fn from_written(written: u32) -> Self {
        written.try_into().unwrap_or(Self::MAX)
    }

    fn to_written(&self) -> Option<u32> {
        (*self).try_into().ok()
    }
}

impl FromWritten<u16> for usize {
    fn from_written(written: u16) -> Self {
        written.into()
    }

    fn to_written(&self) -> Option<u16> {
        (*self).try_into().ok()
    }
}

/// The bound of the key excludes zero.
impl FromWritten<u32> for NonZeroUsize {
    fn from_written(written: u32) -> Self {
        Self::new(usize::from_written(written)).unwrap_or(Self::MIN)
    }

    fn to_written(&self) -> Option<u32> {
        self.get().to_written()
    }
}

/// `None` is no limit, which is written 0.
impl FromWritten<CountLimit> for Option<NonZeroUsize> {
    fn from_written(CountLimit(count): CountLimit) -> Self {
        NonZeroUsize::new(usize::from_written(count))
    }

    fn to_written(&self) -> Option<CountLimit> {
        self.map_or(0, NonZeroUsize::get).to_written().map(CountLimit)
    }
}

impl FromWritten<Size> for usize {
    fn from_written(Size(bytes): Size) -> Self {
        bytes.try_into().unwrap_or(Self::MAX)
    }

    fn to_written(&self) -> Option<Size> {
        (*self).try_into().ok().map(Size)
    }
}

/// An absent key is an empty list.
impl FromWritten<OneOrMany<String>> for Vec<String> {
    fn from_written(OneOrMany(items): OneOrMany<String>) -> Self {
        items
    }

    fn to_written(&self) -> Option<OneOrMany<String>> {
        (!self.is_empty()).then(|| OneOrMany(self.clone()))
    }
}

/// A written value that may be zero.
pub(crate) trait MaybeZero {
    /// Returns the error about zero; `None` for other values. `default` is that of the key.
    fn zero_problem(&self, default: Option<&Self>) -> Option<String>;
}

impl MaybeZero for u32 {
    fn zero_problem(&self, default: Option<&Self>) -> Option<String> {
        let example = default.unwrap_or(&1);
        (*self == 0).then(|| format!("found 0, needs at least 1; write a number such as {example}"))
    }
}

impl MaybeZero for u16 {
    fn zero_problem(&self, default: Option<&Self>) -> Option<String> {
        u32::from(*self).zero_problem(default.copied().map(u32::from).as_ref())
    }
}

impl MaybeZero for Span {
    fn zero_problem(&self, _: Option<&Self>) -> Option<String> {
        self.0.is_zero().then(|| "found a zero duration; write a duration such as 10s".to_owned())
    }
}

/// Bound of a key that accepts all values of its form.
pub(crate) fn any<W>(_: &W, _: Option<&W>) -> Option<String> {
    None
}

/// Bound of a key whose value is not zero.
pub(crate) fn positive<W: MaybeZero>(written: &W, default: Option<&W>) -> Option<String> {
    written.zero_problem(default)
}

/// Bound of a key whose value is at least 1s.
pub(crate) fn at_least_a_second(written: &Span, default: Option<&Span>) -> Option<String> {
    let is_short = written.0 < Duration::from_secs(1);
    positive(written, default).or_else(|| is_short.then(|| format!("found {written}; write at least 1s")))
}

/// Returns the bound of a text, of which `problem` returns what is wrong.
pub(crate) fn text(problem: fn(&str) -> Option<String>) -> impl Fn(&String, Option<&String>) -> Option<String> {
    move |written, _| problem(written)
}

/// Returns the bound of a list of texts, of each of which `problem` returns what is wrong.
pub(crate) fn each(
    problem: fn(&str) -> Option<String>,
) -> impl Fn(&OneOrMany<String>, Option<&OneOrMany<String>>) -> Option<String> {
    move |OneOrMany(items), _| items.iter().find_map(|item| problem(item))
}

/// Returns the bound of a size of at least `min` bytes. `example` is a valid size.
pub(crate) fn at_least(min: u64, example: u64) -> impl Fn(&Size, Option<&Size>) -> Option<String> {
    move |Size(bytes), _| {
        let (min_size, example) = (Size(min), Size(example));
        (*bytes < min).then(|| format!("needs at least {min_size}; write a size such as {example}"))
    }
}

/// Returns the bound of a size of `min` to `max` bytes.
pub(crate) fn between(min: u64, max: u64) -> impl Fn(&Size, Option<&Size>) -> Option<String> {
    move |Size(bytes), default| {
        let example = default.map_or(Size(min), |Size(bytes)| Size(*bytes));
        let is_valid = (min..=max).contains(bytes);
        (!is_valid).then(|| format!("needs {} to {}; write a size such as {example}", Size(min), Size(max)))
    }
}

/// Reads a key that is one of the given ones.
pub(crate) struct KeySeed(pub &'static [&'static str]);

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = &'static str;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<&'static str, D::Error> {
        let Self(keys) = self;
        let found = String::deserialize(deserializer)?;
        keys.iter().find(|key| **key == found).copied().ok_or_else(|| D::Error::unknown_field(&found, keys))
    }
}

/// Reads the value of a key: the default if it has none, or a written value within the bound.
pub(crate) struct ValueSeed<T, W, B> {
    default: T,
    bound: B,
    written: PhantomData<W>,
}

impl<T: FromWritten<W>, W, B: Fn(&W, Option<&W>) -> Option<String>> ValueSeed<T, W, B> {
    pub(crate) fn new(default: T, bound: B) -> Self {
        Self { default, bound, written: PhantomData }
    }
}

impl<'de, T, W, B> DeserializeSeed<'de> for ValueSeed<T, W, B>
where
    T: FromWritten<W>,
    W: DeserializeOwned,
    B: Fn(&W, Option<&W>) -> Option<String>,
{
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        let Some(written) = Option::<W>::deserialize(deserializer)? else { return Ok(self.default) };
        match (self.bound)(&written, self.default.to_written().as_ref()) {
            None => Ok(T::from_written(written)),
            Some(problem) => Err(D::Error::custom(problem)),
        }
    }
}

/// Returns the schema of a key, with its default as a value and in the description.
pub(crate) fn property<T: FromWritten<W>, W: JsonSchema + Serialize>(
    description: &str,
    default: &T,
    generator: &mut SchemaGenerator,
) -> Value {
    let mut schema = generator.subschema_for::<Option<W>>();
    let default = default.to_written().and_then(|written| serde_json::to_value(written).ok());
    let Some(default) = default else { return described(schema, description) };
    let mut description = joined(description);
    let sentence = format!(" Default {}.", YamlText(&default));
    let end = description.find("\n\n").unwrap_or(description.len());
    description.insert_str(end, &sentence);
    schema.insert("default".to_owned(), default);
    described(schema, &description)
}

/// Returns the schema of a key with its description.
pub(crate) fn described(mut schema: Schema, description: &str) -> Value {
    schema.insert("description".to_owned(), joined(description).into());
    schema.to_value()
}

/// Returns the schema of a section.
pub(crate) fn object(description: &str, properties: &Map<String, Value>) -> Schema {
    json_schema!({
        "description": joined(description),
        "type": "object",
        "properties": properties,
        "additionalProperties": false
    })
}

/// Returns the text of a doc comment: its lines without the space at their start.
fn joined(doc: &str) -> String {
    let lines: Vec<&str> = doc.lines().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    lines.join("\n").trim().to_owned()
}

/// A value as the file writes it.
struct YamlText<'a>(&'a Value);

impl fmt::Display for YamlText<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::String(text) => out.write_str(text),
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| YamlText(item).to_string()).collect();
                write!(out, "[{}]", items.join(", "))
            }
            other => write!(out, "{other}"),
        }
    }
}
