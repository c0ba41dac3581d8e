//! Which YAML file a command reads.

use clap::Args;
use std::fmt;
use std::path::PathBuf;

/// Looked for in this order, where none is named.
const DEFAULT_PATHS: [&str; 2] = ["tidegate.yaml", "config/tidegate.yaml"];

/// The file that is named, if one is.
#[derive(Clone, Debug, Default, Args)]
pub struct ConfigArg {
    /// The YAML file; where none is named, ./tidegate.yaml, or else config/tidegate.yaml.
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
}

/// No file is named, and none is where it is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConfigNotFound;

impl ConfigArg {
    /// The file that is meant; one that is named need not be there.
    pub(super) fn path(&self) -> Result<PathBuf, ConfigNotFound> {
        path_or_default(self.config.as_ref())
    }
}

/// The same of a file that is named in another way.
pub(super) fn path_or_default(named: Option<&PathBuf>) -> Result<PathBuf, ConfigNotFound> {
    let usual = || DEFAULT_PATHS.iter().map(PathBuf::from).find(|path| path.exists());
    named.cloned().or_else(usual).ok_or(ConfigNotFound)
}

impl fmt::Display for ConfigNotFound {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "no YAML file is named, and there is neither {}; name one", DEFAULT_PATHS.join(" nor "))
    }
}
