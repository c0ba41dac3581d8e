//! Tests that the JSON Schema accepts and rejects the same files as the gateway, as far as a schema can express.

use super::EXAMPLE;
use crate::{ConfigErrors, SettingPath, raw, schema};
use serde_json::{Value, json};

#[test]
fn schema_accepts_the_example_config() {
    let example: Value = serde_saphyr::from_str_with_options(EXAMPLE, serde_saphyr::options! { strict_booleans: true })
        .expect("valid YAML");
    assert_eq!(validation_error(&schema(), &schema(), &example), None);
}

#[test]
fn schema_accepts_every_form_and_rejects_others() {
    for (key, value, accepted) in [
        ("listen", json!(["127.0.0.1:1", "[::1]:2"]), true),
        ("listen", json!("${LISTEN}"), true),
        ("listen", json!(8080), false),
        ("listen", json!({ "address": "127.0.0.1:1", "redirect": "https" }), true),
        ("listen", json!(["127.0.0.1:1", { "address": "[::1]:2", "tls": { "certificate": "a", "key": "b" } }]), true),
        ("listen", json!([{ "address": "127.0.0.1:1", "redirect": "http" }]), false),
        ("listen", json!([{ "address": "127.0.0.1:1", "tls": { "acme": { "domains": ["a.example"] } } }]), true),
        ("listen", json!([{ "address": "127.0.0.1:1", "tls": { "acme": { "domain": "a.example" } } }]), false),
        ("workers", json!(4), true),
        ("workers", json!("some"), false),
        ("clients", json!({ "address_from": { "header": "X" } }), true),
        ("clients", json!({ "address_from": "guess" }), false),
        ("log", json!({ "access": "stdout" }), true),
        ("log", json!({ "access": { "file": "a" } }), false),
        (
            "quotas",
            json!({ "q": { "tiers": { "a": { "enforce": false, "steps": [{ "above": 5, "shed": "5%" }] } } } }),
            true,
        ),
        ("quotas", json!({ "q": { "tiers": { "a": [{ "above": "5%", "shed": 5 }] } } }), false),
        ("quotas", json!({ "Q": {} }), false),
        (
            "scopes",
            json!({ "a": { "partition_by": "host", "quota": { "limit": 5, "window": { "fixed": "1h" } } } }),
            true,
        ),
        ("scopes", json!({ "a": { "partition_by": { "path": 1 } }, "b": { "partition_by": { "header": "X" } } }), true),
        ("scopes", json!({ "a": { "partition_by": { "query": "a", "path": 1 } } }), false),
        ("scopes", json!({ "s": { "jitter": ["-10%", "30%"], "adaptive_concurrency": "gradient" } }), true),
        ("scopes", json!({ "s": { "jitter": "10%", "adaptive_concurrency": { "min": 2 } } }), true),
        ("scopes", json!({ "s": { "rampup": { "target_overloads": [1, 3] } } }), true),
        ("scopes", json!({ "s": { "rampup": { "target_overloads": 1 } } }), true),
        ("scopes", json!({ "s": { "adaptive_concurrency": "vegas" } }), false),
        ("scopes", json!({ "s": { "adaptive_concurrency": { "mim": 2 } } }), false),
        ("hosts", json!("example.com"), true),
        ("hosts", json!(["*.example.com", "[::1]"]), true),
        ("hosts", json!("https://example.com"), false),
        ("verify", json!({ "dns": "off", "refresh_interval": "off" }), true),
        ("verify", json!({ "dns": { "nameservers": ["127.0.0.1:53"] }, "refresh_interval": "12h" }), true),
        ("verify", json!({ "dns": 53 }), false),
        (
            "operators",
            json!({ "a": { "product_tokens": "A", "dns_names": ["a.example.com", "b-*.example.com"], "exhaustive": [] } }),
            true,
        ),
        ("operators", json!({ "a": { "exhaustive": "signatures" } }), false),
        ("crawl_policy", json!("on"), true),
        ("crawl_policy", json!({ "contact": "mailto:a@example.com", "show_units": true }), true),
        ("crawl_policy", json!({ "contacts": "mailto:a@example.com" }), false),
        ("routes", json!([{ "match": "/a", "case": "exact", "trailing_slash": "ignore" }]), true),
        ("routes", json!([{ "match": "/a", "case": "ignored" }]), false),
        (
            "routes",
            json!([{ "match": "/a", "response_headers": { "set": { "X-A": 0, "X-B": "b" }, "remove": "Server" } }]),
            true,
        ),
        ("routes", json!([{ "match": "/a", "request_headers": { "add": { "X A": "b" } } }]), false),
        ("routes", json!([{ "match": "/a", "request_headers": { "X-A": "b" } }]), false),
        ("routes", json!([{ "match": "/a", "redirect": "/b" }]), true),
        ("routes", json!([{ "match": "/a", "redirect": { "to": "/b", "status": 302 } }]), true),
        ("routes", json!([{ "match": "/a", "redirect": { "target": "/b" } }]), false),
        ("error_pages", json!({ "429": "busy.html", "5xx": "down.html" }), true),
        ("error_pages", json!({ "429": { "html": "busy.html", "json": "openai" } }), true),
        ("error_pages", json!({ "429": { "xml": "busy.xml" } }), false),
        ("error_pages", json!("busy.html"), false),
        ("listne", json!("127.0.0.1:1"), false),
    ] {
        let found = validation_error(&schema(), &schema(), &json!({ key: value }));
        assert_eq!(found.is_none(), accepted, "{key}: {value}: {found:?}");
    }
}

