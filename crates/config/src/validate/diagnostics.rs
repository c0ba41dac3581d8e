//! Errors and warnings of validation.

use crate::SourceMap;
use crate::error::{ConfigError, SourceLocation, did_you_mean};
use crate::scalars::FilePath;
use crate::setting_path::SettingPath;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Errors with the locations of their paths, and warnings.
pub(crate) struct Diagnostics {
    source_map: SourceMap,
    errors: Vec<ConfigError>,
    /// Number of errors from before validation. The value of each was replaced by its default.
    prior_errors: usize,
    warnings: Vec<String>,
}

impl Diagnostics {
    pub(crate) fn new(source_map: SourceMap, errors: Vec<ConfigError>) -> Self {
        Self { source_map, prior_errors: errors.len(), errors, warnings: Vec::new() }
    }

    pub(crate) fn into_parts(self) -> (SourceMap, Vec<ConfigError>, Vec<String>) {
        (self.source_map, self.errors, self.warnings)
    }

    /// Adds an error, unless `path` has one already, or the value at `path` or around it was replaced by its default:
    /// the error would concern the default.
    pub(crate) fn error(&mut self, path: &SettingPath, message: impl Into<String>, hint: impl Into<String>) {
        let (prior_errors, reported) = self.errors.split_at(self.prior_errors);
        if !prior_errors.iter().any(|error| is_within(path, error)) && !reported.iter().any(|error| error.path == *path)
        {
            let (message, hint) = (message.into(), hint.into());
            self.errors.push(ConfigError {
                location: self.source_map.enclosing_position(path),
                path: path.clone(),
                message,
                hint,
            });
        }
    }

    /// Adds an error about a value that contradicts others, unless one of those has an error itself: it would be the cause.
    pub(crate) fn contradiction(
        &mut self,
        path: &SettingPath,
        others: &[SettingPath],
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        if !others.iter().any(|other| self.has_error_at(other)) {
            self.error(path, message, hint);
        }
    }

    /// Adds a warning about a valid value.
    pub(crate) fn warning(&mut self, message: impl Into<String>) {
        self.warnings.push(message.into());
    }

    /// Returns true if there is an error at, around or below `path`. Checks that depend on the value are then skipped.
    pub(crate) fn has_error_at(&self, path: &SettingPath) -> bool {
        self.errors.iter().any(|error| is_within(path, error) || error.path.is_within(path))
    }

    /// Adds the error that `name` is none of `known`.
    pub(crate) fn unknown_name<'a>(
        &mut self,
        path: &SettingPath,
        kind: &str,
        name: &str,
        known: impl Iterator<Item = &'a str> + Clone,
    ) {
        let suggestion = did_you_mean(name, known.clone());
        let known: Vec<&str> = known.take(40).collect();
        let hint = match known.is_empty() {
            true => format!("define the {kind} first"),
            false => format!("known: {}", known.join(", ")),
        };
        self.error(path, format!("unknown {kind} {name:?}{suggestion}"), hint);
    }

    /// Checks a name. Names become metric labels and header parameters.
    pub(crate) fn check_name(&mut self, path: &SettingPath, name: &str) {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'.' | b'-');
        if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
            self.error(path, format!("invalid name {name:?}"), "use up to 64 of a-z, 0-9, \"_\", \".\" and \"-\"");
        }
    }

    /// Checks the number of entries at `path`.
    pub(crate) fn check_len(&mut self, path: &SettingPath, kind: &str, len: usize, max: usize, hint: &str) {
        if len > max {
            self.error(path, format!("found {len} {kind}, maximum {max}"), hint);
        }
    }

    /// Returns the duration or `default`. Zero is an error.
    pub(crate) fn nonzero_duration(
        &mut self,
        path: &SettingPath,
        value: Option<Duration>,
        default: Duration,
    ) -> Duration {
        if value.is_some_and(|span| span.is_zero()) {
            self.error(path, "found a zero duration", "write a duration such as 10s");
        }
        value.unwrap_or(default)
    }

    /// Returns the count or `default`. Zero is an error.
    pub(crate) fn nonzero_count(&mut self, path: &SettingPath, value: Option<u32>, default: u32) -> u32 {
        if value == Some(0) {
            self.error(path, "found 0, needs at least 1", format!("write a number such as {default}"));
        }
        value.unwrap_or(default)
    }

    /// Returns true if the file, a variable or an option has a value at `path`.
    pub(crate) fn is_set(&self, path: &SettingPath) -> bool {
        self.source_map.source(path).is_some_and(|source| !source.is_null)
    }

    /// Returns a path of the file, relative to the directory of the file.
    pub(crate) fn beside_file(&self, FilePath(path): &FilePath) -> PathBuf {
        self.source_map.file().parent().unwrap_or(Path::new("")).join(path)
    }

    /// Returns the location of `path`, or of its nearest parent, as text for messages.
    pub(crate) fn location_of(&self, path: &SettingPath) -> String {
        self.source_map.nearest_location(path)
    }
}

/// Returns true if `error` is at or above `path`. An error without a path concerns the whole file, if it is in the
/// file.
fn is_within(path: &SettingPath, error: &ConfigError) -> bool {
    match error.path.is_root() {
        true => matches!(error.location, SourceLocation::Position { .. }),
        false => path.is_within(&error.path),
    }
}
