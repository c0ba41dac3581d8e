//! CONFIGURATION.md, from the JSON Schema of the configuration file.

use super::assert_current;
use super::markdown::{anchor, paragraph, table};
use serde_json::Value;
use std::collections::BTreeMap;
use tidegate_config as config;

#[test]
fn configuration_document_is_current() {
    let schema = config::schema();
    let forms = SCALAR_TYPES.iter().filter(|form| !form.examples.is_empty());
    let forms = forms.map(|form| [form.name.to_owned(), form.examples.to_owned()]);
    let mut text = INTRODUCTION.to_owned() + &table(["Type", "Written as"], forms);
    let mut renderer = SectionRenderer { schema: &schema, described: BTreeMap::new(), used_types: Vec::new() };
    for section in config::section_names() {
        text += &renderer.section(section);
    }
    let unused: Vec<&str> =
        SCALAR_TYPES.iter().map(|form| form.name).filter(|name| !renderer.used_types.contains(name)).collect();
    assert!(unused.is_empty(), "no key has the type {unused:?}");
    assert_current("CONFIGURATION.md", "Configuration", &format!("{}\n", text.trim_end()));
}

#[test]
fn sections_are_those_of_the_schema() {
    let schema = config::schema();
    let mut sections = config::section_names().to_vec();
    sections.sort_unstable();
    let keys: Vec<&str> = schema["properties"].as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(sections, keys);
}

/// Renderer of the sections.
struct SectionRenderer<'a> {
    schema: &'a Value,
    /// Path under which each definition with keys is described.
    described: BTreeMap<&'a str, String>,
    /// Names of the scalar types in use.
    used_types: Vec<&'static str>,
}

/// An object whose keys need a description.
struct Nested<'a> {
    path: String,
    object: &'a Value,
}

impl<'a> SectionRenderer<'a> {
    /// Returns the section of a top-level key.
    fn section(&mut self, key: &str) -> String {
        let (mut text, mut nested) = (format!("## `{key}`\n\n"), Vec::new());
        let property = &self.schema["properties"][key];
        let form = self.type_text(property, key, &mut nested);
        let description = Description::from_schema(property);
        if form != "object" {
            assert!(!description.default.is_empty(), "the description of {key} states no default");
            text += &paragraph("", "", &format!("Type: {form}. {}", description.default));
            text.push('\n');
        }
        // The object of a key often has the same description, and more.
        let object_text = nested
            .first()
            .filter(|first| first.path == key)
            .map(|first| Description::from_schema(first.object).all.join(" "));
        let is_repeated =
            |part: &&String| object_text.as_ref().is_some_and(|object_text| object_text.contains(part.as_str()));
        let paragraphs: Vec<&String> = description.paragraphs.iter().filter(|part| !is_repeated(part)).collect();
        for part in &paragraphs {
            text += &(paragraph("", "", part) + "\n");
        }
        let mut described = paragraphs.iter().map(|part| part.as_str()).collect::<Vec<_>>().join(" ");
        for Nested { path, object } in nested {
            if path != key {
                text += &format!("### `{path}`\n\n");
            }
            text += &self.object(&path, object, &std::mem::take(&mut described));
        }
        text
    }

    /// Returns the keys of an object, then those of the objects in it. `described` is the text above them.
    fn object(&mut self, path: &str, object: &'a Value, described: &str) -> String {
        let (mut text, mut nested) = (String::new(), Vec::new());
        let parts = Description::from_schema(object).all;
        for part in parts.into_iter().filter(|part| !described.contains(part.trim_end_matches('.'))) {
            text += &(paragraph("", "", &part) + "\n");
        }
        for (key, property) in object["properties"].as_object().expect("an object has keys") {
            let path = format!("{path}.{key}");
            let form = self.type_text(property, &path, &mut nested);
            let description = Description::from_schema(property);
            let is_section = form.starts_with('[');
            assert!(is_section || !description.default.is_empty(), "the description of {path} states no default");
            let facts = format!("**`{path}`**: {form}. {}", description.default);
            text += &format!("{}\\\n", paragraph("- ", "  ", facts.trim_end()).trim_end());
            for (index, part) in description.paragraphs.iter().enumerate() {
                let gap = if index == 0 { "" } else { "\n" };
                text += &format!("{gap}{}", paragraph("  ", "  ", part));
            }
            text += &self.enum_values(property);
        }
        text.push('\n');
        for Nested { path, object } in nested {
            text += &format!("### `{path}`\n\n{}", self.object(&path, object, ""));
        }
        text
    }

