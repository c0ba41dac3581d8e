//! Source map: the location of each setting.

use super::error::SourceLocation;
use super::node::LocationMap;
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
    pub fn location(&self, path: &str) -> Option<String> {
        self.locations.get(path).map(|location| location.in_file(&self.file))
    }

    /// Returns the location of `path`, or of its nearest parent, as text for messages.
    pub(super) fn nearest_location(&self, path: &str) -> String {
        self.enclosing_position(path).in_file(&self.file)
    }

    /// Returns the location of the setting at `path`. `None` if it is not set.
    pub fn position(&self, path: &str) -> Option<&SourceLocation> {
        self.locations.get(path)
    }

    /// Returns the location of `path`, or of its nearest parent.
    pub(super) fn enclosing_position(&self, path: &str) -> SourceLocation {
        let mut path = path;
        loop {
            if let Some(location) = self.locations.get(path) {
                return location.clone();
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return SourceLocation::START,
            }
        }
    }
}

/// Omits the locations, so that equal settings of different files have equal output.
impl fmt::Debug for SourceMap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SourceMap").finish_non_exhaustive()
    }
}
