//! Reads files that the administrator configures and may replace while the gateway runs.

use std::fs::{File, metadata};
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Reads a regular file of at most `max_bytes`. Other file types are refused: reading them may block or never end.
pub fn read(path: &Path, max_bytes: usize) -> Result<Vec<u8>> {
    if !metadata(path).map_err(|error| with_resolved_path(path, error))?.is_file() {
        return Err(Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    // The file may grow while it is read.
    File::open(path)?.take(max_bytes as u64 + 1).read_to_end(&mut bytes)?;
    match bytes.len() > max_bytes {
        true => Err(Error::new(ErrorKind::FileTooLarge, format!("larger than {} KiB", max_bytes / 1024))),
        false => Ok(bytes),
    }
}

/// Adds the absolute path to `error` if `path` is relative to the working directory.
fn with_resolved_path(path: &Path, error: Error) -> Error {
    match std::path::absolute(path) {
        Ok(absolute) if path.is_relative() => {
            Error::new(error.kind(), format!("{error}, resolved to {}", absolute.display()))
        }
        _ => error,
    }
}

/// Debounce for empty files: `>` and many editors truncate a file before they write it.
#[derive(Debug, Default)]
pub struct EmptyFileDebounce(bool);

impl EmptyFileDebounce {
    /// Returns true if the result of this read is accepted. `was_nonempty` and `is_nonempty`: whether the content
    /// before and now is non-empty. A file that became empty is accepted only if the previous read found it empty, too.
    pub fn accept(&mut self, was_nonempty: bool, is_nonempty: bool) -> bool {
        let emptied = was_nonempty && !is_nonempty;
        let was_emptied = std::mem::replace(&mut self.0, emptied);
        !emptied || was_emptied
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emptied_file_counts_at_the_second_read() {
        let mut debounce = EmptyFileDebounce::default();
        for (was_nonempty, is_nonempty, accepted) in [
            (false, false, true),
            (false, true, true),
            (true, false, false),
            (true, true, true),
            (true, false, false),
            (true, false, true),
            (false, false, true),
        ] {
            assert_eq!(debounce.accept(was_nonempty, is_nonempty), accepted, "{was_nonempty} {is_nonempty}");
        }
    }

    #[test]
    fn special_and_oversized_files_are_not_read() {
        let read_error = |path: &Path| read(path, 2048).expect_err("an unreadable file").to_string();
        assert_eq!(read_error(Path::new("/dev/zero")), "not a regular file");
        let absolute = std::env::current_dir().expect("working directory").join("no/such.txt");
        assert!(read_error(Path::new("no/such.txt")).ends_with(&format!(", resolved to {}", absolute.display())));
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("list.txt");
        for (length, is_read) in [(2048, true), (2049, false)] {
            File::create(&path).and_then(|file| file.set_len(length)).expect("sparse file");
            assert_eq!(read(&path, 2048).is_ok(), is_read, "{length}");
        }
        assert_eq!(read_error(&path), "larger than 2 KiB");
    }
}
