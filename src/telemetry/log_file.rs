//! The file of the access log, and its rotation by size.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tidegate_config::settings::LogRotation;
use tracing::warn;

/// A log file. Only whole lines stand before a rotation.
pub(super) struct LogFile {
    path: PathBuf,
    rotation: Option<LogRotation>,
    file: File,
    length: u64,
    is_at_line_start: bool,
    is_failing: bool,
}

impl LogFile {
    /// Opens the file for appending. Creates it and its directories if missing, readable by owner and group.
    pub(super) fn open(path: &Path, rotation: Option<LogRotation>) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o750).create(directory)?;
        }
        let file = OpenOptions::new().append(true).create(true).mode(0o640).open(path)?;
        let length = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), rotation, file, length, is_at_line_start: true, is_failing: false })
    }

    /// Begins a new file if this one would exceed its size. If that fails, goes on in this one, and warns once.
    fn rotate_if_full(&mut self, added: usize) {
        let Some(LogRotation { max_size, keep }) = self.rotation else { return };
        if !self.is_at_line_start || self.length == 0 || self.length.saturating_add(added as u64) <= max_size {
            return;
        }
        match self.rotate(keep) {
            Ok(next) => *self = next,
            Err(error) if !self.is_failing => {
                self.is_failing = true;
                warn!(%error, "Access log cannot be rotated, going on in the same file: {error}");
            }
            Err(_) => {}
        }
    }

    /// Renames the file to `PATH.1`, that one to `PATH.2`, up to `keep` files. Returns the new file.
    fn rotate(&self, keep: u32) -> io::Result<Self> {
        for number in (1..keep).rev() {
            rename_if_exists(&self.numbered(number), &self.numbered(number + 1))?;
        }
        rename_if_exists(&self.path, &self.numbered(1))?;
        Self::open(&self.path, self.rotation)
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut path = self.path.as_os_str().to_owned();
        path.push(format!(".{number}"));
        path.into()
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.rotate_if_full(bytes.len());
        let written = self.file.write(bytes)?;
        self.length += written as u64;
        if let Some(last) = written.checked_sub(1) {
            self.is_at_line_start = bytes[last] == b'\n';
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn rename_if_exists(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_file_is_renamed_between_lines() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("access.log");
        fs::write(&path, "0 before the start\n").expect("a log");
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap_or_default();
        let mut log = LogFile::open(&path, Some(LogRotation { max_size: 30, keep: 2 })).expect("the log opens");
        for line in ["1 fits\n", "2 exceeds", " the size\n", "3 the next one\n", "4 is last but one\n", "5 is last\n"] {
            log.write_all(line.as_bytes()).expect("written");
        }
        assert_eq!(read("access.log"), "4 is last but one\n5 is last\n");
        assert_eq!(read("access.log.1"), "3 the next one\n");
        assert_eq!(read("access.log.2"), "2 exceeds the size\n");
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 3, "the oldest lines are removed");
    }

    #[test]
    fn file_that_cannot_be_renamed_goes_on() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("access.log");
        let mut log = LogFile::open(&path, Some(LogRotation { max_size: 10, keep: 1 })).expect("the log opens");
        fs::create_dir_all(dir.path().join("access.log.1/occupied")).expect("a directory");
        for line in ["1 line\n", "2 lines\n", "3 lines\n"] {
            log.write_all(line.as_bytes()).expect("written");
        }
        assert_eq!(fs::read_to_string(&path).expect("the log"), "1 line\n2 lines\n3 lines\n");
        fs::remove_dir_all(dir.path().join("access.log.1")).expect("removed");
        log.write_all(b"4 lines\n").expect("written");
        assert_eq!(fs::read_to_string(&path).expect("the log"), "4 lines\n");
    }
}
