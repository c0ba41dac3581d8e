//! A layer of the configuration as a tree of [`Node`]s. Every key and value has its location.

use super::error::SourceLocation;
use super::setting_path::SettingPath;

/// A value of the tree.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    /// Location of the value.
    pub location: SourceLocation,
    /// Kind and content of the value.
    pub kind: NodeKind,
}

/// Kind and content of a value.
#[derive(Clone, Debug, PartialEq)]
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
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub key: String,
    pub key_location: SourceLocation,
    pub value: Node,
}

impl Node {
    /// Returns an empty map as root.
    pub(super) fn empty_map() -> Self {
        Self { location: SourceLocation::START, kind: NodeKind::Map(Vec::new()) }
    }

    /// Calls `visit` with this value at `path` and with all descendants, parents first.
    pub(super) fn walk_mut(&mut self, path: &SettingPath, visit: &mut impl FnMut(&SettingPath, &mut Node)) {
        visit(path, self);
        match &mut self.kind {
            NodeKind::List(items) => {
                items.iter_mut().enumerate().for_each(|(index, item)| item.walk_mut(&path.index(index), visit));
            }
            NodeKind::Map(entries) => {
                entries.iter_mut().for_each(|entry| entry.value.walk_mut(&path.entry(&entry.key), visit));
            }
            _ => {}
        }
    }
}
