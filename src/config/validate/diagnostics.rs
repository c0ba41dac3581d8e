//! What has been found wrong so far, and what is worth a note.

use crate::config::SourceMap;
use crate::config::error::{ConfigError, SourceLocation, did_you_mean};
use std::time::Duration;

/// Collects mistakes and notes, each with the place of its path.
pub(super) struct Diagnostics {
    written: SourceMap,
    mistakes: Vec<ConfigError>,
    /// So many of them were found before anything was asked what it means: something was left out for each.
    left_out: usize,
    notes: Vec<String>,
}

impl Diagnostics {
    pub(super) fn new(written: SourceMap, mistakes: Vec<ConfigError>) -> Self {
        Self { written, left_out: mistakes.len(), mistakes, notes: Vec::new() }
    }

    pub(super) fn into_parts(self) -> (SourceMap, Vec<ConfigError>, Vec<String>) {
        (self.written, self.mistakes, self.notes)
    }

    /// Tells a mistake, unless what stands at `path` or around it was left out for another: its default would be blamed.
    pub(super) fn error(&mut self, path: &str, wrong: impl Into<String>, remedy: impl Into<String>) {
        let (left_out, told) = self.mistakes.split_at(self.left_out);
        if !left_out.iter().any(|known| is_within(path, known)) && !told.iter().any(|known| known.path == path) {
            let (wrong, remedy) = (wrong.into(), remedy.into());
            self.mistakes.push(ConfigError {
                place: self.written.enclosing_position(path),
                path: path.to_owned(),
                message: wrong,
                hint: remedy,
            });
        }
    }

    /// Notes what is right but worth knowing.
    pub(super) fn warning(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// True when something was found wrong at `path`, around it or below it: what depends on it should not be blamed.
    pub(super) fn has_error_at(&self, path: &str) -> bool {
        self.mistakes.iter().any(|known| is_within(path, known) || is_subpath(&known.path, path))
    }

    /// Tells that `name` is none of `known`.
    pub(super) fn unknown<'a>(
        &mut self,
        path: &str,
        what: &str,
        name: &str,
        known: impl Iterator<Item = &'a str> + Clone,
    ) {
        let hint = did_you_mean(name, known.clone());
        let known: Vec<&str> = known.take(40).collect();
        let remedy = match known.is_empty() {
            true => format!("there is no {what} yet: add it"),
            false => format!("known: {}", known.join(", ")),
        };
        self.error(path, format!("unknown {what} {name:?}{hint}"), remedy);
    }

    /// Names become metric labels and header parameters.
    pub(super) fn name(&mut self, path: &str, name: &str) {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'.' | b'-');
        if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
            self.error(
                path,
                format!("the name {name:?} is not plain"),
                "use up to 64 of a-z, 0-9, \"_\", \".\" and \"-\"",
            );
        }
    }

    /// A duration that must not be zero.
    pub(super) fn nonzero_duration(&mut self, path: &str, written: Option<Duration>, default: Duration) -> Duration {
        if written.is_some_and(|span| span.is_zero()) {
            self.error(path, "found no time at all", "write a duration such as 10s");
        }
        written.unwrap_or(default)
    }

    /// A count that must not be zero.
    pub(super) fn nonzero_count(&mut self, path: &str, written: Option<u32>, default: u32) -> u32 {
        if written == Some(0) {
            self.error(path, "found 0, needs at least 1", format!("write a number such as {default}"));
        }
        written.unwrap_or(default)
    }

    /// Where `path` was written, or else what is around it, as messages name it.
    pub(super) fn location_of(&self, path: &str) -> String {
        self.written.nearest_location(path)
    }
}

/// A mistake without a path spoils the whole file, if it is in the file.
fn is_within(path: &str, known: &ConfigError) -> bool {
    match known.path.is_empty() {
        true => matches!(known.place, SourceLocation::Position { .. }),
        false => is_subpath(path, &known.path),
    }
}

fn is_subpath(path: &str, upper: &str) -> bool {
    path.strip_prefix(upper).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}
