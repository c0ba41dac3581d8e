//! Where each setting was written, for whoever wants to point at it.

use super::error::SourceLocation;
use super::node::Places;
use std::fmt;
use std::path::{Path, PathBuf};

/// The place of every key and value of one file and of what was put over it.
#[derive(Clone, Default)]
pub struct SourceMap {
    file: PathBuf,
    places: Places,
}

impl SourceMap {
    pub(super) fn new(file: &Path, places: Places) -> Self {
        Self { file: file.to_owned(), places }
    }

    /// Where the setting at `path` was written: `FILE:LINE:COL`, or the name of a variable or an option. `None` where nobody
    /// wrote it, and its default holds.
    pub fn location(&self, path: &str) -> Option<String> {
        self.places.get(path).map(|place| place.in_file(&self.file))
    }

    /// Where `path` was written, or else what is around it, as messages name it.
    pub(super) fn nearest_location(&self, path: &str) -> String {
        self.enclosing_position(path).in_file(&self.file)
    }

    /// The same, for whoever wants to write there.
    pub fn position(&self, path: &str) -> Option<&SourceLocation> {
        self.places.get(path)
    }

    /// Where `path` stands, or else what is around it.
    pub(super) fn enclosing_position(&self, path: &str) -> SourceLocation {
        let mut path = path;
        loop {
            if let Some(place) = self.places.get(path) {
                return place.clone();
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return SourceLocation::START,
            }
        }
    }
}

/// Two files that mean the same are shown alike, wherever they say it.
impl fmt::Debug for SourceMap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Written").finish_non_exhaustive()
    }
}
