//! A robots.txt of the operator's own.

use super::MAX_ROBOTS_BYTES;
use crate::bounded_file::{self, EmptyFileDebounce};
use bytes::Bytes;
use std::io;
use std::path::Path;
use tracing::warn;

/// The file, as it is looked at again and again.
#[derive(Debug, Default)]
pub struct OverrideFile {
    emptied: EmptyFileDebounce,
    /// It cannot be read, and that has been told.
    warned: bool,
}

impl OverrideFile {
    /// Looks at the file; `None` where what is `served` until now still is, because there is nothing better.
    pub fn reload_if_changed(&mut self, file: &Path, served: Option<&Bytes>) -> Option<Bytes> {
        let text = match read(file) {
            Ok(text) => text,
            Err(error) => {
                if !std::mem::replace(&mut self.warned, true) {
                    let file = file.display();
                    warn!(%error, "Cannot read {file}: {error}; what was served as robots.txt until now still is");
                }
                return None;
            }
        };
        self.warned = false;
        self.emptied.accept(served.is_some_and(is_non_empty), is_non_empty(&text)).then_some(text)
    }
}

/// Reads it, if it is not too large.
pub fn read(file: &Path) -> io::Result<Bytes> {
    bounded_file::read(file, MAX_ROBOTS_BYTES).map(Bytes::from)
}

fn is_non_empty(text: &Bytes) -> bool {
    !text.trim_ascii().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_empty_for_a_moment_is_served_as_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("robots.txt");
        let write = |text: &str| std::fs::write(&file, text).expect("it can be written");
        let mut own = OverrideFile::default();
        assert_eq!(own.reload_if_changed(&file, None), None, "it is not there");
        write("");
        assert_eq!(own.reload_if_changed(&file, None), Some(Bytes::new()), "it was never anything else");
        write("Allow: /\n");
        let served = own.reload_if_changed(&file, Some(&Bytes::new())).expect("there is something in it");
        for nothing in ["", " \n"] {
            write(nothing);
            assert_eq!(own.reload_if_changed(&file, Some(&served)), None, "{nothing:?}");
            write("Allow: /\n");
            assert_eq!(own.reload_if_changed(&file, Some(&served)).as_ref(), Some(&served));
        }
        write("");
        assert_eq!(own.reload_if_changed(&file, Some(&served)), None);
        assert_eq!(own.reload_if_changed(&file, Some(&served)), Some(Bytes::new()), "it stays empty");
    }
}
