//! The configuration: raw values from YAML, then validated [`Settings`].
//!
//! `yaml` and `environment` build trees in which every value has a location; `layers` merges them and moves the
//! locations to `source_map`; `defaults` adds what the merged tree leaves out; `deserializer` converts the tree to the types of `sections`, which hold values within
//! their bounds, and of `raw`; `validate` checks these and creates [`Settings`]. All steps add to one list of errors, so
//! that all errors are reported at once.
//!
//! Text and environment are parameters. Only [`read`], [`read_with_keys`], [`read_admin`] and [`read_text`] open a file.

pub mod admin_address;
mod authority;
pub mod calendar;
mod defaults;
pub mod describe;
mod deserializer;
mod environment;
mod error;
pub mod key_list;
mod layers;
mod node;
mod number;
mod raw;
mod scalars;
mod section;
mod sections;
mod serde_forms;
mod setting_path;
pub mod settings;
mod short_forms;
mod source_map;
mod validate;
mod yaml;

pub use defaults::{SEARCH_ENGINES, write_out};
pub use error::{ConfigError, ConfigErrors, SourceLocation, did_you_mean};
pub use scalars::duration;
pub use setting_path::SettingPath;
pub use settings::Settings;
pub use source_map::SourceMap;

use sections::api_keys;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tidegate_policy::secret::Secret;

/// Parses and validates the `text` of a file. `Err` contains all errors.
///
/// `environment` contains the variables for `${NAME}` and `TIDEGATE__...`, and `TZ`, the name of the system's time zone. `overrides` are command line options, as the
/// path of a key and its value. They take precedence over both; the location of an error in one is the option, such as
/// `--listen`. `operators` are the names of the built-in operators, by their index in the operator table.
pub fn load(
    file: &Path,
    text: &str,
    environment: &[(String, String)],
    overrides: &[(SettingPath, String)],
    operators: &[&str],
) -> Result<Settings, ConfigErrors> {
    load_with(file, text, environment, overrides, operators, None)
}

fn load_with(
    file: &Path,
    text: &str,
    environment: &[(String, String)],
    overrides: &[(SettingPath, String)],
    operators: &[&str],
    keys: Option<&str>,
) -> Result<Settings, ConfigErrors> {
    let (settings, mut errors) = load_settings(file, text, environment, overrides, operators, keys);
    if errors.is_empty() {
        return Ok(settings);
    }
    errors.sort_by(|left, right| left.location.cmp(&right.location));
    Err(ConfigErrors { file: file.to_owned(), errors })
}

/// Returns the admin listener of a file's `text`, ignoring errors in other sections: an administrator who connects to a
/// running instance may be editing its file, and may lack the variables of the other sections. `None` if the listener
/// is off.
pub fn load_admin(
    file: &Path,
    text: &str,
    environment: &[(String, String)],
) -> Result<Option<settings::Admin>, ConfigErrors> {
    let (settings, mut errors) = load_settings(file, text, environment, &[], &[], None);
    errors.retain(|error| match error.path.is_root() {
        true => matches!(error.location, SourceLocation::Position { .. }),
        false => error.path.is_within(&SettingPath::ROOT.admin()),
    });
    match errors.is_empty() {
        true => Ok(settings.admin),
        false => Err(ConfigErrors { file: file.to_owned(), errors }),
    }
}

/// Returns the settings of the text, and all errors. The settings are valid only if there are none. `keys` takes the place of the
/// text of the file of API keys.
fn load_settings(
    file: &Path,
    text: &str,
    environment: &[(String, String)],
    overrides: &[(SettingPath, String)],
    operators: &[&str],
    keys: Option<&str>,
) -> (Settings, Vec<ConfigError>) {
    let (mut file_tree, mut errors) = yaml::read(text);
    environment::expand(&mut file_tree, environment, &mut errors);
    let api_key_file = api_keys::read_file(&mut file_tree, file, keys, &mut errors);
    environment::warn_similar_names(environment, raw::SECTIONS, &mut errors);
    let variables = environment::variables(environment, &mut errors);
    let options = environment::options(overrides, &mut errors);

    let mut source_map = SourceMap::new(file);
    let mut tree = layers::merge([file_tree, variables, options], &mut source_map);
    let defaults = defaults::add(&mut tree, operators, environment::time_zone(environment));
    let raw: raw::File = deserializer::read(&tree, &source_map, &mut errors);
    let (mut settings, errors) = validate::validate(&raw, operators, defaults, source_map, errors);
    settings.warnings.extend([Some(file), api_key_file.as_deref()].into_iter().flatten().filter_map(writable_warning));
    (Settings { text: Secret::new(text.to_owned()), api_key_file, ..settings }, errors)
}

/// Returns a warning if any user of the system may write to a file.
fn writable_warning(file: &Path) -> Option<String> {
    const WRITABLE_BY_ALL: u32 = 0o002;
    let mode = std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file)?.permissions().mode();
    let file = file.display();
    let message =
        || format!("{file}: any user of this system may change it (mode {:o}); run chmod o-w {file}", mode & 0o7777);
    (mode & WRITABLE_BY_ALL != 0).then(message)
}

/// Reads a file and returns its settings, as [`load`] does.
pub fn read(
    file: &Path,
    environment: &[(String, String)],
    overrides: &[(SettingPath, String)],
    operators: &[&str],
) -> Result<Settings, ConfigErrors> {
    load(file, &read_text(file)?, environment, overrides, operators)
}

/// Reads a file as [`read`] does, as if `keys` were the text of its file of API keys.
pub fn read_with_keys(
    file: &Path,
    environment: &[(String, String)],
    operators: &[&str],
    keys: &str,
) -> Result<Settings, ConfigErrors> {
    load_with(file, &read_text(file)?, environment, &[], operators, Some(keys))
}

/// Reads a file and returns its admin listener, as [`load_admin`] does.
pub fn read_admin(file: &Path, environment: &[(String, String)]) -> Result<Option<settings::Admin>, ConfigErrors> {
    load_admin(file, &read_text(file)?, environment)
}

/// Reads the text of a file.
pub fn read_text(file: &Path) -> Result<String, ConfigErrors> {
    let failed = |location: SourceLocation, message: String, hint: &str| {
        let error = ConfigError { location, path: SettingPath::ROOT, message, hint: hint.to_owned() };
        ConfigErrors { file: file.to_owned(), errors: vec![error] }
    };
    let bytes = std::fs::read(file).map_err(|error| {
        let hint = "name a YAML file, such as config/tidegate.yaml of the distribution";
        failed(SourceLocation::File, format!("cannot be read: {error}"), hint)
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line_start = valid.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
        let line = valid.iter().filter(|&&byte| byte == b'\n').count() as u64 + 1;
        let column = String::from_utf8_lossy(&valid[line_start..]).chars().count() as u64 + 1;
        failed(SourceLocation::Position { line, column }, "not UTF-8".to_owned(), "save the file in UTF-8")
    })
}

/// Returns the top-level keys of the configuration file, in order.
pub const fn section_names() -> &'static [&'static str] {
    raw::SECTIONS
}

/// Returns the JSON Schema of the configuration file.
pub fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(raw::File);
    schema.insert("title".into(), "Tidegate configuration".into());
    schema.to_value()
}

#[cfg(test)]
mod tests;
