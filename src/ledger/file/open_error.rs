//! Why a ledger cannot be opened, and what would do. Nothing is overwritten and nothing is lost by any of them.

use crate::ledger::file::record_file::{RecordFileError, VERSION};
use std::io;
use std::path::{Path, PathBuf};

/// Why a ledger cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such directory, and it cannot be made or written into.
    #[error("cannot use the state directory {}: {source}; make it writable, or name another with state_dir", folder.display())]
    Folder {
        /// The directory.
        folder: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Another gate has it.
    #[error("another gate is running on the state directory {}; stop it, or give this one a state_dir of its own", .0.display())]
    Locked(PathBuf),
    /// It cannot be read.
    #[error("cannot read {}: {source}; make it readable, or name another directory with state_dir", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It cannot be written: no rights, or no space.
    #[error("cannot write {}: {source}; make room and let it be written, or name another directory with state_dir", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is not a ledger of Tidegate; move it away, or name another directory with state_dir", .0.display())]
    Foreign(PathBuf),
    /// A later version has written it.
    #[error("{} has format {found}, and this version knows up to {VERSION}; run the version that wrote it, or move the file away and begin to count anew", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// It cannot be made sense of.
    #[error("{} is damaged: {what}; move it away: the count then begins anew; say what is really used with `tidegate quota set NAME USED`", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
}

impl OpenError {
    pub(in crate::ledger) fn of(fault: RecordFileError, path: &Path) -> Self {
        let path = path.to_owned();
        match fault {
            RecordFileError::Foreign => Self::Foreign(path),
            RecordFileError::Newer(found) => Self::Newer { path, found },
            RecordFileError::Damaged(what) => Self::Damaged { path, what },
        }
    }
}
