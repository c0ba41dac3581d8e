//! Raw keys `request_headers` and `response_headers` of a route.

use crate::scalars::Field;
use crate::serde_forms::{NamedMap, OneOrMany};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::borrow::Cow;
use std::fmt;

/// Changes of header fields.
#[derive(Clone, Default, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HeaderChanges {
    /// Fields by name, with values of up to 4096 visible ASCII characters. They replace fields of the same name. Default
    /// none.
    pub set: FieldMap,
    /// Fields by name, like those of set. Fields of the same name stay. Default none.
    pub add: FieldMap,
    /// Names of fields to remove: one, or a list. Default none.
    pub remove: OneOrMany<Field>,
}

/// Header fields by name, in the order of the file.
#[derive(Clone, Default)]
pub(crate) struct FieldMap(pub NamedMap<FieldValue>);

/// Value of a header field. It may be a credential, so no message shows it.
#[derive(Clone)]
pub(crate) struct FieldValue(pub String);

impl HeaderChanges {
    /// Returns true if nothing is changed.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { set, add, remove } = self;
        set.0.0.is_empty() && add.0.0.is_empty() && remove.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for FieldMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        NamedMap::deserialize(deserializer).map(Self)
    }
}

impl JsonSchema for FieldMap {
    fn schema_name() -> Cow<'static, str> {
        "FieldMap".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "propertyNames": { "pattern": "^[-!#$%&'*+.^_`|~0-9A-Za-z]+$" },
            "additionalProperties": { "type": ["string", "number"] }
        })
    }
}

impl<'de> Deserialize<'de> for FieldValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FieldValueVisitor)
    }
}

struct FieldValueVisitor;

impl Visitor<'_> for FieldValueVisitor {
    type Value = FieldValue;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("text; put it in quotes")
    }

    fn visit_str<E>(self, text: &str) -> Result<FieldValue, E> {
        Ok(FieldValue(text.to_owned()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<FieldValue, E> {
        Ok(FieldValue(number.to_string()))
    }
}