#[test]
fn schema_describes_every_section_and_key() {
    let schema = schema();
    for section in raw::SECTIONS {
        assert!(!schema["properties"][section].is_null(), "{section}");
    }
    let properties = schema["properties"].as_object().expect("a map");
    assert_eq!(properties.len(), raw::SECTIONS.len());
    let definitions = schema["$defs"]
        .as_object()
        .expect("a map")
        .values()
        .filter_map(|definition| definition["properties"].as_object());
    for (key, value) in definitions.chain([properties]).flatten() {
        let is_described = key == "header" || value["description"].as_str().is_some_and(|text| !text.is_empty());
        assert!(is_described, "{key} has no description");
    }
}

#[test]
fn every_key_that_names_a_file_has_the_type_of_a_path() {
    fn collect(schema: &Value, found: &mut Vec<(String, bool)>) {
        for (key, property) in schema["properties"].as_object().into_iter().flatten() {
            let description = property["description"].as_str().unwrap_or_default();
            let names_file =
                ["File ", "PEM file", "HTML files", "Directory of"].iter().any(|start| description.starts_with(start));
            if names_file {
                let value = if property["additionalProperties"].is_object() {
                    &property["additionalProperties"]
                } else {
                    property
                };
                found.push((key.clone(), value["minLength"] == 1));
            }
        }
        let children: Vec<&Value> = match schema {
            Value::Object(entries) => entries.values().collect(),
            Value::Array(items) => items.iter().collect(),
            _ => Vec::new(),
        };
        children.into_iter().for_each(|child| collect(child, found));
    }
    let mut found = Vec::new();
    collect(&schema(), &mut found);
    assert!(found.len() >= 16, "{found:?}");
    assert!(found.iter().all(|(_, is_path)| *is_path), "{found:?}");
}

