//! Values of keys that the file leaves out and that depend on others: the built-in classes, and the window, pacing, tiers
//! and client share of each quota.
//!
//! They are written as the file would write them and added to its tree, so that they are read, validated, printed and
//! replaced like values of the file. Defaults that depend on nothing are those of [`crate::section`].

use super::error::SourceLocation;
use super::layers;
use super::setting_path::SettingPath;
use super::settings::{DefaultValue, Settings};
use super::source_map::SourceMap;
use super::validate::classes::OTHER_CLASS;
use super::yaml;
use ::config::{Map, Value, ValueKind};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Returns the text of a file with the defaults of its `settings` written out, which means the same. `None` if the file has
/// another layout than keys on lines of their own and maps in braces.
pub fn write_out(text: &str, settings: &Settings) -> Option<String> {
    let (mut inserted, mut last) = (BTreeMap::<usize, String>::new(), String::new());
    for DefaultValue { section, text: value } in &settings.defaults {
        if section.is_root() {
            last = format!("{last}\n{value}\n");
            continue;
        }
        let Some(first_key) = settings.source_map.first_key(section) else {
            // A word in place of a map: `pacing: learned`.
            let at = offset(text, settings.source_map.position(section)?)?;
            let word = text[at..].find(|letter: char| !letter.is_ascii_alphabetic());
            let end = word.map_or(text.len(), |len| at + len);
            inserted.entry(at).or_default().push_str("{ mode: ");
            inserted.entry(end).or_default().push_str(&format!(", {value} }}"));
            continue;
        };
        let at = offset(text, first_key)?;
        let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let indentation = &text[line..at];
        let value = match is_in_braces(&text[..at]) {
            true => format!("{value}, "),
            false if indentation.trim().is_empty() => format!("{value}\n{indentation}"),
            false => return None,
        };
        inserted.entry(at).or_default().push_str(&value);
    }
    let mut written = text.to_owned();
    inserted.iter().rev().for_each(|(at, value)| written.insert_str(*at, value));
    if !last.is_empty() && !written.ends_with('\n') {
        written.push('\n');
    }
    Some(written + &last)
}

/// Returns true if a key after this text is in braces, not on a line of its own.
fn is_in_braces(before: &str) -> bool {
    let code = before.lines().rev().map(|line| if line.trim_start().starts_with('#') { "" } else { line });
    let code = code.map(|line| line.split(" #").next().unwrap_or_default().trim_end());
    code.filter(|line| !line.is_empty()).take(1).any(|line| line.ends_with(['{', ',']))
}

/// Returns the offset of a position in the text; `None` for a place outside of it, such as a variable.
fn offset(text: &str, location: &SourceLocation) -> Option<usize> {
    let SourceLocation::Position { line, column } = *location else { return None };
    let (line, column) = (usize::try_from(line).ok()? - 1, usize::try_from(column).ok()? - 1);
    let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    text[start..].char_indices().nth(column).map(|(column, _)| start + column)
}

/// Operators of search engines.
pub const SEARCH_ENGINES: [&str; 10] = [
    "googlebot",
    "bingbot",
    "applebot",
    "duckduckbot",
    "yandexbot",
    "baiduspider",
    "yeti",
    "seznambot",
    "petalbot",
    "sogou",
];

/// The built-in classes after that of search engines, but the last two.
const CLASSES: &str = "
  - name: feed
    when:
      kind: declared_bot
      user_agent: [
        Feedly, Inoreader, NewsBlur, Feedbin, FreshRSS, Miniflux, Tiny Tiny RSS, NetNewsWire, theoldreader, Feedspot,
        BazQux, Bloglovin, Nextcloud-News, Newsboat, CommaFeed, Liferea]
    priority: 2
  - name: monitor
    when:
      kind: [verified_bot, declared_bot]
      user_agent: [
        UptimeRobot, Pingdom, StatusCake, Better Uptime, Site24x7, updown.io, HetrixTools, Uptime-Kuma, NodePing, Checkly,
        Freshping, GoogleStackdriverMonitoring, Amazon-Route53-Health-Check, DatadogSynthetics, ELB-HealthChecker,
        kube-probe]
    priority: 1
  - { name: bot, when: { kind: [verified_bot, declared_bot, suspected_bot, impostor] }, priority: 0 }";

