//! Environment variables: `${NAME}` inside values, and `TIDEGATE__ORIGIN__URL=...`, which overrides one key.

use super::calendar;
use super::error::{ConfigError, SourceLocation, did_you_mean};
use super::node::{Entry, Node, NodeKind};
use super::setting_path::SettingPath;
use super::yaml;

/// Prefix of variables that override a key.
const PREFIX: &str = "TIDEGATE__";

/// Replaces `${NAME}` and `${NAME:-default}` in every text of the tree. `$${` is a plain `${`.
pub(super) fn expand(root: &mut Node, environment: &[(String, String)], errors: &mut Vec<ConfigError>) {
    root.walk_mut(&SettingPath::ROOT, &mut |path, node| {
        let NodeKind::Text { text, is_untyped: loose } = &mut node.kind else { return };
        if !text.contains("${") {
            return;
        }
        match expand_text(text, environment) {
            Ok(result) => (*text, *loose) = (result, true),
            Err((message, hint)) => {
                errors.push(ConfigError { location: node.location.clone(), path: path.clone(), message, hint });
                node.kind = NodeKind::Null;
            }
        }
    });
}

/// Returns the time zone of the system, the variable `TZ`; UTC if it names none that is known.
pub(super) fn time_zone(environment: &[(String, String)]) -> &str {
    let zone = environment.iter().find(|(name, _)| name == "TZ").map(|(_, zone)| zone.as_str());
    zone.filter(|zone| calendar::is_zone(zone)).unwrap_or("UTC")
}

fn expand_text(text: &str, environment: &[(String, String)]) -> Result<String, (String, String)> {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        if let Some(before) = before.strip_suffix('$') {
            result.push_str(before);
            result.push_str("${");
            rest = after;
            continue;
        }
        let Some((inside, after)) = after.split_once('}') else {
            return Err(("unclosed \"${\"".into(), "close it, or write $${ for a plain ${".into()));
        };
        let (name, default) = inside.split_once(":-").map_or((inside, None), |(name, default)| (name, Some(default)));
        let variable = environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        // As in a shell, an empty variable counts as unset if there is a default.
        let value = variable.filter(|value| default.is_none() || !value.is_empty()).or(default);
        let unknown = || {
            (format!("environment variable {name} is not set"), format!("set {name}, or write ${{{name}:-default}}"))
        };
        result.push_str(before);
        result.push_str(value.ok_or_else(unknown)?);
        rest = after;
    }
    result.push_str(rest);
    Ok(result)
}

/// Returns the tree of all variables that override a key.
pub(super) fn variables(environment: &[(String, String)], errors: &mut Vec<ConfigError>) -> Node {
    let mut root = Node::empty_map();
    for (name, value) in environment {
        let Some(keys) = name.strip_prefix(PREFIX) else { continue };
        let keys = keys.to_lowercase();
        let keys: Vec<&str> = keys.split("__").collect();
        replace(&mut root, &keys, value, &SourceLocation::Variable(name.clone()), errors);
    }
    root
}

/// Returns the tree of command line options. `overrides` are the paths of keys with their values.
pub(super) fn options(overrides: &[(SettingPath, String)], errors: &mut Vec<ConfigError>) -> Node {
    let mut root = Node::empty_map();
    for (path, value) in overrides {
        let keys: Vec<&str> = path.keys().collect();
        let option = format!("--{}", keys.first().copied().unwrap_or_default());
        replace(&mut root, &keys, value, &SourceLocation::Option(option), errors);
    }
    root
}

fn replace(root: &mut Node, keys: &[&str], value: &str, location: &SourceLocation, errors: &mut Vec<ConfigError>) {
    let mut report_error = |path: SettingPath, message: String, hint: &str| {
        errors.push(ConfigError { location: location.clone(), path, message, hint: hint.into() });
    };
    if keys.iter().any(|key| key.is_empty()) {
        return report_error(SettingPath::ROOT, "contains an empty key".into(), "write it like TIDEGATE__ORIGIN__URL");
    }
    let path = keys.iter().fold(SettingPath::ROOT, |path, key| path.entry(key));
    // Only lists and maps are parsed as YAML: a token may contain any character, and `[::1]:80` is an address.
    let trimmed = value.trim();
    let nested =
        [('[', ']'), ('{', '}')].iter().any(|&(open, close)| trimmed.starts_with(open) && trimmed.ends_with(close));
    let kind = match nested {
        false => NodeKind::Text { text: value.to_owned(), is_untyped: true },
        true => {
            let (wrapped, yaml_errors) = yaml::read(&format!("value: {value}"));
            match wrapped.kind {
                NodeKind::Map(mut entries) if yaml_errors.is_empty() && entries.len() == 1 => {
                    entries.remove(0).value.kind
                }
                _ => {
                    if let Some(ConfigError { message, hint, .. }) =
                        yaml_errors.into_iter().find(|error| !error.path.is_root())
                    {
                        return report_error(path, message, &hint);
                    }
                    return report_error(
                        path,
                        "invalid list or map".into(),
                        "write a list as [a, b] and a map as {key: value}",
                    );
                }
            }
        }
    };
    let mut node = root;
    for key in keys {
        if !matches!(node.kind, NodeKind::Map(_)) {
            return report_error(path, "another variable overrides a parent key".into(), "set one of the two");
        }
        let NodeKind::Map(entries) = &mut node.kind else { return };
        let found = entries.iter().position(|entry| entry.key == *key);
        let index = found.unwrap_or(entries.len());
        if found.is_none() {
            let value = Node { location: location.clone(), kind: NodeKind::Map(Vec::new()) };
            entries.push(Entry { key: (*key).to_owned(), key_location: location.clone(), value });
        }
        node = &mut entries[index].value;
    }
    node.kind = kind;
    node.walk_mut(&SettingPath::ROOT, &mut |_, node| {
        node.location = location.clone();
        if let NodeKind::Map(entries) = &mut node.kind {
            entries.iter_mut().for_each(|entry| entry.key_location = location.clone());
        }
    });
}

/// Adds an error for each variable that overrides no key and has a name similar to one that does.
pub(super) fn warn_similar_names(environment: &[(String, String)], keys: &[&str], errors: &mut Vec<ConfigError>) {
    for (name, _) in environment {
        let Some(rest) = name.strip_prefix("TIDEGATE_").filter(|rest| !rest.starts_with('_')) else { continue };
        let Some((section, _)) = rest.split_once("__") else { continue };
        let section = section.to_lowercase();
        if keys.contains(&section.as_str()) || !did_you_mean(&section, keys.iter().copied()).is_empty() {
            errors.push(ConfigError {
                location: SourceLocation::Variable(name.clone()),
                path: SettingPath::ROOT,
                message: "overrides no key".into(),
                hint: format!("write it with two underscores: {PREFIX}{rest}"),
            });
        }
    }
}
