//! Tests that each stated default is the one that holds: in the schema, in config/tidegate.yaml and in the manuals.

use super::{EXAMPLE, load_with};
use crate::{ConfigErrors, duration, schema, section_names};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Keys whose default is not the same as its value in the file.
const NOT_THE_SAME: &[&str] = &[
    // In the file, it also holds for trusted proxies and loopback addresses.
    "limits.max_connections_per_address",
    // In the file, it also holds for event streams.
    "origin.response_timeout",
    "origins.NAME.response_timeout",
    // Only a quota with budgets has it, and the file has none.
    "quotas.NAME.max_keys",
    "scopes.NAME.quota.max_keys",
    // In the file, it makes the path of the route match in any case.
    "routes[N].scopes",
];

/// Sections of the example whose values are those of its site. Elsewhere, a value without a comment on it is the default.
const OF_THE_SITE: &[&str] = &["classes", "quotas", "routes"];

/// A file with every section that has a default, and in it only what is required.
const SECTIONS: &str = "
listen:
  - { address: 127.0.0.1:8081, tls: { certificate: a, key: b, client_ca: c } }
  - { address: 127.0.0.1:8082, tls: { acme: { domains: [a.example] } } }
admin: {}
forward_auth: { listen: 127.0.0.1:9092 }
ledger: { redis: { url: redis://127.0.0.1 } }
origin: { url: https://127.0.0.1:3000, health: { check: { path: /a } } }
hosts: [a.example]
clients: {}
sessions: {}
verify: { dns: {}, signatures: {} }
bot_detection: {}
api_keys: [{ name: a, class: d, sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 }]
quotas:
  api:
    limit: 100
    window: { calendar: day }
    pacing: {}
    tiers: { a: { steps: [{ above: 50%, shed: 50% }] } }
  shared: { limit: 100, window: { calendar: day }, pacing: { mode: even, weights: { a: 2 } } }
  tokens: { limit: 100, window: { calendar: day }, cost_json: { path: a.b } }
classes:
  - { name: a, when: { operator: googlebot }, bucket: { rate: 1/s }, crawler_guard: {} }
  - { name: b, when: { kind: declared_bot } }
  - { name: d, when: { api_key: own } }
  - { name: c }
scopes:
  default: { concurrency: 4, delay: 1s, backoff: {}, queue: {} }
  latency: { delay: 1s, autothrottle: {} }
  gradient: { concurrency: 9, adaptive_concurrency: {} }
  overload: { delay: 1s, backoff: {}, rampup: {} }
  tenant: { partition_by: host, concurrency: 2 }
routes:
  - { match: /a, cost: { api: 1 }, scopes: [latency, gradient, overload, tenant] }
  - { match: /b, cache: { ttl: 1m } }
  - { match: /c, redirect: { to: /d } }
  - { match: /d, cost: { api: { json: a, per_byte: 2 } } }
cache: { disk: {} }
compression: {}
headers: {}
robots: {}
crawl_policy: {}
log: { access: { path: a, max_size: 1MiB } }
notify: [{ webhook: 'https://a.example/' }]
traces: { endpoint: 'http://a.example' }
limits: {}
";

#[test]
fn key_with_its_stated_default_is_as_without_it() {
    let base = yaml(SECTIONS).expect("valid YAML");
    let mut results: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, property) in keys() {
        let Some(default) = default_of(&property).filter(|_| !NOT_THE_SAME.contains(&path.as_str())) else { continue };
        // A value or a list of it is one key, and the quota of a scope and one of several origins are like any other.
        let name = path.replace("[N]", "").replace("scopes.NAME.quota.", "quotas.NAME.");
        let results = results.entry(name.replace("origins.NAME.", "origin.")).or_default();
        let (section, key) = path.rsplit_once('.').unwrap_or(("", &path));
        for pointer in pointers(&base, section) {
            let mut file = base.clone();
            let section = file.pointer_mut(&pointer).and_then(Value::as_object_mut).expect("the section");
            section.remove(key);
            let without = load_debug(&file);
            file.pointer_mut(&pointer).expect("the section")[key] = default.clone();
            results.push(match (without, load_debug(&file)) {
                (Ok(without), Ok(with)) if with == without => String::new(),
                (Ok(_), Ok(_)) => format!("{path} is not {default}\n"),
                (Err(error), _) | (_, Err(error)) => format!("{path}, {default}: {error}\n"),
            });
        }
    }
    let not_found: Vec<_> = results.iter().filter(|(_, results)| results.is_empty()).map(|(path, _)| path).collect();
    assert!(not_found.is_empty(), "SECTIONS lacks the sections of {not_found:?}");
    // A key that is not allowed in one place is in another.
    let wrong: String =
        results.values().filter(|results| !results.contains(&String::new())).flatten().cloned().collect();
    assert!(wrong.is_empty(), "{wrong}");
    assert!(results.len() > 100, "{results:?}");
}

#[test]
fn example_states_the_defaults_of_the_schema() {
    let keys: BTreeMap<String, Value> = keys().into_iter().collect();
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for ExampleKey { path, value, comment, holds_defaults } in example_keys(&keys) {
        let default = default_of(&keys[&path]);
        // A comment of its own says what holds in place of the value.
        let holds_default = holds_defaults && default.is_some() && !comment.contains("Default");
        let claims = [stated_default(&comment), value.filter(|_| holds_default)];
        for claim in claims.into_iter().flatten() {
            match &default {
                Some(default) if is_same(default, &claim) => checked += 1,
                Some(default) => wrong.push(format!("{path}: the default is {default}, not {claim}")),
                None => wrong.push(format!("{path}: {claim} is not stated by the schema")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 80, "{checked}");
}

#[test]
fn example_has_every_key() {
    // The text of each section, with the comments above it.
    let (mut sections, mut current, mut pending) = (BTreeMap::<&str, String>::new(), "", String::new());
    for line in EXAMPLE.lines() {
        let name = line.trim_start_matches("# ").split(':').next().unwrap_or_default();
        let is_start = !line.starts_with([' ', '-']) && !line.starts_with("#  ") && section_names().contains(&name);
        current = if is_start { name } else { current };
        pending = pending + line + "\n";
        if is_start || !line.starts_with('#') {
            *sections.entry(current).or_default() += &std::mem::take(&mut pending);
        }
    }
    let has_key = |path: &str| {
        let section = sections.get(path.split(['.', '[']).next().unwrap_or_default());
        let key = path.rsplit('.').next().unwrap_or(path);
        section.is_some_and(|text| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == key))
    };
    let is_own = |path: &&String| !path.starts_with("scopes.NAME.quota.") && !path.starts_with("origins.NAME.");
    let missing: Vec<String> =
        keys().into_iter().map(|(path, _)| path).filter(|path| is_own(&path) && !has_key(path)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn manuals_state_the_defaults_of_the_schema() {
    let claim = regex::Regex::new(r"`([a-z_.]+)`(?:[^`|]{0,40}\(default |, )([0-9]+[A-Za-z%]*( %)?)( by default)?")
        .expect("valid");
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let (keys, mut checked) = (keys(), 0);
    for file in std::fs::read_dir(docs).expect("directory").map(|entry| entry.expect("entry").path()) {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        let claims = claim.captures_iter(&text).filter(|claim| claim[0].contains("default"));
        for claim in claims {
            let (key, value) = (&claim[1], yaml(&claim[2].replace(' ', "")).expect("a value"));
            let defaults = keys.iter().filter(|(path, _)| path == key || path.ends_with(&format!(".{key}")));
            let defaults: Vec<Value> = defaults.filter_map(|(_, property)| default_of(property)).collect();
            assert!(defaults.iter().any(|default| is_same(default, &value)), "{file:?}: {}: {defaults:?}", &claim[0]);
            checked += 1;
        }
    }
    assert!(checked >= 1, "{checked}");
}

/// A key in the example, in use or commented out.
struct ExampleKey {
    /// Path as in [`keys`].
    path: String,
    /// The value, if it is on the line of the key.
    value: Option<Value>,
    /// The comment of the key.
    comment: String,
    /// The values of the section are the defaults, if their comments do not name another.
    holds_defaults: bool,
}

/// Returns the keys that have a line of their own in the example. `keys` are those of the schema.
fn example_keys(keys: &BTreeMap<String, Value>) -> Vec<ExampleKey> {
    // Columns and paths of the keys around the line.
    let mut around: Vec<(usize, String)> = Vec::new();
    let (mut found, mut comment, mut section_has_defaults) = (Vec::<ExampleKey>::new(), String::new(), None);
    for line in EXAMPLE.lines() {
        let mut text = line.to_owned();
        let key = loop {
            let column = text.len() - text.trim_start().len();
            let content = text.trim_start();
            let content = content.strip_prefix("- ").unwrap_or(content);
            let column = column + text.trim_start().len() - content.len();
            let name = content.split(':').next().unwrap_or_default();
            let is_list = text.trim_start().starts_with("- ");
            let parent = around.iter().rev().find(|(around, _)| *around < column - if is_list { 2 } else { 0 });
            let parent = parent.map_or("", |(_, path)| path.as_str());
            let candidates = |name: &str| {
                let below = |step: &str| if parent.is_empty() { step.to_owned() } else { format!("{parent}.{step}") };
                [below(name), format!("{parent}[N].{name}"), below("NAME")]
            };
            let known = candidates(name).into_iter().find(|path| {
                keys.contains_key(path)
                    || (path.ends_with("NAME") && keys.keys().any(|key| key.starts_with(path.as_str())))
            });
            match known.filter(|_| content.len() > name.len() && !name.contains(' ')) {
                Some(path) => break Some((column, path, content[name.len() + 1..].trim().to_owned())),
                None if text.trim_start().starts_with("# ") => text = text.replacen("# ", "", 1),
                None => break None,
            }
        };
        match key {
            Some((column, path, rest)) => {
                around.retain(|(other, _)| *other < column);
                around.push((column, path.clone()));
                let (value, trailing) =
                    rest.split_once(" #").or(rest.strip_prefix('#').map(|rest| ("", rest))).unwrap_or((&rest, ""));
                if column == 0 {
                    section_has_defaults = (!OF_THE_SITE.contains(&path.as_str())).then(|| path.clone());
                }
                let holds_defaults = section_has_defaults.is_some();
                let comment = std::mem::take(&mut comment) + " " + trailing;
                if keys.contains_key(&path) {
                    found.push(ExampleKey {
                        path,
                        value: yaml(value).filter(|value| !value.is_null()),
                        comment,
                        holds_defaults,
                    });
                }
            }
            // The comment of the line above goes on far to the right.
            None if line.find('#').is_some_and(|column| column > 20) => {
                if let Some(key) = found.last_mut() {
                    key.comment += line.trim_start_matches([' ', '#']);
                }
            }
            None if line.trim_start().starts_with('#') => comment = comment + line.trim_start_matches([' ', '#']) + " ",
            None => comment.clear(),
        }
    }
    found
}

/// Returns true if two values mean the same, such as 5m and 300s.
fn is_same(left: &Value, right: &Value) -> bool {
    let as_duration = |value: &Value| value.as_str().and_then(duration);
    left == right || (as_duration(left).is_some() && as_duration(left) == as_duration(right))
}

/// Returns all keys of the schema with their schemas. `NAME` and `[N]` stand for names and places in a list.
pub(super) fn keys() -> Vec<(String, Value)> {
    fn collect(root: &Value, schema: &Value, path: &str, found: &mut Vec<(String, Value)>) {
        if let Some(reference) = schema["$ref"].as_str() {
            let definition = root.pointer(reference.trim_start_matches('#')).expect("a definition");
            return collect(root, definition, path, found);
        }
        let forms = [&schema["anyOf"], &schema["oneOf"]].into_iter().filter_map(Value::as_array).flatten();
        forms.for_each(|form| collect(root, form, path, found));
        for (key, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            found.push((path.clone(), property.clone()));
            collect(root, property, &path, found);
        }
        if schema["items"].is_object() {
            collect(root, &schema["items"], &format!("{path}[N]"), found);
        }
        if schema["additionalProperties"].is_object() {
            collect(root, &schema["additionalProperties"], &format!("{path}.NAME"), found);
        }
    }
    let (schema, mut found) = (schema(), Vec::new());
    collect(&schema, &schema, "", &mut found);
    found
}

/// Returns the JSON Pointers of all maps of `file` at `path`, in which `NAME` is any key and `[N]` any item.
fn pointers(file: &Value, path: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for step in path.replace("[N]", ".N").split('.').filter(|step| !step.is_empty()) {
        let children = |pointer: &String| -> Vec<String> {
            match file.pointer(pointer) {
                Some(Value::Object(entries)) => entries
                    .keys()
                    .filter(|key| step == "NAME" || step == *key)
                    .map(|key| format!("{pointer}/{key}"))
                    .collect(),
                Some(Value::Array(items)) if step == "N" => {
                    (0..items.len()).map(|index| format!("{pointer}/{index}")).collect()
                }
                _ => Vec::new(),
            }
        };
        found = found.iter().flat_map(children).collect();
    }
    found.retain(|pointer| file.pointer(pointer).is_some_and(Value::is_object));
    found
}

/// Returns the default of a key; `None` if it is no value, such as `none`.
fn default_of(property: &Value) -> Option<Value> {
    match &property["default"] {
        Value::Null => property["description"].as_str().and_then(stated_default),
        Value::Array(items) if items.is_empty() => None,
        default => Some(default.clone()),
    }
}

/// Returns the value that `text` states as default; `None` if it states none, or it is no value.
fn stated_default(text: &str) -> Option<Value> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, rest) = text.split_once("Default ")?;
    value_at_start(rest)
}

/// Returns the value at the start of `text`, unless further words say what it means.
fn value_at_start(text: &str) -> Option<Value> {
    let text = text.trim_end_matches('.');
    let end = match text.chars().next()? {
        '[' => text.find(']')? + 1,
        '{' => text.find('}')? + 1,
        _ => [", ", ": ", ". ", "; ", " ", ")"].iter().filter_map(|end| text.find(end)).min().unwrap_or(text.len()),
    };
    let (value, rest) = text.split_at(end);
    let is_sentence = rest.starts_with(' ') || value.is_empty();
    let is_value = !is_sentence && !["none", "any", "no"].contains(&value);
    if is_value { yaml(value.trim_matches('`')) } else { None }
}

fn load_debug(file: &Value) -> Result<String, ConfigErrors> {
    load_with(&file.to_string(), &[], &[]).map(|settings| format!("{settings:?}"))
}

fn yaml(text: &str) -> Option<Value> {
    serde_saphyr::from_str_with_options(text, serde_saphyr::options! { strict_booleans: true }).ok()
}