/// The built-in class of people without a session, where there are sessions.
const STRANGERS: &str = "\n  - { name: stranger, when: { session: none }, priority: 1 }";
/// The same in shadow mode.
const SHADOW_STRANGERS: &str = "\n  - { name: stranger, when: { session: none }, priority: 1, enforce: false }";

/// The built-in class of the other clients, of the kind `human`.
const PEOPLE: &str = "\n  - { name: person, priority: 4 }";

/// Tiers of the built-in class `bot`. They hold while more is used than planned.
const TIERS: &str = "{ bot: [{ above: 50%, shed: 50% }, { above: 75%, shed: 75% }, { above: 90%, shed: 100% }] }";

/// Client share of a quota, in percent, and the pages that it suffices for at least.
const CLIENT_PERCENT: f64 = 5.0;
const MIN_CLIENT_PAGES: f64 = 20.0;

/// Number of times that the weight of a class is doubled at most: weights end at 1000.
const MAX_DOUBLINGS: usize = 9;

/// Adds the defaults to a `tree`, and returns them. `operators` are the names of the built-in operators, `zone` is the
/// IANA name of the system's time zone.
pub(super) fn add(tree: &mut Value, operators: &[&str], zone: &str) -> Vec<DefaultValue> {
    let mut added = Vec::new();
    let Some(root) = table(tree) else { return added };
    let is_builtin = !is_set(root, "classes") && !quotas(root).any(|(_, _, quota)| names_other(quota));
    if is_builtin {
        let classes = format!("{}{}{PEOPLE}", builtin_classes(operators), strangers(root));
        insert(root, &SettingPath::ROOT, "classes", &classes, &mut added);
    }
    let weights = root.get("classes").map(weights).unwrap_or_default();
    let page_costs = page_costs(root);
    for (name, section, quota) in quotas(root) {
        if quota.kind == ValueKind::Nil {
            quota.kind = ValueKind::Table(Map::new());
        }
        if let Some(quota) = table(quota) {
            let page_cost = page_costs.get(&name).copied().unwrap_or(1.0);
            let builtin_page_cost = is_builtin.then_some(page_cost);
            complete_quota(quota, &section, zone, &weights, builtin_page_cost, &mut added);
        }
    }
    added.sort_by(|left, right| left.section.cmp(&right.section));
    added
}

/// Returns the quotas with their names and paths, those of scopes, too.
fn quotas(root: &mut Map<String, Value>) -> impl Iterator<Item = (String, SettingPath, &mut Value)> {
    let (mut own, mut of_scopes) = (Vec::new(), Vec::new());
    for (key, section) in root {
        match key.as_str() {
            "quotas" => {
                let quotas = entries(Some(section));
                own.extend(quotas.map(|(name, quota)| (name.clone(), SettingPath::of_quota(name), quota)));
            }
            "scopes" => of_scopes.extend(entries(Some(section)).filter_map(|(name, scope)| {
                Some((name.clone(), SettingPath::of_scope(name).quota(), table(scope)?.get_mut("quota")?))
            })),
            _ => {}
        }
    }
    own.into_iter().chain(of_scopes)
}

/// Returns true if the quota has tiers or a weight of the class `other`, which only a file without the built-in classes has.
fn names_other(quota: &mut Value) -> bool {
    let Some(quota) = table(quota) else { return false };
    let weights = entries(quota.get_mut("pacing")).filter(|(key, _)| *key == "weights");
    let of_weights: Vec<&String> =
        weights.flat_map(|(_, weights)| entries(Some(weights))).map(|(name, _)| name).collect();
    of_weights.into_iter().any(|name| name == OTHER_CLASS)
        || entries(quota.get_mut("tiers")).any(|(name, _)| name == OTHER_CLASS)
}

