//! A file, as a gate would start with it, for commands that try it without one.

use super::environment;
use crate::agents::Agents;
use crate::config::{self, Settings};
use crate::lists::Files;
use crate::replay::Policy;
use crate::verify::Operators;
use std::path::Path;
use std::sync::Arc;

/// Reads a file, or says all that is wrong with it. `operators` makes those of its settings.
pub(super) fn read(file: &Path, operators: impl FnOnce(&Settings) -> Operators) -> Result<Policy, String> {
    let text = config::text_of(file).map_err(|mistakes| mistakes.to_string())?;
    of(file, &text, operators)
}

/// The same, of a `text` that the file might have.
pub(super) fn of(file: &Path, text: &str, operators: impl FnOnce(&Settings) -> Operators) -> Result<Policy, String> {
    let settings = settings(file, text)?;
    let lists = Files::read(settings.list_files()).map_err(|mistakes| mistakes.to_string())?.lists();
    let operators = operators(&settings);
    let agents = Agents::builtin(operators.tokens());
    Ok(Policy {
        name: file.display().to_string(),
        settings,
        agents: Arc::new(agents),
        operators: Arc::new(operators),
        lists: Arc::new(lists),
    })
}

/// What a `text` says that the file might have.
pub(super) fn settings(file: &Path, text: &str) -> Result<Settings, String> {
    let builtin = Operators::builtin();
    let names: Vec<&str> = builtin.names().collect();
    config::load(file, text, &environment(), &[], &names).map_err(|mistakes| mistakes.to_string())
}
