//! Source map: the location of each setting.

use super::error::SourceLocation;
use super::node::LocationMap;
use super::setting_path::SettingPath;
use std::fmt;
use std::path::{Path, PathBuf};

/// Locations of all keys and values of a file, and of the variables and options that override them.
#[derive(Clone, Default)]
pub struct SourceMap {
    file: PathBuf,
    locations: LocationMap,
}

impl SourceMap {
    pub(super) fn new(file: &Path, locations: LocationMap) -> Self {
        Self { file: file.to_owned(), locations }
    }

    /// Returns the location of the setting at `path` as text: `FILE:LINE:COL`, or the name of a variable or option.
    /// `None` if it is not set and has its default.
    pub fn location(&self, path: &SettingPath) -> Option<String> {
        self.locations.get(path).map(|location| location.in_file(&self.file))
    }

    /// Returns the location of `path`, or of its nearest parent, as text for messages.
    pub(super) fn nearest_location(&self, path: &SettingPath) -> String {
        self.enclosing_position(path).in_file(&self.file)
    }

    /// Returns the location of the setting at `path`. `None` if it is not set.
    pub fn position(&self, path: &SettingPath) -> Option<&SourceLocation> {
        self.locations.get(path)
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
