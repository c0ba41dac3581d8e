//! Errors of opening a ledger, with hints. None of them overwrites or loses data.

use crate::ledger::file::record_file::{RecordFileError, VERSION};
use crate::state_lock::StateLockError;
use std::io;
use std::path::{Path, PathBuf};

/// Reason why a ledger cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory is missing and cannot be created, or it is not writable.
    #[error("cannot use state directory {}: {source}; make it writable for the gateway alone and free space, or set another state_dir", path.display())]
    Directory {
        /// Path of the directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Another instance has locked the directory.
    #[error("state directory {} is locked by another instance; stop it, or set another state_dir", .0.display())]
    Locked(PathBuf),
    /// The file cannot be read.
    #[error("cannot read {}: {source}; make it readable, or set another state_dir", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file cannot be written, for lack of permission or space.
    #[error("cannot write {}: {source}; make it writable and free space, or set another state_dir", path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file is not a ledger.
    #[error("{}: not a Tidegate ledger file; move it, or set another state_dir", .0.display())]
    UnknownFormat(PathBuf),
    /// The file was written by a later version.
    #[error("{}: unsupported ledger version {version} (this build supports up to {VERSION}); run the build that wrote it, or move it to start a new count", path.display())]
    UnsupportedVersion {
        /// Path of the file.
        path: PathBuf,
        /// Version of its format.
        version: u32,
    },
    /// The file is damaged.
    #[error("{}: damaged ledger file: {reason}; move it to start a new count, then set the usage with `tidegate quota set NAME USED`", path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Kind of damage.
        reason: &'static str,
    },
}

impl OpenError {
    /// Returns the error of a state directory that cannot be locked.
    pub fn from_lock_error(error: StateLockError, dir: &Path) -> Self {
        match error {
            StateLockError::Locked => Self::Locked(dir.to_owned()),
            StateLockError::Other(source) => Self::Directory { path: dir.to_owned(), source },
        }
    }

    pub(in crate::ledger) fn from_record_error(error: RecordFileError, path: &Path) -> Self {
        let path = path.to_owned();
        match error {
            RecordFileError::UnknownFormat => Self::UnknownFormat(path),
            RecordFileError::UnsupportedVersion(version) => Self::UnsupportedVersion { path, version },
            RecordFileError::Damaged(reason) => Self::Damaged { path, reason },
        }
    }
}
