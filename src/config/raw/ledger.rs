//! `ledger:` as written.

use crate::config::serde_forms::{SecretText, string_or_map};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

/// Where the count of what is spent is kept.
#[derive(Clone, Default)]
pub(in crate::config) enum Ledger {
    #[default]
    File,
    Memory,
    Shared(Shared),
}

/// A ledger that several gates share.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Shared {
    /// The Redis or Valkey through which they share each quota. Must be given.
    pub redis: Option<Redis>,
}

impl From<Shared> for Ledger {
    fn from(shared: Shared) -> Self {
        Self::Shared(shared)
    }
}

impl<'de> Deserialize<'de> for Ledger {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let needs = "a place for the count; use file, memory or { redis: { url: redis://HOST } }";
        string_or_map::<D, Self, Shared>(deserializer, needs, |word| match word {
            "file" => Some(Self::File),
            "memory" => Some(Self::Memory),
            _ => None,
        })
    }
}

impl JsonSchema for Ledger {
    fn schema_name() -> Cow<'static, str> {
        "Ledger".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let shared = generator.subschema_for::<Shared>();
        json_schema!({ "anyOf": [{ "enum": ["file", "memory"] }, shared] })
    }
}

/// A Redis or Valkey that several gates share.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Redis {
    /// `redis://host`, `redis://:password@host:6379/0` or `redis://user:password@host`; never shown. Must be given.
    pub url: Option<SecretText>,
    /// What its keys begin with; gates with the same prefix share their quotas. Default tidegate.
    pub prefix: Option<String>,
    /// When it cannot be reached, and the units in hand are spent: refuse, or share, which spends the part that was put
    /// aside for this gate. Default refuse.
    pub when_lost: WhenLost,
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum WhenLost {
    #[default]
    Refuse,
    Share,
}
