//! A file, as a gate would start with it, for commands that try it without one.

use super::environment;
use crate::config::{self, Settings};
use crate::lists::Files;
use crate::replay::Policy;
use crate::verify::Operators;
use std::path::Path;

/// Reads a file, or says all that is wrong with it. `operators` makes those of its settings.
pub(super) fn read(file: &Path, operators: impl FnOnce(&Settings) -> Operators) -> Result<Policy, String> {
    let builtin = Operators::builtin();
    let names: Vec<&str> = builtin.names().collect();
    let settings = config::read(file, &environment(), &[], &names).map_err(|mistakes| mistakes.to_string())?;
    let lists = Files::read(settings.list_files()).map_err(|mistakes| mistakes.to_string())?.lists();
    let operators = operators(&settings);
    Ok(Policy { name: file.display().to_string(), settings, operators, lists })
}
