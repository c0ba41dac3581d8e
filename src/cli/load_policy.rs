//! Loads a configuration file for commands that evaluate it without a gateway.

use super::environment;
use crate::service::crawlers;
use std::path::Path;
use std::sync::Arc;
use tidegate_config::{self as config, Settings};
use tidegate_crawlers::address_list_files::AddressListFiles;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_replay::Policy;

/// Loads the policy of a file, or returns all errors in it. `operators` builds the operator table of its settings.
pub(super) fn read(file: &Path, operators: impl FnOnce(&Settings) -> OperatorTable) -> Result<Policy, String> {
    let text = config::read_text(file).map_err(|errors| errors.to_string())?;
    from_text(file, &text, operators)
}

/// Like [`read`], but with `text` as the content of the file.
pub(super) fn from_text(
    file: &Path,
    text: &str,
    operators: impl FnOnce(&Settings) -> OperatorTable,
) -> Result<Policy, String> {
    let settings = settings(file, text, &OperatorTable::builtin_names())?;
    let lists = AddressListFiles::read(settings.address_list_files()).map_err(|errors| errors.to_string())?.lists();
    let network_databases = Arc::new(crawlers::network_databases(&settings)?);
    let operators = operators(&settings);
    Ok(Policy { network_databases, ..Policy::new(file.display().to_string(), settings, operators, lists) })
}

/// Loads the settings with `text` as the content of the file; `operators` are the names of the built-in operators.
pub(super) fn settings(file: &Path, text: &str, operators: &[&str]) -> Result<Settings, String> {
    config::load(file, text, &environment(), &[], operators).map_err(|errors| errors.to_string())
}
