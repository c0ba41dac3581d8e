//! Adds a key to the text of a file of API keys, and leaves the rest of the text as it is.
//!
//! YAML has many forms of a list. Every edit is therefore parsed: it counts only if the file then has the same keys and the
//! new one behind them.

use crate::error::{ConfigError, ConfigErrors, SourceLocation};
use crate::node::{Entry, Node, NodeKind};
use crate::sections::api_keys::SECTION;
use crate::setting_path::SettingPath;
use crate::yaml;
use std::path::Path;

/// Number of closing brackets behind the last key that are tried as the end of the list. Others are in comments.
const MAX_BRACKETS: usize = 8;

/// Returns the `text` of a `file` of keys with one more key: `entry`, a map in braces in one line.
pub fn with_key(file: &Path, text: &str, entry: &str) -> Result<String, ConfigErrors> {
    let failed = |errors| ConfigErrors { file: file.to_owned(), errors };
    let (mut tree, errors) = yaml::read(text);
    if !errors.is_empty() {
        return Err(failed(errors));
    }
    let (added, errors) = yaml::read(&first_key("", entry, "\n"));
    if !errors.is_empty() {
        return Err(failed(errors));
    }
    let list = section(&tree).map(|entry| entry.value.clone());
    let edits = Lines::new(text).edits(&tree, entry);
    push(&mut tree, added);
    let wanted = without_locations(tree);
    let is_wanted = |edit: &String| {
        let (tree, errors) = yaml::read(edit);
        errors.is_empty() && without_locations(tree) == wanted
    };
    edits.into_iter().find(is_wanted).ok_or_else(|| {
        failed(vec![ConfigError {
            location: list.map_or(SourceLocation::START, |list| list.location),
            path: SettingPath::ROOT.api_keys(),
            message: "no key can be added to a list of this form".to_owned(),
            hint: "write each key in a line of its own, such as `  - { name: acme, class: pro, sha256: \"...\" }`"
                .to_owned(),
        }])
    })
}

fn section(tree: &Node) -> Option<&Entry> {
    let NodeKind::Map(entries) = &tree.kind else { return None };
    entries.iter().find(|entry| entry.key == SECTION)
}

/// Adds the one key of `added` to the list of `tree`.
fn push(tree: &mut Node, added: Node) {
    let (NodeKind::Map(entries), NodeKind::Map(mut added)) = (&mut tree.kind, added.kind) else { return };
    let Some(added) = added.pop() else { return };
    match entries.iter_mut().find(|entry| entry.key == SECTION) {
        None => entries.push(added),
        Some(Entry { value: Node { kind: NodeKind::List(keys), .. }, .. }) => {
            if let NodeKind::List(added) = added.value.kind {
                keys.extend(added);
            }
        }
        Some(entry) => entry.value = added.value,
    }
}

fn without_locations(mut tree: Node) -> Node {
    tree.walk_mut(&SettingPath::ROOT, &mut |_, node| {
        node.location = SourceLocation::START;
        if let NodeKind::Map(entries) = &mut node.kind {
            entries.iter_mut().for_each(|entry| entry.key_location = SourceLocation::START);
        }
    });
    tree
}

fn first_key(indentation: &str, entry: &str, newline: &str) -> String {
    format!("{indentation}{SECTION}:{newline}{indentation}  - {entry}{newline}")
}