/// Adds what a quota leaves out. `builtin_page_cost` is the highest cost of a page in it, if the classes are the built-in ones.
fn complete_quota(
    quota: &mut Map<String, Value>,
    section: &SettingPath,
    zone: &str,
    weights: &[(String, u32)],
    builtin_page_cost: Option<f64>,
    added: &mut Vec<DefaultValue>,
) {
    if !is_set(quota, "window") {
        insert(quota, section, "window", &format!("{{ calendar: day, zone: {zone} }}"), added);
    }
    // Tiers, plan and share of a client are for what all requests use together.
    if is_set(quota, "tiers") || is_set(quota, "per") {
        return;
    }
    // Neither a plan nor a share of a client fits a window without an end.
    let has_end = entries(quota.get_mut("window")).all(|(key, _)| key != "sliding");
    let classes: Vec<String> = weights.iter().map(|(class, weight)| format!("{class}: {weight}")).collect();
    let weights = format!("{{ {} }}", classes.join(", "));
    if is_set(quota, "pacing") {
        if let Some(pacing) = quota.get_mut("pacing").filter(|_| !classes.is_empty()).and_then(without_weights) {
            insert(pacing, &section.pacing(), "weights", &weights, added);
        }
        return;
    }
    if has_end && !classes.is_empty() {
        insert(quota, section, "pacing", &format!("{{ mode: learned, weights: {weights} }}"), added);
    }
    let Some(page_cost) = builtin_page_cost else { return };
    // Below, the steps would be one.
    if quota.get("limit").and_then(amount).is_none_or(|limit| limit >= 1.0) {
        insert(quota, section, "tiers", TIERS, added);
    }
    let share = client_share(quota.get("limit"), page_cost).filter(|_| has_end && !is_set(quota, "per_client"));
    if let Some(share) = share {
        insert(quota, section, "per_client", &share, added);
    }
}

fn is_set(section: &Map<String, Value>, key: &str) -> bool {
    section.get(key).is_some_and(|value| value.kind != ValueKind::Nil)
}

/// Returns the keys of pacing that is on and has no weights, also if it is a word.
fn without_weights(pacing: &mut Value) -> Option<&mut Map<String, Value>> {
    if matches!(words(pacing)[..], ["even" | "learned"]) {
        let mode = std::mem::replace(pacing, Value::new(None, ValueKind::Table(Map::new())));
        table(pacing)?.insert("mode".to_owned(), mode);
    }
    let keys = table(pacing)?;
    let is_on = keys.get("mode").is_some_and(|mode| matches!(words(mode)[..], ["even" | "learned"]));
    (is_on && !is_set(keys, "weights")).then_some(keys)
}

/// Returns the share of a client, at least that of a person who reads some pages of `page_cost` units; `None` if that is the
/// whole limit.
fn client_share(limit: Option<&Value>, page_cost: f64) -> Option<String> {
    let (limit, least) = (amount(limit?)?, MIN_CLIENT_PAGES * page_cost);
    match () {
        () if limit * CLIENT_PERCENT / 100.0 >= least => Some(format!("{CLIENT_PERCENT}%")),
        () if limit > least => Some(least.to_string()),
        () => None,
    }
}

/// Returns the highest cost of a route in each quota, at least a unit.
fn page_costs(root: &Map<String, Value>) -> HashMap<String, f64> {
    let mut costs = HashMap::new();
    let routes = root.get("routes").map(items).unwrap_or_default();
    for (quota, cost) in routes.iter().filter_map(|route| field(route, "cost")).filter_map(keys).flatten() {
        let highest: &mut f64 = costs.entry(quota.clone()).or_insert(1.0);
        // Of what bodies state, the least is known.
        let cost = field(cost, "default").unwrap_or(cost);
        *highest = highest.max(amount(cost).unwrap_or(1.0));
    }
    costs
}

fn amount(value: &Value) -> Option<f64> {
    match &value.kind {
        ValueKind::U64(amount) => Some(*amount as f64),
        ValueKind::I64(amount) => Some(*amount as f64),
        ValueKind::Float(amount) => Some(*amount),
        ValueKind::String(amount) => amount.trim().parse().ok(),
        _ => None,
    }
}

fn builtin_classes(operators: &[&str]) -> String {
    let search: Vec<&str> = SEARCH_ENGINES.into_iter().filter(|name| operators.contains(name)).collect();
    // A class that names none would have every client.
    if search.is_empty() {
        return CLASSES.to_owned();
    }
    let operators = search.join(", ");
    format!(
        "\n  - name: search\n    when: {{ operator: [{operators}] }}\n    priority: 3\n    per_client: false{CLASSES}"
    )
}

/// Returns the built-in class of people without a session; none if there are no sessions.
fn strangers(root: &Map<String, Value>) -> &'static str {
    let Some(sessions) = root.get("sessions") else { return "" };
    let is_shadow = field(sessions, "enforce").is_some_and(|enforce| enforce.kind == ValueKind::Boolean(false));
    match &sessions.kind {
        ValueKind::Table(_) if is_shadow => SHADOW_STRANGERS,
        ValueKind::Table(_) => STRANGERS,
        _ if word(sessions) == Some("on") => STRANGERS,
        _ => "",
    }
}