#[test]
fn every_key_of_a_path_is_in_the_schema() {
    fn collect_keys(schema: &Value, keys: &mut Vec<String>) {
        keys.extend(schema["properties"].as_object().into_iter().flatten().map(|(key, _)| key.clone()));
        let children: Vec<&Value> = match schema {
            Value::Object(entries) => entries.values().collect(),
            Value::Array(items) => items.iter().collect(),
            _ => Vec::new(),
        };
        children.into_iter().for_each(|child| collect_keys(child, keys));
    }
    let mut keys = Vec::new();
    collect_keys(&schema(), &mut keys);
    let unknown: Vec<_> = SettingPath::KEYS.iter().filter(|key| !keys.iter().any(|known| known == *key)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert!(exists(&schema(), &schema(), "quotas.api.tiers.bot[0].above"));
    assert!(!exists(&schema(), &schema(), "quotas.api.tiers.bot[0].below"));
}

/// Checks that each error is at a path that the schema describes, or says that it is unknown.
pub(super) fn assert_paths_exist(errors: &ConfigErrors) {
    let schema = schema();
    for error in errors.errors.iter().filter(|error| !error.message.starts_with("unknown key")) {
        assert!(exists(&schema, &schema, &error.path.to_string()), "{error:?}");
    }
}

/// Returns true if `schema` describes a value at `path` below it.
fn exists(root: &Value, schema: &Value, path: &str) -> bool {
    if let Some(reference) = schema["$ref"].as_str() {
        return exists(root, root.pointer(reference.trim_start_matches('#')).expect("a definition"), path);
    }
    let branches = [&schema["anyOf"], &schema["oneOf"]].into_iter().filter_map(Value::as_array).flatten();
    if path.is_empty() || branches.into_iter().any(|branch| exists(root, branch, path)) {
        return true;
    }
    if let Some((index, rest)) = path.strip_prefix('[').and_then(|path| path.split_once(']')) {
        return index.parse::<usize>().is_ok() && schema["items"].is_object() && exists(root, &schema["items"], rest);
    }
    let path = path.strip_prefix('.').unwrap_or(path);
    let ends = path.match_indices(['.', '[']).map(|(end, _)| end).chain([path.len()]);
    ends.map(|end| path.split_at(end)).any(|(key, rest)| match &schema["properties"][key] {
        Value::Null if key.contains(['.', '[']) => false,
        Value::Null => {
            schema["additionalProperties"].is_object() && exists(root, &schema["additionalProperties"], rest)
        }
        property => exists(root, property, rest),
    })
}

/// Returns why `value` does not conform to `schema`; `None` if it does. Supports the keywords that our schema uses.
fn validation_error(root: &Value, schema: &Value, value: &Value) -> Option<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        return validation_error(root, root.pointer(reference.trim_start_matches('#')).expect("a definition"), value);
    }
    for branches in [&schema["anyOf"], &schema["oneOf"]] {
        if let Some(branches) = branches.as_array()
            && !branches.iter().any(|branch| validation_error(root, branch, value).is_none())
        {
            return Some(format!("{value} is none of {branches:?}"));
        }
    }
    let is = |name: &Value| match name.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("number") => value.is_number(),
        Some("integer") => value.is_u64(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        other => panic!("unknown type {other:?}"),
    };
    let fits = match &schema["type"] {
        Value::Null => true,
        Value::Array(names) => names.iter().any(is),
        name => is(name),
    };
    let listed = schema["enum"].as_array().is_none_or(|words| words.contains(value));
    let constant = schema["const"].is_null() || schema["const"] == *value;
    if !fits || !listed || !constant {
        return Some(format!("{value} is not {schema}"));
    }
    if let (Some(pattern), Some(text)) = (schema["pattern"].as_str(), value.as_str())
        && !regex::Regex::new(pattern).expect("a pattern").is_match(text)
    {
        return Some(format!("{text:?} does not match {pattern}"));
    }
    let items = value.as_array().into_iter().flatten();
    let entries = value.as_object().into_iter().flatten();
    items
        .filter(|_| schema["items"].is_object())
        .find_map(|item| validation_error(root, &schema["items"], item))
        .or_else(|| {
            entries.into_iter().find_map(|(key, value)| {
                let name_error = validation_error(root, &schema["propertyNames"], &Value::from(key.as_str()));
                let value_error = match (&schema["properties"][key], &schema["additionalProperties"]) {
                    (Value::Null, Value::Bool(false)) => Some(format!("unknown key {key}")),
                    (Value::Null, rest @ Value::Object(_)) => validation_error(root, rest, value),
                    (Value::Null, _) => None,
                    (property, _) => validation_error(root, property, value),
                };
                name_error.or(value_error)
            })
        })
}
