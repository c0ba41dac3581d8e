//! Errors of a configuration, each with its location, message and hint.

use super::setting_path::SettingPath;
use std::fmt;
use std::path::{Path, PathBuf};

/// Location of a value. Errors are reported in this order: the file, that of the API keys, environment
/// variables, command line options.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceLocation {
    /// The whole file, which is unreadable.
    File,
    /// A position in the file. Line and column start at 1.
    Position {
        /// Line number.
        line: u64,
        /// Column, in characters.
        column: u64,
    },
    /// A position in the file of API keys.
    KeyFile {
        /// Path of that file.
        file: PathBuf,
        /// Line number.
        line: u64,
        /// Column, in characters.
        column: u64,
    },
    /// Name of an environment variable.
    Variable(String),
    /// Name of a command line option.
    Option(String),
}

/// An error of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Location of the invalid value.
    pub location: SourceLocation,
    /// Path of the key. The root if the error concerns no single key.
    pub path: SettingPath,
    /// Description of the error.
    pub message: String,
    /// Hint how to correct it.
    pub hint: String,
}

/// All errors of a configuration, in the order of their locations. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    /// Path of the configuration file.
    pub file: PathBuf,
    /// The errors.
    pub errors: Vec<ConfigError>,
}

impl SourceLocation {
    /// First character of the file: the location of a missing section.
    pub const START: Self = Self::Position { line: 1, column: 1 };

    /// Returns the location as messages show it: `FILE:LINE:COL`, or the name of the variable or option.
    pub fn in_file(&self, file: &Path) -> String {
        match self {
            Self::File => file.display().to_string(),
            Self::Position { line, column } => format!("{}:{line}:{column}", file.display()),
            Self::KeyFile { file, line, column } => format!("{}:{line}:{column}", file.display()),
            Self::Variable(name) | Self::Option(name) => name.clone(),
        }
    }
}

impl fmt::Display for ConfigErrors {
    /// Writes one line per error: `FILE:LINE:COL: path: what is wrong; hint`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (count, error) in self.errors.iter().enumerate() {
            if count > 0 {
                writeln!(out)?;
            }
            write!(out, "{}: ", error.location.in_file(&self.file))?;
            if !error.path.is_root() {
                write!(out, "{}: ", one_line(&error.path.to_string()))?;
            }
            write!(out, "{}; {}", one_line(&error.message), one_line(&error.hint))?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Escapes control characters and truncates `text`. Keys are input and may contain line breaks; an error is one short
/// line.
fn one_line(text: &str) -> String {
    const MAX_MESSAGE_LEN: usize = 500;
    let mut line: String = text
        .chars()
        .take(MAX_MESSAGE_LEN)
        .flat_map(|c| match c.is_control() {
            true => c.escape_default().collect(),
            false => vec![c],
        })
        .collect();
    if text.chars().nth(MAX_MESSAGE_LEN).is_some() {
        line.push_str("...");
    }
    line
}

/// Returns ` (did you mean "limit"?)` if one of `known` is similar to `name`, else an empty string.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let max_distance = (name.chars().count() / 3).clamp(1, 3);
    let known: Vec<&str> = known.into_iter().collect();
    let closest = known.iter().map(|word| (distance(name, word), *word)).min();
    let is_beginning = |word: &&str| name.len() >= 3 && word.starts_with(name);
    let word = match closest {
        Some((distance, word)) if distance <= max_distance => Some(word),
        _ => known.iter().copied().filter(is_beginning).min_by_key(|word| word.len()),
    };
    word.map(|word| format!(" (did you mean \"{word}\"?)")).unwrap_or_default()
}

/// Returns the number of letters to insert, delete, replace or swap with their neighbor (optimal string alignment).
fn distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().take(64).collect(), right.chars().take(64).collect());
    let mut rows = vec![vec![0; right.len() + 1]; left.len() + 1];
    for i in 0..=left.len() {
        for j in 0..=right.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(left[i - 1] != right[j - 1]);
                let swapped = i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1];
                let swapped = if swapped { rows[i - 2][j - 2] + 1 } else { usize::MAX };
                replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(swapped)
            };
        }
    }
    rows[left.len()][right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typo_gets_a_suggestion_unrelated_word_does_not() {
        assert_eq!(did_you_mean("limt", ["limit", "window"]), " (did you mean \"limit\"?)");
        assert_eq!(did_you_mean("wnidow", ["limit", "window"]), " (did you mean \"window\"?)");
        assert_eq!(did_you_mean("colour", ["limit", "window"]), "");
    }
}
