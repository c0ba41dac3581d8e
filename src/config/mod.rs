//! The configuration: as written, then as meant.
//!
//! One path leads from text to [`Settings`]. `yaml` and `environment` make trees in which every value knows its place;
//! `layers` puts them on top of each other; `reading` turns the tree into the types of `raw`; `meaning` checks these
//! and makes [`Settings`]. Every step adds to one list of mistakes, so that all of them are told at once.
//!
//! Nothing here asks the system: the text and the environment are handed in (only [`read`] and [`read_admin`] open a
//! file).

mod deserializer;
mod environment;
mod error;
mod layers;
mod node;
mod raw;
mod scalars;
mod serde_forms;
pub mod settings;
mod source_map;
mod validate;
mod yaml;

pub use error::{ConfigError, ConfigErrors, SourceLocation, did_you_mean};
pub use scalars::duration;
pub use settings::Settings;
pub use source_map::SourceMap;

use std::path::Path;

/// Makes settings of a file's `text`, or says all that is wrong with it.
///
/// `environment` are the variables that `${NAME}` and `TIDEGATE__...` refer to. `overrides` come from the command line,
/// as a key's path and its value (`("listen", "127.0.0.1:80")`), and go before both; a mistake in one is told as
/// `--listen`. `operators` are the names of the known operators of crawlers, by their place in the operators' table.
pub fn load(
    file: &Path,
    text: &str,
    environment: &[(String, String)],
    overrides: &[(&str, String)],
    operators: &[&str],
) -> Result<Settings, ConfigErrors> {
    let (settings, mut mistakes) = load_settings(file, text, environment, overrides, operators);
    if mistakes.is_empty() {
        return Ok(settings);
    }
    mistakes.sort_by(|left, right| left.place.cmp(&right.place));
    Err(ConfigErrors { file: file.to_owned(), list: mistakes })
}

/// Finds the operators' listener in a file's `text`, whatever else is wrong with it: whoever wants to talk to a running
/// gate may be in the middle of changing its file, and need not have the variables that the rest of it asks for.
pub fn admin(
    file: &Path,
    text: &str,
    environment: &[(String, String)],
) -> Result<Option<settings::Admin>, ConfigErrors> {
    let (settings, mut mistakes) = load_settings(file, text, environment, &[], &[]);
    mistakes.retain(|mistake| match mistake.path.as_str() {
        "" => matches!(mistake.place, SourceLocation::Position { .. }),
        path => path == "admin" || path.starts_with("admin."),
    });
    match mistakes.is_empty() {
        true => Ok(settings.admin),
        false => Err(ConfigErrors { file: file.to_owned(), list: mistakes }),
    }
}

/// What the text means, and all that is wrong with it.
fn load_settings(
    file: &Path,
    text: &str,
    environment: &[(String, String)],
    overrides: &[(&str, String)],
    operators: &[&str],
) -> (Settings, Vec<ConfigError>) {
    let (mut written, mut mistakes) = yaml::read(text);
    environment::expand(&mut written, environment, &mut mistakes);
    environment::warn_similar_names(environment, raw::SECTIONS, &mut mistakes);
    let variables = environment::variables(environment, &mut mistakes);
    let options = environment::options(overrides, &mut mistakes);

    let tree = layers::merge(&[written, variables, options]);
    let written = SourceMap::new(file, tree.locations());
    let raw: raw::File = deserializer::read(tree, &mut mistakes);
    validate::validate(&raw, operators, written, mistakes)
}

/// Reads a file and makes settings of it.
pub fn read(
    file: &Path,
    environment: &[(String, String)],
    overrides: &[(&str, String)],
    operators: &[&str],
) -> Result<Settings, ConfigErrors> {
    load(file, &read_text(file)?, environment, overrides, operators)
}

/// Reads a file and finds the operators' listener in it, as [`admin`] does.
pub fn read_admin(file: &Path, environment: &[(String, String)]) -> Result<Option<settings::Admin>, ConfigErrors> {
    admin(file, &read_text(file)?, environment)
}

/// Reads a file's text.
pub fn read_text(file: &Path) -> Result<String, ConfigErrors> {
    std::fs::read_to_string(file).map_err(|error| {
        let wrong = format!("cannot be read: {error}");
        let remedy = "name a YAML file in UTF-8, such as config/tidegate.yaml of the distribution".into();
        let mistake = ConfigError { place: SourceLocation::File, path: String::new(), message: wrong, hint: remedy };
        ConfigErrors { file: file.to_owned(), list: vec![mistake] }
    })
}

/// The JSON Schema of the file.
pub fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(raw::File);
    schema.insert("title".into(), "Tidegate configuration".into());
    schema.to_value()
}

#[cfg(test)]
mod tests;
