//! Section `api_keys`: the keys of customers, in the configuration or in a file of their own.

use crate::calendar::start_of_day;
use crate::error::{ConfigError, SourceLocation};
use crate::node::{Entry, Node, NodeKind};
use crate::scalars::Amount;
use crate::section::{any, section};
use crate::serde_forms::NamedMap;
use crate::setting_path::SettingPath;
use crate::validate::diagnostics::Diagnostics;
use crate::yaml;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tidegate_policy::ClassId;
use tidegate_policy::api_keys::{ApiKey, ApiKeyList, KeyHash, customer};
use tidegate_policy::budget::{Budget, BudgetKey, CustomerSource};
use tidegate_policy::class::{Class, KeyCondition};
use tidegate_policy::identity::ClientKey;
use tidegate_policy::quota::Quota;

/// Maximum number of keys: a file of more has too many nodes.
const MAX_KEYS: usize = 10_000;

/// Maximum size of a file of keys, in bytes.
const MAX_FILE_BYTES: u64 = 8 << 20;

/// Name of the section.
pub(crate) const SECTION: &str = "api_keys";

/// The keys, once those of a file are read.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApiKeys(pub Vec<ApiKeyKeys>);

section! {
    /// API key of a customer.
    pub(crate) struct ApiKeyKeys {
        /// Name of the customer, by which its usage is counted, also after its key has changed. Metrics, logs and `tidegate usage`
        /// show it: up to 64 of a-z, 0-9, `_`, `.` and `-`. Required.
        name: Option<String>;
        /// Class of the customer, which has the condition `api_key: own`. Required.
        class: Option<String>;
        /// SHA-256 of the text of the key, as 64 hexadecimal digits. `tidegate keys add` creates keys. Required.
        sha256: Option<String>;
        /// Day from whose start in UTC on the key is invalid, such as 2027-01-01. Default none.
        expires: Option<String>;
        /// true: the key is invalid.
        disabled: bool = false => bool, any;
        /// Limits of the customer by quota, in place of those of its class. The quota counts `per: api_key`. Default none.
        limits: NamedMap<Amount>;
    }
}

impl<'de> Deserialize<'de> for ApiKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self)
    }
}

impl JsonSchema for ApiKeys {
    fn schema_name() -> Cow<'static, str> {
        "ApiKeys".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let keys = generator.subschema_for::<Vec<ApiKeyKeys>>();
        let file = json_schema!({
            "type": "object", "properties": { "file": { "type": "string" } }, "required": ["file"], "additionalProperties": false
        });
        json_schema!({ "anyOf": [keys, file] })
    }
}

/// Replaces `api_keys: { file: PATH }` in the tree of the file `config` by the keys in that file, or in `text` in its place, and
/// returns its path. A file that is no list of keys is reported at its name.
pub(crate) fn read_file(
    tree: &mut Node,
    config: &Path,
    text: Option<&str>,
    errors: &mut Vec<ConfigError>,
) -> Option<PathBuf> {
    let section = entry(tree, SECTION)?;
    let location = section.location.clone();
    let NodeKind::Map(keys) = &section.kind else { return None };
    let path = match keys.as_slice() {
        [Entry { key, value: Node { kind: NodeKind::Text { text, .. }, .. }, .. }] if key == "file" => {
            Some(text.clone())
        }
        _ => None,
    };
    let path = path.map(|path| config.parent().unwrap_or(Path::new("")).join(path));
    let read = match &path {
        Some(path) => {
            text.map_or_else(|| read_text(path), |text| Ok(text.to_owned())).and_then(|text| parse_keys(path, &text))
        }
        None => {
            Err(("needs a list of keys, or the name of a file".into(), "write api_keys: { file: keys.yaml }".into()))
        }
    };
    let keys = read.unwrap_or_else(|(message, hint)| {
        errors.push(ConfigError { location: location.clone(), path: SettingPath::ROOT.api_keys(), message, hint });
        Node { location: location.clone(), kind: NodeKind::List(Vec::new()) }
    });
    *section = keys;
    if let Some(file) = &path {
        section.walk_mut(&SettingPath::ROOT, &mut |_, node| {
            locate_in(file, &mut node.location);
            if let NodeKind::Map(entries) = &mut node.kind {
                entries.iter_mut().for_each(|entry| locate_in(file, &mut entry.key_location));
            }
        });
        // The list as a whole is where the file is named, so that a rule that needs keys names that line.
        section.location = location;
    }
    path
}

