//! Conditions of a route on the JSON body of requests.

use crate::scalars::JsonValue;
use crate::serde_forms::{NamedMap, OneOrMany};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use std::borrow::Cow;

/// Patterns of values, by path.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct JsonConditions(pub NamedMap<OneOrMany<JsonValue>>);

impl JsonSchema for JsonConditions {
    fn schema_name() -> Cow<'static, str> {
        "JsonConditions".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<OneOrMany<JsonValue>>();
        json_schema!({ "type": "object", "additionalProperties": value })
    }
}
