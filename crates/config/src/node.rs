//! The configuration as a tree of [`Node`]s. Every value has its path and location.

use super::error::SourceLocation;
use super::setting_path::SettingPath;
use std::collections::BTreeMap;

/// A value of the tree.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Path from the root.
    pub path: SettingPath,
    /// Location of the value.
    pub location: SourceLocation,
    /// Kind and content of the value.
    pub kind: NodeKind,
}

/// Kind and content of a value.
#[derive(Clone, Debug)]
pub(super) enum NodeKind {
    Null,
    Bool(bool),
    Integer(u64),
    SignedInteger(i64),
    Float(f64),
    /// Text. `is_untyped` text comes from the environment and may represent a number or a boolean.
    Text {
        text: String,
        is_untyped: bool,
    },
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub key: String,
    pub key_location: SourceLocation,
    pub value: Node,
}

/// Locations of all keys and values, by path.
pub(super) type LocationMap = BTreeMap<SettingPath, SourceLocation>;

impl Node {
    /// Returns an empty map as root.
    pub(super) fn empty_map() -> Self {
        Self { path: SettingPath::ROOT, location: SourceLocation::START, kind: NodeKind::Map(Vec::new()) }
    }

    /// Calls `visit` with this value and all descendants, parents first.
    pub(super) fn walk_mut(&mut self, visit: &mut impl FnMut(&mut Node)) {
        visit(self);
        match &mut self.kind {
            NodeKind::List(items) => items.iter_mut().for_each(|item| item.walk_mut(visit)),
            NodeKind::Map(entries) => entries.iter_mut().for_each(|entry| entry.value.walk_mut(visit)),
            _ => {}
        }
    }

    /// Sets the path of this value and those of all descendants.
    pub(super) fn set_path(&mut self, path: SettingPath) {
        match &mut self.kind {
            NodeKind::List(items) => {
                items.iter_mut().enumerate().for_each(|(index, item)| item.set_path(path.index(index)));
            }
            NodeKind::Map(entries) => {
                entries.iter_mut().for_each(|entry| entry.value.set_path(path.entry(&entry.key)));
            }
            _ => {}
        }
        self.path = path;
    }

    /// Returns the locations of all keys and values. Errors of a scalar are located at the value, others at the key.
    pub(super) fn locations(&self) -> LocationMap {
        let mut locations = LocationMap::new();
        self.collect_locations(&mut locations);
        locations
    }

    fn collect_locations(&self, locations: &mut LocationMap) {
        match &self.kind {
            NodeKind::List(items) => items.iter().for_each(|item| {
                locations.insert(item.path.clone(), item.location.clone());
                item.collect_locations(locations);
            }),
            NodeKind::Map(entries) => entries.iter().for_each(|entry| {
                let nested = matches!(entry.value.kind, NodeKind::Null | NodeKind::List(_) | NodeKind::Map(_));
                let location = if nested { &entry.key_location } else { &entry.value.location };
                locations.insert(entry.value.path.clone(), location.clone());
                entry.value.collect_locations(locations);
            }),
            _ => {}
        }
    }

    /// Removes the value at `path`. With `keep_empty` it becomes an empty map, so that its neighbors keep their
    /// indices. Returns false if there is nothing to remove.
    pub(super) fn remove(&mut self, path: &SettingPath, keep_empty: bool) -> bool {
        let is_target = |node: &Node| node.path == *path;
        if keep_empty && is_target(self) {
            let was_empty = matches!(&self.kind, NodeKind::Map(entries) if entries.is_empty());
            self.kind = NodeKind::Map(Vec::new());
            return !was_empty;
        }
        match &mut self.kind {
            NodeKind::List(items) => {
                let before = items.len();
                if !keep_empty {
                    items.retain(|item| !is_target(item));
                }
                items.len() < before || items.iter_mut().any(|item| item.remove(path, keep_empty))
            }
            NodeKind::Map(entries) => {
                let before = entries.len();
                if !keep_empty {
                    entries.retain(|entry| !is_target(&entry.value));
                }
                entries.len() < before || entries.iter_mut().any(|entry| entry.value.remove(path, keep_empty))
            }
            _ => false,
        }
    }
}
