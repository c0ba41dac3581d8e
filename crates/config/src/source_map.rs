//! Source map: the location of each setting.

use super::error::SourceLocation;
use super::node::{Node, NodeKind};
use super::setting_path::SettingPath;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Locations of all keys and values of a file, and of the variables and options that override them.
#[derive(Clone, Default)]
pub struct SourceMap {
    file: PathBuf,
    sources: HashMap<SettingPath, ValueSource>,
}

/// Locations of a value and its key, in the highest layer with the value.
#[derive(Clone)]
pub(super) struct ValueSource {
    pub key_location: SourceLocation,
    pub location: SourceLocation,
    is_scalar: bool,
    /// True for a key without a value.
    pub is_null: bool,
    /// True for text that may represent a number or a boolean.
    pub is_untyped: bool,
}

impl SourceMap {
    pub(super) fn new(file: &Path) -> Self {
        Self { file: file.to_owned(), sources: HashMap::new() }
    }

    /// Returns the path of the file.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Adds the value at `path` of a layer. Its parent is added before, its children afterwards.
    pub(super) fn add(&mut self, path: &SettingPath, key_location: &SourceLocation, node: &Node) {
        match self.sources.get_mut(path) {
            // A map keeps the location of the lowest layer, because higher layers only add to it.
            Some(lower) if matches!(node.kind, NodeKind::Map(_)) => (lower.is_scalar, lower.is_null) = (false, false),
            lower => {
                if lower.is_some() {
                    self.sources.retain(|known, _| !known.is_within(path));
                }
                let (key_location, location) = (key_location.clone(), node.location.clone());
                let is_scalar = !matches!(node.kind, NodeKind::Null | NodeKind::List(_) | NodeKind::Map(_));
                let is_untyped = matches!(node.kind, NodeKind::Text { is_untyped: true, .. });
                let is_null = matches!(node.kind, NodeKind::Null);
                self.sources
                    .insert(path.clone(), ValueSource { key_location, location, is_scalar, is_null, is_untyped });
            }
        }
    }

    /// Returns the location of the setting at `path` as text: `FILE:LINE:COL`, or the name of a variable or option.
    /// `None` if it is not set and has its default.
    pub fn location(&self, path: &SettingPath) -> Option<String> {
        self.position(path).map(|location| location.in_file(&self.file))
    }

    /// Returns the location of `path`, or of its nearest parent, as text for messages.
    pub(super) fn nearest_location(&self, path: &SettingPath) -> String {
        self.enclosing_position(path).in_file(&self.file)
    }

    /// Returns the location of the setting at `path`: that of a scalar, or of the key of another value. `None` if it is
    /// not set.
    pub fn position(&self, path: &SettingPath) -> Option<&SourceLocation> {
        self.source(path).map(|source| if source.is_scalar { &source.location } else { &source.key_location })
    }

    /// Returns the locations of the value at `path` and of its key. `None` for the root and if it is not set.
    pub(super) fn source(&self, path: &SettingPath) -> Option<&ValueSource> {
        self.sources.get(path)
    }

    /// Returns the location of the first key of the map at `path`; `None` if the file has no key there.
    pub(super) fn first_key(&self, path: &SettingPath) -> Option<&SourceLocation> {
        let keys = self.sources.iter().filter(|(key, _)| key.parent().as_ref() == Some(path));
        keys.map(|(_, source)| &source.key_location).min()
    }

    /// Returns the path of a quota, which is defined under `quotas` or within its scope.
    pub fn quota_path(&self, name: &str) -> SettingPath {
        let scope_quota = SettingPath::of_scope(name).quota();
        if self.position(&scope_quota).is_some() { scope_quota } else { SettingPath::of_quota(name) }
    }

    /// Returns the path of the tiers of a class, which are written in the short or the long form.
    pub fn tiers_path(&self, quota: &str, class: &str) -> SettingPath {
        let quota = self.quota_path(quota);
        quota.tiers_of(class, self.position(&quota.tiers_of(class, true)).is_some())
    }

    /// Returns the location of `path`, or of its nearest parent.
    pub(super) fn enclosing_position(&self, path: &SettingPath) -> SourceLocation {
        let paths = std::iter::successors(Some(path.clone()), SettingPath::parent);
        paths.filter_map(|path| self.position(&path).cloned()).next().unwrap_or(SourceLocation::START)
    }
}

/// Omits the locations, so that equal settings of different files have equal output.
impl fmt::Debug for SourceMap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SourceMap").finish_non_exhaustive()
    }
}
