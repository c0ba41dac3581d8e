//! The configuration as a tree in which every value knows its path and the place where it was written.

use super::error::SourceLocation;
use std::collections::BTreeMap;

/// One value.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Its keys from the top.
    pub path: String,
    /// Where it stands.
    pub place: SourceLocation,
    /// What it is.
    pub kind: NodeKind,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(super) enum NodeKind {
    Null,
    Bool(bool),
    Integer(u64),
    SignedInteger(i64),
    Float(f64),
    /// `loose` text came from the environment and may stand for a number or a switch.
    Text {
        text: String,
        loose: bool,
    },
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub key: String,
    pub key_place: SourceLocation,
    pub value: Node,
}

/// Where every key and value stands, by path.
pub(super) type Places = BTreeMap<String, SourceLocation>;

impl Node {
    /// An empty map at the top.
    pub(super) fn empty_map() -> Self {
        Self { path: String::new(), place: SourceLocation::START, kind: NodeKind::Map(Vec::new()) }
    }

    /// The path of the value under `key`.
    pub(super) fn path_of_key(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The path of the value at `index`.
    pub(super) fn path_of_index(&self, index: usize) -> String {
        format!("{}[{index}]", self.path)
    }

    /// Calls `visit` on this value and on all below it, parents first.
    pub(super) fn walk_mut(&mut self, visit: &mut impl FnMut(&mut Node)) {
        visit(self);
        match &mut self.kind {
            NodeKind::List(items) => items.iter_mut().for_each(|item| item.walk_mut(visit)),
            NodeKind::Map(entries) => entries.iter_mut().for_each(|entry| entry.value.walk_mut(visit)),
            _ => {}
        }
    }

    /// Writes down its path and those of all below it.
    pub(super) fn set_path(&mut self, path: String) {
        self.path = path;
        let paths: Vec<String> = match &self.kind {
            NodeKind::List(items) => (0..items.len()).map(|index| self.path_of_index(index)).collect(),
            NodeKind::Map(entries) => entries.iter().map(|entry| self.path_of_key(&entry.key)).collect(),
            _ => Vec::new(),
        };
        let below: Box<dyn Iterator<Item = &mut Node>> = match &mut self.kind {
            NodeKind::List(items) => Box::new(items.iter_mut()),
            NodeKind::Map(entries) => Box::new(entries.iter_mut().map(|entry| &mut entry.value)),
            _ => return,
        };
        below.zip(paths).for_each(|(node, path)| node.set_path(path));
    }

    /// Where everything stands. A key is where its mistakes are told, unless its value stands on its own.
    pub(super) fn locations(&self) -> Places {
        let mut places = Places::new();
        self.collect_places(&mut places);
        places
    }

    fn collect_places(&self, places: &mut Places) {
        match &self.kind {
            NodeKind::List(items) => items.iter().for_each(|item| {
                places.insert(item.path.clone(), item.place.clone());
                item.collect_places(places);
            }),
            NodeKind::Map(entries) => entries.iter().for_each(|entry| {
                let nested = matches!(entry.value.kind, NodeKind::Null | NodeKind::List(_) | NodeKind::Map(_));
                let place = if nested { &entry.key_place } else { &entry.value.place };
                places.insert(entry.value.path.clone(), place.clone());
                entry.value.collect_places(places);
            }),
            _ => {}
        }
    }

    /// Takes out the value at `path`; one of which only the inside was asked for is emptied, so that its neighbours
    /// keep their places. False when there is nothing to take out.
    pub(super) fn remove(&mut self, path: &str, keep_empty: bool) -> bool {
        let is_it = |node: &Node| node.path == path;
        if keep_empty && is_it(self) {
            let was_empty = matches!(&self.kind, NodeKind::Map(entries) if entries.is_empty());
            self.kind = NodeKind::Map(Vec::new());
            return !was_empty;
        }
        match &mut self.kind {
            NodeKind::List(items) => {
                let before = items.len();
                if !keep_empty {
                    items.retain(|item| !is_it(item));
                }
                items.len() < before || items.iter_mut().any(|item| item.remove(path, keep_empty))
            }
            NodeKind::Map(entries) => {
                let before = entries.len();
                if !keep_empty {
                    entries.retain(|entry| !is_it(&entry.value));
                }
                entries.len() < before || entries.iter_mut().any(|entry| entry.value.remove(path, keep_empty))
            }
            _ => false,
        }
    }
}
