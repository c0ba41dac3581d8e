//! `pacing:` as written: a word, or keys that say more.

use crate::config::scalars::Percent;
use crate::config::serde_forms::{NamedMap, string_or_map};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

/// How what remains is spread over the time that remains.
#[derive(Clone, Default)]
pub(in crate::config) struct Pacing(pub PacingOptions);

/// The long form.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct PacingOptions {
    /// off: not at all. even: as if each hour were like those before. learned: by what each class asks for in each hour
    /// of the week; even, until a day is known. Default off.
    pub mode: Mode,
    /// So much of the limit a class may be ahead of its plan, so that it can come in bursts. More than nothing. Default 5%.
    pub burst: Option<Percent>,
    /// How much each paced class counts against the others where there is not enough for all, from 1 to 1000. A class
    /// without tiers is paced if it has a weight. Default 1 each.
    pub weights: NamedMap<u32>,
    /// false: what the plan would refuse is counted and logged, not refused, and tiers hold as without it. Default true.
    pub enforce: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum Mode {
    #[default]
    Off,
    Even,
    Learned,
}

impl From<PacingOptions> for Pacing {
    fn from(keys: PacingOptions) -> Self {
        Self(keys)
    }
}

impl<'de> Deserialize<'de> for Pacing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let needs = "how it is spread over its window; use off, even, learned or { mode: learned, burst: 5% }";
        string_or_map::<D, Self, PacingOptions>(deserializer, needs, |word| {
            let mode = match word {
                "off" => Mode::Off,
                "even" => Mode::Even,
                "learned" => Mode::Learned,
                _ => return None,
            };
            Some(Self(PacingOptions { mode, ..PacingOptions::default() }))
        })
    }
}

impl JsonSchema for Pacing {
    fn schema_name() -> Cow<'static, str> {
        "Pacing".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (word, keys) = (generator.subschema_for::<Mode>(), generator.subschema_for::<PacingOptions>());
        json_schema!({ "anyOf": [word, keys] })
    }
}