    /// Returns the type of a key. Adds the objects of the type to `nested`, unless they are described already.
    fn type_text(&mut self, schema: &'a Value, path: &str, nested: &mut Vec<Nested<'a>>) -> String {
        if let Some(name) = definition_name(schema) {
            let definition = &self.schema["$defs"][name];
            if definition.get("properties").is_none() {
                return self.type_text(definition, path, nested);
            }
            let described = self.described.entry(name).or_insert_with(|| {
                nested.push(Nested { path: path.to_owned(), object: definition });
                path.to_owned()
            });
            if !path.contains(['.', '[']) {
                return "object".to_owned();
            }
            let like = if *described == path { String::new() } else { format!(" like `{described}`") };
            return format!("[object](#{}){like}", anchor(described));
        }
        if let Some(forms) = schema["anyOf"].as_array() {
            let forms: Vec<&Value> = forms.iter().filter(|form| form["type"] != "null").collect();
            if let [one, many] = forms.as_slice()
                && many["items"] == **one
            {
                let ending = if many.get("minItems").is_some() { "`[min, max]`" } else { "a list" };
                return format!("{}, or {ending}", self.type_text(one, path, nested));
            }
            let forms: Vec<String> = forms.into_iter().map(|form| self.type_text(form, path, nested)).collect();
            return join_alternatives(&forms);
        }
        if let Some(words) = schema["enum"].as_array() {
            return join_alternatives(&words.iter().map(code).collect::<Vec<_>>());
        }
        if let Some(words) = schema["oneOf"].as_array() {
            return join_alternatives(&words.iter().map(|word| code(&word["const"])).collect::<Vec<_>>());
        }
        if let Some(items) = schema.get("items") {
            return format!("list of {}", plural(&self.type_text(items, &format!("{path}[N]"), nested)));
        }
        if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
            return format!("map of NAME to {}", self.type_text(values, &format!("{path}.NAME"), nested));
        }
        if let Some(keys) = schema["properties"].as_object() {
            let keys: Vec<String> =
                keys.iter().map(|(key, value)| format!("{key}: {}", self.type_text(value, path, nested))).collect();
            return format!("`{{ {} }}`", keys.join(", "));
        }
        let scalar = SCALAR_TYPES.iter().find(|form| (form.matches)(schema));
        let scalar = scalar.unwrap_or_else(|| panic!("the reference has no name for the type of {path}: {schema}"));
        self.used_types.push(scalar.name);
        scalar.name.to_owned()
    }

    /// Returns the words of a key with their descriptions, as a list.
    fn enum_values(&self, property: &Value) -> String {
        let forms = property["anyOf"].as_array().map(Vec::as_slice).unwrap_or_default();
        let items = forms.iter().map(|form| &form["items"]).chain([&property["items"]]);
        let schemas = forms.iter().chain(items).chain([property]).filter_map(definition_name);
        let mut names: Vec<&str> = schemas.collect();
        names.dedup();
        let words = names.iter().filter_map(|name| self.schema["$defs"][name]["oneOf"].as_array()).flatten();
        let line = |word: &Value| {
            let meaning = word["description"].as_str().unwrap_or_default();
            paragraph("  - ", "    ", &format!("`{}`: {meaning}", word["const"].as_str().unwrap_or_default()))
        };
        let mut lines: Vec<String> = words.map(line).collect();
        lines.dedup();
        lines.concat()
    }
}

/// A description: its paragraphs, and the sentences that state the default or that the key is required.
struct Description {
    default: String,
    paragraphs: Vec<String>,
    all: Vec<String>,
}

impl Description {
    fn from_schema(schema: &Value) -> Self {
        let description = schema["description"].as_str().unwrap_or_default();
        let (mut defaults, mut paragraphs, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for text in description.split("\n\n").map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")) {
            let (default, rest): (Vec<&str>, Vec<&str>) =
                sentences(&text).into_iter().partition(|sentence| is_default(sentence));
            defaults.extend(default.into_iter().map(str::to_owned));
            paragraphs.push(rest.join(" "));
            all.push(text);
        }
        defaults.sort_by_key(|sentence| sentence.starts_with("Default"));
        paragraphs.retain(|text| !text.is_empty());
        all.retain(|text| !text.is_empty());
        Self { default: defaults.join(" "), paragraphs, all }
    }
}

fn is_default(sentence: &str) -> bool {
    let starts = ["Default ", "Default: ", "Required, ", "Required with "];
    sentence == "Required."
        || starts.iter().any(|start| sentence.starts_with(start))
        || sentence.ends_with(" is required.")
}

/// Splits a paragraph before each capital letter or quote that follows a period.
fn sentences(text: &str) -> Vec<&str> {
    let (mut sentences, mut start) = (Vec::new(), 0);
    for (end, _) in text.match_indices(". ") {
        if text[end + 2..].starts_with(|c: char| c.is_ascii_uppercase() || matches!(c, '`' | '"' | '{')) {
            sentences.push(&text[start..=end]);
            start = end + 2;
        }
    }
    sentences.push(&text[start..]);
    sentences
}

fn definition_name(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix("#/$defs/")
}

fn code(word: &Value) -> String {
    format!("`{}`", word.as_str().expect("a word"))
}

/// Returns `a, b or c`.
fn join_alternatives(forms: &[String]) -> String {
    match forms {
        [rest @ .., last] if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => forms.concat(),
    }
}

/// Returns the plural of a type.
fn plural(form: &str) -> String {
    match form {
        object if object.starts_with("[object]") => object.replacen("[object]", "[objects]", 1),
        words if words.ends_with('`') => words.to_owned(),
        other => format!("{other}s"),
    }
}

