//! Key `tiers` of a quota.

use crate::scalars::{Mark, Percent};
use crate::section::{any, section};
use crate::serde_forms::NamedMap;
use crate::setting_path::SettingPath;
use crate::validate::diagnostics::Diagnostics;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::fmt;
use tidegate_policy::Units;
use tidegate_policy::class::Class;
use tidegate_policy::quota::ClassTiers;
use tidegate_policy::tier::{self as policy, Share, TierSet};

/// Maximum number of tiers of a class; a tier number is one byte.
const MAX_TIERS: usize = 100;

/// Tiers of one class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tiers {
    keys: TierOptions,
    /// True if written with keys, not as a list.
    long_form: bool,
}

section! {
    /// Tiers with keys.
    pub(crate) struct TierOptions {
        /// false: shadow mode. Refusals by these tiers are counted and logged only.
        enforce: bool = true => bool, any;
        /// List of { above, shed }; both must increase. Required.
        steps: Vec<Tier>;
    }
}

section! {
    /// A tier: from the usage `above`, the share `shed` of the requests is refused.
    pub(crate) struct Tier {
        /// Usage from which the tier applies: a share of the limit (60%), or units (6000), at most the limit. Required.
        above: Option<Mark>;
        /// Share of the class's requests that is refused, more than 0%. Required.
        shed: Option<Share> = None => Percent, any;
    }
}

impl<'de> Deserialize<'de> for Tiers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TiersVisitor;

        impl<'de> Visitor<'de> for TiersVisitor {
            type Value = Tiers;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a list of tiers; write [{ above: 80%, shed: 50% }]")
            }

            fn visit_unit<E>(self) -> Result<Tiers, E> {
                Ok(Tiers::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Tiers, A::Error> {
                let steps = Vec::deserialize(SeqAccessDeserializer::new(list))?;
                Ok(Tiers { keys: TierOptions { steps, ..TierOptions::default() }, long_form: false })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Tiers, A::Error> {
                let keys = TierOptions::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Tiers { keys, long_form: true })
            }
        }

        deserializer.deserialize_any(TiersVisitor)
    }
}

impl JsonSchema for Tiers {
    fn schema_name() -> Cow<'static, str> {
        "Tiers".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (short, long_form) = (generator.subschema_for::<Vec<Tier>>(), generator.subschema_for::<TierOptions>());
        json_schema!({ "anyOf": [short, long_form] })
    }
}

/// Returns the tiers of each class of the quota at `path`, which has this `limit`.
pub(super) fn class_tiers(
    by_name: &NamedMap<Tiers>,
    limit: Units,
    path: &SettingPath,
    classes: &[Class],
    report: &mut Diagnostics,
) -> Vec<Option<ClassTiers>> {
    let mut by_class: Vec<Option<ClassTiers>> = vec![None; classes.len()];
    let limit_path = path.limit();
    for (class, tiers) in &by_name.0 {
        let path = path.tiers_of(class, tiers.long_form);
        let index = classes.iter().position(|known| known.name == *class);
        if index.is_none() && !has_class_errors(report, classes.len()) {
            report.unknown_name(&path, "class", class, classes.iter().map(|class| class.name.as_str()));
        }
        let tiers = tier_set(&tiers.keys, limit, &limit_path, &path, report);
        if let Some(index) = index {
            by_class[index] = Some(tiers);
        }
    }
    by_class
}

/// Returns true if the name of a class has an error: it may be the one that seems unknown.
fn has_class_errors(report: &Diagnostics, count: usize) -> bool {
    report.has_error_at(&SettingPath::ROOT.classes())
        && (count <= 1 || (0..count).any(|index| report.has_error_at(&SettingPath::of_class(index).name())))
}

fn tier_set(
    keys: &TierOptions,
    limit: Units,
    limit_path: &SettingPath,
    path: &SettingPath,
    report: &mut Diagnostics,
) -> ClassTiers {
    if keys.steps.is_empty() {
        report.error(path, "no tiers", "write [{ above: 80%, shed: 50% }], or leave the class out");
    }
    report.check_len(path, "tiers", keys.steps.len(), MAX_TIERS, "use fewer tiers");
    let mut tiers: Vec<policy::Tier> = Vec::new();
    for (index, Tier { above, shed }) in keys.steps.iter().enumerate() {
        let path = path.index(index);
        if above.is_none() {
            report.error(&path.above(), "missing", "write it like above: 80%");
        }
        if shed.is_none() {
            report.error(&path.shed(), "missing", "write it like shed: 50%");
        }
        let (Some(Mark(above)), Some(shed_share)) = (above, *shed) else { continue };
        let threshold = above.units(limit);
        if threshold > limit {
            let message = format!("unreachable: {threshold} exceeds the limit {limit}");
            let hint = "write a share such as 80%, or less than the limit";
            report.contradiction(&path.above(), std::slice::from_ref(limit_path), message, hint);
        }
        if tiers.last().is_some_and(|previous| threshold <= previous.threshold) {
            report.error(&path.above(), "not above the previous tier", "write the lowest tier first");
        }
        if shed_share <= tiers.last().map_or(Share::NONE, |previous| previous.shed_share) {
            let is_nothing = shed_share == Share::NONE;
            let message = if is_nothing { "sheds nothing" } else { "sheds no more than the previous tier" };
            report.error(&path.shed(), message, "shed more with each tier, 100% at most");
        }
        tiers.push(policy::Tier { threshold, shed_share });
    }
    ClassTiers { tiers: TierSet::new(tiers, limit), enforce: keys.enforce }
}
