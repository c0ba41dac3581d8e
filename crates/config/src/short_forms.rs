//! Short forms of maps of which one key is meant: `origin: URL`, also of one of several, and `window: day` and
//! `sync_from: HEADER` of a quota.
//!
//! They are replaced by the maps before layers are merged, so that a variable such as `TIDEGATE__ORIGIN__MAX_CONNECTIONS`
//! adds to a short form in the file.

use super::calendar::CalendarUnit;
use super::node::{Entry, Node, NodeKind};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::StrDeserializer;
use std::borrow::Cow;
use std::marker::PhantomData;

/// A section `T` of which the file may write one value `S` in place of the map. Only the schema tells it from `T`.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct ShortForm<T, S>(pub T, #[serde(skip)] PhantomData<S>);

impl<T: Default, S> Default for ShortForm<T, S> {
    fn default() -> Self {
        Self(T::default(), PhantomData)
    }
}

impl<T: JsonSchema, S: JsonSchema> JsonSchema for ShortForm<T, S> {
    fn schema_name() -> Cow<'static, str> {
        format!("{}_or_{}", S::schema_name(), T::schema_name()).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (short, keys) = (generator.subschema_for::<S>(), generator.subschema_for::<T>());
        json_schema!({ "anyOf": [short, keys] })
    }
}

/// Replaces each short form in the tree by its map.
pub(super) fn expand(root: &mut Node) {
    for (key, section) in entries(root) {
        match key {
            "origin" => expand_text(section, "url"),
            "origins" => entries(section).for_each(|(_, origin)| expand_text(origin, "url")),
            "quotas" => entries(section).for_each(|(_, quota)| expand_quota(quota)),
            "scopes" => {
                let keys = entries(section).flat_map(|(_, scope)| entries(scope));
                keys.filter(|(key, _)| *key == "quota").for_each(|(_, quota)| expand_quota(quota));
            }
            _ => {}
        }
    }
}

fn expand_quota(quota: &mut Node) {
    let is_unit = |unit: &str| CalendarUnit::deserialize(StrDeserializer::<serde::de::value::Error>::new(unit)).is_ok();
    for (key, value) in entries(quota) {
        match (key, &value.kind) {
            // Another word is an error, which shows the forms of a window.
            ("window", NodeKind::Text { text, .. }) if is_unit(text) => expand_text(value, "calendar"),
            ("sync_from", _) => expand_text(value, "remaining_header"),
            _ => {}
        }
    }
}

fn expand_text(node: &mut Node, key: &str) {
    if matches!(node.kind, NodeKind::Text { .. }) {
        let value = node.clone();
        node.kind = NodeKind::Map(vec![Entry { key: key.to_owned(), key_location: node.location.clone(), value }]);
    }
}

fn entries(node: &mut Node) -> impl Iterator<Item = (&str, &mut Node)> {
    let entries = match &mut node.kind {
        NodeKind::Map(entries) => entries.as_mut_slice(),
        _ => &mut [],
    };
    entries.iter_mut().map(|entry| (entry.key.as_str(), &mut entry.value))
}
