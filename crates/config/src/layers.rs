//! Merges the layers: the file, the environment, the command line.
//!
//! The `config` crate merges maps by key and replaces all other values whole. It loses the locations of maps and the
//! order of keys, so these are restored afterwards. The tree is below one key of its own, because the crate interprets
//! a dot in a top-level key as a path.

use super::error::SourceLocation;
use super::node::{Entry, Node, NodeKind};
use super::setting_path::SettingPath;
use ::config::{Config, ConfigError, Map, Source, Value, ValueKind};
use std::collections::HashMap;

const ROOT: &str = "tidegate";

/// Returns one tree of all `layers`, lowest first. Higher layers take precedence.
pub(super) fn merge(layers: &[Node]) -> Node {
    let mut locations = LostLocations::default();
    let mut builder = Config::builder();
    for layer in layers {
        locations.record(layer);
        builder = builder.add_source(Layer(value(layer)));
    }
    let merged = builder.build().ok().and_then(|merged| match merged.cache.kind {
        ValueKind::Table(mut table) => table.remove(ROOT),
        _ => None,
    });
    let root = Node { path: SettingPath::ROOT, location: SourceLocation::START, kind: NodeKind::Null };
    match merged {
        Some(merged) => locations.node(&root, SettingPath::ROOT, merged),
        None => Node::empty_map(),
    }
}

#[derive(Clone, Debug)]
struct Layer(Value);

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ConfigError> {
        Ok(Map::from([(ROOT.to_owned(), self.0.clone())]))
    }
}

fn value(node: &Node) -> Value {
    let kind = match &node.kind {
        NodeKind::Null => ValueKind::Nil,
        NodeKind::Bool(value) => ValueKind::Boolean(*value),
        NodeKind::Integer(value) => ValueKind::U64(*value),
        NodeKind::SignedInteger(value) => ValueKind::I64(*value),
        NodeKind::Float(value) => ValueKind::Float(*value),
        NodeKind::Text { text, .. } => ValueKind::String(text.clone()),
        NodeKind::List(items) => ValueKind::Array(items.iter().map(value).collect()),
        NodeKind::Map(entries) => {
            ValueKind::Table(entries.iter().map(|entry| (entry.key.clone(), value(&entry.value))).collect())
        }
    };
    Value::new(None, kind)
}

/// Locations and text properties that merging loses, by path, of the highest layer.
#[derive(Default)]
struct LostLocations {
    locations: HashMap<SettingPath, SourceLocation>,
    key_locations: HashMap<SettingPath, SourceLocation>,
    untyped: HashMap<SettingPath, bool>,
}

impl LostLocations {
    fn record(&mut self, node: &Node) {
        // A map keeps the location of the lowest layer, because higher layers only add to it.
        if matches!(node.kind, NodeKind::Map(_)) {
            self.locations.entry(node.path.clone()).or_insert_with(|| node.location.clone());
        } else {
            self.locations.insert(node.path.clone(), node.location.clone());
        }
        match &node.kind {
            NodeKind::Text { is_untyped: untyped, .. } => {
                self.untyped.insert(node.path.clone(), *untyped);
            }
            NodeKind::List(items) => items.iter().for_each(|item| self.record(item)),
            NodeKind::Map(entries) => entries.iter().for_each(|entry| {
                let path = entry.value.path.clone();
                if matches!(entry.value.kind, NodeKind::Map(_)) {
                    self.key_locations.entry(path).or_insert_with(|| entry.key_location.clone());
                } else {
                    self.key_locations.insert(path, entry.key_location.clone());
                }
                self.record(&entry.value);
            }),
            _ => {}
        }
    }

    fn node(&self, parent: &Node, path: SettingPath, value: Value) -> Node {
        let location = self.locations.get(&path).unwrap_or(&parent.location).clone();
        let mut node = Node { path, location, kind: NodeKind::Null };
        node.kind = match value.kind {
            ValueKind::Nil => NodeKind::Null,
            ValueKind::Boolean(value) => NodeKind::Bool(value),
            ValueKind::I64(value) => NodeKind::SignedInteger(value),
            ValueKind::U64(value) => NodeKind::Integer(value),
            ValueKind::I128(_) | ValueKind::U128(_) => NodeKind::Null,
            ValueKind::Float(value) => NodeKind::Float(value),
            ValueKind::String(text) => {
                NodeKind::Text { text, is_untyped: self.untyped.get(&node.path).copied().unwrap_or(false) }
            }
            ValueKind::Array(items) => {
                let item = |(index, item)| self.node(&node, node.path.index(index), item);
                NodeKind::List(items.into_iter().enumerate().map(item).collect())
            }
            ValueKind::Table(table) => {
                let entry = |(key, value): (String, Value)| {
                    let path = node.path.entry(&key);
                    let key_place = self.key_locations.get(&path).unwrap_or(&node.location).clone();
                    Entry { value: self.node(&node, path, value), key, key_location: key_place }
                };
                let mut entries: Vec<Entry> = table.into_iter().map(entry).collect();
                entries.sort_by(|left, right| (&left.key_location, &left.key).cmp(&(&right.key_location, &right.key)));
                NodeKind::Map(entries)
            }
        };
        node
    }
}
