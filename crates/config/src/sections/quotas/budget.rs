//! Keys `per`, `limits` and `max_keys` of a quota.

use super::Quota;
use crate::scalars::{Amount, Field};
use crate::section::section;
use crate::serde_forms::string_or_map;
use crate::setting_path::SettingPath;
use crate::validate::credentials::credential_source;
use crate::validate::diagnostics::Diagnostics;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::collections::HashMap;
use tidegate_policy::ClassId;
use tidegate_policy::budget::{Budget, BudgetKey, CustomerSource};
use tidegate_policy::class::Class;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::quota as policy;

/// Number of keys that are counted unless the file says otherwise.
const DEFAULT_MAX_KEYS: u32 = 100_000;
/// Largest number of keys: their table takes about half a gigabyte.
const MAX_KEYS: u32 = 10_000_000;

/// Largest number of keys of a sliding window, whose parts have a table each.
const MAX_SLIDING_KEYS: u32 = 1_000_000;

/// What has a budget of its own.
#[derive(Clone, Debug)]
pub(crate) enum Per {
    ApiKey,
    Client,
    Class,
    Credential(CustomerCredential),
}

section! {
    /// Header or cookie of a customer.
    pub(crate) struct CustomerCredential {
        /// Header whose value names the customer. Either header or cookie is required.
        header: Option<Field>;
        /// Cookie whose value names the customer. Either header or cookie is required.
        cookie: Option<String>;
    }
}

impl From<CustomerCredential> for Per {
    fn from(keys: CustomerCredential) -> Self {
        Self::Credential(keys)
    }
}

impl<'de> Deserialize<'de> for Per {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let needs = "what has a budget of its own; use api_key, client, class, { header: NAME } or { cookie: NAME }";
        string_or_map::<D, Self, CustomerCredential>(deserializer, needs, |word| match word {
            "api_key" => Some(Self::ApiKey),
            "client" => Some(Self::Client),
            "class" => Some(Self::Class),
            _ => None,
        })
    }
}

impl JsonSchema for Per {
    fn schema_name() -> Cow<'static, str> {
        "Per".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let keys = generator.subschema_for::<CustomerCredential>();
        json_schema!({ "anyOf": [{ "enum": ["api_key", "client", "class"] }, keys] })
    }
}

/// Returns the budgets of a quota, and what names their customers, if the quota has any.
pub(super) fn budget(
    keys: &Quota,
    path: &SettingPath,
    classes: &[Class],
    report: &mut Diagnostics,
) -> Option<(Budget, Option<CustomerSource>)> {
    let Some(per) = &keys.per else {
        for (is_set, key) in [
            (!keys.limits.0.is_empty(), path.limits()),
            (keys.max_keys.is_some(), path.max_keys()),
            (keys.metrics_by_key, path.metrics_by_key()),
        ] {
            if is_set {
                report.error(&key, "the quota has no budgets", "write per: api_key, client, class or { header: NAME }");
            }
        }
        return None;
    };
    let source = match per {
        Per::ApiKey => Some(CustomerSource::ApiKey),
        Per::Client | Per::Class => None,
        Per::Credential(CustomerCredential { header, cookie }) => {
            Some(CustomerSource::Credential(credential_source(header, cookie, &path.per(), report)))
        }
    };
    if keys.metrics_by_key && !matches!(per, Per::ApiKey) {
        let hint = "write per: api_key, or leave it out";
        report.contradiction(&path.metrics_by_key(), &[path.per()], "only listed keys have names", hint);
    }
    let max_keys = keys.max_keys.unwrap_or(DEFAULT_MAX_KEYS);
    if !(1..=MAX_KEYS).contains(&max_keys) {
        report.error(&path.max_keys(), format!("found {max_keys}"), format!("write 1 to {MAX_KEYS}"));
    }
    let budget = Budget {
        per: match per {
            Per::Client => BudgetKey::Client,
            Per::Class => BudgetKey::Class,
            Per::ApiKey | Per::Credential(_) => BudgetKey::Customer,
        },
        class_limits: class_limits(keys, path, classes, report),
        key_limits: HashMap::new(),
        class_keys: classes.iter().map(|class| ClientKey::of_class(&class.name)).collect(),
        max_keys: max_keys as usize,
        has_metrics_by_key: keys.metrics_by_key,
    };
    Some((budget, source))
}

fn class_limits(
    keys: &Quota,
    path: &SettingPath,
    classes: &[Class],
    report: &mut Diagnostics,
) -> HashMap<ClassId, tidegate_policy::Units> {
    let mut limits = HashMap::new();
    for (name, Amount(limit)) in &keys.limits.0 {
        let at = path.limits().entry(name);
        if limit.is_zero() {
            report.error(&at, "found 0", format!("write the units of each, or block the class {name}"));
        }
        match classes.iter().position(|class| class.name == *name) {
            Some(index) => drop(limits.insert(ClassId::from_index(index), *limit)),
            None => report.unknown_name(&at, "class", name, classes.iter().map(|class| class.name.as_str())),
        }
    }
    limits
}

/// Reports keys that a quota with budgets cannot have: they are for what all requests use together.
pub(super) fn check(quota: &policy::Quota, keys: &Quota, path: &SettingPath, report: &mut Diagnostics) {
    if quota.budget.is_none() {
        return;
    }
    let of_all = [
        (!keys.tiers.0.is_empty(), path.tiers()),
        (quota.pacing.is_some(), path.pacing()),
        (keys.per_client.is_some(), path.per_client()),
        (keys.sync_from.is_some(), path.sync_from()),
    ];
    for (_, key) in of_all.into_iter().filter(|(is_set, _)| *is_set) {
        let hint = "write it at a quota without `per`, to which a route can be charged as well";
        report.contradiction(&key, &[path.per()], "a quota with budgets cannot have it", hint);
    }
    let max_keys = keys.max_keys.unwrap_or(DEFAULT_MAX_KEYS);
    if quota.window.is_sliding() && (MAX_SLIDING_KEYS + 1..=MAX_KEYS).contains(&max_keys) {
        let hint = format!("write 1 to {MAX_SLIDING_KEYS}, or a window with an end");
        let message = format!("found {max_keys} keys of a sliding window, of which each part counts as many");
        report.contradiction(&path.max_keys(), &[path.window()], message, hint);
    }
}
