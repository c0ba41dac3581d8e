//! Parses YAML into the tree, with line and column of every key and value.

use super::error::{ConfigError, SourceLocation};
use super::node::{Entry, Node, NodeKind};
use super::number;
use super::setting_path::SettingPath;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Budget, Location, Options, Spanned};
use std::fmt;

/// Limits of a file. A larger file is an error or an attack, and is rejected before it fills the memory.
const MAX_NODES: usize = 100_000;
const MAX_DEPTH: usize = 32;
const MAX_ALIASES: usize = 1000;

/// Parses `text`. Invalid YAML is one error; each duplicate key is one error.
pub(super) fn read(text: &str) -> (Node, Vec<ConfigError>) {
    if text.lines().all(|line| matches!(line.trim_start().chars().next(), None | Some('#'))) {
        return (Node::empty_map(), Vec::new());
    }
    match serde_saphyr::from_str_with_options::<YamlNode>(text, options()) {
        Ok(tree) => {
            let mut root = tree.0;
            root.location = SourceLocation::START;
            let mut errors = Vec::new();
            if !matches!(root.kind, NodeKind::Map(_)) {
                errors.push(error_at(&root.location, "no top-level keys", "start with a key such as `origin:`"));
                root = Node::empty_map();
            }
            root.walk_mut(&SettingPath::ROOT, &mut |path, node| reject_duplicates(path, node, &mut errors));
            let lines: Vec<&str> = text.lines().collect();
            root.walk_mut(&SettingPath::ROOT, &mut |path, node| errors.extend(misspelled_number(path, node, &lines)));
            (root, errors)
        }
        Err(error) => {
            let location = error.location().map_or(SourceLocation::START, |location| to_location(&location));
            if let Some(tab) = tab_in_indentation(text, &location) {
                return (
                    Node::empty_map(),
                    vec![error_at(&tab, "invalid YAML: a tab in the indentation", "use spaces")],
                );
            }
            let cause = error.without_snippet().to_string();
            let cause = cause.lines().next().unwrap_or_default();
            let cause = cause.split_once(" at line ").map_or(cause, |(cause, _)| cause);
            let line = line_at(text, &location);
            let (location, cause, hint) = match () {
                () if line.contains("${") => (location, cause, "quote \"${...}\" inside { } and [ ]"),
                () if cause.starts_with("alias references unknown anchor") => {
                    (location, "a value that begins with * is an alias", "put it in quotes, such as '*item'")
                }
                () if cause.starts_with("recursive references") => {
                    (location, "an alias within its own value", "write the value out")
                }
                () if cause.starts_with("multiple YAML documents") => {
                    (location, "a second document", "remove the line with --- or ... before it")
                }
                () if cause.starts_with("recursion limit") => (location, "nested too deeply", "remove brackets"),
                () => match colon_without_space(text, &location) {
                    Some(colon) => (colon, "no space after a colon", "write it like key: value"),
                    None => (location, cause, "check indentation, colons, quotes and brackets"),
                },
            };
            (Node::empty_map(), vec![error_at(&location, &format!("invalid YAML: {cause}"), hint)])
        }
    }
}

/// Returns the location of the first tab before the text of the line of an error, or of the next line, in which some errors
/// are noticed late.
fn tab_in_indentation(text: &str, error: &SourceLocation) -> Option<SourceLocation> {
    let SourceLocation::Position { line, .. } = *error else { return None };
    (line..=line + 1).find_map(|line| {
        let text = text.lines().nth(usize::try_from(line.saturating_sub(1)).ok()?)?;
        let indentation = &text[..text.len() - text.trim_start().len()];
        let column = u64::try_from(indentation.find('\t')?).ok()? + 1;
        Some(SourceLocation::Position { line, column })
    })
}

/// Returns the location of a colon without a space in the line of an error or the one before, in which a key and its value
/// became one word.
fn colon_without_space(text: &str, error: &SourceLocation) -> Option<SourceLocation> {
    let SourceLocation::Position { line, .. } = *error else { return None };
    [line, line.saturating_sub(1)].into_iter().find_map(|line| {
        let text = text.lines().nth(usize::try_from(line.checked_sub(1)?).ok()?)?;
        let word = text.trim();
        let (key, value) = word.split_once(':')?;
        let is_key = !key.is_empty() && key.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        let is_joined = is_key && !value.is_empty() && !value.starts_with([' ', '/']) && !word.contains(": ");
        let column = u64::try_from(text.find(':')?).ok()? + 1;
        is_joined.then_some(SourceLocation::Position { line, column })
    })
}

fn line_at<'a>(text: &'a str, location: &SourceLocation) -> &'a str {
    let SourceLocation::Position { line, .. } = location else { return "" };
    usize::try_from(*line).ok().and_then(|line| text.lines().nth(line.saturating_sub(1))).unwrap_or_default()
}

