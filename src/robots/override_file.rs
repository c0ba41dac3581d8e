//! The administrator's robots.txt file, which replaces the origin's (`robots.override_file`).

use super::MAX_ROBOTS_BYTES;
use crate::files::{self, EmptyFileDebounce};
use bytes::Bytes;
use std::io;
use std::path::Path;
use tracing::warn;

/// State of the override file between reloads.
#[derive(Debug, Default)]
pub struct OverrideFile {
    debounce: EmptyFileDebounce,
    /// True after a warning that the file cannot be read.
    warned: bool,
}

impl OverrideFile {
    /// Reads the file. Returns `None` if the text `served` so far stays: the file cannot be read, or may be empty only
    /// for a moment.
    pub fn reload_if_changed(&mut self, file: &Path, served: Option<&Bytes>) -> Option<Bytes> {
        let text = match read(file) {
            Ok(text) => text,
            Err(error) => {
                if !std::mem::replace(&mut self.warned, true) {
                    let file = file.display();
                    warn!(%error, "Cannot read {file}: {error}; keeping the previous robots.txt");
                }
                return None;
            }
        };
        self.warned = false;
        self.debounce.accept(served.is_some_and(is_non_empty), is_non_empty(&text)).then_some(text)
    }
}

/// Reads the file; returns an error if it is too large.
pub fn read(file: &Path) -> io::Result<Bytes> {
    files::read(file, MAX_ROBOTS_BYTES).map(Bytes::from)
}

fn is_non_empty(text: &Bytes) -> bool {
    !text.trim_ascii().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn briefly_empty_override_file_keeps_the_previous_text() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("robots.txt");
        let write = |text: &str| std::fs::write(&file, text).expect("the file is writable");
        let mut override_file = OverrideFile::default();
        assert_eq!(override_file.reload_if_changed(&file, None), None, "the file is missing");
        write("");
        assert_eq!(
            override_file.reload_if_changed(&file, None),
            Some(Bytes::new()),
            "an empty file is served if there was no other"
        );
        write("Allow: /\n");
        let served = override_file.reload_if_changed(&file, Some(&Bytes::new())).expect("the file has changed");
        for empty in ["", " \n"] {
            write(empty);
            assert_eq!(override_file.reload_if_changed(&file, Some(&served)), None, "{empty:?}");
            write("Allow: /\n");
            assert_eq!(override_file.reload_if_changed(&file, Some(&served)).as_ref(), Some(&served));
        }
        write("");
        assert_eq!(override_file.reload_if_changed(&file, Some(&served)), None);
        assert_eq!(
            override_file.reload_if_changed(&file, Some(&served)),
            Some(Bytes::new()),
            "an empty file is served on the second reading"
        );
    }
}
