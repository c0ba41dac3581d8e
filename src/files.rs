//! Files that the administrator or the gateway replaces while the gateway runs: bounded reads and durable writes.

use std::fs::{self, DirBuilder, File, OpenOptions, metadata};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
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

/// Creates a directory that only the current user may access, unless it exists.
pub fn create_dir(dir: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Replaces a file durably, readable by the current user only. After a power cut, either the old or the new content is
/// complete.
pub fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = Path::new(&draft);
    let replaced = write_synced(draft, content).and_then(|()| fs::rename(draft, path));
    if let Err(error) = replaced {
        let _ = fs::remove_file(draft);
        return Err(error);
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}

fn write_synced(path: &Path, content: &[u8]) -> Result<()> {
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
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
    use std::os::unix::fs::MetadataExt;

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
    fn replaced_file_is_private_and_leaves_no_draft() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("state/demand.json");
        assert_eq!(replace(&path, b"one").expect_err("no directory").kind(), ErrorKind::NotFound);
        create_dir(&dir.path().join("state")).expect("create directory");
        for content in ["one", "two"] {
            replace(&path, content.as_bytes()).expect("replace file");
            assert_eq!(fs::read_to_string(&path).expect("read file"), content);
        }
        let mode = |path: &Path| metadata(path).expect("metadata").mode() & 0o777;
        assert_eq!((mode(&path), mode(&dir.path().join("state"))), (0o600, 0o700));

        let occupied = dir.path().join("state/occupied");
        fs::create_dir(&occupied).expect("create directory");
        assert!(replace(&occupied, b"one").is_err(), "a directory cannot be replaced by a file");
        assert_eq!(fs::read_dir(dir.path().join("state")).expect("read directory").count(), 2, "no draft");
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
