//! File in the state directory with what was said, so that a restart says nothing twice.
//!
//! If it is unreadable, a warning is logged, and events that last are said again.

use crate::watch::WatchState;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use tidegate_engine::state_file::{StateFile, StateFileError, check_version};

/// Version of the file format.
const VERSION: u32 = 1;
/// More than the entries that a watch remembers.
const MAX_FILE_BYTES: usize = 8 << 20;

/// Stores the state of a [`Watch`](crate::Watch) in a file.
#[derive(Debug)]
pub struct WatchStore(StateFile);

#[derive(Serialize, Deserialize)]
struct WatchFile<T> {
    version: u32,
    state: T,
}

impl WatchStore {
    /// Returns the store in `state_dir`. The file need not exist.
    pub fn new(state_dir: &Path) -> Self {
        Self(StateFile::new(state_dir, "notifications.json", MAX_FILE_BYTES))
    }

    /// Returns the stored state, or an empty one if there is no file. A file that cannot be read is set aside.
    pub fn restore(&self) -> Result<WatchState, StateFileError> {
        self.0.restore(parse).map(Option::unwrap_or_default)
    }

    /// Writes `state`.
    pub fn save(&self, state: &WatchState) -> io::Result<()> {
        self.0.save(&WatchFile { version: VERSION, state })
    }
}

fn parse(bytes: &[u8]) -> Result<WatchState, String> {
    let file: WatchFile<WatchState> = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    check_version(file.version, VERSION..=VERSION)?;
    Ok(file.state)
}