/// Returns the weight of each class that has no people, by its name in YAML, for what people leave: doubled with each
/// priority, so that search engines come clearly first.
fn weights(classes: &Value) -> Vec<(String, u32)> {
    let mut bots: Vec<(&str, u64)> = items(classes).iter().filter_map(class_without_people).collect();
    // A second class of the same name is an error.
    let mut names = HashSet::new();
    bots.retain(|(name, _)| names.insert(*name));
    let priorities: BTreeSet<u64> = bots.iter().map(|(_, priority)| *priority).collect();
    let weight = |(name, priority): &(&str, u64)| {
        let doublings = priorities.range(..priority).count().min(MAX_DOUBLINGS);
        Some((quoted(name)?, 1 << doublings))
    };
    bots.iter().filter_map(weight).collect()
}

/// Returns name and priority of a class that admits bots and no people, or only people without a session. An invalid class
/// has an error of its own.
fn class_without_people(class: &Value) -> Option<(&str, u64)> {
    let (name, when) = (field(class, "name").and_then(word)?, field(class, "when")?);
    let kinds = field(when, "kind").map(words).unwrap_or_default();
    let is_of_bots = field(when, "operator").is_some_and(|operator| !words(operator).is_empty())
        || !kinds.is_empty() && !kinds.contains(&"human")
        || field(when, "session").is_some_and(|session| words(session) == ["none"]);
    let is_blocked = field(class, "block").is_some_and(|block| block.kind == ValueKind::Boolean(true));
    let priority = match field(class, "priority").map(|priority| &priority.kind) {
        Some(ValueKind::U64(priority)) => *priority,
        _ => 0,
    };
    (is_of_bots && !is_blocked).then_some((name, priority))
}

/// Returns the name of a class as YAML reads it as text; `None` if it is no name of a class.
fn quoted(name: &str) -> Option<String> {
    let is_name = name.chars().all(|letter| matches!(letter, 'a'..='z' | '0'..='9' | '_' | '.' | '-'));
    let is_word = name.chars().all(|letter| letter.is_ascii_lowercase()) && !matches!(name, "true" | "false" | "null");
    (is_name && !name.is_empty()).then(|| if is_word { name.to_owned() } else { format!("\"{name}\"") })
}

/// Returns the items of a list; a value that is no list is its only item.
fn items(value: &Value) -> &[Value] {
    match &value.kind {
        ValueKind::Array(items) => items,
        _ => std::slice::from_ref(value),
    }
}

fn keys(value: &Value) -> Option<&Map<String, Value>> {
    match &value.kind {
        ValueKind::Table(keys) => Some(keys),
        _ => None,
    }
}

fn field<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    keys(value)?.get(key)
}

/// Returns the words of a word or of a list of words.
fn words(value: &Value) -> Vec<&str> {
    items(value).iter().filter_map(word).collect()
}

fn word(value: &Value) -> Option<&str> {
    match &value.kind {
        ValueKind::String(word) => Some(word),
        _ => None,
    }
}

/// Inserts a key with its value in YAML.
fn insert(into: &mut Map<String, Value>, section: &SettingPath, key: &str, value: &str, added: &mut Vec<DefaultValue>) {
    let space = if value.starts_with('\n') { "" } else { " " };
    let text = format!("{key}:{space}{value}");
    let (node, errors) = yaml::read(&text);
    debug_assert!(errors.is_empty(), "{text}: {errors:?}");
    // No position in the file, as for other defaults.
    let mut node = layers::value(node, section, &mut SourceMap::default());
    if let Some(value) = table(&mut node).and_then(|entries| entries.remove(key)) {
        into.insert(key.to_owned(), value);
        added.push(DefaultValue { section: section.clone(), text });
    }
}

fn table(value: &mut Value) -> Option<&mut Map<String, Value>> {
    match &mut value.kind {
        ValueKind::Table(entries) => Some(entries),
        _ => None,
    }
}

fn entries(value: Option<&mut Value>) -> impl Iterator<Item = (&String, &mut Value)> {
    value.and_then(table).into_iter().flatten()
}
