//! The few things that the file ledger wants of a disk, so that tests can put one that fails, or loses power, in its
//! place.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A folder of files that are written in place.
pub(in crate::ledger) trait StateDir: Send + 'static {
    /// The whole of a file, if there is one.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;
    /// Puts a file of these bytes in the place of what has that name, durably: either is there whole after a power cut.
    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Writes into a file that is there. A kill of the process does not undo it; a power cut may, until it is synced.
    fn write_at(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes what was written into a file durable.
    fn sync(&mut self, name: &str) -> io::Result<()>;
    /// Its path, for people.
    fn path(&self, name: &str) -> PathBuf;
}

/// A folder on a disk, locked for this process.
pub(in crate::ledger) struct LockedDir {
    folder: PathBuf,
    open: Vec<(String, File)>,
    /// Held for as long as this lives.
    _lock: File,
}

/// Why a folder cannot be had.
#[derive(Debug)]
pub(in crate::ledger) enum DirError {
    Locked,
    Other(io::Error),
}

impl LockedDir {
    /// Creates the folder where it is missing, for this user alone, and locks it.
    pub(in crate::ledger) fn lock(folder: &Path) -> Result<Self, DirError> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(DirError::Other)?;
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(folder.join("lock"));
        let lock = lock.map_err(DirError::Other)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { folder: folder.to_owned(), open: Vec::new(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(DirError::Locked),
            Err(TryLockError::Error(error)) => Err(DirError::Other(error)),
        }
    }

    fn file(&mut self, name: &str) -> io::Result<&File> {
        if let Some(place) = self.open.iter().position(|(open, _)| open == name) {
            return Ok(&self.open[place].1);
        }
        let file = OpenOptions::new().read(true).write(true).open(self.folder.join(name))?;
        self.open.push((name.to_owned(), file));
        Ok(&self.open[self.open.len() - 1].1)
    }
}

impl StateDir for LockedDir {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        match File::open(self.folder.join(name)).and_then(|mut file| file.read_to_end(&mut bytes)) {
            Ok(_) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = self.folder.join(format!("{name}.new"));
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        if let Err(error) = written {
            let _ = fs::remove_file(&new);
            return Err(error);
        }
        self.open.retain(|(open, _)| open != name);
        fs::rename(&new, self.folder.join(name))?;
        File::open(&self.folder)?.sync_all()
    }

    fn write_at(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file(name)?.write_all_at(bytes, at)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.file(name)?.sync_data()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}