/// Changes a position to one in the file of the keys.
fn locate_in(file: &Path, location: &mut SourceLocation) {
    if let SourceLocation::Position { line, column } = *location {
        *location = SourceLocation::KeyFile { file: file.to_owned(), line, column };
    }
}

/// Returns the text of a file of keys, or what is wrong and what would do.
fn read_text(path: &Path) -> Result<String, (String, String)> {
    let unreadable =
        |problem: String, hint: &str| (format!("{} cannot be read: {problem}", path.display()), hint.into());
    let failed = |error: std::io::Error| {
        let hint = match error.kind() {
            ErrorKind::NotFound => "create the first key by: tidegate keys add NAME --class CLASS",
            _ => "name a file that the gateway can read",
        };
        unreadable(error.to_string(), hint)
    };
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
        return Err(unreadable("no regular file of up to 8 MiB".into(), "name a file of keys"));
    }
    std::fs::read_to_string(path).map_err(failed)
}

/// Returns the list in the text of a file of keys, or what is wrong and what would do.
fn parse_keys(path: &Path, text: &str) -> Result<Node, (String, String)> {
    let (mut tree, errors) = yaml::read(text);
    if let Some(error) = errors.into_iter().next() {
        return Err((format!("{}: {}", error.location.in_file(path), error.message), error.hint));
    }
    if let NodeKind::Map(entries) = &tree.kind
        && let Some(other) = entries.iter().find(|entry| entry.key != SECTION)
        && entries.len() > 1
    {
        let at = other.key_location.in_file(path);
        let hint = "keep other settings in the configuration file";
        return Err((format!("{at}: found {:?} beside api_keys", other.key), hint.to_owned()));
    }
    let is_empty = matches!(&tree.kind, NodeKind::Map(entries) if entries.is_empty());
    match entry(&mut tree, SECTION) {
        Some(keys @ Node { kind: NodeKind::List(_), .. }) => Ok(keys.clone()),
        // What is left of a list without its last key.
        Some(Node { location, kind: NodeKind::Null }) => {
            Ok(Node { location: location.clone(), kind: NodeKind::List(Vec::new()) })
        }
        None if is_empty => Ok(Node { location: SourceLocation::START, kind: NodeKind::List(Vec::new()) }),
        _ => {
            Err((format!("{} has no list `api_keys`", path.display()), "write api_keys: and a list of keys".to_owned()))
        }
    }
}

fn entry<'a>(tree: &'a mut Node, key: &str) -> Option<&'a mut Node> {
    let NodeKind::Map(entries) = &mut tree.kind else { return None };
    entries.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.value)
}