/// Text of a file, by its lines.
struct Lines<'a> {
    text: &'a str,
    /// Byte at which each line starts, and the line with its line break.
    lines: Vec<(usize, &'a str)>,
    newline: &'static str,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        let mut start = 0;
        let lines = text.split_inclusive('\n').map(|line| {
            let this = start;
            start += line.len();
            (this, line)
        });
        Self { text, lines: lines.collect(), newline: if text.contains("\r\n") { "\r\n" } else { "\n" } }
    }

    /// Returns texts that may have one more key, the likeliest first.
    fn edits(&self, tree: &Node, entry: &str) -> Vec<String> {
        let Some(section) = section(tree) else {
            let end = self.document_end(0);
            return vec![self.with_line(end, &first_key("", entry, self.newline))];
        };
        let key = self.line_of(&section.key_location);
        let list = &section.value;
        let NodeKind::List(keys) = &list.kind else {
            let indentation = self.indentation(key);
            return vec![self.with_line(key + 1, &format!("{indentation}  - {entry}{}", self.newline))];
        };
        let end = self.section_end(tree, key);
        let last = keys.last().map_or(&list.location, |last| &last.location);
        match self.offset(&list.location).is_some_and(|offset| self.text[offset..].starts_with('[')) {
            true => self.flow_edits(last, end, !keys.is_empty(), entry),
            false => self.block_edit(self.line_of(last), key, end, entry).into_iter().collect(),
        }
    }

    /// Returns the text with a key below the last one, whose value starts in line `last` of the lines `key..end`.
    fn block_edit(&self, last: usize, key: usize, end: usize, entry: &str) -> Option<String> {
        let is_item = |line: &usize| self.line(*line).trim_start().strip_prefix('-').is_some_and(starts_with_space);
        let item = (key..=last).rev().find(is_item)?;
        let is_content = |line: &usize| !matches!(self.line(*line).trim_start().chars().next(), None | Some('#'));
        let last_content = (item..end).rev().find(is_content)?;
        let indentation = self.indentation(item);
        Some(self.with_line(last_content + 1, &format!("{indentation}- {entry}{}", self.newline)))
    }

    /// Returns the texts with a key before a closing bracket behind the location `last` and before line `end`.
    fn flow_edits(&self, last: &SourceLocation, end: usize, has_keys: bool, entry: &str) -> Vec<String> {
        let Some(start) = self.offset(last) else { return Vec::new() };
        let end = self.lines.get(end).map_or(self.text.len(), |(start, _)| *start);
        let region = self.text.get(start..end).unwrap_or_default();
        let brackets = region.match_indices(']').take(MAX_BRACKETS).map(|(offset, _)| start + offset);
        let mut edits = Vec::new();
        for bracket in brackets {
            let behind_key = start + self.text[start..bracket].trim_end().len();
            let gap = &self.text[behind_key..bracket];
            let space = match gap.contains('\n') {
                true => format!("{}{}", self.newline, self.indentation(self.line_of(last))),
                false => " ".to_owned(),
            };
            let comma = if has_keys { "," } else { "" };
            for (offset, before) in [
                (behind_key, space.clone()),
                (behind_key, format!("{comma}{space}")),
                (bracket, " ".to_owned()),
                (bracket, format!("{comma} ")),
            ] {
                let (head, tail) = self.text.split_at(offset);
                let after = if tail.starts_with(']') { " " } else { "" };
                edits.push(format!("{head}{before}{entry}{after}{tail}"));
            }
        }
        edits
    }

    /// Returns the line of the next section behind line `key`, or of the end of the document.
    fn section_end(&self, tree: &Node, key: usize) -> usize {
        let NodeKind::Map(entries) = &tree.kind else { return self.lines.len() };
        let next = entries.iter().map(|entry| self.line_of(&entry.key_location)).filter(|line| *line > key).min();
        self.document_end(key + 1).min(next.unwrap_or(usize::MAX))
    }

    /// Returns the first line from `from` on that ends the document, or the number of lines.
    fn document_end(&self, from: usize) -> usize {
        let ends = |line: &usize| self.line(*line).strip_prefix("...").is_some_and(starts_with_space);
        (from..self.lines.len()).find(ends).unwrap_or(self.lines.len())
    }

    /// Returns the text with `added` before the line `at`.
    fn with_line(&self, at: usize, added: &str) -> String {
        let at = self.lines.get(at).map_or(self.text.len(), |(start, _)| *start);
        let (head, tail) = self.text.split_at(at);
        let separator = if head.is_empty() || head.ends_with('\n') { "" } else { self.newline };
        format!("{head}{separator}{added}{tail}")
    }

    fn line(&self, index: usize) -> &'a str {
        self.lines.get(index).map_or("", |(_, line)| line)
    }

    fn indentation(&self, line: usize) -> &'a str {
        let line = self.line(line);
        &line[..line.len() - line.trim_start_matches(' ').len()]
    }

    /// Returns the index of the line of a location.
    fn line_of(&self, location: &SourceLocation) -> usize {
        let SourceLocation::Position { line, .. } = location else { return 0 };
        usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX)
    }

    /// Returns the byte at a location.
    fn offset(&self, location: &SourceLocation) -> Option<usize> {
        let SourceLocation::Position { column, .. } = location else { return None };
        let (start, line) = self.lines.get(self.line_of(location))?;
        let column = usize::try_from(column.checked_sub(1)?).ok()?;
        line.char_indices().nth(column).map(|(offset, _)| start + offset)
    }
}

