//! `scope_from:` as written: a word, or the name of what carries the value.

use crate::config::scalars::Field;
use crate::config::serde_forms::string_or_map;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

/// What a scope's value is.
#[derive(Clone)]
pub(in crate::config) enum PartitionBy {
    Host,
    Route,
    Named(PartitionSource),
}

/// The long form: exactly one of them.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct PartitionSource {
    pub query: Option<String>,
    pub header: Option<Field>,
    pub path: Option<u32>,
}

impl From<PartitionSource> for PartitionBy {
    fn from(named: PartitionSource) -> Self {
        Self::Named(named)
    }
}

impl<'de> Deserialize<'de> for PartitionBy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let needs = "what there is a scope for each value of; use host, route, { query: NAME }, { header: NAME } or { path: 1 }";
        string_or_map::<D, Self, PartitionSource>(deserializer, needs, |word| match word {
            "host" => Some(Self::Host),
            "route" => Some(Self::Route),
            _ => None,
        })
    }
}

impl JsonSchema for PartitionBy {
    fn schema_name() -> Cow<'static, str> {
        "ScopeFrom".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let keys = |key: &str, schema: serde_json::Value| json_schema!({ "type": "object", "properties": { key: schema }, "required": [key], "additionalProperties": false });
        let query = keys(
            "query",
            serde_json::json!({ "type": "string", "minLength": 1, "description": "The query parameter." }),
        );
        let header = keys("header", serde_json::json!({ "type": "string", "description": "The header." }));
        let path = keys(
            "path",
            serde_json::json!({ "type": ["integer", "string"], "minimum": 1, "description": "The segment of the path, from 1." }),
        );
        json_schema!({ "anyOf": [{ "enum": ["host", "route"] }, query, header, path] })
    }
}