/// Returns the list of the keys, and reports invalid ones. Sets the limits that they have of their own in `quotas`, whose
/// customers are `named_by` a credential.
pub(crate) fn api_keys(
    ApiKeys(raw): &ApiKeys,
    classes: &[Class],
    quotas: &mut [Quota],
    named_by: Option<&CustomerSource>,
    report: &mut Diagnostics,
) -> ApiKeyList {
    let section = SettingPath::ROOT.api_keys();
    report.check_len(
        &section,
        "keys",
        raw.len(),
        MAX_KEYS,
        "let the application behind the gateway check further ones",
    );
    let mut keys: HashMap<KeyHash, ApiKey> = HashMap::new();
    let mut names: HashMap<&str, usize> = HashMap::new();
    for (index, key) in raw.iter().enumerate() {
        let path = section.index(index);
        let name = key.name.as_deref().unwrap_or_default();
        match key.name.is_some() {
            true => report.check_name(&path.name(), name),
            false => report.error(&path.name(), "missing", "write the name of the customer"),
        }
        if let Some(earlier) = names.insert(name, index).filter(|_| key.name.is_some()) {
            let message = format!("duplicate name {name:?}: {} has it, too", section.index(earlier));
            report.error(&path.name(), message, "give each key its own name");
        }
        let Some((class, hash)) = class(key, &path, classes, report).zip(hash(key, &path, report)) else { continue };
        let expires = key.expires.as_ref().and_then(|day| {
            let time = start_of_day(day);
            if time.is_none() {
                report.error(&path.expires(), format!("found {day:?}, needs a day"), "write it like 2027-01-01");
            }
            time
        });
        let has_budgets =
            |budget: &Budget| budget.per == BudgetKey::Customer && named_by == Some(&CustomerSource::ApiKey);
        set_limits(key, customer(name), &path, quotas, has_budgets, report);
        let listed = ApiKey { name: name.to_owned(), class, expires, disabled: key.disabled };
        if let Some(earlier) = keys.insert(hash, listed) {
            let message = format!("{:?} has the same key", earlier.name);
            report.error(
                &path.sha256(),
                message,
                "create a key for each customer: tidegate keys add NAME --class CLASS",
            );
        }
    }
    ApiKeyList::new(keys)
}

fn set_limits(
    key: &ApiKeyKeys,
    customer: ClientKey,
    path: &SettingPath,
    quotas: &mut [Quota],
    has_budgets: impl Fn(&Budget) -> bool,
    report: &mut Diagnostics,
) {
    for (name, Amount(limit)) in &key.limits.0 {
        let path = path.limits().entry(name);
        if limit.is_zero() {
            report.error(&path, "found 0", "write the units of the customer, or disabled: true");
        }
        let quota = quotas.iter_mut().find(|quota| quota.name == *name);
        match quota.map(|quota| quota.budget.as_mut().filter(|budget| has_budgets(budget))) {
            Some(Some(budget)) => drop(budget.key_limits.insert(customer, *limit)),
            Some(None) => {
                report.error(&path, format!("{name} does not count by key"), "write per: api_key at the quota");
            }
            None => report.unknown_name(&path, "quota", name, quotas.iter().map(|quota| quota.name.as_str())),
        }
    }
}

fn class(key: &ApiKeyKeys, path: &SettingPath, classes: &[Class], report: &mut Diagnostics) -> Option<ClassId> {
    let Some(name) = &key.class else {
        report.error(&path.class(), "missing", "write the name of a class with the condition api_key: own");
        return None;
    };
    let Some(index) = classes.iter().position(|class| class.name == *name) else {
        report.unknown_name(&path.class(), "class", name, classes.iter().map(|class| class.name.as_str()));
        return None;
    };
    if !matches!(classes[index].matcher.keys, Some(KeyCondition::Listed)) {
        let message = format!("no key makes a client one of class {name}");
        report.error(&path.class(), message, format!("write {{ name: {name}, when: {{ api_key: own }} }}"));
    }
    Some(ClassId::from_index(index))
}

/// Returns the hash of a key. A text that is none is not shown: it may be the key itself.
fn hash(key: &ApiKeyKeys, path: &SettingPath, report: &mut Diagnostics) -> Option<KeyHash> {
    let text = key.sha256.as_deref().unwrap_or_default();
    let hash = parse_hash(text);
    if hash.is_none() {
        let message = if text.is_empty() { "missing" } else { "needs the 64 hexadecimal digits of a SHA-256" };
        report.error(&path.sha256(), message, "create the key by: tidegate keys add NAME --class CLASS");
    }
    hash
}

/// Returns the hash of hexadecimal digits.
fn parse_hash(text: &str) -> Option<KeyHash> {
    let mut hash = KeyHash::default();
    let digits = text.as_bytes();
    if digits.len() != 2 * hash.len() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (index, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(hash)
}
