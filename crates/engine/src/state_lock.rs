//! Lock of a state directory: a gateway holds it while it runs, so that no other process replaces its files.

use crate::files::{self, NO_LINK};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Lock of a state directory, held until it is dropped.
#[derive(Debug)]
pub struct StateLock {
    _file: File,
}

/// Reason why a directory cannot be locked.
#[derive(Debug)]
pub enum StateLockError {
    /// Another process holds the lock.
    Locked,
    /// The directory or its lock file cannot be used.
    Other(io::Error),
}

impl StateLock {
    /// Locks `dir` for this process alone. Creates it if it is missing, accessible by the current user only.
    pub fn exclusive(dir: &Path) -> Result<Self, StateLockError> {
        Self::lock(dir, File::try_lock)
    }

    /// Locks `dir` against an exclusive lock. Creates it as [`exclusive`](Self::exclusive) does.
    pub fn shared(dir: &Path) -> Result<Self, StateLockError> {
        Self::lock(dir, File::try_lock_shared)
    }

    fn lock(dir: &Path, try_lock: impl FnOnce(&File) -> Result<(), TryLockError>) -> Result<Self, StateLockError> {
        files::create_dir(dir).map_err(StateLockError::Other)?;
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(NO_LINK)
            .open(dir.join("lock"));
        let file = file.and_then(files::regular).map_err(StateLockError::Other)?;
        match try_lock(&file) {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(StateLockError::Locked),
            Err(TryLockError::Error(error)) => Err(StateLockError::Other(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exclusive_lock_excludes_all_others() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let state = dir.path().join("state");
        let is_locked = |lock: Result<StateLock, StateLockError>| matches!(lock, Err(StateLockError::Locked));
        let alone = StateLock::exclusive(&state).expect("the directory is free");
        assert!(is_locked(StateLock::exclusive(&state)) && is_locked(StateLock::shared(&state)));
        drop(alone);
        let (first, second) = (StateLock::shared(&state), StateLock::shared(&state));
        assert!(first.is_ok() && second.is_ok() && is_locked(StateLock::exclusive(&state)));
        drop((first, second));
        assert!(StateLock::exclusive(&state).is_ok());
        let file = dir.path().join("file");
        std::fs::write(&file, "").expect("writable");
        assert!(matches!(StateLock::shared(&file), Err(StateLockError::Other(_))));
        std::fs::remove_file(state.join("lock")).expect("writable");
        files::make_fifo(&state.join("lock"));
        assert!(matches!(StateLock::shared(&state), Err(StateLockError::Other(_))), "no opening waits");
    }
}