/// A scalar type of the schema.
struct ScalarType {
    name: &'static str,
    /// How a value is written; empty if the name suffices.
    examples: &'static str,
    matches: fn(&Value) -> bool,
}

macro_rules! pattern_type {
    ($name:literal, $examples:literal, $pattern:literal) => {
        ScalarType {
            name: $name,
            examples: $examples,
            matches: |schema| {
                let pattern = schema["pattern"].as_str();
                pattern.and_then(|text| text.strip_prefix("^(")?.strip_suffix("|.*\\$\\{.*)$")) == Some($pattern)
            },
        }
    };
}

/// All scalar types. The patterns are those of the schema, without the placeholder of a variable.
const SCALAR_TYPES: &[ScalarType] = &[
    pattern_type!("duration", "`250ms`, `5s`, `10m`, `24h` or `7d`, at most 3650 days", "[0-9]+(ms|s|m|h|d)"),
    pattern_type!("`auto` or duration", "", "auto|[0-9]+(ms|s|m|h|d)"),
    pattern_type!("size", "`512B`, `64KiB`, `10MiB` or `1GiB`", "[0-9]+(B|KiB|MiB|GiB)"),
    pattern_type!("country", "`DE`, two letters (ISO 3166)", "[A-Za-z]{2}"),
    pattern_type!("share", "`75%` or `12.5%`, from 0 to 100", "[0-9.]+%"),
    pattern_type!("change", "`10%` or `-10%`, from -100 to 100", "-?[0-9.]+%"),
    pattern_type!("number", "`10000` or `0.25`, to a thousandth", "[0-9.]+"),
    pattern_type!("number or `learned`", "", "[0-9.]+|learned"),
    pattern_type!("share or number", "", "[0-9.]+%?"),
    pattern_type!("network", "`10.0.0.0/8`, `\"2001:db8::/32\"`, or one address", "[0-9a-fA-F.:]+(/[0-9]+)?"),
    pattern_type!("address and port", "`127.0.0.1:8080` or `\"[::1]:8080\"`", "[0-9a-fA-F.:\\[\\]]+:[0-9]+"),
    pattern_type!(
        "address and port, or Unix socket",
        "`127.0.0.1:9090`, `unix:/run/tidegate/admin.sock`",
        "[0-9a-fA-F.:\\[\\]]+:[0-9]+|unix:/.+"
    ),
    pattern_type!("`https`, or with a port", "`https:443`", "https(:[0-9]+)?"),
    pattern_type!("time of day", "`\"06:30\"`", "[0-2][0-9]:[0-5][0-9]"),
    pattern_type!("name pattern", "`partner` or `\"*.partner.example\"`", ".+"),
    pattern_type!("header name", "`X-API-Cost`", "[-!#$%&'*+.^_`|~0-9A-Za-z]+"),
    pattern_type!("method", "`GET`, in capitals", "[A-Z-]+"),
    pattern_type!("rate", "`10/s`, `60/m`, `100/h` or `1000/d`", "[0-9]+/(s|m|h|d)"),
    pattern_type!("`auto` or integer", "", "auto|[0-9]+"),
    pattern_type!("integer", "", "[0-9]+"),
    pattern_type!(
        "DNS name",
        "`crawl.example.com`, which includes all names below it, or `bot-*.example.com`",
        "[-_*.0-9A-Za-z]+"
    ),
    pattern_type!(
        "host",
        "`example.com`, `\"*.example.com\"` (all names below it), `192.0.2.1` or `\"[2001:db8::1]\"`",
        "[-_*.:0-9A-Za-z\\[\\]]+"
    ),
    ScalarType { name: "integer", examples: "", matches: |schema| is_type(schema, "integer") },
    ScalarType {
        name: "text",
        examples: "",
        matches: |schema| is_type(schema, "string") && schema["pattern"].is_null(),
    },
    ScalarType { name: "`true` or `false`", examples: "", matches: |schema| is_type(schema, "boolean") },
];

/// Returns true if `schema` has this type, or this type and null.
fn is_type(schema: &Value, name: &str) -> bool {
    let types = schema["type"].as_array().map(Vec::as_slice).unwrap_or_default();
    schema["type"] == name || types.iter().any(|entry| entry == name)
}

const INTRODUCTION: &str = "\
The configuration is one YAML file. `tidegate check` reports all errors of a file at once, each with its line. Unknown
keys are errors. `tidegate schema` prints the JSON Schema of the file, for editors. `config/tidegate.yaml` is a
commented example.

`${NAME}` and `${NAME:-default}` in a value are replaced by environment variables. A variable such as
`TIDEGATE__ADMIN__LISTEN` sets the key `admin.listen`. Relative paths start at the working directory of the
process, those in `listen` at the directory of the file.

In a path, `NAME` stands for a name of your own, up to 64 of a-z, 0-9, `_`, `.` and `-`. `[N]` stands for a place in a
list. Numbers have neither a plus sign nor leading zeros. The types of scalar values are:

";
