//! A file, as a gate would start with it, for commands that try it without one.

use super::environment;
use crate::address_list_files::AddressListFiles;
use crate::config::{self, Settings};
use crate::replay::Policy;
use crate::verify::OperatorTable;
use std::path::Path;

/// Reads a file, or says all that is wrong with it. `operators` makes those of its settings.
pub(super) fn read(file: &Path, operators: impl FnOnce(&Settings) -> OperatorTable) -> Result<Policy, String> {
    let text = config::read_text(file).map_err(|mistakes| mistakes.to_string())?;
    of(file, &text, operators)
}

/// The same, of a `text` that the file might have.
pub(super) fn of(
    file: &Path,
    text: &str,
    operators: impl FnOnce(&Settings) -> OperatorTable,
) -> Result<Policy, String> {
    let builtin = OperatorTable::builtin();
    let names: Vec<&str> = builtin.names().collect();
    let settings = settings(file, text, &names)?;
    let lists = AddressListFiles::read(settings.list_files()).map_err(|mistakes| mistakes.to_string())?.lists();
    let operators = operators(&settings);
    Ok(Policy::new(file.display().to_string(), settings, operators, lists))
}

/// What a `text` says that the file might have; `operators` are the built-in ones.
pub(super) fn settings(file: &Path, text: &str, operators: &[&str]) -> Result<Settings, String> {
    config::load(file, text, &environment(), &[], operators).map_err(|mistakes| mistakes.to_string())
}
