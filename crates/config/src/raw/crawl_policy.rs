//! Raw section `crawl_policy`: a word, or keys.

use crate::serde_forms::string_or_map;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

#[derive(Clone, Default)]
pub(crate) enum CrawlPolicy {
    #[default]
    Off,
    On,
    Options(CrawlPolicyOptions),
}

/// Optional contents of the crawl policy document.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CrawlPolicyOptions {
    /// Address for questions of crawler operators, such as `mailto:bots@example.com` or `https://example.com/bots`.
    /// Default none.
    pub contact: Option<String>,
    /// true: shows the limit and the remainder of each quota in units, not only as shares. Default false.
    pub show_units: bool,
}

impl From<CrawlPolicyOptions> for CrawlPolicy {
    fn from(options: CrawlPolicyOptions) -> Self {
        Self::Options(options)
    }
}

impl<'de> Deserialize<'de> for CrawlPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let needs = "on, off or keys; use on, off or { contact: \"mailto:bots@example.com\" }";
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
        let options = generator.subschema_for::<CrawlPolicyOptions>();
        json_schema!({ "anyOf": [{ "enum": ["on", "off"] }, options] })
    }
}