fn starts_with_space(text: &str) -> bool {
    text.chars().next().is_none_or(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: &str = "{ name: new, class: pro, sha256: \"00\" }";

    fn edited(text: &str) -> Result<String, String> {
        with_key(Path::new("keys.yaml"), text, KEY).map_err(|errors| errors.to_string())
    }

    #[test]
    fn key_is_added_to_every_usual_form_of_a_list() {
        for (text, expected) in [
            ("", "api_keys:\n  - KEY\n"),
            ("# keys\n", "# keys\napi_keys:\n  - KEY\n"),
            ("# keys", "# keys\napi_keys:\n  - KEY\n"),
            ("api_keys:\n", "api_keys:\n  - KEY\n"),
            ("api_keys: # none\n# end\n", "api_keys: # none\n  - KEY\n# end\n"),
            ("api_keys: []", "api_keys: [ KEY ]"),
            ("api_keys: [] # none yet ]\n", "api_keys: [ KEY ] # none yet ]\n"),
            ("api_keys: [{ name: a }]\n", "api_keys: [{ name: a }, KEY ]\n"),
            ("api_keys: [ { name: a }, ]\n", "api_keys: [ { name: a }, KEY ]\n"),
            ("api_keys: [ { name: \"]\" } ]\n", "api_keys: [ { name: \"]\" }, KEY ]\n"),
            (
                "api_keys: [\n  { name: a },\n  { name: b }\n]\n",
                "api_keys: [\n  { name: a },\n  { name: b },\n  KEY\n]\n",
            ),
            ("api_keys: [\n  { name: a }, # ]\n]\n", "api_keys: [\n  { name: a }, # ]\n  KEY\n]\n"),
            ("{\"api_keys\": [{\"name\": \"a\"}]}", "{\"api_keys\": [{\"name\": \"a\"}, KEY ]}"),
            ("api_keys:\n- name: z\n  class: pro\n", "api_keys:\n- name: z\n  class: pro\n- KEY\n"),
            ("api_keys:\n    - name: z\n\n# end\n", "api_keys:\n    - name: z\n    - KEY\n\n# end\n"),
            ("api_keys:\n  -\n    name: z", "api_keys:\n  -\n    name: z\n  - KEY\n"),
            ("api_keys:\n  - {\n    name: z\n  }\n", "api_keys:\n  - {\n    name: z\n  }\n  - KEY\n"),
            ("---\napi_keys:\n  - { name: z }\n...\n", "---\napi_keys:\n  - { name: z }\n  - KEY\n...\n"),
            ("api_keys:\r\n  - { name: z }\r\n", "api_keys:\r\n  - { name: z }\r\n  - KEY\r\n"),
            (
                "a: 1\napi_keys:\n  - { name: z }\n# of b\nb: 2\n",
                "a: 1\napi_keys:\n  - { name: z }\n  - KEY\n# of b\nb: 2\n",
            ),
            ("api_keys:\n  - { name: z, note: ä-- }   # é\n", "api_keys:\n  - { name: z, note: ä-- }   # é\n  - KEY\n"),
        ] {
            assert_eq!(edited(text), Ok(expected.replace("KEY", KEY)), "{text}");
        }
    }

    #[test]
    fn other_forms_are_refused_with_a_place_and_an_example() {
        let error = edited("other: &keys [{ name: z }]\napi_keys: *keys\n").expect_err("a list of another name");
        assert!(error.starts_with("keys.yaml:") && error.contains("  - { name: acme"), "{error}");
        let error = edited("api_keys: [").expect_err("no YAML");
        assert!(error.starts_with("keys.yaml:1:11: invalid YAML"), "{error}");
        for text in ["{}\n", "api_keys: {}\n", "api_keys: text\n", "a\n---\nb\n", "[]"] {
            assert!(edited(text).is_err_and(|error| error.starts_with("keys.yaml:")), "{text}");
        }
    }

    proptest! {
        /// An edit adds its key, or there is none.
        #[test]
        fn no_text_loses_keys(text in "(---\n)?api_keys: ?(\\[|\n)([ \\-{}\\[\\],#:'\"\nan]|- \\{ a: n \\}|\\{ a: 1 \\}){0,24}\\]?(\n\\.\\.\\.)?") {
            let Ok(edit) = edited(&text) else { return Ok(()) };
            let keys = |text: &str| match section(&yaml::read(text).0).map(|entry| entry.value.kind.clone()) {
                Some(NodeKind::List(keys)) => keys.len(),
                _ => 0,
            };
            prop_assert_eq!(keys(&edit), keys(&text) + 1, "{} {}", text, edit);
        }
    }
}
