//! Selects the configuration file that a command reads.

use clap::Args;
use std::fmt;
use std::path::PathBuf;

/// Default paths, in order of precedence.
const DEFAULT_PATHS: [&str; 2] = ["tidegate.yaml", "config/tidegate.yaml"];

/// The option `--config`.
#[derive(Clone, Debug, Default, Args)]
pub struct ConfigArg {
    /// Configuration file (default: ./tidegate.yaml, or else config/tidegate.yaml).
    #[arg(long, value_name = "FILE", global = true)]
    pub(super) config: Option<PathBuf>,
}

/// Error for a missing configuration file: no option names one, and no default path exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConfigNotFoundError;

impl ConfigArg {
    /// Returns the path of the file. A named file is not checked for existence.
    pub(super) fn path(&self) -> Result<PathBuf, ConfigNotFoundError> {
        let default_path = || DEFAULT_PATHS.iter().map(PathBuf::from).find(|path| path.exists());
        self.config.clone().or_else(default_path).ok_or(ConfigNotFoundError)
    }
}

impl fmt::Display for ConfigNotFoundError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "no configuration file: found neither {}; set one", DEFAULT_PATHS.join(" nor "))
    }
}
