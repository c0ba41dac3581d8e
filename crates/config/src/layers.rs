//! Merges the layers: the file, the environment, the command line.
//!
//! The `config` crate merges maps by key and replaces all other values whole. It loses locations and the order of keys,
//! so the source map keeps these. The tree is below one key of its own, because the crate interprets a dot in a
//! top-level key as a path.

use super::node::{Entry, Node, NodeKind};
use super::setting_path::SettingPath;
use super::short_forms;
use super::source_map::SourceMap;
use ::config::{Config, ConfigError, Map, Source, Value, ValueKind};

const ROOT: &str = "tidegate";

/// Returns one tree of all `layers`, lowest first, and adds their locations to `source_map`. Higher layers take
/// precedence.
pub(super) fn merge(layers: [Node; 3], source_map: &mut SourceMap) -> Value {
    let mut builder = Config::builder();
    for mut layer in layers {
        short_forms::expand(&mut layer);
        builder = builder.add_source(Layer(value(layer, &SettingPath::ROOT, source_map)));
    }
    let merged = builder.build().ok().and_then(|merged| match merged.cache.kind {
        ValueKind::Table(mut table) => table.remove(ROOT),
        _ => None,
    });
    merged.unwrap_or_else(|| Value::new(None, ValueKind::Table(Map::new())))
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

/// Returns the value of a node at `path`, and adds the locations of what it contains to `source_map`.
pub(super) fn value(node: Node, path: &SettingPath, source_map: &mut SourceMap) -> Value {
    let kind = match node.kind {
        NodeKind::Null => ValueKind::Nil,
        NodeKind::Bool(value) => ValueKind::Boolean(value),
        NodeKind::Integer(value) => ValueKind::U64(value),
        NodeKind::SignedInteger(value) => ValueKind::I64(value),
        NodeKind::Float(value) => ValueKind::Float(value),
        NodeKind::Text { text, .. } => ValueKind::String(text),
        NodeKind::List(items) => {
            let item = |(index, item): (usize, Node)| {
                let path = path.index(index);
                source_map.add(&path, &item.location, &item);
                value(item, &path, source_map)
            };
            ValueKind::Array(items.into_iter().enumerate().map(item).collect())
        }
        NodeKind::Map(entries) => {
            let entry = |entry: Entry| {
                let path = path.entry(&entry.key);
                source_map.add(&path, &entry.key_location, &entry.value);
                (entry.key, value(entry.value, &path, source_map))
            };
            ValueKind::Table(entries.into_iter().map(entry).collect())
        }
    };
    Value::new(None, kind)
}
