//! A file in the state directory that is read and replaced as a whole: JSON with the version of its form.

use crate::files;
use parking_lot::Mutex;
use serde::Serialize;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// A file in the state directory. It need not exist.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    max_bytes: usize,
    /// Content of the file, if known: the last content restored or written.
    content: Mutex<Vec<u8>>,
}

/// Error: a file in the state directory cannot be read, in whole or in part.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct StateFileError {
    path: PathBuf,
    reason: String,
}

impl StateFile {
    /// Returns the file `name` in `state_dir`, which is read up to `max_bytes`.
    pub fn new(state_dir: &Path, name: &str, max_bytes: usize) -> Self {
        Self { path: state_dir.join(name), max_bytes, content: Mutex::default() }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what `parse` makes of the content, or `None` if there is no file. A file that cannot be parsed is set aside: it may
    /// be of a later version.
    pub fn restore<T>(&self, parse: impl FnOnce(&[u8]) -> Result<T, String>) -> Result<Option<T>, StateFileError> {
        self.read_with(parse, |reason| files::set_aside_for(&self.path, &reason))
    }

    /// Like [`Self::restore`], and leaves the file where it is.
    pub fn read<T>(&self, parse: impl FnOnce(&[u8]) -> Result<T, String>) -> Result<Option<T>, StateFileError> {
        self.read_with(parse, |reason| reason)
    }

    fn read_with<T>(
        &self,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
        on_invalid: impl FnOnce(String) -> String,
    ) -> Result<Option<T>, StateFileError> {
        let unreadable = |reason: String| StateFileError { path: self.path.clone(), reason };
        let bytes = files::read_if_exists(&self.path, self.max_bytes).map_err(|error| unreadable(error.to_string()))?;
        let Some(bytes) = bytes else { return Ok(None) };
        let parsed = parse(&bytes).map_err(|reason| unreadable(on_invalid(reason)))?;
        *self.content.lock() = bytes;
        Ok(Some(parsed))
    }

    /// Writes `value` if the file does not have it already. The file is replaced atomically.
    pub fn save(&self, value: &impl Serialize) -> io::Result<()> {
        let bytes = serde_json::to_vec(value)?;
        let mut content = self.content.lock();
        if *content == bytes {
            return Ok(());
        }
        if let Some(dir) = self.path.parent() {
            files::create_dir(dir)?;
        }
        files::replace(&self.path, &bytes)?;
        *content = bytes;
        Ok(())
    }
}

/// Returns an error unless the `version` of a file is one of those that this build supports.
pub fn check_version(version: u32, supported: RangeInclusive<u32>) -> Result<(), String> {
    let (first, last) = supported.clone().into_inner();
    match (supported.contains(&version), first == last) {
        (true, _) => Ok(()),
        (false, true) => Err(format!("unsupported version {version} (this build supports {last})")),
        (false, false) => Err(format!("unsupported version {version} (this build supports {first} to {last})")),
    }
}
