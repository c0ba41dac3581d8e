//! Raw key `partition_by` of a scope: a word, or the source of the partition key.

use crate::scalars::Field;
use crate::serde_forms::string_or_map;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

/// Partition key of a scope.
#[derive(Clone)]
pub(crate) enum PartitionBy {
    Host,
    Route,
    Source(PartitionSource),
}

/// Source of the partition key. Exactly one key is set.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PartitionSource {
    pub query: Option<String>,
    pub header: Option<Field>,
    pub path: Option<u32>,
}

impl From<PartitionSource> for PartitionBy {
    fn from(named: PartitionSource) -> Self {
        Self::Source(named)
    }
}

impl<'de> Deserialize<'de> for PartitionBy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let needs = "a partition key; use host, route, { query: NAME }, { header: NAME } or { path: 1 }";
        string_or_map::<D, Self, PartitionSource>(deserializer, needs, |word| match word {
            "host" => Some(Self::Host),
            "route" => Some(Self::Route),
            _ => None,
        })
    }
}

impl JsonSchema for PartitionBy {
    fn schema_name() -> Cow<'static, str> {
        "PartitionBy".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let keys = |key: &str, schema: serde_json::Value| json_schema!({ "type": "object", "properties": { key: schema }, "required": [key], "additionalProperties": false });
        let query = keys(
            "query",
            serde_json::json!({ "type": "string", "minLength": 1, "description": "Name of the query parameter." }),
        );
        let header = keys("header", serde_json::json!({ "type": "string", "description": "Name of the header." }));
        let path = keys(
            "path",
            serde_json::json!({ "type": ["integer", "string"], "minimum": 1, "description": "Number of the path segment, from 1." }),
        );
        json_schema!({ "anyOf": [{ "enum": ["host", "route"] }, query, header, path] })
    }
}