fn options() -> Options {
    let mut budget = Budget::default();
    budget.max_nodes = MAX_NODES;
    budget.max_depth = MAX_DEPTH;
    budget.max_aliases = MAX_ALIASES;
    serde_saphyr::options! {
        budget: Some(budget),
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
        strict_booleans: true,
        with_snippet: false,
    }
}

fn error_at(location: &SourceLocation, message: &str, hint: &str) -> ConfigError {
    ConfigError { location: location.clone(), path: SettingPath::ROOT, message: message.into(), hint: hint.into() }
}

fn to_location(location: &Location) -> SourceLocation {
    SourceLocation::Position { line: location.line().max(1), column: location.column().max(1) }
}

fn reject_duplicates(path: &SettingPath, node: &mut Node, errors: &mut Vec<ConfigError>) {
    let NodeKind::Map(entries) = &mut node.kind else { return };
    let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
    for entry in entries.drain(..) {
        match kept.iter().find(|earlier| earlier.key == entry.key) {
            None => kept.push(entry),
            Some(earlier) => {
                let first = match &earlier.key_location {
                    SourceLocation::Position { line, .. } | SourceLocation::KeyFile { line, .. } => {
                        format!("first in line {line}")
                    }
                    SourceLocation::File => "first elsewhere in the file".to_owned(),
                    SourceLocation::Variable(name) | SourceLocation::Option(name) => format!("first in {name}"),
                };
                errors.push(ConfigError {
                    location: entry.key_location,
                    path: path.entry(&entry.key),
                    message: format!("duplicate key, {first}"),
                    hint: "keep one of them".into(),
                });
            }
        }
    }
    *entries = kept;
}

/// Returns the error of a number that is not written as plain digits in `lines`, and replaces it by one that is: programs read
/// such numbers in different ways.
fn misspelled_number(path: &SettingPath, node: &mut Node, lines: &[&str]) -> Option<ConfigError> {
    let value = match node.kind {
        NodeKind::Integer(value) => value.to_string(),
        NodeKind::SignedInteger(value) => value.to_string(),
        NodeKind::Float(value) => value.to_string(),
        _ => return None,
    };
    let SourceLocation::Position { line, column } = node.location else { return None };
    let position = |number: u64| usize::try_from(number.checked_sub(1)?).ok();
    let line = lines.get(position(line)?)?;
    let (start, _) = line.char_indices().nth(position(column)?)?;
    let text = without_properties(&line[start..]);
    let problem = number::yaml_problem(text)?;
    let text = text.split([' ', ',', ']', '}']).next().unwrap_or_default();
    if let Ok(value) = value.parse() {
        node.kind = NodeKind::Integer(value);
    }
    Some(ConfigError {
        location: node.location.clone(),
        path: path.clone(),
        message: format!("found {text}, {problem}"),
        hint: format!("write {value}, or put it in quotes if it is text"),
    })
}

/// Returns the text of a value without the anchor and the tag before it.
fn without_properties(value: &str) -> &str {
    match value.strip_prefix(['&', '!']).and_then(|properties| properties.split_once(' ')) {
        Some((_, rest)) => without_properties(rest.trim_start()),
        None => value,
    }
}

struct YamlNode(Node);

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<NodeKindSeed>::deserialize(deserializer)?;
        Ok(Self(Node { location: to_location(&spanned.referenced), kind: spanned.value.0 }))
    }
}

struct NodeKindSeed(NodeKind);

impl<'de> Deserialize<'de> for NodeKindSeed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeKindVisitor).map(Self)
    }
}

struct NodeKindVisitor;

impl<'de> Visitor<'de> for NodeKindVisitor {
    type Value = NodeKind;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<NodeKind, E> {
        Ok(NodeKind::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<NodeKind, E> {
        Ok(NodeKind::Integer(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<NodeKind, E> {
        Ok(u64::try_from(value).map_or(NodeKind::SignedInteger(value), NodeKind::Integer))
    }

    fn visit_f64<E>(self, value: f64) -> Result<NodeKind, E> {
        Ok(NodeKind::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<NodeKind, E> {
        Ok(NodeKind::Text { text: value.to_owned(), is_untyped: false })
    }

    fn visit_unit<E>(self) -> Result<NodeKind, E> {
        Ok(NodeKind::Null)
    }

    fn visit_none<E>(self) -> Result<NodeKind, E> {
        Ok(NodeKind::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<NodeKind, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<NodeKind, A::Error> {
        let mut items = Vec::new();
        while let Some(YamlNode(item)) = list.next_element()? {
            items.push(item);
        }
        Ok(NodeKind::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NodeKind, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let YamlNode(value) = map.next_value()?;
            entries.push(Entry { key_location: to_location(&key.referenced), key: key.value, value });
        }
        Ok(NodeKind::Map(entries))
    }
}
