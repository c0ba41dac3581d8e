//! `crawl_policy:` as written.

use crate::config::serde_forms::string_or_map;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

#[derive(Clone, Default)]
pub(in crate::config) enum CrawlPolicy {
    #[default]
    Off,
    On,
    With(CrawlPolicyOptions),
}

/// What is told besides the rules.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct CrawlPolicyOptions {
    /// Whom crawlers ask for more: an address such as mailto:bots@example.com or https://example.com/bots. Default none.
    pub contact: Option<String>,
    /// true: how large each quota is, and what is left of it, is told in units, too, not only in shares. Default false.
    pub units: bool,
}

impl From<CrawlPolicyOptions> for CrawlPolicy {
    fn from(told: CrawlPolicyOptions) -> Self {
        Self::With(told)
    }
}

impl<'de> Deserialize<'de> for CrawlPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let needs = "whether crawlers are told the policy; use on, off or { contact: \"mailto:bots@example.com\" }";
        string_or_map::<D, Self, CrawlPolicyOptions>(deserializer, needs, |word| match word {
            "on" => Some(Self::On),
            "off" => Some(Self::Off),
            _ => None,
        })
    }
}

impl JsonSchema for CrawlPolicy {
    fn schema_name() -> Cow<'static, str> {
        "CrawlPolicy".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let told = generator.subschema_for::<CrawlPolicyOptions>();
        json_schema!({ "anyOf": [{ "enum": ["on", "off"] }, told] })
    }
}
