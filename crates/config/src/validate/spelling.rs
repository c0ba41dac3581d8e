//! Warns of values that are valid, and mean something else than they look like.

use super::diagnostics::Diagnostics;
use crate::setting_path::SettingPath;
use tidegate_policy::name_pattern::NamePattern;

/// Warns of patterns at `path` that look like regular expressions: of a pattern, only `*` is no literal text.
pub(super) fn check_patterns<'a>(
    patterns: impl Iterator<Item = &'a NamePattern>,
    path: &SettingPath,
    report: &mut Diagnostics,
) {
    for text in patterns.map(ToString::to_string) {
        if let Some(hint) = hint_for_regex(&text) {
            report.warning(format!(
                "{path}: {text:?} looks like a regular expression, but matches as it stands, except that * is any text; {hint}"
            ));
        }
    }
}

/// Warns of a header of requests with underscores: clients write hyphens, and the name with underscores is another one.
pub(super) fn check_header_name(name: &str, path: &SettingPath, report: &mut Diagnostics) {
    if name.contains('_') {
        let hyphenated = name.replace('_', "-");
        report
            .warning(format!("{path}: {name} is no spelling of {hyphenated}, which clients send; write {hyphenated}"));
    }
}

/// Returns what to write in place of a regular expression; `None` for another text. `.*` alone proves nothing: `2.*` is a
/// pattern of versions.
fn hint_for_regex(text: &str) -> Option<String> {
    let is_anchored = text.starts_with('^') || text.ends_with('$');
    let marks = ["|", ".+", "\\d", "\\w", "\\s", "\\.", "(?", "[0-9", "[a-z", "[^"];
    if !is_anchored && !text.starts_with(".*") && !marks.iter().any(|mark| text.contains(mark)) {
        return None;
    }
    let mut literal = text.trim_start_matches('^').trim_end_matches('$').replace(".*", "*").replace("\\.", ".");
    match (text.starts_with('^'), text.ends_with('$')) {
        (true, false) if !literal.ends_with('*') => literal.push('*'),
        (false, true) if !literal.starts_with('*') => literal.insert(0, '*'),
        _ => {}
    }
    let values: Vec<&str> = literal.split('|').collect();
    let is_plain = |value: &&str| !value.is_empty() && !value.contains(['\\', '[', '(', ')', '+', '?', '{', '^', '$']);
    Some(match values.as_slice() {
        ["*"] => "leave it out to match any value".into(),
        [value] if is_plain(value) => format!("write {value:?}"),
        values if values.iter().all(is_plain) => format!("write {values:?}"),
        _ => "write a list of values, such as [\"2\", \"2.*\"]".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_expressions_have_a_hint_and_patterns_have_none() {
        for (text, hint) in [
            ("^2.*$", "write \"2*\""),
            ("^v2", "write \"v2*\""),
            ("-beta$", "write \"*-beta\""),
            ("2|3", "write [\"2\", \"3\"]"),
            ("^beta|canary.*$", "write [\"beta\", \"canary*\"]"),
            (".*", "leave it out to match any value"),
            ("^.*$", "leave it out to match any value"),
            ("2\\.1", "write \"2.1\""),
            ("v[0-9]+", "write a list of values, such as [\"2\", \"2.*\"]"),
            ("^(a|b)$", "write a list of values, such as [\"2\", \"2.*\"]"),
            ("|", "write a list of values, such as [\"2\", \"2.*\"]"),
        ] {
            assert_eq!(hint_for_regex(text).as_deref(), Some(hint), "{text}");
        }
        for text in ["2", "2.*", "*", "acme*", "a (b)", "on?", "a+b", "text/html; q=1", "{1}", "a.b*c"] {
            assert_eq!(hint_for_regex(text), None, "{text}");
        }
    }
}
