//! The administrator's robots.txt file, which replaces the origin's (`robots.override_file`).

use super::MAX_ROBOTS_BYTES;
use bytes::Bytes;
use std::io;
use std::path::Path;
use tidegate_engine::files::{self, FileWatch};
use tracing::warn;

/// The override file, watched for changes.
#[derive(Debug, Default)]
pub struct OverrideFile(Option<FileWatch>);

impl OverrideFile {
    /// Reads the file. Returns `None` if the text returned last stays: the file has not changed, cannot be read, or may
    /// be empty only for a moment.
    pub fn reload_if_changed(&mut self, file: &Path) -> Option<Bytes> {
        let watch = match &mut self.0 {
            Some(watch) if watch.path() == file => watch,
            other => other.insert(FileWatch::new(file, MAX_ROBOTS_BYTES)),
        };
        match watch.read_if_changed()? {
            Ok(text) => Some(text.into()),
            Err(error) => {
                let file = file.display();
                warn!(%error, "Cannot read {file}: {error}; keeping the previous robots.txt");
                None
            }
        }
    }
}

/// Reads the file; returns an error if it is too large.
pub fn read(file: &Path) -> io::Result<Bytes> {
    files::read(file, MAX_ROBOTS_BYTES).map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn briefly_empty_override_file_keeps_the_previous_text() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("robots.txt");
        let mut override_file = OverrideFile::default();
        assert_eq!(override_file.reload_if_changed(&file), None, "the file is missing");
        let mut reload = |text: &str| {
            std::fs::write(&file, text).expect("the file is writable");
            override_file.reload_if_changed(&file)
        };
        assert_eq!(reload(""), Some(Bytes::new()), "an empty file is served if there was no other");
        assert_eq!(reload("Allow: /\n"), Some(Bytes::from_static(b"Allow: /\n")));
        for empty in ["", " \n"] {
            assert_eq!(reload(empty), None, "{empty:?}");
            assert_eq!(reload("Allow: /\n"), None, "unchanged file");
        }
        assert_eq!(reload(""), None);
        assert_eq!(reload(""), Some(Bytes::new()), "an empty file is served on the second reading");
        let other = directory.path().join("other.txt");
        std::fs::write(&other, "Allow: /\n").expect("the file is writable");
        assert!(override_file.reload_if_changed(&other).is_some(), "another file is read at once");
    }
}
