//! Raw section `compression`.

use crate::scalars::Size;
use crate::serde_forms::{OneOrMany, string_or_map};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

/// Compression of responses: on, or keys.
#[derive(Clone, Default)]
pub(crate) struct Compression(pub CompressionKeys);

/// Compression of responses.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CompressionKeys {
    /// Content codings: one, or a list with the preferred one first. A client gets the one to which it gives the greatest
    /// weight, and of several such the first. Default [zstd, br, gzip].
    pub codings: Option<OneOrMany<ContentCoding>>,
    /// Smallest body that is compressed. Default 1KiB.
    pub min_size: Option<Size>,
    /// Media types that are compressed: one, or a list; a star is any text. Event streams are compressed if they are named
    /// in full. Default [text/*, application/javascript, application/json, application/xml, application/*+json,
    /// application/*+xml, application/wasm, image/svg+xml].
    pub types: Option<OneOrMany<String>>,
}

#[derive(Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ContentCoding {
    Br,
    Gzip,
    Zstd,
}

impl From<CompressionKeys> for Compression {
    fn from(keys: CompressionKeys) -> Self {
        Self(keys)
    }
}

impl<'de> Deserialize<'de> for Compression {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let needs = "on or keys; use on or { codings: [br, gzip] }";
        string_or_map::<D, Self, CompressionKeys>(deserializer, needs, |word| (word == "on").then(Self::default))
    }
}

impl JsonSchema for Compression {
    fn schema_name() -> Cow<'static, str> {
        "Compression".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let keys = generator.subschema_for::<CompressionKeys>();
        json_schema!({ "anyOf": [{ "enum": ["on"] }, keys] })
    }
}
