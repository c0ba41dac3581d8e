//! Key `cost_json` of a quota.

use crate::scalars::Amount;
use crate::section::{any, section};
use crate::serde_forms::{OneOrMany, string_or_map};
use crate::setting_path::SettingPath;
use crate::validate::diagnostics::Diagnostics;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use tidegate_body_cost::{CostPath, MAX_PATHS};
use tidegate_policy::Units;
use tidegate_policy::quota::BodyCostPath;

/// Paths of the numbers that a body reports; none if it reports no cost.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct CostJson(OneOrMany<PathOrKeys>);

/// A path, or a path with a weight.
#[derive(Clone, Debug)]
struct PathOrKeys(WeightedPathKeys);

section! {
    /// Path of a number, and what one of it costs.
    pub(crate) struct WeightedPathKeys {
        /// Path of the number, such as usage.completion_tokens. Required.
        path: Option<String>;
        /// Units that the number 1 costs, to a thousandth, such as 4 or 0.25.
        weight: Units = Units::from_whole(1) => Amount, any;
    }
}

impl From<WeightedPathKeys> for PathOrKeys {
    fn from(keys: WeightedPathKeys) -> Self {
        Self(keys)
    }
}

impl<'de> Deserialize<'de> for PathOrKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let needs = "the path of a number; write usage.total_tokens or { path: usage.completion_tokens, weight: 4 }";
        string_or_map::<D, Self, WeightedPathKeys>(deserializer, needs, |path| {
            Some(Self(WeightedPathKeys { path: Some(path.to_owned()), ..WeightedPathKeys::default() }))
        })
    }
}

impl JsonSchema for PathOrKeys {
    fn schema_name() -> Cow<'static, str> {
        "CostPath".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let keys = generator.subschema_for::<WeightedPathKeys>();
        json_schema!({ "anyOf": [{ "type": "string" }, keys] })
    }
}

/// Returns the paths, and reports invalid ones.
pub(super) fn cost_json(
    CostJson(OneOrMany(raw)): &CostJson,
    path: &SettingPath,
    report: &mut Diagnostics,
) -> Vec<BodyCostPath> {
    if raw.len() > MAX_PATHS {
        report.error(path, format!("{} paths, at most {MAX_PATHS} are possible", raw.len()), "write fewer");
    }
    let mut paths = Vec::new();
    for (index, PathOrKeys(WeightedPathKeys { path: text, weight })) in raw.iter().enumerate() {
        let at = if raw.len() == 1 { path.clone() } else { path.index(index) };
        match text.as_ref().map(|text| (text, text.parse::<CostPath>())) {
            Some((text, parsed)) => {
                if let Err(error) = parsed {
                    report.error(
                        &at,
                        format!("invalid path: {error}"),
                        "write it like usage.total_tokens, or choices.0.cost",
                    );
                }
                paths.push(BodyCostPath { path: text.clone(), weight: *weight });
            }
            None => report.error(&at.path(), "missing", "write the path of a number, such as usage.total_tokens"),
        }
    }
    paths
}
