//! File operations that the file ledger needs, as a trait. Tests replace it with a directory that fails or loses power.

use crate::files;
use crate::state_lock::{StateLock, StateLockError};
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Flags that let the opening of a symbolic link fail, and no opening wait.
const NO_LINK: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();

/// A directory of files that are written in place.
pub(in crate::ledger) trait StateDir: Send + 'static {
    /// Returns the content of a file, or `None` if it does not exist.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;
    /// Replaces a file durably. After a power cut, either the old or the new content is complete.
    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Writes into an existing file. A kill of the process does not undo the write; a power cut may, until it is
    /// synced.
    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Syncs a file to the disk.
    fn sync(&mut self, name: &str) -> io::Result<()>;
    /// Returns the path of a file, for messages.
    fn path(&self, name: &str) -> PathBuf;
}

/// A directory with an exclusive lock for this process.
pub(in crate::ledger) struct LockedDir {
    dir: PathBuf,
    open: Vec<(String, File)>,
    _lock: StateLock,
}

impl LockedDir {
    /// Creates the directory if it is missing, accessible by the current user only, and locks it.
    pub(in crate::ledger) fn lock(dir: &Path) -> Result<Self, StateLockError> {
        Ok(Self { dir: dir.to_owned(), open: Vec::new(), _lock: StateLock::exclusive(dir)? })
    }

    fn file(&mut self, name: &str) -> io::Result<&File> {
        if let Some(index) = self.open.iter().position(|(open, _)| open == name) {
            return Ok(&self.open[index].1);
        }
        let file = OpenOptions::new().read(true).write(true).custom_flags(NO_LINK).open(self.dir.join(name));
        let file = file.and_then(files::regular)?;
        self.open.push((name.to_owned(), file));
        Ok(&self.open[self.open.len() - 1].1)
    }
}

impl StateDir for LockedDir {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        let file = OpenOptions::new().read(true).custom_flags(NO_LINK).open(self.dir.join(name));
        match file.and_then(files::regular).and_then(|mut file| file.read_to_end(&mut bytes)) {
            Ok(_) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.open.retain(|(open, _)| open != name);
        files::replace(&self.dir.join(name), bytes)
    }

    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file(name)?.write_all_at(bytes, offset)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.file(name)?.sync_data()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_directory_has_one_owner_and_keeps_what_is_written() {
        let temporary = tempfile::tempdir().expect("temporary directory");
        let mut dir = LockedDir::lock(temporary.path()).expect("the directory is free");
        let read = |dir: &LockedDir, name: &str| dir.read(name).expect("readable");
        assert_eq!(read(&dir, "a"), None);
        assert!(dir.write_at("a", 0, b"x").is_err() && dir.sync("a").is_err(), "the file does not exist");

        dir.replace("a", b"0123").expect("writable");
        dir.replace("b", b"4567").expect("writable");
        dir.write_at("a", 1, b"ab").expect("writable");
        dir.write_at("b", 3, b"c").expect("writable");
        dir.write_at("a", 0, b"d").expect("writable");
        dir.sync("a").expect("synced");
        assert_eq!((read(&dir, "a"), read(&dir, "b")), (Some(b"dab3".to_vec()), Some(b"456c".to_vec())));

        dir.replace("a", b"new").expect("writable");
        dir.write_at("a", 2, b"t").expect("writable");
        assert_eq!((read(&dir, "a"), read(&dir, "b")), (Some(b"net".to_vec()), Some(b"456c".to_vec())));

        std::os::unix::fs::symlink(dir.path("a"), dir.path("link")).expect("writable");
        assert!(dir.read("link").is_err() && dir.write_at("link", 0, b"x").is_err(), "links are not followed");

        assert_eq!(dir.path("a"), temporary.path().join("a"));
        std::fs::create_dir(dir.path("directory")).expect("writable");
        assert!(dir.read("directory").is_err(), "not a missing file");
        files::make_fifo(&dir.path("fifo"));
        assert!(dir.read("fifo").is_err() && dir.write_at("fifo", 0, b"x").is_err(), "no opening waits");
        assert!(matches!(LockedDir::lock(temporary.path()), Err(StateLockError::Locked)));
        drop(dir);
        assert!(LockedDir::lock(temporary.path()).is_ok());
    }
}
