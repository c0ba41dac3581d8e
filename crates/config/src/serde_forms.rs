//! Serde types for the forms of values: one or a list, a map with names as keys, a word or keys.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor, value};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use tidegate_policy::secret::Secret;

/// Text that is not shown in messages.
#[derive(Clone, Debug)]
pub(super) struct SecretText(pub Secret);

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SecretTextVisitor)
    }
}

struct SecretTextVisitor;

impl Visitor<'_> for SecretTextVisitor {
    type Value = SecretText;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("text; put it in quotes")
    }

    fn visit_str<E>(self, text: &str) -> Result<SecretText, E> {
        Ok(SecretText(Secret::new(text.to_owned())))
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<SecretText, E> {
        Err(E::custom("found a number, needs text; put it in quotes"))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<SecretText, E> {
        self.visit_u64(0)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<SecretText, E> {
        self.visit_u64(0)
    }
}

/// One secret text, or a list of them.
#[derive(Clone, Debug, Default)]
pub(super) struct SecretTexts(pub Vec<SecretText>);

impl<'de> Deserialize<'de> for SecretTexts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SecretTextsVisitor)
    }
}

struct SecretTextsVisitor;

impl<'de> Visitor<'de> for SecretTextsVisitor {
    type Value = SecretTexts;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("text or a list of texts; write [a, b] for a list")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<SecretTexts, E> {
        SecretTextVisitor.visit_str(text).map(|one| SecretTexts(vec![one]))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<SecretTexts, E> {
        SecretTextVisitor.visit_u64(number).map(|one| SecretTexts(vec![one]))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<SecretTexts, E> {
        SecretTextVisitor.visit_i64(number).map(|one| SecretTexts(vec![one]))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<SecretTexts, E> {
        SecretTextVisitor.visit_f64(number).map(|one| SecretTexts(vec![one]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<SecretTexts, A::Error> {
        Vec::deserialize(value::SeqAccessDeserializer::new(list)).map(SecretTexts)
    }
}

impl JsonSchema for SecretTexts {
    fn schema_name() -> Cow<'static, str> {
        "SecretTexts".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        OneOrMany::<SecretText>::json_schema(generator)
    }
}

impl JsonSchema for SecretText {
    fn schema_name() -> Cow<'static, str> {
        "SecretText".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1 })
    }
}

/// One `T`, or a list of them.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub(super) struct OneOrMany<T>(pub Vec<T>);

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrManyVisitor(PhantomData))
    }
}

struct OneOrManyVisitor<T>(PhantomData<T>);

impl<'de, T: DeserializeOwned> Visitor<'de> for OneOrManyVisitor<T> {
    type Value = OneOrMany<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("one word or a list of words; write [a, b] for a list")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<OneOrMany<T>, E> {
        T::deserialize(value::StrDeserializer::new(text)).map(|one| OneOrMany(vec![one]))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<OneOrMany<T>, E> {
        T::deserialize(value::U64Deserializer::new(number)).map(|one| OneOrMany(vec![one]))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OneOrMany<T>, A::Error> {
        T::deserialize(value::MapAccessDeserializer::new(map)).map(|one| OneOrMany(vec![one]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<OneOrMany<T>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(OneOrMany(items))
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("OneOrMany_{}", T::schema_name()).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
    }
}

/// One `T`, or `[low, high]`.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(untagged)]
pub(super) enum OneOrRange<T> {
    One(T),
    Range(T, T),
}

impl<T: Copy> OneOrRange<T> {
    /// Returns the minimum and the maximum.
    pub(super) fn bounds(&self) -> RangeInclusive<T> {
        match *self {
            Self::One(one) => one..=one,
            Self::Range(low, high) => low..=high,
        }
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for OneOrRange<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrRangeVisitor(PhantomData))
    }
}

struct OneOrRangeVisitor<T>(PhantomData<T>);

impl<'de, T: DeserializeOwned> Visitor<'de> for OneOrRangeVisitor<T> {
    type Value = OneOrRange<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("one value, or a minimum and a maximum; write [low, high] for both")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<OneOrRange<T>, E> {
        T::deserialize(value::StrDeserializer::new(text)).map(OneOrRange::One)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<OneOrRange<T>, E> {
        T::deserialize(value::U64Deserializer::new(number)).map(OneOrRange::One)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<OneOrRange<T>, A::Error> {
        let mut next = |index| list.next_element()?.ok_or_else(|| Error::invalid_length(index, &self));
        let (low, high) = (next(0)?, next(1)?);
        match list.next_element::<T>()? {
            None => Ok(OneOrRange::Range(low, high)),
            Some(_) => Err(Error::invalid_length(3, &self)),
        }
    }
}

impl<T: JsonSchema> JsonSchema for OneOrRange<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("OneOrRange_{}", T::schema_name()).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 2, "maxItems": 2 }] })
    }
}

/// Deserializes a `T` from a word, or from a map with the keys of `K`.
pub(super) fn string_or_map<'de, D, T, K>(
    deserializer: D,
    needs: &'static str,
    word: fn(&str) -> Option<T>,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    K: DeserializeOwned + Into<T>,
{
    deserializer.deserialize_any(StringOrMapVisitor { needs, word, keys: PhantomData::<K> })
}

struct StringOrMapVisitor<T, K> {
    needs: &'static str,
    word: fn(&str) -> Option<T>,
    keys: PhantomData<K>,
}

impl<'de, T, K: DeserializeOwned + Into<T>> Visitor<'de> for StringOrMapVisitor<T, K> {
    type Value = T;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.needs)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.word)(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        K::deserialize(value::MapAccessDeserializer::new(map)).map(Into::into)
    }
}

/// Implements deserialization and schema of a type that the file writes as one of some words, or as keys.
///
/// The text says what is needed, for errors.
macro_rules! word_or_keys {
    ($Type:ident, $needs:literal: $($word:literal => $value:expr,)* $Keys:ty => $from_keys:expr) => {
        impl From<$Keys> for $Type {
            fn from(keys: $Keys) -> Self {
                $from_keys(keys)
            }
        }

        impl<'de> serde::Deserialize<'de> for $Type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::serde_forms::string_or_map::<D, Self, $Keys>(deserializer, $needs, |word| match word {
                    $($word => Some($value),)*
                    _ => None,
                })
            }
        }

        impl schemars::JsonSchema for $Type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($Type).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let keys = generator.subschema_for::<$Keys>();
                schemars::json_schema!({ "anyOf": [{ "enum": [$($word),*] }, keys] })
            }
        }
    };
}

pub(crate) use word_or_keys;

/// Deserializes a section. A key without a value means the defaults of the section.
pub(super) fn present_or_default<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(|value| Some(value.unwrap_or_default()))
}

/// A map with names as keys, in the order of the file.
#[derive(Clone, Debug)]
pub(super) struct NamedMap<T>(pub Vec<(String, T)>);

impl<T> Default for NamedMap<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for NamedMap<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(NamedMapVisitor(PhantomData))
    }
}

struct NamedMapVisitor<T>(PhantomData<T>);

impl<'de, T: DeserializeOwned> Visitor<'de> for NamedMapVisitor<T> {
    type Value = NamedMap<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("names with values; write {name: value}, or one name a line, indented")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NamedMap<T>, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(NamedMap(entries))
    }
}

impl<T: JsonSchema> JsonSchema for NamedMap<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("Named_{}", T::schema_name()).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<T>();
        json_schema!({ "type": "object", "propertyNames": { "pattern": "^[a-z0-9_.-]{1,64}$" }, "additionalProperties": value })
    }
}
