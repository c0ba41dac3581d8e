//! File in the state directory with what was said, so that a restart says nothing twice.
//!
//! If it is unreadable, a warning is logged, and events that last are said again.

use crate::watch::WatchState;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use tidegate_engine::files;

/// Version of the file format.
const VERSION: u32 = 1;
/// More than the entries that a watch remembers.
const MAX_FILE_BYTES: usize = 8 << 20;

/// Stores the state of a [`Watch`](crate::Watch) in a file.
#[derive(Debug)]
pub struct WatchStore {
    path: PathBuf,
    /// The state that the file has, if known.
    saved: Option<WatchState>,
}

#[derive(Serialize, Deserialize)]
struct WatchFile<T> {
    version: u32,
    state: T,
}

impl WatchStore {
    /// Returns the store in `state_dir`. The file need not exist.
    pub fn new(state_dir: &Path) -> Self {
        Self { path: state_dir.join("notifications.json"), saved: None }
    }

    /// Returns the stored state, or an empty one if there is no file. A file that cannot be read is set aside: it may be of a
    /// later version. The error is its reason.
    pub fn read(&mut self) -> Result<WatchState, String> {
        let located = |reason: &str| format!("{}: {reason}", self.path.display());
        let bytes = files::read_if_exists(&self.path, MAX_FILE_BYTES).map_err(|error| located(&error.to_string()))?;
        let Some(bytes) = bytes else { return Ok(WatchState::default()) };
        let state = parse(&bytes).map_err(|reason| located(&files::set_aside_for(&self.path, &reason)))?;
        self.saved = Some(state.clone());
        Ok(state)
    }

    /// Writes `state` if it differs from that of the file, which is replaced atomically.
    pub fn save(&mut self, state: &WatchState) -> io::Result<()> {
        if self.saved.as_ref() == Some(state) {
            return Ok(());
        }
        if let Some(dir) = self.path.parent() {
            files::create_dir(dir)?;
        }
        files::replace(&self.path, &serde_json::to_vec(&WatchFile { version: VERSION, state })?)?;
        self.saved = Some(state.clone());
        Ok(())
    }
}

fn parse(bytes: &[u8]) -> Result<WatchState, String> {
    let file: WatchFile<WatchState> = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    match file.version {
        VERSION => Ok(file.state),
        other => Err(format!("version {other} is not {VERSION}")),
    }
}
