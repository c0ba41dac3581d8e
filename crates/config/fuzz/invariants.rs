//! Invariants of the reader of the configuration. Each takes arbitrary bytes and panics if it is violated.

use std::path::Path;
use tidegate_config::{self as config, SourceLocation};

/// A file is either valid or has errors, each with a hint and a location in the file, in order. A comment before the
/// first line changes only the locations.
pub(crate) fn yaml(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let errors = errors(text);
    let lines = 1 + text.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).count() as u64;
    for error in &errors {
        assert!(!error.message.is_empty() && !error.hint.is_empty(), "an error without a message or a hint: {error:?}");
        let SourceLocation::Position { line, column } = &error.location else {
            panic!("an error of a text is at a position: {error:?}");
        };
        assert!((1..=lines).contains(line) && *column > 0, "an error is outside of the text: {error:?}");
    }
    assert!(errors.is_sorted_by_key(|error| error.location.clone()), "errors are not in order");
    // A byte order mark and a directive are valid only at the start.
    if !text.starts_with(['\u{feff}', '%']) {
        let with_comment = self::errors(&format!("# A comment.\n{text}"));
        assert_eq!(with_comment.len(), errors.len(), "a comment changes the errors");
    }
}

fn errors(text: &str) -> Vec<config::ConfigError> {
    config::load(Path::new("tidegate.yaml"), text, &[], &[], &[]).err().map_or_else(Vec::new, |errors| errors.errors)
}
