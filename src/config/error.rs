//! What is wrong with a configuration: every mistake, where it stands, what was found and what would do.

use std::fmt;
use std::path::{Path, PathBuf};

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceLocation {
    /// The file as a whole: it cannot be read.
    File,
    /// In the file; both count from 1.
    Position {
        /// The line.
        line: u64,
        /// The column, in characters.
        column: u64,
    },
    /// In a variable of the environment.
    Variable(String),
    /// On the command line.
    Option(String),
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Where it was written.
    pub place: SourceLocation,
    /// Which key, from the top: `quotas.places_api.tiers.search[1].shed`.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What would do.
    pub hint: String,
}

/// All that is wrong with a configuration, in the order of the file. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    /// The file.
    pub file: PathBuf,
    /// The mistakes.
    pub list: Vec<ConfigError>,
}

impl SourceLocation {
    /// The first character of the file: where something is missing altogether.
    pub const START: Self = Self::Position { line: 1, column: 1 };

    /// How messages name it: `FILE:LINE:COL`, or the name of the variable or option.
    pub fn in_file(&self, file: &Path) -> String {
        match self {
            Self::File => file.display().to_string(),
            Self::Position { line, column } => format!("{}:{line}:{column}", file.display()),
            Self::Variable(name) | Self::Option(name) => name.clone(),
        }
    }
}

impl fmt::Display for ConfigErrors {
    /// One line each: `FILE:LINE:COL: path: what is wrong; what would do`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (count, mistake) in self.list.iter().enumerate() {
            if count > 0 {
                writeln!(out)?;
            }
            write!(out, "{}: ", mistake.place.in_file(&self.file))?;
            if !mistake.path.is_empty() {
                write!(out, "{}: ", one_line(&mistake.path))?;
            }
            write!(out, "{}; {}", one_line(&mistake.message), one_line(&mistake.hint))?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Keys come from outside and may hold line ends; a mistake is one line, and not an endless one.
fn one_line(text: &str) -> String {
    const MAX_MESSAGE_LEN: usize = 500;
    let mut line: String = text
        .chars()
        .take(MAX_MESSAGE_LEN)
        .flat_map(|sign| match sign.is_control() {
            true => sign.escape_default().collect(),
            false => vec![sign],
        })
        .collect();
    if text.chars().nth(MAX_MESSAGE_LEN).is_some() {
        line.push_str("...");
    }
    line
}

/// ` (did you mean "limit"?)` where one of `known` is close to what was `written`, else nothing.
pub fn did_you_mean<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let tolerated = (written.chars().count() / 3).clamp(1, 3);
    let closest = known.into_iter().map(|word| (distance(written, word), word)).min();
    match closest {
        Some((distance, word)) if distance <= tolerated => format!(" (did you mean \"{word}\"?)"),
        _ => String::new(),
    }
}

/// How many letters must be added, dropped, replaced or swapped with their neighbour.
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
    fn a_slip_of_the_finger_is_recognised_and_a_different_word_is_not() {
        assert_eq!(did_you_mean("limt", ["limit", "window"]), " (did you mean \"limit\"?)");
        assert_eq!(did_you_mean("wnidow", ["limit", "window"]), " (did you mean \"window\"?)");
        assert_eq!(did_you_mean("colour", ["limit", "window"]), "");
    }
}
